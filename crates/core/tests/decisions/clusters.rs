//! Two clusters that share a lock, and what runs only where the leader is. The store keeps the lock of a session for a while after
//! its last renewal, the operators are cut off from it, crash, and leave requests behind that are carried out long after.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::{
    Command, Desired, Election, ElectionRead, Failure, HandoverOrder, Instant, Keeping, Key, NotEligible, OpId,
    Outcome, Record, RecordOutcome, Rival, Rules, Scope, Setting, Situation, StoreId, Stored, Tenure, Term, Timestamp,
    Uid, Version, View, WhenLost, Wish, Workload, WorkloadId, WorkloadKind, WorkloadOutcome, WriteWorkload, invariants,
};

use super::Shown;
use super::operator::instant;
use super::prng::Prng;

/// All times are in milliseconds.
const STEP: u64 = 100;
const TTL: u64 = 15_000;
/// From when a renewal is sent, how long its sender relies on it.
const TENURE: u64 = TTL * 4 / 5;
const LOCK_DELAY: u64 = 1_000;
/// A request of an operator that lives is carried out within this time.
const REQUEST: usize = 1_500;
/// How long one of an operator that does not, may be on its way.
const LATE: usize = 90_000;
/// From a crash to the next operator's first step.
const RETURN: u64 = 5_000;
/// How long an operator that begins waits until it has found the session.
const LOOKS_UP: u64 = 5_000;
/// How long a CronJob's controller may act by what it saw before.
const CONTROLLER: u64 = 2_000;
/// How long the watch of the workloads may bring nothing.
const STUCK: usize = 60_000;
/// How long pods take to end.
const GRACE: usize = 10_000;
const WIND_DOWN: u32 = 12;
const PERIOD: u64 = 60_000;
const FAULTS_UNTIL: u64 = 600_000;
const END: u64 = 780_000;
const NAMES: [&str; 2] = ["west", "east"];

/// A session: of which cluster, and which one in a row.
type Session = (usize, u32);

#[derive(Default)]
struct Store {
    version: u64,
    held: Option<Session>,
    written: Option<(usize, Record)>,
    delayed_until: u64,
    /// Until when the present session of each cluster lasts, if there is one.
    sessions: [Option<(u32, u64)>; 2],
}

/// What the API server of a cluster has.
struct Cluster {
    workloads: Vec<Workload>,
    version: u64,
    available: bool,
    reachable: bool,
    /// Until when the pods of the Deployment run, once it is disabled.
    pods_until: u64,
    /// Since when the CronJob is suspended, or not, and whether it was until then; its controller hears of it some time later.
    resumed: (u64, bool),
    /// How much later.
    hears_after: u64,
    /// When it is not available any more, soon after it began to lead.
    unfit_at: Option<u64>,
    /// Until when the watch of the workloads brings nothing.
    stuck_until: u64,
    operator: Option<Operator>,
    returns_at: u64,
    starts: u32,
    session: Option<u32>,
    renewed_at: u64,
}

struct Operator {
    election: Election,
    start: u32,
    tenure: Tenure,
    cache: Vec<Workload>,
    /// Until when its cache shows pods of the Deployment.
    pods_until: u64,
}

struct Request {
    cluster: usize,
    start: u32,
    session: Option<u32>,
    due: u64,
    op: OpId,
    command: Command,
    answered: bool,
}

pub struct Simulated {
    prng: Prng,
    now: u64,
    store: Store,
    clusters: [Cluster; 2],
    requests: Vec<Request>,
    /// Ticks that were started, and where.
    ticks: Vec<(u64, usize)>,
    /// When the lock was lost by a session's end.
    expired: Vec<u64>,
    /// Of a thousand steps.
    faults: usize,
    lost: usize,
    /// Faults, locks that were taken, and for how many milliseconds something ran.
    shown: Shown,
    history: Option<Vec<String>>,
}

/// Runs one seed; the error is what went wrong, and what happened until then.
pub fn run(seed: u64, keep: bool) -> Result<Shown, (String, Vec<String>)> {
    let mut prng = Prng::new(seed);
    let (faults, lost) = ([2, 8, 25][prng.below(3)], [0, 5, 20][prng.below(3)]);
    let mut run = Simulated {
        prng,
        now: 1_000_000,
        store: Store { version: 10, ..Store::default() },
        clusters: [cluster(0), cluster(1)],
        requests: Vec::new(),
        ticks: Vec::new(),
        expired: Vec::new(),
        faults,
        lost,
        shown: Shown::default(),
        history: keep.then(Vec::new),
    };
    let done = run.go();
    done.map_err(|failure| (failure, run.history.unwrap_or_default()))?;
    Ok(run.shown)
}

fn cluster(number: usize) -> Cluster {
    let workload = |kind: WorkloadKind, setting: Setting| Workload {
        id: WorkloadId { kind, name: "live".into() },
        uid: Uid(format!("{}-{kind}", NAMES[number])),
        version: Version(1),
        setting,
        claim: None,
        deleting: false,
        finished: false,
        remains: false,
        deletable: false,
        last_tick: None,
        wish: Wish::Follow { replicas: None },
    };
    Cluster {
        workloads: vec![
            workload(WorkloadKind::CronJob, Setting::Suspend(true)),
            workload(WorkloadKind::Deployment, Setting::Replicas(0)),
        ],
        version: 1,
        available: true,
        reachable: true,
        pods_until: 0,
        resumed: (0, false),
        hears_after: 0,
        unfit_at: None,
        stuck_until: 0,
        operator: None,
        returns_at: 0,
        starts: 0,
        session: None,
        renewed_at: 0,
    }
}

impl Simulated {
    fn go(&mut self) -> Result<(), String> {
        let start = self.now;
        while self.now < start + END {
            self.now += STEP;
            if self.now < start + FAULTS_UNTIL {
                self.go_wrong();
            } else {
                for number in 0..2 {
                    self.clusters[number].reachable = true;
                    self.clusters[number].available = true;
                }
            }
            self.expire();
            for cluster in &mut self.clusters {
                if cluster.unfit_at.is_some_and(|at| at <= self.now) {
                    (cluster.unfit_at, cluster.available) = (None, false);
                }
            }
            for number in 0..2 {
                self.renew(number);
                self.step(number);
            }
            self.carry_out_due();
            self.tick()?;
            self.judge()?;
        }
        let leading: Vec<&str> = (0..2).filter(|number| self.leads(*number)).map(|number| NAMES[number]).collect();
        if leading.len() != 1 {
            return Err(format!("in the end {leading:?} lead: {:?} {:?}", self.situation(0), self.situation(1)));
        }
        Ok(())
    }

    // What goes wrong

    fn go_wrong(&mut self) {
        if self.prng.below(1000) >= self.faults {
            return;
        }
        let number = self.prng.below(2);
        self.shown.faults += 1;
        match self.prng.below(6) {
            0 if self.is_staffed(number) => {
                self.clusters[number].reachable = !self.clusters[number].reachable;
                self.note(&format!("{} reachable: {}", NAMES[number], self.clusters[number].reachable));
            }
            1 => {
                self.clusters[number].available = !self.clusters[number].available;
                self.note(&format!("{} available: {}", NAMES[number], self.clusters[number].available));
            }
            2 if self.is_staffed(number) && self.clusters[number].reachable => self.crash(number),
            3 => {
                // Somebody else writes to it: whatever is on its way, is for an earlier version.
                let which = self.prng.below(2);
                let cluster = &mut self.clusters[number];
                cluster.version += 1;
                cluster.workloads[which].version = Version(cluster.version);
            }
            4 => {
                self.clusters[number].stuck_until = self.now + u64::try_from(self.prng.below(STUCK)).unwrap_or(0);
                self.note(&format!("{}'s watch is stuck until {}", NAMES[number], self.clusters[number].stuck_until));
            }
            _ => {
                self.shown.faults -= 1;
                self.clusters[number].reachable = true;
                self.clusters[number].available = true;
            }
        }
    }

    /// Whether an operator is there, and the way to the store was not cut lately: without both, nobody can disable anything in time,
    /// and nothing is promised.
    fn is_staffed(&self, number: usize) -> bool {
        let Cluster { operator, returns_at, renewed_at, reachable, .. } = &self.clusters[number];
        operator.is_some()
            && self.now > returns_at + 2 * LOOKS_UP
            && (!reachable || self.now < renewed_at + TTL / 3 + STEP)
            && self.store.sessions[number].is_some()
    }

    /// Requests that were sent may be carried out long after, or never.
    fn crash(&mut self, number: usize) {
        if self.clusters[number].operator.take().is_none() {
            return;
        }
        self.note(&format!("{} crashes", NAMES[number]));
        self.clusters[number].returns_at = self.now + RETURN;
        let now = self.now;
        for request in self.requests.iter_mut().filter(|request| request.cluster == number) {
            request.due = now + u64::try_from(self.prng.below(LATE)).unwrap_or(0);
        }
    }

    // The store

    fn expire(&mut self) {
        for (number, name) in NAMES.iter().enumerate() {
            let Some((session, until)) = self.store.sessions[number] else { continue };
            if self.now < until {
                continue;
            }
            self.store.sessions[number] = None;
            if self.store.held == Some((number, session)) {
                self.store.held = None;
                self.store.version += 1;
                self.store.delayed_until = self.now + LOCK_DELAY;
                self.expired.push(self.now);
                self.note(&format!("{name}'s session ends, and with it the lock"));
            }
        }
    }

    fn renew(&mut self, number: usize) {
        let now = self.now;
        let cluster = &mut self.clusters[number];
        let Some(operator) = cluster.operator.as_mut() else { return };
        if !cluster.reachable || (now < cluster.renewed_at + TTL / 3 && operator.tenure != Tenure::Unknown) {
            return;
        }
        cluster.renewed_at = now;
        let lasts = now + TTL + u64::try_from(self.prng.below(15_000)).unwrap_or(0);
        let session = match self.store.sessions[number] {
            Some((session, _)) if cluster.session == Some(session) => session,
            _ => {
                // It is gone: what was held by it is lost, and another one is made.
                let session = cluster.session.map_or(1, |session| session + 1);
                cluster.session = Some(session);
                session
            }
        };
        self.store.sessions[number] = Some((session, lasts));
        operator.tenure = Tenure::Until(instant(now + TENURE));
    }

    /// What is under the key, as a cluster sees it.
    fn stored(&self, number: usize) -> Stored {
        let version = Version(self.store.version);
        let Some((writer, record)) = &self.store.written else { return Stored::Absent };
        let record = record.clone().at(version);
        let own = *writer == number;
        match self.store.held {
            Some((cluster, session)) if cluster == number && self.clusters[number].session == Some(session) => {
                Stored::Record(version, record)
            }
            Some((cluster, _)) => Stored::Held(
                version,
                Rival {
                    cluster: Some(NAMES[cluster].into()),
                    term: record.term,
                    since: None,
                    holder: record.holder.filter(|_| !own),
                    session: String::new(),
                    legacy: record.legacy.filter(|_| !own),
                },
            ),
            None if own => Stored::Free(version, Some(record), None),
            None => Stored::Free(version, None, record.legacy),
        }
    }

    fn write(&mut self, request: &Request, expected: Option<Version>, record: &Record) -> RecordOutcome {
        let number = request.cluster;
        let session = request.session.map(|session| (number, session));
        let lives = self.store.sessions[number].map(|(session, _)| (number, session)) == session && session.is_some();
        let there = self.store.written.is_some().then_some(Version(self.store.version));
        if !lives {
            return RecordOutcome::Failed(Failure::Refused("no such session".into()));
        }
        if there != expected || self.store.held.is_some_and(|held| Some(held) != session) {
            return RecordOutcome::Conflict;
        }
        if self.store.held.is_none() && self.now < self.store.delayed_until {
            return RecordOutcome::Delayed;
        }
        self.shown.leaderships += u64::from(self.store.held.is_none());
        self.store.version += 1;
        self.store.held = session;
        self.store.written = Some((number, record.clone()));
        RecordOutcome::Written(Version(self.store.version))
    }

    // The operators

    fn step(&mut self, number: usize) {
        let now = self.now;
        if self.clusters[number].operator.is_none() && now >= self.clusters[number].returns_at {
            let cluster = &mut self.clusters[number];
            cluster.starts += 1;
            let elector = format!("{}#{}", NAMES[number], cluster.starts);
            let uid = Uid(NAMES[number].into());
            let election = Election::new("live".into(), uid, elector, None, OpId(u64::from(cluster.starts) << 32));
            let cache = cluster.workloads.clone();
            let (start, pods_until) = (cluster.starts, cluster.pods_until);
            cluster.operator = Some(Operator { election, start, tenure: Tenure::Unknown, cache, pods_until });
            self.note(&format!("{} starts", NAMES[number]));
        }
        let (sees_lock, sees_workloads, takes) = (self.prng.percent(60), self.prng.percent(60), self.prng.percent(80));
        let (stored, version) = (self.stored(number), Version(self.store.version));
        let cluster = &mut self.clusters[number];
        let Some(operator) = cluster.operator.as_mut() else { return };
        if sees_lock && cluster.reachable {
            operator.election.observe(version, stored);
        }
        if sees_workloads && now >= cluster.stuck_until {
            operator.cache.clone_from(&cluster.workloads);
            operator.pods_until = cluster.pods_until;
        }
        if !takes || (operator.tenure == Tenure::Unknown && now < cluster.returns_at + LOOKS_UP) {
            return;
        }
        for workload in &mut operator.cache {
            let winds_down = match workload.id.kind {
                WorkloadKind::CronJob => (now + CONTROLLER) % PERIOD < 2 * CONTROLLER,
                _ => now < operator.pods_until,
            };
            workload.remains = workload.setting.runs() || winds_down;
        }
        let tenure = operator.tenure;
        let cluster_may = if cluster.available { Ok(()) } else { Err(NotEligible::Unavailable) };
        let requests = operator.election.step(&view(now, tenure, cluster_may, &operator.cache)).requests;
        let (start, session) = (operator.start, cluster.session);
        for (op, command) in requests {
            if let Command::WriteWorkload(write) = &command
                && write.enables()
                && !tenure.lasts(instant(now))
            {
                let refused = WorkloadOutcome::Failed(Failure::Refused("the tenure is over".into()));
                if let Some(operator) = self.clusters[number].operator.as_mut() {
                    operator.election.take(op, Outcome::WorkloadWritten(refused), instant(now));
                }
                continue;
            }
            let due = now + u64::try_from(self.prng.below(REQUEST)).unwrap_or(0);
            let answered = !self.prng.percent(self.lost);
            self.requests.push(Request { cluster: number, start, session, due, op, command, answered });
        }
    }

    fn carry_out_due(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.requests).into_iter().partition(|request| request.due <= self.now);
        self.requests = later;
        for request in due {
            let outcome = self.carry_out(&request);
            let outcome = if request.answered { outcome } else { unknown(&outcome) };
            self.note(&format!("{} {} -> {outcome}", NAMES[request.cluster], request.command));
            let now = instant(self.now);
            let cluster = &mut self.clusters[request.cluster];
            if let Some(operator) = cluster.operator.as_mut().filter(|operator| operator.start == request.start) {
                if request.answered && matches!(outcome, Outcome::WorkloadWritten(_) | Outcome::WorkloadsRead(_)) {
                    operator.cache.clone_from(&cluster.workloads);
                    operator.pods_until = cluster.pods_until;
                }
                operator.election.take(request.op, outcome, now);
            }
        }
    }

    fn carry_out(&mut self, request: &Request) -> Outcome {
        let reachable = self.clusters[request.cluster].reachable;
        let mute = || Failure::Unknown("no answer".into());
        let record = |outcome: RecordOutcome| Outcome::RecordWritten(outcome);
        match &request.command {
            Command::ReadRecord { .. } => {
                let read = if reachable { Ok(self.stored(request.cluster)) } else { Err(mute()) };
                Outcome::RecordRead(read)
            }
            Command::WriteRecord { expected, record: wanted, .. } => {
                let written =
                    if reachable { self.write(request, *expected, wanted) } else { RecordOutcome::Failed(mute()) };
                record(written)
            }
            Command::ReleaseRecord { version, .. } => {
                let session = request.session.map(|session| (request.cluster, session));
                let holds = self.store.version == version.0 && self.store.held == session;
                record(if !reachable {
                    RecordOutcome::Failed(mute())
                } else if holds {
                    self.store.version += 1;
                    self.store.held = None;
                    RecordOutcome::Written(Version(self.store.version))
                } else {
                    RecordOutcome::Conflict
                })
            }
            Command::ReadElection => {
                let uid = Uid(NAMES[request.cluster].into());
                Outcome::ElectionRead(Ok(ElectionRead::Present { uid, generation: 1 }))
            }
            Command::ListLocks => {
                let listed = if reachable { Ok(vec![(key(), self.stored(request.cluster))]) } else { Err(mute()) };
                let own = |stored: &Stored| stored.written().is_some();
                Outcome::LocksListed(listed.map(|all| all.into_iter().filter(|(_, stored)| own(stored)).collect()))
            }
            Command::ReadWorkloads { .. } => Outcome::WorkloadsRead(Ok(Vec::new())),
            Command::WriteWorkload(write) => Outcome::WorkloadWritten(self.write_workload(request.cluster, write)),
            other => unreachable!("{other:?}"),
        }
    }

    fn write_workload(&mut self, number: usize, write: &WriteWorkload) -> WorkloadOutcome {
        let grace = u64::try_from(self.prng.below(GRACE)).unwrap_or(0);
        let unfit_after = self.prng.below(3_000);
        let unfit = self.prng.below(1000) < 10 * self.faults && self.now < 1_000_000 + FAULTS_UNTIL;
        let hears_after = self.prng.below(usize::try_from(CONTROLLER).unwrap_or(0)).try_into().unwrap_or(0);
        let cluster = &mut self.clusters[number];
        let Some(workload) = cluster.workloads.iter_mut().find(|workload| workload.id == write.id) else {
            return WorkloadOutcome::Gone;
        };
        if workload.version != write.version {
            return WorkloadOutcome::Conflict;
        }
        cluster.version += 1;
        let before = workload.setting;
        let stops = workload.setting.runs() && !write.setting.runs();
        workload.version = Version(cluster.version);
        workload.setting = write.setting;
        workload.claim.clone_from(&write.claim);
        workload.last_tick = workload.last_tick.max(write.after_tick);
        if stops && workload.id.kind == WorkloadKind::Deployment {
            cluster.pods_until = self.now + grace;
        }
        if workload.id.kind == WorkloadKind::CronJob && before.runs() != write.setting.runs() {
            // What it has not heard of yet, it hears of together with this.
            (cluster.resumed, cluster.hears_after) = ((self.now, before.runs()), hears_after);
            let begins = unfit && write.setting.runs();
            cluster.unfit_at = begins.then(|| self.now + u64::try_from(unfit_after).unwrap_or(0));
        }
        WorkloadOutcome::Done
    }

    // What must hold

    /// The controllers of CronJobs start the last tick that they have not started yet.
    fn tick(&mut self) -> Result<(), String> {
        let due = self.now / PERIOD * PERIOD;
        for (number, name) in NAMES.iter().enumerate() {
            let cluster = &mut self.clusters[number];
            let ((since, before), heard) = (cluster.resumed, cluster.hears_after);
            let cron_job = &mut cluster.workloads[0];
            let runs = if self.now < since + heard { before } else { cron_job.setting.runs() };
            let done = cron_job.last_tick.map_or(1_000_000, |tick| u64::try_from(tick.0).unwrap_or(0));
            if !runs || done >= due {
                continue;
            }
            cron_job.last_tick = Some(Timestamp(i64::try_from(due).unwrap_or(0)));
            self.ticks.push((due, number));
            // Which one a holder that went silent has started, nobody can know for a while.
            let unsure = self.expired.iter().any(|at| (due..=due + silence()).contains(at));
            let twice = self.ticks.iter().filter(|(tick, _)| *tick == due).count() > 1;
            if twice && !unsure {
                return Err(format!("the tick {due} is started twice: {:?}", self.ticks));
            }
            self.note(&format!("{name} starts the tick {due}"));
        }
        Ok(())
    }

    fn judge(&mut self) -> Result<(), String> {
        if (0..2).any(|number| self.leads(number)) {
            self.shown.judged += STEP;
        }
        for which in 0..2 {
            let runs = (0..2).map(|number| {
                let workload = &self.clusters[number].workloads[which];
                let ends = which == 1 && self.now < self.clusters[number].pods_until;
                workload.setting.runs() || ends
            });
            if !invariants::at_most_one(runs) {
                return Err(format!("{} runs in both", self.clusters[0].workloads[which].id));
            }
        }
        let alone = invariants::at_most_one((0..2).map(|number| self.leads(number)));
        if alone { Ok(()) } else { Err("both lead".into()) }
    }

    /// Everything is enabled.
    fn leads(&self, number: usize) -> bool {
        self.clusters[number].workloads.iter().all(|workload| workload.setting.runs())
    }

    fn situation(&self, number: usize) -> Option<&Situation> {
        self.clusters[number].operator.as_ref().map(|operator| operator.election.situation())
    }

    fn note(&mut self, line: &str) {
        let now = self.now;
        if let Some(history) = &mut self.history {
            history.push(format!("{now} {line}"));
        }
    }
}

fn silence() -> u64 {
    TTL * 2 + LOCK_DELAY + 5_000
}

fn key() -> Key {
    Key { store: StoreId("consul".into()), namespace: String::new(), name: "live".into() }
}

fn view(now: u64, tenure: Tenure, cluster: Result<(), NotEligible>, workloads: &[Workload]) -> View<'_> {
    static KEY: std::sync::LazyLock<Key> = std::sync::LazyLock::new(key);
    static SCOPE: std::sync::LazyLock<Scope> = std::sync::LazyLock::new(Scope::default);
    static RULES: std::sync::LazyLock<Rules> = std::sync::LazyLock::new(Rules::default);
    View {
        now: instant(now),
        wall: Timestamp(i64::try_from(now).unwrap_or(0)),
        generation: 1,
        desired: Desired::Run,
        key: &KEY,
        scope: &SCOPE,
        rules: &RULES,
        order: HandoverOrder::DemoteFirst,
        failover_delay: Duration::ZERO,
        status_term: Term(0),
        cluster: Some(cluster),
        workloads: Some(workloads),
        jobs: &[],
        wind_down: WIND_DOWN,
        pods: &[],
        nodes: const { &BTreeMap::new() },
        probe_failed: None,
        strays: &[],
        keeping: Keeping {
            shared: true,
            tenure,
            when_lost: WhenLost::Demote,
            silence: Duration::from_millis(silence()),
            grace: Duration::from_millis(TTL),
            not_before: Instant::default(),
        },
    }
}

/// What an operator is told whose answer was lost.
fn unknown(outcome: &Outcome) -> Outcome {
    let lost = Failure::Unknown("the answer is lost".into());
    match outcome {
        Outcome::RecordRead(_) => Outcome::RecordRead(Err(lost)),
        Outcome::RecordWritten(_) => Outcome::RecordWritten(RecordOutcome::Failed(lost)),
        Outcome::ElectionRead(_) => Outcome::ElectionRead(Err(lost)),
        Outcome::LocksListed(_) => Outcome::LocksListed(Err(lost)),
        Outcome::WorkloadsRead(_) => Outcome::WorkloadsRead(Err(lost)),
        Outcome::WorkloadWritten(_) => Outcome::WorkloadWritten(WorkloadOutcome::Failed(lost)),
        other => other.clone(),
    }
}

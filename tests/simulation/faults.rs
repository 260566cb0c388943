//! What goes wrong, and when: drawn from a seed before a run begins, so that a failure can be run again with fewer of them.

use std::fmt;

use k8s_openapi::jiff::Timestamp;
use lictor_testing::Prng;
use serde_json::json;

use crate::adversities::{adversities, apply, shown};
use crate::controllers::PERIOD;
use crate::excuse::Loss;
use crate::judge::{Group, SHARED, WORKLOAD};
use crate::process::EPOCH;
use crate::servers::api::Object;
use crate::servers::link::{Link, Weather};
use crate::shared::Shared;
use crate::users::{LEASES, SCOPES, followed_lease};
use crate::world::{APPS, CLUSTERS, NAMESPACE, PODS, REPLICAS, World};

/// Something that goes wrong at a moment, and is over some time later. All times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Fault {
    pub at: u64,
    pub lasts: u64,
    pub what: What,
    pub cluster: usize,
    pub replica: usize,
    pub pod: String,
    pub number: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A replica is killed, and started again.
    Kill,
    /// A replica is stopped, and continued.
    Stop,
    /// A replica is asked to end, and started again.
    Terminate,
    /// Of a replica's machine.
    WallClock,
    /// Of a replica's way to the API server.
    Api(Trouble),
    /// Of a replica's way to the shared store.
    Store(Trouble),
    /// Of all replicas of a cluster.
    StoreOfAll(Trouble),
    /// Another server leads Consul. A bucket has no such thing.
    ConsulLeader,
    SessionEnds,
    /// The API server forgets what happened: watches have a gap.
    Compaction,
    Unready,
    /// A pod is deleted, and made anew by the same name.
    Deletion,
    Relabelled,
    NodeLost,
    Excluded,
    Priority,
    LeaderByHand,
    NoRoleByHand,
    NoTermByHand,
    /// The Lease with a lock is edited or deleted.
    LeaseByHand,
    /// The key with a lock is edited or deleted.
    KeyByHand,
    /// Watches of a replica bring nothing.
    Silence,
    /// Of an election: which pods it selects, and how they are marked.
    Scope,
    /// The name of its lock.
    Key,
    /// Who may lead, and how soon.
    Rules,
    Paused,
    /// It is deleted, and made again by the same name.
    Withdrawn,
    /// Through which Service the leader is reached, if through any.
    Routing,
    /// A slice is edited or deleted.
    SliceByHand,
    /// The standby believes that the process is gone of the replica that acts: it is, or that one runs on, and does not hear of its
    /// successor, or is heard late.
    TakenForGone,
    /// What has to be available where the workloads run.
    Unavailable,
    /// The program of a pod ends, and begins again.
    ProgramEnds,
    /// It opens its socket anew: for some milliseconds nobody listens.
    SocketAnew,
    /// Connections to it bring nothing.
    Unheard,
    /// A user asks for a switchover, and may delete it some time later.
    Switchover,
    /// The pods of an app elect their leader themselves: this one takes their lock, and another one, or nobody, has it some time later.
    Followed,
    /// The API server denies the requests of one verb.
    Denied,
    /// Watches bring each event late, one after the other, while reads show the present.
    Behind,
    /// Somebody writes into the key with a lock what no cluster has written.
    Forged,
    /// A controller takes the marks off the pods of an app again and again.
    Undone,
    /// From now on, former leaders are deleted, first or afterwards.
    Former,
    /// A third cluster was installed with copied values: its session has the cluster's name. It is the younger one, or the cluster's own
    /// session ends just then, and it is the older one.
    Namesake,
    /// A person keeps the state of the bucket, and puts it back later.
    PutBack,
}

/// The resources whose watches fall silent together.
const WATCHES: [&[&str]; 8] = [
    &["pods"],
    &["switchovers"],
    &["nodes"],
    &["leases"],
    &["leaderelections"],
    &["endpointslices", "services"],
    &["deployments", "statefulsets"],
    &["cronjobs", "jobs"],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    RequestsCut,
    AnswersCut,
    BothCut,
    Refused,
    Slow,
    VerySlow,
    Late,
    Twice,
    Errors,
    /// Only of the shared store: nobody there may write keys any more.
    Unwritable,
}

pub const TROUBLES: [Trouble; 9] = [
    Trouble::Late,
    Trouble::RequestsCut,
    Trouble::AnswersCut,
    Trouble::BothCut,
    Trouble::Refused,
    Trouble::Slow,
    Trouble::VerySlow,
    Trouble::Twice,
    Trouble::Errors,
];

const KINDS: [What; 30] = [
    What::Kill,
    What::Stop,
    What::Terminate,
    What::WallClock,
    What::Api(Trouble::Slow),
    What::Store(Trouble::Slow),
    What::StoreOfAll(Trouble::Slow),
    What::ConsulLeader,
    What::SessionEnds,
    What::Compaction,
    What::Unready,
    What::Deletion,
    What::Relabelled,
    What::NodeLost,
    What::Excluded,
    What::Priority,
    What::LeaderByHand,
    What::NoRoleByHand,
    What::NoTermByHand,
    What::LeaseByHand,
    What::KeyByHand,
    What::Silence,
    What::Scope,
    What::Key,
    What::Rules,
    What::Paused,
    What::Withdrawn,
    What::Routing,
    What::SliceByHand,
    What::Unavailable,
];

/// What makes operators act by views of the past.
const OUTDATED: [What; 12] = [
    What::Silence,
    What::Silence,
    What::Scope,
    What::Key,
    What::Routing,
    What::Withdrawn,
    What::Withdrawn,
    What::Stop,
    What::Kill,
    What::NodeLost,
    What::Deletion,
    What::Api(Trouble::Late),
];

/// What moves the workloads in order from one cluster to the other.
const HANDED_ON: [What; 8] = [
    What::Unavailable,
    What::Unavailable,
    What::Unavailable,
    What::Silence,
    What::Terminate,
    What::Kill,
    What::Api(Trouble::Late),
    What::Api(Trouble::Late),
];

/// What hurts no operator and no API server: then the promise between clusters holds without an exception.
const HARMLESS: [What; 9] = [
    What::Store(Trouble::Slow),
    What::StoreOfAll(Trouble::Slow),
    What::StoreOfAll(Trouble::Slow),
    What::ConsulLeader,
    What::SessionEnds,
    What::Unready,
    What::Deletion,
    What::NodeLost,
    What::WallClock,
];

/// What makes late writers: leaders change without a write to any pod, and operators do not get to the end of what they began.
const LATE: [What; 7] = [
    What::Kill,
    What::Stop,
    What::Terminate,
    What::Api(Trouble::Late),
    What::Api(Trouble::Late),
    What::NodeLost,
    What::NodeLost,
];

/// The faults of a seed, in order. Every seed has a mixture of its own and leaves many kinds out, so that long chains of the
/// others come up (Groce and others, "Swarm testing", 2012).
pub fn plan(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let base: &[What] = match prng.below(14) {
        0..4 => &HARMLESS,
        4..7 => &LATE,
        7..9 => &OUTDATED,
        9..11 => &HANDED_ON,
        _ => &KINDS,
    };
    let share = [30, 50, 80][prng.below(3)];
    let kinds: Vec<What> = base.iter().copied().filter(|_| prng.percent(share)).collect();
    let between = [2_000, 6_000, 15_000][prng.below(3)];
    let (mut at, mut faults) = (10_000, Vec::new());
    loop {
        at += draw(prng, 2 * between);
        if at >= until {
            faults.extend(taken_for_gone(prng, until));
            faults.extend(of_programs(prng, until));
            faults.extend(switchovers(prng, until));
            faults.extend(followed(prng, until));
            faults.extend(adversities(prng, until));
            faults.extend(unwritable(prng, until));
            faults.extend(edited_while_cut(prng, until));
            faults.extend(namesakes(prng, until));
            faults.extend(former(prng, until));
            faults.extend(put_back(prng, until));
            return faults;
        }
        if base == HANDED_ON && prng.percent(30) {
            faults.extend(chain(prng, at).into_iter().filter(|fault| fault.at + fault.lasts < until));
            continue;
        }
        let mut what = prng.pick(&kinds).copied().unwrap_or(What::Unready);
        if let What::Api(trouble) | What::Store(trouble) | What::StoreOfAll(trouble) = &mut what {
            let late = (base == LATE || base == HANDED_ON) && prng.percent(70);
            *trouble = prng.pick(&TROUBLES).copied().filter(|_| !late).unwrap_or(Trouble::Late);
        }
        let longest = [1_500, 8_000, 45_000][prng.below(3)];
        let lasts = draw(prng, longest).min(until - at);
        faults.push(Fault {
            at,
            lasts,
            what,
            cluster: prng.below(CLUSTERS.len()),
            replica: prng.below(REPLICAS),
            pod: format!("{}-{}", APPS[prng.below(APPS.len())], prng.below(PODS)),
            number: prng.below(1_000),
        });
    }
}

/// Beside all others, in some of the seeds: replicas that are taken for gone. What goes on meanwhile is what matters.
fn taken_for_gone(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = if prng.percent(40) { [2, 5, 15][prng.below(3)] } else { 0 };
    let one = |_| Fault {
        at: 10_000 + draw(prng, until - 10_000),
        lasts: draw(prng, 12_000),
        what: What::TakenForGone,
        cluster: prng.below(CLUSTERS.len()),
        replica: 0,
        pod: format!("{}-0", APPS[0]),
        number: prng.below(1_000),
    };
    (0..times).map(one).filter(|fault| fault.at + fault.lasts < until).collect()
}

/// Beside all others, in half of the seeds: what happens to the programs in pods.
fn of_programs(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = if prng.percent(50) { [3, 10, 30][prng.below(3)] } else { 0 };
    let one = |_| {
        let what = [What::ProgramEnds, What::ProgramEnds, What::SocketAnew, What::Unheard][prng.below(4)];
        let longest = if what == What::SocketAnew { 8 } else { [200, 3_000, 20_000][prng.below(3)] };
        Fault {
            at: 10_000 + draw(prng, until - 10_000),
            lasts: draw(prng, longest),
            what,
            cluster: prng.below(CLUSTERS.len()),
            replica: 0,
            pod: format!("{}-{}", APPS[prng.below(APPS.len())], prng.below(PODS)),
            number: prng.below(1_000),
        }
    };
    (0..times).map(one).filter(|fault| fault.at + fault.lasts < until).collect()
}

/// Beside all others, in most of the seeds: switchovers, some of them at one moment.
fn switchovers(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = if prng.percent(80) { [3, 10, 30][prng.below(3)] } else { 0 };
    let mut at = 10_000;
    let mut one = |_| {
        if !prng.percent(20) {
            at = 10_000 + draw(prng, until - 10_000);
        }
        Fault {
            at,
            lasts: draw(prng, 40_000),
            what: What::Switchover,
            cluster: prng.below(CLUSTERS.len()),
            replica: 0,
            pod: format!("{}-{}", APPS[prng.below(APPS.len())], prng.below(PODS)),
            number: prng.below(100_000),
        }
    };
    let all: Vec<Fault> = (0..times).map(&mut one).collect();
    all.into_iter().filter(|fault| fault.at + fault.lasts < until).collect()
}

/// Beside all others, in some of the seeds: a lock that the pods hold themselves.
fn followed(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = if prng.percent(40) { [3, 10, 30][prng.below(3)] } else { 0 };
    scattered(prng, times, until, &[1_500, 8_000, 30_000], |prng, at, lasts| Fault {
        at,
        lasts,
        what: What::Followed,
        cluster: prng.below(CLUSTERS.len()),
        replica: 0,
        pod: format!("{}-{}", APPS[prng.below(APPS.len())], prng.below(PODS)),
        number: prng.below(1_000),
    })
}

/// Beside all others, in some of the seeds: a token that may not write keys for a while (C15).
fn unwritable(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = if prng.percent(30) { [1, 2, 5][prng.below(3)] } else { 0 };
    scattered(prng, times, until, &[3_000, 15_000, 70_000], of_cluster(What::StoreOfAll(Trouble::Unwritable), 1_000))
}

/// Beside all others, in some of the seeds: another cluster of the same name (C14).
fn namesakes(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = if prng.percent(20) { 1 + prng.below(3) } else { 0 };
    scattered(prng, times, until, &[15_000, 60_000], of_cluster(What::Namesake, 2))
}

/// Beside all others, in some of the seeds: a bucket that is put back to an earlier state (C7).
fn put_back(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = usize::from(prng.percent(20));
    scattered(prng, times, until, &[8_000, 30_000, 90_000], of_cluster(What::PutBack, 1_000))
}

/// Beside all others, in some of the seeds: an election that deletes former leaders (E1, E2).
fn former(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = usize::from(prng.percent(40));
    scattered(prng, times, until / 2, &[1_000], of_cluster(What::Former, 1_000))
}

/// Beside all others, in some of the seeds: a person writes to the key of a lock, of pods or of workloads, while a cluster is cut off (C16).
fn edited_while_cut(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let times = if prng.percent(30) { 1 + prng.below(2) } else { 0 };
    let mut all = Vec::new();
    for _ in 0..times {
        let (at, lasts) = (10_000 + draw(prng, until - 10_000), 20_000 + draw(prng, 40_000));
        let (cluster, app) = (prng.below(CLUSTERS.len()), [SHARED, WORKLOAD][prng.below(2)]);
        let fault =
            |at, lasts, what| Fault { at, lasts, what, cluster, replica: 0, pod: format!("{app}-0"), number: 1 };
        let cut = fault(at, lasts, What::StoreOfAll(Trouble::BothCut));
        let edited = fault(at + 100 + draw(prng, 12_000), lasts + 15_000, What::KeyByHand);
        if edited.at + edited.lasts < until {
            all.extend([cut, edited]);
        }
    }
    all
}

/// Faults that seldom meet by chance: a cluster gives the workloads away when a tick is due that its operators do not hear of; or
/// operators are killed that have just got them, and leave behind what lets them run.
fn chain(prng: &mut Prng, at: u64) -> Vec<Fault> {
    let (cluster, of_cron_jobs) = (prng.below(CLUSTERS.len()), WATCHES.len() - 1);
    let fault = |at: u64, lasts: u64, what: What, cluster: usize, replica: usize| {
        let pod = format!("{}-0", APPS[0]);
        Fault { at, lasts, what, cluster, replica, pod, number: of_cron_jobs }
    };
    let of_all =
        |at: u64, lasts: u64, what: What| (0..REPLICAS).map(move |replica| fault(at, lasts, what, cluster, replica));
    if prng.percent(50) {
        let gives_away = (at / PERIOD + 1) * PERIOD - draw(prng, 2_500);
        let silence = of_all(gives_away - 500, 10_000, What::Silence);
        return silence.chain([fault(gives_away, 20_000, What::Unavailable, cluster, 0)]).collect();
    }
    let killed = at + 2_000 + draw(prng, 14_000);
    let gives_away = killed + draw(prng, 14_000);
    of_all(at, 18_000, What::Api(Trouble::Late))
        .chain(of_all(killed, 500, What::Kill))
        .chain([fault(at, 22_000, What::Unavailable, 1 - cluster, 0)])
        .chain([fault(gives_away, 30_000, What::Unavailable, cluster, 0)])
        .collect()
}

/// Draws so many faults, each at any moment and for up to one of these times. `rest` draws what else there is of one.
pub fn scattered(
    prng: &mut Prng,
    times: usize,
    until: u64,
    longest: &[u64],
    mut rest: impl FnMut(&mut Prng, u64, u64) -> Fault,
) -> Vec<Fault> {
    let mut one = |_| {
        let longest = longest[prng.below(longest.len())];
        let (at, lasts) = (10_000 + draw(prng, until - 10_000), draw(prng, longest));
        rest(prng, at, lasts)
    };
    let all: Vec<Fault> = (0..times).map(&mut one).collect();
    all.into_iter().filter(|fault| fault.at + fault.lasts < until).collect()
}

/// Makes faults of one kind that concern a cluster as a whole, with numbers below a limit.
fn of_cluster(what: What, below: usize) -> impl FnMut(&mut Prng, u64, u64) -> Fault {
    move |prng, at, lasts| {
        let (cluster, number) = (prng.below(CLUSTERS.len()), prng.below(below));
        Fault { at, lasts, what, cluster, replica: 0, pod: format!("{}-0", APPS[0]), number }
    }
}

/// Draws a number.
pub fn draw(prng: &mut Prng, below: u64) -> u64 {
    u64::try_from(prng.below(usize::try_from(below).unwrap_or(1).max(1))).unwrap_or(0)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, lasts, what, cluster, replica, pod, .. } = self;
        let cluster = CLUSTERS[*cluster];
        write!(f, "{:4}.{:03} s, for {}.{:03} s: {what:?} ", at / 1000, at % 1000, lasts / 1000, lasts % 1000)?;
        match what {
            What::ConsulLeader | What::KeyByHand | What::PutBack => Ok(()),
            What::Compaction | What::LeaseByHand | What::SessionEnds | What::StoreOfAll(_) | What::TakenForGone => {
                write!(f, "of {cluster}")
            }
            What::Scope | What::Key | What::Rules | What::Unavailable | What::Namesake | What::Former => {
                write!(f, "in {cluster}")
            }
            What::Paused | What::Withdrawn | What::Routing | What::SliceByHand | What::Switchover => {
                write!(f, "of {cluster}/{}", self.app())
            }
            What::Denied | What::Behind | What::Forged | What::Undone => write!(f, "{}", shown(self)),
            What::Silence => write!(f, "of {cluster}/o{replica}, of {:?}", self.watches()),
            What::Kill | What::Stop | What::Terminate | What::WallClock | What::Api(_) | What::Store(_) => {
                write!(f, "of {cluster}/o{replica}")
            }
            _ => write!(f, "of {cluster}/{pod}"),
        }
    }
}

impl Fault {
    pub fn begin(&self, world: &mut World) {
        world.log.note(|| format!("--- {self}"));
        let (cluster, replica) = (self.cluster, self.replica);
        match self.what {
            What::Kill => world.kill(cluster, replica),
            What::Stop => world.freeze(cluster, replica, true),
            What::Terminate => world.terminate(cluster, replica),
            What::WallClock => {
                let by = i64::try_from(self.number).unwrap_or(0) * 1_000 - 500_000;
                world.jump(cluster, replica, by);
            }
            What::Api(_) | What::Store(_) | What::StoreOfAll(_) => self.make_trouble(world, true),
            What::ConsulLeader => {
                world.shared.change_leader(std::time::Duration::from_millis(self.lasts.min(6_000)));
            }
            What::SessionEnds => self.end_session(world),
            What::Namesake => {
                if self.number == 0 {
                    self.end_session(world);
                }
                world.shared.come_as(cluster, self.lasts);
            }
            What::PutBack => world.shared.keep(self.at),
            What::LeaseByHand => self.spoil_lease(world),
            What::KeyByHand => self.spoil_key(world),
            What::Compaction => world.clusters[cluster].api.compact(),
            What::Silence => self.silence(world, self.watches()),
            What::Scope | What::Key | What::Rules | What::Paused | What::Routing | What::Former => {
                self.respecify(world, true);
            }
            What::SliceByHand => self.spoil_slices(world),
            What::Withdrawn => self.withdraw(world),
            What::Unavailable => world.clusters[cluster].set_available(false),
            What::TakenForGone => self.take_for_gone(world),
            What::ProgramEnds => {
                world.judge.lock().unwrap().end_program(cluster, &self.pod);
                let shown_after = std::time::Duration::from_millis(200 + u64::try_from(self.number).unwrap_or(0) % 600);
                world.clusters[cluster].kill_program(&self.pod, shown_after);
            }
            What::SocketAnew => world.clusters[cluster].programs.kill(&self.pod),
            What::Unheard => world.clusters[cluster].programs.hear(&self.pod, false),
            What::Switchover => self.ask_to_switch(world),
            What::Followed => self.take_lock(world),
            What::Denied | What::Behind | What::Forged | What::Undone => apply(self, world, true),
            _ => self.touch(world, true),
        }
    }

    pub fn end(&self, world: &mut World) {
        let (cluster, replica) = (self.cluster, self.replica);
        match self.what {
            What::Kill | What::Terminate => {
                // Whoever was asked to end, has, or is made to.
                world.kill(cluster, replica);
                world.start(cluster, replica);
            }
            What::Stop => world.freeze(cluster, replica, false),
            What::Api(_) | What::Store(_) | What::StoreOfAll(_) => self.make_trouble(world, false),
            What::Switchover if self.number.is_multiple_of(5) => {
                world.clusters[cluster].api.remove("switchovers", NAMESPACE, &self.switchover());
            }
            What::WallClock
            | What::ConsulLeader
            | What::SessionEnds
            | What::Namesake
            | What::Compaction
            | What::LeaseByHand
            | What::SliceByHand
            | What::Withdrawn
            | What::Former
            | What::Switchover => {}
            What::PutBack => self.put_back(world),
            What::Followed => self.leave_lock(world),
            What::Denied | What::Behind | What::Forged | What::Undone => apply(self, world, false),
            What::Silence => self.silence(world, &[]),
            What::Scope | What::Key | What::Rules | What::Paused | What::Routing => self.respecify(world, false),
            What::Unavailable => world.clusters[cluster].set_available(true),
            What::ProgramEnds => {
                world.judge.lock().unwrap().begin_program(cluster, &self.pod);
                world.clusters[cluster].programs.start(&self.pod);
                world.clusters[cluster].set_ready(&self.pod, true);
            }
            What::SocketAnew => world.clusters[cluster].programs.start(&self.pod),
            What::Unheard => world.clusters[cluster].programs.hear(&self.pod, true),
            What::TakenForGone => {
                for replica in 0..REPLICAS {
                    world.start(cluster, replica);
                    world.clusters[cluster].replicas[replica].to_api.change(|weather| {
                        weather.silent = &[];
                        change(weather, Trouble::AnswersCut, false);
                        change(weather, Trouble::Late, false);
                    });
                }
            }
            // Where nobody held the lock, what is there is somebody else's, and left alone.
            What::KeyByHand => {
                let key = self.key();
                rob(world, &key, || world.shared.clear(&key));
            }
            _ => self.touch(world, false),
        }
    }

    fn switchover(&self) -> String {
        format!("s-{}-{}", self.at, self.number)
    }

    /// A user asks for a switchover, mostly from the present term.
    fn ask_to_switch(&self, world: &World) {
        let cluster = &world.clusters[self.cluster];
        let mut number = self.number;
        let mut one_of = |choices: usize| {
            let chosen = number % choices;
            number /= choices;
            chosen
        };
        let app = if one_of(5) == 0 { WORKLOAD } else { self.app() };
        let across = app == WORKLOAD || one_of(if app == SHARED { 2 } else { 9 }) == 0;
        let election = cluster.api.get("leaderelections", NAMESPACE, app);
        let term = election.and_then(|election| election["status"]["term"].as_i64()).unwrap_or(1);
        let from_term = [term, term, term, term, term, term - 1, term + 1][one_of(7)].max(1);
        let mut spec = json!({"electionName": app, "fromTerm": from_term});
        if across {
            spec["toClusterName"] = json!(CLUSTERS[if one_of(12) == 0 { self.cluster } else { 1 - self.cluster }]);
        } else if one_of(4) > 0 {
            spec["toPodName"] = json!(self.pod);
            spec["force"] = json!(one_of(4) == 0);
        }
        spec["holdSeconds"] = json!([0, 5, 60][one_of(3)]);
        if let Some(seconds) = [None, Some(2), Some(20)][one_of(3)] {
            // From now on, by a clock that may have been set.
            let now = EPOCH + i64::try_from(world.log.now()).unwrap_or(0);
            let time = Timestamp::from_millisecond(now).unwrap_or_default();
            spec["notBeforeTime"] = json!(time.to_string());
            spec["deadlineSeconds"] = json!(seconds);
        }
        if let Some(seconds) = [None, Some(0), Some(10)][one_of(3)] {
            spec["ttlSecondsAfterFinished"] = json!(seconds);
        }
        cluster.api.edit("switchovers", NAMESPACE, &self.switchover(), |switchover| switchover["spec"] = spec);
    }

    /// The pod takes the lock of its app, and the election follows it. Nobody renews it, so it is over after that many seconds.
    fn take_lock(&self, world: &World) {
        let cluster = &world.clusters[self.cluster];
        world.judge.lock().unwrap().see_followed(self.app());
        cluster.users.change(self.app(), |spec| spec.followed = true);
        self.hold(world, &[self.pod.clone(), format!("{}_5f2c", self.pod)][self.number % 2]);
    }

    /// Another one has the lock, or nobody, or none of the group. The election still follows it, or the operators elect again.
    fn leave_lock(&self, world: &World) {
        let group = if self.app() == SHARED { None } else { Some(self.cluster) };
        let leaders = world.judge.lock().unwrap().leaders(&Group { app: self.app().into(), cluster: group });
        let led = world.clusters[self.cluster].users.spec(self.app()).followed
            && leaders.contains(&format!("{}/{}", self.cluster, self.pod));
        world.judge.lock().unwrap().figures.followed += u64::from(led);
        let other = format!("{}-{}", self.app(), self.number % PODS);
        match self.number / 3 % 4 {
            0 => self.hold(world, ""),
            1 => self.hold(world, "elsewhere"),
            2 => world.clusters[self.cluster].api.remove("leases", NAMESPACE, &followed_lease(self.app())),
            _ => self.hold(world, &other),
        }
        if self.number.is_multiple_of(3) {
            world.clusters[self.cluster].users.change(self.app(), |spec| spec.followed = false);
        }
    }

    fn hold(&self, world: &World, holder: &str) {
        let seconds = [3, 15, 300][self.number % 3];
        world.log.note(|| format!("{holder:?} holds the lock of the pods of {}", self.app()));
        world.clusters[self.cluster].api.edit("leases", NAMESPACE, &followed_lease(self.app()), |lease| {
            lease["spec"] = json!({
                "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": self.at,
                "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
            });
        });
    }

    fn take_for_gone(&self, world: &mut World) {
        let Some(holder) = world.take_for_gone(self.cluster) else { return };
        world.judge.lock().unwrap().figures.taken_for_gone += 1;
        let way = world.clusters[self.cluster].replicas[holder].to_api.clone();
        match self.number % 5 {
            0 => world.kill(self.cluster, holder),
            1 => way.change(|weather| weather.silent = &["leases"]),
            2 => way.change(|weather| change(weather, Trouble::AnswersCut, true)),
            3 => way.change(|weather| change(weather, Trouble::Late, true)),
            _ => {}
        }
    }

    /// Somebody ends a cluster's session, and with it takes its locks.
    fn end_session(&self, world: &World) {
        if let Some(loss) = world.shared.end_session(self.cluster, self.number) {
            world.judge.lock().unwrap().lose(self.cluster, loss);
        }
    }

    /// Somebody puts the bucket back. What the clusters know of the terms since then is in their own objects alone.
    fn put_back(&self, world: &World) {
        let holders = || [SHARED, WORKLOAD].map(|app| world.shared.holder(&key_of(app)));
        let before = holders();
        world.shared.put_back(self.at);
        let mut judge = world.judge.lock().unwrap();
        for (before, after) in before.into_iter().zip(holders()) {
            if let Some(robbed) = before.filter(|_| after != before) {
                judge.lose(robbed, Loss::PutBack);
            }
        }
        if matches!(world.shared, Shared::Bucket(_)) {
            judge.forget_shared(
                world.clusters.iter().map(|cluster| cluster.known_term(SHARED)).min().unwrap_or_default(),
            );
        }
    }

    fn spoil_lease(&self, world: &World) {
        let api = &world.clusters[self.cluster].api;
        let Some(lease) = LEASES.into_iter().find(|lease| api.get("leases", NAMESPACE, lease).is_some()) else {
            return;
        };
        // What is not written anywhere else, nobody can know any more.
        let known = world.clusters[self.cluster].known_term("web");
        world.judge.lock().unwrap().forget(self.cluster, known);
        match self.number % 3 {
            0 => api.remove("leases", NAMESPACE, lease),
            1 => api.edit("leases", NAMESPACE, lease, |lease| lease["spec"]["holderIdentity"] = json!("web-9")),
            _ => api.edit("leases", NAMESPACE, lease, |lease| {
                lease["metadata"]["annotations"]["lictor.dev/record"] = json!("{\"term\": 5, \"holder\"");
            }),
        }
    }

    fn spoil_key(&self, world: &World) {
        let key = self.key();
        rob(world, &key, || world.shared.spoil(&key, self.number));
    }

    /// The key of a lock that clusters share.
    fn key(&self) -> String {
        key_of(if self.pod.starts_with(WORKLOAD) { WORKLOAD } else { SHARED })
    }

    fn leader_label(&self, world: &World) -> (&'static str, &'static str) {
        world.clusters[self.cluster].users.leader_label(self.app())
    }

    fn make_trouble(&self, world: &World, begins: bool) {
        let replicas = &world.clusters[self.cluster].replicas;
        let (trouble, links): (Trouble, Vec<&std::sync::Arc<Link>>) = match self.what {
            What::Api(trouble) => (trouble, vec![&replicas[self.replica].to_api]),
            What::Store(trouble) => (trouble, vec![&replicas[self.replica].to_store]),
            What::StoreOfAll(trouble) => (trouble, replicas.iter().map(|replica| &replica.to_store).collect()),
            _ => return,
        };
        for link in links {
            link.change(|weather| change(weather, trouble, begins));
        }
    }

    /// The app whose election it is about: that of the workloads seldom.
    fn app(&self) -> &str {
        let of_pods = self.pod.split('-').next().unwrap_or_default();
        if self.what == What::Paused && self.number.is_multiple_of(4) { WORKLOAD } else { of_pods }
    }

    fn watches(&self) -> &'static [&'static str] {
        WATCHES[self.number % WATCHES.len()]
    }

    fn silence(&self, world: &World, of: &'static [&'static str]) {
        world.clusters[self.cluster].replicas[self.replica].to_api.change(|weather| weather.silent = of);
    }

    /// Somebody changes the spec of an election. Some changes stay.
    fn respecify(&self, world: &World, begins: bool) {
        let (users, number) = (&world.clusters[self.cluster].users, self.number);
        match self.what {
            What::Scope => {
                let scope = if begins { number } else { number / SCOPES } % SCOPES;
                users.change("web", |spec| spec.scope = scope);
            }
            What::Key if begins || number.is_multiple_of(2) => users.change("web", |spec| spec.renamed = !spec.renamed),
            What::Rules => users.change("web", |spec| spec.rules = if begins { 1 + number % 3 } else { 0 }),
            What::Former => users.change("web", |spec| spec.former = 1 + number % 2),
            What::Paused => users.change(self.app(), |spec| spec.paused = begins),
            What::Routing => {
                users.change(self.app(), |spec| spec.routing = if begins { number % 3 } else { number / 3 % 3 });
            }
            _ => {}
        }
    }

    /// Somebody deletes an election, sometimes together with a change of all that can be changed.
    fn withdraw(&self, world: &World) {
        let users = &world.clusters[self.cluster].users;
        if self.number.is_multiple_of(2) {
            let scope = self.number / 2 % SCOPES;
            users.change("web", |spec| (spec.scope, spec.renamed) = (scope, !spec.renamed));
        }
        users.delete(self.app(), self.at + self.lasts);
    }

    /// Somebody edits or deletes the slices of an app.
    fn spoil_slices(&self, world: &World) {
        let api = &world.clusters[self.cluster].api;
        let of_app = |slice: &Object| {
            let service = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str().unwrap_or_default();
            service.starts_with(self.app())
        };
        let names = api.all("endpointslices").into_iter().filter(of_app);
        for name in names.filter_map(|slice| Some(slice["metadata"]["name"].as_str()?.to_owned())) {
            match self.number % 3 {
                0 => api.remove("endpointslices", NAMESPACE, &name),
                1 => api.edit("endpointslices", NAMESPACE, &name, |slice| slice["endpoints"] = json!([])),
                _ => api.edit("endpointslices", NAMESPACE, &name, |slice| {
                    let other = json!({"addresses": ["10.9.9.9"], "conditions": {"ready": true}});
                    slice["endpoints"].as_array_mut().into_iter().for_each(|all| all.push(other.clone()));
                }),
            }
        }
    }

    /// What happens to a pod.
    fn touch(&self, world: &World, begins: bool) {
        let cluster = &world.clusters[self.cluster];
        let pod = self.pod.as_str();
        match self.what {
            What::Unready => cluster.set_ready(pod, !begins),
            What::Deletion if begins => {
                cluster.edit_pod(pod, |pod| {
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
                    pod["status"]["conditions"][0]["status"] = json!("False");
                });
            }
            // A pod that has to be seen to its end is ended by its kubelet.
            What::Deletion if cluster.pod(pod).is_some_and(|pod| pod["metadata"]["finalizers"].is_array()) => {}
            What::Deletion => {
                cluster.api.remove("pods", NAMESPACE, pod);
                cluster.create_pod(pod);
            }
            What::Relabelled => {
                let app = if begins { "other" } else { pod.split('-').next().unwrap_or_default() };
                // By which it may be selected.
                let labels: &[&str] = [&["app"][..], &["tier"], &["app", "tier"]][self.number % 3];
                cluster
                    .edit_pod(pod, |pod| labels.iter().for_each(|label| pod["metadata"]["labels"][label] = json!(app)));
            }
            What::NodeLost => cluster.set_lost(&format!("n{}", self.number % 2), begins),
            What::Excluded => annotate(world, self, "lictor.dev/never-leader", begins.then_some("true")),
            What::Priority => annotate(world, self, "lictor.dev/priority", begins.then_some("10")),
            What::LeaderByHand if begins => {
                let (key, value) = self.leader_label(world);
                cluster.edit_pod(pod, |pod| pod["metadata"]["labels"][key] = json!(value));
            }
            What::NoRoleByHand if begins => {
                let (key, _) = self.leader_label(world);
                cluster.edit_pod(pod, |pod| take_off(&mut pod["metadata"]["labels"], key));
            }
            What::NoTermByHand if begins => annotate(world, self, "lictor.dev/term", None),
            _ => {}
        }
    }
}

/// The key of the lock of an election that clusters share.
fn key_of(app: &str) -> String {
    format!("services/{NAMESPACE}/{app}/leader")
}

/// A person does something to the key with the lock; if it is deleted, the cluster that holds the lock has lost it.
fn rob(world: &World, key: &str, act: impl FnOnce() -> bool) {
    let robbed = world.shared.holder(key);
    if act()
        && let Some(robbed) = robbed
    {
        world.judge.lock().unwrap().lose(robbed, Loss::Deleted);
    }
}

fn annotate(world: &World, fault: &Fault, name: &str, value: Option<&str>) {
    world.clusters[fault.cluster].edit_pod(&fault.pod, |pod| match value {
        Some(value) => pod["metadata"]["annotations"][name] = json!(value),
        None => take_off(&mut pod["metadata"]["annotations"], name),
    });
}

fn take_off(from: &mut serde_json::Value, name: &str) {
    if let Some(from) = from.as_object_mut() {
        from.remove(name);
    }
}

/// Begins or ends a trouble.
pub fn change(weather: &mut Weather, trouble: Trouble, begins: bool) {
    match trouble {
        Trouble::RequestsCut => weather.requests_cut = begins,
        Trouble::AnswersCut => weather.answers_cut = begins,
        Trouble::BothCut => (weather.requests_cut, weather.answers_cut) = (begins, begins),
        Trouble::Refused => weather.refused = begins,
        Trouble::Slow => weather.slow = if begins { 1_000 } else { 0 },
        Trouble::VerySlow => weather.slow = if begins { 15_000 } else { 0 },
        Trouble::Late => weather.late = if begins { 30 } else { 0 },
        Trouble::Twice => weather.twice = if begins { 40 } else { 0 },
        Trouble::Errors => weather.errors = if begins { 40 } else { 0 },
        Trouble::Unwritable => weather.unwritable = begins,
    }
}

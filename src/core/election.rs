//! One group's election, as one operator runs it: observations in, commands out.
//!
//! [`Election::step`] decides from what is known, [`Election::take`] takes the outcomes of commands, [`Election::observe`] what the
//! store's watch tells. The rules of the handover itself are in [`handover`](super::handover).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::backoff::Backoff;
use super::eligibility::{priority, rank};
use super::handover::{Handover, Progress, Purpose, is_emptied};
use super::marking::term_of;
use super::{
    Announcement, Command, ELECTION_ANNOTATION, Failure, Holder, Instant, Key, Markings, Node, NotEligible, OpId,
    Outcome, Pod, PodChange, PodOutcome, Reason, Record, RecordOutcome, Rules, Scope, Stored, Term, Timestamp, Uid,
    Version, WritePod, eligible, standing,
};

/// What is known of the world around an election when it takes a step.
pub struct View<'a> {
    /// The moment of the step.
    pub now: Instant,
    /// The same for people.
    pub wall: Timestamp,
    /// The election's generation that the rest of this view is made from.
    pub generation: i64,
    /// What the user wants of it.
    pub desired: Desired,
    /// Where its lock is.
    pub key: &'a Key,
    /// Which pods, and what is written on them.
    pub scope: &'a Scope,
    /// Who may lead.
    pub rules: &'a Rules,
    /// Which label write of a handover comes first.
    pub order: HandoverOrder,
    /// How long a leader may take to recover.
    pub failover_delay: Duration,
    /// The term that the status names: no term may be below it.
    pub status_term: Term,
    /// The pods that this election may have to write to: the selected ones, and those that it wrote to under earlier specs.
    pub pods: &'a [&'a Pod],
    /// The nodes by name.
    pub node: &'a dyn Fn(&str) -> Option<&'a Node>,
    /// The pod whose probe fails, if it is the leader.
    pub probe_failed: Option<&'a Uid>,
    /// Locks that this election holds under other keys than its present one.
    pub strays: &'a [(Key, Stored)],
}

impl View<'_> {
    /// The same with other pods and other locks.
    fn of<'b>(
        &'b self,
        pods: &'b [&'b Pod],
        strays: &'b [(Key, Stored)],
        node: &'b dyn Fn(&str) -> Option<&'b Node>,
    ) -> View<'b> {
        let &View { now, wall, generation, desired, key, scope, rules, order, .. } = self;
        let &View { failover_delay, status_term, probe_failed, .. } = self;
        View {
            now,
            wall,
            generation,
            desired,
            key,
            scope,
            rules,
            order,
            failover_delay,
            status_term,
            pods,
            node,
            probe_failed,
            strays,
        }
    }
}

/// What is wanted of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired {
    /// That it runs.
    Run,
    /// That all stays as it is: paused by its user, or its spec can't be accepted.
    Freeze,
    /// That nothing is left of it.
    Withdraw,
}

/// Which of the two label writes of a handover comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverOrder {
    /// Never two leaders.
    DemoteFirst,
    /// Never none.
    PromoteFirst,
}

/// What an election is about, for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Situation {
    /// Nothing is decided yet.
    Starting,
    /// There is a leader, and nothing to do.
    Led,
    /// There is a leader that fails its probe, and nobody else is eligible.
    LedDespiteProbe,
    /// A handover is under way.
    HandingOver,
    /// The leader is not fit, and has until this moment to recover.
    Recovering(NotEligible, Instant),
    /// Nobody is eligible.
    Vacant,
    /// Another lock of that name exists, which must not be touched; the text says what it is.
    Foreign(String),
    /// What is known of the election is older than its lock.
    Stale,
    /// Nothing is left of it.
    Withdrawn,
}

/// One group's election.
#[derive(Debug)]
pub struct Election {
    name: String,
    uid: Uid,
    elector: String,
    ops: u64,
    stored: Option<Stored>,
    newest: Version,
    /// The version up to which no write of anybody else can arrive late any more: see [`handover`](super::handover).
    fenced: Option<Version>,
    /// The version of somebody else's record for which the pods were listed afresh.
    verified: Option<Version>,
    /// The version of another election's record, since which this election is known to be the present one of that name.
    confirmed: Option<Version>,
    /// What was newest when the record was asked for: an answer may be older than what the watch has brought since.
    asked_at: Version,
    /// The newest generation that the API server has told, past the cache that the views are made from.
    known_generation: i64,
    /// How far it is ascertained that nothing is left, for a withdrawal.
    withdrawal: Withdrawal,
    /// Pods that are no more, though the cache may still show them.
    gone: BTreeSet<Uid>,
    /// What was written under the records that were seen: a record that is deleted or edited by hand does not take it along.
    scopes: Vec<Scope>,
    /// Locks under other keys that a fresh listing has shown, and the watch perhaps not yet.
    listed_locks: BTreeMap<Key, Stored>,
    /// Locks under other keys that were emptied or deleted, and the versions that they have since; none: deleted.
    cleared: BTreeMap<Key, (Version, Option<Version>)>,
    highest_term: Term,
    phase: Phase,
    maintenance: BTreeMap<Uid, Upkeep>,
    backoff: Backoff,
    upkeep_backoff: Backoff,
    failure: Option<Failure>,
    /// Since when which leader is not fit.
    unfit: Option<(Uid, Instant)>,
    /// When the cause of the change that is under way was seen.
    cause: Option<Instant>,
    /// Pods that failed their probe as leaders, and have been ready ever since.
    suspects: BTreeSet<Uid>,
    situation: Situation,
    leader: Option<(Term, Holder, Timestamp)>,
    wake: Option<Instant>,
}

/// A write to a pod outside of a handover, whose outcome is awaited.
#[derive(Debug)]
enum Upkeep {
    Writing(OpId, String),
    /// The pod is not what the cache shows.
    Unread(String),
    Reading(OpId),
}

#[derive(Debug)]
enum Phase {
    Idle,
    Reading(OpId),
    Verifying(OpId, Option<Version>),
    Writing(OpId, Box<Intent>),
    /// The outcome of the write is not known: its record is read.
    WriteUnknown(Option<OpId>, Box<Intent>),
    /// A lock under another key is emptied or deleted.
    Clearing(OpId, Key, Version),
    HandingOver(Box<Handover>),
    /// All labels are off; the record goes last.
    Deleting(OpId),
    /// Whether the election is still there: before it replaces a record of another one (of this version), or is withdrawn.
    AskingElection(OpId, Option<Version>),
}

/// How far it is ascertained that nothing is left. The caches alone may not know of an operator's last writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withdrawal {
    Unconfirmed,
    /// The election was read, and what the store has since.
    Confirmed,
    /// The pods were listed too.
    Listed,
    Done,
}

/// A record to be written, and what follows when it is.
#[derive(Debug)]
struct Intent {
    key: Key,
    record: Record,
    /// What it replaces.
    replaced: Option<Record>,
    /// Whether the chain of this operator's own records is unbroken.
    fenced: bool,
    purpose: Purpose,
    /// The target's version, read before the record is written.
    target: Option<(Holder, Version)>,
}

impl Upkeep {
    fn awaits(&self, op: OpId) -> bool {
        matches!(self, Self::Writing(expected, _) | Self::Reading(expected) if *expected == op)
    }
}

enum Decision<'a> {
    Keep(&'a Pod),
    Elect(&'a Pod, Reason),
    Vacate(Reason),
    Wait(NotEligible, Instant),
    Nobody,
}

impl Election {
    /// An election that has not decided anything yet. `elector` must be unique among all operators and all their starts.
    /// `first` must be far above the ids of whatever this process may still await for the same election.
    pub fn new(name: String, uid: Uid, elector: String, stored: Stored, first: OpId) -> Self {
        let newest = stored.version().unwrap_or_default();
        Self {
            backoff: Backoff::new(&uid.0),
            upkeep_backoff: Backoff::new(&uid.0),
            name,
            uid,
            elector,
            ops: first.0,
            stored: Some(stored),
            newest,
            fenced: None,
            verified: None,
            confirmed: None,
            asked_at: newest,
            known_generation: 0,
            withdrawal: Withdrawal::Unconfirmed,
            gone: BTreeSet::new(),
            scopes: Vec::new(),
            listed_locks: BTreeMap::new(),
            cleared: BTreeMap::new(),
            highest_term: Term::default(),
            phase: Phase::Idle,
            maintenance: BTreeMap::new(),
            failure: None,
            unfit: None,
            cause: None,
            suspects: BTreeSet::new(),
            situation: Situation::Starting,
            leader: None,
            wake: None,
        }
    }

    /// What the election is about.
    pub fn situation(&self) -> &Situation {
        &self.situation
    }

    /// The leader whose promotion is confirmed: term, pod, since when.
    pub fn leader(&self) -> Option<&(Term, Holder, Timestamp)> {
        self.leader.as_ref()
    }

    /// The highest term that was seen.
    pub fn term(&self) -> Term {
        self.highest_term
    }

    /// What went wrong last and is being tried again.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// When the next step is due if nothing else happens.
    pub fn wake(&self) -> Option<Instant> {
        self.wake
    }

    /// Whether a handover or a write of the record is under way.
    pub fn is_busy(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Reading(_))
    }

    /// The record, as last known.
    pub fn record(&self) -> Option<&Record> {
        self.stored.as_ref()?.record()
    }

    /// The store's watch shows something. What is older than what is known already is ignored.
    pub fn observe(&mut self, at: Version, stored: Stored) {
        if at > self.newest {
            self.newest = at;
            self.stored = Some(stored);
        }
    }

    /// Takes the outcome of a command.
    pub fn take(&mut self, op: OpId, outcome: Outcome, now: Instant) {
        if let Some(uid) = self.maintenance.iter().find(|(_, upkeep)| upkeep.awaits(op)).map(|(uid, _)| uid.clone()) {
            return self.take_maintenance(uid, outcome, now);
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.phase = match (phase, outcome) {
            (Phase::Reading(expected), Outcome::RecordRead(read)) if expected == op => {
                self.take_read(read, now);
                Phase::Idle
            }
            (Phase::Verifying(expected, version), Outcome::PodsListed(listed)) if expected == op => {
                match (listed, version) {
                    (Ok(_), Some(version)) => self.verified = Some(version),
                    (Ok(_), None) => self.withdrawal = Withdrawal::Listed,
                    (Err(failure), _) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::Writing(expected, intent), Outcome::RecordWritten(written)) if expected == op => {
                self.take_written(intent, written, now)
            }
            (Phase::WriteUnknown(Some(expected), intent), Outcome::RecordRead(Err(failure))) if expected == op => {
                self.fail(failure, now);
                Phase::WriteUnknown(None, intent)
            }
            (Phase::WriteUnknown(Some(expected), intent), Outcome::RecordRead(read)) if expected == op => {
                self.take_read(read, now);
                match &self.stored {
                    Some(Stored::Record(version, record)) if *record == intent.record => self.begin(*version, *intent),
                    _ => Phase::Idle,
                }
            }
            (Phase::Clearing(expected, key, replaced), Outcome::RecordWritten(written)) if expected == op => {
                // What a listing has shown is of the past now, whatever the outcome.
                let written_first = matches!(written, RecordOutcome::Written(version) if version != replaced);
                if !written_first {
                    self.listed_locks.remove(&key);
                }
                match written {
                    RecordOutcome::Written(version) => {
                        self.backoff.reset();
                        self.cleared.insert(key, (replaced, (version != replaced).then_some(version)));
                    }
                    // The watch is about to show what is there now.
                    RecordOutcome::Conflict => self.backoff.delay(now),
                    RecordOutcome::Failed(failure) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::AskingElection(expected, version), Outcome::ElectionRead(read)) if expected == op => {
                match read {
                    Ok(read) => {
                        self.backoff.reset();
                        self.known_generation = self.known_generation.max(read.generation_of(&self.uid));
                        match version {
                            Some(version) => self.confirmed = Some(version),
                            None => self.withdrawal = Withdrawal::Confirmed,
                        }
                    }
                    Err(failure) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::Deleting(expected), Outcome::RecordWritten(written)) if expected == op => {
                match written {
                    RecordOutcome::Written(version) => {
                        self.newest = self.newest.max(version);
                        self.stored = Some(Stored::Absent);
                    }
                    RecordOutcome::Conflict => self.stored = None,
                    RecordOutcome::Failed(failure) => {
                        self.stored = None;
                        self.fail(failure, now);
                    }
                }
                Phase::Idle
            }
            (Phase::HandingOver(mut handover), outcome) => {
                match handover.take(&self.name, op, outcome) {
                    Ok(()) => self.backoff.reset(),
                    Err(failure) => self.fail(failure, now),
                }
                let found = std::mem::take(&mut handover.found);
                self.gone.extend(found.gone);
                self.listed_locks.extend(found.locks);
                self.highest_term = self.highest_term.max(found.term);
                self.known_generation = self.known_generation.max(found.generation.unwrap_or_default());
                Phase::HandingOver(handover)
            }
            (phase, _) => phase,
        };
    }

    /// Decides what to do now.
    pub fn step(&mut self, view: &View) -> Vec<Command> {
        let mut commands = Vec::new();
        self.wake = None;
        self.gone.retain(|uid| view.pods.iter().any(|pod| pod.uid == *uid));
        let pods: Vec<&Pod> = view.pods.iter().copied().filter(|pod| !self.gone.contains(&pod.uid)).collect();
        let node = |name: &str| (view.node)(name);
        self.listed_locks.retain(|key, listed| {
            let newer = |stray: &Stored| stray.version() >= listed.version();
            key != view.key && !view.strays.iter().any(|(other, stray)| other == key && newer(stray))
        });
        let listed = self.listed_locks.iter().map(|(key, stored)| (key.clone(), stored.clone()));
        let shown = view.strays.iter().filter(|(key, _)| !self.listed_locks.contains_key(key)).cloned();
        let strays: Vec<(Key, Stored)> = shown.chain(listed).collect();
        let view = &view.of(&pods, &strays, &node);
        self.learn_terms(view);
        self.learn_scopes();
        if let Some(until) = self.backoff.waits(view.now) {
            self.wake_at(until);
            return commands;
        }
        loop {
            match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::HandingOver(handover) => {
                    if self.hand_over(handover, view, &mut commands) {
                        continue;
                    }
                }
                Phase::Idle => {
                    if self.idle(view, &mut commands) {
                        continue;
                    }
                }
                Phase::WriteUnknown(None, intent) => {
                    let op = self.next_op();
                    commands.push(Command::ReadRecord { op, key: intent.key.clone() });
                    self.asked_at = self.newest;
                    self.phase = Phase::WriteUnknown(Some(op), intent);
                }
                busy => self.phase = busy,
            }
            break;
        }
        commands
    }

    /// Goes on with a handover; returns whether it ended.
    fn hand_over(&mut self, mut handover: Box<Handover>, view: &View, commands: &mut Vec<Command>) -> bool {
        self.situation = Situation::HandingOver;
        let superseded = self.stored.as_ref().is_none_or(|stored| stored.version() != Some(handover.version));
        if superseded && self.newest >= handover.version {
            // Somebody else wrote or deleted the record meanwhile: whatever is missing, is decided anew.
            return true;
        }
        let ops = &mut self.ops;
        let mut next_op = || {
            *ops += 1;
            OpId(*ops)
        };
        match handover.advance(&self.name, &self.uid, view, &mut next_op, commands) {
            Progress::Waiting => {
                self.phase = Phase::HandingOver(handover);
                false
            }
            Progress::Abandoned => {
                self.stored = None;
                true
            }
            Progress::Done => {
                if handover.fenced {
                    self.fenced = Some(handover.version);
                }
                self.finish(*handover, view, commands);
                true
            }
        }
    }

    fn finish(&mut self, handover: Handover, view: &View, commands: &mut Vec<Command>) {
        self.failure = None;
        let took = view.now.since(self.cause.take().unwrap_or(view.now));
        let Handover { record, replaced, purpose, version, .. } = handover;
        let previous = replaced.and_then(|record| record.holder);
        match purpose {
            Purpose::Elect(reason) => {
                self.leader = record.holder.clone().map(|holder| (record.term, holder, record.since));
                let previous =
                    previous.filter(|previous| record.holder.as_ref().is_none_or(|new| new.uid != previous.uid));
                let leader = record.holder;
                let transition = super::Transition { term: record.term, leader, previous, reason, took };
                commands.push(Command::Announce(Announcement::Transition(transition)));
            }
            Purpose::Restore | Purpose::Tidy => {
                self.leader = record.holder.map(|holder| (record.term, holder, record.since));
            }
            Purpose::Withdraw => {
                self.leader = None;
                self.withdrawal = Withdrawal::Listed;
                let op = self.next_op();
                commands.push(Command::DeleteRecord { op, key: view.key.clone(), version });
                self.phase = Phase::Deleting(op);
            }
        }
    }

    /// With nothing under way; returns whether to look again.
    fn idle(&mut self, view: &View, commands: &mut Vec<Command>) -> bool {
        if view.desired == Desired::Freeze {
            let held = self.record().and_then(|record| Some((record.term, record.holder.clone()?, record.since)));
            self.leader = self.leader.take().or(held);
            return false;
        }
        if self.known_generation > view.generation {
            // The API server has told already that this view is of the past.
            self.situation = Situation::Stale;
            return false;
        }
        if view.desired != Desired::Withdraw {
            self.withdrawal = Withdrawal::Unconfirmed;
        } else if self.withdrawal == Withdrawal::Unconfirmed {
            // There may be another election of that name already. And what the caches show may be from before the last handover.
            self.ask_election(None, commands);
            if !view.key.0.is_empty() {
                self.stored = None;
            }
            return false;
        }
        let Some(stored) = self.stored.clone() else {
            self.read_record(view, commands);
            return false;
        };
        if let Stored::Foreign(what) = &stored {
            return self.idle_beside_foreign(what.clone(), view, commands);
        }
        if let Some(record) = stored.record()
            && record.election == self.uid
            && record.generation > view.generation
        {
            self.situation = Situation::Stale;
            return false;
        }
        if self.clear_strays(view, commands) {
            return false;
        }
        match view.desired {
            Desired::Withdraw => self.withdraw(&stored, view, commands),
            Desired::Run | Desired::Freeze => self.run(&stored, view, commands),
        }
    }

    fn ask_election(&mut self, version: Option<Version>, commands: &mut Vec<Command>) {
        let op = self.next_op();
        commands.push(Command::ReadElection { op });
        self.phase = Phase::AskingElection(op, version);
    }

    fn idle_beside_foreign(&mut self, what: String, view: &View, commands: &mut Vec<Command>) -> bool {
        if view.desired == Desired::Withdraw {
            // Not ours: it stays, and what was written on pods goes.
            return self.withdraw(&Stored::Absent, view, commands);
        }
        // Nobody tells when it goes: it is looked at again, more and more seldom.
        self.situation = Situation::Foreign(what);
        self.stored = None;
        self.backoff.delay(view.now);
        self.wake = self.backoff.waits(view.now);
        false
    }

    /// A lock under a key that is not the election's any more is emptied before the present one is taken, so that nobody
    /// with an older spec can go on with it; it is deleted when the present one is settled.
    fn clear_strays(&mut self, view: &View, commands: &mut Vec<Command>) -> bool {
        self.cleared.retain(|key, (seen, made)| {
            let still = |stray: &Stored| {
                stray.version().is_some_and(|version| made.map_or(version <= *seen, |made| version < made))
            };
            view.strays.iter().any(|(other, stray)| other == key && still(stray))
        });
        for (key, stray) in view.strays {
            let Some(mut version) = stray.version() else { continue };
            self.highest_term = match stray {
                Stored::Record(_, record) => self.highest_term.max(record.term),
                Stored::Damaged(_, term) => self.highest_term.raised_by_hint(*term),
                Stored::Absent | Stored::Foreign(_) => self.highest_term,
            };
            let mut emptied = is_emptied(stray, view.generation);
            match self.cleared.get(key) {
                // What this election wrote itself, the watch has not brought yet.
                Some((_, Some(made))) => (version, emptied) = (*made, true),
                Some((_, None)) => continue,
                None => {}
            }
            if !emptied {
                let mut record = self.make_record(view, None, stray.record(), Timestamp(0));
                record.term = self.highest_term;
                let op = self.next_op();
                commands.push(Command::WriteRecord { op, key: key.clone(), expected: Some(version), record });
                self.phase = Phase::Clearing(op, key.clone(), version);
                return true;
            }
            let settled = match view.desired {
                Desired::Withdraw => true,
                Desired::Run | Desired::Freeze => {
                    self.record().is_some_and(|record| record.scope == *view.scope) && self.leader.is_some()
                }
            };
            if settled {
                let op = self.next_op();
                commands.push(Command::DeleteRecord { op, key: key.clone(), version });
                self.phase = Phase::Clearing(op, key.clone(), version);
                return true;
            }
        }
        false
    }

    fn run(&mut self, stored: &Stored, view: &View, commands: &mut Vec<Command>) -> bool {
        let record = stored.record();
        let decision = self.decide(record, view);
        let settled = self.is_settled(&decision, record, view);
        if let (false, Some(record), Some(version)) = (settled, record, stored.version())
            && self.fenced != Some(version)
            && self.verified != Some(version)
        {
            // Somebody else's record: what the caches show of the pods may be older than it.
            let op = self.next_op();
            commands.push(Command::ListPods { op, selectors: selectors(view.scope, Some(record)) });
            self.phase = Phase::Verifying(op, Some(version));
            return false;
        }
        if let (false, Some(record), Some(version)) = (settled, record, stored.version())
            && record.election != self.uid
            && self.confirmed != Some(version)
        {
            self.ask_election(Some(version), commands);
            return false;
        }
        if settled {
            self.cause = None;
        } else {
            self.cause.get_or_insert(view.now);
        }
        match decision {
            Decision::Keep(pod) if settled => {
                let record = record.filter(|record| record.holder.is_some());
                self.leader = record.and_then(|record| Some((record.term, record.holder.clone()?, record.since)));
                self.settle(stored, Some(pod), view, commands);
            }
            Decision::Keep(pod) => return self.keep(pod, stored, view, commands),
            Decision::Elect(pod, reason) => self.write(stored, Some(pod), reason, view, commands),
            Decision::Vacate(reason) => self.write(stored, None, reason, view, commands),
            Decision::Wait(why, until) => {
                self.situation = Situation::Recovering(why, until);
                self.wake_at(until);
                let leader = record.and_then(|r| r.holder.as_ref());
                let pod = leader.and_then(|holder| view.pods.iter().find(|pod| pod.uid == holder.uid)).copied();
                self.maintain(stored, pod, view, commands);
            }
            Decision::Nobody => {
                self.leader = None;
                self.situation = Situation::Vacant;
                if let (false, Some(record), Some(version)) = (settled, record, stored.version()) {
                    // What is written on pods while nobody leads, has to be in the record too.
                    let present = self.make_record(view, None, Some(record), record.since);
                    self.amend(record, version, present, view, commands);
                    return false;
                }
                self.settle(stored, None, view, commands);
            }
        }
        false
    }

    /// Who should lead, from what is known.
    fn decide<'a>(&mut self, record: Option<&Record>, view: &View<'a>) -> Decision<'a> {
        let markings = &view.scope.markings;
        self.suspects.retain(|uid| view.pods.iter().any(|pod| pod.uid == *uid && pod.ready));
        let mut best: Option<(super::eligibility::Rank, &'a Pod)> = None;
        for pod in view.pods.iter().copied().filter(|pod| view.scope.selector.matches(&pod.labels)) {
            match eligible(pod, node_of(pod, view), view.rules, view.now) {
                Ok(()) => {
                    let suspect = self.suspects.contains(&pod.uid);
                    let rank = rank(pod, node_of(pod, view), view.rules, suspect, markings.shows_leader(pod));
                    if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                        best = Some((rank, pod));
                    }
                }
                Err(NotEligible::ReadyTooShortly(until)) => self.wake_at(until),
                Err(_) => {}
            }
        }
        let best = best.map(|(_, pod)| pod);
        let Some(holder) = record.and_then(|record| record.holder.as_ref()) else {
            if record.is_none()
                && let Some(incumbent) = self.incumbent(view)
            {
                // With a lock under another key it is not lost: it moves.
                let moved = !view.strays.is_empty();
                return Decision::Elect(incumbent, if moved { Reason::SpecChanged } else { Reason::LockRestored });
            }
            return best.map_or(Decision::Nobody, |pod| Decision::Elect(pod, Reason::Vacant));
        };
        let Some(pod) = view.pods.iter().copied().find(|pod| pod.uid == holder.uid) else {
            return best.map_or(Decision::Vacate(Reason::LeaderGone), |pod| Decision::Elect(pod, Reason::LeaderGone));
        };
        let fitness = if view.scope.selector.matches(&pod.labels) {
            standing(pod, node_of(pod, view), view.rules)
        } else {
            Err(NotEligible::NotSelected)
        };
        let others = best.filter(|other| other.uid != pod.uid);
        match fitness {
            Ok(()) => {
                self.unfit = None;
                if view.probe_failed == Some(&pod.uid) {
                    self.suspects.insert(pod.uid.clone());
                    let fallback = self.best_other(pod, view);
                    self.situation = Situation::LedDespiteProbe;
                    return fallback.map_or(Decision::Keep(pod), |other| Decision::Elect(other, Reason::ProbeFailed));
                }
                self.situation = Situation::Led;
                match others {
                    Some(other) if view.rules.preempt && priority(other) > priority(pod) => {
                        Decision::Elect(other, Reason::Preempted)
                    }
                    _ => Decision::Keep(pod),
                }
            }
            Err(why) => {
                let since = match &self.unfit {
                    Some((uid, since)) if *uid == pod.uid => *since,
                    _ => view.now,
                };
                self.unfit = Some((pod.uid.clone(), since));
                self.cause.get_or_insert(since);
                let until = since + view.failover_delay;
                if why.may_recover() && until > view.now {
                    return Decision::Wait(why, until);
                }
                let reason = Reason::LeaderUnfit(why);
                others.map_or(Decision::Vacate(reason), |other| Decision::Elect(other, reason))
            }
        }
    }

    /// The one pod that leads according to its labels, where the record is lost: it goes on, whatever others would rank.
    fn incumbent<'a>(&self, view: &View<'a>) -> Option<&'a Pod> {
        let shows = |pod: &&Pod| view.scope.markings.shows_leader(pod) && view.scope.selector.matches(&pod.labels);
        let mut showing = view.pods.iter().copied().filter(shows);
        let pod =
            showing.next().filter(|pod| self.wrote(pod) && standing(pod, node_of(pod, view), view.rules).is_ok())?;
        showing.next().is_none().then_some(pod)
    }

    fn best_other<'a>(&self, leader: &Pod, view: &View<'a>) -> Option<&'a Pod> {
        let candidates = view.pods.iter().copied().filter(|pod| {
            pod.uid != leader.uid
                && view.scope.selector.matches(&pod.labels)
                && eligible(pod, node_of(pod, view), view.rules, view.now).is_ok()
        });
        candidates.min_by_key(|pod| rank(pod, node_of(pod, view), view.rules, self.suspects.contains(&pod.uid), false))
    }

    /// Whether the record and the leader's labels are as they should be.
    fn is_settled(&self, decision: &Decision, record: Option<&Record>, view: &View) -> bool {
        let Some(record) = record else { return matches!(decision, Decision::Nobody) };
        let current = record.scope == *view.scope && record.election == self.uid;
        match decision {
            Decision::Keep(pod) => {
                current && view.scope.markings.is_leader(pod, record.term) && !has_leftover(pod, record)
            }
            Decision::Nobody => current,
            Decision::Wait(..) => true,
            Decision::Elect(..) | Decision::Vacate(_) => false,
        }
    }

    /// The leader stays, but its labels or its record are not as they should be.
    fn keep(&mut self, pod: &Pod, stored: &Stored, view: &View, commands: &mut Vec<Command>) -> bool {
        let (Some(record), Some(version)) = (stored.record(), stored.version()) else { return false };
        if record.scope != *view.scope || record.election != self.uid {
            self.write(stored, Some(pod), Reason::SpecChanged, view, commands);
            return false;
        }
        if self.fenced != Some(version) {
            self.write(stored, Some(pod), Reason::Resumed, view, commands);
            return false;
        }
        commands.push(drift(pod));
        self.phase = Phase::HandingOver(Box::new(Handover::restore(version, record.clone(), pod)));
        true
    }

    /// The record is right: puts the other pods right, and drops from the record what is cleaned up.
    fn settle(&mut self, stored: &Stored, leader: Option<&Pod>, view: &View, commands: &mut Vec<Command>) {
        let clean = self.maintain(stored, leader, view, commands);
        if clean {
            self.failure = None;
        }
        let (Some(record), Some(version)) = (stored.record(), stored.version()) else { return };
        if clean && !record.former.is_empty() && (leader.is_some() || self.fenced == Some(version)) {
            let tidied = Record {
                former: Vec::new(),
                generation: view.generation,
                elector: self.elector.clone(),
                ..record.clone()
            };
            self.amend(record, version, tidied, view, commands);
        }
    }

    /// Writes a record that names the same holder in the same term.
    fn amend(&mut self, replaced: &Record, version: Version, record: Record, view: &View, commands: &mut Vec<Command>) {
        let op = self.next_op();
        let (key, expected) = (view.key.clone(), Some(version));
        commands.push(Command::WriteRecord { op, key: key.clone(), expected, record: record.clone() });
        let (replaced, fenced) = (Some(replaced.clone()), self.fenced == expected);
        let intent = Intent { key, record, replaced, fenced, purpose: Purpose::Tidy, target: None };
        self.phase = Phase::Writing(op, Box::new(intent));
    }

    /// Puts right what is written on all pods but the leader; returns whether nothing was left to do.
    fn maintain(&mut self, stored: &Stored, leader: Option<&Pod>, view: &View, commands: &mut Vec<Command>) -> bool {
        // While nobody can be elected, the record is still the one of an earlier spec, or under an earlier key.
        let records = view.strays.iter().map(|(_, stray)| stray).chain([stored]).filter_map(Stored::record);
        let scopes = records.flat_map(|record| record.former.iter().chain([&record.scope]));
        let former: Vec<Markings> =
            scopes.map(|scope| &scope.markings).filter(|old| *old != &view.scope.markings).cloned().collect();
        let term = self.highest_term;
        let mut clean = !self.reread(commands);
        if let Some(until) = self.upkeep_backoff.waits(view.now) {
            self.wake_at(until);
            return false;
        }
        for pod in view.pods.iter().copied().filter(|pod| leader.is_none_or(|leader| leader.uid != pod.uid)) {
            if self.maintenance.contains_key(&pod.uid) {
                clean = false;
                continue;
            }
            let markings = &view.scope.markings;
            let (change, patch) = if view.scope.selector.matches(&pod.labels) {
                let leaves = (pod.deleting || pod.finished) && !markings.shows_leader(pod);
                let leftover = former.iter().any(|old| old.has_leftover(pod, markings));
                if (leaves || markings.is_follower(pod)) && !leftover {
                    continue;
                }
                (PodChange::Demote, markings.demotion(&self.name, term, &former))
            } else {
                let all: Vec<&Markings> = former.iter().chain([markings]).collect();
                if !self.wrote(pod) {
                    continue;
                }
                (PodChange::Remove, Markings::removal(&all, pod))
            };
            if patch.is_empty() {
                continue;
            }
            clean = false;
            let unexpected = markings.shows_leader(pod)
                || (self.wrote(pod) && !former.iter().any(|old| old.has_leftover(pod, markings)));
            if change == PodChange::Demote && unexpected && record_is_settled(stored) {
                commands.push(drift(pod));
            }
            let op = self.next_op();
            self.maintenance.insert(pod.uid.clone(), Upkeep::Writing(op, pod.name.clone()));
            commands.push(Command::WritePod(write(op, change, pod, patch)));
        }
        clean
    }

    /// Asks for the pods that are not what the cache shows; returns whether there are any.
    fn reread(&mut self, commands: &mut Vec<Command>) -> bool {
        let ops = &mut self.ops;
        for upkeep in self.maintenance.values_mut() {
            if let Upkeep::Unread(name) = upkeep {
                *ops += 1;
                commands.push(Command::ReadPod { op: OpId(*ops), name: std::mem::take(name) });
                *upkeep = Upkeep::Reading(OpId(*ops));
            }
        }
        !self.maintenance.is_empty()
    }

    fn take_maintenance(&mut self, uid: Uid, outcome: Outcome, now: Instant) {
        let Some(upkeep) = self.maintenance.remove(&uid) else { return };
        match (upkeep, outcome) {
            (Upkeep::Writing(..), Outcome::PodWritten(PodOutcome::Written(_))) => self.upkeep_backoff.reset(),
            (Upkeep::Writing(..), Outcome::PodWritten(PodOutcome::Gone)) => drop(self.gone.insert(uid)),
            (Upkeep::Writing(_, name), Outcome::PodWritten(PodOutcome::Conflict)) => {
                self.maintenance.insert(uid, Upkeep::Unread(name));
            }
            (_, Outcome::PodRead(Ok(read))) => {
                self.upkeep_backoff.reset();
                if read.is_none_or(|pod| pod.uid != uid) {
                    self.gone.insert(uid);
                }
            }
            (_, Outcome::PodWritten(PodOutcome::Failed(failure)) | Outcome::PodRead(Err(failure))) => {
                self.failure = Some(failure);
                self.upkeep_backoff.delay(now);
            }
            _ => {}
        }
    }

    fn wrote(&self, pod: &Pod) -> bool {
        pod.annotations.get(ELECTION_ANNOTATION) == Some(&self.name)
    }

    /// Takes off all labels, then the record.
    fn withdraw(&mut self, stored: &Stored, view: &View, commands: &mut Vec<Command>) -> bool {
        let own = stored.version().is_some() && stored.record().is_none_or(|record| record.election == self.uid);
        let clean = !own && view.pods.iter().all(|pod| !self.wrote(pod));
        if self.withdrawal == Withdrawal::Done && !clean {
            // A late writer of this election, or another election of that name already.
            self.withdrawal = Withdrawal::Unconfirmed;
            self.situation = Situation::HandingOver;
            return true;
        }
        if self.withdrawal == Withdrawal::Done || (clean && self.withdrawal == Withdrawal::Listed) {
            self.withdrawal = Withdrawal::Done;
            self.leader = None;
            self.situation = Situation::Withdrawn;
            return false;
        }
        self.situation = Situation::HandingOver;
        let version = stored.version();
        let fenced = version.is_some() && self.fenced == version;
        match (stored, version) {
            (Stored::Record(_, record), _) if record.election != self.uid => {
                // Of an earlier election of that name: it goes with that one. What is on the pods, names only the name.
                self.withdraw_without_record(stored.record(), view, commands);
                false
            }
            (Stored::Record(version, record), _) if record.holder.is_none() && record.generation >= view.generation => {
                self.phase = Phase::HandingOver(Box::new(Handover::withdraw(*version, record.clone(), fenced)));
                true
            }
            (_, Some(version)) => {
                let record = self.make_record(view, None, stored.record(), view.wall);
                let op = self.next_op();
                commands.push(Command::WriteRecord {
                    op,
                    key: view.key.clone(),
                    expected: Some(version),
                    record: record.clone(),
                });
                let replaced = stored.record().cloned();
                let key = view.key.clone();
                let intent = Intent { key, record, replaced, fenced, purpose: Purpose::Withdraw, target: None };
                self.phase = Phase::Writing(op, Box::new(intent));
                false
            }
            (_, None) => {
                self.withdraw_without_record(None, view, commands);
                false
            }
        }
    }

    /// With no record of its own to go by: takes off what is found on the pods.
    fn withdraw_without_record(&mut self, other: Option<&Record>, view: &View, commands: &mut Vec<Command>) {
        if self.withdrawal == Withdrawal::Confirmed {
            let op = self.next_op();
            commands.push(Command::ListPods { op, selectors: selectors(view.scope, other) });
            self.phase = Phase::Verifying(op, None);
            return;
        }
        self.maintain_removal(other, view, commands);
    }

    fn maintain_removal(&mut self, other: Option<&Record>, view: &View, commands: &mut Vec<Command>) {
        self.reread(commands);
        if let Some(until) = self.upkeep_backoff.waits(view.now) {
            self.wake_at(until);
            return;
        }
        for pod in view.pods.iter().copied() {
            if !self.wrote(pod) || self.maintenance.contains_key(&pod.uid) {
                continue;
            }
            let scopes = other.into_iter().flat_map(|record| record.former.iter().chain([&record.scope]));
            let scopes = scopes.chain(&self.scopes).chain([view.scope]);
            let all: Vec<&Markings> = scopes.map(|scope| &scope.markings).collect();
            let patch = Markings::removal(&all, pod);
            let op = self.next_op();
            self.maintenance.insert(pod.uid.clone(), Upkeep::Writing(op, pod.name.clone()));
            commands.push(Command::WritePod(write(op, PodChange::Remove, pod, patch)));
        }
    }

    /// Writes a record that names this pod, or none.
    fn write(&mut self, stored: &Stored, pod: Option<&Pod>, reason: Reason, view: &View, commands: &mut Vec<Command>) {
        self.situation = Situation::HandingOver;
        match stored {
            Stored::Damaged(..) => {
                commands.push(Command::Announce(Announcement::LockChanged { what: "edited by hand" }));
            }
            Stored::Absent if reason == Reason::LockRestored => {
                commands.push(Command::Announce(Announcement::LockChanged { what: "deleted" }));
            }
            _ => {}
        }
        let replaced = stored.record().cloned();
        let holder = pod.map(holder_of);
        let since = replaced.as_ref().filter(|r| r.holder.as_ref().map(|h| &h.uid) == holder.as_ref().map(|h| &h.uid));
        let since = since.map(|record| record.since).or_else(|| self.kept_since(holder.as_ref())).unwrap_or(view.wall);
        let mut record = self.make_record(view, holder.clone(), replaced.as_ref(), since);
        if pod.is_some() {
            record.term = self.highest_term.next();
        }
        for (_, stray) in view.strays {
            let scopes = stray.record().into_iter().flat_map(|record| record.former.iter().chain([&record.scope]));
            add_former(&mut record, scopes);
        }
        let expected = stored.version();
        let op = self.next_op();
        commands.push(Command::WriteRecord { op, key: view.key.clone(), expected, record: record.clone() });
        let intent = Intent {
            key: view.key.clone(),
            record,
            fenced: expected.is_some() && self.fenced == expected,
            replaced,
            purpose: Purpose::Elect(reason),
            target: holder.zip(pod.map(|pod| pod.version)),
        };
        self.phase = Phase::Writing(op, Box::new(intent));
    }

    /// Since when a pod leads whose record was lost.
    fn kept_since(&self, holder: Option<&Holder>) -> Option<Timestamp> {
        self.leader
            .as_ref()
            .filter(|(_, leader, _)| Some(&leader.uid) == holder.map(|h| &h.uid))
            .map(|(.., since)| *since)
    }

    fn make_record(&self, view: &View, holder: Option<Holder>, replaced: Option<&Record>, since: Timestamp) -> Record {
        let mut record = Record {
            term: self.highest_term,
            holder,
            elector: self.elector.clone(),
            since,
            election: self.uid.clone(),
            generation: view.generation,
            scope: view.scope.clone(),
            former: Vec::new(),
        };
        match replaced {
            Some(replaced) => add_former(&mut record, replaced.former.iter().chain([&replaced.scope])),
            None => add_former(&mut record, &self.scopes),
        }
        record
    }

    fn take_written(&mut self, intent: Box<Intent>, written: RecordOutcome, now: Instant) -> Phase {
        match written {
            RecordOutcome::Written(version) => {
                self.backoff.reset();
                if version > self.newest {
                    self.newest = version;
                    self.stored = Some(Stored::Record(version, intent.record.clone()));
                } else if version < self.newest {
                    // The watch shows already that somebody wrote after us.
                    return Phase::Idle;
                }
                self.begin(version, *intent)
            }
            RecordOutcome::Conflict => {
                self.stored = None;
                Phase::Idle
            }
            RecordOutcome::Failed(Failure::Unknown(text)) => {
                self.fail(Failure::Unknown(text), now);
                self.stored = None;
                Phase::WriteUnknown(None, intent)
            }
            RecordOutcome::Failed(failure) => {
                self.fail(failure, now);
                Phase::Idle
            }
        }
    }

    /// The record is written: the handover that it announces begins.
    fn begin(&mut self, version: Version, intent: Intent) -> Phase {
        let Intent { record, replaced, fenced, purpose, target, key: _ } = intent;
        self.highest_term = self.highest_term.max(record.term);
        if purpose == Purpose::Tidy {
            if fenced {
                self.fenced = Some(version);
            }
            return Phase::Idle;
        }
        Phase::HandingOver(Box::new(Handover::new(version, record, replaced, fenced, purpose, target)))
    }

    fn take_read(&mut self, read: Result<Stored, Failure>, now: Instant) {
        match read {
            Ok(stored) => {
                if !matches!(stored, Stored::Foreign(_)) {
                    self.backoff.reset();
                }
                self.failure = None;
                let outdated = stored.version().map_or(self.newest > self.asked_at, |version| version < self.newest);
                if outdated {
                    // The watch has brought something newer meanwhile; if not, it is read once more.
                    return;
                }
                if let Some(version) = stored.version() {
                    self.newest = self.newest.max(version);
                }
                self.stored = Some(stored);
            }
            Err(failure) => self.fail(failure, now),
        }
    }

    fn read_record(&mut self, view: &View, commands: &mut Vec<Command>) {
        let op = self.next_op();
        commands.push(Command::ReadRecord { op, key: view.key.clone() });
        self.asked_at = self.newest;
        self.phase = Phase::Reading(op);
    }

    fn learn_terms(&mut self, view: &View) {
        let recorded = self.record().map_or(Term::default(), |record| record.term);
        let sure = self.highest_term.max(view.status_term).max(recorded);
        let mut highest = sure;
        if let Some(Stored::Damaged(_, hint)) = &self.stored {
            highest = highest.max(sure.raised_by_hint(*hint));
        }
        for pod in view.pods.iter().filter(|pod| self.wrote(pod)) {
            highest = highest.max(term_of(pod).map_or(highest, |term| sure.raised_by_hint(term)));
        }
        self.highest_term = highest;
    }

    /// A tidied record says that nothing is left of what was written before.
    fn learn_scopes(&mut self) {
        let Some(Stored::Record(_, record)) = &self.stored else { return };
        if record.election == self.uid && !record.former.iter().chain([&record.scope]).eq(&self.scopes) {
            self.scopes = record.former.iter().chain([&record.scope]).cloned().collect();
        }
    }

    fn fail(&mut self, failure: Failure, now: Instant) {
        self.failure = Some(failure);
        self.backoff.delay(now);
    }

    fn wake_at(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    fn next_op(&mut self) -> OpId {
        self.ops += 1;
        OpId(self.ops)
    }
}

/// The scopes of a group's present spec and of its record.
pub(super) fn selectors(scope: &Scope, record: Option<&Record>) -> Vec<super::Selector> {
    let mut selectors = vec![scope.selector.clone()];
    for scope in record.into_iter().flat_map(|record| [&record.scope].into_iter().chain(&record.former)) {
        if !selectors.contains(&scope.selector) {
            selectors.push(scope.selector.clone());
        }
    }
    selectors
}

pub(super) fn write(op: OpId, change: PodChange, pod: &Pod, patch: super::PodPatch) -> WritePod {
    WritePod { op, change, name: pod.name.clone(), uid: pod.uid.clone(), version: pod.version, patch }
}

pub(super) fn former_markings(record: &Record) -> Vec<Markings> {
    record.former.iter().map(|scope| scope.markings.clone()).collect()
}

fn add_former<'a>(record: &mut Record, scopes: impl IntoIterator<Item = &'a Scope>) {
    for scope in scopes {
        if *scope != record.scope && !record.former.contains(scope) {
            record.former.push(scope.clone());
        }
    }
}

fn has_leftover(pod: &Pod, record: &Record) -> bool {
    record.former.iter().any(|scope| scope.markings.has_leftover(pod, &record.scope.markings))
}

fn record_is_settled(stored: &Stored) -> bool {
    stored.record().is_some_and(|record| record.holder.is_some())
}

fn drift(pod: &Pod) -> Command {
    Command::Announce(Announcement::LabelDrift { pod: pod.name.clone(), uid: pod.uid.clone() })
}

fn holder_of(pod: &Pod) -> Holder {
    Holder { pod: pod.name.clone(), uid: pod.uid.clone(), node: pod.node.clone(), ip: pod.ip.clone() }
}

fn node_of<'a>(pod: &Pod, view: &View<'a>) -> Option<&'a Node> {
    pod.node.as_deref().and_then(|name| (view.node)(name))
}

#[cfg(test)]
mod tests;

//! Workloads that run only where the leader is: enabled while this cluster leads, disabled otherwise.
//!
//! The code below cites the rules W1 to W10 of docs/protocol.md.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lock::Lock;
use super::obligations::{Obligations, latest_tick};
use super::terms::Terms;
use super::wind_down::WindDown;
use crate::backoff::Backoff;
use crate::identity::Identity;
use crate::step::Step;
use crate::timers::Timer;
use crate::view::View;
use crate::{
    Announcement, Command, Failure, Instant, JobPlan, OpId, Record, Setting, Term, Timestamp, Wish, Workload,
    WorkloadChange, WorkloadClaim, WorkloadId, WorkloadKind, WorkloadOutcome, WriteWorkload,
};

/// Brings the workloads to the state that the leadership requires.
#[derive(Clone, Debug)]
pub(super) struct WorkloadReconciler {
    /// The wind-down of the workloads.
    wind_down: WindDown,
    pending: BTreeMap<WorkloadId, Pending>,
    /// Writes that let workloads run and may still be on their way.
    unsure: BTreeSet<(WorkloadId, OpId)>,
    failures: BTreeMap<WorkloadId, Failure>,
    /// Each workload has its own wait, so that one that can't be written does not delay another. A request that is carried out without
    /// effect counts as failed, until nothing is left to do.
    up: BTreeMap<WorkloadId, Backoff>,
    pub(super) down: BTreeMap<WorkloadId, Backoff>,
    owner: String,
    /// The last number under which this process may have written before it began to decide this election again.
    before: OpId,
    /// The wait for workloads that another program changes again and again.
    contest: Backoff,
    contested: BTreeMap<WorkloadId, Instant>,
    /// Whether the last target was a leadership of this cluster.
    leads: bool,
}

/// A request whose outcome is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    Enabling(OpId, Setting),
    Disabling(OpId, Setting),
    Other(OpId, WorkloadChange),
}

impl Pending {
    fn op(&self) -> OpId {
        match self {
            Self::Enabling(op, _) | Self::Disabling(op, _) | Self::Other(op, _) => *op,
        }
    }
}

/// The state that the operator brings the workloads to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// This cluster leads in this term, so the workloads are enabled.
    Lead(Term),
    /// This cluster does not lead, so the workloads are disabled.
    Follow,
    /// No cluster holds the lock, so the workloads that this election has enabled are disabled. Those that it has not touched yet continue
    /// to run, because this cluster may be about to lead.
    Await,
}

impl Target {
    fn term(self) -> Option<Term> {
        match self {
            Self::Lead(term) => Some(term),
            Self::Follow | Self::Await => None,
        }
    }
}

/// The facts around the workloads.
#[derive(Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// The highest term.
    pub(super) term: Term,
    /// The record that this cluster holds.
    pub(super) record: Option<&'a Record>,
    /// W1: the moment until which the operator enables no workload, because workloads may still run in another cluster. L6: or because
    /// another replica may still act, and be about to give the lock away.
    pub(super) wait: Option<Instant>,
}

impl<'a> Circumstances<'a> {
    pub(super) fn of(lock: &'a Lock, terms: Terms, obligations: &Obligations, view: &View) -> Self {
        let record = lock.record();
        let alone = Some(view.alone_from).filter(|from| view.policy.shared && view.now < *from);
        Self { term: terms.highest(), record, wait: obligations.wait(record, view.now).max(alone) }
    }
}

/// The change that a workload needs.
enum Need {
    Enable,
    Disable,
    Release { restore: bool },
    Delete,
    DeleteRunning,
}

/// How soon the operator looks again at workloads that are ending, because not every end is reported.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a workload counts as contested after the operator last corrected it.
const CONTESTED: Duration = Duration::from_secs(30);

impl WorkloadReconciler {
    pub(super) fn new(owner: &str, before: OpId) -> Self {
        Self {
            wind_down: WindDown::default(),
            before,
            pending: BTreeMap::new(),
            unsure: BTreeSet::new(),
            failures: BTreeMap::new(),
            up: BTreeMap::new(),
            down: BTreeMap::new(),
            owner: owner.into(),
            contest: Backoff::new(owner),
            contested: BTreeMap::new(),
            leads: false,
        }
    }

    fn delay_up(&mut self, id: &WorkloadId, now: Instant) {
        let owner = &self.owner;
        self.up.entry(id.clone()).or_insert_with(|| Backoff::new(owner)).delay(now);
    }

    fn delay_down(&mut self, id: &WorkloadId, now: Instant) {
        let owner = &self.owner;
        self.down.entry(id.clone()).or_insert_with(|| Backoff::new(owner)).delay_shortly(now);
    }

    /// The last failure of each workload that can't follow the leader.
    pub(super) fn failures(&self) -> &BTreeMap<WorkloadId, Failure> {
        &self.failures
    }

    /// The workloads that another program keeps changing although the operator has corrected them.
    pub(super) fn contested(&self, now: Instant) -> impl Iterator<Item = &WorkloadId> {
        let recent = move |at: &Instant| now.since(*at) < CONTESTED;
        self.contested.iter().filter(move |(_, at)| recent(at)).map(|(id, _)| id)
    }

    /// Brings the workloads to a target. Returns whether nothing is left to do.
    pub(super) fn reconcile(&mut self, target: Target, around: Circumstances, step: &mut Step) -> bool {
        let view = step.view;
        self.leads = target.term().is_some();
        let Some(workloads) = view.workloads else { return false };
        let known = |id: &WorkloadId| workloads.iter().any(|workload| workload.id == *id);
        self.unsure.retain(|(id, _)| known(id));
        self.contested.retain(|id, at| known(id) && view.now.since(*at) < CONTESTED);
        self.wind_down.retain(known);
        if let Some(first) = self.contested.values().min().copied() {
            step.wake_at(Timer::ContestOver, first + CONTESTED);
        }
        let due =
            |id: &WorkloadId| target.term().is_some_and(|term| view.jobs.iter().any(|plan| plan.job(term) == *id));
        self.failures.retain(|id, _| known(id) || due(id));
        self.up.retain(|id, _| known(id) || due(id));
        self.down.retain(|id, _| known(id));
        let mut settled = true;
        for workload in workloads {
            self.wind_down.note(workload, view.now);
            let Some(need) = self.need(workload, target, step) else {
                if target == Target::Await && step.id.claim_of(workload).is_none() {
                    // The operator does not look at this workload now.
                    continue;
                }
                self.failures.remove(&workload.id);
                self.up.remove(&workload.id);
                self.down.remove(&workload.id);
                continue;
            };
            settled = false;
            self.act(&need, workload, target, around, step);
        }
        settled &= self.start_jobs(target, around, step);
        if workloads.iter().any(|workload| workload.remains && !workload.setting.runs()) {
            step.wake_at(Timer::LookAgain, view.now + LOOK_AGAIN);
        }
        let lets_run = self.lets_run(target, step);
        self.wind_down.note_all(lets_run, view.now);
        settled
    }

    /// Withdraws every request that lets a workload run and was not sent yet.
    pub(super) fn let_nothing_run(&mut self) {
        self.leads = false;
    }

    /// Whether a request that lets a workload run, or makes a Job, is still wanted.
    pub(super) fn wants_to_run(&self, op: OpId) -> bool {
        let starts = |pending: &Pending| {
            pending.op() == op && matches!(pending, Pending::Enabling(..) | Pending::Other(_, WorkloadChange::Created))
        };
        self.leads && self.pending.values().any(starts)
    }

    /// Without the lock, keeps the Jobs of this cluster's term from running, whatever else is wanted of the election.
    pub(super) fn suspend_jobs(&mut self, around: Circumstances, step: &mut Step) {
        let view = step.view;
        for job in
            view.workloads.into_iter().flatten().filter(|job| matches!(job.wish, Wish::FollowTerm(_) | Wish::Delete))
        {
            if let Some(need) = self.need(job, Target::Follow, step) {
                self.act(&need, job, Target::Follow, around, step);
            }
        }
    }

    /// Gives back the workloads that are to be given back, and changes no others.
    pub(super) fn give_back(&mut self, around: Circumstances, step: &mut Step) {
        for workload in step.view.workloads.into_iter().flatten() {
            if let Some(need @ Need::Release { .. }) = self.need(workload, Target::Follow, step) {
                self.act(&need, workload, Target::Follow, around, step);
            }
        }
    }

    /// Gives the workloads back. Returns whether all are given back.
    pub(super) fn release(&mut self, around: Circumstances, step: &mut Step) -> bool {
        self.reconcile(Target::Follow, around, step)
            || step.view.workloads.is_some_and(|workloads| {
                // A write that is refused for good does not keep an election from being deleted.
                let given_up = |workload: &Workload| self.failures.get(&workload.id).is_some_and(Failure::is_refused);
                let done = |workload: &Workload| self.need(workload, Target::Follow, step).is_none();
                workloads.iter().all(|workload| done(workload) || given_up(workload))
            })
    }

    /// Whether anything may run here because of this election. While the workloads are unknown, something may.
    pub(super) fn lets_run(&self, target: Target, step: &Step) -> bool {
        let Some(workloads) = step.view.workloads else { return true };
        workloads.iter().any(|workload| {
            let refused = self.failures.get(&workload.id).is_some_and(Failure::is_refused);
            // W8: without a right to write it, a workload was never under this election's control.
            let ours = step.id.claim_of(workload).is_some()
                || self.pending.contains_key(&workload.id)
                || (!refused && target != Target::Await);
            !matches!(workload.wish, Wish::Release { .. } | Wish::Stay) && ours && !self.is_off(workload, step.id)
        })
    }

    /// Whether requests are under way.
    pub(super) fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// W3: whether the lock is kept although no workload is allowed to run any more, because one still runs, or may.
    pub(super) fn winds_down(&mut self, step: &mut Step) -> bool {
        self.wind_down.goes_on(step)
    }

    /// W12: how many pods or Jobs are seen to run of each workload that has had the time to end.
    pub(super) fn outlasting(&self, step: &Step) -> BTreeMap<String, u32> {
        self.wind_down.outlasting(step)
    }

    /// L6: keeps the lock until then, whether or not anything runs.
    pub(super) fn keep_lock(&mut self, until: Instant) {
        self.wind_down.keep_lock(until);
    }

    /// The moment until which the lock is kept for running workloads.
    pub(super) fn winding_down(&self) -> Option<Instant> {
        self.wind_down.kept_until()
    }

    /// Begins a step, which decides again whether the lock is kept.
    pub(super) fn begin_step(&mut self) {
        self.wind_down.begin_step();
    }

    /// W4: reads at the API server what still runs, unless that was done, or the time for it is over. Returns the request.
    pub(super) fn inspect(&self, step: &mut Step) -> Option<OpId> {
        self.wind_down.inspect(step)
    }

    /// Notes that the read has come, so that the view shows what still runs.
    pub(super) fn take_inspected(&mut self) {
        self.wind_down.take_inspected();
    }

    /// Takes an outcome. Returns the news for the user, if there is any.
    pub(super) fn take(&mut self, op: OpId, outcome: WorkloadOutcome, now: Instant) -> Option<Announcement> {
        let found = self.pending.iter().find(|(_, pending)| pending.op() == op);
        let (id, pending) = found.map(|(id, pending)| (id.clone(), pending.clone()))?;
        self.pending.remove(&id);
        let may_run = match &pending {
            Pending::Enabling(..) => {
                matches!(outcome, WorkloadOutcome::Done | WorkloadOutcome::Failed(Failure::Unknown(_)))
            }
            // An earlier write may have been carried out just before.
            Pending::Disabling(..) => self.is_unsure(&id),
            Pending::Other(..) => false,
        };
        if may_run {
            self.wind_down.may_run(&id, now);
        }
        match outcome {
            WorkloadOutcome::Done => self.take_done(id, &pending, now),
            // The view shows the present state. An earlier write may have been for the version in between.
            WorkloadOutcome::Conflict | WorkloadOutcome::Gone => {
                if let Pending::Other(_, WorkloadChange::Created) = pending {
                    self.delay_up(&id, now);
                }
                self.unsure.remove(&(id, op));
                None
            }
            WorkloadOutcome::Failed(failure) => {
                if failure.is_refused() {
                    self.unsure.remove(&(id.clone(), op));
                }
                match pending {
                    Pending::Disabling(..) => self.delay_down(&id, now),
                    Pending::Enabling(..) | Pending::Other(..) => self.delay_up(&id, now),
                }
                self.failures.insert(id, failure);
                None
            }
        }
    }

    fn take_done(&mut self, id: WorkloadId, pending: &Pending, now: Instant) -> Option<Announcement> {
        self.failures.remove(&id);
        let (change, before) = match *pending {
            Pending::Enabling(_, before) => {
                self.delay_up(&id, now);
                self.unsure.retain(|(other, _)| *other != id);
                (WorkloadChange::Enabled, before.runs())
            }
            Pending::Disabling(_, before) => {
                self.delay_down(&id, now);
                self.up.remove(&id);
                self.unsure.retain(|(other, _)| *other != id);
                (WorkloadChange::Disabled, !before.runs())
            }
            Pending::Other(_, change @ (WorkloadChange::Created | WorkloadChange::Noted)) => {
                self.up.remove(&id);
                (change, false)
            }
            Pending::Other(_, change) => {
                self.delay_up(&id, now);
                (change, false)
            }
        };
        (!before).then_some(Announcement::Workload(id, change))
    }

    fn is_unsure(&self, id: &WorkloadId) -> bool {
        self.unsure.iter().any(|(other, _)| other == id)
    }

    /// W2.
    fn is_off(&self, workload: &Workload, id: &Identity) -> bool {
        let stamped = id
            .claim_of(workload)
            .is_some_and(|claim| !claim.enabled && claim.writer == id.operator_id && claim.write > self.before);
        workload.finished || (!workload.setting.runs() && stamped && !self.is_unsure(&workload.id))
    }

    fn need(&self, workload: &Workload, target: Target, step: &Step) -> Option<Need> {
        let (ours, leads) = (step.id.claim_of(workload), target.term());
        let (follows, started) = match workload.wish {
            _ if target == Target::Await && ours.is_none() => return None,
            Wish::Release { restore } => return ours.map(|_| Need::Release { restore }),
            // W10.
            Wish::Stay => return None,
            Wish::Follow { .. } => (leads, true),
            Wish::Delete if self.is_off(workload, step.id) => return (!workload.deleting).then_some(Need::Delete),
            Wish::Delete => (None, true),
            Wish::FollowTerm(term) if leads.is_some_and(|leads| leads != term) => {
                return (!workload.deleting).then_some(Need::Delete);
            }
            Wish::FollowTerm(term) => {
                let noted = |plan: &JobPlan| plan.job(term) == workload.id && plan.started >= Some(term);
                (leads, step.view.jobs.iter().any(noted))
            }
        };
        if follows.is_some() {
            let enabled = ours.is_some_and(|claim| claim.enabled);
            // Others decide how many pods there are while the workload is enabled.
            let runs = workload.setting.runs() || matches!(workload.setting, Setting::Replicas(_));
            return (started && !workload.finished && !(enabled && runs)).then_some(Need::Enable);
        }
        if self.is_off(workload, step.id) {
            workload.deletable.then_some(Need::DeleteRunning)
        } else {
            Some(Need::Disable)
        }
    }

    /// Sends the request that a workload needs, unless that has to wait.
    fn act(&mut self, need: &Need, workload: &Workload, target: Target, around: Circumstances, step: &mut Step) {
        let (id, now) = (&workload.id, step.view.now);
        let disables = matches!(need, Need::Disable);
        match self.pending.get(id) {
            // Both writes are for the same version, so only the first one succeeds.
            Some(Pending::Enabling(..)) if disables => {}
            Some(_) => return,
            None => {}
        }
        let contested = step.id.claim_of(workload).is_some_and(|claim| match need {
            Need::Enable => claim.enabled,
            Need::Disable => !claim.enabled && workload.setting.runs(),
            Need::Release { .. } | Need::Delete | Need::DeleteRunning => false,
        });
        let backoffs = if disables { &self.down } else { &self.up };
        let backoff = backoffs.get(id).and_then(|backoff| backoff.waits(now));
        let contest = self.contest.waits(now).filter(|_| contested);
        let wait = around.wait.filter(|_| matches!(need, Need::Enable));
        if let Some(until) = [backoff, contest, wait].into_iter().flatten().max() {
            step.wake_at(Timer::WorkloadRetry, until);
            return;
        }
        if contested {
            self.contest.delay_shortly(now);
            if self.contested.insert(id.clone(), now).is_none() {
                step.announce(Announcement::Workload(id.clone(), WorkloadChange::Contested));
            }
        }
        let (uid, op) = (workload.uid.clone(), step.next_op());
        let (change, command) = match need {
            Need::Delete => (WorkloadChange::Deleted, Command::DeleteJob { id: id.clone(), uid }),
            Need::DeleteRunning => (WorkloadChange::RunningDeleted, Command::DeleteRunning { id: id.clone(), uid }),
            Need::Enable => return self.enable(op, workload, target, around, step),
            Need::Disable => return self.disable(op, workload, target, around, step),
            Need::Release { restore } => {
                let setting = released(workload, *restore);
                (WorkloadChange::Released, Command::WriteWorkload(write(workload, setting, None)))
            }
        };
        if let Command::WriteWorkload(write) = &command
            && write.setting.runs()
        {
            self.unsure.insert((id.clone(), op));
        }
        self.pending.insert(id.clone(), Pending::Other(op, change));
        step.request_as(op, command);
    }

    fn enable(&mut self, op: OpId, workload: &Workload, target: Target, around: Circumstances, step: &mut Step) {
        let (id, before) = (workload.id.clone(), workload.setting);
        // W9.
        let known = workload.kept();
        let given = match workload.wish {
            Wish::Follow { replicas } => replicas,
            Wish::FollowTerm(_) | Wish::Delete | Wish::Release { .. } | Wish::Stay => None,
        };
        let setting = enabled(before, known, given);
        let claim = claim(op, true, known.unwrap_or(before), target, around, step);
        // W6.
        let obligation = around.record.and_then(|record| record.drain_obligation.as_ref());
        let tick = obligation.and_then(|obligation| obligation.ticks.get(&id.name)).copied();
        let tick = tick.map(|tick| tick.min(latest_tick(step.view)));
        let is_later = |tick: &Timestamp| workload.last_tick.is_none_or(|last| last < *tick);
        let after_tick = tick.filter(|tick| id.kind == WorkloadKind::CronJob && is_later(tick));
        if setting.runs() {
            self.unsure.insert((id.clone(), op));
        }
        self.pending.insert(id, Pending::Enabling(op, before));
        let write = WriteWorkload { after_tick, ..write(workload, setting, Some(claim)) };
        step.request_as(op, Command::WriteWorkload(write));
    }

    fn disable(&mut self, op: OpId, workload: &Workload, target: Target, around: Circumstances, step: &mut Step) {
        let before = workload.setting;
        let kept = match before {
            Setting::Replicas(_) if before.runs() => before,
            // W9.
            _ => workload.kept().unwrap_or(before),
        };
        let claim = claim(op, false, kept, target, around, step);
        self.pending.insert(workload.id.clone(), Pending::Disabling(op, before));
        step.request_as(op, Command::WriteWorkload(write(workload, before.off(), Some(claim))));
    }

    /// W7: creates one Job for each term. First the operator deletes the Job of the term before, then it creates the new one, suspended. It
    /// notes that before it lets the Job run, so that no Job ever starts twice.
    fn start_jobs(&mut self, target: Target, around: Circumstances, step: &mut Step) -> bool {
        let view = step.view;
        let (Some(term), Some(workloads)) = (target.term(), view.workloads) else { return true };
        let mut settled = true;
        for plan in view.jobs.iter().filter(|plan| plan.started.is_none_or(|started| started < term)) {
            settled = false;
            let id = plan.job(term);
            let backoff = self.up.get(&id).and_then(|backoff| backoff.waits(view.now));
            if let Some(until) = [backoff, around.wait].into_iter().flatten().max() {
                step.wake_at(Timer::WorkloadRetry, until);
                continue;
            }
            let earlier = |workload: &Workload| match workload.wish {
                Wish::FollowTerm(other) => other != term && plan.job(other) == workload.id,
                Wish::Delete => plan.term_of(&workload.id).is_some(),
                Wish::Follow { .. } | Wish::Release { .. } | Wish::Stay => false,
            };
            if self.pending.contains_key(&id) || workloads.iter().any(earlier) {
                continue;
            }
            let op = step.next_op();
            let exists = workloads.iter().any(|workload| workload.id == id);
            let change = if exists { WorkloadChange::Noted } else { WorkloadChange::Created };
            self.pending.insert(id.clone(), Pending::Other(op, change));
            let plan = plan.name.clone();
            let command = if exists {
                Command::NoteJob { plan, term }
            } else {
                let claim = claim(op, false, Setting::Suspend(true), target, around, step);
                Command::CreateJob { plan, id, claim }
            };
            step.request_as(op, command);
        }
        settled
    }
}

/// Whether this election has enabled a workload.
pub(super) fn has_enabled(step: &Step) -> bool {
    let enabled = |workload| step.id.claim_of(workload).is_some_and(|claim| claim.enabled);
    step.view.workloads.is_some_and(|workloads| workloads.iter().any(enabled))
}

/// The claim that a request writes on a workload.
fn claim(op: OpId, enabled: bool, kept: Setting, target: Target, around: Circumstances, step: &Step) -> WorkloadClaim {
    let (election, writer) = (step.id.name.clone(), step.id.operator_id.clone());
    let term = target.term().unwrap_or(around.term);
    WorkloadClaim { election, enabled, term, writer, write: op, kept }
}

fn write(workload: &Workload, setting: Setting, claim: Option<WorkloadClaim>) -> WriteWorkload {
    let (id, uid, version) = (workload.id.clone(), workload.uid.clone(), workload.version);
    WriteWorkload { id, uid, version, setting, claim, after_tick: None }
}

/// The setting of a workload that is given back.
fn released(workload: &Workload, restore: bool) -> Setting {
    match (workload.setting, workload.kept()) {
        (Setting::Replicas(_), Some(kept)) if restore && !workload.setting.runs() => kept,
        (Setting::Suspend(_), Some(kept)) if restore => kept,
        (before, _) => before,
    }
}

/// The setting that lets a workload run.
fn enabled(now: Setting, kept: Option<Setting>, given: Option<i32>) -> Setting {
    match (now, kept) {
        (Setting::Suspend(_), _) => Setting::Suspend(false),
        (Setting::Replicas(now), _) if now > 0 => Setting::Replicas(given.unwrap_or(now)),
        (Setting::Replicas(_), Some(Setting::Replicas(kept))) if kept > 0 => Setting::Replicas(given.unwrap_or(kept)),
        (Setting::Replicas(_), _) => Setting::Replicas(given.unwrap_or(1)),
    }
}

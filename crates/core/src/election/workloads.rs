//! Workloads that run only where the leader is: enabled while this cluster leads, disabled otherwise.
//!
//! The rules W1 to W8 in docs/protocol.md; the code that keeps them cites them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Election;
use super::step::Step;
use super::view::View;
use crate::backoff::Backoff;
use crate::{
    Announcement, Command, Failure, Instant, OpId, Setting, Term, Wish, Workload, WorkloadChange, WorkloadClaim,
    WorkloadId, WorkloadKind, WorkloadOutcome, WriteWorkload,
};

/// What is under way with the workloads.
#[derive(Clone, Debug)]
pub(super) struct Steering {
    pending: BTreeMap<WorkloadId, Pending>,
    /// Writes that let them run and may still be on their way.
    unsure: BTreeSet<(WorkloadId, OpId)>,
    failures: BTreeMap<WorkloadId, Failure>,
    /// Of each by itself: one that can't be written does not hold up another. A request that is carried out and has no effect
    /// counts as failed, until nothing is left to do.
    up: BTreeMap<WorkloadId, Backoff>,
    pub(super) down: BTreeMap<WorkloadId, Backoff>,
    owner: String,
    /// What this process wrote up to this one, it wrote before it began to decide this election anew.
    before: OpId,
    /// For what somebody else changes again and again.
    contest: Backoff,
    contested: BTreeMap<WorkloadId, Instant>,
    /// Whether they were brought to a leadership of this cluster last.
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

/// What the workloads are brought to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// This cluster leads in this term: they are enabled.
    Lead(Term),
    /// It does not: they are disabled.
    Follow,
    /// The lock is nobody's: what this election has enabled is disabled. What it has not touched yet runs on, for this cluster may
    /// be about to lead.
    Await,
}

impl Course {
    fn term(self) -> Option<Term> {
        match self {
            Self::Lead(term) => Some(term),
            Self::Follow | Self::Await => None,
        }
    }
}

/// What a workload needs.
enum Need {
    Enable,
    Disable,
    Release { restore: bool },
    Delete,
    DeleteRunning,
}

/// How soon it is looked again at what is ending: not of all of it is told when it has ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long something counts as contested after it was last put right.
const CONTESTED: Duration = Duration::from_secs(30);

impl Steering {
    pub(super) fn new(owner: &str, before: OpId) -> Self {
        Self {
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
}

impl Election {
    /// What keeps workloads from following, the last failure of each.
    pub fn workload_failures(&self) -> &BTreeMap<WorkloadId, Failure> {
        &self.steering.failures
    }

    /// The workloads that somebody else changes, although they were put right.
    pub fn contested_workloads(&self, now: Instant) -> impl Iterator<Item = &WorkloadId> {
        let recent = move |at: &Instant| now.since(*at) < CONTESTED;
        self.steering.contested.iter().filter(move |(_, at)| recent(at)).map(|(id, _)| id)
    }

    /// Brings the workloads to what the leadership wants; returns whether nothing is left to do.
    pub(super) fn steer(&mut self, course: Course, step: &mut Step) -> bool {
        let view = step.view;
        self.steering.leads = course.term().is_some();
        let Some(workloads) = view.workloads else { return false };
        let known = |id: &WorkloadId| workloads.iter().any(|workload| workload.id == *id);
        self.steering.unsure.retain(|(id, _)| known(id));
        self.steering.contested.retain(|id, at| known(id) && view.now.since(*at) < CONTESTED);
        self.wind_down.retain(known);
        if let Some(first) = self.steering.contested.values().min().copied() {
            step.wake_at(first + CONTESTED);
        }
        let due =
            |id: &WorkloadId| course.term().is_some_and(|term| view.jobs.iter().any(|plan| plan.job(term) == *id));
        self.steering.failures.retain(|id, _| known(id) || due(id));
        self.steering.up.retain(|id, _| known(id) || due(id));
        self.steering.down.retain(|id, _| known(id));
        let mut settled = true;
        for workload in workloads {
            self.wind_down.note(workload, view.now);
            let Some(need) = self.need(workload, course, view) else {
                if course == Course::Await && self.claim_of(workload).is_none() {
                    // It is not looked at now.
                    continue;
                }
                self.steering.failures.remove(&workload.id);
                self.steering.up.remove(&workload.id);
                self.steering.down.remove(&workload.id);
                continue;
            };
            settled = false;
            self.meet(&need, workload, course, step);
        }
        settled &= self.start_jobs(course, step);
        if workloads.iter().any(|workload| workload.remains && !workload.setting.runs()) {
            step.wake_at(view.now + LOOK_AGAIN);
        }
        let lets_run = self.lets_run(course, view);
        self.wind_down.note_all(lets_run, view.now);
        settled
    }

    /// Whatever lets a workload run and was not sent yet, is not wanted any more.
    pub(super) fn let_nothing_run(&mut self) {
        self.steering.leads = false;
    }

    /// Whether a request that lets a workload run, or makes a Job, is still wanted.
    pub(super) fn wants_to_run(&self, op: OpId) -> bool {
        let starts = |pending: &Pending| {
            pending.op() == op && matches!(pending, Pending::Enabling(..) | Pending::Other(_, WorkloadChange::Created))
        };
        self.steering.leads && self.steering.pending.values().any(starts)
    }

    /// Without the lock, what was made for this cluster's term is not let run, whatever else is wanted of the election.
    pub(super) fn suspend_jobs(&mut self, step: &mut Step) {
        let view = step.view;
        for job in view.workloads.into_iter().flatten().filter(|job| matches!(job.wish, Wish::FollowTerm(_))) {
            if let Some(need) = self.need(job, Course::Follow, view) {
                self.meet(&need, job, Course::Follow, step);
            }
        }
    }

    /// Gives the workloads back; returns whether all are.
    pub(super) fn release_workloads(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        self.steer(Course::Follow, step)
            || view.workloads.is_some_and(|workloads| {
                // What is refused for good does not keep an election from being deleted.
                let given_up =
                    |workload: &Workload| matches!(self.steering.failures.get(&workload.id), Some(Failure::Refused(_)));
                workloads
                    .iter()
                    .all(|workload| self.need(workload, Course::Follow, view).is_none() || given_up(workload))
            })
    }

    /// Whether something may run here because of this election; so it is, too, while that is not known.
    pub(super) fn lets_run(&self, course: Course, view: &View) -> bool {
        let Some(workloads) = view.workloads else { return true };
        workloads.iter().any(|workload| {
            let refused = matches!(self.steering.failures.get(&workload.id), Some(Failure::Refused(_)));
            // W8: where there was never a right to write it, it is not under this election's control.
            let ours = self.claim_of(workload).is_some()
                || self.steering.pending.contains_key(&workload.id)
                || (!refused && course != Course::Await);
            !matches!(workload.wish, Wish::Release { .. }) && ours && !self.is_off(workload)
        })
    }

    /// Whether this election has enabled a workload.
    pub(super) fn has_enabled(&self, view: &View) -> bool {
        let enabled = |workload| self.claim_of(workload).is_some_and(|claim| claim.enabled);
        view.workloads.is_some_and(|workloads| workloads.iter().any(enabled))
    }

    pub(super) fn take_steering(&mut self, op: OpId, outcome: WorkloadOutcome, now: Instant) {
        let found = self.steering.pending.iter().find(|(_, pending)| pending.op() == op);
        let Some((id, pending)) = found.map(|(id, pending)| (id.clone(), pending.clone())) else { return };
        self.steering.pending.remove(&id);
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
            WorkloadOutcome::Done => {
                self.steering.failures.remove(&id);
                let (change, before) = match pending {
                    Pending::Enabling(_, before) => {
                        self.steering.delay_up(&id, now);
                        self.steering.unsure.retain(|(other, _)| *other != id);
                        (WorkloadChange::Enabled, before.runs())
                    }
                    Pending::Disabling(_, before) => {
                        self.steering.delay_down(&id, now);
                        self.steering.up.remove(&id);
                        self.steering.unsure.retain(|(other, _)| *other != id);
                        (WorkloadChange::Disabled, !before.runs())
                    }
                    Pending::Other(_, change @ (WorkloadChange::Created | WorkloadChange::Noted)) => {
                        self.steering.up.remove(&id);
                        (change, false)
                    }
                    Pending::Other(_, change) => {
                        self.steering.delay_up(&id, now);
                        (change, false)
                    }
                };
                if !before {
                    self.told.push(Announcement::Workload(id, change));
                }
            }
            // What is there now was read, and is shown. An earlier write may have been for the version in between.
            WorkloadOutcome::Conflict | WorkloadOutcome::Gone => {
                if let Pending::Other(_, WorkloadChange::Created) = pending {
                    self.steering.delay_up(&id, now);
                }
                self.steering.unsure.remove(&(id, op));
            }
            WorkloadOutcome::Failed(failure) => {
                if let Failure::Refused(_) = failure {
                    self.steering.unsure.remove(&(id.clone(), op));
                }
                match pending {
                    Pending::Disabling(..) => self.steering.delay_down(&id, now),
                    Pending::Enabling(..) | Pending::Other(..) => self.steering.delay_up(&id, now),
                }
                self.steering.failures.insert(id, failure);
            }
        }
    }

    /// Whether requests for workloads are under way.
    pub(super) fn is_steering(&self) -> bool {
        !self.steering.pending.is_empty()
    }

    pub(super) fn claim_of<'w>(&self, workload: &'w Workload) -> Option<&'w WorkloadClaim> {
        workload.claim.as_ref().filter(|claim| claim.election == self.id.name)
    }

    fn is_unsure(&self, id: &WorkloadId) -> bool {
        self.steering.unsure.iter().any(|(other, _)| other == id)
    }

    /// W2.
    fn is_off(&self, workload: &Workload) -> bool {
        let stamped = self.claim_of(workload).is_some_and(|claim| {
            !claim.enabled && claim.writer == self.id.operator_id && claim.write > self.steering.before
        });
        workload.finished || (!workload.setting.runs() && stamped && !self.is_unsure(&workload.id))
    }

    fn need(&self, workload: &Workload, course: Course, view: &View) -> Option<Need> {
        let (ours, leads) = (self.claim_of(workload), course.term());
        let (follows, started) = match workload.wish {
            _ if course == Course::Await && ours.is_none() => return None,
            Wish::Release { restore } => return ours.map(|_| Need::Release { restore }),
            Wish::Follow { .. } => (leads, true),
            Wish::FollowTerm(term) if leads.is_some_and(|leads| leads != term) => {
                return (!workload.deleting).then_some(Need::Delete);
            }
            Wish::FollowTerm(term) => {
                let noted = |plan: &crate::JobPlan| plan.job(term) == workload.id && plan.started >= Some(term);
                (leads, view.jobs.iter().any(noted))
            }
        };
        if follows.is_some() {
            let enabled = ours.is_some_and(|claim| claim.enabled);
            // How many there are while it is enabled, is for others to say.
            let runs = workload.setting.runs() || matches!(workload.setting, Setting::Replicas(_));
            return (started && !workload.finished && !(enabled && runs)).then_some(Need::Enable);
        }
        if self.is_off(workload) { workload.deletable.then_some(Need::DeleteRunning) } else { Some(Need::Disable) }
    }

    fn meet(&mut self, need: &Need, workload: &Workload, course: Course, step: &mut Step) {
        let view = step.view;
        let id = &workload.id;
        let disables = matches!(need, Need::Disable);
        match self.steering.pending.get(id) {
            // Whichever comes first: both are for the same version.
            Some(Pending::Enabling(..)) if disables => {}
            Some(_) => return,
            None => {}
        }
        let backoffs = if disables { &self.steering.down } else { &self.steering.up };
        let backoff = backoffs.get(id).and_then(|backoff| backoff.waits(view.now));
        let ours = self.claim_of(workload).cloned();
        let contested = ours.as_ref().is_some_and(|claim| match need {
            Need::Enable => claim.enabled,
            Need::Disable => !claim.enabled && workload.setting.runs(),
            Need::Release { .. } | Need::Delete | Need::DeleteRunning => false,
        });
        let contest = self.steering.contest.waits(view.now).filter(|_| contested);
        // W1.
        let waits = self.workloads_wait(view.now).filter(|_| matches!(need, Need::Enable));
        let held_up = [backoff, contest, waits].into_iter().flatten().max();
        if let Some(until) = held_up {
            step.wake_at(until);
            return;
        }
        if contested {
            self.steering.contest.delay_shortly(view.now);
            if self.steering.contested.insert(id.clone(), view.now).is_none() {
                step.announce(Announcement::Workload(id.clone(), WorkloadChange::Contested));
            }
        }
        let op = step.next_op();
        let before = workload.setting;
        let known = workload.claim.as_ref().map(|claim| claim.kept);
        let claim = |enabled: bool, kept: Setting| {
            Some(WorkloadClaim {
                election: self.id.name.clone(),
                enabled,
                term: course.term().unwrap_or(self.terms.highest()),
                writer: self.id.operator_id.clone(),
                write: op,
                kept,
            })
        };
        let (pending, setting, claim) = match need {
            Need::Enable => {
                let given = match workload.wish {
                    Wish::Follow { replicas } => replicas,
                    Wish::FollowTerm(_) | Wish::Release { .. } => None,
                };
                let setting = enabled(before, known, given);
                (Pending::Enabling(op, before), setting, claim(true, known.unwrap_or(before)))
            }
            Need::Disable => {
                let kept = match before {
                    Setting::Replicas(_) if before.runs() => before,
                    _ => known.unwrap_or(before),
                };
                (Pending::Disabling(op, before), before.off(), claim(false, kept))
            }
            Need::Release { restore } => {
                let setting = match (before, known) {
                    (Setting::Replicas(_), Some(kept)) if *restore && !before.runs() => kept,
                    (Setting::Suspend(_), Some(kept)) if *restore => kept,
                    _ => before,
                };
                (Pending::Other(op, WorkloadChange::Released), setting, None)
            }
            Need::Delete | Need::DeleteRunning => {
                let (id, uid) = (id.clone(), workload.uid.clone());
                let running = matches!(need, Need::DeleteRunning);
                let change = if running { WorkloadChange::RunningDeleted } else { WorkloadChange::Deleted };
                self.steering.pending.insert(id.clone(), Pending::Other(op, change));
                step.request_as(
                    op,
                    if running { Command::DeleteRunning { id, uid } } else { Command::DeleteJob { id, uid } },
                );
                return;
            }
        };
        // W6.
        let record = self.record().and_then(|record| record.legacy.as_ref());
        let tick = record.and_then(|legacy| legacy.ticks.get(&id.name)).copied();
        let after_tick = tick
            .filter(|tick| id.kind == WorkloadKind::CronJob && workload.last_tick.is_none_or(|last| last < *tick))
            .filter(|_| matches!(pending, Pending::Enabling(..)));
        if setting.runs() {
            self.steering.unsure.insert((id.clone(), op));
        }
        self.steering.pending.insert(id.clone(), pending);
        step.request_as(
            op,
            Command::WriteWorkload(WriteWorkload {
                id: id.clone(),
                uid: workload.uid.clone(),
                version: workload.version,
                setting,
                claim,
                after_tick,
            }),
        );
    }

    /// W7: one Job for each term. First the one of the term before goes, then the new one is made, suspended; that it was, is noted
    /// before it is let run, so that none is ever started twice.
    fn start_jobs(&mut self, course: Course, step: &mut Step) -> bool {
        let view = step.view;
        let (Some(term), Some(workloads)) = (course.term(), view.workloads) else { return true };
        let mut settled = true;
        for plan in view.jobs.iter().filter(|plan| plan.started.is_none_or(|started| started < term)) {
            settled = false;
            let id = plan.job(term);
            let backoff = self.steering.up.get(&id).and_then(|backoff| backoff.waits(view.now));
            let held_up = [backoff, self.workloads_wait(view.now)].into_iter().flatten().max();
            if let Some(until) = held_up {
                step.wake_at(until);
                continue;
            }
            let earlier = |workload: &Workload| match workload.wish {
                Wish::FollowTerm(other) => other != term && plan.job(other) == workload.id,
                Wish::Follow { .. } | Wish::Release { .. } => false,
            };
            if self.steering.pending.contains_key(&id) || workloads.iter().any(earlier) {
                continue;
            }
            let op = step.next_op();
            let exists = workloads.iter().any(|workload| workload.id == id);
            let change = if exists { WorkloadChange::Noted } else { WorkloadChange::Created };
            self.steering.pending.insert(id.clone(), Pending::Other(op, change));
            let plan = plan.name.clone();
            step.request_as(
                op,
                if exists {
                    Command::NoteJob { plan, term }
                } else {
                    let (election, writer) = (self.id.name.clone(), self.id.operator_id.clone());
                    let kept = Setting::Suspend(true);
                    let claim = WorkloadClaim { election, enabled: false, term, writer, write: op, kept };
                    Command::CreateJob { plan, id, claim }
                },
            );
        }
        settled
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

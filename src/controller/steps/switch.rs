//! Switchovers: the questions to the core before and after an election's step, and the consequences.
//!
//! A Switchover is accepted in a write of its own before it is carried out. So the API server has just confirmed it, whatever the watch
//! shows, and a later operator knows that its record may have been written (H14, H15).

use std::time::Duration;

use lictor_api::{Resolved, SwitchoverPod, SwitchoverStatus};
use lictor_core::switchover::{Asked, Hold, Obstacle, Switchovers, Target, Verdict};
use lictor_core::{Election, Holder, Pod, Term};

use crate::controller::entry::Entry;
use crate::controller::executor::Executor;
use crate::controller::index::{ElectionContext, OfElection};
use crate::controller::status::switchovers::{self, Result};
use crate::controller::switchover::{Due, KnownSwitchover, Trouble, Written};
use crate::controller::timers::{Moment, Soonest};
use crate::wording::remain;

/// How long an election may be in the middle of a change before the status says so: mostly this takes milliseconds.
const SOON: Duration = Duration::from_secs(1);

/// A Switchover in the form in which the core judges it.
pub(crate) struct Wanted {
    name: String,
    pub(crate) asked: Asked,
    pub(crate) accepted: bool,
    pub(crate) gives_up: bool,
}

/// The Switchovers of an election.
#[derive(Default)]
pub(crate) struct Switching {
    /// The Switchovers that are not over, in their order.
    wanted: Vec<Wanted>,
    holds: Vec<Hold>,
}

impl Switching {
    /// The Switchovers that are not over.
    pub(crate) fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// The same, by value.
    pub(crate) fn into_wanted(self) -> Vec<Wanted> {
        self.wanted
    }

    /// The Switchovers for the core, which carries out one at a time.
    pub(crate) fn shown(&self) -> Switchovers<'_> {
        let first = self.wanted.first().filter(|wanted| wanted.accepted);
        Switchovers {
            accepted: first.map(|wanted| &wanted.asked),
            gives_up: first.is_some_and(|wanted| wanted.gives_up),
            holds: &self.holds,
        }
    }
}

/// Gathers the Switchovers before the step.
pub(crate) fn gather(all: Option<&mut OfElection>, moment: Moment) -> Switching {
    let mut switching = Switching::default();
    let Some(all) = all else { return switching };
    let mut open = Vec::new();
    for known in all.values_mut() {
        match known.expiry(moment) {
            Some((hold, _)) => switching.holds.extend(hold),
            None => open.push(&*known),
        }
    }
    open.sort_by(|one, other| one.order().cmp(&other.order()));
    let wanted = open.into_iter().map(|known| Wanted {
        name: known.id().name.clone(),
        asked: known.asked(),
        accepted: known.is_accepted(),
        gives_up: known.giving_up().is_some(),
    });
    switching.wanted = wanted.collect();
    switching
}

/// Carries out the core's verdicts on the Switchovers of an election. Returns whether the election takes another step.
pub(crate) fn settle(
    found: &mut ElectionContext<'_>,
    verdicts: Vec<(Wanted, Verdict)>,
    executor: &Executor,
    moment: Moment,
    again: &mut Soonest,
) -> bool {
    let ElectionContext { entry, around, switchovers, .. } = found;
    let Some(all) = switchovers.as_deref_mut() else { return false };
    clean_up(all, executor, moment, again);
    let (mut first, mut steps) = (None, false);
    for (wanted, verdict) in verdicts {
        let Some(known) = all.get_mut(&wanted.name) else { continue };
        known.settle(!matches!(verdict, Verdict::Unsettled | Verdict::Blocked(Obstacle::Frozen)), moment.now);
        let pod = |uid| entry.members.all().filter_map(|pod| around.pods.get(pod)).find(|pod: &&Pod| pod.uid == uid);
        let decided = match to_another(verdict, &wanted, entry) {
            _ if known.due(moment) == Due::Unreadable => Decided::Fail(unreadable(known)),
            verdict if wanted.accepted => follow_up(known, &wanted, &verdict, entry, moment, again),
            Verdict::Ready(_) | Verdict::ReadyElsewhere if first.is_some() => {
                refuse(known, another(first.as_deref()), moment, again)
            }
            Verdict::Ready(uid) if known.due(moment) == Due::Now => match pod(uid) {
                Some(pod) => Decided::Accept(begins(known, Some(pod), entry, moment)),
                None => Decided::Nothing,
            },
            Verdict::ReadyElsewhere if known.due(moment) == Due::Now => {
                Decided::Accept(begins(known, None, entry, moment))
            }
            Verdict::Blocked(why) => {
                let paused = entry.spec().is_some_and(|spec| spec.paused);
                if why == Obstacle::Frozen && !paused {
                    wait_shortly(known, moment, again)
                } else {
                    refuse(known, trouble(&why, &wanted, known), moment, again)
                }
            }
            _ => wait_shortly(known, moment, again),
        };
        let begins = matches!(decided, Decided::Accept(_));
        if first.is_none() && (wanted.accepted || begins) {
            first = Some(wanted.name.clone());
        }
        steps |= matches!(decided, Decided::GiveUp);
        carry_out(known, decided, executor, moment, again);
    }
    steps
}

/// The same verdict, unless the cluster that is to lead is this one.
fn to_another(verdict: Verdict, wanted: &Wanted, entry: &Entry) -> Verdict {
    let own = entry.spec().and_then(Resolved::cluster_name);
    match (&verdict, &wanted.asked.to) {
        (Verdict::ReadyElsewhere, Target::Cluster(to)) if own == Some(to.as_str()) => Verdict::Blocked(Obstacle::Leads),
        _ => verdict,
    }
}

/// Fails the Switchovers of an election that does not exist.
pub(crate) fn refuse_all(all: &mut OfElection, executor: &Executor, moment: Moment, again: &mut Soonest) {
    clean_up(all, executor, moment, again);
    for known in all.values_mut().filter(|known| known.result().is_none()) {
        let message = format!(
            "there is no LeaderElection {} in this namespace: create the Switchover again with another \
             spec.electionName",
            known.id().election.name
        );
        let why = Trouble { reason: "ElectionNotFound", message, passes: false };
        carry_out(known, Decided::Fail(why), executor, moment, again);
    }
}

/// The next action for a Switchover.
enum Decided {
    Nothing,
    Accept(SwitchoverStatus),
    Complete(SwitchoverStatus),
    Wait(Trouble),
    Fail(Trouble),
    /// The core must make sure that the Switchover has no further effect.
    GiveUp,
}

/// The action for an accepted Switchover.
fn follow_up(
    known: &mut KnownSwitchover,
    wanted: &Wanted,
    verdict: &Verdict,
    entry: &Entry,
    moment: Moment,
    again: &mut Soonest,
) -> Decided {
    let late = known.deadline().is_some_and(|deadline| deadline <= moment.now);
    let trouble = match *verdict {
        Verdict::Done(term) => {
            let leader = entry.election().and_then(Election::leader).map(|(_, holder, _)| holder);
            let Some(leader) = leader else { return Decided::Nothing };
            return complete(known, leader, term, moment);
        }
        Verdict::DoneElsewhere(term, ref leader) => return complete(known, leader, term, moment),
        Verdict::UnderWay => return Decided::Nothing,
        Verdict::Lost => return Decided::Fail(lost(known)),
        Verdict::GivenUp => return Decided::Fail(known.giving_up().cloned().unwrap_or_else(|| given_up(known, entry))),
        // The target may still become ready.
        Verdict::Blocked(Obstacle::NotReady { .. }) if known.deadline().is_some() && !late => {
            if let Some(deadline) = known.deadline() {
                again.add(deadline);
            }
            return Decided::Nothing;
        }
        // The operator stops, and the next one continues.
        Verdict::Blocked(Obstacle::Frozen) if entry.spec().is_some_and(|spec| !spec.paused) => return Decided::Nothing,
        Verdict::Blocked(ref why) => Some(trouble(why, wanted, known)),
        Verdict::Ready(_) | Verdict::ReadyElsewhere | Verdict::Unsettled => {
            late.then(|| too_late("the new leader could not be recorded", known))
        }
    };
    match trouble {
        Some(trouble) if known.giving_up().is_none() => {
            known.give_up(trouble);
            Decided::GiveUp
        }
        _ => Decided::Nothing,
    }
}

fn complete(known: &KnownSwitchover, leader: &Holder, term: Term, moment: Moment) -> Decided {
    let milliseconds = known.took(moment.now).and_then(|took| i64::try_from(took.as_millis()).ok());
    let result = Result { to: as_pod(leader), term: term.0, milliseconds };
    Decided::Complete(switchovers::completes(known.seen(), result, moment.wall))
}

/// A leader, if it is a pod.
fn as_pod(leader: &Holder) -> Option<SwitchoverPod> {
    Some(SwitchoverPod { pod_name: leader.pod.clone()?, pod_uid: Some(leader.uid.0.clone()) })
}

/// The action for a Switchover with an obstacle.
fn refuse(known: &mut KnownSwitchover, why: Trouble, moment: Moment, again: &mut Soonest) -> Decided {
    if why.reason == "Superseded" {
        // A later due time would not remove this obstacle.
        return Decided::Fail(why);
    }
    if let Due::Later(at) = known.due(moment) {
        again.add(at);
        return Decided::Wait(scheduled(known));
    }
    match known.deadline() {
        _ if !why.passes => Decided::Fail(why),
        None => Decided::Fail(why),
        Some(deadline) if deadline <= moment.now => Decided::Fail(too_late(&why.message, known)),
        Some(deadline) => {
            again.add(deadline);
            Decided::Wait(why)
        }
    }
}

/// The action for a Switchover that can't be judged now.
fn wait_shortly(known: &mut KnownSwitchover, moment: Moment, again: &mut Soonest) -> Decided {
    if let Due::Later(at) = known.due(moment) {
        again.add(at);
        return Decided::Wait(scheduled(known));
    }
    let message = "the election is changing, or its lock is unknown at present: the operator decides afterwards";
    match known.deadline() {
        Some(deadline) if deadline <= moment.now => return Decided::Fail(too_late(message, known)),
        deadline => again.add(deadline),
    }
    let told = known.settle(false, moment.now).unwrap_or(moment.now) + SOON;
    if moment.now < told {
        again.add(told);
        return Decided::Nothing;
    }
    Decided::Wait(Trouble { reason: "NotSettled", message: message.into(), passes: true })
}

/// The status of a Switchover that begins. `pod`: the pod that is to lead here; `None` if another cluster is.
fn begins(known: &KnownSwitchover, pod: Option<&Pod>, entry: &Entry, moment: Moment) -> SwitchoverStatus {
    let leader = entry.election().and_then(Election::record).and_then(|record| record.holder.as_ref());
    let from = leader.and_then(as_pod);
    let to = pod.map(|pod| SwitchoverPod { pod_name: pod.name.clone(), pod_uid: Some(pod.uid.0.clone()) });
    switchovers::begins(known.seen(), from, to, moment.wall)
}

fn carry_out(
    known: &mut KnownSwitchover,
    decided: Decided,
    executor: &Executor,
    Moment { now, wall }: Moment,
    again: &mut Soonest,
) {
    let (what, status) = match decided {
        Decided::Nothing | Decided::GiveUp => return,
        Decided::Accept(status) => (Written::Accepts, status),
        Decided::Complete(status) => (Written::Ends, status),
        Decided::Wait(why) => (Written::Waits, switchovers::waits(known.seen(), &why, wall)),
        Decided::Fail(why) => (Written::Ends, switchovers::fails(known.seen(), &why, wall)),
    };
    if status == known.status() || known.is_deleted() {
        return;
    }
    if let Err(at) = known.may_write(now) {
        return again.add(at);
    }
    let number = known.begin(what, now);
    executor.write_switchover(known.id(), known.seen(), number, status);
}

/// Deletes the Switchovers whose time after their end is over.
fn clean_up(all: &mut OfElection, executor: &Executor, moment: Moment, again: &mut Soonest) {
    for known in all.values_mut() {
        let Some((_, Some(delete))) = known.expiry(moment) else { continue };
        if moment.now < delete {
            again.add(delete);
            continue;
        }
        match known.may_write(moment.now) {
            Err(at) => again.add(at),
            Ok(()) if known.is_deleted() => {}
            Ok(()) => {
                let number = known.begin(Written::Deletes, moment.now);
                executor.delete_switchover(known.id(), known.seen(), number);
            }
        }
    }
}

fn trouble(why: &Obstacle, wanted: &Wanted, known: &KnownSwitchover) -> Trouble {
    let told = known.seen().status.as_ref().and_then(|status| status.to.as_ref()).map(|to| to.pod_name.as_str());
    let spec = &known.seen().spec;
    switchovers::trouble(why, &wanted.asked, spec.to_pod_name.as_deref().or(spec.to_cluster_name.as_deref()).or(told))
}

fn another(first: Option<&str>) -> Trouble {
    let message = format!(
        "the Switchover {} of the same election is in progress: create another one when it has ended, if you still \
         want it",
        first.unwrap_or_default()
    );
    Trouble { reason: "AnotherUnderWay", message, passes: true }
}

fn scheduled(known: &KnownSwitchover) -> Trouble {
    let time = known.seen().spec.not_before_time.as_deref().unwrap_or_default();
    Trouble { reason: "Scheduled", message: format!("begins at {time} by the operator's clock"), passes: true }
}

fn unreadable(known: &KnownSwitchover) -> Trouble {
    let time = known.seen().spec.not_before_time.as_deref().unwrap_or_default();
    let message =
        format!("spec.notBeforeTime is {time:?}, which is not a time: write for example 2030-01-31T22:00:00Z");
    Trouble { reason: "InvalidTime", message, passes: false }
}

fn too_late(why: &str, known: &KnownSwitchover) -> Trouble {
    let seconds = known.seen().spec.deadline_seconds.unwrap_or_default();
    let message = format!("spec.deadlineSeconds ({seconds}) have passed: {why}");
    Trouble { reason: "DeadlineExceeded", message, passes: false }
}

fn lost(known: &KnownSwitchover) -> Trouble {
    let to = known.status().to.map(|to| to.pod_name).unwrap_or_default();
    let message = format!(
        "{to} was elected, but was lost or could not be labelled before it led: the election's status.history shows \
         what followed"
    );
    Trouble { reason: "TargetLost", message, passes: false }
}

/// Why a Switchover was given up, if this process only has the record to tell.
fn given_up(known: &KnownSwitchover, entry: &Entry) -> Trouble {
    let mark = entry.election().and_then(Election::record).and_then(|record| record.switchover.as_ref());
    let remains = mark.filter(|mark| mark.id == known.id().uid).map(|mark| &mark.remains);
    let (reason, message) = match &known.seen().spec.to_cluster_name {
        Some(cluster) if remains.is_some_and(|remains| !remains.is_empty()) => (
            "StillRunning",
            format!(
                "{} when their time to end was over, so the cluster {cluster} did not get the lock, and this cluster \
                 leads again, in a new term: find out what delays them, and create another Switchover when they have \
                 ended",
                remain(remains.into_iter().flatten())
            ),
        ),
        Some(cluster) => (
            "NotReady",
            format!(
                "the cluster {cluster} offered to lead, but did not take over within 5 s, so this cluster leads \
                 again, in a new term: see the log of the operator there"
            ),
        ),
        None => (
            "GivenUp",
            "an earlier operator gave this Switchover up, and the leadership did not move: create another one if you \
             still want it"
                .to_owned(),
        ),
    };
    Trouble { reason, message, passes: false }
}

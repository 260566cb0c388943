//! The former leader: its deletion, its end, and when another pod may lead. The E rules of docs/protocol.md.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::fitness::{Candidate, Decision};
use super::lock::Lock;
use super::troubles::Troubles;
use crate::marking::is_held;
use crate::step::Step;
use crate::timers::Timer;
use crate::view::{FormerLeader, View};
use crate::{
    Command, Holder, Instant, NotEligible, OpId, Outcome, Pod, PodChange, Reason, Record, Stored, Uid, eligible,
};

/// How often a former leader is read that is in no group any more, and that is not shown by the caches.
const READ_EVERY: Duration = Duration::from_secs(2);

/// The operator's knowledge of former leaders, beyond what the caches show.
#[derive(Clone, Debug, Default)]
pub(super) struct FormerLeaders {
    reads: BTreeMap<OpId, Uid>,
    gone: BTreeSet<Uid>,
    /// Those that this process has demoted under a record that names another leader, or none, so that no promotion can reach them.
    demoted: BTreeSet<Uid>,
    /// When they are read again.
    again: Instant,
    /// The moment from which they may be deleted, because the leader has changed too often.
    pub(super) deleted_from: Option<Instant>,
}

impl FormerLeaders {
    /// E1: puts the end of former leaders before the next leader. Returns what is to be done now, and whose end is awaited.
    pub(super) fn first<'a>(
        &mut self,
        decision: Decision<'a>,
        stored: &Stored,
        lock: &Lock,
        troubles: &Troubles,
        step: &mut Step<'a>,
    ) -> (Decision<'a>, Option<Holder>) {
        let view = step.view;
        let record = stored.written().or(lock.last());
        let is_named = |uid: &Uid| record.is_some_and(|record| named(record).any(|holder| holder.uid == *uid));
        self.gone.retain(is_named);
        self.demoted.retain(|uid| record.is_some_and(|record| record.leaving.iter().any(|holder| holder.uid == *uid)));
        let (Decision::Elect(Candidate::Pod(next), reason), true) = (&decision, view.former_leader.comes_first())
        else {
            return (decision, None);
        };
        let leads = record.and_then(|record| record.holder.as_ref()).filter(|holder| holder.uid != next.uid);
        if leads.is_some_and(|holder| holder.pod.is_some() && !self.has_ended(holder, view))
            || held(view).any(|pod| pod.uid != next.uid && !record.is_some_and(|record| leaves(pod, record)))
        {
            return (Decision::Vacate(reason.clone()), None);
        }
        let Some(record) = record else { return (decision, None) };
        let runs = |holder: &&Holder| !self.has_ended(holder, view) && !self.never_led(holder, view);
        let mut running = record.leaving.iter().filter(runs);
        let Some(awaited) = running.next().cloned() else { return (decision, None) };
        if record.holder.is_some() {
            return (Decision::Vacate(reason.clone()), Some(awaited));
        }
        let others = running.next().is_some();
        if let Some(pod) = stays(&awaited, troubles, view).filter(|_| !others) {
            return (Decision::Elect(Candidate::Pod(pod), Reason::Vacant), None);
        }
        self.read(record, step);
        (Decision::Nobody, Some(awaited))
    }

    /// The former leaders of a record that a new record has to name, too, and the leader that it replaces.
    pub(super) fn of_next(&self, replaced: Option<&Record>, next: Option<&Holder>, view: &View) -> Vec<Holder> {
        let stays = |holder: &&Holder| {
            if next.is_some_and(|next| next.uid == holder.uid) || holder.pod.is_none() {
                return false;
            }
            match view.former_leader {
                FormerLeader::Keep => false,
                // Whoever takes a pod out of the group wants it to stay, for example to look at it.
                FormerLeader::Delete { .. } => {
                    shown(holder, view).is_some_and(|pod| view.selects(pod) && !pod.deleting && !pod.finished)
                }
                // A record with the next leader is written only when the end of all others is known.
                FormerLeader::DeleteFirst { .. } => next.is_none() && !self.has_ended(holder, view),
            }
        };
        let shown: Vec<Holder> = if view.former_leader.comes_first() && next.is_none() {
            held(view).map(|pod| Candidate::Pod(pod).holder(&pod.uid).0).collect()
        } else {
            Vec::new()
        };
        let mut leaving: Vec<Holder> = Vec::new();
        for holder in replaced.into_iter().flat_map(named).filter(stays).chain(&shown) {
            if leaving.iter().all(|other| other.uid != holder.uid) {
                leaving.push(holder.clone());
            }
        }
        leaving
    }

    /// Whether nothing is left to be done with any former leader that a record names.
    pub(super) fn are_done(&self, record: &Record, view: &View) -> bool {
        record.leaving.iter().all(|holder| match view.former_leader {
            FormerLeader::Keep => true,
            FormerLeader::Delete { .. } => shown(holder, view).is_none_or(|pod| pod.deleting || pod.finished),
            FormerLeader::DeleteFirst { .. } => self.has_ended(holder, view),
        })
    }

    /// E1: whether no container of a former leader runs any more. Only a known end counts: a pod that is gone, one whose kubelet has told
    /// that its containers have ended, and one on a node that is shut down, by what somebody says.
    fn has_ended(&self, holder: &Holder, view: &View) -> bool {
        self.gone.contains(&holder.uid) || shown(holder, view).is_some_and(|pod| has_ended(pod, view))
    }

    /// Whether a pod that a record named was never promoted, and can't be any more, because a promotion writes the finalizer.
    fn never_led(&self, holder: &Holder, view: &View) -> bool {
        let led = |pod: &Pod| is_held(pod) || view.scope.markings.shows_leader(pod);
        self.demoted.contains(&holder.uid) && shown(holder, view).is_some_and(|pod| !led(pod))
    }

    /// Notes that the API server has acknowledged a write to a pod that does not lead.
    pub(super) fn note_demoted(&mut self, pod: Uid) {
        self.demoted.insert(pod);
    }

    /// The pods that this process has demoted.
    pub(super) fn demoted(&self) -> &BTreeSet<Uid> {
        &self.demoted
    }

    /// Reads the former leaders that the caches do not show: they are gone, or they are in no group any more.
    fn read(&mut self, record: &Record, step: &mut Step) {
        let view = step.view;
        let unseen = record.leaving.iter().filter(|holder| shown(holder, view).is_none());
        let unseen: Vec<&Holder> = unseen.filter(|holder| !self.gone.contains(&holder.uid)).collect();
        if unseen.is_empty() || !self.reads.is_empty() {
            return;
        }
        if view.now < self.again {
            step.wake_at(Timer::PodRetry, self.again);
            return;
        }
        self.again = view.now + READ_EVERY;
        for holder in unseen {
            if let Some(name) = &holder.pod {
                self.reads.insert(step.request(Command::ReadPod { name: name.clone() }), holder.uid.clone());
            }
        }
    }

    pub(super) fn awaits(&self, op: OpId) -> bool {
        self.reads.contains_key(&op)
    }

    /// Takes the outcome of a read.
    pub(super) fn take(&mut self, op: OpId, outcome: Outcome) {
        let Some(uid) = self.reads.remove(&op) else { return };
        if let Outcome::PodRead(Ok(pod)) = outcome
            && pod.is_none_or(|pod| pod.uid != uid)
        {
            self.gone.insert(uid);
        }
    }
}

/// E1: the former leader that leads again, because it can't be deleted, so that no other pod may lead, and is fit to lead itself.
fn stays<'a>(former: &Holder, troubles: &Troubles, view: &View<'a>) -> Option<&'a Pod> {
    let pod = shown(former, view).filter(|pod| !pod.deleting && view.selects(pod) && is_held(pod))?;
    let node = pod.node.as_ref().and_then(|node| view.nodes.get(node));
    let fit = eligible(pod, node, view.rules, view.now);
    (troubles.keeps(&pod.uid) && matches!(fit, Ok(()) | Err(NotEligible::NodeCordoned))).then_some(pod)
}

/// E2: how former leaders are deleted now, if they are. `leads`: whether the next leader is there.
pub(super) fn deletion(leads: bool, from: Option<Instant>, step: &mut Step) -> Option<PodChange> {
    let view = step.view;
    let evicts = match view.former_leader {
        FormerLeader::Delete { evicts } if leads => evicts,
        FormerLeader::DeleteFirst { evicts } => evicts,
        FormerLeader::Keep | FormerLeader::Delete { .. } => return None,
    };
    if let Some(from) = from.filter(|from| view.now < *from) {
        step.wake_at(Timer::Flapping, from);
        return None;
    }
    Some(if evicts { PodChange::Evict } else { PodChange::Delete })
}

/// E1: whether no container of a pod runs any more.
pub(super) fn has_ended(pod: &Pod, view: &View) -> bool {
    pod.ended || pod.node.as_ref().and_then(|node| view.nodes.get(node)).is_some_and(|node| node.out_of_service)
}

fn shown<'a>(holder: &Holder, view: &View<'a>) -> Option<&'a Pod> {
    view.pods.iter().copied().find(|pod| pod.uid == holder.uid)
}

/// The pods that have led, as their finalizer says, whose end is not known: also if somebody has deleted the record.
fn held<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Pod> {
    let (pods, view) = (view.pods, *view);
    pods.iter().copied().filter(move |pod| is_held(pod) && !has_ended(pod, &view))
}

fn leaves(pod: &Pod, record: &Record) -> bool {
    named(record).any(|holder| holder.uid == pod.uid)
}

/// The pods that a record names as former leaders, and then the leader.
fn named(record: &Record) -> impl Iterator<Item = &Holder> {
    record.leaving.iter().chain(&record.holder)
}

//! H14: switchovers: whether one can be carried out, and to which pod.

use super::fitness::Fitness;
use super::pod_writes::PodWrites;
use super::terms::Terms;
use crate::eligibility::eligible_by_force;
use crate::identity::Identity;
use crate::switchover::{Asked, Obstacle, Target, Verdict};
use crate::view::View;
use crate::{Holder, Pod, Record, SwitchoverMark, eligible};

/// What a switchover depends on.
#[derive(Clone, Copy)]
pub(super) struct Switching<'e> {
    pub(super) id: &'e Identity,
    pub(super) terms: Terms,
    pub(super) fitness: &'e Fitness,
    pub(super) pod_writes: &'e PodWrites,
}

impl Switching<'_> {
    /// H14: the pod that the leadership is to move to now, because a user asks for it.
    pub(super) fn to<'a>(self, record: Option<&Record>, view: &View<'a>) -> Option<&'a Pod> {
        let record = record?;
        let asked = view.switchovers.wanted(record)?;
        // C13: a cluster that was given the lock by another switchover completes that one first.
        let is_given = record.switchover.as_ref().is_some_and(|mark| mark.cluster.is_some());
        if record.holder.is_none() && is_given {
            return None;
        }
        self.target(asked, record, view).ok()
    }

    /// H14: whether the term that is to end is the present one, and this record is of that term.
    pub(super) fn is_of_present(self, asked: &Asked, record: &Record) -> Result<(), Verdict> {
        let blocked = |why| Err(Verdict::Blocked(why));
        // H9: each leader has a term of its own, and the highest is the present one. A leader of a lower term is about to get another.
        let present = self.terms.highest();
        if present > asked.from_term {
            return blocked(Obstacle::Superseded(present));
        }
        if present < asked.from_term {
            return blocked(Obstacle::NotReached(present));
        }
        if record.term != present || record.election != self.id.uid {
            return Err(Verdict::Unsettled);
        }
        Ok(())
    }

    /// The pod that would lead.
    pub(super) fn target<'a>(self, asked: &Asked, record: &Record, view: &View<'a>) -> Result<&'a Pod, Verdict> {
        if view.following.is_some() {
            return Err(Verdict::Blocked(Obstacle::ElectedByCandidates));
        }
        self.is_of_present(asked, record)?;
        let blocked = |why| Err(Verdict::Blocked(why));
        let leader = led(record).map(|holder| &holder.uid);
        let candidates = || view.pods.iter().copied().filter(|pod| view.selects(pod));
        let found = match &asked.to {
            Target::Any => {
                let best = leader.and_then(|leader| {
                    self.fitness.best_other(leader, false, Some(record), &self.pod_writes.troubles, view)
                });
                return best.map_or_else(|| blocked(Obstacle::NobodyEligible), Ok);
            }
            Target::Cluster(_) => return Err(Verdict::Unsettled),
            Target::Named(name) => candidates().find(|pod| pod.name == *name),
            Target::Pod(uid) => candidates().find(|pod| pod.uid == *uid),
        };
        let gone = self.pod_writes.upkeep.gone();
        let Some(pod) = found.filter(|pod| !gone.contains(&pod.uid)) else { return blocked(Obstacle::NoCandidate) };
        if leader == Some(&pod.uid) {
            return blocked(Obstacle::Leads);
        }
        let node = pod.node.as_deref().and_then(|name| view.nodes.get(name));
        let fitness = if asked.force {
            eligible_by_force(pod, node, view.rules, view.now)
        } else {
            eligible(pod, node, view.rules, view.now)
        };
        fitness.map(|()| pod).map_err(|why| Verdict::Blocked(Obstacle::NotEligible(why)))
    }
}

/// The leader of a term. E1: it may have been demoted already, because it ends before another pod leads.
fn led(record: &Record) -> Option<&Holder> {
    record.holder.as_ref().or(record.leaving.last())
}

/// H14: the mark of a switchover in the record.
pub(super) fn mark(asked: &Asked, replaced: Option<&Record>, to: &Pod) -> SwitchoverMark {
    let from = replaced.and_then(led).map(|holder| holder.uid.clone());
    SwitchoverMark {
        id: asked.id.clone(),
        from,
        to: Some(to.uid.clone()),
        force: asked.force,
        ..SwitchoverMark::default()
    }
}

/// H15: the record that gives up a switchover, or `None` if it has none to give up. The operator writes it before anything else.
pub(super) fn given_up(record: &Record, id: &Identity, view: &View) -> Option<Record> {
    let asked = view.switchovers.unwanted(record)?;
    if record.election != id.uid || record.term > asked.from_term {
        return None;
    }
    Some(Record { switchover: Some(SwitchoverMark::given_up(asked.id.clone())), offer: None, ..record.clone() })
}

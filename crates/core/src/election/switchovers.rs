//! Switchovers: whether one can be carried out, and what became of it.

use super::Election;
use super::phase::Phase;
use crate::eligibility::eligible_by_force;
use crate::step::Step;
use crate::switchover::{Asked, Obstacle, Target, Verdict};
use crate::view::{Desired, Situation, View};
use crate::{Pod, Record, Stored, SwitchoverMark, eligible};

impl Election {
    /// H14: the pod that the leadership is to move to now, because a user asks for it.
    pub(super) fn switch_to<'a>(&self, record: Option<&Record>, view: &View<'a>) -> Option<&'a Pod> {
        let record = record?;
        let asked = view.switchovers.wanted(record)?;
        // C13: a cluster that was given the lock by another switchover completes that one first.
        let is_given = record.switchover.as_ref().is_some_and(|mark| mark.cluster.is_some());
        if record.holder.is_none() && is_given {
            return None;
        }
        self.target(asked, record, view).ok()
    }

    /// H14: the mark of a switchover in the record.
    pub(super) fn mark(asked: &Asked, replaced: Option<&Record>, to: &Pod) -> SwitchoverMark {
        let from = replaced.and_then(|record| record.holder.as_ref()).map(|holder| holder.uid.clone());
        SwitchoverMark {
            id: asked.id.clone(),
            from,
            to: Some(to.uid.clone()),
            force: asked.force,
            ..SwitchoverMark::default()
        }
    }

    /// H15: writes into the record that a switchover is given up, before anything else. Returns whether there was such a switchover.
    pub(super) fn give_up(&mut self, stored: &Stored, step: &mut Step) -> bool {
        let Stored::Ours(version, record) = stored else { return false };
        let Some(asked) = step.view.switchovers.unwanted(record) else { return false };
        if record.election != self.id.uid || record.term > asked.from_term {
            return false;
        }
        let given_up = Record {
            operator_id: self.id.operator_id.clone(),
            term_by_version: false,
            switchover: Some(SwitchoverMark::given_up(asked.id.clone())),
            offer: None,
            ..record.clone()
        };
        self.amend(record, *version, given_up, step);
        true
    }

    /// The verdict on a switchover. `gives_up`: the switchover must not be carried out any more.
    pub(crate) fn judge(&self, asked: &Asked, gives_up: bool, view: &View) -> Verdict {
        let across = matches!(asked.to, Target::Cluster(_));
        if view.following.is_some() {
            return Verdict::Blocked(Obstacle::ElectedByCandidates);
        }
        if !across && view.cluster.is_some() {
            return Verdict::Blocked(Obstacle::NoSelector);
        }
        if across && !view.policy.shared {
            return Verdict::Blocked(Obstacle::NotShared);
        }
        if let Some(verdict) = self.judge_given(asked).filter(|_| across) {
            return verdict;
        }
        let (Some(stored), Phase::Idle) = (self.lock.stored(), &self.phase) else { return Verdict::Unsettled };
        let record = stored.record().filter(|record| record.election == self.id.uid);
        let settled = matches!(
            self.situation,
            Situation::Led | Situation::LedDespiteProbe(_) | Situation::Recovering(..) | Situation::Vacant
        );
        let mark = record.and_then(|record| record.switchover.as_ref()).filter(|mark| mark.id == asked.id);
        if let Some(mark) = mark {
            return match &self.leader {
                _ if mark.to.is_none() => Verdict::GivenUp,
                _ if !settled => Verdict::Unsettled,
                Some((term, holder, _)) if Some(&holder.uid) == mark.to.as_ref() => Verdict::Done(*term),
                _ => Verdict::Lost,
            };
        }
        if gives_up {
            // Without the lock, the next term is another one.
            let surely = stored.record().is_none_or(|record| record.term > asked.from_term);
            return if surely { Verdict::GivenUp } else { Verdict::Unsettled };
        }
        match view.desired {
            Desired::Run => {}
            Desired::Freeze => return Verdict::Blocked(Obstacle::Frozen),
            Desired::Refuse => return Verdict::Blocked(Obstacle::Refused),
            Desired::Leave | Desired::Withdraw => return Verdict::Unsettled,
        }
        if matches!(self.situation, Situation::LedElsewhere(_)) {
            return Verdict::Blocked(Obstacle::LedElsewhere);
        }
        match record.filter(|_| settled) {
            None => Verdict::Unsettled,
            Some(record) if across => {
                self.is_of_present(asked, record).map_or_else(|why| why, |()| self.judge_offered(stored, record, view))
            }
            Some(record) => {
                self.target(asked, record, view).map_or_else(|why| why, |pod| Verdict::Ready(pod.uid.clone()))
            }
        }
    }

    /// H14: whether the term that is to end is the present one, and this record is of that term.
    fn is_of_present(&self, asked: &Asked, record: &Record) -> Result<(), Verdict> {
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
    fn target<'a>(&self, asked: &Asked, record: &Record, view: &View<'a>) -> Result<&'a Pod, Verdict> {
        if view.following.is_some() {
            return Err(Verdict::Blocked(Obstacle::ElectedByCandidates));
        }
        self.is_of_present(asked, record)?;
        let blocked = |why| Err(Verdict::Blocked(why));
        let leader = record.holder.as_ref().map(|holder| &holder.uid);
        let candidates = || view.pods.iter().copied().filter(|pod| view.selects(pod));
        let found = match &asked.to {
            Target::Any => {
                let best = leader
                    .and_then(|leader| self.fitness.best_other(leader, false, Some(record), &self.troubles, view));
                return best.map_or_else(|| blocked(Obstacle::NobodyEligible), Ok);
            }
            Target::Cluster(_) => return Err(Verdict::Unsettled),
            Target::Named(name) => candidates().find(|pod| pod.name == *name),
            Target::Pod(uid) => candidates().find(|pod| pod.uid == *uid),
        };
        let gone = self.upkeep.gone();
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

//! The outcome of a switchover, and the outcome that one would have.

use super::across::{Across, Bidder};
use super::phase::Phase;
use super::records::Records;
use super::report::Report;
use super::switchovers::Switching;
use crate::switchover::{Asked, Obstacle, Target, Verdict};
use crate::view::{Desired, Situation, View};
use crate::{Record, Stored};

/// The parts that show what became of a switchover.
pub(super) struct Judge<'e> {
    pub(super) switching: Switching<'e>,
    pub(super) records: &'e Records,
    pub(super) report: &'e Report,
    pub(super) across: &'e Across,
}

impl Judge<'_> {
    /// The verdict on a switchover. `gives_up`: the switchover must not be carried out any more.
    pub(super) fn judge(&self, asked: &Asked, gives_up: bool, view: &View) -> Verdict {
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
        let (Some(stored), Phase::Idle) = (self.records.lock.stored(), &self.records.phase) else {
            return Verdict::Unsettled;
        };
        let record = stored.record().filter(|record| record.election == self.switching.id.uid);
        let settled = matches!(
            self.report.situation,
            Situation::Led | Situation::LedDespiteProbe(_) | Situation::Recovering(..) | Situation::Vacant
        );
        let mark = record.and_then(|record| record.switchover.as_ref()).filter(|mark| mark.id == asked.id);
        if let Some(mark) = mark {
            return match &self.report.leader {
                _ if mark.to.is_none() => Verdict::GivenUp,
                _ if !settled => Verdict::Unsettled,
                Some((term, holder, _)) if Some(&holder.uid) == mark.to.as_ref() => Verdict::Done(*term),
                _ => Verdict::Lost,
            };
        }
        if gives_up {
            // A cluster without the lock can only lead again in a higher term.
            let surely = stored.record().is_none_or(|record| record.term > asked.from_term);
            return if surely { Verdict::GivenUp } else { Verdict::Unsettled };
        }
        match view.desired {
            Desired::Run => {}
            Desired::Freeze => return Verdict::Blocked(Obstacle::Frozen),
            Desired::Refuse => return Verdict::Blocked(Obstacle::Refused),
            Desired::Leave | Desired::Withdraw => return Verdict::Unsettled,
        }
        if matches!(self.report.situation, Situation::LedElsewhere(_)) {
            return Verdict::Blocked(Obstacle::LedElsewhere);
        }
        match record.filter(|_| settled) {
            None => Verdict::Unsettled,
            Some(record) if across => self
                .switching
                .is_of_present(asked, record)
                .map_or_else(|why| why, |()| self.judge_offered(stored, record, view)),
            Some(record) => {
                self.switching.target(asked, record, view).map_or_else(|why| why, |pod| Verdict::Ready(pod.uid.clone()))
            }
        }
    }

    /// The verdict on a switchover by which another cluster has got the lock.
    fn judge_given(&self, asked: &Asked) -> Option<Verdict> {
        let rival = self.records.lock.stored()?.rival()?;
        rival.switchover.as_ref().filter(|mark| mark.id == asked.id && mark.cluster.is_some())?;
        Some(match &rival.holder {
            Some(holder) => Verdict::DoneElsewhere(rival.term, holder.clone()),
            None => Verdict::UnderWay,
        })
    }

    /// The verdict on a switchover to another cluster while this one has the lock, in the term that is to end.
    fn judge_offered(&self, stored: &Stored, record: &Record, view: &View) -> Verdict {
        let Switching { id, terms, .. } = self.switching;
        let is_over = |version| self.across.giving.is_over(version, view.now);
        match (self.across.bidder(stored, terms, id, view), &record.holder) {
            (None, Some(_)) => Verdict::ReadyElsewhere,
            (Some(_), None) => Verdict::UnderWay,
            (Some(Bidder::Unable), Some(_)) => Verdict::Blocked(Obstacle::NotReady { answers: true }),
            (Some(Bidder::Silent), Some(_)) if stored.version().is_some_and(is_over) => {
                Verdict::Blocked(Obstacle::NotReady { answers: false })
            }
            (None, None) | (Some(_), Some(_)) => Verdict::Unsettled,
        }
    }
}

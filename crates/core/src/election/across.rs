//! C11 to C13: this cluster hands the lock to another one, because a user asks for it, or answers a cluster that does so.
//!
//! The record offers the lock. When the other cluster has answered that record, this cluster demotes its leader, as before a release. When
//! the other cluster has answered the record without a leader, too, one transaction hands over the lock. Whenever an answer is missing, or
//! the store refuses, this cluster elects again, in a new term.

use super::Election;
use super::fitness::Decision;
use super::phase::Phase;
use super::workloads::Target::Follow;
use crate::step::Step;
use crate::switchover::{Asked, Obstacle, Target, Verdict};
use crate::timers::Timer;
use crate::view::{Desired, View};
use crate::{
    Bid, Command, Failure, Instant, Offer, PlacedBid, Reason, Record, RecordOutcome, Rival, Stored, SwitchoverMark,
    Timestamp, Version,
};

/// The other cluster's answer to the present record.
enum Bidder<'a> {
    /// The other cluster can lead.
    Ready(&'a PlacedBid),
    /// The other cluster can't lead now.
    Unable,
    /// The other cluster has not answered, or its answer has ended.
    Silent,
}

impl Election {
    /// H14: the switchover to another cluster that is to be carried out now.
    fn handed_over<'a>(&self, record: &Record, view: &View<'a>) -> Option<(&'a Asked, &'a str)> {
        let asked = view.switchovers.wanted(record)?;
        let Target::Cluster(cluster) = &asked.to else { return None };
        let present = view.policy.shared
            && view.following.is_none()
            && view.desired == Desired::Run
            && record.election == self.id.uid
            && record.term == asked.from_term
            && self.terms.highest() == asked.from_term;
        present.then_some((asked, cluster))
    }

    /// C12: the other cluster's answer to this record, or `None` if the record offers it nothing.
    fn bidder<'a>(&self, record: &Record, version: Version, view: &View<'a>) -> Option<Bidder<'a>> {
        let (asked, cluster) = self.handed_over(record, view)?;
        record.offer.as_ref().filter(|offer| offer.switchover == asked.id && offer.cluster == cluster)?;
        let answers = |placed: &&PlacedBid| {
            placed.cluster == cluster
                && placed.session.is_some()
                && (&placed.bid.switchover, placed.bid.saw) == (&asked.id, version)
                && self.giving.refused != Some(placed.version)
        };
        Some(match view.bids.iter().find(answers) {
            Some(placed) if placed.bid.eligible => Bidder::Ready(placed),
            Some(_) => Bidder::Unable,
            None => Bidder::Silent,
        })
    }

    /// The decision that follows from an offer of the lock, or `None` if the offer changes nothing.
    pub(super) fn give_way<'a>(&mut self, stored: &Stored, step: &mut Step<'a>) -> Option<Decision<'a>> {
        let now = step.view.now;
        let Stored::Ours(version, record) = stored else { return None };
        let led = record.holder.is_some();
        // W12.
        if !led && !self.workloads.outlasting(step).is_empty() {
            return None;
        }
        match self.bidder(record, *version, step.view)? {
            Bidder::Ready(_) => {
                self.giving.answered();
                if led {
                    return Some(Decision::Vacate(Reason::SwitchedOver));
                }
                (!self.giving.is_over(*version, now)).then_some(Decision::Nobody)
            }
            Bidder::Unable => None,
            Bidder::Silent => {
                let until = self.giving.wait(*version, false, now);
                if now < until {
                    step.wake_at(Timer::Bid, until);
                }
                (!led && now < until).then_some(Decision::Nobody)
            }
        }
    }

    /// While this cluster has a leader: writes into the record to which cluster the lock is offered, and removes answers that no operator
    /// waits for.
    pub(super) fn offer(&mut self, record: &Record, version: Version, step: &mut Step) {
        let view = step.view;
        if !matches!(self.phase, Phase::Idle) || !view.policy.shared {
            return;
        }
        let offer = self
            .handed_over(record, view)
            .map(|(asked, cluster)| Offer { switchover: asked.id.clone(), cluster: cluster.to_owned() });
        if record.offer != offer {
            let operator_id = self.id.operator_id.clone();
            let offering = Record { offer, operator_id, term_by_version: false, ..record.clone() };
            return self.amend(record, version, offering, step);
        }
        if let (None, Some(placed)) = (&record.offer, view.bids.first())
            && self.giving.cleared.as_ref().is_none_or(|(op, version)| op.is_none() && *version != placed.version)
        {
            let (key, cluster, version) = (view.key.clone(), placed.cluster.clone(), placed.version);
            let op = step.request(Command::RemoveBid { key, cluster, version });
            self.giving.cleared = Some((Some(op), version));
        }
    }

    /// C11: hands over the lock if it is offered. The caller has checked that no leader is recorded here, no pod shows otherwise, and no
    /// workload runs any more. Returns whether the lock must not be released.
    pub(super) fn hand_over_lock(&mut self, record: &Record, version: Version, step: &mut Step) -> bool {
        let view = step.view;
        let placed = match self.bidder(record, version, view) {
            Some(Bidder::Ready(placed)) if !self.giving.is_over(version, view.now) => placed,
            Some(Bidder::Silent) => return !self.giving.is_over(version, view.now),
            _ => return false,
        };
        let until = self.giving.wait(version, true, view.now);
        step.wake_at(Timer::Bid, until);
        let Some(offer) = &record.offer else { return false };
        let mark = SwitchoverMark {
            id: offer.switchover.clone(),
            cluster: Some(placed.cluster.clone()),
            ..SwitchoverMark::default()
        };
        // C13: the record that the other cluster asked for, with the parts that it has to know of this one.
        let given = Record {
            term: record.term,
            term_by_version: false,
            holder: None,
            since: record.since,
            drain_obligation: record.drain_obligation.clone(),
            switchover: Some(mark),
            offer: None,
            ..placed.bid.record.clone()
        };
        let (key, to) = (view.key.clone(), Box::new(placed.clone()));
        let op = step.request(Command::GiveRecord { key, version, to, record: Box::new(given.clone()) });
        self.phase = Phase::Giving(op, Box::new((placed.clone(), given)));
        true
    }

    /// Takes the outcome of the transaction. H11: if the outcome is unknown, the operator reads the record. As long as the record is this
    /// cluster's, its next write makes a late transaction fail.
    pub(super) fn take_given(&mut self, (to, record): (PlacedBid, Record), given: RecordOutcome, now: Instant) {
        match given {
            RecordOutcome::Written(version) => {
                self.backoff.reset();
                let rival = Rival {
                    cluster: Some(to.cluster),
                    term: record.term,
                    session: to.session.unwrap_or_default(),
                    drain_obligation: record.drain_obligation,
                    switchover: record.switchover,
                    election: (to.namespace, to.name),
                    ..Rival::default()
                };
                self.lock.take_written(version, Stored::HeldByOther(version, rival));
            }
            RecordOutcome::Failed(Failure::Unknown(text)) => {
                self.lock.forget();
                self.fail(Failure::Unknown(text), now);
            }
            RecordOutcome::Conflict | RecordOutcome::Delayed => {
                self.giving.refused = Some(to.version);
                self.lock.forget();
            }
            RecordOutcome::Failed(failure) => {
                self.giving.refused = Some(to.version);
                self.fail(failure, now);
            }
        }
    }

    /// The verdict on a switchover by which another cluster has got the lock.
    pub(super) fn judge_given(&self, asked: &Asked) -> Option<Verdict> {
        let rival = self.lock.stored()?.rival()?;
        rival.switchover.as_ref().filter(|mark| mark.id == asked.id && mark.cluster.is_some())?;
        Some(match &rival.holder {
            Some(holder) => Verdict::DoneElsewhere(rival.term, holder.clone()),
            None => Verdict::UnderWay,
        })
    }

    /// The verdict on a switchover to another cluster while this one has the lock, in the term that is to end.
    pub(super) fn judge_offered(&self, stored: &Stored, record: &Record, view: &View) -> Verdict {
        let bidder = stored.version().and_then(|version| Some((version, self.bidder(record, version, view)?)));
        match (bidder, &record.holder) {
            (None, Some(_)) => Verdict::ReadyElsewhere,
            (Some(_), None) => Verdict::UnderWay,
            (Some((_, Bidder::Unable)), Some(_)) => Verdict::Blocked(Obstacle::NotReady { answers: true }),
            (Some((version, Bidder::Silent)), Some(_)) if self.giving.is_over(version, view.now) => {
                Verdict::Blocked(Obstacle::NotReady { answers: false })
            }
            (None, None) | (Some(_), Some(_)) => Verdict::Unsettled,
        }
    }

    /// Answers an offer to this cluster, if there is one.
    pub(super) fn bid(&mut self, step: &mut Step) {
        let view = step.view;
        let offer = match self.lock.stored() {
            Some(Stored::HeldByOther(version, rival)) => rival.offer.clone().map(|offer| (*version, offer)),
            _ => None,
        };
        let Some((saw, offer)) = offer else { return self.bidding.forget() };
        let eligible = self.could_lead(step);
        let record = self.make_record(view, None, None, Timestamp(0));
        let placed = view.bids.iter().find(|placed| placed.cluster == offer.cluster);
        self.bidding.place(Bid { switchover: offer.switchover, saw, eligible, record }, placed, step);
    }

    /// Whether this cluster could elect a leader if it had the lock, and nothing shows that it led before (C3, W3).
    fn could_lead(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        let may = view.desired == Desired::Run
            && view.policy.validity.lasts(view.now)
            && view.now >= view.policy.not_before
            && self.known_generation <= view.generation
            && !self.somebody_may_lead(view)
            && !self.workloads.lets_run(Follow, step);
        may && matches!(self.fitness.decide(None, &self.troubles, step), Decision::Elect(..))
    }
}

//! C11 to C13: this cluster hands the lock to another one, because a user asks for it, or answers a cluster that does so.
//!
//! The record offers the lock. When the other cluster has answered that record, this cluster demotes its leader, as before a release. When
//! the other cluster has answered the record without a leader, too, one transaction hands over the lock. Whenever an answer is missing, or
//! the store refuses, this cluster elects again, in a new term.

use std::time::Duration;

use super::bidding::Bidding;
use super::fitness::{Decision, Fitness};
use super::giving::{ANSWERS_WITHIN, Giving};
use super::phase::Phase;
use super::pod_writes::PodWrites;
use super::records::Records;
use super::report::Report;
use super::routes::Routes;
use super::terms::Terms;
use super::workloads::Target::Follow;
use super::workloads::WorkloadReconciler;
use crate::identity::Identity;
use crate::step::Step;
use crate::switchover::{Asked, Target};
use crate::timers::Timer;
use crate::view::{Desired, View};
use crate::{
    Bid, Command, Failure, Instant, Offer, PlacedBid, Reason, Record, RecordOutcome, Rival, Stored, SwitchoverMark,
    Timestamp,
};

/// What goes on between this cluster and the one that the lock is offered to, or that offers it.
#[derive(Clone, Debug)]
pub(super) struct Across {
    pub(super) giving: Giving,
    pub(super) bidding: Bidding,
}

/// The parts that this cluster's answer to an offer concerns.
pub(super) struct Bids<'e> {
    pub(super) bidding: &'e mut Bidding,
    pub(super) fitness: &'e mut Fitness,
    pub(super) records: &'e Records,
    pub(super) pod_writes: &'e PodWrites,
    pub(super) routes: &'e Routes,
    pub(super) workloads: &'e WorkloadReconciler,
    pub(super) known_generation: i64,
}

/// The other cluster's answer to the present record.
pub(super) enum Bidder<'a> {
    /// The other cluster can lead.
    Ready(&'a PlacedBid),
    /// The other cluster can't lead now.
    Unable,
    /// The other cluster has not answered, or its answer has ended.
    Silent,
}

impl Across {
    pub(super) fn new(owner: &str) -> Self {
        Self { giving: Giving::default(), bidding: Bidding::new(owner) }
    }

    /// C12: the other cluster's answer to the record, or `None` if the record offers it nothing.
    pub(super) fn bidder<'a>(
        &self,
        stored: &Stored,
        terms: Terms,
        id: &Identity,
        view: &View<'a>,
    ) -> Option<Bidder<'a>> {
        let Stored::Ours(version, record) = stored else { return None };
        let (asked, cluster) = handed_over(record, terms, id, view)?;
        record.offer.as_ref().filter(|offer| offer.switchover == asked.id && offer.cluster == cluster)?;
        let answers = |placed: &&PlacedBid| {
            placed.cluster == cluster
                && placed.session.is_some()
                && (&placed.bid.switchover, placed.bid.saw) == (&asked.id, *version)
                && self.giving.refused != Some(placed.version)
        };
        Some(match view.bids.iter().find(answers) {
            Some(placed) if placed.bid.eligible => Bidder::Ready(placed),
            Some(_) => Bidder::Unable,
            None => Bidder::Silent,
        })
    }

    /// The decision that follows from an offer of the lock, or `None` if the offer changes nothing.
    pub(super) fn give_way<'a>(
        &mut self,
        stored: &Stored,
        terms: Terms,
        workloads: &WorkloadReconciler,
        step: &mut Step<'a>,
    ) -> Option<Decision<'a>> {
        let now = step.view.now;
        let Stored::Ours(version, record) = stored else { return None };
        let led = record.holder.is_some();
        // W12.
        if !led && !workloads.outlasting(step).is_empty() {
            return None;
        }
        match self.bidder(stored, terms, step.id, step.view)? {
            Bidder::Ready(_) => {
                self.giving.answered();
                if led {
                    return Some(Decision::Vacate(Reason::SwitchedOver));
                }
                (!self.giving.is_over(*version, now)).then_some(Decision::Nobody)
            }
            Bidder::Unable => None,
            Bidder::Silent => {
                // While a pod leads here, the wait costs nothing. Afterwards, the other cluster looks for changes all the time.
                let unseen = if led { step.view.policy.seen_after } else { Duration::ZERO };
                let until = self.giving.wait(*version, false, now + ANSWERS_WITHIN + unseen);
                if now < until {
                    step.wake_at(Timer::Bid, until);
                }
                (!led && now < until).then_some(Decision::Nobody)
            }
        }
    }

    /// While this cluster has a leader: writes into the record to which cluster the lock is offered, and removes answers that no operator
    /// waits for.
    pub(super) fn offer(&mut self, stored: &Stored, records: &mut Records, routes: &Routes, step: &mut Step) {
        let view = step.view;
        let Some(record) = stored.record() else { return };
        if !matches!(records.phase, Phase::Idle) || !view.policy.shared {
            return;
        }
        let offer = handed_over(record, records.terms, step.id, view)
            .map(|(asked, cluster)| Offer { switchover: asked.id.clone(), cluster: cluster.to_owned() });
        if record.offer != offer {
            return records.amend(stored, Record { offer, ..record.clone() }, routes, step);
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
    pub(super) fn hand_over_lock(&mut self, stored: &Stored, records: &mut Records, step: &mut Step) -> bool {
        let view = step.view;
        let &Stored::Ours(version, ref record) = stored else { return false };
        let placed = match self.bidder(stored, records.terms, step.id, view) {
            Some(Bidder::Ready(placed)) if !self.giving.is_over(version, view.now) => placed,
            Some(Bidder::Silent) => return !self.giving.is_over(version, view.now),
            _ => return false,
        };
        let until = self.giving.wait(version, true, view.now + ANSWERS_WITHIN);
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
        records.phase = Phase::Giving(op, Box::new((placed.clone(), given)));
        true
    }

    /// Takes the outcome of the transaction. H11: if the outcome is unknown, the operator reads the record. As long as the record is this
    /// cluster's, its next write makes a late transaction fail.
    pub(super) fn take_given(
        &mut self,
        (to, record): (PlacedBid, Record),
        given: RecordOutcome,
        records: &mut Records,
        report: &mut Report,
        now: Instant,
    ) {
        match given {
            RecordOutcome::Written(version) => {
                report.backoff.reset();
                let rival = Rival {
                    cluster: Some(to.cluster),
                    term: record.term,
                    session: to.session.unwrap_or_default(),
                    drain_obligation: record.drain_obligation,
                    switchover: record.switchover,
                    election: (to.namespace, to.name),
                    given: true,
                    ..Rival::default()
                };
                records.lock.take_written(version, Stored::HeldByOther(version, rival));
            }
            RecordOutcome::Failed(Failure::Unknown(text)) => {
                records.lock.forget();
                report.fail(Failure::Unknown(text), now);
            }
            RecordOutcome::Conflict | RecordOutcome::Delayed => {
                self.giving.refused = Some(to.version);
                records.lock.forget();
            }
            RecordOutcome::Failed(failure) => {
                self.giving.refused = Some(to.version);
                report.fail(failure, now);
            }
        }
    }
}

impl Bids<'_> {
    /// Answers an offer to this cluster, if there is one.
    pub(super) fn bid(&mut self, step: &mut Step) {
        let view = step.view;
        let offer = match self.records.lock.stored() {
            Some(Stored::HeldByOther(version, rival)) => rival.offer.clone().map(|offer| (*version, offer)),
            _ => None,
        };
        let Some((saw, offer)) = offer else { return self.bidding.forget() };
        let eligible = self.could_lead(step);
        let record = self.records.make_record(None, None, Timestamp(0), step);
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
            && !self.pod_writes.somebody_may_lead(self.routes, step.id, view)
            && !self.workloads.lets_run(Follow, step);
        may && matches!(self.fitness.decide(None, &self.pod_writes.troubles, step), Decision::Elect(..))
    }
}

/// H14: the switchover to another cluster that is to be carried out now.
fn handed_over<'a>(record: &Record, terms: Terms, id: &Identity, view: &View<'a>) -> Option<(&'a Asked, &'a str)> {
    let asked = view.switchovers.wanted(record)?;
    let Target::Cluster(cluster) = &asked.to else { return None };
    let present = view.policy.shared
        && view.following.is_none()
        && view.desired == Desired::Run
        && record.election == id.uid
        && record.term == asked.from_term
        && terms.highest() == asked.from_term;
    present.then_some((asked, cluster))
}

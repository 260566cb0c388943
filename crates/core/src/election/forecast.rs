//! The decision that an election would make by this view, for people who ask. A forecast does nothing and remembers nothing.

use std::time::Duration;

use super::fitness::{Candidate, Comparison, Decision, Fitness, candidates};
use super::troubles::Troubles;
use crate::eligibility::eligible_by_force;
use crate::identity::Identity;
use crate::step::{Ops, Step};
use crate::view::View;
use crate::{Holder, Instant, Known, NotEligible, OpId, Pod, Rank, Reason, Record, Uid};

/// The decision that would be made, and the chance of each candidate.
#[derive(Clone, Debug)]
pub struct Forecast<'a> {
    /// The verdict on the leadership.
    pub verdict: Verdict,
    /// First the candidates that could be elected, in the order in which they would be. Then the others, by name.
    pub contenders: Vec<Contender<'a>>,
}

/// A candidate.
#[derive(Clone, Debug)]
pub struct Contender<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The candidate's rank among those that could be elected now, or why it could not be.
    pub chance: Result<Rank, NotEligible>,
    /// Whether a switchover by force could make it the leader.
    pub by_force: bool,
    /// The moment until which the candidate comes last among those that could be elected, because a switchover has replaced it.
    pub held_back: Option<Instant>,
    /// The moment until which the candidate, if it leads, is not preempted, because a switchover has made it the leader.
    pub protected: Option<Instant>,
}

/// The verdict on a leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The leader stays.
    Stays(Holder),
    /// The leader stays although it fails its probe, because no other candidate is eligible.
    StaysDespiteProbe(Holder),
    /// This candidate is elected.
    Elected(Holder, Reason),
    /// The leader is demoted, and no other one is elected.
    Vacated(Reason),
    /// The leader is not fit, and has this long to recover.
    Recovers(NotEligible, Duration),
    /// There is no leader, and no candidate is eligible.
    Nobody,
}

/// The decision that an operator would make about the leadership from these facts alone, without knowing which pods failed their probe
/// earlier or could not be labelled. The call does nothing and remembers nothing. `record` is the lock's record, as it was read. Returns
/// `None` if there is no valid spec.
pub fn forecast<'a>(known: &Known<'a>, name: &str, uid: &Uid, record: Option<&Record>) -> Option<Forecast<'a>> {
    let spec = known.spec?;
    Some(forecast_by(&View::new(known, spec.scope, spec.rules, &[]), name, uid, record))
}

/// The same by this view.
pub(super) fn forecast_by<'a>(view: &View<'a>, name: &str, uid: &Uid, record: Option<&Record>) -> Forecast<'a> {
    let id = Identity { name: name.into(), uid: uid.clone(), operator_id: String::new() };
    let (mut fitness, troubles) = (Fitness::default(), Troubles::default());
    let mut ops = Ops::after(OpId(0));
    let mut step = Step::new(&id, view, &mut ops);
    let holder = |candidate: Candidate| candidate.holder(uid).0;
    let verdict = match fitness.decide(record, &troubles, &mut step) {
        Decision::Keep(candidate) => Verdict::Stays(holder(candidate)),
        Decision::KeepDespiteProbe(candidate, _) => Verdict::StaysDespiteProbe(holder(candidate)),
        Decision::Elect(candidate, reason) => Verdict::Elected(holder(candidate), reason),
        Decision::Vacate(reason) => Verdict::Vacated(reason),
        Decision::Wait(why, until) => Verdict::Recovers(why, until.since(view.now)),
        Decision::Nobody => Verdict::Nobody,
    };
    let comparison = Comparison::of(view);
    let node = |pod: &Pod| pod.node.as_deref().and_then(|name| view.nodes.get(name));
    let contender = |pod: &'a Pod| Contender {
        pod,
        chance: fitness.assess(pod, record, &troubles, false, view, &comparison),
        by_force: eligible_by_force(pod, node(pod), view.rules, view.now).is_ok(),
        held_back: view.switchovers.held_back_until(&pod.uid, view.now),
        protected: view.switchovers.protected_until(&pod.uid, view.now),
    };
    let mut contenders: Vec<Contender<'a>> = candidates(view).map(contender).collect();
    contenders.sort_by(|one, other| match (&one.chance, &other.chance) {
        (Ok(one), Ok(other)) => one.cmp(other),
        (Err(_), Err(_)) => one.pod.name.cmp(&other.pod.name),
        (one, other) => one.is_err().cmp(&other.is_err()),
    });
    Forecast { verdict, contenders }
}

//! Decides who should lead, from what the operator knows of the candidates.

use std::collections::BTreeSet;
use std::time::Duration;

use super::holder::{Held, Holders, may_lead};
use super::terms::Terms;
use super::troubles::Troubles;
use crate::eligibility::{Crowds, Rank, Standing, priority, rank};
use crate::handover::Seen;
use crate::identity::Identity;
use crate::step::Step;
use crate::templates::Templates;
use crate::timers::Timer;
use crate::view::{Situation, View};
use crate::{
    Flapping, Following, Holder, Instant, Node, NotEligible, Pod, ProbeFailure, Reason, Record, Uid, eligible, standing,
};

/// A candidate that may lead.
#[derive(Clone, Copy, Debug)]
pub(super) enum Candidate<'a> {
    Pod(&'a Pod),
    /// The cluster itself.
    Cluster,
}

impl<'a> Candidate<'a> {
    pub(super) fn pod(self) -> Option<&'a Pod> {
        match self {
            Self::Pod(pod) => Some(pod),
            Self::Cluster => None,
        }
    }

    /// The candidate as the record of an election names it, and the facts that its promotion relies on.
    pub(super) fn holder(self, election: &Uid) -> (Holder, Seen) {
        match self {
            Self::Pod(pod) => {
                let (name, uid) = (Some(pod.name.clone()), pod.uid.clone());
                (Holder { pod: name, uid, node: pod.node.clone(), ip: pod.ip.clone() }, Seen::of(pod))
            }
            Self::Cluster => (Holder { pod: None, uid: election.clone(), node: None, ip: None }, Seen::default()),
        }
    }
}

/// The decision about the leadership.
pub(super) enum Decision<'a> {
    /// The leader stays.
    Keep(Candidate<'a>),
    /// The leader stays although it fails its probe, because no other candidate is eligible.
    KeepDespiteProbe(Candidate<'a>, ProbeFailure),
    Elect(Candidate<'a>, Reason),
    Vacate(Reason),
    /// The leader is not fit, and has until this moment to recover.
    Wait(NotEligible, Instant),
    /// There is no leader, and no candidate is eligible.
    Nobody,
}

impl<'a> Decision<'a> {
    /// The pod that leads by this decision.
    pub(super) fn pod(&self) -> Option<&'a Pod> {
        match self {
            Self::Keep(candidate) | Self::KeepDespiteProbe(candidate, _) | Self::Elect(candidate, _) => candidate.pod(),
            Self::Vacate(_) | Self::Wait(..) | Self::Nobody => None,
        }
    }

    /// The situation of the present leader, if the decision tells anything about it.
    pub(super) fn situation(&self) -> Option<Situation> {
        match self {
            Self::Keep(_) | Self::Elect(_, Reason::Preempted | Reason::NodeCordoned | Reason::SwitchedOver) => {
                Some(Situation::Led)
            }
            Self::KeepDespiteProbe(_, failure) | Self::Elect(_, Reason::ProbeFailed(failure)) => {
                Some(Situation::LedDespiteProbe(*failure))
            }
            Self::Elect(..) | Self::Vacate(_) | Self::Wait(..) | Self::Nobody => None,
        }
    }

    /// Whether the record and the leader's labels are as they should be.
    pub(super) fn is_settled(&self, record: Option<&Record>, terms: Terms, id: &Identity, view: &View) -> bool {
        let Some(record) = record else { return matches!(self, Decision::Nobody) };
        let current = record.scope == *view.scope && record.election == id.uid;
        match self {
            Self::Keep(Candidate::Pod(pod)) | Self::KeepDespiteProbe(Candidate::Pod(pod), _) => {
                current
                    && !terms.is_outdated(record.term)
                    && view.scope.markings.is_leader(pod, record.term)
                    && id.wrote(pod)
                    && !has_leftover(pod, record)
            }
            Self::Keep(Candidate::Cluster) | Self::KeepDespiteProbe(Candidate::Cluster, _) => {
                current && !terms.is_outdated(record.term)
            }
            Self::Nobody => current,
            Self::Wait(..) => true,
            Self::Elect(..) | Self::Vacate(_) => false,
        }
    }
}

/// Why a leader that fails its probe stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stays {
    /// No other pod is eligible.
    #[default]
    Alone,
    /// Each other pod that could lead has also failed the probe, since it last succeeded.
    AllFail,
    /// The leader has changed so often that the next change waits.
    Until(Instant),
}

/// The state that is kept of the candidates from one decision to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Fitness {
    /// The leader that is not fit, and when it ceased to be.
    unfit: Option<(Uid, Instant)>,
    /// Pods that failed their probe as leaders, and have been ready ever since.
    suspects: BTreeSet<Uid>,
    /// Pods that failed their probe as leaders since the probe of any leader last succeeded.
    unanswered: BTreeSet<Uid>,
    /// The generation of the election to which these sets belong. Another generation may have another probe.
    generation: i64,
    /// Why the leader that fails its probe stays.
    stays: Stays,
    flapping: Flapping,
    /// When the operator saw the cause of the change that is under way.
    cause: Option<Instant>,
    /// The holders of the candidates' lock, if the candidates elect the leader themselves.
    holders: Holders,
}

impl Fitness {
    /// Decides who should lead. `record` has the present leader and its term; with `None`, no leader is known.
    pub(super) fn decide<'a>(
        &mut self,
        record: Option<&Record>,
        troubles: &Troubles,
        step: &mut Step<'a>,
    ) -> Decision<'a> {
        let view = step.view;
        let holder = record.and_then(|record| record.holder.as_ref());
        if let Some(fitness) = view.cluster {
            return self.decide_for_cluster(fitness.map_err(NotEligible::from), holder, step);
        }
        if let Some(following) = view.following {
            return self.decide_by_lock(following, record, step);
        }
        self.suspects.retain(|uid| view.pods.iter().any(|pod| pod.uid == *uid && pod.ready));
        self.note_probes(view);
        let leader = holder.and_then(|holder| view.pods.iter().copied().find(|pod| pod.uid == holder.uid));
        let fitness = leader.map(|pod| match fitness_of(pod, view) {
            Err(NotEligible::NotReady | NotEligible::ConditionNotTrue(_))
                if view.switchovers.excuses(&pod.uid, record, view.now) =>
            {
                Ok(())
            }
            fitness => fitness,
        });
        let best = self.best(record, troubles, matches!(fitness, Some(Ok(()))), step);
        if let Some(until) = view.switchovers.next_end(view.now) {
            step.wake_at(Timer::HoldOver, until);
        }
        if holder.is_none() {
            if record.is_none()
                && let Some(incumbent) = incumbent(step.id, view)
            {
                return Decision::Elect(Candidate::Pod(incumbent), restores(view));
            }
            return best.map_or(Decision::Nobody, |pod| Decision::Elect(Candidate::Pod(pod), Reason::Vacant));
        }
        let (Some(pod), Some(fitness)) = (leader, fitness) else {
            let elect = |pod| Decision::Elect(Candidate::Pod(pod), Reason::LeaderGone);
            return best.map_or(Decision::Vacate(Reason::LeaderGone), elect);
        };
        let others = best.filter(|other| other.uid != pod.uid);
        match fitness {
            Ok(()) => self.decide_beside_fit_leader(pod, others, record, troubles, step),
            Err(why) => {
                if let Some(until) = self.may_recover(&pod.uid, &why, view) {
                    return Decision::Wait(why, until);
                }
                let reason = Reason::LeaderUnfit(why);
                match others {
                    Some(other) => Decision::Elect(Candidate::Pod(other), reason),
                    None => Decision::Vacate(reason),
                }
            }
        }
    }

    /// F1: the candidates elect the leader themselves: it is the pod that holds their lock, as long as that pod may lead. F2: while the
    /// holder of the lock is unknown, the leader stays.
    fn decide_by_lock<'a>(
        &mut self,
        following: Following<'_>,
        record: Option<&Record>,
        step: &mut Step<'a>,
    ) -> Decision<'a> {
        let view = step.view;
        let leader = record.and_then(|record| record.holder.as_ref());
        let held = self.holders.find(following, leader, step);
        let present = leader.and_then(|leader| view.pods.iter().copied().find(|pod| pod.uid == leader.uid));
        let next = match held {
            Held::By(pod) if present.is_none_or(|present| present.uid != pod.uid) => {
                may_lead(pod, node_of(pod, view), step).ok().map(|()| pod)
            }
            _ => None,
        };
        let elect = |pod, reason| Decision::Elect(Candidate::Pod(pod), reason);
        if leader.is_none() {
            let incumbent = incumbent(step.id, view).filter(|_| record.is_none());
            return match (next, incumbent, held) {
                (Some(pod), Some(incumbent), _) if incumbent.uid == pod.uid => elect(pod, restores(view)),
                (Some(pod), ..) => elect(pod, Reason::CandidatesElected),
                (None, Some(incumbent), Held::Unknown) => elect(incumbent, restores(view)),
                (None, ..) => Decision::Nobody,
            };
        }
        let Some(present) = present else {
            return next.map_or(Decision::Vacate(Reason::LeaderGone), |pod| elect(pod, Reason::LeaderGone));
        };
        if let Some(pod) = next {
            return elect(pod, Reason::CandidatesElected);
        }
        let holds = matches!(held, Held::Unknown) || matches!(held, Held::By(pod) if pod.uid == present.uid);
        if !holds {
            return Decision::Vacate(Reason::CandidatesReleased);
        }
        match fitness_of(present, view) {
            Ok(()) => {
                self.unfit = None;
                Decision::Keep(Candidate::Pod(present))
            }
            Err(why) => match self.may_recover(&present.uid, &why, view) {
                Some(until) => Decision::Wait(why, until),
                None => Decision::Vacate(Reason::LeaderUnfit(why)),
            },
        }
    }

    fn decide_beside_fit_leader<'a>(
        &mut self,
        pod: &'a Pod,
        others: Option<&'a Pod>,
        record: Option<&Record>,
        troubles: &Troubles,
        step: &mut Step<'a>,
    ) -> Decision<'a> {
        let view = step.view;
        self.unfit = None;
        let waits = self.flapping.waits(view.now);
        let excused = view.switchovers.excuses(&pod.uid, record, view.now);
        let counts = |failure| !excused || failure != ProbeFailure::NoAnswer;
        if let Some((_, failure)) = view.probe_failed.filter(|(uid, failure)| **uid == pod.uid && counts(*failure)) {
            self.suspects.insert(pod.uid.clone());
            self.unanswered.insert(pod.uid.clone());
            let other = self.best_other(&pod.uid, false, record, troubles, view);
            let gone = failure != ProbeFailure::NoAnswer;
            let answering = other.filter(|other| gone || !self.unanswered.contains(&other.uid));
            return match (answering, waits.filter(|_| !gone)) {
                (Some(other), None) => Decision::Elect(Candidate::Pod(other), Reason::ProbeFailed(failure)),
                (answering, waits) => {
                    self.stays = match (answering, waits) {
                        (Some(_), Some(until)) => Stays::Until(until),
                        _ if other.is_some() => Stays::AllFail,
                        _ => Stays::Alone,
                    };
                    if let Stays::Until(until) = self.stays {
                        step.wake_at(Timer::Flapping, until);
                    }
                    Decision::KeepDespiteProbe(Candidate::Pod(pod), failure)
                }
            };
        }
        // E1: a leader that would have to end first, and can't be deleted, stays unless it fails.
        let others = others.filter(|_| !(view.former_leader.comes_first() && troubles.keeps(&pod.uid)));
        if let Some(other) = self.instead_of(pod, record, troubles, view) {
            return Decision::Elect(Candidate::Pod(other), Reason::NotLabelled);
        }
        // A leader by force may lead on a cordoned node.
        let off = self.off_cordoned_node(pod, others, troubles, view).filter(|_| !excused);
        if let Some(other) = off {
            return Decision::Elect(Candidate::Pod(other), Reason::NodeCordoned);
        }
        // F5: a better place by preferences is no reason. So two elections that avoid each other settle, whoever decides first.
        let preempts = |other: &&Pod| view.rules.preempt && priority(other) > priority(pod);
        let others = others.filter(|_| !view.switchovers.protects(&pod.uid, record, view.now));
        match (others.filter(preempts), waits) {
            (Some(other), None) => Decision::Elect(Candidate::Pod(other), Reason::Preempted),
            (Some(_), Some(until)) => {
                step.wake_at(Timer::Flapping, until);
                Decision::Keep(Candidate::Pod(pod))
            }
            (None, _) => Decision::Keep(Candidate::Pod(pod)),
        }
    }

    /// Takes the results of probes. A probe that has succeeded with any pod works, so pods that failed it earlier may be tried again.
    fn note_probes(&mut self, view: &View) {
        let answers = view.probe_answered.is_some() && view.probe_failed.is_none();
        if answers || self.generation != view.generation {
            self.unanswered.clear();
        }
        self.generation = view.generation;
        let suspects = &self.suspects;
        self.unanswered.retain(|uid| suspects.contains(uid));
    }

    /// Why the leader that fails its probe stays.
    pub(super) fn stays(&self) -> Stays {
        self.stays
    }

    /// The changes of leader in a row.
    pub(super) fn flapping(&self) -> &Flapping {
        &self.flapping
    }

    /// Notes a change of leader.
    pub(super) fn note_change(&mut self, reason: &Reason, now: Instant) {
        self.flapping.note(reason, now);
    }

    /// Looks again when a reported row of changes is over.
    pub(super) fn await_calm(&self, step: &mut Step) {
        if let (Some(_), Some(end)) = (self.flapping.many(step.view.now), self.flapping.ends(step.view.now)) {
            step.wake_at(Timer::Flapping, end);
        }
    }

    /// The pod that takes over from a leader whose node is cordoned. No pod on such a node is eligible, so the leader moves at most once
    /// for each cordoned node, and stays if all nodes are cordoned. It also stays if the next pod failed when it last led, or can't be
    /// labelled.
    fn off_cordoned_node<'a>(
        &self,
        leader: &Pod,
        others: Option<&'a Pod>,
        troubles: &Troubles,
        view: &View<'a>,
    ) -> Option<&'a Pod> {
        let leaves = view.rules.leave_cordoned && node_of(leader, view).is_some_and(|node| node.cordoned);
        let sound = |other: &&Pod| !self.suspects.contains(&other.uid) && !troubles.is_refused(&other.uid);
        others.filter(|_| leaves).filter(sound)
    }

    /// Decides for a cluster that is itself the only candidate here.
    fn decide_for_cluster<'a>(
        &mut self,
        fitness: Result<(), NotEligible>,
        holder: Option<&Holder>,
        step: &Step<'a>,
    ) -> Decision<'a> {
        let own = |holder: &Holder| holder.uid == step.id.uid;
        match (holder, fitness) {
            (Some(holder), Ok(())) if own(holder) => {
                self.unfit = None;
                Decision::Keep(Candidate::Cluster)
            }
            (Some(holder), Err(why)) if own(holder) => {
                let until = self.may_recover(&holder.uid, &why, step.view);
                match until {
                    Some(until) => Decision::Wait(why, until),
                    None => Decision::Vacate(Reason::LeaderUnfit(why)),
                }
            }
            (Some(_), Ok(())) => Decision::Elect(Candidate::Cluster, Reason::SpecChanged),
            (Some(_), Err(_)) => Decision::Vacate(Reason::SpecChanged),
            (None, Ok(())) => Decision::Elect(Candidate::Cluster, Reason::Vacant),
            (None, Err(_)) => Decision::Nobody,
        }
    }

    /// The first of the eligible pods.
    fn best<'a>(
        &self,
        record: Option<&Record>,
        troubles: &Troubles,
        beside: bool,
        step: &mut Step<'a>,
    ) -> Option<&'a Pod> {
        let view = step.view;
        let comparison = Comparison::of(view);
        let mut best: Option<(Rank, &'a Pod)> = None;
        for pod in candidates(view) {
            match self.assess(pod, record, troubles, beside, view, &comparison) {
                Ok(rank) => {
                    if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                        best = Some((rank, pod));
                    }
                }
                Err(NotEligible::ReadyTooShortly(until)) => step.wake_at(Timer::LongEnoughReady, until),
                Err(_) => {}
            }
        }
        best.map(|(_, pod)| pod)
    }

    /// The rank of a candidate that may be elected now, or why it may not. `beside`: the candidate is judged beside a fit leader, whose
    /// place no pod takes that was refused before.
    pub(super) fn assess(
        &self,
        pod: &Pod,
        record: Option<&Record>,
        troubles: &Troubles,
        beside: bool,
        view: &View,
        comparison: &Comparison,
    ) -> Result<Rank, NotEligible> {
        let node = node_of(pod, view);
        eligible(pod, node, view.rules, view.now)?;
        let refused = if beside { troubles.is_refused(&pod.uid) } else { !troubles.may_be_tried(&pod.uid, view.now) };
        let suspect = self.suspects.contains(&pod.uid) || refused;
        let standing = Standing {
            suspect,
            held_back: view.switchovers.holds_back(&pod.uid, record, view.now),
            shows_leader: view.scope.markings.shows_leader(pod),
            outdated: comparison.templates.is_outdated(pod),
        };
        Ok(rank(pod, node, view.rules, &comparison.crowds, standing))
    }

    /// The moment until which a leader that is not fit may recover, if it may.
    fn may_recover(&mut self, leader: &Uid, why: &NotEligible, view: &View) -> Option<Instant> {
        let since = match &self.unfit {
            Some((uid, since)) if uid == leader => *since,
            _ => view.now,
        };
        self.unfit = Some((leader.clone(), since));
        self.note_cause(since);
        Some(since + view.failover_delay).filter(|until| why.may_recover() && *until > view.now)
    }

    /// Whether the pod that is to lead can't be labelled, and the operator has to try another one.
    pub(super) fn gives_way(&self, leader: &Uid, record: &Record, troubles: &Troubles, view: &View) -> bool {
        if let Some(following) = view.following {
            return following.lock.is_known() && !following.is_held_by(leader, candidates(view));
        }
        let leader = view.pods.iter().copied().find(|pod| pod.uid == *leader);
        leader.is_some_and(|pod| self.instead_of(pod, Some(record), troubles, view).is_some())
    }

    /// The pod that the operator tries instead of one that it can't label as the leader. Last comes a pod on a cordoned node, because the
    /// leader may just have moved off that node.
    fn instead_of<'a>(
        &self,
        leader: &Pod,
        record: Option<&Record>,
        troubles: &Troubles,
        view: &View<'a>,
    ) -> Option<&'a Pod> {
        let refused = troubles.is_refused(&leader.uid) && !view.scope.markings.shows_leader(leader);
        let best = |cordoned| self.best_other(&leader.uid, cordoned, record, troubles, view);
        refused.then(|| best(false).or_else(|| best(true))).flatten()
    }

    /// The first of the other pods. `cordoned`: pods on cordoned nodes count, too.
    pub(super) fn best_other<'a>(
        &self,
        leader: &Uid,
        cordoned: bool,
        record: Option<&Record>,
        troubles: &Troubles,
        view: &View<'a>,
    ) -> Option<&'a Pod> {
        if view.following.is_some() {
            // F1: no other pod can lead.
            return None;
        }
        let fits = |pod: &Pod| match eligible(pod, node_of(pod, view), view.rules, view.now) {
            Ok(()) => true,
            Err(why) => cordoned && why == NotEligible::NodeCordoned,
        };
        let candidates = view.pods.iter().copied().filter(|pod| {
            pod.uid != *leader && troubles.may_be_tried(&pod.uid, view.now) && view.selects(pod) && fits(pod)
        });
        let Comparison { templates, crowds } = Comparison::of(view);
        candidates.min_by_key(|pod| {
            let (suspect, outdated) = (self.suspects.contains(&pod.uid), templates.is_outdated(pod));
            let held_back = view.switchovers.holds_back(&pod.uid, record, view.now);
            let standing = Standing { suspect, held_back, shows_leader: false, outdated };
            (self.unanswered.contains(&pod.uid), rank(pod, node_of(pod, view), view.rules, &crowds, standing))
        })
    }

    /// Notes when the cause of a change was seen.
    pub(super) fn note_cause(&mut self, at: Instant) {
        self.cause.get_or_insert(at);
    }

    /// Notes that no change is needed any more.
    pub(super) fn forget_cause(&mut self) {
        self.cause = None;
    }

    /// Notes that a change is complete. Returns the time since its cause was seen.
    pub(super) fn take_duration(&mut self, now: Instant) -> Duration {
        now.since(self.cause.take().unwrap_or(now))
    }
}

/// Whether a leader may continue.
fn fitness_of(leader: &Pod, view: &View) -> Result<(), NotEligible> {
    if view.selects(leader) {
        standing(leader, node_of(leader, view), view.rules)
    } else {
        Err(NotEligible::NotSelected)
    }
}

/// Why the pod that leads according to its labels is recorded again. If there is a lock under another key, the lock is not lost: it moves.
fn restores(view: &View) -> Reason {
    if view.strays.is_empty() { Reason::LockRestored } else { Reason::SpecChanged }
}

/// The one pod that leads according to its labels, if the record is lost. It stays the leader, however others rank.
fn incumbent<'a>(id: &Identity, view: &View<'a>) -> Option<&'a Pod> {
    let shows = |pod: &&Pod| view.scope.markings.shows_leader(pod) && view.selects(pod);
    let mut showing = view.pods.iter().copied().filter(shows);
    let pod = showing.next().filter(|pod| id.wrote(pod) && standing(pod, node_of(pod, view), view.rules).is_ok())?;
    showing.next().is_none().then_some(pod)
}

/// The pods that the election selects.
pub(super) fn candidates<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Pod> + Clone {
    view.pods.iter().copied().filter(|pod| view.selects(pod))
}

/// What candidates are compared by, and what no candidate shows by itself.
pub(super) struct Comparison<'a> {
    /// The newest templates of the candidates.
    templates: Templates<'a>,
    /// Where leaders of other elections are.
    crowds: Crowds<'a>,
}

impl<'a> Comparison<'a> {
    pub(super) fn of(view: &View<'a>) -> Self {
        let crowds = Crowds::of(view.rules, view.other_leaders, view.known.nodes);
        Self { templates: Templates::newest(&candidates(view)), crowds }
    }
}

fn has_leftover(pod: &Pod, record: &Record) -> bool {
    record.former.iter().any(|scope| scope.markings.has_leftover(pod, &record.scope.markings))
}

fn node_of<'a>(pod: &Pod, view: &View<'a>) -> Option<&'a Node> {
    pod.node.as_deref().and_then(|name| view.nodes.get(name))
}

//! Who should lead, from what is known of the candidates.

use std::collections::BTreeSet;
use std::time::Duration;

use super::terms::Terms;
use super::troubles::Troubles;
use crate::eligibility::{Rank, priority, rank};
use crate::identity::Identity;
use crate::step::Step;
use crate::timers::Timer;
use crate::view::{Situation, View};
use crate::{Holder, Instant, Node, NotEligible, Pod, Reason, Record, Uid, Version, eligible, standing};

/// Who may lead.
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

    /// As it is written into the record of an election, and the version for which it may be promoted.
    pub(super) fn holder(self, election: &Uid) -> (Holder, Version) {
        match self {
            Self::Pod(pod) => {
                let (name, uid) = (Some(pod.name.clone()), pod.uid.clone());
                (Holder { pod: name, uid, node: pod.node.clone(), ip: pod.ip.clone() }, pod.version)
            }
            Self::Cluster => (Holder { pod: None, uid: election.clone(), node: None, ip: None }, Version::default()),
        }
    }
}

/// What should become of the leadership.
pub(super) enum Decision<'a> {
    /// The leader stays.
    Keep(Candidate<'a>),
    /// The leader stays although it fails its probe: nobody else is eligible.
    KeepDespiteProbe(Candidate<'a>),
    Elect(Candidate<'a>, Reason),
    Vacate(Reason),
    /// The leader is not fit, and has until then to recover.
    Wait(NotEligible, Instant),
    /// Nobody leads, and nobody is eligible.
    Nobody,
}

impl Decision<'_> {
    /// What it tells of the present leader, if it tells anything.
    pub(super) fn situation(&self) -> Option<Situation> {
        match self {
            Self::Keep(_) | Self::Elect(_, Reason::Preempted) => Some(Situation::Led),
            Self::KeepDespiteProbe(_) | Self::Elect(_, Reason::ProbeFailed) => Some(Situation::LedDespiteProbe),
            Self::Elect(..) | Self::Vacate(_) | Self::Wait(..) | Self::Nobody => None,
        }
    }

    /// Whether the record and the leader's labels are as they should be.
    pub(super) fn is_settled(&self, record: Option<&Record>, terms: Terms, id: &Identity, view: &View) -> bool {
        let Some(record) = record else { return matches!(self, Decision::Nobody) };
        let current = record.scope == *view.scope && record.election == id.uid;
        match self {
            Self::Keep(Candidate::Pod(pod)) | Self::KeepDespiteProbe(Candidate::Pod(pod)) => {
                current
                    && !terms.is_outdated(record.term)
                    && view.scope.markings.is_leader(pod, record.term)
                    && !has_leftover(pod, record)
            }
            Self::Keep(Candidate::Cluster) | Self::KeepDespiteProbe(Candidate::Cluster) => {
                current && !terms.is_outdated(record.term)
            }
            Self::Nobody => current,
            Self::Wait(..) => true,
            Self::Elect(..) | Self::Vacate(_) => false,
        }
    }
}

/// What is remembered of the candidates from one decision to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Fitness {
    /// Since when which leader is not fit.
    unfit: Option<(Uid, Instant)>,
    /// Pods that failed their probe as leaders, and have been ready ever since.
    suspects: BTreeSet<Uid>,
    /// When the cause of the change that is under way was seen.
    cause: Option<Instant>,
}

impl Fitness {
    /// Who should lead. `record`: who leads, and in which term; none: nobody is known to.
    pub(super) fn decide<'a>(
        &mut self,
        record: Option<&Record>,
        troubles: &Troubles,
        step: &mut Step<'a>,
    ) -> Decision<'a> {
        let view = step.view;
        let holder = record.and_then(|record| record.holder.as_ref());
        if let Some(fitness) = view.cluster {
            return self.decide_for_cluster(fitness, holder, step);
        }
        self.suspects.retain(|uid| view.pods.iter().any(|pod| pod.uid == *uid && pod.ready));
        let best = self.best(troubles, step);
        let Some(holder) = holder else {
            if record.is_none()
                && let Some(incumbent) = incumbent(step.id, view)
            {
                // With a lock under another key it is not lost: it moves.
                let moved = !view.strays.is_empty();
                let incumbent = Candidate::Pod(incumbent);
                return Decision::Elect(incumbent, if moved { Reason::SpecChanged } else { Reason::LockRestored });
            }
            return best.map_or(Decision::Nobody, |pod| Decision::Elect(Candidate::Pod(pod), Reason::Vacant));
        };
        let Some(pod) = view.pods.iter().copied().find(|pod| pod.uid == holder.uid) else {
            let elect = |pod| Decision::Elect(Candidate::Pod(pod), Reason::LeaderGone);
            return best.map_or(Decision::Vacate(Reason::LeaderGone), elect);
        };
        let fitness = if view.scope.selector.matches(&pod.labels) {
            standing(pod, node_of(pod, view), view.rules)
        } else {
            Err(NotEligible::NotSelected)
        };
        let others = best.filter(|other| other.uid != pod.uid);
        match fitness {
            Ok(()) => self.decide_beside_fit_leader(pod, others, troubles, view),
            Err(why) => {
                if let Some(until) = self.may_recover(&pod.uid, why, view) {
                    return Decision::Wait(why, until);
                }
                let reason = Reason::LeaderUnfit(why);
                others.map_or(Decision::Vacate(reason), |other| Decision::Elect(Candidate::Pod(other), reason))
            }
        }
    }

    fn decide_beside_fit_leader<'a>(
        &mut self,
        pod: &'a Pod,
        others: Option<&'a Pod>,
        troubles: &Troubles,
        view: &View<'a>,
    ) -> Decision<'a> {
        self.unfit = None;
        if view.probe_failed == Some(&pod.uid) {
            self.suspects.insert(pod.uid.clone());
            let elect = |other| Decision::Elect(Candidate::Pod(other), Reason::ProbeFailed);
            let keep = Decision::KeepDespiteProbe(Candidate::Pod(pod));
            return self.best_other(pod, troubles, view).map_or(keep, elect);
        }
        if let Some(other) = self.instead_of(pod, troubles, view) {
            return Decision::Elect(Candidate::Pod(other), Reason::NotLabelled);
        }
        match others {
            Some(other) if view.rules.preempt && priority(other) > priority(pod) => {
                Decision::Elect(Candidate::Pod(other), Reason::Preempted)
            }
            _ => Decision::Keep(Candidate::Pod(pod)),
        }
    }

    /// The cluster itself is the only candidate here.
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
                let until = self.may_recover(&holder.uid, why, step.view);
                until.map_or(Decision::Vacate(Reason::LeaderUnfit(why)), |until| Decision::Wait(why, until))
            }
            (Some(_), Ok(())) => Decision::Elect(Candidate::Cluster, Reason::SpecChanged),
            (Some(_), Err(_)) => Decision::Vacate(Reason::SpecChanged),
            (None, Ok(())) => Decision::Elect(Candidate::Cluster, Reason::Vacant),
            (None, Err(_)) => Decision::Nobody,
        }
    }

    /// The first of the eligible pods.
    fn best<'a>(&self, troubles: &Troubles, step: &mut Step<'a>) -> Option<&'a Pod> {
        let view = step.view;
        let mut best: Option<(Rank, &'a Pod)> = None;
        for pod in view.pods.iter().copied().filter(|pod| view.scope.selector.matches(&pod.labels)) {
            match eligible(pod, node_of(pod, view), view.rules, view.now) {
                Ok(()) => {
                    let suspect = self.suspects.contains(&pod.uid) || troubles.is_refused(&pod.uid);
                    let leads = view.scope.markings.shows_leader(pod);
                    let rank = rank(pod, node_of(pod, view), view.rules, suspect, leads);
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

    /// Until when a leader that is not fit may recover, if it may.
    fn may_recover(&mut self, leader: &Uid, why: NotEligible, view: &View) -> Option<Instant> {
        let since = match &self.unfit {
            Some((uid, since)) if uid == leader => *since,
            _ => view.now,
        };
        self.unfit = Some((leader.clone(), since));
        self.note_cause(since);
        Some(since + view.failover_delay).filter(|until| why.may_recover() && *until > view.now)
    }

    /// Whether the pod that is to lead can't be labelled, and another one is to be tried.
    pub(super) fn gives_way(&self, leader: &Uid, troubles: &Troubles, view: &View) -> bool {
        let leader = view.pods.iter().copied().find(|pod| pod.uid == *leader);
        leader.is_some_and(|pod| self.instead_of(pod, troubles, view).is_some())
    }

    /// Who is tried in the place of a pod that can't be labelled as the leader.
    fn instead_of<'a>(&self, leader: &Pod, troubles: &Troubles, view: &View<'a>) -> Option<&'a Pod> {
        let refused = troubles.is_refused(&leader.uid) && !view.scope.markings.shows_leader(leader);
        refused.then(|| self.best_other(leader, troubles, view)).flatten()
    }

    fn best_other<'a>(&self, leader: &Pod, troubles: &Troubles, view: &View<'a>) -> Option<&'a Pod> {
        let candidates = view.pods.iter().copied().filter(|pod| {
            pod.uid != leader.uid
                && troubles.may_be_tried(&pod.uid, view.now)
                && view.scope.selector.matches(&pod.labels)
                && eligible(pod, node_of(pod, view), view.rules, view.now).is_ok()
        });
        candidates.min_by_key(|pod| rank(pod, node_of(pod, view), view.rules, self.suspects.contains(&pod.uid), false))
    }

    /// The cause of a change was seen.
    pub(super) fn note_cause(&mut self, at: Instant) {
        self.cause.get_or_insert(at);
    }

    /// Nothing has to change any more.
    pub(super) fn forget_cause(&mut self) {
        self.cause = None;
    }

    /// A change is complete. Returns how long it took since its cause was seen.
    pub(super) fn take_duration(&mut self, now: Instant) -> Duration {
        now.since(self.cause.take().unwrap_or(now))
    }
}

/// The one pod that leads according to its labels, where the record is lost: it goes on, whatever others would rank.
fn incumbent<'a>(id: &Identity, view: &View<'a>) -> Option<&'a Pod> {
    let shows = |pod: &&Pod| view.scope.markings.shows_leader(pod) && view.scope.selector.matches(&pod.labels);
    let mut showing = view.pods.iter().copied().filter(shows);
    let pod = showing.next().filter(|pod| id.wrote(pod) && standing(pod, node_of(pod, view), view.rules).is_ok())?;
    showing.next().is_none().then_some(pod)
}

fn has_leftover(pod: &Pod, record: &Record) -> bool {
    record.former.iter().any(|scope| scope.markings.has_leftover(pod, &record.scope.markings))
}

fn node_of<'a>(pod: &Pod, view: &View<'a>) -> Option<&'a Node> {
    pod.node.as_deref().and_then(|name| view.nodes.get(name))
}

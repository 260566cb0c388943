//! Who should lead, from what is known.

use super::Election;
use super::step::Step;
use super::view::{Situation, View};
use crate::eligibility::{Rank, priority, rank};
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

pub(super) enum Decision<'a> {
    Keep(Candidate<'a>),
    Elect(Candidate<'a>, Reason),
    Vacate(Reason),
    Wait(NotEligible, Instant),
    Nobody,
}

impl Election {
    /// Who should lead, from what is known.
    pub(super) fn decide<'a>(&mut self, record: Option<&Record>, step: &mut Step<'a>) -> Decision<'a> {
        let view = step.view;
        if let Some(fitness) = view.cluster {
            return self.decide_for_cluster(fitness, record, view);
        }
        let markings = &view.scope.markings;
        self.suspects.retain(|uid| view.pods.iter().any(|pod| pod.uid == *uid && pod.ready));
        let mut best: Option<(Rank, &'a Pod)> = None;
        for pod in view.pods.iter().copied().filter(|pod| view.scope.selector.matches(&pod.labels)) {
            match eligible(pod, node_of(pod, view), view.rules, view.now) {
                Ok(()) => {
                    let suspect = self.suspects.contains(&pod.uid) || self.troubles.is_refused(&pod.uid);
                    let rank = rank(pod, node_of(pod, view), view.rules, suspect, markings.shows_leader(pod));
                    if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                        best = Some((rank, pod));
                    }
                }
                Err(NotEligible::ReadyTooShortly(until)) => step.wake_at(until),
                Err(_) => {}
            }
        }
        let best = best.map(|(_, pod)| pod);
        let Some(holder) = record.and_then(|record| record.holder.as_ref()) else {
            if record.is_none()
                && let Some(incumbent) = self.incumbent(view)
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
            Ok(()) => {
                self.unfit = None;
                if view.probe_failed == Some(&pod.uid) {
                    self.suspects.insert(pod.uid.clone());
                    let fallback = self.best_other(pod, view);
                    self.situation = Situation::LedDespiteProbe;
                    let elect = |other| Decision::Elect(Candidate::Pod(other), Reason::ProbeFailed);
                    return fallback.map_or(Decision::Keep(Candidate::Pod(pod)), elect);
                }
                if let Some(other) = self.instead_of(pod, view) {
                    return Decision::Elect(Candidate::Pod(other), Reason::NotLabelled);
                }
                self.situation = Situation::Led;
                match others {
                    Some(other) if view.rules.preempt && priority(other) > priority(pod) => {
                        Decision::Elect(Candidate::Pod(other), Reason::Preempted)
                    }
                    _ => Decision::Keep(Candidate::Pod(pod)),
                }
            }
            Err(why) => {
                if let Some(until) = self.may_recover(&pod.uid, why, view) {
                    return Decision::Wait(why, until);
                }
                let reason = Reason::LeaderUnfit(why);
                others.map_or(Decision::Vacate(reason), |other| Decision::Elect(Candidate::Pod(other), reason))
            }
        }
    }

    /// The cluster itself is the only candidate here.
    fn decide_for_cluster<'a>(
        &mut self,
        fitness: Result<(), NotEligible>,
        record: Option<&Record>,
        view: &View<'a>,
    ) -> Decision<'a> {
        let holder = record.and_then(|record| record.holder.as_ref());
        match (holder, fitness) {
            (Some(holder), Ok(())) if holder.uid == self.id.uid => {
                self.unfit = None;
                self.situation = Situation::Led;
                Decision::Keep(Candidate::Cluster)
            }
            (Some(holder), Err(why)) if holder.uid == self.id.uid => {
                let until = self.may_recover(&holder.uid, why, view);
                until.map_or(Decision::Vacate(Reason::LeaderUnfit(why)), |until| Decision::Wait(why, until))
            }
            (Some(_), Ok(())) => Decision::Elect(Candidate::Cluster, Reason::SpecChanged),
            (Some(_), Err(_)) => Decision::Vacate(Reason::SpecChanged),
            (None, Ok(())) => Decision::Elect(Candidate::Cluster, Reason::Vacant),
            (None, Err(_)) => Decision::Nobody,
        }
    }

    /// Until when a leader that is not fit may recover, if it may.
    fn may_recover(&mut self, leader: &Uid, why: NotEligible, view: &View) -> Option<Instant> {
        let since = match &self.unfit {
            Some((uid, since)) if uid == leader => *since,
            _ => view.now,
        };
        self.unfit = Some((leader.clone(), since));
        self.cause.get_or_insert(since);
        Some(since + view.failover_delay).filter(|until| why.may_recover() && *until > view.now)
    }

    /// The one pod that leads according to its labels, where the record is lost: it goes on, whatever others would rank.
    pub(super) fn incumbent<'a>(&self, view: &View<'a>) -> Option<&'a Pod> {
        let shows = |pod: &&Pod| view.scope.markings.shows_leader(pod) && view.scope.selector.matches(&pod.labels);
        let mut showing = view.pods.iter().copied().filter(shows);
        let pod =
            showing.next().filter(|pod| self.id.wrote(pod) && standing(pod, node_of(pod, view), view.rules).is_ok())?;
        showing.next().is_none().then_some(pod)
    }

    /// Whether the pod that is to lead can't be labelled, and another one is to be tried.
    pub(super) fn gives_way(&self, leader: &Uid, view: &View) -> bool {
        view.pods.iter().copied().find(|pod| pod.uid == *leader).is_some_and(|pod| self.instead_of(pod, view).is_some())
    }

    /// Who is tried in the place of a pod that can't be labelled as the leader.
    fn instead_of<'a>(&self, leader: &Pod, view: &View<'a>) -> Option<&'a Pod> {
        let refused = self.troubles.is_refused(&leader.uid) && !view.scope.markings.shows_leader(leader);
        refused.then(|| self.best_other(leader, view)).flatten()
    }

    fn best_other<'a>(&self, leader: &Pod, view: &View<'a>) -> Option<&'a Pod> {
        let candidates = view.pods.iter().copied().filter(|pod| {
            pod.uid != leader.uid
                && self.troubles.may_be_tried(&pod.uid, view.now)
                && view.scope.selector.matches(&pod.labels)
                && eligible(pod, node_of(pod, view), view.rules, view.now).is_ok()
        });
        candidates.min_by_key(|pod| rank(pod, node_of(pod, view), view.rules, self.suspects.contains(&pod.uid), false))
    }

    /// Whether the record and the leader's labels are as they should be.
    pub(super) fn is_settled(&self, decision: &Decision, record: Option<&Record>, view: &View) -> bool {
        let Some(record) = record else { return matches!(decision, Decision::Nobody) };
        let current = record.scope == *view.scope && record.election == self.id.uid;
        match decision {
            Decision::Keep(Candidate::Pod(pod)) => {
                current
                    && !self.terms.is_outdated(record.term)
                    && view.scope.markings.is_leader(pod, record.term)
                    && !has_leftover(pod, record)
            }
            Decision::Keep(Candidate::Cluster) => current && !self.terms.is_outdated(record.term),
            Decision::Nobody => current,
            Decision::Wait(..) => true,
            Decision::Elect(..) | Decision::Vacate(_) => false,
        }
    }
}

fn has_leftover(pod: &Pod, record: &Record) -> bool {
    record.former.iter().any(|scope| scope.markings.has_leftover(pod, &record.scope.markings))
}

fn node_of<'a>(pod: &Pod, view: &View<'a>) -> Option<&'a Node> {
    pod.node.as_deref().and_then(|name| view.nodes.get(name))
}

//! Who should lead, from what is known.

use super::Election;
use super::view::{Situation, View};
use crate::core::eligibility::{Rank, priority, rank};
use crate::core::{Instant, Node, NotEligible, Pod, Reason, Record, eligible, standing};

pub(super) enum Decision<'a> {
    Keep(&'a Pod),
    Elect(&'a Pod, Reason),
    Vacate(Reason),
    Wait(NotEligible, Instant),
    Nobody,
}

impl Election {
    /// Who should lead, from what is known.
    pub(super) fn decide<'a>(&mut self, record: Option<&Record>, view: &View<'a>) -> Decision<'a> {
        let markings = &view.scope.markings;
        self.suspects.retain(|uid| view.pods.iter().any(|pod| pod.uid == *uid && pod.ready));
        let mut best: Option<(Rank, &'a Pod)> = None;
        for pod in view.pods.iter().copied().filter(|pod| view.scope.selector.matches(&pod.labels)) {
            match eligible(pod, node_of(pod, view), view.rules, view.now) {
                Ok(()) => {
                    let suspect = self.suspects.contains(&pod.uid);
                    let rank = rank(pod, node_of(pod, view), view.rules, suspect, markings.shows_leader(pod));
                    if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                        best = Some((rank, pod));
                    }
                }
                Err(NotEligible::ReadyTooShortly(until)) => self.wake_at(until),
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
                return Decision::Elect(incumbent, if moved { Reason::SpecChanged } else { Reason::LockRestored });
            }
            return best.map_or(Decision::Nobody, |pod| Decision::Elect(pod, Reason::Vacant));
        };
        let Some(pod) = view.pods.iter().copied().find(|pod| pod.uid == holder.uid) else {
            return best.map_or(Decision::Vacate(Reason::LeaderGone), |pod| Decision::Elect(pod, Reason::LeaderGone));
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
                    return fallback.map_or(Decision::Keep(pod), |other| Decision::Elect(other, Reason::ProbeFailed));
                }
                self.situation = Situation::Led;
                match others {
                    Some(other) if view.rules.preempt && priority(other) > priority(pod) => {
                        Decision::Elect(other, Reason::Preempted)
                    }
                    _ => Decision::Keep(pod),
                }
            }
            Err(why) => {
                let since = match &self.unfit {
                    Some((uid, since)) if *uid == pod.uid => *since,
                    _ => view.now,
                };
                self.unfit = Some((pod.uid.clone(), since));
                self.cause.get_or_insert(since);
                let until = since + view.failover_delay;
                if why.may_recover() && until > view.now {
                    return Decision::Wait(why, until);
                }
                let reason = Reason::LeaderUnfit(why);
                others.map_or(Decision::Vacate(reason), |other| Decision::Elect(other, reason))
            }
        }
    }

    /// The one pod that leads according to its labels, where the record is lost: it goes on, whatever others would rank.
    pub(super) fn incumbent<'a>(&self, view: &View<'a>) -> Option<&'a Pod> {
        let shows = |pod: &&Pod| view.scope.markings.shows_leader(pod) && view.scope.selector.matches(&pod.labels);
        let mut showing = view.pods.iter().copied().filter(shows);
        let pod =
            showing.next().filter(|pod| self.wrote(pod) && standing(pod, node_of(pod, view), view.rules).is_ok())?;
        showing.next().is_none().then_some(pod)
    }

    pub(super) fn best_other<'a>(&self, leader: &Pod, view: &View<'a>) -> Option<&'a Pod> {
        let candidates = view.pods.iter().copied().filter(|pod| {
            pod.uid != leader.uid
                && view.scope.selector.matches(&pod.labels)
                && eligible(pod, node_of(pod, view), view.rules, view.now).is_ok()
        });
        candidates.min_by_key(|pod| rank(pod, node_of(pod, view), view.rules, self.suspects.contains(&pod.uid), false))
    }

    /// Whether the record and the leader's labels are as they should be.
    pub(super) fn is_settled(&self, decision: &Decision, record: Option<&Record>, view: &View) -> bool {
        let Some(record) = record else { return matches!(decision, Decision::Nobody) };
        let current = record.scope == *view.scope && record.election == self.uid;
        match decision {
            Decision::Keep(pod) => {
                current && view.scope.markings.is_leader(pod, record.term) && !has_leftover(pod, record)
            }
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
    pod.node.as_deref().and_then(|name| (view.node)(name))
}

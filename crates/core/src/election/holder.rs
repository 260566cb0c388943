//! F: the pod of the group that holds the candidates' own lock, and whether it may lead.

use std::time::Duration;

use crate::followed::{FollowedLock, LockHolder};
use crate::step::Step;
use crate::timers::Timer;
use crate::{Following, Holder, Node, NotEligible, Pod, Uid, Version, eligible};

/// When the operator looks again whether a holder has written the lock meanwhile.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

/// The holder of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held<'a> {
    /// This pod of the group holds the lock.
    By(&'a Pod),
    /// No pod of the group holds the lock, as far as is known for sure.
    ByNobody,
    /// The holder is not known at present.
    Unknown,
}

/// The state that is kept of the lock's holders.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    /// The last holder that was found.
    last: Option<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    identity: String,
    tenure: String,
    pod: Uid,
    /// F3: another pod of the same name, and the lock's version when that pod was first seen.
    namesake: Option<(Uid, Version)>,
}

impl Holders {
    /// Finds the holder of the lock. `leader`: the leader that the record names.
    pub(super) fn find<'a>(
        &mut self,
        following: Following<'_>,
        leader: Option<&Holder>,
        step: &mut Step<'a>,
    ) -> Held<'a> {
        let view = step.view;
        let holder = match following.lock {
            FollowedLock::Unread | FollowedLock::Unknown(_) => return Held::Unknown,
            FollowedLock::Free(_) => return Held::ByNobody,
            FollowedLock::Held(holder) => holder,
        };
        let pods = view.pods.iter().copied().filter(|pod| view.selects(pod));
        let Ok(pod) = following.rule.find(holder, pods) else { return Held::ByNobody };
        if self.is_namesake(pod, holder, leader) {
            step.wake_at(Timer::FollowedLock, view.now + LOOKS_AGAIN);
            return Held::ByNobody;
        }
        Held::By(pod)
    }

    /// F3: whether an earlier pod of the same name took the lock, and nothing was written to it since this pod exists.
    fn is_namesake(&mut self, pod: &Pod, holder: &LockHolder, leader: Option<&Holder>) -> bool {
        let known = |pod: &Uid| Known {
            identity: holder.identity.clone(),
            tenure: holder.tenure.clone(),
            pod: pod.clone(),
            namesake: None,
        };
        let same = |known: &Known| known.identity == holder.identity && known.tenure == holder.tenure;
        if !self.last.as_ref().is_some_and(same) {
            // The record has the holder that an earlier operator found.
            let before = leader.filter(|leader| self.last.is_none() && leader.pod.as_ref() == Some(&pod.name));
            self.last = Some(known(before.map_or(&pod.uid, |leader| &leader.uid)));
        }
        let Some(last) = self.last.as_mut().filter(|last| last.pod != pod.uid) else { return false };
        let seen = last.namesake.take().filter(|(uid, _)| *uid == pod.uid);
        let (_, seen) = last.namesake.insert(seen.unwrap_or((pod.uid.clone(), holder.version)));
        if holder.version <= *seen {
            return true;
        }
        self.last = Some(known(&pod.uid));
        false
    }
}

/// Checks whether the pod that holds the lock may be made the leader. It may be on a cordoned node, because no other pod can lead.
///
/// # Errors
/// Returns the reason why the pod may not lead.
pub(super) fn may_lead(pod: &Pod, node: Option<&Node>, step: &mut Step) -> Result<(), NotEligible> {
    let view = step.view;
    let node = node.map(|node| Node { cordoned: false, ..node.clone() });
    let fitness = eligible(pod, node.as_ref(), view.rules, view.now);
    if let Err(NotEligible::ReadyTooShortly(until)) = fitness {
        step.wake_at(Timer::LongEnoughReady, until);
    }
    fitness
}

//! How states are told apart, and how their histories are told.

use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

use super::{Action, Cluster, Clusters, Faults, NAMES, State};
use crate::explore::Told;
use crate::identity::{Known, NOBODY, Parts, readable};
use crate::member::TTL;
use crate::rules::Seen;

impl Told for Clusters {
    const SHORT: bool = false;

    fn bounds(&self) -> String {
        let Faults { cuts, lost, late, crashes, slow, unready } = self.faults;
        let faults = [
            (cuts, "cuts"),
            (lost, "lost requests"),
            (late, "late answers"),
            (crashes, "crashes"),
            (slow, "ticks missed by a clock"),
            (unready, "unready candidates"),
        ];
        let faults: Vec<String> =
            faults.iter().filter(|(often, _)| *often > 0).map(|(often, what)| format!("{often} {what}")).collect();
        let what = if self.workload { "a Deployment" } else { "a pod" };
        let (tick, keeps) = (self.tick, self.ticks(self.keeps));
        format!(
            "2 clusters with {what} each, ticks of {tick:?}, sessions kept {keeps} to {} ticks, {}",
            self.ticks(2 * TTL),
            faults.join(", ")
        )
    }

    fn seen(&self) -> &Seen {
        &self.seen
    }

    fn describe(&self, before: &State, action: &Action) -> String {
        let of = |at: usize| &before.requests[at];
        let asked = |at: usize| format!("{}: {}", NAMES[of(at).cluster], of(at).sent.value);
        let mut text = match *action {
            Action::Ticks => format!("-- tick {}", before.now + 1),
            Action::TicksBut(number) => format!("-- tick {}, missed by the clock of {}", before.now + 1, NAMES[number]),
            Action::SeesLock(number) => format!("{} sees the lock: {}", NAMES[number], self.stored(before, number)),
            Action::CarriedOut(at) => {
                format!("{} -> {}", asked(at), self.carry_out(&mut before.clone(), of(at)).text())
            }
            Action::Hidden(at) => format!("{} (carried out; the answer is on its way)", asked(at)),
            Action::Answered(at) => format!("{} is answered", asked(at)),
            Action::Lost(at) => format!("{} (lost)", asked(at)),
            Action::AnswerLost(at) => format!("{} (carried out; the answer is lost)", asked(at)),
            Action::Cut(number) => format!("{} is cut off from the store", NAMES[number]),
            Action::Mended(number) => format!("{} reaches the store again", NAMES[number]),
            Action::Expires(number) => format!("the session of {} ends", NAMES[number]),
            Action::Crashes(number) => format!("{}: the operator crashes", NAMES[number]),
            Action::Unready(number) => format!("{}: the candidate is not fit any more", NAMES[number]),
            Action::Ready(number) => format!("{}: the candidate is fit again", NAMES[number]),
            Action::Ended(number) => format!("{}: what ran of the Deployment has ended", NAMES[number]),
        };
        text = readable(&text);
        if let Some(broken) = self.next_state(before, *action).and_then(|after| after.broken) {
            text = format!("{text}\n=> {broken}");
        }
        text
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.identity().hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl State {
    pub fn identity(&self) -> u64 {
        let mut parts = Parts::new(false);
        let mut hasher = DefaultHasher::new();
        // Where the store's version is among all others that are known of.
        let version = Known::new((self.store.version, self.promoted));
        parts.push(NOBODY, version.shape());
        if let Some(written) = &self.store.written {
            parts.push(NOBODY, written.shape());
        }
        let age = |at: u64| self.now.saturating_sub(at);
        for (number, cluster) in self.clusters.iter().enumerate() {
            let place = u8::try_from(number).unwrap_or(NOBODY);
            parts.set_clock(number, cluster.member.as_ref().map(|member| member.now));
            cluster.world.pods.iter().flatten().for_each(|pod| parts.push(place, pod.shape()));
            cluster.workload.iter().for_each(|workload| parts.push(place, workload.shape()));
            cluster.member.iter().for_each(|member| parts.push(place, member.shape()));
            let Cluster { available, reachable, ends, returns, .. } = cluster;
            let returns = cluster.member.is_none().then(|| returns.saturating_sub(self.now));
            (available, reachable, ends.map(|at| at.saturating_sub(self.now)), returns, cluster.starts)
                .hash(&mut hasher);
            let session = self.store.sessions[number].as_ref();
            session.map(|session| (session.number, age(session.renewed))).hash(&mut hasher);
            let requests = self.requests.iter().filter(|request| request.cluster == number);
            for request in requests {
                parts.push(place, request.sent.shape());
                age(request.at).hash(&mut hasher);
            }
        }
        (parts.identity(), self.store.held, self.store.made, self.left, &self.broken, self.requests.len())
            .hash(&mut hasher);
        hasher.finish()
    }
}

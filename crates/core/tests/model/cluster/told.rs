//! How states are told apart, and how their histories are told.

use std::hash::{DefaultHasher, Hash, Hasher};

use lictor_core::Outcome;
use stateright::Model;

use super::{Action, Cluster, Faults, State};
use crate::explore::Told;
use crate::identity::{NOBODY, Parts, readable};
use crate::rules::Seen;

impl Told for Cluster {
    const SHORT: bool = true;

    fn bounds(&self) -> String {
        let Faults { probes, lost, late, crashes, unready, deleted } = self.faults;
        let faults = [
            (probes, "failed probes"),
            (lost, "answers given up"),
            (late, "late answers"),
            (crashes, "crashes"),
            (unready, "unready pods"),
            (deleted, "deleted pods"),
        ];
        let faults: Vec<String> =
            faults.iter().filter(|(often, _)| *often > 0).map(|(often, what)| format!("{often} {what}")).collect();
        let routed = if self.routed { ", reached by a slice" } else { "" };
        let ends_first = if self.ends_first { ", which ends before the next one leads" } else { "" };
        format!("2 operators, {} pods, {} terms, {}{routed}{ends_first}", self.pods, self.terms, faults.join(", "))
    }

    fn seen(&self) -> &Seen {
        &self.seen
    }

    fn describe(&self, before: &State, action: &Action) -> String {
        let action = *action;
        let mut text = match action {
            Action::SeesPod(operator, slot) => {
                let pod = before
                    .world
                    .pod(slot)
                    .map_or("is gone or another one".into(), |pod| Outcome::PodRead(Ok(Some(pod.clone()))).to_string());
                format!("op{operator} sees p{slot}: {pod}")
            }
            Action::SeesRecord(operator) => format!("op{operator} sees the {}", before.world.record.1),
            Action::SeesSlice(operator) => {
                let slice = before.world.slice.as_ref().map(|slice| slice.content.to_string()).unwrap_or_default();
                format!("op{operator} sees the slice: {slice}")
            }
            Action::Wakes(operator) => format!("op{operator} wakes"),
            Action::CarriedOut(at) | Action::Hidden(at) => {
                let request = &before.requests[at];
                let (outcome, later) = self.carry_out(&mut before.clone(), request);
                let whose = format!("op{}: {}", request.operator, request.command);
                let how = match (action, later, request.awaited) {
                    (Action::Hidden(_), ..) => " (carried out; the answer is on its way)",
                    (_, true, _) => " (answered, and not done yet)",
                    (_, _, false) => " (late: nobody waits for it)",
                    _ => "",
                };
                format!("{whose} -> {outcome}{how}")
            }
            Action::Answered(at) => {
                format!("op{} is answered: {}", before.requests[at].operator, before.requests[at].command)
            }
            Action::GivesUp(at) => {
                format!("op{} gives up waiting: {}", before.requests[at].operator, before.requests[at].command)
            }
            Action::Crashes(operator) => format!("op{operator} crashes, and begins anew"),
            Action::ProbeFails(operator) => format!("op{operator} finds that the leader fails its probe"),
            Action::Unready(slot) => format!("p{slot} is not ready any more"),
            Action::Ready(slot) => format!("p{slot} is ready again"),
            Action::Deleted(slot) => format!("p{slot} is deleted"),
            Action::Ended(slot) => format!("p{slot} has ended"),
            Action::Created(slot) => format!("p{slot} is made anew"),
        };
        text = readable(&text);
        if let Some(broken) = self.next_state(before, action).and_then(|after| after.world.broken) {
            text = format!("{text}\n=> {broken}");
        }
        text
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let turned = if self.alike { self.identity(true) } else { u64::MAX };
        self.identity(false).min(turned).hash(hasher);
    }
}

impl State {
    fn identity(&self, turned: bool) -> u64 {
        let mut parts = Parts::new(turned);
        self.world.pods.iter().flatten().for_each(|pod| parts.push(NOBODY, pod.shape()));
        parts.push(NOBODY, self.world.record.shape());
        self.world.slice.iter().for_each(|slice| parts.push(NOBODY, slice.shape()));
        for (at, number) in (if turned { [1, 0] } else { [0, 1] }).into_iter().enumerate() {
            parts.set_clock(at, Some(self.operators[number].now));
            let at = u8::try_from(at).unwrap_or(NOBODY);
            parts.push(at, self.operators[number].shape());
            let requests = self.requests.iter().filter(|request| request.operator == number);
            requests.for_each(|request| parts.push(at, request.shape()));
        }
        let mut hasher = DefaultHasher::new();
        let present: Vec<bool> = self.world.pods.iter().map(Option::is_some).collect();
        (parts.identity(), present, &self.world.made, &self.world.promoted.as_ref().map(|(term, uid)| (term, uid)))
            .hash(&mut hasher);
        (&self.world.broken, self.world.shown, &self.world.running, self.left, self.requests.len()).hash(&mut hasher);
        hasher.finish()
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.identity(false) == other.identity(false)
    }
}

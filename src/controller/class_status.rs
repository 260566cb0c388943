//! The condition `Ready` of the classes. A class with a shared store has a task that reports it; this file reports all others.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use lictor_api::{
    Classes, ElectionClass, ElectionClassStatus, READY, Refusal, STALLED, condition, shared_class, with_page,
    with_transition_times,
};
use lictor_core::{ClaimState, Timestamp};
use lictor_locks::lease::ClaimUpdate;
use lictor_process::{monotonic, spawn, wall};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::kubernetes::ElectionClasses;
use crate::wording::in_seconds;

/// How long to wait after a status could not be written, for example because the operator lacks the right.
const AGAIN: Duration = Duration::from_secs(60);

/// Writes the status of the classes that have no shared store. Dropping it ends its task.
pub(super) struct ClassReporter(watch::Sender<Classes>);

impl ClassReporter {
    pub(super) fn start(
        client: &Client,
        timeout: Duration,
        controller: &str,
        claim: watch::Receiver<ClaimUpdate>,
    ) -> Self {
        let (sender, classes) = watch::channel(Classes::new());
        let writer = ElectionClasses::new(client.clone(), timeout);
        spawn(report(writer, controller.to_owned(), classes, claim));
        Self(sender)
    }

    /// Takes the current classes.
    pub(super) fn apply(&self, classes: &Classes) {
        self.0.send_if_modified(|known| {
            let differs = known != classes;
            known.clone_from(classes);
            differs
        });
    }
}

async fn report(
    writer: ElectionClasses,
    controller: String,
    mut classes: watch::Receiver<Classes>,
    mut claim: watch::Receiver<ClaimUpdate>,
) {
    let mut not_before = Instant::now();
    loop {
        let acts = matches!(claim.borrow_and_update().state, ClaimState::Acting(until) if monotonic() < until);
        let served = |class: &&ElectionClass| class.spec.controller == controller;
        let seen: Vec<_> = classes.borrow_and_update().values().filter(served).cloned().collect();
        let new = seen.iter().filter_map(|class| Some((class, plain_status(class, wall())?)));
        let new: Vec<_> = if acts && Instant::now() >= not_before { new.collect() } else { Vec::new() };
        for (class, status) in new {
            // A conflict means that the class has changed, and the watch is about to show it.
            if let Err(Some(failure)) = writer.write_status(class, &status).await {
                tracing::debug!(class = class.metadata.name, "{}", failure.text());
                not_before = Instant::now() + AGAIN;
            }
        }
        let changed = tokio::select! {
            biased;
            changed = classes.changed() => changed,
            changed = claim.changed() => changed,
            () = sleep_until(not_before), if Instant::now() < not_before => Ok(()),
        };
        if changed.is_err() {
            return;
        }
    }
}

/// The new status of a class that has no shared store, if it differs from the present one.
fn plain_status(class: &ElectionClass, wall: Timestamp) -> Option<ElectionClassStatus> {
    let generation = class.metadata.generation.unwrap_or_default();
    let ready = match shared_class(class) {
        Some(Ok(_)) => return None,
        Some(Err(Refusal { reason, message })) => condition(READY, false, reason, message, generation),
        None => condition(READY, true, "Served", "the locks of this class are Leases", generation),
    };
    let before = class.status.clone().unwrap_or_default();
    let status = ElectionClassStatus {
        observed_generation: Some(generation),
        conditions: complete(ready, &before.conditions, wall),
        ..before.clone()
    };
    (status != before).then_some(status)
}

/// The conditions of a class, derived from `Ready`. If `Ready` is not True, its message ends with the page to read. kstatus also expects
/// `Stalled` if only a change of the class helps.
pub(super) fn complete(mut ready: Condition, before: &[Condition], wall: Timestamp) -> Vec<Condition> {
    if ready.status != "True" {
        ready.message = with_page(&ready.message, "ready-of-a-class");
    }
    let stalled = (ready.reason == "InvalidClass").then(|| Condition {
        type_: STALLED.into(),
        status: "True".into(),
        ..ready.clone()
    });
    let all = [ready].into_iter().chain(stalled).collect();
    with_transition_times(all, before, in_seconds(wall))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(spec: &serde_json::Value) -> ElectionClass {
        let object = json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": "c", "generation": 2}, "spec": spec});
        serde_json::from_value(object).expect("a class")
    }

    fn told(status: &ElectionClassStatus) -> Vec<(&str, &str, &str)> {
        status.conditions.iter().map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_str())).collect()
    }

    #[test]
    fn a_class_with_leases_is_ready_and_told_once() {
        let mut class = class(&json!({"lease": {}}));
        let status = plain_status(&class, Timestamp(1_000)).expect("it is new");
        assert_eq!((status.observed_generation, told(&status)), (Some(2), vec![(READY, "True", "Served")]));
        class.status = Some(status);
        assert_eq!(plain_status(&class, Timestamp(9_000)), None);
        class.metadata.generation = Some(3);
        assert_eq!(plain_status(&class, Timestamp(9_000)).and_then(|status| status.observed_generation), Some(3));
    }

    #[test]
    fn a_class_in_consul_is_told_by_its_task_unless_it_contradicts_itself() {
        let settings = json!({"address": "http://consul.example:8500", "clusterName": "west"});
        assert_eq!(plain_status(&class(&json!({"consul": settings})), Timestamp(0)), None);
        let invalid = class(&json!({"consul": settings, "keyTemplate": "{name}"}));
        let status = plain_status(&invalid, Timestamp(0)).expect("it is new");
        assert_eq!(told(&status), [(READY, "False", "InvalidClass"), (STALLED, "True", "InvalidClass")]);
        assert!(status.conditions.iter().all(|one| one.message.ends_with("troubleshooting.md#ready-of-a-class")));
    }
}

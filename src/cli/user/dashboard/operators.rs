//! Whether an operator acts, by the Lease that the acting replica renews.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use lictor_api::{BUILT_IN_CLASS, DEFAULT_CONTROLLER};
use serde::Serialize;
use tokio::sync::watch::Sender;
use tokio::time::{Instant, sleep};

use crate::cli::user::reading::Reader;

/// How often to read the Leases.
const PERIOD: Duration = Duration::from_secs(5);
/// The lease duration of an operator whose Lease names none, in seconds.
const USUAL: i32 = 15;

/// The classes for whose elections no operator acts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Operators {
    /// Why no operator acts, by the name of the class.
    pub(super) idle: BTreeMap<String, String>,
    /// Why it can't be seen whether an operator acts.
    pub(super) unknown: Option<String>,
}

/// The Leases as they were when each of them changed last. Their own times come from other machines' clocks, so only a
/// change counts.
#[derive(Default)]
struct Renewals(BTreeMap<(Option<String>, String), (Option<String>, Instant)>);

/// Keeps up to date whether an operator acts.
pub(super) async fn follow(reader: &Reader, publish: Sender<Operators>) -> Infallible {
    let mut renewals = Renewals::default();
    loop {
        let now = look(reader, &mut renewals).await;
        publish.send_if_modified(|told| std::mem::replace(told, now.clone()) != now);
        sleep(PERIOD).await;
    }
}

async fn look(reader: &Reader, renewals: &mut Renewals) -> Operators {
    // Without the right to read classes, only the built-in one is known.
    let classes = reader.classes().await.unwrap_or_default();
    let built_in = (BUILT_IN_CLASS.to_owned(), DEFAULT_CONTROLLER.to_owned());
    let classes = classes.into_iter().map(|(name, class)| (name, class.spec.controller));
    let mut served: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (class, controller) in BTreeMap::from([built_in]).into_iter().chain(classes).collect::<BTreeMap<_, _>>() {
        served.entry(controller.replace('/', "-")).or_default().push(class);
    }
    let mut told = Operators::default();
    for (name, classes) in served {
        match reader.leases(&name).await {
            Ok(leases) => {
                let why = renewals.idle(&name, &leases, Instant::now());
                told.idle.extend(
                    why.into_iter().flat_map(|why| classes.iter().map(move |class| (class.clone(), why.clone()))),
                );
            }
            Err(why) => told.unknown = Some(why),
        }
    }
    told
}

impl Renewals {
    /// Returns why no operator acts by a Lease of this name. `None`: one does, or it is too early to tell.
    fn idle(&mut self, name: &str, leases: &[Lease], now: Instant) -> Option<String> {
        let mut why = format!("no namespace has a Lease {name}");
        for lease in leases {
            let spec = lease.spec.clone().unwrap_or_default();
            let place = (lease.namespace(), name.to_owned());
            let seen = self.0.entry(place).or_insert_with(|| (lease.resource_version(), now));
            if seen.0 != lease.resource_version() {
                *seen = (lease.resource_version(), now);
            }
            let duration = spec.lease_duration_seconds.unwrap_or(USUAL).unsigned_abs().into();
            let patience = 2 * Duration::from_secs(duration).max(PERIOD);
            let holder = spec.holder_identity.unwrap_or_default();
            if !holder.is_empty() && now.duration_since(seen.1) < patience {
                return None;
            }
            let place = lease.namespace().unwrap_or_default();
            why = if holder.is_empty() {
                format!("no replica holds the Lease {place}/{name}")
            } else {
                let seconds = patience.as_secs();
                format!("{holder} has not renewed the Lease {place}/{name} for {seconds} s or longer")
            };
        }
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(version: u32, holder: &str) -> Lease {
        let metadata = json!({"name": "lictor", "namespace": "ops", "resourceVersion": version.to_string()});
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 3});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn an_operator_acts_while_its_lease_changes() {
        let (mut renewals, start) = (Renewals::default(), Instant::now());
        let mut idle = |second, leases: &[Lease]| {
            renewals.idle("lictor", leases, start + Duration::from_secs(second)).unwrap_or_default()
        };
        assert_eq!(idle(0, &[lease(1, "a")]), "", "it is too early to tell");
        assert_eq!(idle(9, &[lease(1, "a")]), "");
        assert!(idle(10, &[lease(1, "a")]).contains("a has not renewed the Lease ops/lictor for 10 s"));
        assert_eq!(idle(11, &[lease(2, "b")]), "", "another replica has taken over");
        assert!(idle(12, &[lease(3, "")]).contains("no replica holds the Lease ops/lictor"));
        assert!(idle(13, &[]).contains("no namespace has a Lease lictor"));
    }
}

//! Another installation with the same controller. Both would write for the same elections: never two leaders, by the protocol, but
//! each would undo what the other decides.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

use super::{Namespaces, within};

/// How often a Lease is looked at that may be a rival's.
const PERIOD: Duration = Duration::from_secs(1);
/// For so long at most: whoever is silent for that long does not act.
const LONGEST: Duration = Duration::from_secs(300);

/// The namespace of another operator whose Lease has this name and is being renewed, among the namespaces that are served. It is
/// found out by watching it for as long as it lasts, since the times in it are another machine's. What can't be read, is passed over:
/// then nothing is known of a rival.
pub async fn rival(client: &Client, served: &Namespaces, own: &str, name: &str, timeout: Duration) -> Option<String> {
    let listing = ListParams::default().fields(&format!("metadata.name={name}"));
    let mut suspects = Vec::new();
    for (_, api) in served.apis::<Lease>(client) {
        let listed = within(timeout, api.list(&listing)).await.map(|leases| leases.items);
        suspects
            .extend(listed.unwrap_or_default().into_iter().filter(|lease| lease.namespace().as_deref() != Some(own)));
    }
    for seen in suspects.iter().filter(|lease| is_held(lease)) {
        let namespace = seen.namespace()?;
        let api: Api<Lease> = Api::namespaced(client.clone(), &namespace);
        let seconds = seen.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let lasts = Duration::from_secs(seconds.try_into().unwrap_or_default()).min(LONGEST);
        tracing::info!(lease = format!("{namespace}/{name}"), "looks for {lasts:?} whether another lictor acts");
        let mut waited = Duration::ZERO;
        while waited <= lasts {
            sleep(PERIOD).await;
            waited += PERIOD;
            match within(timeout, api.get_opt(name)).await {
                Ok(Some(now)) if is_held(&now) && now.resource_version() != seen.resource_version() => {
                    return Some(namespace);
                }
                Ok(Some(now)) if is_held(&now) => {}
                Ok(_) => break,
                Err(_) => {}
            }
        }
    }
    None
}

fn is_held(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder.is_some_and(|holder| !holder.is_empty())
}

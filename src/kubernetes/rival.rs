//! Another installation with the same controller. Both would write for the same elections. The protocol still prevents two leaders, but
//! each installation would undo the other's decisions.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use lictor_kubernetes::within;
use tokio::time::sleep;

use super::Namespaces;

/// How often to read a Lease that may be a rival's.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest time to watch such a Lease. An operator that is silent for this long does not act.
const LONGEST: Duration = Duration::from_secs(300);

/// Returns the namespace of another operator whose Lease has this name and is being renewed, among the served namespaces. It
/// watches each Lease for as long as the Lease lasts, because the times in it come from another machine's clock. It skips Leases
/// that can't be read.
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
        tracing::info!(
            lease = format!("{namespace}/{name}"),
            "waiting for {lasts:?} to see whether another lictor acts"
        );
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

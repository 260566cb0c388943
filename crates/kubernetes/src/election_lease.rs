//! The Lease of an election: the marks by which it is recognised, and how it is read. Only the operator writes it (src/store/lease.rs).

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use lictor_core::{Record, Stored, Term};

use super::version_of;

/// The annotation with the whole record, as JSON.
pub const RECORD_ANNOTATION: &str = "lictor.dev/record";
/// The label that says which program manages the Lease.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of that label.
pub const LICTOR: &str = "lictor";
/// The label with the election's uid, by which the election's locks are listed.
pub const ELECTION_LABEL: &str = "lictor.dev/election-uid";

/// Returns the name of the election whose lock a Lease is, or `None` if lictor's operator did not create it.
pub fn election_of(lease: &Lease) -> Option<String> {
    let stored = stored(lease);
    let of = || stored.record().map_or_else(|| lease.name_any(), |record| record.election_name.clone());
    (!matches!(stored, Stored::Foreign(_))).then(of)
}

/// Returns the state of an election's lock.
pub fn stored(lease: &Lease) -> Stored {
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let json = lease.annotations().get(RECORD_ANNOTATION);
    let labels = lease.labels();
    let labelled = labels.get(MANAGED_BY).is_some_and(|by| by == LICTOR) || labels.contains_key(ELECTION_LABEL);
    if json.is_none() && !labelled {
        let holder = holder.unwrap_or_else(|| "nobody".into());
        let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
        return Stored::Foreign(format!("the Lease {namespace}/{name}, held by {holder}, was not made by lictor"));
    }
    let version = version_of(lease);
    let shown_term = Term(spec.lease_transitions.unwrap_or(0).max(0).into());
    match json.and_then(|json| serde_json::from_str::<Record>(json).ok()) {
        Some(record)
            if record.holder.as_ref().and_then(|holder| holder.pod.as_ref()) == holder.as_ref()
                && record.term == shown_term =>
        {
            Stored::Ours(version, record)
        }
        Some(record) => Stored::Damaged(version, record.term.raised_by_hint(shown_term)),
        None => Stored::Damaged(version, shown_term),
    }
}

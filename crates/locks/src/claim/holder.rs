//! A replica as the holder of a claim.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A replica, as it writes itself into the operator's Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The replica's name, unique for each start of a process. This annotation counts only together with the same `holderIdentity`, because
    /// a replica of an earlier version leaves the annotation of its predecessor.
    pub identity: String,
    /// The address at which the replica answers its peers. It listens there for as long as its process lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The uid of the replica's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
}

impl Holder {
    /// L5: whether `self` was an earlier process where this replica is now. One address has one listener at a time, and a container in
    /// another pod has another uid.
    pub(super) fn was_before(&self, present: &Self) -> bool {
        self.identity != present.identity
            && self.address.is_some()
            && self.pod_uid.is_some()
            && (self.address, &self.pod_uid) == (present.address, &present.pod_uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows L5.
    #[test]
    fn only_an_earlier_process_at_the_same_address_in_the_same_pod_was_before() {
        let at = |identity: &str, address: Option<&str>, uid: Option<&str>| Holder {
            identity: identity.into(),
            address: address.map(|address| address.parse().expect("an address")),
            pod_uid: uid.map(Into::into),
        };
        let (own, other) = (Some("10.0.0.7:8081"), Some("10.0.0.8:8081"));
        let present = at("b", own, Some("u"));
        assert!(at("a", own, Some("u")).was_before(&present));
        for not in [at("b", own, Some("u")), at("a", other, Some("u")), at("a", own, Some("v")), at("a", own, None)] {
            assert!(!not.was_before(&present), "{not:?}");
        }
        // Nothing is known of where they are.
        assert!(!at("a", None, None).was_before(&at("b", None, None)));
        assert!(!at("a", own, None).was_before(&at("b", own, None)));
        assert!(!at("a", None, Some("u")).was_before(&at("b", None, Some("u"))));
    }
}

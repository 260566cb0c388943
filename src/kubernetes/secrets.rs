//! The Secrets that classes refer to. lictor watches each by its name, so it needs no right to list all Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures::stream::{self, BoxStream, select_all};
use futures::{Stream, StreamExt, future};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use lictor_api::SecretId;
use lictor_kubernetes::{Change, WatchFailure, changes};
use serde::Deserialize;

/// The data of a Secret. `{:?}` does not show the values, so that no log has them.
#[derive(Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct SecretData(BTreeMap<String, ByteString>);

impl SecretData {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(|value| value.0.as_slice())
    }

    /// Returns all keys, for messages to a person.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys()).finish()
    }
}

/// A report about one Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretChange {
    /// The Secret has this data.
    Present(SecretData),
    /// There is no such Secret.
    Absent,
    /// The watch does not work at present, and is retried. The earlier data may still be used.
    Broken(WatchFailure),
}

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s::Secret)]
struct SlimSecret {
    metadata: ObjectMeta,
    #[serde(default)]
    data: Option<SecretData>,
}

/// Watches these Secrets, with a connection for each. A Secret without a namespace is in `own_namespace`. The stream never ends,
/// even if there are no Secrets.
pub fn watch_secrets(
    client: &Client,
    own_namespace: &str,
    secrets: BTreeSet<SecretId>,
) -> BoxStream<'static, (SecretId, SecretChange)> {
    let each = secrets.into_iter().map(|secret| watch_secret(client, own_namespace, secret));
    select_all(each).chain(stream::pending()).boxed()
}

fn watch_secret(
    client: &Client,
    own_namespace: &str,
    secret: SecretId,
) -> impl Stream<Item = (SecretId, SecretChange)> + Send + Unpin + use<> {
    let namespace = secret.namespace.as_deref().unwrap_or(own_namespace);
    let api: Api<SlimSecret> = Api::namespaced(client.clone(), namespace);
    let selection = ListParams::default().fields(&format!("metadata.name={}", secret.name));
    let data = |secret: SlimSecret| secret.data.unwrap_or_default();
    changes("secrets", Some(namespace.to_owned()), api, selection, data).filter_map(move |change| {
        let change = match change {
            // The field selector matches one Secret at most.
            Change::All(_, _, mut found) => Some(found.pop().map_or(SecretChange::Absent, SecretChange::Present)),
            Change::Applied(data) => Some(SecretChange::Present(data)),
            Change::Deleted(_) => Some(SecretChange::Absent),
            Change::Broken(_, failure) => Some(SecretChange::Broken(failure)),
            // The earlier data is still valid, or the list follows.
            Change::Resumed(_) | Change::Rewound(_) => None,
        };
        future::ready(change.map(|change| (secret.clone(), change)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_a_secret_for_logs_has_no_values() {
        let secret: SlimSecret =
            serde_json::from_value(json!({"metadata": {"name": "consul"}, "data": {"token": "c2VjcmV0"}})).unwrap();
        let text = format!("{secret:?}");
        assert!(text.contains("token") && !text.contains("secret\"") && !text.contains("115, 101"), "{text}");
        assert_eq!(secret.data.unwrap_or_default().get("token"), Some(b"secret".as_slice()));
    }
}

//! The controllers that have created pods: reads the labels that they select their pods by (O1).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use lictor_core::{Controller, ControllerKind, Failure, Selection};
use lictor_kubernetes::{failure, within};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The controllers of one cluster.
pub struct Controllers {
    client: Client,
    timeout: Duration,
}

impl Controllers {
    /// Creates the reader. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Reads the labels that a controller selects its pods by. A controller that is gone creates no pods, so it selects by none.
    ///
    /// # Errors
    /// If there is no answer. If the API server refuses, the result is `None`.
    pub async fn selection(&self, namespace: &str, controller: &Controller) -> Result<Selection, Failure> {
        match controller.kind {
            ControllerKind::ReplicaSet => self.read::<ReplicaSet>(namespace, controller).await,
            ControllerKind::StatefulSet => self.read::<StatefulSet>(namespace, controller).await,
            ControllerKind::DaemonSet => self.read::<DaemonSet>(namespace, controller).await,
            ControllerKind::Job => self.read::<Job>(namespace, controller).await,
            ControllerKind::ReplicationController => self.read::<ReplicationController>(namespace, controller).await,
            ControllerKind::Other => Ok(None),
        }
    }

    async fn read<K>(&self, namespace: &str, controller: &Controller) -> Result<Selection, Failure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        match within(self.timeout, api.get_opt(&controller.name)).await {
            Ok(object) => {
                let same = object.filter(|object| object.meta().uid.as_ref() == Some(&controller.uid.0));
                let object = same.and_then(|object| serde_json::to_value(object).ok()).unwrap_or_default();
                Ok(Some(keys(&object["spec"]["selector"])))
            }
            Err(error) => match failure("get", &K::plural(&()), &error) {
                failure if failure.is_refused() => Ok(None),
                failure => Err(failure),
            },
        }
    }
}

/// The labels of a selector, including those of its expressions. The selector of a ReplicationController is a map of labels itself.
fn keys(selector: &Value) -> Box<[String]> {
    let (labels, expressions) = (selector["matchLabels"].as_object(), selector["matchExpressions"].as_array());
    let plain = selector.as_object().filter(|_| labels.is_none() && expressions.is_none());
    let expressions = expressions.into_iter().flatten().filter_map(|expression| expression["key"].as_str());
    let labels = labels.or(plain).into_iter().flatten().map(|(key, _)| key.as_str());
    labels.chain(expressions).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_labels_of_selectors() {
        let both = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "role", "operator": "NotIn", "values": ["leader"]}, {"key": "app", "operator": "Exists"}],
        });
        assert_eq!(*keys(&both), ["app", "role"]);
        assert_eq!(*keys(&json!({"matchExpressions": [{"key": "role", "operator": "DoesNotExist"}]})), ["role"]);
        assert_eq!(*keys(&json!({"app": "web", "role": "a"})), ["app", "role"]);
        assert!(keys(&json!({})).is_empty() && keys(&Value::Null).is_empty());
    }
}

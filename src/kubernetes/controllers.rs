//! The controllers that have made pods: reads what they select their pods by (O1).

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use lictor_core::{Controller, ControllerKind, Failure, Selection};
use serde_json::Value;

use super::{failure, within};

/// The controllers of one cluster.
pub struct Controllers {
    client: Client,
    timeout: Duration,
}

impl Controllers {
    /// Creates it. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Reads the labels that a controller selects its pods by. One that is gone makes no pods, so it selects by none.
    ///
    /// # Errors
    /// If there is no answer. Where the API server refuses to tell, the answer is `None`.
    pub async fn selection(&self, namespace: &str, controller: &Controller) -> Result<Selection, Failure> {
        let Some(resource) = resource(controller.kind) else { return Ok(None) };
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        match within(self.timeout, api.get_opt(&controller.name)).await {
            Ok(object) => {
                let same = object.filter(|object| object.metadata.uid.as_ref() == Some(&controller.uid.0));
                Ok(Some(same.map(|object| keys(&object.data["spec"]["selector"])).unwrap_or_default()))
            }
            Err(error) => match failure("get", &resource.plural, &error) {
                Failure::Refused(_) => Ok(None),
                failure => Err(failure),
            },
        }
    }
}

fn resource(kind: ControllerKind) -> Option<ApiResource> {
    Some(match kind {
        ControllerKind::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        ControllerKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        ControllerKind::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        ControllerKind::Job => ApiResource::erase::<Job>(&()),
        ControllerKind::ReplicationController => ApiResource::erase::<ReplicationController>(&()),
        ControllerKind::Other => return None,
    })
}

/// The labels of a selector, those of its expressions as well. A ReplicationController has none: its selector is the labels themselves.
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

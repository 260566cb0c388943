//! Pods: reads, lists and writes them. This is the only place in this program that writes to pods.

pub(super) mod protobuf;
mod provenance;
mod slim;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client};
use lictor_core::{
    ELECTION_ANNOTATION, Failure, Operator, Pod, PodChange, PodOutcome, Provenance, Selector, Uid, WritePod,
};
use lictor_kubernetes::{failure, within};
use serde_json::{Value, json};

use self::provenance::provenance;
pub(super) use self::slim::SlimPod;
use super::workloads::FIELD_MANAGER;

/// Elections, each with the name of a pod that it has marked.
pub type Marked = Vec<(String, String)>;

/// The number of pods whose metadata are listed at a time: a kilobyte each. For each page, the API server looks through all pods of the
/// namespace.
const PAGE: u32 = 5000;

/// The pods of one cluster.
#[derive(Clone)]
pub struct Pods {
    client: Client,
    timeout: Duration,
}

impl Pods {
    /// Creates the client. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Writes one pod, if it still has the uid and the version that the write is for.
    pub async fn write(&self, namespace: &str, write: &WritePod) -> PodOutcome {
        match write.change {
            PodChange::Delete | PodChange::Evict => self.delete(namespace, write).await,
            PodChange::Promote | PodChange::Demote | PodChange::Remove | PodChange::Release => {
                self.patch(namespace, write).await
            }
        }
    }

    /// E2: deletes a pod, by its own grace period, or evicts it. Returns the pod as it is then.
    async fn delete(&self, namespace: &str, write: &WritePod) -> PodOutcome {
        let api = self.api(namespace);
        let preconditions =
            Preconditions { uid: Some(write.uid.0.clone()), resource_version: Some(write.version.to_string()) };
        let options = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let (verb, resource, done) = if write.change == PodChange::Evict {
            // kube's own eviction sends the preconditions under a name that the API server ignores.
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": write.name}, "deleteOptions": options,
            });
            let parameters = PostParams::default();
            let evicted = api.create_subresource::<Value, Value>("eviction", &write.name, &parameters, &eviction);
            ("create", "pods/eviction", within(self.timeout, evicted).await.map(drop))
        } else {
            ("delete", "pods", within(self.timeout, api.delete(&write.name, &options)).await.map(drop))
        };
        match done {
            Ok(()) => match self.read(namespace, &write.name).await {
                Ok(Some(pod)) if pod.uid == write.uid => PodOutcome::Written(Box::new(pod)),
                Ok(_) => PodOutcome::Gone,
                Err(failure) => PodOutcome::Failed(Failure::Unknown(failure.into_text())),
            },
            Err(kube::Error::Api(status)) if status.is_conflict() => PodOutcome::Conflict,
            Err(kube::Error::Api(status)) if status.is_not_found() => PodOutcome::Gone,
            Err(error) => {
                let failure = failure(verb, resource, &error);
                let refused = matches!(&error, kube::Error::Api(status) if is_by_budget(status));
                PodOutcome::Failed(if refused { Failure::Refused(failure.into_text()) } else { failure })
            }
        }
    }

    async fn patch(&self, namespace: &str, write: &WritePod) -> PodOutcome {
        let mut patch = json!({"metadata": {
            "uid": write.uid.0,
            "resourceVersion": write.version.to_string(),
            "labels": write.patch.labels,
            "annotations": write.patch.annotations,
        }});
        if let Some(finalizers) = &write.patch.finalizers {
            patch["metadata"]["finalizers"] = json!(finalizers);
        }
        let api = self.api(namespace);
        // By this name, `managedFields` distinguishes lictor's keys from those that came with the pod (O1).
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(patch);
        let patched = api.patch(&write.name, &parameters, &patch);
        match within(self.timeout, patched).await {
            Ok(pod) => PodOutcome::Written(Box::new(pod.into())),
            Err(kube::Error::Api(status)) if status.is_conflict() => PodOutcome::Conflict,
            Err(kube::Error::Api(status)) if status.is_not_found() => PodOutcome::Gone,
            Err(error) => PodOutcome::Failed(failure("patch", "pods", &error)),
        }
    }

    /// Reads one pod from the API server.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn read(&self, namespace: &str, name: &str) -> Result<Option<Pod>, Failure> {
        match within(self.timeout, self.api(namespace).get_opt(name)).await {
            Ok(pod) => Ok(pod.map(Pod::from)),
            Err(error) => Err(failure("get", "pods", &error)),
        }
    }

    /// Reads which writers own the labels and annotations of a pod, and the pod's uid.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn provenance(&self, namespace: &str, name: &str) -> Result<Option<(Uid, Provenance)>, Failure> {
        match within(self.timeout, self.api(namespace).get_metadata_opt(name)).await {
            Ok(pod) => {
                Ok(pod.map(|pod| (Uid(pod.metadata.uid.clone().unwrap_or_default()), provenance(&pod.metadata))))
            }
            Err(error) => Err(failure("get", "pods", &error)),
        }
    }

    /// Lists the pods that a selector matches. This is a consistent read, which sees every earlier write.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn list(&self, namespace: &str, selector: &Selector) -> Result<Vec<Pod>, Failure> {
        self.list_by(namespace, &as_text(selector)).await
    }

    /// Lists the pods that a selector in the form of a query matches.
    pub(super) async fn list_by(&self, namespace: &str, selector: &str) -> Result<Vec<Pod>, Failure> {
        let parameters = ListParams::default().labels(selector);
        match within(self.timeout, protobuf::list(&self.api(namespace), &parameters)).await {
            Ok(list) => Ok(list.items.into_iter().map(Pod::from).collect()),
            Err(error) => Err(failure("list", "pods", &error)),
        }
    }

    /// Lists the pods that a selector in the form of a query matches, by the election that has marked them. This is a consistent read,
    /// of the pods' metadata alone.
    pub(super) async fn list_marked(&self, namespace: &str, selector: &str) -> Result<Marked, Failure> {
        let api = self.api(namespace);
        let mut page = ListParams::default().labels(selector).limit(PAGE);
        let mut marked = Marked::new();
        loop {
            let listed = within(self.timeout, protobuf::list_metadata(&api, &page)).await;
            let listed = listed.map_err(|error| failure("list", "pods", &error))?;
            for ObjectMeta { name, annotations, .. } in listed.items.into_iter().map(|pod| pod.metadata) {
                let election = annotations.and_then(|mut all| all.remove(ELECTION_ANNOTATION));
                marked.extend(election.zip(name));
            }
            page.continue_token = listed.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() {
                return Ok(marked);
            }
        }
    }

    /// Reads the last lines of the logs of the pods with these labels, each with its pod's name.
    ///
    /// # Errors
    /// If the pods can't be listed. A log that can't be read is replaced by its failure.
    pub async fn logs(
        &self,
        namespace: &str,
        labels: &str,
        lines: i64,
    ) -> Result<Vec<(String, Result<String, Failure>)>, Failure> {
        let api = self.api(namespace);
        let listed = within(self.timeout, api.list(&ListParams::default().labels(labels))).await;
        let listed = listed.map_err(|error| failure("list", "pods", &error))?;
        let parameters = LogParams { tail_lines: Some(lines), timestamps: true, ..LogParams::default() };
        let mut logs = Vec::new();
        for name in listed.items.into_iter().filter_map(|pod| pod.metadata.name) {
            let log = within(self.timeout, api.logs(&name, &parameters)).await;
            logs.push((name, log.map_err(|error| failure("get", "pods/log", &error))));
        }
        Ok(logs)
    }

    fn api(&self, namespace: &str) -> Api<SlimPod> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Returns whether a budget speaks against an eviction. The code, 429, is also that of an API server that has too much to do.
fn is_by_budget(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "DisruptionBudget")
}

/// Returns a selector in the form of a query to the API server.
pub(super) fn as_text(selector: &Selector) -> String {
    let labels = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().map(|requirement| {
        let (key, values) = (&requirement.key, requirement.values.join(","));
        match requirement.operator {
            Operator::In => format!("{key} in ({values})"),
            Operator::NotIn => format!("{key} notin ({values})"),
            Operator::Exists => key.clone(),
            Operator::DoesNotExist => format!("!{key}"),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_as_text() {
        let selector: Selector = serde_json::from_value(json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["x", "y"]}, {"key": "b", "operator": "NotIn", "values": ["z"]},
                {"key": "c", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert_eq!(as_text(&selector), "app=web,a in (x,y),b notin (z),c,!d");
    }
}

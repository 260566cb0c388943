//! Records every revision of the EndpointSlices in a namespace, including those of other writers, and checks the promises at each.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use super::revisions::record;
use super::{Lab, eventually};

/// The state of one slice at one revision.
#[derive(Clone, Debug)]
pub struct SliceRevision {
    pub version: u64,
    pub name: String,
    pub uid: String,
    /// The slice's Service.
    pub service: String,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The term, if lictor wrote the slice.
    pub term: Option<i64>,
    /// The addresses in the slice.
    pub addresses: BTreeSet<String>,
    /// The ready ones among them.
    pub ready: BTreeSet<String>,
    /// The names of the pods.
    pub pods: Vec<String>,
    pub deleted: bool,
}

/// The addresses that a Service reaches in one family after a revision of one of its slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    pub version: u64,
    pub addresses: BTreeSet<String>,
}

/// Records from its creation on.
pub struct SliceRecorder {
    api: Api<EndpointSlice>,
    revisions: Arc<Mutex<Vec<SliceRevision>>>,
    task: JoinHandle<()>,
}

impl Lab {
    /// Records every revision of the slices from now on.
    pub async fn record_slices(&self) -> SliceRecorder {
        SliceRecorder::start(self.client.clone(), &self.namespace).await
    }
}

impl SliceRecorder {
    /// Starts with all existing slices.
    pub async fn start(client: Client, namespace: &str) -> Self {
        let api: Api<EndpointSlice> = Api::namespaced(client, namespace);
        let (revisions, task) = record(api.clone(), revision).await;
        Self { api, revisions, task }
    }

    /// Returns all revisions so far, in the API server's order.
    pub fn revisions(&self) -> Vec<SliceRevision> {
        let mut revisions = self.revisions.lock().unwrap().clone();
        revisions.sort_by_key(|revision| revision.version);
        revisions
    }

    /// Waits until everything that has happened so far is recorded, by creating a slice of no Service. Returns its version.
    pub async fn catch_up(&self) -> u64 {
        let object = json!({"metadata": {"generateName": "recorder-"}, "addressType": "IPv4", "endpoints": []});
        let object = serde_json::from_value(object).expect("a slice");
        let mark = self.api.create(&PostParams::default(), &object).await.expect("a slice can be made").name_any();
        let version = eventually("the recorder catches up", || async {
            let revisions = self.revisions.lock().unwrap();
            let seen = revisions.iter().find(|revision| revision.name == mark);
            seen.map(|seen| seen.version).ok_or_else(|| format!("{mark} is not seen"))
        })
        .await;
        self.api.delete(&mark, &DeleteParams::default()).await.expect("a slice can be deleted");
        version
    }

    /// Catches up, and panics unless at every revision each Service reached at most one address in each family, by all its slices, and the
    /// terms in each slice only rose. Returns how many times a Service began to reach another address than it had reached before.
    pub async fn assert_promises(&self) -> usize {
        self.assert_promises_but_for(&[]).await
    }

    /// Does the same, if the test itself wrote slices at these versions. The content of such a revision does not count until the slice's
    /// next one.
    pub async fn assert_promises_but_for(&self, by_hand: &[u64]) -> usize {
        self.catch_up().await;
        promises(&self.revisions(), by_hand)
    }

    /// Does the same for Services of one name in several namespaces that reach one leader together. One API server serves them, so its
    /// versions give the order.
    pub async fn assert_joint_promises(all: &[&Self]) -> usize {
        for recorder in all {
            recorder.catch_up().await;
        }
        let mut revisions: Vec<SliceRevision> = all.iter().flat_map(|recorder| recorder.revisions()).collect();
        revisions.sort_by_key(|revision| revision.version);
        promises(&revisions, &[])
    }

    /// Panics unless a Service reached exactly one address in a family at every revision from this version on.
    pub fn assert_never_none(&self, service: &str, family: &str, since: u64) {
        never_none(&self.revisions(), service, family, since);
    }

    /// Panics unless a Service reached a ready address at every revision from this version on, by any of its slices. Returns how many
    /// revisions these were.
    pub fn assert_always_somebody(&self, service: &str, family: &str, since: u64) -> usize {
        always_somebody(&self.revisions(), service, family, since)
    }

    /// Panics unless a Service reached at most one address in a family at every revision from this version on.
    pub fn assert_at_most_one(&self, service: &str, family: &str, since: u64) {
        for Reached { version, addresses } in from(&self.reached(service, family), service, since) {
            assert!(addresses.len() <= 1, "{service} reaches {addresses:?} ({family}) at version {version}");
        }
    }

    /// Returns how often the slices of a Service were written or deleted after a version.
    pub fn writes_since(&self, service: &str, since: u64) -> usize {
        self.revisions().iter().filter(|revision| revision.service == service && revision.version > since).count()
    }

    /// Returns the addresses that a Service reached after each revision of its slices in a family.
    pub fn reached(&self, service: &str, family: &str) -> Vec<Reached> {
        reached(&self.revisions(), service, family, &[])
    }
}

impl Drop for SliceRecorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn reached(revisions: &[SliceRevision], service: &str, family: &str, by_hand: &[u64]) -> Vec<Reached> {
    let mut shown: BTreeMap<&str, &BTreeSet<String>> = BTreeMap::new();
    let mut found = Vec::new();
    for revision in revisions.iter().filter(|revision| revision.service == service && revision.family == family) {
        if revision.deleted || by_hand.contains(&revision.version) {
            shown.remove(revision.uid.as_str());
        } else {
            shown.insert(&revision.uid, &revision.addresses);
        }
        let addresses = shown.values().copied().flatten().cloned().collect();
        found.push(Reached { version: revision.version, addresses });
    }
    found
}

fn promises(revisions: &[SliceRevision], by_hand: &[u64]) -> usize {
    let services: BTreeSet<(&str, &str)> = revisions
        .iter()
        .filter(|revision| !revision.service.is_empty())
        .map(|revision| (revision.service.as_str(), revision.family.as_str()))
        .collect();
    let mut switches = 0;
    for (service, family) in services {
        let mut last: Option<String> = None;
        for Reached { version, addresses } in reached(revisions, service, family, by_hand) {
            assert!(
                addresses.len() <= 1,
                "{service} reaches {addresses:?} ({family}) at version {version}: {revisions:#?}"
            );
            if let Some(address) = addresses.first()
                && last.replace(address.clone()).as_ref() != Some(address)
            {
                switches += 1;
            }
        }
    }
    let mut terms: BTreeMap<&str, i64> = BTreeMap::new();
    for revision in revisions.iter().filter(|revision| !by_hand.contains(&revision.version)) {
        let Some(term) = revision.term else { continue };
        let before = terms.insert(&revision.uid, term).unwrap_or(term);
        assert!(
            before <= term,
            "{}: term {term} after {before} at version {}: {revisions:#?}",
            revision.name,
            revision.version
        );
    }
    switches
}

fn always_somebody(revisions: &[SliceRevision], service: &str, family: &str, since: u64) -> usize {
    let ready = |revision: &SliceRevision| SliceRevision { addresses: revision.ready.clone(), ..revision.clone() };
    let ready: Vec<SliceRevision> = revisions.iter().map(ready).collect();
    let reached = reached(&ready, service, family, &[]);
    let counted = from(&reached, service, since);
    for Reached { version, addresses } in counted {
        assert!(
            !addresses.is_empty(),
            "{service} reaches nobody who is ready ({family}) at version {version}: {revisions:#?}"
        );
    }
    counted.len()
}

/// The addresses that a Service reached at a version, and from then on.
fn from<'a>(reached: &'a [Reached], service: &str, since: u64) -> &'a [Reached] {
    let begins = reached.iter().rposition(|reached| reached.version <= since);
    &reached[begins.unwrap_or_else(|| panic!("{service} has no slice at version {since}"))..]
}

fn never_none(revisions: &[SliceRevision], service: &str, family: &str, since: u64) {
    let reached = reached(revisions, service, family, &[]);
    for Reached { version, addresses } in from(&reached, service, since) {
        assert_eq!(
            addresses.len(),
            1,
            "{service} reaches {addresses:?} ({family}) at version {version}: {revisions:#?}"
        );
    }
}

fn revision(slice: &EndpointSlice, deleted: bool) -> SliceRevision {
    let label = |name: &str| slice.labels().get(name).cloned().unwrap_or_default();
    let own = label("endpointslice.kubernetes.io/managed-by") == "lictor.dev";
    let term = slice.annotations().get("lictor.dev/term").and_then(|term| term.parse().ok());
    let pods = slice.endpoints.iter().filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone());
    // As in kube-proxy, a missing condition counts as true.
    let is_ready =
        |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
    SliceRevision {
        version: slice.resource_version().and_then(|version| version.parse().ok()).expect("a version is a number"),
        name: slice.name_any(),
        uid: slice.uid().unwrap_or_default(),
        service: label("kubernetes.io/service-name"),
        family: slice.address_type.clone(),
        term: term.filter(|_| own),
        addresses: slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.clone()).collect(),
        ready: slice.endpoints.iter().filter(is_ready).flat_map(|endpoint| endpoint.addresses.clone()).collect(),
        pods: pods.collect(),
        deleted,
    }
}

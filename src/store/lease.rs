//! Locks in Kubernetes Leases. Each election owns one, and lictor writes it only when something changes.
//!
//! `spec.holderIdentity` is the leader's pod and `spec.leaseTransitions` the term, for `kubectl get lease` and other tools. The whole
//! record is in an annotation. If the two do not agree, a person edited the Lease, and lictor does not believe it.
//!
//! H13: a Lease has no owner, so that it stays when its election is deleted while no operator runs. Its record says which pods the operator
//! wrote to, and what.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use lictor_core::{Failure, FollowedLock, Key, Record, RecordOutcome, StoreId, Stored, Uid, Version};
use lictor_kubernetes::{
    Change, ELECTION_LABEL, LICTOR, MANAGED_BY, RECORD_ANNOTATION, changes, failure, stored, version_of, within,
};
use serde_json::json;

use super::{LockStore, Owner, StoreEvent, StoreScope};
use crate::kubernetes::{Batcher, Namespaces, follow_lease};

/// The locks in Leases.
#[derive(Clone)]
pub struct LeaseStore {
    client: Client,
    namespaces: Namespaces,
    timeout: Duration,
    /// The questions of elections for their locks.
    asked: Batcher<Uid, Arc<LocksOf>>,
}

/// Locks, each with its election.
type LocksOf = Vec<(Uid, (Key, Stored))>;

impl LeaseStore {
    /// Creates the store for these namespaces. `timeout` bounds each request.
    pub fn new(client: Client, namespaces: Namespaces, timeout: Duration) -> Self {
        Self { client, namespaces, timeout, asked: Batcher::default() }
    }

    fn api(&self, key: &Key) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn create(&self, key: &Key, owner: &Owner, record: &Record) -> RecordOutcome {
        let lease = match lease(key, owner, record) {
            Ok(lease) => lease,
            Err(failure) => return RecordOutcome::Failed(failure),
        };
        match within(self.timeout, self.api(key).create(&PostParams::default(), &lease)).await {
            Ok(created) => RecordOutcome::Written(version_of(&created)),
            Err(kube::Error::Api(status)) if status.is_already_exists() => RecordOutcome::Conflict,
            Err(error) => RecordOutcome::Failed(failure("create", "leases", &error)),
        }
    }

    async fn replace(&self, key: &Key, owner: &Owner, expected: Version, record: &Record) -> RecordOutcome {
        let lease = match lease(key, owner, record) {
            Ok(lease) => lease,
            Err(failure) => return RecordOutcome::Failed(failure),
        };
        let spec = lease.spec.unwrap_or_default();
        // A merge patch keeps the fields of a Lease that only newer servers know. A null removes the holder.
        let patch = json!({
            "metadata": {
                "resourceVersion": expected.to_string(),
                "labels": lease.metadata.labels,
                "annotations": lease.metadata.annotations,
                "ownerReferences": [],
            },
            "spec": {
                "holderIdentity": spec.holder_identity,
                "leaseTransitions": spec.lease_transitions,
                "acquireTime": spec.acquire_time,
            },
        });
        let patched = self.api(key);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = patched.patch(key.name.as_str(), &parameters, &patch);
        match within(self.timeout, patched).await {
            Ok(patched) => RecordOutcome::Written(version_of(&patched)),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => RecordOutcome::Conflict,
            Err(error) => RecordOutcome::Failed(failure("patch", "leases", &error)),
        }
    }
}

impl LockStore for LeaseStore {
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Stored, Failure>> {
        async move {
            match within(self.timeout, self.api(key).get_opt(&key.name)).await {
                Ok(None) => Ok(Stored::Absent),
                Ok(Some(lease)) => Ok(stored(&lease)),
                Err(error) => Err(failure("get", "leases", &error)),
            }
        }
        .boxed()
    }

    fn locks_of<'a>(
        &'a self,
        namespace: &'a str,
        election: &'a Uid,
        patience: Option<Duration>,
    ) -> BoxFuture<'a, Result<Vec<(Key, Stored)>, Failure>> {
        async move {
            let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
            let timeout = self.timeout;
            let list = async move |elections: Vec<Uid>| list_locks(&api, timeout, &elections).await;
            let listed = self.asked.ask(namespace, namespace, election.clone(), patience, list).await?;
            Ok(listed.iter().filter(|(of, ..)| of == election).map(|(_, lock)| lock.clone()).collect())
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        expected: Option<Version>,
        record: &'a Record,
    ) -> BoxFuture<'a, RecordOutcome> {
        async move {
            match expected {
                None => self.create(key, owner, record).await,
                Some(version) => self.replace(key, owner, version, record).await,
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome> {
        async move {
            let preconditions = Preconditions { resource_version: Some(version.to_string()), uid: None };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match within(self.timeout, self.api(key).delete(&key.name, &parameters)).await {
                Ok(_) => RecordOutcome::Written(version),
                Err(kube::Error::Api(status)) if status.is_not_found() => RecordOutcome::Written(version),
                Err(kube::Error::Api(status)) if status.is_conflict() => RecordOutcome::Conflict,
                Err(error) => RecordOutcome::Failed(failure("delete", "leases", &error)),
            }
        }
        .boxed()
    }

    fn follow(&self, key: &Key) -> BoxStream<'static, FollowedLock> {
        follow_lease(&self.client, &key.namespace, &key.name, self.timeout)
    }

    fn watch(&self) -> BoxStream<'static, StoreEvent> {
        let own = ListParams::default().labels(&format!("{MANAGED_BY}={LICTOR}"));
        let watches = self.namespaces.apis::<Lease>(&self.client).into_iter();
        let read = |lease: Lease| (key_of(&lease), version_of(&lease), stored(&lease));
        let watches = watches.map(|(namespace, api)| changes("leases", namespace, api, own.clone(), read).map(told));
        futures::stream::select_all(watches).boxed()
    }
}

/// Returns the store's event for a change of the watch.
fn told(change: Change<(Key, Version, Stored)>) -> StoreEvent {
    let scope = |namespace| StoreScope { store: StoreId::leases(), namespace };
    match change {
        Change::All(namespace, version, locks) => StoreEvent::All(scope(namespace), version, locks),
        Change::Applied((key, version, stored)) => StoreEvent::Changed(key, version, stored),
        Change::Deleted((key, version, _)) => StoreEvent::Changed(key, version, Stored::Absent),
        Change::Broken(namespace, failure) => StoreEvent::Broken(scope(namespace), failure.into()),
        Change::Resumed(namespace) => StoreEvent::Resumed(scope(namespace)),
        // A new list follows.
        Change::Rewound(namespace) => StoreEvent::Rewound(scope(namespace), Vec::new()),
    }
}

/// Lists the locks of these elections.
async fn list_locks(api: &Api<Lease>, timeout: Duration, elections: &[Uid]) -> Result<Arc<LocksOf>, Failure> {
    let uids: Vec<&str> = elections.iter().map(|uid| uid.0.as_str()).collect();
    let own = ListParams::default().labels(&format!("{ELECTION_LABEL} in ({})", uids.join(",")));
    let listed = within(timeout, api.list(&own)).await.map_err(|error| failure("list", "leases", &error))?;
    let locks = listed.iter().filter_map(|lease| {
        let uid = lease.labels().get(ELECTION_LABEL)?.clone();
        Some((Uid(uid), (key_of(lease), stored(lease))))
    });
    Ok(Arc::new(locks.collect()))
}

fn key_of(lease: &Lease) -> Key {
    Key::lease(lease.namespace().unwrap_or_default(), lease.name_any())
}

fn lease(key: &Key, owner: &Owner, record: &Record) -> Result<Lease, Failure> {
    let json = serde_json::to_string(record)
        .map_err(|error| Failure::Refused(format!("the record can't be written as JSON: {error}")))?;
    let transitions = i32::try_from(record.term.0).map_err(|_| {
        Failure::Refused(format!(
            "term {} is too large for a Lease: keep the lock in a store that several clusters share",
            record.term
        ))
    })?;
    Ok(Lease {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: Some(
                [(MANAGED_BY.to_owned(), LICTOR.to_owned()), (ELECTION_LABEL.to_owned(), owner.uid.0.clone())].into(),
            ),
            annotations: Some([(RECORD_ANNOTATION.to_owned(), json)].into()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: record.holder.as_ref().and_then(|holder| holder.pod.clone()),
            lease_transitions: Some(transitions),
            acquire_time: Timestamp::from_millisecond(record.since.0).ok().map(MicroTime),
            ..LeaseSpec::default()
        }),
    })
}

//! A record that no operator knows, and the one write that hands it over.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use lictor_consul::{self, Bound, LOCK_FLAGS, NewSession, Transaction, TxnOp};
use serde_json::{Value, json};

use crate::world::World;

/// The place of the record, and how to write it.
pub enum Record {
    /// A Lease.
    Lease { leases: Api<Lease>, lease: Value, version: String },
    /// A key in Consul, held by a session.
    Key { client: lictor_consul::Client, session: String, content: Value, index: u64 },
}

/// The key, outside of what an operator watches.
const KEY: &str = "floor/web";

impl Record {
    /// Creates a Lease with the content of `like`.
    pub async fn lease(world: &World, client: &Client, namespace: &str, like: &Lease) -> anyhow::Result<Self> {
        // It has an existing owner of its own, because the garbage collector would delete it otherwise.
        let owners: Api<ConfigMap> = Api::namespaced(world.client.clone(), namespace);
        let owner = serde_json::from_value(json!({"metadata": {"name": "web"}}))?;
        let owner = owners.create(&PostParams::default(), &owner).await?;
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let lease = json!({
            "metadata": {
                // Only the label by which the operator knows its own Leases differs.
                "labels": {"app.kubernetes.io/managed-by": "nobody"},
                "annotations": like.annotations(),
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": owner.uid(), "controller": true,
                }],
            },
            "spec": {"acquireTime": like.spec.as_ref().and_then(|spec| spec.acquire_time.clone())},
        });
        let mut first = lease.clone();
        first["metadata"]["name"] = json!("web");
        let created = leases.create(&PostParams::default(), &serde_json::from_value(first)?).await?;
        let version = created.resource_version().context("a Lease has a version")?;
        Ok(Self::Lease { leases, lease, version })
    }

    /// Creates a key with the content of the key `like`.
    pub async fn key(client: lictor_consul::Client, like: &str) -> anyhow::Result<Self> {
        let like = client.read_key(like).await?.context("the lock is there")?;
        let content = serde_json::from_slice(&like.value).context("the lock's record is JSON")?;
        // The TTL is so long that no renewal is needed.
        let ttl = Duration::from_secs(24 * 3600);
        let lock_delay = Duration::ZERO;
        let session = NewSession { name: "floor".into(), bound: Bound::Agent, ttl, lock_delay };
        let session = client.create_session(&session).await?;
        let first = TxnOp::KvLock { key: KEY.into(), value: vec![], flags: LOCK_FLAGS, session: session.clone() };
        let index = applied(client.transact(&[first]).await)?;
        Ok(Self::Key { client, session, content, index })
    }

    /// Writes the record.
    pub async fn write(&mut self, holder: &str, term: i64) -> anyhow::Result<()> {
        match self {
            Self::Lease { leases, lease, version } => {
                let mut patch = lease.clone();
                patch["metadata"]["resourceVersion"] = json!(version);
                patch["spec"]["holderIdentity"] = json!(holder);
                patch["spec"]["leaseTransitions"] = json!(term);
                let written = leases.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
                *version = written.resource_version().context("a Lease has a version")?;
            }
            Self::Key { client, session, content, index } => {
                content["holder"]["pod"] = json!(holder);
                content["term"] = json!(term);
                let operations = [
                    TxnOp::KvCheckIndex { key: KEY.into(), index: *index },
                    TxnOp::KvLock {
                        key: KEY.into(),
                        value: serde_json::to_vec(content)?,
                        flags: LOCK_FLAGS,
                        session: session.clone(),
                    },
                ];
                *index = applied(client.transact(&operations).await)?;
            }
        }
        Ok(())
    }
}

fn applied(transaction: Transaction) -> anyhow::Result<u64> {
    match transaction {
        Transaction::Applied(applied) => Ok(applied.entry(KEY).context("the answer names the key")?.modify_index),
        other => anyhow::bail!("the transaction was not applied: {other:?}"),
    }
}

//! What a failover could take at the least: the three writes that it consists of, one after the other, by a client that knows
//! beforehand what to write, with no watch to wait for and nothing to decide.

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::world::World;

/// A group of pods, and a Lease, of which no operator knows anything.
pub struct Floor {
    leases: Api<Lease>,
    pods: Api<Pod>,
    lease: Value,
    version: String,
    candidates: Vec<Candidate>,
    leader: usize,
    term: i64,
}

struct Candidate {
    name: String,
    uid: String,
    version: String,
}

/// How long each of the three writes took.
pub struct Took {
    pub record: Duration,
    pub demotion: Duration,
    pub promotion: Duration,
}

impl Took {
    /// From the first request to the last answer.
    pub fn total(&self) -> Duration {
        self.record + self.demotion + self.promotion
    }
}

impl Floor {
    /// A group with as many pods as the one that is measured; `like` is that one's Lease.
    pub async fn new(world: &World, namespace: &str, like: &Lease) -> anyhow::Result<Self> {
        world.namespace(namespace).await?;
        let mut candidates = Vec::new();
        for number in 0..3 {
            let pod = world.pod(namespace, &format!("web-{number}"), "web", number).await?;
            candidates.push(Candidate { name: pod.name_any(), uid: String::new(), version: String::new() });
        }
        // An owner of its own, which exists: the garbage collector would take the Lease away otherwise.
        let owners: Api<ConfigMap> = Api::namespaced(world.client.clone(), namespace);
        let owner = serde_json::from_value(json!({"metadata": {"name": "web"}}))?;
        let owner = owners.create(&PostParams::default(), &owner).await?;
        let client: Client = world.operators_client().await?;
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let lease = json!({
            "metadata": {
                // The label by which the operator knows its own is the one thing that differs.
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
        Ok(Self {
            leases,
            pods: Api::namespaced(client, namespace),
            lease,
            version: created.resource_version().context("a Lease has a version")?,
            candidates,
            leader: 0,
            term: 100,
        })
    }

    /// Reads the pods as they are now, ready and settled.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        for candidate in &mut self.candidates {
            let pod = self.pods.get(&candidate.name).await?;
            candidate.uid = pod.uid().context("a pod has a uid")?;
            candidate.version = pod.resource_version().context("a pod has a version")?;
        }
        Ok(())
    }

    /// The three writes.
    pub async fn write(&mut self) -> anyhow::Result<Took> {
        self.term += 1;
        let former = self.leader;
        self.leader = (former + 1) % self.candidates.len();
        let start = Instant::now();
        let mut patch = self.lease.clone();
        patch["metadata"]["resourceVersion"] = json!(self.version);
        patch["spec"]["holderIdentity"] = json!(self.candidates[self.leader].name);
        patch["spec"]["leaseTransitions"] = json!(self.term);
        let written = self.leases.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
        let recorded = Instant::now();
        self.mark(former, "follower").await?;
        let demoted = Instant::now();
        self.mark(self.leader, "leader").await?;
        let promoted = Instant::now();
        self.version = written.resource_version().context("a Lease has a version")?;
        Ok(Took { record: recorded - start, demotion: demoted - recorded, promotion: promoted - demoted })
    }

    async fn mark(&mut self, which: usize, role: &str) -> anyhow::Result<()> {
        let candidate = &mut self.candidates[which];
        let patch = json!({"metadata": {
            "uid": candidate.uid,
            "resourceVersion": candidate.version,
            "labels": {"role": role},
            "annotations": {"lictor.dev/term": self.term.to_string(), "lictor.dev/election": "web"},
        }});
        let written = self.pods.patch(&candidate.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        candidate.version = written.resource_version().context("a pod has a version")?;
        Ok(())
    }
}

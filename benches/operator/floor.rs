//! The shortest possible failover: its three writes, one after the other, by a client that knows beforehand what to write, with
//! no watch to wait for and nothing to decide.

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::record::Record;
use crate::world::World;

/// A group of pods and a record that no operator knows.
pub struct Floor {
    record: Record,
    pods: Api<Pod>,
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
    /// Returns the time from the first request to the last answer.
    pub fn total(&self) -> Duration {
        self.record + self.demotion + self.promotion
    }
}

impl Floor {
    /// Creates a group with as many pods as the measured one, in an existing namespace.
    pub async fn new(world: &World, client: &Client, namespace: &str, record: Record) -> anyhow::Result<Self> {
        let mut candidates = Vec::new();
        for number in 0..3 {
            let pod = world.pod(namespace, &format!("web-{number}"), "web", number).await?;
            candidates.push(Candidate { name: pod.name_any(), uid: String::new(), version: String::new() });
        }
        Ok(Self { record, pods: Api::namespaced(client.clone(), namespace), candidates, leader: 0, term: 100 })
    }

    /// Reads the pods when they are ready and settled.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        for candidate in &mut self.candidates {
            let pod = self.pods.get(&candidate.name).await?;
            candidate.uid = pod.uid().context("a pod has a uid")?;
            candidate.version = pod.resource_version().context("a pod has a version")?;
        }
        Ok(())
    }

    /// Makes the three writes.
    pub async fn write(&mut self) -> anyhow::Result<Took> {
        self.term += 1;
        let former = self.leader;
        self.leader = (former + 1) % self.candidates.len();
        let start = Instant::now();
        let name = &self.candidates[self.leader].name;
        self.record.write(name, self.term).await?;
        let recorded = Instant::now();
        self.mark(former, "follower").await?;
        let demoted = Instant::now();
        self.mark(self.leader, "leader").await?;
        let promoted = Instant::now();
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

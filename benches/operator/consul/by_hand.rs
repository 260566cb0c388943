//! The shortest possible time to move a CronJob from one cluster to another: the six writes that this needs, one after the other,
//! by clients that know beforehand what to write, with no watch to wait for and nothing to decide.

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use lictor_consul::{self, Bound, LOCK_FLAGS, NewSession, Transaction, TxnOp};
use serde_json::{Value, json};

/// The key, outside of what an operator watches.
const KEY: &str = "by-hand/nightly";

/// Two CronJobs and a lock that no operator knows.
pub struct ByHand {
    consul: lictor_consul::Client,
    cron_jobs: Api<CronJob>,
    jobs: Api<Job>,
    sides: [Side; 2],
    content: Value,
    index: u64,
    turn: usize,
    writes: u64,
}

struct Side {
    name: &'static str,
    session: String,
    uid: String,
    version: String,
}

/// How long each part took.
pub struct Took {
    /// The record names no leader, and the CronJob is suspended.
    pub disabled: Duration,
    /// The lock is released.
    pub free: Duration,
    /// The other side has the lock, and its CronJob has the last tick and is resumed.
    pub enabled: Duration,
    /// Not among those writes: what would have to be read to know that nothing runs any more, the CronJob and the Jobs.
    pub reads: Duration,
}

impl Took {
    /// Returns the time from the first request to the last answer.
    pub fn total(&self) -> Duration {
        self.disabled + self.free + self.enabled
    }
}

impl ByHand {
    /// Creates it in an existing namespace, with a record like that under `like`.
    pub async fn new(
        consul: lictor_consul::Client,
        client: &Client,
        namespace: &str,
        like: &str,
    ) -> anyhow::Result<Self> {
        let like = consul.read_key(like).await?.context("the lock is there")?;
        let content = serde_json::from_slice(&like.value).context("the lock's record is JSON")?;
        let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), namespace);
        let first = Side::new(&consul, &cron_jobs, "west").await?;
        let second = Side::new(&consul, &cron_jobs, "east").await?;
        let lock = TxnOp::KvLock { key: KEY.into(), value: vec![], flags: LOCK_FLAGS, session: first.session.clone() };
        let index = applied(consul.transact(&[lock]).await)?;
        let jobs = Api::namespaced(client.clone(), namespace);
        Ok(Self { consul, cron_jobs, jobs, sides: [first, second], content, index, turn: 0, writes: 0 })
    }

    /// Moves the CronJob to the other side.
    pub async fn write(&mut self) -> anyhow::Result<Took> {
        let (from, to) = (self.turn, 1 - self.turn);
        self.turn = to;
        let start = Instant::now();
        self.record(|key, value, flags, session| TxnOp::KvLock { key, value, flags, session }, from).await?;
        self.suspend(from, true).await?;
        let disabled = Instant::now();
        self.record(|key, value, flags, session| TxnOp::KvUnlock { key, value, flags, session }, from).await?;
        let free = Instant::now();
        self.record(|key, value, flags, session| TxnOp::KvLock { key, value, flags, session }, to).await?;
        let tick = Timestamp::from_second(Timestamp::now().as_second())?.to_string();
        let status = json!({"status": {"lastScheduleTime": tick}});
        let name = self.sides[to].name;
        let told = self.cron_jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        self.sides[to].version = told.resource_version().context("a CronJob has a version")?;
        self.suspend(to, false).await?;
        let enabled = free.elapsed();
        let before = Instant::now();
        self.cron_jobs.get(self.sides[from].name).await?;
        self.jobs.list(&ListParams::default()).await?;
        Ok(Took { disabled: disabled - start, free: free - disabled, enabled, reads: before.elapsed() })
    }

    /// Writes the record. Each is a new one, because the same again would change nothing, not even the index.
    async fn record(
        &mut self,
        operation: impl FnOnce(String, Vec<u8>, u64, String) -> TxnOp,
        side: usize,
    ) -> anyhow::Result<()> {
        self.writes += 1;
        self.content["term"] = json!(self.writes);
        let value = serde_json::to_vec(&self.content)?;
        let session = self.sides[side].session.clone();
        let operations = [
            TxnOp::KvCheckIndex { key: KEY.into(), index: self.index },
            operation(KEY.into(), value, LOCK_FLAGS, session),
        ];
        self.index = applied(self.consul.transact(&operations).await)?;
        Ok(())
    }

    async fn suspend(&mut self, side: usize, suspend: bool) -> anyhow::Result<()> {
        self.writes += 1;
        let Side { name, uid, version, .. } = &self.sides[side];
        let patch = json!({
            "apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {
                "name": name, "uid": uid, "resourceVersion": version,
                "annotations": {
                    "lictor.dev/election": "nightly", "lictor.dev/enabled": (!suspend).to_string(),
                    "lictor.dev/term": self.writes.to_string(), "lictor.dev/kept": "false",
                    "lictor.dev/written-by": format!("by-hand/{}", self.writes),
                },
            },
            "spec": {"suspend": suspend},
        });
        let parameters = PatchParams::apply("by-hand").force();
        let written = self.cron_jobs.patch(name, &parameters, &Patch::Apply(patch)).await?;
        self.sides[side].version = written.resource_version().context("a CronJob has a version")?;
        Ok(())
    }
}

impl Side {
    async fn new(consul: &lictor_consul::Client, cron_jobs: &Api<CronJob>, name: &'static str) -> anyhow::Result<Self> {
        // The TTL is so long that no renewal is needed.
        let ttl = Duration::from_secs(24 * 3600);
        let session = NewSession { name: name.into(), bound: Bound::Agent, ttl, lock_delay: Duration::ZERO };
        let session = consul.create_session(&session).await?;
        let made = cron_jobs.create(&PostParams::default(), &serde_json::from_value(cron_job(name))?).await?;
        Ok(Self {
            name,
            session,
            uid: made.uid().context("a CronJob has a uid")?,
            version: made.resource_version().context("a CronJob has a version")?,
        })
    }
}

/// Makes a CronJob that is not due during the benchmark.
pub fn cron_job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {"schedule": "0 0 29 2 *", "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "example/nightly"}],
        }}}}},
    })
}

fn applied(transaction: Transaction) -> anyhow::Result<u64> {
    match transaction {
        Transaction::Applied(applied) => Ok(applied.entry(KEY).context("the answer names the key")?.modify_index),
        other => anyhow::bail!("the transaction was not applied: {other:?}"),
    }
}

//! The shortest possible hand-over and start: by a client that knows beforehand what to write, with no watch to wait for and nothing to
//! decide. It uses the link of the group beside which it is measured.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use lictor_consul::{Bound, Client, LOCK_FLAGS, NewSession, Settings, Transaction, TxnOp};
use lictor_testing::acts::{moment, seconds};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::contender::Contender;
use super::processes::signal;
use super::trace::Trace;

/// The lock, in a place that no group knows.
const LOCK: &str = "floor";
const TIMEOUT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(1);

/// A lock, and a command that works while it is held.
pub struct Floor {
    lock: Lock,
    elector: std::path::PathBuf,
    trace: Trace,
    command: Option<Child>,
}

enum Lock {
    /// A key in Consul. The session holds it.
    Key {
        address: String,
        client: Client,
        session: String,
    },
    Lease {
        kubeconfig: std::path::PathBuf,
        leases: Api<Lease>,
        namespace: String,
        version: String,
    },
}

/// How long it took, in seconds.
pub struct Took {
    /// From the signal to the first act of the next command: the command ends, the lock is released and acquired, the command starts.
    pub total: f64,
    /// The release and the acquisition alone.
    pub writes: f64,
}

impl Floor {
    /// Prepares it beside a group, and starts the command.
    pub async fn beside(group: &Contender<'_>) -> anyhow::Result<Self> {
        let lock = if group.kind.in_consul() {
            let address = format!("http://{}", group.links[0].address());
            let client = Client::new(&Settings { timeout: TIMEOUT, ..Settings::new(&address) })?;
            let session = session(&client).await?;
            acquire(&client, &session).await?;
            Lock::Key { address, client, session }
        } else {
            let kubeconfig = group.kubeconfigs[0].clone();
            let client = lictor::kubernetes::connect(Some(&kubeconfig), TIMEOUT).await?;
            let leases: Api<Lease> = Api::namespaced(client, &group.namespace);
            let lease =
                json!({"metadata": {"name": LOCK}, "spec": {"holderIdentity": "first", "leaseDurationSeconds": 15}});
            let made = leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
            let version = made.resource_version().context("a Lease has a version")?;
            Lock::Lease { kubeconfig, leases, namespace: group.namespace.clone(), version }
        };
        let path = group.ground.directory.join(format!("{}-floor.acts", group.kind.id()));
        let trace = Trace::Notes { path, offset: 0 };
        let mut floor = Self { lock, elector: group.ground.elector.clone(), trace, command: None };
        floor.works().await?;
        Ok(floor)
    }

    /// Ends the command, hands the lock over, and starts the command again.
    pub async fn hand_over(&mut self) -> anyhow::Result<Took> {
        let next = self.lock.prepare().await?;
        let mut command = self.command.take().context("the command runs")?;
        let start = moment();
        signal("TERM", &[command.id()])?;
        command.wait()?;
        let ended = moment();
        self.lock.hand_over(next).await?;
        let written = moment();
        let acts = self.works().await?;
        Ok(Took { total: seconds(start, acts), writes: seconds(ended, written) })
    }

    /// Starts the command again, after one round trip of a client that has no connection yet. Returns the times of both, in seconds.
    pub async fn start(&mut self) -> anyhow::Result<(f64, f64)> {
        self.end()?;
        let start = moment();
        self.lock.ask().await?;
        let asked = moment();
        let acts = self.works().await?;
        Ok((seconds(start, asked), seconds(asked, acts)))
    }

    /// Starts the command. Returns when it first acted.
    async fn works(&mut self) -> anyhow::Result<u64> {
        let Trace::Notes { path, .. } = &self.trace else { bail!("the command writes notes") };
        let path = path.clone();
        self.trace.begin();
        let before = moment();
        self.command = Some(start(&self.elector, &path)?);
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.trace.begins_after(before) {
                return Ok(at);
            }
            anyhow::ensure!(Instant::now() < end, "the command does not act");
            sleep(LOOK).await;
        }
    }

    fn end(&mut self) -> anyhow::Result<()> {
        if let Some(mut command) = self.command.take() {
            command.kill()?;
            command.wait()?;
        }
        Ok(())
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Lock {
    /// Prepares the next holder. In Consul that is a session, which exists beforehand, as that of an agent that waits.
    async fn prepare(&self) -> anyhow::Result<String> {
        match self {
            Self::Key { client, .. } => session(client).await,
            Self::Lease { .. } => Ok("next".into()),
        }
    }

    /// Releases the lock, and lets the next one acquire it.
    async fn hand_over(&mut self, next: String) -> anyhow::Result<()> {
        match self {
            Self::Key { client, session, .. } => {
                client.destroy(session).await?;
                acquire(client, &next).await?;
                *session = next;
            }
            Self::Lease { leases, version, .. } => {
                for holder in ["", &next] {
                    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder}});
                    let written = leases.patch(LOCK, &PatchParams::default(), &Patch::Merge(patch)).await?;
                    *version = written.resource_version().context("a Lease has a version")?;
                }
            }
        }
        Ok(())
    }

    /// Asks for the lock, by a new client.
    async fn ask(&self) -> anyhow::Result<()> {
        match self {
            Self::Key { address, .. } => {
                let client = Client::new(&Settings { timeout: TIMEOUT, ..Settings::new(address) })?;
                client.read_key(LOCK).await?.context("the key is there")?;
            }
            Self::Lease { kubeconfig, namespace, .. } => {
                let client = lictor::kubernetes::connect(Some(kubeconfig), TIMEOUT).await?;
                Api::<Lease>::namespaced(client, namespace).get(LOCK).await?;
            }
        }
        Ok(())
    }
}

/// Creates a session that needs no renewal, and whose end frees the lock at once.
async fn session(client: &Client) -> anyhow::Result<String> {
    let ttl = Duration::from_secs(24 * 3600);
    let session = NewSession { name: LOCK.into(), bound: Bound::Agent, ttl, lock_delay: Duration::ZERO };
    Ok(client.create_session(&session).await?)
}

async fn acquire(client: &Client, session: &str) -> anyhow::Result<()> {
    let lock = TxnOp::KvLock { key: LOCK.into(), value: vec![], flags: LOCK_FLAGS, session: session.into() };
    match client.transact(&[lock]).await {
        Transaction::Applied(_) => Ok(()),
        other => bail!("the transaction was not applied: {other:?}"),
    }
}

fn start(elector: &Path, notes: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(elector);
    command.arg("--work").arg("--acts").arg(notes).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("{} starts", elector.display()))
}

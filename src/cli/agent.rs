//! `lictor agent`: runs a command only while it holds a lock.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args, Command};
use futures::StreamExt;
use lictor_agent::observe::{About, Hooks, HooksAt, Leader, Settings, Telling, hear_agent, run_hooks, with_agent};
use lictor_agent::{CommandLine, Handle, Held, Name, Part, Place, Requests, is_loopback, requests};
use lictor_api::DEFAULT_CONTROLLER;
use lictor_core::{AgentTiming, ClaimParameters};
use lictor_locks::consul::{ConsulLock, ConsulLockSettings, Home};
use lictor_locks::lease::{LeaseLock, LeaseLockSettings};
use lictor_locks::objects::{LeasedObjectLock, ObjectLock, ObjectLockSettings};
use lictor_objects::{Blob, Bucket, BucketSettings, Credentials};
use tokio::task::JoinHandle;

use super::consul::ConsulAccess;
use super::support::unique;
use super::tell::{Listen, Tell, duration};
use crate::kubernetes::connect;
use crate::telemetry::{LogFormat, init_logs, say};

/// The end of each message about a missing right to a Lease.
const GRANT: &str = "; grant it to this agent's service account: docs/agent.md has the Role";

/// The TTLs that Consul accepts.
const CONSUL_TTL: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(24 * 3600));
/// The shortest duration of a Lease.
const SHORTEST_LEASE: Duration = Duration::from_secs(3);
/// The shortest duration of a lock in a bucket, as for a class in a bucket.
const SHORTEST_IN_BUCKET: Duration = Duration::from_secs(5);
/// The durations that Azure accepts for the lease of a blob.
const BLOB_LEASE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(60));
/// The longest lock delay that Consul accepts.
const LONGEST_LOCK_DELAY: Duration = Duration::from_secs(60);
/// Shorter intervals would load Consul, because all its servers write each renewal to disk.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(500);
/// The shortest time to stay away. With client-go's defaults, a contender for a Lease looks at it every two or three
/// seconds.
const SHORTEST_AWAY: Duration = Duration::from_secs(1);
/// The longest key and identity.
const LONGEST_NAME: usize = 200;

/// Takes part in an election, and runs a command only while it holds the lock.
///
/// The lock is a key in Consul (--key), a Lease (--lease), an object in a bucket (--bucket) or the lease of a blob in Azure
/// (--azure-blob-lease). lictor waits while another process holds it. Once it holds
/// the lock, it starts the command, with the fencing token in LICTOR_TERM and the lock's name in LICTOR_KEY. If lictor
/// can't renew the lock, it sends the command SIGTERM, and then kills it and everything that it has started before any
/// other process can get the lock. After that, lictor waits for the lock again. When the command ends by itself, lictor
/// releases the lock and exits with the command's exit code. On SIGTERM, lictor ends the command first. Linux only.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("lock").required(true).args(OF_EACH_AGENT))]
#[command(
    after_help = "Examples:\n  lictor agent --key services/report/leader -- ./report --every 1h\n  lictor agent --consul http://10.0.0.5:8500 --key services/report/leader --ttl 10s -- ./report\n  lictor agent --lease shop/report -- ./report\n  AWS_REGION=eu-central-1 lictor agent --bucket s3://example-locks/report -- ./report\n  AZURE_STORAGE_ACCOUNT_NAME=example lictor agent --azure-blob-lease az://locks/report -- ./report"
)]
pub(super) struct Agent {
    /// The key of the lock in Consul, for example services/report/leader.
    #[arg(long, env = "LICTOR_KEY", value_name = "KEY", value_parser = key)]
    key: Option<String>,

    /// The Lease that is the lock. Programs with client-go's leader election can share it.
    #[arg(long, env = "LICTOR_LEASE", value_name = "NAMESPACE/NAME", value_parser = lease, conflicts_with = "consul")]
    lease: Option<String>,

    /// The object that is the lock: s3://BUCKET/NAME, gs://BUCKET/NAME or az://CONTAINER/NAME. The name may have slashes.
    /// The environment gives the region, the credentials and, for a compatible server, its address: see docs/agent.md.
    #[arg(long, env = "LICTOR_BUCKET", value_name = "URL", value_parser = bucket, conflicts_with = "consul")]
    bucket: Option<String>,

    /// The blob whose own lease is the lock: az://CONTAINER/NAME. Programs that lease the blob by Azure's own libraries can share it. lictor
    /// creates a blob that is missing, and never changes the content. The environment gives the account and the credentials, as for
    /// --bucket.
    #[arg(long, env = "LICTOR_AZURE_BLOB_LEASE", value_name = "URL", value_parser = blob, conflicts_with = "consul")]
    azure_blob_lease: Option<String>,

    /// The name by which this agent holds the lock, and by which it recognises the lock after a restart. Two agents in
    /// one place (a pod, or a machine) need different names for the same lock. Default: the host's name.
    #[arg(long, env = "LICTOR_IDENTITY", value_name = "NAME", value_parser = identity)]
    identity: Option<String>,

    /// How long the lock lasts without a renewal: for Consul 10s to 24h, for a Lease 3s to 300s, for a bucket 5s to 300s,
    /// for the lease of a blob 15s to 60s.
    #[arg(long, env = "LICTOR_TTL", value_name = "DURATION", default_value = "15s", value_parser = duration)]
    ttl: Duration,

    /// How long Consul withholds the lock after it was lost: 0s to 60s. A lock that was released is free at once.
    #[arg(long, env = "LICTOR_LOCK_DELAY", value_name = "DURATION", default_value = "1s", value_parser = duration)]
    lock_delay: Duration,

    /// How often lictor renews the session in Consul, at least 500ms, if that is more often than three times in each
    /// --ttl. Consul may then be unreachable for longer before lictor ends the command.
    #[arg(long, env = "LICTOR_RENEW_EVERY", value_name = "DURATION", value_parser = duration, conflicts_with_all = ["lease", "bucket", "azure_blob_lease"])]
    renew_every: Option<Duration>,

    /// How long the command has from SIGTERM to SIGKILL if lictor can't renew the lock: at most three tenths of --ttl.
    /// Default: a tenth.
    #[arg(long, env = "LICTOR_GRACE", value_name = "DURATION", value_parser = duration)]
    grace: Option<Duration>,

    /// How long the command has from SIGTERM to SIGKILL if lictor itself is asked to end. lictor renews the lock
    /// meanwhile.
    #[arg(long, env = "LICTOR_STOP_TIMEOUT", value_name = "DURATION", default_value = "20s", value_parser = duration)]
    stop_timeout: Duration,

    /// The shortest run after which lictor exits at once when the command has ended by itself. After a shorter run,
    /// lictor also releases the lock at once, but exits only when this time is over, so that it is not restarted in a
    /// tight loop.
    #[arg(long, env = "LICTOR_SHORTEST_RUN", value_name = "DURATION", default_value = "1s", value_parser = duration)]
    shortest_run: Duration,

    /// Where to answer HTTP requests from this machine or pod: localhost:PORT, which is 127.0.0.1 and ::1, or another
    /// address of the loopback interface. It serves the paths of `lictor observe`, GET /state, and POST /yield, which
    /// leaves the lock to another process. Default: nowhere.
    #[arg(long, env = "LICTOR_LISTEN", value_name = "ADDRESS:PORT", value_parser = loopback)]
    listen: Option<Listen>,

    #[command(flatten)]
    tell: Tell,

    /// How long lictor leaves the lock to others after POST /yield: at least 1s. If no other process takes it, there is
    /// no leader for that time.
    #[arg(long, env = "LICTOR_STAY_AWAY", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    stay_away: Duration,

    /// The address at which followers reach the leader, or whatever else they understand. lictor writes it into the
    /// value of the key in Consul, into the object in the bucket, or into the blob's metadata.
    #[arg(long, env = "LICTOR_ADVERTISE", value_name = "TEXT")]
    advertise: Option<String>,

    /// Bind the session in Consul to the node of Consul's agent and its health checks, too. Use this only with an agent
    /// on the same machine.
    #[arg(long, env = "LICTOR_NODE_CHECKS")]
    node_checks: bool,

    /// The node in Consul's catalog that the session belongs to, without --node-checks. lictor registers the node if it
    /// is missing.
    #[arg(long, env = "LICTOR_CONSUL_NODE", value_name = "NAME", default_value = "lictor-agents", value_parser = identity)]
    consul_node: String,

    #[command(flatten)]
    consul: ConsulAccess,

    /// The kubeconfig file, for --lease. Default: the one that kubectl uses; in a pod, its service account.
    #[arg(long, env = "LICTOR_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The format of log lines. They go to the standard error.
    #[arg(long, env = "LICTOR_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// The command, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The arguments of `agent-gate`, the process that becomes the command.
#[derive(Debug, Args)]
pub(super) struct Gate {
    until: u64,
    agent: i32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The variables that an agent does not inherit from the agent whose command it is, because both can't hold the same
/// lock.
const OF_EACH_AGENT: [&str; 4] = ["key", "lease", "bucket", "azure_blob_lease"];

/// Returns the command line for the command of another agent. The command can read that agent's lock from its
/// environment.
pub(super) fn nested(agent: Command) -> Command {
    let agent = super::tell::nested(agent);
    OF_EACH_AGENT.into_iter().fold(agent, |agent, name| agent.mut_arg(name, |argument| argument.env(None::<&str>)))
}

impl Gate {
    pub(super) fn run(self) -> ExitCode {
        let (code, problem) = lictor_agent::pass(self.until, self.agent, &self.command);
        if let Some(problem) = problem {
            say(&problem);
        }
        code.into()
    }
}

impl Agent {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        self.check()?;
        let name = self.name();
        init_logs(self.log_format)?;
        // One thread, because a command is killed when the thread that started it ends, and because it keeps each
        // process small.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let hooks = self.tell.hooks()?;
        let code = match Part::of_this_process() {
            part @ (Part::Watchdog | Part::Guard) => {
                runtime.block_on(lictor_agent::watch(part, &name, hooks.is_some(), self.stop_timeout))?
            }
            Part::Agent => runtime.block_on(self.take_part(&name, hooks))?,
            Part::Hooks(agent) => runtime.block_on(async {
                let hooks = hooks.context("there are no hooks")?;
                let agent = lictor_agent::accept(&name, agent).await?;
                run_hooks(hooks, name.key.clone(), agent).await.map(|()| 0)
            })?,
        };
        Ok(code.into())
    }

    /// Refuses invalid values before anything runs.
    fn check(&self) -> anyhow::Result<()> {
        let (what, (shortest, longest)) = if self.lease.is_some() {
            ("a Lease", (SHORTEST_LEASE, ClaimParameters::LONGEST))
        } else if self.bucket.is_some() {
            ("a bucket", (SHORTEST_IN_BUCKET, ClaimParameters::LONGEST))
        } else if self.azure_blob_lease.is_some() {
            ("the lease of a blob", BLOB_LEASE)
        } else {
            ("Consul", CONSUL_TTL)
        };
        if !(shortest..=longest).contains(&self.ttl) {
            bail!(
                "--ttl {} can't be used: for {what} it must be from {} to {}",
                said(self.ttl),
                said(shortest),
                said(longest)
            );
        }
        if self.key.is_none() && self.ttl.subsec_nanos() != 0 {
            bail!("--ttl {} can't be used: {what} needs whole seconds", said(self.ttl));
        }
        if self.lock_delay > LONGEST_LOCK_DELAY {
            bail!("--lock-delay {} can't be used: Consul allows at most {LONGEST_LOCK_DELAY:?}", said(self.lock_delay));
        }
        if let Some(every) = self.renew_every.filter(|every| *every < SHORTEST_RENEWAL) {
            bail!("--renew-every {} can't be used: it must be at least {SHORTEST_RENEWAL:?}", said(every));
        }
        if let Some(every) = self.renew_every.filter(|every| *every > self.ttl / 3) {
            bail!(
                "--renew-every {} can't be used with --ttl {}: lictor renews the session every {} anyway: choose a \
                 shorter time, or leave --renew-every out",
                said(every),
                said(self.ttl),
                said(self.ttl / 3)
            );
        }
        if self.stay_away < SHORTEST_AWAY {
            bail!(
                "--stay-away {} can't be used: it must be at least {SHORTEST_AWAY:?} so that others can take the lock",
                said(self.stay_away)
            );
        }
        let timing = self.timing();
        if timing.grace > timing.longest_grace() {
            bail!(
                "--grace {} can't be used with --ttl {}: it must be at most {}, so that there is time to repeat a \
                 failed renewal. Choose a longer --ttl",
                said(timing.grace),
                said(timing.ttl),
                said(timing.longest_grace())
            );
        }
        Ok(())
    }

    fn timing(&self) -> AgentTiming {
        let grace = self.grace.unwrap_or(self.ttl / 10);
        AgentTiming {
            ttl: self.ttl,
            grace,
            stop_timeout: self.stop_timeout,
            away: self.stay_away,
            shortest_run: self.shortest_run,
        }
    }

    fn name(&self) -> Name {
        let key = [&self.key, &self.lease, &self.bucket, &self.azure_blob_lease].into_iter().flatten().next();
        Name { key: key.cloned().unwrap_or_default(), identity: self.identity.clone().unwrap_or_else(host) }
    }

    async fn take_part(self, name: &Name, hooks: Option<Hooks>) -> anyhow::Result<u8> {
        // First, because an earlier process of this name may still be ending.
        let held = name.take("agent").await?;
        let (requests, handle) = requests();
        let told = self.tell(name, handle, hooks).await?;
        let code = self.lead(name, held, requests).await;
        // Clients, readers of the file and hooks learn of the end.
        if let Some(told) = told {
            told.await?;
        }
        code
    }

    async fn lead(&self, name: &Name, held: Held, requests: Requests) -> anyhow::Result<u8> {
        let place = Place::here()?;
        let command = CommandLine { words: self.command.clone(), key: name.key.clone() };
        let timing = self.timing();
        if let Some(lease) = &self.lease {
            let (namespace, lease) = lease.split_once('/').context("--lease is NAMESPACE/NAME")?;
            let timeout = ClaimParameters::patient(self.ttl).margin();
            let client = connect(self.kubeconfig.as_deref(), timeout).await?;
            // A5: the lock's holder includes the place, so no agent in another place ever takes the lock for its own.
            let identity = format!("{}_{place}", name.identity);
            let settings = LeaseLockSettings {
                namespace: namespace.to_owned(),
                name: lease.to_owned(),
                identity,
                duration: timing.ttl,
                advertise: None,
                grant: GRANT,
            };
            let lock = || LeaseLock::start(client.clone(), settings.clone());
            return lictor_agent::run(held, timing, command, lock, requests).await;
        }
        // As in the operator: an answer within this time is still useful, and leaves time for another attempt.
        let timeout = Duration::from_secs(5).min(self.ttl / 5);
        if let Some(url) = &self.bucket {
            let (bucket, settings) = self.in_bucket(url, name, &place, timeout)?;
            let objects = Arc::new(Bucket::new(&bucket)?);
            let lock = || ObjectLock::start(objects.clone(), settings.clone());
            return lictor_agent::run(held, timing, command, lock, requests).await;
        }
        if let Some(url) = &self.azure_blob_lease {
            let (container, settings) = self.in_bucket(url, name, &place, timeout)?;
            let blob = Arc::new(Blob::new(&container, &settings.name)?);
            let lock = || LeasedObjectLock::start(blob.clone(), settings.clone());
            return lictor_agent::run(held, timing, command, lock, requests).await;
        }
        let (client, settings) = (self.consul.client(timeout)?, self.consul_lock(name, &place));
        let instance = unique(Some(name.identity.clone()));
        let lock = || ConsulLock::start(client.clone(), settings.clone(), instance.clone());
        lictor_agent::run(held, timing, command, lock, requests).await
    }

    /// Reports the leader from now on, if anything asks for it. The task ends after the agent.
    async fn tell(&self, name: &Name, handle: Handle, hooks: Option<Hooks>) -> anyhow::Result<Option<JoinHandle<()>>> {
        if self.listen.is_none() && self.tell.state_file.is_none() && hooks.is_none() {
            return Ok(None);
        }
        let listeners = match self.listen {
            Some(listen) => listen.bind().await?,
            None => vec![],
        };
        for address in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
            tracing::info!(%address, "listening");
        }
        let hooks = match hooks {
            Some(hooks) => Some(HooksAt::Beside(lictor_agent::connect(name).await?, hooks.timeout)),
            None => None,
        };
        let telling = Telling::begin(Settings {
            about: About {
                election: name.key.clone(),
                source: "agent",
                observer: "this agent",
                // No watch reports changes of a Lease.
                tells_age: self.lease.is_none(),
            },
            // The holder of a Lease that is not renewed counts for no longer than this.
            stale_after: self.lease.is_none().then(|| ConsulLockSettings::stale_after(self.ttl)),
            state_file: self.tell.state_file.clone(),
            hooks,
            start: unique(Some(name.identity.clone())),
        })?;
        let own = Leader {
            name: name.identity.clone(),
            node: Some(host()),
            address: self.advertise.clone(),
            ..Leader::default()
        };
        let (source, name) = (hear_agent(&handle, own), name.clone());
        Ok(Some(lictor_process::spawn(async move {
            let asked = futures::stream::pending().boxed();
            let told = telling.run(listeners, |router| with_agent(router, name, handle), source, asked).await;
            if let Err(error) = told {
                tracing::error!(error = format!("{error:#}"), "the leader is no longer reported");
            }
        })))
    }

    fn in_bucket(
        &self,
        url: &str,
        name: &Name,
        place: &Place,
        timeout: Duration,
    ) -> anyhow::Result<(BucketSettings, ObjectLockSettings)> {
        let (url, object) = url.rsplit_once('/').context("the address has a name")?;
        let bucket = BucketSettings {
            url: url.to_owned(),
            // The environment has what is not in the address.
            region: None,
            endpoint: None,
            credentials: Credentials::Ambient,
            timeout,
        };
        let settings = ObjectLockSettings {
            name: object.to_owned(),
            // A5: as for a Lease.
            identity: format!("{}_{place}", name.identity),
            duration: self.ttl,
            node: Some(host()),
            advertise: self.advertise.clone(),
        };
        Ok((bucket, settings))
    }

    fn consul_lock(&self, name: &Name, place: &Place) -> ConsulLockSettings {
        ConsulLockSettings {
            key: name.key.clone(),
            identity: name.identity.clone(),
            // A5: as for a Lease.
            session: format!("lictor-agent/{}/{}/{place}", name.key, name.identity),
            home: if self.node_checks {
                Home::Agent
            } else {
                Home::Node {
                    name: self.consul_node.clone(),
                    address: "127.0.0.1".into(),
                    meta: BTreeMap::from([("external-source".to_owned(), "lictor".to_owned())]),
                }
            },
            ttl: self.ttl,
            lock_delay: self.lock_delay,
            renew_every: self.renew_every.unwrap_or(Duration::MAX),
            advertise: self.advertise.clone(),
            node: Some(host()),
        }
    }
}

pub(super) fn host() -> String {
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    std::env::var("HOSTNAME").unwrap_or_else(|_| kernel()).trim().to_owned()
}

pub(super) fn key(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    if text.len() > LONGEST_NAME || !text.chars().all(is_allowed) {
        return Err(format!("write a key of letters, digits, and / _ - . with at most {LONGEST_NAME} characters"));
    }
    if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("no part between slashes may be empty, '.' or '..'".into());
    }
    Ok(text.to_owned())
}

fn lease(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        !name.is_empty() && name.len() <= 253 && name.chars().all(is_allowed)
    };
    match text.split_once('/') {
        Some((_, name)) if name == DEFAULT_CONTROLLER.replace('/', "-") => {
            Err("this is the Lease of the operator itself: write another name, for example shop/report".into())
        }
        Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(text.to_owned()),
        _ => Err("write NAMESPACE/NAME, for example shop/report".into()),
    }
}

fn bucket(text: &str) -> Result<String, String> {
    object(text, &["s3", "gs", "az"])
        .unwrap_or_else(|| Err("write s3://BUCKET/NAME, gs://BUCKET/NAME or az://CONTAINER/NAME".into()))
}

fn blob(text: &str) -> Result<String, String> {
    object(text, &["az"]).unwrap_or_else(|| Err("write az://CONTAINER/NAME".into()))
}

/// Reads the address of an object. `None`: it is not one of these schemes, with a bucket and a name.
fn object(text: &str, schemes: &[&str]) -> Option<Result<String, String>> {
    let name = text.split_once("://").filter(|(scheme, _)| schemes.contains(scheme));
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    let named = name.and_then(|(_, rest)| rest.split_once('/'));
    let (_, name) = named.filter(|(bucket, _)| !bucket.is_empty() && bucket.chars().all(is_name))?;
    Some(key(name).map(|_| text.to_owned()))
}

fn identity(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > LONGEST_NAME || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!("write a name without spaces, with at most {LONGEST_NAME} characters"));
    }
    Ok(text.to_owned())
}

fn loopback(text: &str) -> Result<Listen, String> {
    let listen = Listen::parse(text)?;
    if listen.address().is_none_or(is_loopback) {
        Ok(listen)
    } else {
        Err("write an address of the loopback interface, for example 127.0.0.1:8090, because any client can end the command".into())
    }
}

/// Formats a duration as [`duration`] reads it.
fn said(time: Duration) -> String {
    match (time.as_millis(), time.as_secs()) {
        (milliseconds, _) if milliseconds % 1000 != 0 => format!("{milliseconds}ms"),
        (_, seconds) => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_at_the_loopback_interface_alone() {
        for text in ["127.0.0.1:8090", "127.0.0.9:1", "[::1]:8090", "[::ffff:127.0.0.1]:8090", "localhost:8090"] {
            assert!(loopback(text).is_ok(), "{text}");
        }
        for text in ["", "8090", ":8090", "127.0.0.1", "localhost", "0.0.0.0:8090", "[::]:8090", "10.0.0.1:8090"] {
            assert!(loopback(text).is_err(), "{text}");
        }
    }

    #[test]
    fn locks_have_names_that_the_store_takes() {
        assert!(key("services/report/leader").is_ok() && lease("shop/report").is_ok());
        for text in ["", "/a", "a//b", "a/../b", "a b", "a/", "ä"] {
            assert!(key(text).is_err(), "{text}");
        }
        for text in ["s3://locks/report", "gs://locks/a/b", "az://c@a.blob.core.windows.net/report"] {
            assert!(bucket(text).is_ok(), "{text}");
        }
        for text in
            ["", "report", "s3://locks", "s3://locks/", "s3:///report", "https://locks/report", "s3://locks/a//b"]
        {
            assert!(bucket(text).is_err(), "{text}");
        }
        for text in ["az://locks/report", "az://c@a.blob.core.windows.net/a/b"] {
            assert!(blob(text).is_ok(), "{text}");
        }
        for text in
            ["", "az://locks", "az://locks/a//b", "s3://locks/report", "https://a.blob.core.windows.net/locks/report"]
        {
            assert!(blob(text).is_err(), "{text}");
        }
        for text in ["", "report", "/report", "shop/", "Shop/report", "a/b/c", "lictor/lictor.dev-operator"] {
            assert!(lease(text).is_err(), "{text}");
        }
    }
}

//! `lictor observe`: tells a program who the leader is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use futures::stream::BoxStream;
use lictor_agent::observe::{
    About, Heard, HooksAt, Own, Role, Settings, hear_election, hear_files, hear_key, once, run,
};

use super::agent::{host, key};
use super::consul::ConsulAccess;
use super::support::{Ended, print, unique};
use super::tell::{Listen, Tell, duration};
use crate::kubernetes::connect;
use crate::telemetry::{LogFormat, init_logs};

/// Where the examples mount the files.
const USUAL_FILES: &str = "/etc/podinfo";
/// On a busy machine, a shorter time could pass between two requests.
const SHORTEST_STALE: Duration = Duration::from_secs(3);
/// How often to ask the source if its answers never expire.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// How long --once waits if answers never expire.
const ONCE: Duration = Duration::from_secs(30);
/// The time limit of one request.
const LONGEST_QUESTION: Duration = Duration::from_secs(5);
/// Tells a program who the leader is, by HTTP on this pod's own localhost, in a file, and by hooks.
///
/// It takes no part in the election: an observer learns of changes late, and later still when it is cut off. For a
/// command that must run only while it holds its lock, use `lictor agent`. lictor reads the files that the kubelet
/// maintains in the pod (--files), which needs no rights; or a LeaderElection at the API server (--election); or a key
/// in Consul (--key). Without any of these options, it reads /etc/podinfo if that exists. Linux only.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").args(["files", "election", "key"]))]
#[command(
    after_help = "HTTP:\n  GET /          {\"name\": \"web-1\", \"last_update\": …}, as the leader-elector sidecars answer; /sse sends it at each change\n  GET /leader    200 if this pod leads, else 503: for load balancers, and never for readiness\n  GET /election  everything that is known, and its age\n  GET /events    each change, as server-sent events\n\nExamples:\n  lictor observe --election web\n  lictor observe --files /etc/podinfo --state-file /run/leader/state.json\n  lictor observe --key services/shop/web/leader --on-leader './start.sh' --on-follower './stop.sh'\n  lictor observe --election shop/web --once    # prints the leader; exits with 0 if this pod leads, with 3 if not"
)]
pub(super) struct Observe {
    /// The directory of a downwardAPI volume with the files `role` and `term`. The pod needs no rights.
    #[arg(long, env = "LICTOR_FILES", value_name = "DIRECTORY")]
    files: Option<PathBuf>,

    /// The LeaderElection, at the API server. Default namespace: the pod's, or the one of the kubeconfig.
    #[arg(long, env = "LICTOR_ELECTION", value_name = "[NAMESPACE/]NAME", value_parser = election)]
    election: Option<String>,

    /// The key of the lock in Consul, for example services/shop/web/leader.
    #[arg(long, env = "LICTOR_KEY", value_name = "KEY", value_parser = key)]
    key: Option<String>,

    /// Where to answer: localhost:PORT, which is 127.0.0.1 and ::1, or ADDRESS:PORT. Port 0 picks a free port and logs
    /// it.
    #[arg(long, env = "LICTOR_LISTEN", value_name = "ADDRESS:PORT", default_value = "localhost:4040", value_parser = Listen::parse)]
    listen: Listen,

    /// How long an answer stays valid, at least 3s. After that, lictor no longer reports this pod as the leader.
    /// `never`: answers never expire. Kubernetes considers a node lost after 40s or more.
    #[arg(long, env = "LICTOR_STALE_AFTER", value_name = "DURATION", default_value = "30s", value_parser = stale_after)]
    stale_after: StaleAfter,

    /// This pod's name, or the agent's name for the key of an agent. Default: the host's name.
    #[arg(long, env = "LICTOR_POD", value_name = "NAME")]
    pod: Option<String>,

    /// This pod's uid. Without it, lictor can't tell this pod from an earlier pod of the same name, so set it in a
    /// StatefulSet.
    #[arg(long, env = "LICTOR_POD_UID", value_name = "UID")]
    pod_uid: Option<String>,

    /// This cluster's name, if several clusters share the lock. It is required if the clusters themselves are the
    /// candidates.
    #[arg(long, env = "LICTOR_CLUSTER", value_name = "NAME")]
    cluster: Option<String>,

    /// The value of the leader's label in the file `role`.
    #[arg(long, env = "LICTOR_LEADER_VALUE", value_name = "VALUE", default_value = "leader")]
    leader_value: String,

    #[command(flatten)]
    tell: Tell,

    /// Print the first answer and exit: with 0 if this pod leads, 3 if it does not, 4 if there is no answer within
    /// --stale-after.
    #[arg(long, conflicts_with_all = ["state_file", "on_leader", "on_follower"])]
    once: bool,

    #[command(flatten)]
    consul: ConsulAccess,

    /// The kubeconfig file, for --election. Default: the one that kubectl uses; in a pod, its service account.
    #[arg(long, env = "LICTOR_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The format of log lines, which go to the standard error.
    #[arg(long, env = "LICTOR_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// How long an answer stays valid. `None`: answers never expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StaleAfter(Option<Duration>);

impl Observe {
    pub(super) fn run(self) -> anyhow::Result<Ended> {
        init_logs(self.log_format)?;
        // One thread, as in an agent, because a small process runs beside each pod.
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(self.observe())
    }

    async fn observe(self) -> anyhow::Result<Ended> {
        let hooks = self.tell.hooks()?.map(HooksAt::Here);
        let (about, source) = self.source().await?;
        let StaleAfter(stale_after) = self.stale_after;
        let start = unique(None);
        let settings = Settings { about, stale_after, state_file: self.tell.state_file.clone(), hooks, start };
        if self.once {
            return match once(settings, source, stale_after.unwrap_or(ONCE)).await {
                Ok((known, role)) => {
                    print(&format!("{known}\n"))?;
                    Ok(if role == Role::Leader { Ended::Well } else { Ended::No })
                }
                Err(problem) => {
                    eprintln!(
                        "lictor: no answer about the election: {}",
                        problem.as_deref().unwrap_or("the source did not answer")
                    );
                    Ok(Ended::Late)
                }
            };
        }
        let listeners = self.listen.bind().await?;
        let address = listeners.first().context("there is no address to listen at")?.local_addr()?;
        tracing::info!(election = settings.about.election, source = settings.about.source, %address, "observing");
        run(settings, listeners, source).await.map(|()| Ended::Well)
    }

    /// Starts to follow the election.
    async fn source(&self) -> anyhow::Result<(About, BoxStream<'static, Heard>)> {
        let StaleAfter(stale_after) = self.stale_after;
        // Leaves time for another request if one fails.
        let every = stale_after.map_or(ASK_EVERY, |time| time / 3);
        let limit = LONGEST_QUESTION.min(every);
        let own = Own {
            pod: self.pod.clone().unwrap_or_else(host),
            uid: self.pod_uid.clone(),
            cluster: self.cluster.clone(),
        };
        if let Some(election) = &self.election {
            let client = connect(self.kubeconfig.as_deref(), limit).await?;
            let (namespace, name) = match election.split_once('/') {
                Some((namespace, name)) => (namespace.to_owned(), name),
                None => (client.default_namespace().to_owned(), election.as_str()),
            };
            let about = about(format!("{namespace}/{name}"), "kubernetes");
            return Ok((about, hear_election(&client, &namespace, name, &own, every, limit)));
        }
        if let Some(key) = &self.key {
            let about = about(key.clone(), "consul");
            return Ok((about, hear_key(&self.consul.client(limit)?, key, &own, every)));
        }
        let usual = || Some(PathBuf::from(USUAL_FILES)).filter(|path| path.is_dir());
        let directory = self.files.clone().or_else(usual).ok_or_else(|| {
            anyhow!("name an election: --election NAME, --key KEY, or --files DIRECTORY; the default, {USUAL_FILES}, does not exist")
        })?;
        let about = About { tells_age: false, ..about(text(&directory), "files") };
        Ok((about, hear_files(directory, self.leader_value.clone(), own, every)))
    }
}

fn about(election: String, source: &'static str) -> About {
    About { election, source, observer: "this pod", tells_age: true }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn election(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        !name.is_empty() && name.len() <= 253 && name.chars().all(is_allowed)
    };
    let (namespace, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
    if is_name(name) && namespace.is_none_or(is_name) {
        Ok(text.to_owned())
    } else {
        Err("write NAME or NAMESPACE/NAME, for example shop/web".into())
    }
}

fn stale_after(text: &str) -> Result<StaleAfter, String> {
    if text == "never" {
        return Ok(StaleAfter(None));
    }
    let time = duration(text).map_err(|why| format!("{why}, or `never`"))?;
    if time < SHORTEST_STALE {
        return Err(format!("it must be at least {SHORTEST_STALE:?}, or `never`"));
    }
    Ok(StaleAfter(Some(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_is_refused() {
        assert!(election("web").is_ok() && election("shop/web").is_ok());
        for text in ["", "/web", "shop/", "a/b/c", "Web", "a b"] {
            assert!(election(text).is_err(), "{text}");
        }
        assert_eq!(stale_after("never"), Ok(StaleAfter(None)));
        assert_eq!(stale_after("1m"), Ok(StaleAfter(Some(Duration::from_secs(60)))));
        assert!(stale_after("2s").is_err() && stale_after("30").is_err());
    }
}

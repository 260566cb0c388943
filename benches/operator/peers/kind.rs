//! Who is compared, and with what timing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A program that elects one of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two programs on client-go's LeaseLock, with its defaults. The winner labels its pod.
    ClientGo,
    /// The same, as fast as is sensible: it survives that the API server does not answer for a second or so.
    ClientGoFast,
    /// Two schedulers of Kubernetes.
    Scheduler,
    /// Consul's own program.
    ConsulLock,
    /// `lictor agent`, with its lock in Consul.
    AgentConsul,
    /// `lictor agent`, with its lock in a Lease, for as long as client-go's defaults.
    AgentLease,
    /// The same with the shortest duration, which is that of [`Kind::ClientGoFast`].
    AgentLeaseFast,
    /// Two pods of a LeaderElection, with a probe, and two replicas of the operator.
    Operator,
}

/// What a command line needs to know.
pub struct Place<'a> {
    /// Which of the two it is.
    pub number: usize,
    /// The namespace of Leases and pods.
    pub namespace: &'a str,
    /// The kubeconfig whose server is behind the member's own link.
    pub kubeconfig: &'a Path,
    /// The address of that link.
    pub server: &'a str,
    /// The program that works while it leads.
    pub elector: &'a Path,
    /// The file for its notes. Without one, it notes nothing.
    pub notes: Option<&'a Path>,
    /// Whether the winner labels its pod.
    pub labels: bool,
    /// Where it listens, if it is in a pod of the operator's.
    pub listen: &'a str,
    /// The scheduler's configuration.
    pub configuration: &'a Path,
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::ClientGo,
        Self::ClientGoFast,
        Self::Scheduler,
        Self::ConsulLock,
        Self::AgentConsul,
        Self::AgentLease,
        Self::AgentLeaseFast,
        Self::Operator,
    ];

    /// Its name in figures, and in names of objects.
    pub fn id(self) -> &'static str {
        match self {
            Self::ClientGo => "client-go",
            Self::ClientGoFast => "client-go-fast",
            Self::Scheduler => "kube-scheduler",
            Self::ConsulLock => "consul-lock",
            Self::AgentConsul => "agent-consul",
            Self::AgentLease => "agent-lease",
            Self::AgentLeaseFast => "agent-lease-fast",
            Self::Operator => "operator",
        }
    }

    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClientGo => "client-go, its defaults",
            Self::ClientGoFast => "client-go, fast",
            Self::Scheduler => "kube-scheduler",
            Self::ConsulLock => "`consul lock`",
            Self::AgentConsul => "`lictor agent`, Consul",
            Self::AgentLease => "`lictor agent`, Lease",
            Self::AgentLeaseFast => "`lictor agent`, Lease, fast",
            Self::Operator => "lictor's operator",
        }
    }

    /// Its times, for people.
    pub fn timing(self) -> &'static str {
        match self {
            Self::ClientGo | Self::Scheduler => "lease 15 s, renew deadline 10 s, retry 2 s",
            Self::ClientGoFast => "lease 3 s, renew deadline 2 s, retry 0.5 s",
            Self::ConsulLock => "TTL 15 s, lock delay 15 s",
            Self::AgentConsul => "TTL 15 s, lock delay 1 s",
            Self::AgentLease => "TTL 15 s",
            Self::AgentLeaseFast => "TTL 3 s",
            Self::Operator => "`connection`, and `httpGet` each second, 3 failures",
        }
    }

    /// Whether its lock is in Consul.
    pub fn in_consul(self) -> bool {
        matches!(self, Self::ConsulLock | Self::AgentConsul)
    }

    /// Whether it is `lictor agent`: two processes and a command.
    pub fn is_agent(self) -> bool {
        matches!(self, Self::AgentConsul | Self::AgentLease | Self::AgentLeaseFast)
    }

    /// Whether it starts another program that works.
    pub fn has_command(self) -> bool {
        self.is_agent() || self == Self::ConsulLock
    }

    /// The arguments of its program.
    pub fn arguments(self, at: &Place) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![];
        let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        let me = format!("{}-{}", self.id(), at.number);
        // Two agents by one name do not run on one machine, and another benchmark may.
        let identity = format!("{me}-{}", std::process::id());
        let notes = |words: &mut Vec<OsString>| {
            if let Some(notes) = at.notes {
                words.extend(["--acts".into(), notes.into()]);
            }
        };
        match self {
            Self::ClientGo | Self::ClientGoFast => {
                let [lease, deadline, retry] =
                    if self == Self::ClientGo { ["15s", "10s", "2s"] } else { ["3s", "2s", "500ms"] };
                add(&["--namespace", at.namespace, "--name", "web", "--identity", &me]);
                add(&["--duration", lease, "--renew-deadline", deadline, "--retry-period", retry]);
                if at.labels {
                    add(&["--pod", &me]);
                }
                words.extend(["--kubeconfig".into(), at.kubeconfig.into()]);
                notes(&mut words);
                return words;
            }
            Self::Scheduler => {
                add(&["--secure-port", "0", "--config"]);
                words.push(at.configuration.into());
                return words;
            }
            Self::Operator => {
                add(&["--work", "--listen", at.listen]);
                return words;
            }
            Self::ConsulLock => {
                add(&["lock", &format!("-http-addr=http://{}", at.server), "-shell=false", "peers"]);
            }
            Self::AgentConsul => {
                add(&["agent", "--consul", &format!("http://{}", at.server), "--key", "peers/leader"]);
                add(&["--ttl", "15s", "--identity", &identity, "--"]);
            }
            Self::AgentLease | Self::AgentLeaseFast => {
                let ttl = if self == Self::AgentLease { "15s" } else { "3s" };
                add(&["agent", "--lease", &format!("{}/web", at.namespace), "--ttl", ttl, "--identity", &identity]);
                words.extend(["--kubeconfig".into(), at.kubeconfig.into(), "--".into()]);
            }
        }
        words.extend([at.elector.into(), "--work".into()]);
        notes(&mut words);
        words
    }
}

/// The program of a kind.
pub fn program(kind: Kind, elector: &Path, scheduler: &Path) -> PathBuf {
    match kind {
        Kind::Scheduler => scheduler.to_owned(),
        Kind::AgentConsul | Kind::AgentLease | Kind::AgentLeaseFast => lictor_testing::program(),
        Kind::ClientGo | Kind::ClientGoFast | Kind::Operator | Kind::ConsulLock => elector.to_owned(),
    }
}

//! Probes the health of leaders.

mod connection;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lictor_core::{ProbeFailure, ProbeRules, ProbeState, Uid};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::api::{ProbeTarget, ResolvedProbe};
use crate::controller::dial::Dial;
use crate::controller::input::Input;
use crate::controller::names::ElectionId;

/// The probing of an election's leader, and of no other pod.
#[derive(Default)]
pub(crate) struct Probing {
    prober: Option<Prober>,
    /// How many probers have begun. A result of an earlier prober no longer counts.
    begun: u64,
    /// The leader that failed last, the address that was probed, and the answer.
    last: Option<(Uid, String)>,
}

/// A leader, and how to probe it.
#[derive(Clone, PartialEq)]
pub(crate) struct Probed {
    pub(crate) leader: Uid,
    pub(crate) ip: IpAddr,
    pub(crate) probe: ResolvedProbe,
}

/// The means of reaching leaders.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) http: reqwest::Client,
    pub(crate) dial: Dial,
}

/// The tasks that probe a leader. Dropping this ends them.
struct Prober {
    probed: Probed,
    number: u64,
    failures: Vec<ProbeFailure>,
    /// Whether the leader has answered correctly once.
    answered: bool,
    tasks: Vec<JoinHandle<()>>,
}

impl Probing {
    /// The leader that fails its probe, and how. A process that is gone is the strongest sign.
    pub(crate) fn failed(&self) -> Option<(&Uid, ProbeFailure)> {
        let Prober { probed, failures, .. } = self.prober.as_ref()?;
        let gone = failures.iter().find(|failure| matches!(failure, ProbeFailure::ProcessGone(_)));
        gone.or(failures.first()).map(|failure| (&probed.leader, *failure))
    }

    /// The leader whose probe has succeeded since the pod began to lead.
    pub(crate) fn answered(&self) -> Option<&Uid> {
        self.prober.as_ref().filter(|prober| prober.answered).map(|prober| &prober.probed.leader)
    }

    /// The address at which the leader that failed last was probed, and the answer.
    pub(crate) fn told(&self, leader: &Uid) -> Option<&str> {
        self.last.as_ref().filter(|(uid, _)| uid == leader).map(|(_, told)| told.as_str())
    }

    /// Takes a result of the prober with this number: whether the leader fails in this way, and if so the address and the answer. Returns
    /// whether that prober still runs.
    pub(crate) fn take(&mut self, number: u64, failure: ProbeFailure, found: Result<(), String>) -> bool {
        let Some(prober) = self.prober.as_mut().filter(|prober| prober.number == number) else { return false };
        prober.failures.retain(|other| *other != failure);
        match found {
            Ok(()) => prober.answered |= failure == ProbeFailure::NoAnswer,
            Err(told) => {
                prober.failures.push(failure);
                self.last = Some((prober.probed.leader.clone(), told));
            }
        }
        true
    }

    /// Probes this leader from now on, unless that is already under way; `None` stops the probing.
    pub(crate) fn follow(
        &mut self,
        probed: Option<Probed>,
        id: &ElectionId,
        reach: &Reach,
        inputs: &mpsc::UnboundedSender<Input>,
    ) {
        if self.prober.as_ref().map(|prober| &prober.probed) == probed.as_ref() {
            return;
        }
        self.begun += 1;
        let number = self.begun;
        self.prober = probed.map(|probed| {
            let tell = |failure: ProbeFailure| {
                let (id, inputs) = (id.clone(), inputs.clone());
                move |found| inputs.send(Input::Probed(id.clone(), number, failure, found)).is_ok()
            };
            let Probed { ip, probe, .. } = &probed;
            let mut tasks = Vec::new();
            if let Some(target) = probe.target.clone() {
                let asking = ask_on(*ip, target, probe.rules, reach.http.clone(), tell(ProbeFailure::NoAnswer));
                tasks.push(crate::process::spawn(asking));
            }
            if let Some(port) = probe.connection {
                let to = SocketAddr::new(*ip, port);
                let tell = tell(ProbeFailure::ProcessGone(port));
                let tell = move |gone| tell(if gone { Err(format!("{to} refuses connections")) } else { Ok(()) });
                let holding = connection::hold(to, probe.rules.timeout, reach.dial.clone(), tell);
                tasks.push(crate::process::spawn(holding));
            }
            Prober { probed, number, failures: Vec::new(), answered: false, tasks }
        });
    }

    /// Stops the probing for now.
    pub(crate) fn stop(&mut self) {
        self.prober = None;
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A client for probes: a redirect is an answer, and no proxy stands between the operator and a pod.
///
/// # Errors
/// If the system lacks what a client needs.
pub(crate) fn probe_client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .tls_certs_only([])
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .pool_max_idle_per_host(0)
        .user_agent(concat!("lictor/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Probes for as long as `tell` returns true. Calls `tell` when the leader answers for the first time, begins to fail, or recovers.
async fn ask_on(
    ip: IpAddr,
    target: ProbeTarget,
    rules: ProbeRules,
    http: reqwest::Client,
    tell: impl Fn(Result<(), String>) -> bool,
) {
    let mut ticks = interval(rules.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut state = ProbeState::default();
    let mut before = None;
    loop {
        ticks.tick().await;
        let found = ask(ip, &target, rules.timeout, &http).await;
        let failed = state.observe(found.is_ok(), &rules);
        // A single missing answer is not yet a failure.
        let news = if failed { Some(true) } else { found.is_ok().then_some(false) };
        if news.is_none() || news == before {
            continue;
        }
        before = news;
        if !tell(if failed { found } else { Ok(()) }) {
            return;
        }
    }
}

/// Probes once.
///
/// # Errors
/// If the leader does not answer correctly: returns the address and the answer.
async fn ask(ip: IpAddr, target: &ProbeTarget, limit: Duration, http: &reqwest::Client) -> Result<(), String> {
    let host = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    match target {
        ProbeTarget::Http(port, path) => {
            let url = format!("http://{host}:{port}{path}");
            match http.get(&url).timeout(limit).send().await {
                Ok(answer) if answer.status().is_success() || answer.status().is_redirection() => Ok(()),
                Ok(answer) => Err(format!("{url} answers {}", answer.status())),
                Err(error) if error.is_timeout() => Err(format!("{url}: no answer within {} s", limit.as_secs())),
                Err(error) => Err(format!("{url}: {}", cause(&error))),
            }
        }
        ProbeTarget::Tcp(port) => match timeout(limit, TcpStream::connect((ip, *port))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("{host}:{port}: {error}")),
            Err(_) => Err(format!("{host}:{port}: no connection within {} s", limit.as_secs())),
        },
    }
}

/// The root cause of an error.
fn cause(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::controller::names::Namespace;

    #[tokio::test]
    async fn what_was_found_of_another_leader_or_port_counts_no_more() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let id = ElectionId { election: Namespace::from("shop").election("web"), uid: Uid("e".into()) };
        let dial: Dial = Arc::new(|_| std::future::pending().boxed());
        let reach = Reach { http: probe_client().unwrap(), dial };
        let (inputs, _told) = mpsc::unbounded_channel();
        let probed = |leader: &str, port| {
            let second = Duration::from_secs(1);
            let rules = ProbeRules { period: second, timeout: second, failure_threshold: 1, success_threshold: 1 };
            let probe = ResolvedProbe { target: Some(ProbeTarget::Tcp(1)), connection: Some(port), rules };
            Some(Probed { leader: Uid(leader.into()), ip: IpAddr::from([127, 0, 0, 1]), probe })
        };
        let fails = || Err("10.0.0.1:80 refuses connections".to_owned());
        let (gone, a) = (ProbeFailure::ProcessGone, Uid("a".into()));
        let mut probing = Probing::default();
        probing.follow(probed("a", 80), &id, &reach, &inputs);
        assert!(probing.take(1, ProbeFailure::NoAnswer, fails()) && probing.take(1, gone(80), fails()));
        assert_eq!(probing.failed(), Some((&a, gone(80))), "this says the most");
        assert!(probing.take(1, gone(80), Ok(())));
        assert_eq!(probing.failed(), Some((&a, ProbeFailure::NoAnswer)));
        assert_eq!(probing.told(&a), Some("10.0.0.1:80 refuses connections"));
        assert_eq!(probing.answered(), None);
        // The target is the same, so the probing does not start again.
        probing.follow(probed("a", 80), &id, &reach, &inputs);
        assert_eq!(probing.failed(), Some((&a, ProbeFailure::NoAnswer)));
        for next in [probed("a", 81), probed("b", 81), None, probed("b", 81)] {
            probing.follow(next, &id, &reach, &inputs);
            assert_eq!(probing.failed(), None);
            assert!(!probing.take(1, gone(80), fails()), "it was on its way");
            assert_eq!(probing.failed(), None);
        }
    }

    #[tokio::test]
    async fn a_pod_is_asked_at_its_address_of_either_family() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).await.unwrap();
            let local = listener.local_addr().unwrap();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let _ = stream.read(&mut [0; 1024]).await;
                    let _ =
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
                }
            });
            let (http, limit) = (probe_client().unwrap(), Duration::from_secs(10));
            for target in [ProbeTarget::Http(local.port(), "/leader".into()), ProbeTarget::Tcp(local.port())] {
                assert_eq!(ask(local.ip(), &target, limit, &http).await, Ok(()), "{local} {target:?}");
            }
        }
    }
}

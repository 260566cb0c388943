//! Asks leaders for their health.

use std::net::IpAddr;
use std::time::Duration;

use lictor_core::{ProbeState, Uid};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::api::{ProbeTarget, ResolvedProbe};
use crate::controller::input::Input;
use crate::controller::names::ElectionId;

/// The probing of an election's leader, and of nobody else.
#[derive(Default)]
pub(crate) struct Probing {
    prober: Option<Prober>,
    failed: Option<Uid>,
}

/// A leader, and how it is asked.
#[derive(Clone, PartialEq)]
pub(crate) struct Probed {
    pub(crate) leader: Uid,
    pub(crate) ip: IpAddr,
    pub(crate) probe: ResolvedProbe,
}

/// The task that asks; it ends when this is dropped.
struct Prober {
    probed: Probed,
    task: JoinHandle<()>,
}

impl Probing {
    /// The leader that fails its probe.
    pub(crate) fn failed(&self) -> Option<&Uid> {
        self.failed.as_ref()
    }

    /// Takes whether a leader fails. Returns whether it is the one that is asked.
    pub(crate) fn take(&mut self, leader: Uid, failed: bool) -> bool {
        let is_asked = self.prober.as_ref().is_some_and(|prober| prober.probed.leader == leader);
        if is_asked {
            self.failed = failed.then_some(leader);
        }
        is_asked
    }

    /// Asks this leader from now on, if it is not asked already; `None`: nobody.
    pub(crate) fn follow(
        &mut self,
        probed: Option<Probed>,
        id: &ElectionId,
        http: &reqwest::Client,
        inputs: &mpsc::UnboundedSender<Input>,
    ) {
        if self.prober.as_ref().map(|prober| &prober.probed) == probed.as_ref() {
            // Who is asked no more, does not fail any more.
            self.failed = self.failed.take().filter(|_| probed.is_some());
            return;
        }
        self.failed = None;
        self.prober = probed.map(|probed| {
            let asking = ask_on(id.clone(), probed.clone(), http.clone(), inputs.clone());
            Prober { probed, task: crate::process::spawn(asking) }
        });
    }

    /// Asks nobody for now.
    pub(crate) fn stop(&mut self) {
        self.prober = None;
    }

    /// The same, and forgets who failed.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.task.abort();
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

async fn ask_on(id: ElectionId, probed: Probed, http: reqwest::Client, inputs: mpsc::UnboundedSender<Input>) {
    let Probed { leader, ip, probe } = probed;
    let mut ticks = interval(probe.rules.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut state = ProbeState::default();
    let mut before = false;
    loop {
        ticks.tick().await;
        let answers = ask(ip, &probe.target, probe.rules.timeout, &http).await;
        let failed = state.observe(answers, &probe.rules);
        if failed != before && inputs.send(Input::Probed(id.clone(), leader.clone(), failed)).is_err() {
            return;
        }
        before = failed;
    }
}

async fn ask(ip: IpAddr, target: &ProbeTarget, limit: Duration, http: &reqwest::Client) -> bool {
    let host = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    match target {
        ProbeTarget::Http(port, path) => {
            let answer = http.get(format!("http://{host}:{port}{path}")).timeout(limit).send().await;
            answer.is_ok_and(|answer| answer.status().is_success() || answer.status().is_redirection())
        }
        ProbeTarget::Tcp(port) => matches!(timeout(limit, TcpStream::connect((ip, *port))).await, Ok(Ok(_))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

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
                assert!(ask(local.ip(), &target, limit, &http).await, "{local} {target:?}");
            }
        }
    }
}

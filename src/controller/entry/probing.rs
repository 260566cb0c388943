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

/// The probing of one leader; it ends when this is dropped.
pub(crate) struct Prober {
    pub(crate) leader: Uid,
    pub(crate) probe: ResolvedProbe,
    pub(crate) ip: IpAddr,
    task: JoinHandle<()>,
}

impl Prober {
    pub(crate) fn start(
        id: ElectionId,
        leader: Uid,
        ip: IpAddr,
        probe: ResolvedProbe,
        http: reqwest::Client,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> Self {
        let task = crate::process::spawn(ask_on(id, leader.clone(), ip, probe.clone(), http, inputs));
        Self { leader, probe, ip, task }
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

async fn ask_on(
    id: ElectionId,
    leader: Uid,
    ip: IpAddr,
    probe: ResolvedProbe,
    http: reqwest::Client,
    inputs: mpsc::UnboundedSender<Input>,
) {
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

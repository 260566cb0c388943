//! Leaders whose process ends while they still look ready: the connection that is held to them tells of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lictor_testing::kubernetes::{Lab, eventually, is_ready};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A refusal says something of a server that has accepted connections for a second. So much longer, the operator may be busy.
const KNOWN: Duration = Duration::from_secs(3);

/// A pod's server, as its process has it: it keeps each connection, and all are closed when it ends.
struct Server {
    ip: String,
    port: u16,
    accepted: Arc<AtomicU32>,
    open: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

/// One that counts connections as open for as long as it exists.
struct Open(Arc<AtomicU32>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// Starts it at an address. Port 0 picks a free port.
    async fn start(ip: &str, port: u16) -> Self {
        let listener = TcpListener::bind((ip, port)).await.expect("the address is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (accepted, open) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (counted, opened) = (accepted.clone(), open.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                opened.fetch_add(1, Ordering::Relaxed);
                let open = Open(opened.clone());
                connections.spawn(async move {
                    // Nothing is sent over it, until the other side closes it.
                    let _ = connection.read(&mut [0; 1]).await;
                    drop((connection, open));
                });
            }
        });
        Self { ip: ip.into(), port, accepted, open, task }
    }

    /// Starts two at loopback addresses that only this process and this test use, at the same port.
    async fn pair(test: u32) -> [Self; 2] {
        let process = std::process::id();
        let ip =
            |number: u32| format!("127.{}.{}.{}", 1 + process % 250, 1 + process / 250 % 250, 200 + 4 * test + number);
        let first = Self::start(&ip(1), 0).await;
        let second = Self::start(&ip(2), first.port).await;
        [first, second]
    }

    fn accepted(&self) -> u32 {
        self.accepted.load(Ordering::Relaxed)
    }

    async fn has_open(&self, connections: u32) {
        eventually(&format!("{connections} connections are open to {}", self.ip), || async {
            let open = self.open.load(Ordering::Relaxed);
            if open == connections { Ok(()) } else { Err(open.to_string()) }
        })
        .await;
    }

    /// Waits until the operator knows it.
    async fn is_known(&self) {
        self.has_open(1).await;
        tokio::time::sleep(KNOWN).await;
        assert_eq!((self.accepted(), self.open.load(Ordering::Relaxed)), (1, 1), "one connection is held");
    }

    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_process_ends_is_replaced_while_it_looks_ready() {
    let lab = Lab::new("process-ends").await;
    let recorder = lab.record().await;
    let operator = lab.operator(&[]);
    let [first, second] = Server::pair(1).await;
    lab.ready_pod_at("a", &first.ip).await;
    lab.ready_pod_at("b", &second.ip).await;
    lab.elect(json!({"probe": {"connection": {"port": first.port}}})).await;
    let old = lab.wait_any_leader().await;
    let (led, follows, new) = if old == "a" { (first, second, "b") } else { (second, first, "a") };
    led.is_known().await;
    assert_eq!(follows.accepted(), 0, "nobody connects to a follower");
    let (ip, port) = (led.ip.clone(), led.port);
    let killed = Instant::now();
    led.kill().await;
    lab.wait_leader(new).await;
    println!("{new} leads {:?} after the process of {old} ended", killed.elapsed());
    lab.wait_reason(new, "ProcessGone").await;
    assert!(is_ready(&lab.get_pod(&old).await), "it looks ready still");
    let note = lab.wait_event("Pod", &old, "Demoted").await;
    let expected = format!("the leader's process is gone: {ip} refuses connections to port {port}");
    assert!(note.contains(&expected), "{note}");
    // It is the new leader's turn, and the operator's connection ends with the operator.
    follows.is_known().await;
    drop(operator);
    follows.has_open(0).await;
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_process_ends_stays_if_nobody_else_is_eligible() {
    let lab = Lab::new("process-ends-alone").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let [only, other] = Server::pair(2).await;
    lab.ready_pod_at("a", &only.ip).await;
    // Both look at it: one sees a process that ends, the other one that hangs.
    let probe = json!({"connection": {"port": only.port}, "tcpSocket": {"port": only.port}, "failureThreshold": 100});
    lab.elect(json!({"probe": probe})).await;
    lab.wait_leader("a").await;
    eventually("a is connected to", || async { if only.accepted() > 0 { Ok(()) } else { Err("no".to_owned()) } }).await;
    tokio::time::sleep(KNOWN).await;
    let (ip, port) = (only.ip.clone(), only.port);
    only.kill().await;
    let message = lab.wait_condition("web", "Elected", "True", "ProbeFails").await;
    let expected = format!("a refuses connections to port {port}, so its process is gone, but remains the leader");
    assert!(message.contains(&expected) && message.contains("no other pod is eligible"), "{message}");
    // It is started again, in the same pod.
    let _only = Server::start(&ip, port).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    lab.ready_pod_at("b", &other.ip).await;
    lab.wait_leader("a").await;
    assert_eq!(recorder.assert_promises().await, 1);
}

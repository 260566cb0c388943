//! A client that calls a Service all the time, with a new connection for each call, and records the answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The time between two calls.
const PERIOD: Duration = Duration::from_millis(5);
/// The time without an answer after which a call is lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a call that has no answer by then is waited for after that: a packet that the machine drops under load is sent again after 1 s.
const LATE: Duration = Duration::from_millis(2500);
/// The ports that the calls come from, one after the other. If a connection was never answered, the node remembers for two
/// minutes where it sent connections from that port, and would send the next one to the same pod, which is gone. Many clients do
/// not have this problem.
const PORTS: RangeInclusive<u16> = 32768..=60999;

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    pub sent: Instant,
    pub ended: Instant,
    /// The pod that answered, or why there was no answer.
    pub answer: Result<String, String>,
}

/// Calls until it is dropped.
pub struct Caller {
    calls: Arc<Mutex<Vec<Call>>>,
    /// When the calls were sent that were answered after all.
    late: Arc<Mutex<Vec<Instant>>>,
    pauses: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Caller {
    pub fn start(address: SocketAddr) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let pauses = Arc::new(AtomicBool::new(false));
        let late = Arc::<Mutex<Vec<Instant>>>::default();
        let (kept, rests, answered) = (calls.clone(), pauses.clone(), late.clone());
        let task = tokio::spawn(async move {
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            for port in PORTS.cycle() {
                ticks.tick().await;
                if rests.load(Ordering::Relaxed) {
                    continue;
                }
                let (kept, answered) = (kept.clone(), answered.clone());
                tokio::spawn(async move {
                    let sent = Instant::now();
                    let connected = AtomicBool::new(false);
                    let stage = || if connected.load(Ordering::Relaxed) { "answer" } else { "connection" };
                    let mut asks = std::pin::pin!(ask(port, address, &connected));
                    let answer = timeout(PATIENCE, asks.as_mut()).await;
                    let is_late = answer.is_err();
                    let answer = match answer {
                        Ok(answer) => answer.map_err(|error| format!("{}: {error}", stage())),
                        Err(_) => Err(format!("no {} in time", stage())),
                    };
                    kept.lock().unwrap().push(Call { sent, ended: Instant::now(), answer });
                    if is_late && matches!(timeout(LATE, asks).await, Ok(Ok(_))) {
                        answered.lock().unwrap().push(sent);
                    }
                });
            }
        });
        Self { calls, late, pauses, task }
    }

    /// Stops calling, or begins again: what nobody looks at takes time from what is measured.
    pub fn pause(&self, pauses: bool) {
        self.pauses.store(pauses, Ordering::Relaxed);
    }

    /// Waits until a call that was lost could have been answered late. Returns whether it was.
    pub async fn was_late(&self, call: &Call) -> bool {
        tokio::time::sleep_until((call.sent + PATIENCE + LATE + PERIOD).into()).await;
        self.late.lock().unwrap().contains(&call.sent)
    }

    /// Returns all calls that were sent from this moment on and have ended, in the order in which they were sent.
    pub fn since(&self, start: Instant) -> Vec<Call> {
        // They are stored in the order in which they ended.
        let kept = self.calls.lock().unwrap();
        let mut calls: Vec<Call> = kept.iter().rev().take_while(|call| call.ended >= start).cloned().collect();
        drop(kept);
        calls.retain(|call| call.sent >= start);
        calls.sort_by_key(|call| call.sent);
        calls
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends one call. The pods answer with their names.
async fn ask(port: u16, address: SocketAddr, connected: &AtomicBool) -> std::io::Result<String> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    // Another process may use the port.
    if socket.bind((Ipv4Addr::UNSPECIFIED, port).into()).is_err() {
        socket.bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
    }
    let mut stream = socket.connect(address).await?;
    stream.set_zero_linger()?;
    connected.store(true, Ordering::Relaxed);
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.trim().to_owned()),
        _ => Err(std::io::Error::other("cut off")),
    }
}

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use lictor_process::{spawn_in, virtual_process};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::*;
use crate::controller::dial::dialer;

const LIMIT: Duration = Duration::from_secs(1);
/// Longer than a refusal takes to count.
const STEADY: Duration = Duration::from_millis(1_200);

/// The reports of the connection that is held to a server.
struct Held {
    task: JoinHandle<()>,
    told: mpsc::UnboundedReceiver<bool>,
    attempts: Arc<AtomicU64>,
}

impl Held {
    fn to(address: SocketAddr) -> Self {
        let dial = dialer();
        Self::by(address, move |to| dial(to))
    }

    /// Counts the connection attempts.
    fn by(
        address: SocketAddr,
        dial: impl Fn(SocketAddr) -> futures::future::BoxFuture<'static, io::Result<Connection>> + Send + Sync + 'static,
    ) -> Self {
        let (sender, told) = mpsc::unbounded_channel();
        let attempts = Arc::new(AtomicU64::new(0));
        let counted = attempts.clone();
        let dial: Dial = Arc::new(move |to| {
            counted.fetch_add(1, Ordering::Relaxed);
            dial(to)
        });
        let task = lictor_process::spawn(hold(address, LIMIT, dial, move |gone| sender.send(gone).is_ok()));
        Self { task, told, attempts }
    }

    fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    fn assert_nothing_told(&mut self) {
        assert_eq!(self.told.try_recv(), Err(mpsc::error::TryRecvError::Empty));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server that behaves as a process does: when it ends, its listener and all its connections are closed.
struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Accepts connections, and closes each after this time.
    fn start(address: &str, closes: Option<Duration>) -> Self {
        let socket = if address.starts_with('[') { TcpSocket::new_v6() } else { TcpSocket::new_v4() }.unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address.parse().unwrap()).unwrap();
        let listener = socket.listen(64).unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                connections.spawn(async move {
                    match closes {
                        Some(after) => sleep(after).await,
                        None => std::future::pending().await,
                    }
                    drop(connection);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, task }
    }

    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

#[tokio::test]
async fn a_server_that_ends_is_gone_at_once_and_back_when_it_has_accepted_for_a_second() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let server = Server::start(any, None);
        let address = server.address;
        let mut held = Held::to(address);
        sleep(STEADY).await;
        held.assert_nothing_told();
        assert_eq!(held.attempts(), 1);
        let killed = std::time::Instant::now();
        server.kill().await;
        assert_eq!(held.told.recv().await, Some(true));
        let took = killed.elapsed();
        println!("{address}: gone after {took:?}");
        assert!(took >= Duration::from_millis(10) && took < Duration::from_secs(1), "{took:?}");
        let restarted = std::time::Instant::now();
        let _server = Server::start(&address.to_string(), None);
        assert_eq!(held.told.recv().await, Some(false));
        assert!(restarted.elapsed() >= Duration::from_secs(1), "{:?}", restarted.elapsed());
    }
}

#[tokio::test]
async fn a_connection_that_is_reset_is_one_that_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut held = Held::to(listener.local_addr().unwrap());
    let (connection, _) = listener.accept().await.unwrap();
    sleep(STEADY).await;
    drop(listener);
    socket2::SockRef::from(&connection).set_linger(Some(Duration::ZERO)).unwrap();
    drop(connection);
    assert_eq!(held.told.recv().await, Some(true));
}

#[tokio::test]
async fn a_server_that_closes_its_connections_is_never_gone() {
    let server = Server::start("127.0.0.1:0", Some(Duration::from_millis(600)));
    let mut held = Held::to(server.address);
    sleep(Duration::from_secs(4)).await;
    held.assert_nothing_told();
    let attempts = held.attempts();
    assert!((4..=8).contains(&attempts), "{attempts}");
    // The connection ends like any other.
    server.kill().await;
    assert_eq!(held.told.recv().await, Some(true));
}

/// LICTOR_CONNECTION_SECONDS sets the duration; the default is an hour.
#[tokio::test]
#[ignore = "takes an hour: make connection"]
async fn an_hour_of_a_server_that_closes_idle_connections_every_second() {
    let seconds = std::env::var("LICTOR_CONNECTION_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_600);
    let server = Server::start("127.0.0.1:0", Some(Duration::from_secs(1)));
    let mut held = Held::to(server.address);
    sleep(Duration::from_secs(seconds)).await;
    let mut losses = 0;
    while let Ok(gone) = held.told.try_recv() {
        losses += u64::from(gone);
    }
    println!("{seconds} s: {} connections, {losses} losses", held.attempts());
    assert_eq!(losses, 0);
    assert!(held.attempts() > seconds * 8 / 10 && held.attempts() <= seconds + 2, "{}", held.attempts());
    server.kill().await;
    assert_eq!(held.told.recv().await, Some(true), "and its end is seen");
}

#[tokio::test]
async fn a_proxy_that_accepts_for_a_dead_server_is_never_gone() {
    let server = Server::start("127.0.0.1:0", None);
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (before, behind) = (proxy.local_addr().unwrap(), server.address);
    let proxying = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut connection, _)) = proxy.accept().await {
            connections.spawn(async move {
                if let Ok(mut server) = TcpStream::connect(behind).await {
                    let _ = tokio::io::copy_bidirectional(&mut connection, &mut server).await;
                }
            });
        }
    });
    let mut held = Held::to(before);
    sleep(STEADY).await;
    assert_eq!(held.attempts(), 1);
    server.kill().await;
    sleep(Duration::from_secs(3)).await;
    held.assert_nothing_told();
    let attempts = held.attempts();
    assert!((8..=14).contains(&attempts), "it tries again, with pauses: {attempts}");
    proxying.abort();
    assert_eq!(held.told.recv().await, Some(true), "the proxy itself is gone");
}

#[tokio::test]
async fn a_server_whose_queue_of_connections_is_full_is_never_gone() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Held::to(address);
    let (connection, _) = listener.accept().await.unwrap();
    sleep(STEADY).await;
    // The server no longer accepts, and others connect.
    let mut others = Vec::new();
    while let Ok(Ok(other)) = timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        others.push(other);
        assert!(others.len() < 16, "the queue is never full");
    }
    drop(connection);
    sleep(Duration::from_secs(3)).await;
    held.assert_nothing_told();
    assert!(held.attempts() > 1, "it tried again");
}

#[tokio::test]
async fn what_a_server_sends_is_thrown_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut held = Held::to(listener.local_addr().unwrap());
    let (mut connection, _) = listener.accept().await.unwrap();
    let mut sent = 0;
    let begun = std::time::Instant::now();
    while begun.elapsed() < STEADY {
        let writes = connection.write(&[7; 4_096]);
        if let Ok(Ok(written)) = timeout(Duration::from_millis(50), writes).await {
            sent += written;
        }
    }
    held.assert_nothing_told();
    assert!(sent > 65_536, "it reads: {sent}");
    assert!(sent < 16 << 20, "and not as fast as it can: {sent}");
    let ended = std::time::Instant::now();
    drop((connection, listener));
    assert_eq!(held.told.recv().await, Some(true));
    println!("{sent} bytes were sent, and its end was seen after {:?}", ended.elapsed());
}

/// How a pod's address treats connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    Accepts,
    Refuses,
    /// Packets are lost, so nothing arrives, even over open connections.
    Silent,
    Unreachable,
}

/// A pod's address in virtual time. A connection is closed when the address refuses others.
fn pod(
    address: &watch::Sender<Address>,
) -> impl Fn(SocketAddr) -> futures::future::BoxFuture<'static, io::Result<Connection>> + use<> {
    let address = address.clone();
    move |_| {
        let mut address = address.subscribe();
        async move {
            let now = *address.borrow_and_update();
            match now {
                Address::Accepts => {
                    let (ours, theirs) = tokio::io::duplex(64);
                    tokio::spawn(async move {
                        let _ = address.wait_for(|now| *now == Address::Refuses).await;
                        drop(theirs);
                    });
                    Ok(Box::pin(ours) as Connection)
                }
                Address::Refuses => Err(ErrorKind::ConnectionRefused.into()),
                Address::Silent => std::future::pending().await,
                Address::Unreachable => Err(ErrorKind::HostUnreachable.into()),
            }
        }
        .boxed()
    }
}

/// The reports, and their times in milliseconds, about an address that behaves like this from each moment on, until 20 s.
async fn told(behaves: &[(u64, Address)]) -> Vec<(bool, u64)> {
    let begun = tokio::time::Instant::now();
    let address = watch::channel(behaves[0].1).0;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let dial: Dial = Arc::new(pod(&address));
    let noted = seen.clone();
    let holding = spawn_in(&virtual_process(), async move {
        let tell = move |gone| {
            noted.lock().unwrap().push((gone, u64::try_from(begun.elapsed().as_millis()).unwrap()));
            true
        };
        hold("10.0.0.1:8080".parse().unwrap(), LIMIT, dial, tell).await;
    });
    for (moment, now) in behaves {
        tokio::time::sleep_until(begun + Duration::from_millis(*moment)).await;
        address.send_replace(*now);
    }
    tokio::time::sleep_until(begun + Duration::from_secs(20)).await;
    holding.abort();
    seen.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn only_refusals_for_a_while_by_an_address_that_accepted_for_a_while_say_something() {
    use Address::{Accepts, Refuses, Silent, Unreachable};
    assert_eq!(told(&[(0, Accepts), (5_000, Refuses)]).await, [(true, 5_010)]);
    // The server opens its socket again.
    assert_eq!(told(&[(0, Accepts), (5_000, Refuses), (5_008, Accepts)]).await, []);
    assert_eq!(told(&[(0, Accepts), (5_000, Refuses), (5_030, Accepts)]).await, [(true, 5_010), (false, 6_045)]);
    // The address is never reached, is reached for a moment, or begins late.
    assert_eq!(told(&[(0, Refuses)]).await, []);
    assert_eq!(told(&[(0, Accepts), (500, Refuses)]).await, []);
    let late = told(&[(0, Refuses), (3_000, Accepts), (9_000, Refuses)]).await;
    assert_eq!(late, [(true, 9_010)]);
    // A network loses everything, or reports that no host is there.
    assert_eq!(told(&[(0, Accepts), (5_000, Silent), (15_000, Accepts)]).await, []);
    assert_eq!(told(&[(0, Silent), (5_000, Unreachable), (10_000, Refuses)]).await, []);
    // The process ends while the network is silent.
    let later = told(&[(0, Accepts), (5_000, Silent), (7_000, Refuses)]).await;
    assert_eq!(later, [(true, 7_010)]);
}

//! A TCP proxy in front of a server, which cuts or disturbs its connections.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use crate::Prng;

/// A way to a server. It works until it is dropped.
pub struct Link {
    address: String,
    state: watch::Sender<State>,
    /// The changes that the acceptor has seen.
    seen: watch::Receiver<u64>,
    bytes: Arc<AtomicU64>,
    acceptor: JoinHandle<()>,
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// How a direction of the connections is disturbed.
#[derive(Clone, Copy, Debug)]
pub enum Disturbance {
    /// Everything arrives later, by `by` more or less `jitter`, and in order.
    Late { by: Duration, jitter: Duration },
    /// Nothing arrives. A connection that lost something is closed when the disturbance ends.
    Lost,
    /// The connection is reset so long after something was sent.
    Reset { after: Duration },
    /// The connection is closed after so many bytes.
    Short { bytes: usize },
}

#[derive(Clone)]
struct State {
    changes: u64,
    upstream: String,
    enabled: bool,
    up: Option<Disturbance>,
    down: Option<Disturbance>,
}

impl State {
    const fn of(&self, stream: Stream) -> Option<Disturbance> {
        match stream {
            Stream::Up => self.up,
            Stream::Down => self.down,
        }
    }
}

/// The links have a thread of their own, so a test that blocks its threads blocks no connection.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread can be started")
});

impl Link {
    /// Creates a way to a socket such as `127.0.0.1:8500`.
    pub fn to(upstream: &str) -> Self {
        let _entered = RUNTIME.enter();
        // This socket never listens, so it keeps the address while the link refuses connections.
        let reserved = bound(([127, 0, 0, 1], 0).into()).expect("an address is free");
        let address = reserved.local_addr().expect("it is bound");
        let listener = bound(address).and_then(|socket| socket.listen(1024)).expect("the address is reserved");
        let (state, states) =
            watch::channel(State { changes: 0, upstream: upstream.to_owned(), enabled: true, up: None, down: None });
        let (see, seen) = watch::channel(0);
        let bytes = Arc::new(AtomicU64::new(0));
        let acceptor = Acceptor { address, _reserved: reserved, states, see, bytes: bytes.clone() };
        Self { address: address.to_string(), state, seen, bytes, acceptor: RUNTIME.spawn(acceptor.run(listener)) }
    }

    /// Returns the address at which it listens, for example `127.0.0.1:20001`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns how many bytes it has passed on, in both directions: TCP's payload, so with TLS and without the headers of packets.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Cuts all connections, and refuses new ones.
    pub async fn disable(&self) {
        self.change(|state| state.enabled = false).await;
    }

    /// Accepts connections again.
    pub async fn enable(&self) {
        self.change(|state| state.enabled = true).await;
    }

    /// Leads to another server from now on. Present connections end.
    pub async fn lead_to(&self, upstream: &str) {
        self.change(|state| upstream.clone_into(&mut state.upstream)).await;
    }

    /// Disturbs a direction of all connections, also the present ones. This replaces an earlier disturbance of that direction.
    pub async fn disturb(&self, stream: Stream, disturbance: Disturbance) {
        self.change(|state| match stream {
            Stream::Up => state.up = Some(disturbance),
            Stream::Down => state.down = Some(disturbance),
        })
        .await;
    }

    /// Ends the disturbance of both directions.
    pub async fn clear(&self) {
        self.change(|state| (state.up, state.down) = (None, None)).await;
    }

    /// Makes a change, and waits until it applies to new connections.
    async fn change(&self, change: impl FnOnce(&mut State)) {
        let mut changes = 0;
        self.state.send_modify(|state| {
            change(state);
            state.changes += 1;
            changes = state.changes;
        });
        self.seen.clone().wait_for(|seen| *seen >= changes).await.expect("the link runs until it is dropped");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Returns a socket at an address that others of this link may share.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

struct Acceptor {
    address: SocketAddr,
    _reserved: TcpSocket,
    states: watch::Receiver<State>,
    see: watch::Sender<u64>,
    bytes: Arc<AtomicU64>,
}

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        let (mut listener, mut connections) = (Some(listener), JoinSet::new());
        let mut upstream = self.states.borrow().upstream.clone();
        loop {
            let accepted = async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                changed = self.states.changed() => {
                    let state = self.states.borrow_and_update().clone();
                    if changed.is_err() {
                        return;
                    }
                    if state.enabled {
                        let listen = || bound(self.address)?.listen(1024);
                        listener = listener.or_else(|| Some(listen().expect("the address is reserved")));
                    } else {
                        listener = None;
                    }
                    if !state.enabled || state.upstream != upstream {
                        connections.shutdown().await;
                    }
                    upstream = state.upstream;
                    self.see.send_replace(state.changes);
                }
                Ok((near, _)) = accepted => {
                    connections.spawn(serve(near, upstream.clone(), self.states.clone(), self.bytes.clone()));
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }
}

/// How a disturbance, or an error, ends a connection.
enum End {
    Closed,
    Reset,
}

async fn serve(mut near: TcpStream, upstream: String, states: watch::Receiver<State>, bytes: Arc<AtomicU64>) {
    let Ok(mut far) = TcpStream::connect(upstream).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let end = {
        let ((from_near, to_near), (from_far, to_far)) = (near.split(), far.split());
        tokio::try_join!(
            Direction::new(Stream::Up, states.clone(), &bytes).pass(from_near, to_far),
            Direction::new(Stream::Down, states, &bytes).pass(from_far, to_near),
        )
    };
    if matches!(end, Err(End::Reset)) {
        let _ = (near.set_zero_linger(), far.set_zero_linger());
    }
}

/// A direction of one connection.
struct Direction<'a> {
    stream: Stream,
    states: watch::Receiver<State>,
    bytes: &'a AtomicU64,
    /// What has arrived and is passed on later, with the time when it is due.
    late: VecDeque<(Instant, Vec<u8>)>,
    /// How much has passed since the disturbance changed.
    passed: usize,
    lost: bool,
    jitter: Prng,
}

impl<'a> Direction<'a> {
    fn new(stream: Stream, states: watch::Receiver<State>, bytes: &'a AtomicU64) -> Self {
        Self { stream, states, bytes, late: VecDeque::new(), passed: 0, lost: false, jitter: Prng::new(0) }
    }

    /// Passes on what arrives until the sender has finished.
    async fn pass(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), End> {
        let (mut buffer, mut finished) = (vec![0; 32 * 1024], false);
        while !(finished && self.late.is_empty()) {
            let due = self.late.front().map(|(due, _)| *due);
            tokio::select! {
                changed = self.states.changed() => {
                    if changed.is_err() {
                        return Err(End::Closed);
                    }
                    self.changed()?;
                }
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                    if let Some((_, data)) = self.late.pop_front() {
                        self.send(&mut to, &data).await?;
                    }
                }
                read = from.read(&mut buffer), if !finished && self.late.len() < 1024 => {
                    let many = read.map_err(|_| End::Closed)?;
                    finished = many == 0;
                    self.arrived(&mut to, &buffer[..many]).await?;
                }
            }
        }
        let _ = to.shutdown().await;
        Ok(())
    }

    fn changed(&mut self) -> Result<(), End> {
        let disturbance = self.states.borrow_and_update().of(self.stream);
        if self.lost && !matches!(disturbance, Some(Disturbance::Lost)) {
            return Err(End::Closed);
        }
        if !matches!(disturbance, Some(Disturbance::Late { .. })) {
            self.late.iter_mut().for_each(|(due, _)| *due = Instant::now());
        }
        self.passed = 0;
        Ok(())
    }

    /// Handles what was read. Nothing was read if the sender has finished.
    async fn arrived(&mut self, to: &mut WriteHalf<'_>, data: &[u8]) -> Result<(), End> {
        // A change counts from when it was made, also if this direction has not been woken by it yet.
        let disturbance = self.states.borrow().of(self.stream);
        match disturbance {
            Some(Disturbance::Lost) if data.is_empty() => Err(End::Closed),
            Some(Disturbance::Lost) => {
                self.lost = true;
                Ok(())
            }
            Some(Disturbance::Reset { after }) => {
                sleep(after).await;
                Err(End::Reset)
            }
            Some(Disturbance::Short { bytes }) => {
                let rest = bytes.saturating_sub(self.passed).min(data.len());
                self.passed += rest;
                self.send(to, &data[..rest]).await?;
                if self.passed < bytes { Ok(()) } else { Err(End::Closed) }
            }
            Some(Disturbance::Late { by, jitter }) => {
                let jitter = usize::try_from(jitter.as_millis()).unwrap_or_default();
                let spread =
                    Duration::from_millis(u64::try_from(self.jitter.below(2 * jitter + 1)).unwrap_or_default());
                let due = Instant::now() + (by + spread).saturating_sub(Duration::from_millis(jitter as u64));
                let due = self.late.back().map_or(due, |(before, _)| due.max(*before));
                self.late.push_back((due, data.to_vec()));
                Ok(())
            }
            None if !self.late.is_empty() => {
                self.late.push_back((Instant::now(), data.to_vec()));
                Ok(())
            }
            None => self.send(to, data).await,
        }
    }

    async fn send(&mut self, to: &mut WriteHalf<'_>, data: &[u8]) -> Result<(), End> {
        self.bytes.fetch_add(u64::try_from(data.len()).unwrap_or_default(), Ordering::Relaxed);
        to.write_all(data).await.map_err(|_| End::Closed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::{Disturbance, Link, Stream};

    /// Returns a link to a server that answers with what it got.
    async fn echo() -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::to(&listener.local_addr().unwrap().to_string());
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = connection.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        link
    }

    async fn answer(connection: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
        connection.write_all(text).await?;
        let mut answer = vec![0; text.len()];
        connection.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn a_disabled_link_refuses_and_an_enabled_one_leads_on() {
        let link = echo().await;
        let mut connection = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(answer(&mut connection, b"one").await.unwrap(), b"one");
        link.disable().await;
        assert!(answer(&mut connection, b"two").await.is_err());
        let refused = TcpStream::connect(link.address()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        link.enable().await;
        let mut connection = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(answer(&mut connection, b"three").await.unwrap(), b"three");
        assert_eq!(link.bytes(), 16);
    }

    #[tokio::test]
    async fn what_is_late_arrives_in_order_and_at_once_when_the_delay_ends() {
        let link = echo().await;
        let mut connection = TcpStream::connect(link.address()).await.unwrap();
        let (by, jitter) = (Duration::from_millis(200), Duration::from_millis(100));
        link.disturb(Stream::Down, Disturbance::Late { by, jitter }).await;
        let began = Instant::now();
        assert_eq!(answer(&mut connection, b"late").await.unwrap(), b"late");
        assert!(began.elapsed() >= by.saturating_sub(jitter));
        link.disturb(Stream::Down, Disturbance::Late { by: Duration::from_secs(600), jitter }).await;
        connection.write_all(b"first").await.unwrap();
        let mut read = [0; 10];
        assert!(timeout(Duration::from_millis(100), connection.read_exact(&mut read)).await.is_err());
        link.clear().await;
        connection.write_all(b" then").await.unwrap();
        connection.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"first then");
    }

    #[tokio::test]
    async fn what_is_lost_stays_lost_and_its_connection_ends_with_the_disturbance() {
        let link = echo().await;
        let mut connection = TcpStream::connect(link.address()).await.unwrap();
        link.disturb(Stream::Up, Disturbance::Lost).await;
        assert!(timeout(Duration::from_millis(100), answer(&mut connection, b"lost")).await.is_err());
        link.clear().await;
        assert!(answer(&mut connection, b"more").await.is_err());
        let mut connection = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(answer(&mut connection, b"anew").await.unwrap(), b"anew");
    }

    #[tokio::test]
    async fn a_connection_is_reset_and_one_breaks_off() {
        let link = echo().await;
        let mut connection = TcpStream::connect(link.address()).await.unwrap();
        link.disturb(Stream::Down, Disturbance::Reset { after: Duration::ZERO }).await;
        assert_eq!(answer(&mut connection, b"one").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        link.disturb(Stream::Down, Disturbance::Short { bytes: 2 }).await;
        let mut connection = TcpStream::connect(link.address()).await.unwrap();
        connection.write_all(b"two").await.unwrap();
        let mut all = Vec::new();
        connection.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"tw");
    }
}

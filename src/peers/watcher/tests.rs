//! Real sockets: what says that a process is gone, and what does not. Shows L5.

use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::*;
use crate::peers::{CHALLENGE, answer_peers};

/// A process that answers: all of its sockets close at once when it is dropped.
struct Process {
    runtime: Option<Runtime>,
    address: SocketAddr,
}

impl Process {
    fn start(address: &str, identity: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        let socket = std::net::TcpListener::bind(address).expect("a port is free");
        socket.set_nonblocking(true).expect("it can be");
        let (address, identity) = (socket.local_addr().expect("it has one"), identity.to_owned());
        runtime.spawn(async { answer_peers(TcpListener::from_std(socket).expect("a socket"), identity).await });
        Self { runtime: Some(runtime), address }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.runtime.take().expect("it runs").shutdown_background();
    }
}

/// A standby that watches over one holder after the other.
struct Standby {
    holder: watch::Sender<Option<Peer>>,
    gone: mpsc::UnboundedReceiver<String>,
}

impl Standby {
    fn start() -> Self {
        let (holder, holders) = watch::channel(None);
        let (sender, gone) = mpsc::unbounded_channel();
        let holders = futures::stream::unfold(holders, |mut holders: watch::Receiver<Option<Peer>>| async move {
            holders.changed().await.ok()?;
            let holder = holders.borrow_and_update().clone();
            Some((holder, holders))
        });
        tokio::spawn(watch_peers(holders, sender));
        Self { holder, gone }
    }

    fn watch(&self, identity: &str, address: SocketAddr) {
        self.holder.send_replace(Some(peer(identity, address)));
    }
}

/// What a test waits for at most.
const SOON: Duration = Duration::from_secs(20);

fn peer(identity: &str, address: SocketAddr) -> Peer {
    Peer { identity: identity.into(), address }
}

/// For servers that answer at once or never.
const HASTE: Pace = Pace { period: Duration::from_millis(50), patience: Duration::from_millis(500) };

/// Listens at a free port, and says how often something has connected.
async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    (listener, address)
}

/// Answers one challenge in the way of a holder.
async fn answer_once(listener: &TcpListener, identity: &str) -> TcpStream {
    let (mut connection, _) = listener.accept().await.expect("somebody connects");
    let mut line = vec![0; GREETING.len() + CHALLENGE + 1];
    connection.read_exact(&mut line).await.expect("a challenge");
    let line = String::from_utf8(line).expect("text");
    let challenge = line.strip_prefix(GREETING).expect("a greeting").trim_end();
    connection.write_all(&answer(identity, challenge)).await.expect("it is taken");
    connection
}

/// Waits until the other side knows that the process is the one that it watches over.
async fn proved(address: SocketAddr, identity: &str) {
    let watching = tokio::time::Instant::now();
    while watching.elapsed() < SOON {
        let mut connection = TcpStream::connect(address).await.expect("it listens");
        if proves(&mut connection, identity).await == Ok(true) {
            return;
        }
    }
    panic!("nobody answers at {address}");
}

/// How long a standby has for its first proof, of which nobody else hears: on a busy machine the first of these is too
/// short.
const GROWING: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(400), Duration::from_secs(3), Duration::from_secs(12)];

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_process_is_seen_at_once() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        if std::net::TcpListener::bind(bind).is_err() {
            continue;
        }
        let mut standby = Standby::start();
        let mut seen = false;
        for wait in GROWING {
            let process = Process::start(bind, "a b/c-1");
            proved(process.address, "a b/c-1").await;
            standby.watch("a b/c-1", process.address);
            sleep(wait).await;
            drop(process);
            if let Ok(gone) = timeout(Duration::from_secs(1), standby.gone.recv()).await {
                assert_eq!(gone.as_deref(), Some("a b/c-1"));
                seen = true;
                break;
            }
        }
        assert!(seen, "{bind}");
    }
}

#[tokio::test]
async fn a_connection_that_was_proved_and_closed_and_is_refused_then_says_that_the_process_is_gone() {
    let (listener, address) = listen().await;
    let holder = async {
        drop(answer_once(&listener, "holder").await);
        drop(listener);
    };
    let peer = peer("holder", address);
    let (visit, ()) = tokio::join!(visit(&peer, PACE), holder);
    assert_eq!(visit, Visit::Closed);
    assert!(is_refused(address, HASTE).await);
}

/// The system of a process that ends resets a connection that it has just accepted. Whoever connects may see that
/// before he sees that he is connected.
#[tokio::test]
async fn a_connection_that_is_reset_while_it_is_made_is_tried_again() {
    let (listener, address) = listen().await;
    let closes = async {
        let (connection, _) = listener.accept().await.expect("somebody connects");
        connection.set_zero_linger().expect("it can be");
        drop((connection, listener));
    };
    let ((), refused) = futures::join!(closes, is_refused(address, PACE));
    assert!(refused);
}

#[tokio::test]
async fn a_listener_that_is_closed_after_its_connections_is_waited_for() {
    let (listener, address) = listen().await;
    let closes = async {
        // The first attempt is accepted.
        let _ = listener.accept().await;
        drop(listener);
    };
    let (refused, ()) = tokio::join!(is_refused(address, PACE), closes);
    assert!(refused);
}

#[tokio::test]
async fn another_ones_answer_and_an_echo_prove_nothing() {
    let (listener, address) = listen().await;
    let peer = peer("holder", address);
    let (seen, _) = tokio::join!(visit(&peer, PACE), answer_once(&listener, "another"));
    assert_eq!(seen, Visit::Nowhere);
    let (seen, _) = tokio::join!(visit(&peer, PACE), answer_once(&listener, "hodler"));
    assert_eq!(seen, Visit::Nowhere);
    let echo = async {
        let (mut connection, _) = listener.accept().await.expect("somebody connects");
        let (mut reader, mut writer) = connection.split();
        let _ = timeout(HASTE.patience, tokio::io::copy(&mut reader, &mut writer)).await;
    };
    let (seen, ()) = tokio::join!(visit(&peer, HASTE), echo);
    assert_eq!(seen, Visit::Nowhere);
    // What answers another challenge than the one that was sent.
    let replay = async {
        let (mut connection, _) = listener.accept().await.expect("somebody connects");
        connection.write_all(&answer("holder", "0123456789abcdef")).await.expect("it is taken");
        let _ = timeout(HASTE.patience, connection.read_u8()).await;
    };
    let (seen, ()) = tokio::join!(visit(&peer, HASTE), replay);
    assert_eq!(seen, Visit::Nowhere);
}

#[tokio::test]
async fn a_close_without_a_proof_says_nothing() {
    let (listener, address) = listen().await;
    let peer = peer("holder", address);
    let closes = async {
        drop(listener.accept().await.expect("somebody connects"));
        drop(listener);
    };
    let (seen, ()) = tokio::join!(visit(&peer, PACE), closes);
    assert_eq!(seen, Visit::Nowhere);
    assert_eq!(visit(&peer, PACE).await, Visit::Nowhere, "nobody listens, and nobody is known to have listened");
}

#[tokio::test]
async fn silence_says_nothing() {
    let (listener, address) = listen().await;
    let peer = peer("holder", address);
    assert_eq!(visit(&peer, HASTE).await, Visit::Nowhere, "the system accepts, and nobody answers");
    drop(listener.accept().await.expect("that was it"));
    let silent = async {
        let connection = answer_once(&listener, "holder").await;
        sleep(HASTE.patience * 3).await;
        drop(connection);
    };
    let (seen, ()) = tokio::join!(visit(&peer, HASTE), silent);
    assert_eq!(seen, Visit::Silent, "it was there, and does not answer any more");
}

/// A sidecar, for example.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_accepts_for_a_dead_process_says_nothing() {
    let mut seen = Visit::Nowhere;
    for wait in GROWING {
        let process = Process::start("127.0.0.1:0", "holder");
        let (proxy, address) = listen().await;
        let upstream = process.address;
        tokio::spawn(async move {
            while let Ok((mut client, _)) = proxy.accept().await {
                if let Ok(mut server) = TcpStream::connect(upstream).await {
                    tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
                }
            }
        });
        proved(address, "holder").await;
        let peer = peer("holder", address);
        let watched = tokio::spawn(async move { visit(&peer, PACE).await });
        sleep(wait).await;
        drop(process);
        seen = watched.await.expect("no panic");
        assert!(!is_refused(address, PACE).await);
        if seen == Visit::Closed {
            break;
        }
    }
    assert_eq!(seen, Visit::Closed, "it was proved, and closed by the proxy");
}

#[tokio::test]
async fn an_address_that_can_not_be_reached_says_nothing() {
    let error = |kind| end(&std::io::Error::from(kind));
    assert_eq!(error(ErrorKind::ConnectionReset), Visit::Closed);
    for kind in [ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable] {
        assert_eq!(error(kind), Visit::Silent, "{kind}");
    }
    // Nobody has this address (RFC 6666), so it is unreachable or silent.
    let nowhere: SocketAddr = "[100::1]:8081".parse().expect("an address");
    assert!(!is_refused(nowhere, HASTE).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_holder_is_watched_over_in_place_of_the_one_before() {
    let mut standby = Standby::start();
    for wait in GROWING {
        let (first, second) = (Process::start("127.0.0.1:0", "first"), Process::start("127.0.0.1:0", "second"));
        standby.watch("first", first.address);
        sleep(wait).await;
        standby.watch("second", second.address);
        sleep(wait).await;
        drop((first, second));
        if let Ok(gone) = timeout(Duration::from_secs(1), standby.gone.recv()).await {
            assert_eq!(gone.as_deref(), Some("second"));
            return;
        }
    }
    panic!("nothing was seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_challenge_ends_the_connection_and_too_many_are_not_answered() {
    let process = Process::start("127.0.0.1:0", "holder");
    proved(process.address, "holder").await;
    for nonsense in ["GET / HTTP/1.1\r\nHost: lictor\r\n\r\n", "lictor 0123456789abcdeg\n", "lictor 0123456789abcdef "]
    {
        let mut connection = TcpStream::connect(process.address).await.expect("it listens");
        connection.write_all(nonsense.as_bytes()).await.expect("it is sent");
        let ended = timeout(SOON, connection.read_u8()).await.expect("it is closed");
        assert!(ended.is_err(), "{nonsense:?}");
    }
    let mut open = Vec::new();
    let full = async {
        loop {
            let mut connection = TcpStream::connect(process.address).await.expect("it listens");
            match proves(&mut connection, "holder").await {
                Ok(true) => open.push(connection),
                refused => return refused,
            }
        }
    };
    assert_eq!(timeout(SOON, full).await.expect("there is a limit"), Err(Visit::Closed));
    assert_eq!(open.len(), 16);
}

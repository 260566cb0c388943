//! The way from one process to its server, which can be cut, made longer, and counts bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lictor_testing::consul::{ToxicProxy, Toxiproxy};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A way to a server.
pub struct Link {
    proxy: ToxicProxy,
    bytes: Arc<AtomicU64>,
    _counter: JoinSet<()>,
}

impl Link {
    /// Makes a way to a socket, such as `127.0.0.1:8500`.
    pub async fn to(toxiproxy: &Toxiproxy, server: &str) -> anyhow::Result<Self> {
        // Toxiproxy itself counts the bytes of a connection when it ends, and a watch does not end.
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (bytes, mut counter) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        counter.spawn(count(listener, server.to_owned(), bytes.clone()));
        Ok(Self { proxy: toxiproxy.proxy(&address).await, bytes, _counter: counter })
    }

    /// Returns the address at which a process reaches its server by this way.
    pub fn address(&self) -> &str {
        self.proxy.address()
    }

    /// Returns how many bytes went this way so far, there and back: the payload of TCP, so with TLS, and without the headers of packets.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Cuts all connections, and refuses new ones.
    pub async fn cut(&self) {
        self.proxy.disable().await;
    }

    /// Accepts connections again.
    pub async fn mend(&self) {
        self.proxy.enable().await;
    }

    /// Lets each answer take so much longer, or no longer any more.
    pub async fn delay(&self, by: Duration) {
        if by.is_zero() {
            self.proxy.clear().await;
        } else {
            let latency = json!({"latency": by.as_millis(), "jitter": 0});
            self.proxy.toxic(json!({"type": "latency", "stream": "downstream", "attributes": latency})).await;
        }
    }
}

async fn count(listener: TcpListener, server: String, bytes: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let (server, bytes) = (server.clone(), bytes.clone());
        connections.spawn(async move {
            let Ok(far) = TcpStream::connect(server).await else { return };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
            // Each direction is closed by itself, as the servers see it.
            tokio::join!(pass(from_near, to_far, &bytes), pass(from_far, to_near, &bytes));
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, bytes: &AtomicU64) {
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(many @ 1..) = from.read(&mut buffer).await {
        bytes.fetch_add(u64::try_from(many).unwrap_or_default(), Ordering::Relaxed);
        if to.write_all(&buffer[..many]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

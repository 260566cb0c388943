//! Connections to leaders' pods.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncRead;
use tokio::net::TcpSocket;

/// A connection to a pod: the bytes that the pod sends, and the end of the connection. The operator sends nothing.
pub type Connection = Pin<Box<dyn AsyncRead + Send>>;

/// Opens connections to pods. A simulation passes its own.
pub type Dial = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<Connection>> + Send + Sync>;

/// After this time without a packet, the kernel probes the other side.
const IDLE: Duration = Duration::from_secs(5);
/// The kernel probes again after this time without an answer.
const INTERVAL: Duration = Duration::from_secs(1);
/// The connection is lost after this many unanswered probes.
const RETRIES: u32 = 3;

/// How many bytes the kernel buffers of unrequested data from a pod.
const BUFFER: u32 = 16 * 1024;

/// Opens real connections. The kernel keeps each alive: a pod that has forgotten the connection resets it, and an unreachable pod is
/// noticed after 8 s.
pub fn dialer() -> Dial {
    Arc::new(|to| dial(to).boxed())
}

async fn dial(to: SocketAddr) -> io::Result<Connection> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_recv_buffer_size(BUFFER)?;
    let stream = socket.connect(to).await?;
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL).with_retries(RETRIES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(Box::pin(stream))
}

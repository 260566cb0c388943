//! A client that keeps its connection, as a pool of HTTP connections does, and records who answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lictor_testing::eventually;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The time between two requests.
const PERIOD: Duration = Duration::from_millis(20);
/// The time without an answer after which a request is lost, and its connection is given up.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long it is watched after a cause. A connection that is still with the old leader then stays there.
const WATCHED: Duration = Duration::from_secs(5);

/// One request.
#[derive(Clone, Debug)]
struct Request {
    sent: Instant,
    ended: Instant,
    /// Over which connection; the first one has the number 1.
    connection: u32,
    /// The pod that answered.
    answer: Option<String>,
}

/// What became of the connection that was open when something happened to the leader.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// The time from the cause until the client used another connection; none: it stayed with the old leader.
    pub ended: Option<Duration>,
    /// The time from the cause to the first answer of the next leader; none: the old one answers on.
    pub reached: Option<Duration>,
    /// The requests without an answer.
    pub lost: usize,
}

/// Sends requests until it is dropped.
pub struct Keeper {
    requests: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Connects, and waits until this pod has answered some requests over one connection.
    pub async fn start(address: SocketAddr, leader: &str) -> Self {
        let requests = Arc::new(Mutex::new(Vec::<Request>::new()));
        let kept = requests.clone();
        let task = tokio::spawn(async move {
            let mut pool = Pool { address, opened: 0, idle: None };
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let sent = Instant::now();
                let answer = pool.ask().await;
                kept.lock().unwrap().push(Request { sent, ended: Instant::now(), connection: pool.opened, answer });
            }
        });
        let this = Self { requests, task };
        eventually("the leader answers over one connection", || async {
            let requests = this.requests.lock().unwrap();
            let first = requests.first().map(|first| first.connection);
            let same =
                |request: &&Request| request.answer.as_deref() == Some(leader) && Some(request.connection) == first;
            if requests.iter().filter(same).count() >= 10 { Ok(()) } else { Err(format!("{:?}", requests.last())) }
        })
        .await;
        this
    }

    /// Waits until the next leader has answered, or until it is clear that it does not.
    pub async fn follow(&self, began: Instant, next: &str) -> Kept {
        eventually("the connection ends, or it has been watched long enough", || async {
            let reached = self.kept(began, next).reached.is_some();
            if reached || began.elapsed() > WATCHED { Ok(()) } else { Err("it has not ended".into()) }
        })
        .await;
        self.kept(began, next)
    }

    fn kept(&self, began: Instant, next: &str) -> Kept {
        let requests = self.requests.lock().unwrap();
        let (before, after): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.ended < began);
        let open = before.last().map(|last| last.connection);
        let since = |at: Instant| at.saturating_duration_since(began);
        let other = after.iter().find(|request| Some(request.connection) != open);
        let answered = after.iter().find(|request| request.answer.as_deref() == Some(next));
        Kept {
            ended: other.map(|request| since(request.sent)),
            reached: answered.map(|request| since(request.ended)),
            lost: after.iter().filter(|request| request.answer.is_none()).count(),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One connection, which is used again for as long as the server keeps it.
struct Pool {
    address: SocketAddr,
    /// How many connections were opened.
    opened: u32,
    idle: Option<BufReader<TcpStream>>,
}

impl Pool {
    /// Returns the name of the pod that answers.
    async fn ask(&mut self) -> Option<String> {
        loop {
            let used = self.idle.take();
            let is_used = used.is_some();
            match timeout(PATIENCE, self.exchange(used)).await {
                Ok(Ok(answer)) => return Some(answer),
                // The server closed it while it was idle. As HTTP clients do, it tries a new one.
                Ok(Err(_)) if is_used => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    async fn exchange(&mut self, used: Option<BufReader<TcpStream>>) -> std::io::Result<String> {
        let mut connection = if let Some(connection) = used {
            connection
        } else {
            self.opened += 1;
            BufReader::new(TcpStream::connect(self.address).await?)
        };
        connection.write_all(b"GET / HTTP/1.1\r\nHost: leader\r\n\r\n").await?;
        let (mut length, mut closes, mut good) = (0, false, false);
        loop {
            let mut line = String::new();
            if connection.read_line(&mut line).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("content-length", text)) => length = text.parse().map_err(std::io::Error::other)?,
                Some(("connection", "close")) => closes = true,
                None if line.is_empty() => break,
                None => good = line.contains(" 200 "),
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await?;
        self.idle = (!closes).then_some(connection);
        let text = String::from_utf8(body).map_err(std::io::Error::other)?;
        if good { Ok(text.trim().to_owned()) } else { Err(std::io::Error::other(text)) }
    }
}

//! A worker of which several replicas run: the leader writes into a database, and all answer calls.
//!
//! ```text
//! worker NAME TABLE lease NAMESPACE/NAME SECONDS
//! worker NAME TABLE consul ADDRESS KEY SECONDS
//! ```
//!
//! Each write names the leader's term, and the database refuses a lower one than it has seen, because a write can arrive late: from a
//! process that was stopped, or by a network that was slow. With `CARELESS=1`, a thread of the leader goes on writing whatever happens.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lictor_locks::{Elector, Ended, Leadership, Term};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// From one write to the next.
const PERIOD: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // For the clients of Kubernetes and Consul.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, table, elector, seconds) = match arguments[..] {
        [name, table, "lease", lease, seconds] => {
            let (namespace, lease) = lease.split_once('/').ok_or("the Lease is NAMESPACE/NAME")?;
            (name, table, Elector::lease(kube::Client::try_default().await?, namespace, lease), seconds)
        }
        [name, table, "consul", address, key, seconds] => {
            let client = lictor_consul::Client::new(&lictor_consul::Settings::new(address))?;
            (name, table, Elector::consul(client, key), seconds)
        }
        _ => return Err("write: worker NAME TABLE lease NAMESPACE/NAME SECONDS, or the like for consul".into()),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let elector = elector
        .identity(name)
        .duration(Duration::from_secs(seconds.parse()?))?
        .advertise(listener.local_addr()?)
        .on_leader(|_| println!("leads"))
        .on_follower(|| println!("follows"));
    tokio::spawn(answer(listener, elector.clone()));
    tokio::spawn(stop_when_asked(elector.clone()));

    let table = Table(table.into());
    let careless = std::env::var_os("CARELESS").is_some();
    let outcome = elector
        .run(|leadership| {
            let (table, name) = (table.clone(), name.to_owned());
            async move {
                if careless {
                    let (table, name, term) = (table.clone(), name.clone(), leadership.term());
                    std::thread::spawn(move || write_on(&table, term, &name));
                }
                work(&table, &leadership, &name).await
            }
        })
        .await;
    match outcome {
        // The lock is released, and another replica leads.
        Err(Ended::Stopped) => Ok(()),
        Err(ended) => Err(ended.into()),
        Ok(failure) => Err(failure.into()),
    }
}

/// Writes while this replica leads. Dropping the future stops it at its `await`.
async fn work(table: &Table, leadership: &Leadership, name: &str) -> io::Error {
    loop {
        if let Err(error) = table.insert(leadership.term(), name) {
            println!("refused");
            return error;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Writes on, after a leadership, too, because it never asks `Leadership::is_valid`. So only the database can refuse what it writes.
fn write_on(table: &Table, term: Term, name: &str) {
    while table.insert(term, name).is_ok() {
        std::thread::sleep(PERIOD);
    }
    println!("refused");
}

/// Answers each call with the term in which this replica leads, or with the address of the leader.
async fn answer(listener: TcpListener, elector: Elector) {
    let leader = elector.leader();
    while let Ok((mut stream, _)) = listener.accept().await {
        let other = leader.borrow().as_ref().and_then(|leader| leader.address.clone());
        let answer = match (elector.leadership(), other) {
            (Some(leadership), _) => format!("the leader in term {}\n", leadership.term()),
            (None, Some(other)) => format!("ask {other}\n"),
            (None, None) => "no leader is known\n".to_owned(),
        };
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// Kubernetes ends a pod by SIGTERM.
async fn stop_when_asked(elector: Elector) {
    if let Ok(mut terminated) = signal(SignalKind::terminate()) {
        terminated.recv().await;
        elector.stop();
    }
}

/// Stands in for a table of a database, in which each row has a term: a file, which a transaction locks.
#[derive(Clone)]
struct Table(PathBuf);

impl Table {
    /// Inserts a row, unless the last one has a higher term. In SQL: `INSERT … WHERE NOT EXISTS (SELECT … WHERE term > $1)`, in a
    /// transaction that is serializable.
    fn insert(&self, term: Term, name: &str) -> io::Result<()> {
        let mut file = open(&self.0)?;
        file.lock()?;
        let mut rows = String::new();
        file.read_to_string(&mut rows)?;
        let last = rows.lines().last().and_then(|row| row.split(' ').next()?.parse().ok());
        if last.is_some_and(|last: i64| last > term.0) {
            return Err(io::Error::other(format!("term {term} is over")));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // One write, so that no row is ever half written.
        file.write_all(format!("{term} {name} {}\n", now.as_nanos()).as_bytes())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).open(path)
}

//! The programs in a cluster's pods, as the connections show them that are held to them: they end and begin again, open their socket
//! anew, close connections, and are not heard for a while.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use lictor::controller::{Connection, Dial};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::world::{APPS, PODS};

/// How long a packet is on its way.
const TRAVELS: Duration = Duration::from_millis(1);
/// How long the programs of one app keep a connection over which nothing is said; those of the other keep it for ever.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Program {
    listens: bool,
    /// Whether packets arrive, in both directions.
    heard: bool,
    /// How often it was begun: no connection outlasts that.
    starts: u32,
    closes: bool,
}

/// The programs by the addresses of their pods.
#[derive(Default)]
pub struct Programs(Mutex<BTreeMap<IpAddr, watch::Sender<Program>>>);

/// The address of a pod.
pub fn address(pod: &str) -> String {
    let app = pod.split('-').next().unwrap_or_default();
    format!("10.0.{}.{}", app.len(), pod.bytes().last().unwrap_or_default())
}

impl Programs {
    fn of(&self, ip: IpAddr) -> watch::Sender<Program> {
        let closes = (0..PODS).any(|number| ip == ip_of(&format!("{}-{number}", APPS[0])));
        let program = Program { listens: true, heard: true, starts: 0, closes };
        self.0.lock().unwrap().entry(ip).or_insert_with(|| watch::channel(program).0).clone()
    }

    /// A program begins, whether or not one ran there.
    pub fn start(&self, pod: &str) {
        self.of(ip_of(pod)).send_modify(|program| (program.listens, program.starts) = (true, program.starts + 1));
    }

    /// As SIGKILL.
    pub fn kill(&self, pod: &str) {
        self.of(ip_of(pod)).send_modify(|program| program.listens = false);
    }

    pub fn listens(&self, pod: &str) -> bool {
        self.of(ip_of(pod)).borrow().listens
    }

    /// Whether packets arrive from now on.
    pub fn hear(&self, pod: &str, heard: bool) {
        self.of(ip_of(pod)).send_modify(|program| program.heard = heard);
    }

    /// How a replica of the operator reaches them.
    pub fn dial(self: &Arc<Self>) -> Dial {
        let programs = self.clone();
        Arc::new(move |to| connect(programs.of(to.ip())).boxed())
    }
}

async fn connect(program: watch::Sender<Program>) -> io::Result<Connection> {
    sleep(TRAVELS).await;
    let mut changes = program.subscribe();
    let Program { listens, starts, closes, .. } = *changes.wait_for(|now| now.heard).await.unwrap();
    if !listens {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let (ours, theirs) = tokio::io::duplex(16);
    // Not a task of the operator's process.
    tokio::spawn(async move {
        let idle = async { if closes { sleep(IDLE).await } else { std::future::pending().await } };
        tokio::select! {
            biased;
            _ = changes.wait_for(|now| !now.listens || now.starts != starts) => {}
            () = idle => {}
        }
        let _ = changes.wait_for(|now| now.heard).await;
        sleep(TRAVELS).await;
        drop(theirs);
    });
    Ok(Box::pin(ours))
}

fn ip_of(pod: &str) -> IpAddr {
    address(pod).parse().unwrap()
}

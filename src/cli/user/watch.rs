//! `kubectl lictor watch`: elections and their handovers, live.

mod board;
mod tenure;

use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCompleter;
use futures::future::Fuse;
use futures::{FutureExt, StreamExt};
use lictor_kubernetes::{Change, WatchFailure};
use tokio::time::{Instant, interval};

use self::board::Board;
use super::access::Place;
use super::acting::idle;
use super::complete::elections;
use super::reading::{Reader, told_of_watch};
use super::screen::Screen;
use crate::cli::support::{Ended, asked_to_end, block_on, print_on};
use crate::kubernetes::{Namespaces, watch_elections, watch_pods};

/// How often ages are shown anew.
const TICK: Duration = Duration::from_secs(1);
/// How often to look whether an operator acts, in ticks.
const LOOK: u32 = 15;

/// Watches elections: the leader of each, and each handover with its gap.
///
/// On a terminal it shows a table, which it updates in place until Ctrl-C. Elsewhere it prints a line for each change.
/// If there is no connection to the API server, it says so and goes on.
///
/// A gap is the time from when this machine saw the leader's label go until it saw the label on a pod again. The delay
/// of the watch is part of it, and no client's call is measured: with spec.service, calls follow the slices. A handover
/// during which the connection was lost, or that left this cluster, has no gap.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor watch -A\n  kubectl lictor watch web -n shop\n  kubectl lictor watch -n shop | tee handovers.txt    # a line for each change"
)]
pub(crate) struct Watch {
    /// The election. Default: all of the namespace.
    #[arg(add = ArgValueCompleter::new(elections))]
    name: Option<String>,

    #[command(flatten)]
    place: Place,

    /// Watch the elections of all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "name"])]
    all_namespaces: bool,
}

impl Watch {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.watch())
    }

    async fn watch(self) -> anyhow::Result<Ended> {
        let (reader, namespace) = self.place.reader().await?;
        // A mistake ends the command. Later failures do not.
        match &self.name {
            Some(name) => drop(reader.election(&namespace, name).await?),
            None => drop(reader.elections((!self.all_namespaces).then_some(&namespace)).await?),
        }
        let scope = Namespaces::new(if self.all_namespaces { Vec::new() } else { vec![namespace] });
        let board = Board::new(self.name, self.all_namespaces);
        tokio::select! {
            biased;
            // First, so that it is heeded before the terminal changes.
            ended = asked_to_end() => ended.map(|()| Ended::Interrupted).map_err(Into::into),
            ended = follow(&reader, &scope, board) => ended,
        }
    }
}

/// Shows each change, until no program reads the output.
async fn follow(reader: &Reader, scope: &Namespaces, mut board: Board) -> anyhow::Result<Ended> {
    let mut screen = Screen::open()?;
    let (mut elections, mut pods) = (watch_elections(reader.client(), scope), watch_pods(reader.client(), scope));
    let mut tick = interval(TICK);
    let mut ticks = 0;
    let mut looking = std::pin::pin!(Fuse::terminated());
    loop {
        let now = tokio::select! {
            biased;
            Some(change) = pods.next() => {
                let now = Instant::now();
                match change {
                    Change::Broken(_, failure) => board.lose_pods(why(failure)),
                    change => board.take_pods(change, now),
                }
                now
            }
            Some(change) = elections.next() => {
                let now = Instant::now();
                match change {
                    Change::Broken(_, failure) => board.lose_elections(why(failure)),
                    change => board.take_elections(change, now),
                }
                now
            }
            found = &mut looking => {
                board.idle = found;
                Instant::now()
            }
            _ = tick.tick() => {
                if ticks % LOOK == 0 {
                    looking.set(look(reader, board.elections()).fuse());
                }
                ticks += 1;
                Instant::now()
            }
        };
        let lines = board.lines();
        match &mut screen {
            Some(screen) => screen.show(&board.table(now, Screen::rows()))?,
            None if print_on(&lines.out)? => eprint!("{}", lines.err),
            None => return Ok(Ended::Well),
        }
    }
}

fn why(failure: WatchFailure) -> (String, bool) {
    let forbidden = matches!(failure, WatchFailure::Forbidden(_));
    (told_of_watch(failure), forbidden)
}

/// Looks whether an operator acts for these elections.
async fn look(reader: &Reader, elections: Vec<lictor_api::LeaderElection>) -> Vec<String> {
    match reader.classes().await {
        Ok(classes) => idle(reader, &elections, &classes).await,
        Err(_) => Vec::new(),
    }
}

//! `kubectl lictor list`: all elections, problems first.

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lictor_api::{LeaderElection, PAUSED, READY, STALLED, WORKLOADS_FOLLOW};
use serde::Serialize;

use super::access::Place;
use super::acting::idle;
use super::format::{Format, age, as_list, resource_name};
use super::paint::{Cell, Tone, table};
use super::reading::condition;
use crate::cli::support::{Ended, block_on, print};

/// Lists elections, those with a problem first.
///
/// If no operator acts, no program keeps these statuses up to date, and a line below the list says so, if you may list
/// Leases in all namespaces.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor list -A\n  kubectl lictor list -n shop -o wide    # with nodes, clusters, and what is wrong\n  kubectl lictor list -A --problems    # only elections with a problem; the exit code is 3 if there are any"
)]
pub(crate) struct List {
    #[command(flatten)]
    place: Place,

    /// List the elections of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// List only elections with a problem. The exit code is then 3 if there are any, or if no operator acts.
    #[arg(long)]
    problems: bool,

    /// Print the elections in another format.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// An election's health, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Health {
    /// A person has to change something.
    Stalled,
    /// There is a problem that may end by itself.
    Unwell,
    /// Nothing is known yet.
    Unknown,
    /// Paused.
    Paused,
    Well,
}

impl List {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.list())
    }

    async fn list(self) -> anyhow::Result<Ended> {
        let (reader, namespace) = self.place.reader().await?;
        let place = if self.all_namespaces { None } else { Some(namespace.as_str()) };
        let (elections, classes) = tokio::join!(reader.elections(place), reader.classes());
        let mut elections = elections?;
        let idle = match classes {
            Ok(classes) => idle(&reader, &elections, &classes).await,
            Err(_) => Vec::new(),
        };
        elections.sort_by_cached_key(|election| (health(election), election.namespace(), election.name_any()));
        if self.problems {
            elections.retain(|election| health(election) < Health::Paused);
        }
        match self.output {
            Some(Format::Name) => {
                let names: String = elections.iter().map(|election| resource_name(election) + "\n").collect();
                print(&names)?;
            }
            Some(Format::Json | Format::Yaml) => {
                if let Some(data) = self.output.and_then(Format::data) {
                    data.print(&as_list(&elections))?;
                }
            }
            None | Some(Format::Wide) if elections.is_empty() => {
                let place = place.map_or_else(|| "this cluster".into(), |name| format!("the namespace {name}"));
                let problem = if self.problems { " that has a problem" } else { "" };
                eprintln!("there is no election{problem} in {place}");
            }
            None | Some(Format::Wide) => {
                let wide = self.output == Some(Format::Wide);
                print(&table(&rows(&elections, self.all_namespaces, wide)))?;
            }
        }
        for sentence in &idle {
            eprintln!("{sentence}");
        }
        let wrong = !elections.is_empty() || !idle.is_empty();
        Ok(if self.problems && wrong { Ended::No } else { Ended::Well })
    }
}

/// Returns how well an election is.
pub(super) fn health(election: &LeaderElection) -> Health {
    let holds = |type_: &str| condition(election, type_).is_some_and(|condition| condition.status == "True");
    match condition(election, READY).map(|ready| ready.status.as_str()) {
        _ if holds(STALLED) => Health::Stalled,
        Some("True") if holds(PAUSED) => Health::Paused,
        Some("True") => Health::Well,
        Some("False") => Health::Unwell,
        _ => Health::Unknown,
    }
}

impl Health {
    pub(super) fn tone(self) -> Tone {
        match self {
            Self::Stalled | Self::Unwell => Tone::Bad,
            Self::Unknown | Self::Paused => Tone::Doubtful,
            Self::Well => Tone::Good,
        }
    }
}

fn rows(elections: &[LeaderElection], namespaces: bool, wide: bool) -> Vec<Vec<Cell>> {
    let now = Timestamp::now();
    let mut heading: Vec<Cell> = Vec::new();
    heading.extend(namespaces.then(|| "NAMESPACE".into()));
    heading.extend(["NAME", "STATUS", "LEADER", "TERM", "CANDIDATES", "CLASS", "AGE"].map(Cell::from));
    if wide {
        heading.extend(["NODE", "CLUSTER", "WORKLOADS", "MESSAGE"].map(Cell::from));
    }
    let row = |election: &LeaderElection| {
        let status = election.status.clone().unwrap_or_default();
        let leader = status.leader.unwrap_or_default();
        let (ready, health) = (condition(election, READY), health(election));
        let mut row: Vec<Cell> = Vec::new();
        row.extend(namespaces.then(|| election.namespace().unwrap_or_default().into()));
        row.push(election.name_any().into());
        row.push(Cell::new(ready.map_or("-", |ready| ready.reason.as_str()), health.tone()));
        row.push(or_dash(leader.name.or(leader.session)));
        row.push(or_dash(status.term.map(|term| term.to_string())));
        row.push(or_dash(status.candidates.map(|candidates| candidates.summary)));
        row.push(or_dash(status.class_name));
        row.push(or_dash(election.creation_timestamp().map(|time| age(time.0, now))));
        if wide {
            row.push(or_dash(leader.node_name));
            row.push(or_dash(leader.cluster_name));
            row.push(or_dash(condition(election, WORKLOADS_FOLLOW).map(|condition| condition.reason.clone())));
            let message = ready.filter(|_| health < Health::Well).map(|ready| ready.message.clone());
            row.push(or_dash(message));
        }
        row
    };
    [heading].into_iter().chain(elections.iter().map(row)).collect()
}

fn or_dash(text: Option<String>) -> Cell {
    text.unwrap_or_else(|| "-".into()).into()
}

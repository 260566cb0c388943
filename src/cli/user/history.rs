//! `kubectl lictor history`: the last changes of leader.

use clap::Args;
use clap_complete::ArgValueCompleter;
use k8s_openapi::jiff::Timestamp;
use lictor_api::HistoryEntry;
use serde_json::json;

use super::access::Place;
use super::complete::elections;
use super::format::{Data, age, took};
use super::paint::{Cell, Tone, table};
use super::reading::{full_name, last_seen};
use crate::cli::support::{Ended, block_on, print};

/// Shows the last ten changes of leader, newest first, and on request the Events about the election.
///
/// TOOK is the time from when the operator saw the cause until the API server confirmed the label.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor history web\n  kubectl lictor history web --events    # with the Events of the last hour"
)]
pub(crate) struct History {
    /// The election.
    #[arg(add = ArgValueCompleter::new(elections))]
    name: String,

    #[command(flatten)]
    place: Place,

    /// Show the Events about the election, too. A cluster usually keeps them for an hour.
    #[arg(long)]
    events: bool,

    /// Print data instead of text.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Data>,
}

impl History {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.show())
    }

    async fn show(self) -> anyhow::Result<Ended> {
        let (reader, namespace) = self.place.reader().await?;
        let election = reader.election(&namespace, &self.name).await?;
        let history = election.status.as_ref().map(|status| status.history.clone()).unwrap_or_default();
        let events = if self.events { Some(reader.events(&election).await.map_err(anyhow::Error::msg)?) } else { None };
        if let Some(data) = self.output {
            let mut told = json!({"history": history});
            if let Some(events) = events {
                told["events"] = json!(events);
            }
            data.print(&told)?;
            return Ok(Ended::Well);
        }
        if history.is_empty() {
            eprintln!("{} has had no leader yet", full_name(&election));
        } else {
            print(&table(&rows(&history)))?;
        }
        if let Some(events) = events {
            let now = Timestamp::now();
            let heading = ["AGE", "TYPE", "EVENT", "MESSAGE"].map(Cell::from).to_vec();
            let lines = events.iter().map(|event| {
                let warning = event.type_.as_deref() == Some("Warning");
                let tone = if warning { Tone::Doubtful } else { Tone::Plain };
                let age = last_seen(event).map_or_else(|| "-".into(), |seen| age(seen, now));
                vec![
                    age.into(),
                    Cell::new(event.type_.clone().unwrap_or_default(), tone),
                    event.reason.clone().unwrap_or_default().into(),
                    event.note.clone().unwrap_or_default().into(),
                ]
            });
            let rows: Vec<Vec<Cell>> = [heading].into_iter().chain(lines).collect();
            print(&format!("\n{}", table(&rows)))?;
        }
        Ok(Ended::Well)
    }
}

fn rows(history: &[HistoryEntry]) -> Vec<Vec<Cell>> {
    let now = Timestamp::now();
    let heading = ["TERM", "LEADER", "INSTEAD OF", "REASON", "TOOK", "AGE"].map(Cell::from).to_vec();
    let row = |entry: &HistoryEntry| {
        let leader = entry.leader_name.clone();
        vec![
            entry.term.to_string().into(),
            leader.map_or_else(|| Cell::new("none", Tone::Bad), Cell::from),
            entry.previous_leader_name.clone().unwrap_or_else(|| "-".into()).into(),
            entry.reason.clone().into(),
            took(entry.duration_milliseconds).into(),
            entry.completion_time.as_ref().map_or_else(|| "-".into(), |time| age(time.0, now)).into(),
        ]
    };
    [heading].into_iter().chain(history.iter().map(row)).collect()
}

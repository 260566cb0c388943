//! `kubectl lictor explain`: shows which pod would be elected, and why.

use anyhow::bail;
use clap::Args;
use clap_complete::ArgValueCompleter;
use serde_json::json;

use super::access::Place;
use super::complete::elections;
use super::format::Data;
use super::outlook::{Candidate, Outlook, Sight, UNKNOWN};
use super::paint::{Cell, Tone, paint, table};
use super::reading::full_name;
use crate::cli::support::{Ended, block_on, print};

/// Shows which pod would be elected now and why, which would be next, and what prevents the operator from deciding so.
///
/// It runs the operator's own code on everything that the API server shows with your rights. It does not know which
/// pods failed their probe earlier or could not be labelled: the Events say that. The exit code is 3 if no pod would
/// lead.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor explain web\n  kubectl lictor explain web -n shop -o json    # the same for a program"
)]
pub(crate) struct Explain {
    /// The election.
    #[arg(add = ArgValueCompleter::new(elections))]
    name: String,

    #[command(flatten)]
    place: Place,

    /// Print data instead of text.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Data>,
}

impl Explain {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.explain())
    }

    async fn explain(self) -> anyhow::Result<Ended> {
        let (reader, namespace) = self.place.reader().await?;
        let sight = Sight::of(&reader, &namespace, &self.name).await?;
        let outlook = sight.outlook();
        let name = full_name(&sight.election);
        match self.output {
            Some(data) => {
                let mut told = json!(outlook);
                told["election"] = json!({"namespace": namespace, "name": self.name});
                data.print(&told)?;
            }
            None => print(&text(&name, &outlook))?,
        }
        if outlook.verdict == UNKNOWN {
            bail!("{}", outlook.now);
        }
        Ok(if outlook.winner.is_some() { Ended::Well } else { Ended::No })
    }
}

fn text(name: &str, outlook: &Outlook) -> String {
    let leads = match (&outlook.leader, outlook.term) {
        (Some(leader), Some(term)) => {
            let name = leader.name.as_deref().or(leader.session.as_deref()).unwrap_or("an unknown program");
            format!("{name} leads in term {term}")
        }
        _ => "there is no leader".to_owned(),
    };
    let mut rows = vec![
        vec![Cell::new("election", Tone::Faint), Cell::new(format!("{name}: {leads}"), Tone::Strong)],
        vec![Cell::new("now", Tone::Faint), outlook.now.clone().into()],
    ];
    if !outlook.if_lost.is_empty() {
        rows.push(vec![Cell::new("if lost", Tone::Faint), outlook.if_lost.clone().into()]);
    }
    let blocks = outlook.blocks.iter().map(|block| Cell::new(block, Tone::Bad));
    let blocks: Vec<Cell> = if outlook.blocks.is_empty() { vec!["nothing".into()] } else { blocks.collect() };
    for (number, block) in blocks.into_iter().enumerate() {
        rows.push(vec![Cell::new(if number == 0 { "blocked by" } else { "" }, Tone::Faint), block]);
    }
    for (number, why) in outlook.not_visible.iter().enumerate() {
        let label = if number == 0 { "not visible" } else { "" };
        rows.push(vec![Cell::new(label, Tone::Faint), Cell::new(why, Tone::Doubtful)]);
    }
    let candidates = candidates(outlook);
    let candidates = if candidates.is_empty() {
        String::new()
    } else {
        format!("\n{}\n{}", paint(Tone::Faint, "order"), table(&candidates))
    };
    table(&rows) + &candidates
}

/// Returns the rows of the candidates: rank, name, role, readiness, and why.
pub(super) fn candidates(outlook: &Outlook) -> Vec<Vec<Cell>> {
    let row = |one: &Candidate| {
        let wins = outlook.winner.as_ref() == Some(&one.name);
        let tone = if one.rank.is_none() { Tone::Bad } else { Tone::Plain };
        let ready = if one.ready { Cell::from("ready") } else { Cell::new("not ready", Tone::Bad) };
        vec![
            one.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()).into(),
            Cell::new(&one.name, if wins { Tone::Good } else { Tone::Plain }),
            Cell::new(
                if one.role.is_empty() { "-" } else { one.role },
                if one.role == "leader" { Tone::Good } else { Tone::Plain },
            ),
            ready,
            Cell::new(&one.why, tone),
        ]
    };
    outlook.candidates.iter().map(row).collect()
}

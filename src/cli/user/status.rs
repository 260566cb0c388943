//! `kubectl lictor status`: one election as a tree.

use clap::Args;
use clap_complete::ArgValueCompleter;
use k8s_openapi::jiff::Timestamp as Wall;
use lictor_api::{PAUSED, READY, ROUTED, STALLED, STORE_REACHABLE, SharedClass, WorkloadState, as_yaml};
use lictor_core::{Stored, Timestamp};
use serde_json::json;

use super::access::Place;
use super::changes::Changes;
use super::complete::elections;
use super::explain::candidates;
use super::format::{Format, age, resource_name};
use super::list::health;
use super::outlook::{Outlook, Sight};
use super::paint::{Cell, Tone, paint, table};
use super::reading::{Reader, condition, conditions, full_name};
use super::screen::Screen;
use crate::cli::support::{Ended, asked_to_end, block_on, print, print_on};

/// Shows one election: its store and lock, its leader, and each candidate with its rank and why it would or would not
/// be elected.
///
/// It reads the election, its class, its Lease, its pods and their nodes, with your rights, and names everything that
/// you have no right to see.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor status web -n shop\n  kubectl lictor status web --watch    # again at each change, until Ctrl-C"
)]
pub(crate) struct Status {
    /// The election.
    #[arg(add = ArgValueCompleter::new(elections))]
    name: String,

    #[command(flatten)]
    place: Place,

    /// Show the election again at each change, until Ctrl-C.
    #[arg(short, long)]
    watch: bool,

    /// Print the election in another format. wide: with all conditions.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Status {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.show())
    }

    async fn show(self) -> anyhow::Result<Ended> {
        let (reader, namespace) = self.place.reader().await?;
        let first = self.text(&reader, &namespace).await?;
        if !self.watch {
            print(&first)?;
            return Ok(Ended::Well);
        }
        tokio::select! {
            biased;
            // First, so that it is heeded before the terminal changes.
            ended = asked_to_end() => ended.map(|()| Ended::Interrupted).map_err(Into::into),
            ended = self.follow(&reader, &namespace, first) => ended,
        }
    }

    /// Shows the election again and again, until it is gone. While it can't be read, shows what was read last, and why.
    async fn follow(&self, reader: &Reader, namespace: &str, first: String) -> anyhow::Result<Ended> {
        let mut changes = Changes::new(reader, namespace);
        let mut screen = Screen::open()?;
        let mut shown = String::new();
        let (mut last, mut text) = (first.clone(), first);
        loop {
            let is_read = match &mut screen {
                Some(screen) => screen.show(&text).map(|()| true)?,
                None if text == shown => true,
                None if shown.is_empty() => print_on(&text)?,
                None => print_on(&format!("---\n{text}"))?,
            };
            if !is_read {
                return Ok(Ended::Well);
            }
            shown = text;
            changes.next().await;
            text = match self.text(reader, namespace).await {
                Ok(text) => {
                    last.clone_from(&text);
                    text
                }
                Err(error) => self.stale(reader, namespace, &last, error).await?,
            };
        }
    }

    /// Returns what to show while the election can't be read.
    ///
    /// # Errors
    /// If the election is gone.
    async fn stale(
        &self,
        reader: &Reader,
        namespace: &str,
        last: &str,
        error: anyhow::Error,
    ) -> anyhow::Result<String> {
        if let Ok(None) = reader.find_election(namespace, &self.name).await {
            return Err(error);
        }
        let why = format!("what is shown may be over: {error:#}");
        if self.output.is_none_or(|format| format == Format::Wide) {
            return Ok(format!("{last}{why}\n"));
        }
        // A program may read the standard output.
        eprintln!("{why}");
        Ok(last.to_owned())
    }

    async fn text(&self, reader: &Reader, namespace: &str) -> anyhow::Result<String> {
        let sight = Sight::of(reader, namespace, &self.name).await?;
        let outlook = sight.outlook();
        Ok(match self.output {
            None => tree(&sight, &outlook, false),
            Some(Format::Wide) => tree(&sight, &outlook, true),
            Some(Format::Name) => resource_name(&sight.election) + "\n",
            Some(Format::Json) => serde_json::to_string_pretty(&data(&sight, &outlook))? + "\n",
            Some(Format::Yaml) => as_yaml(&data(&sight, &outlook))?,
        })
    }
}

/// Returns the state for a program.
fn data(sight: &Sight, outlook: &Outlook) -> serde_json::Value {
    let metadata = &sight.election.metadata;
    let mut told = json!(outlook);
    told["election"] = json!({"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid});
    told["conditions"] = json!(conditions(&sight.election).collect::<Vec<_>>());
    if let Ok(spec) = &sight.spec {
        told["className"] = json!(spec.class_name);
        told["key"] = json!(spec.key.name);
        told["store"] = json!(spec.shared.as_ref().map_or("Lease", |shared| shared.kind().trim_start_matches("the ")));
    }
    if let Some(Ok(stored)) = &sight.lock {
        told["record"] = json!(stored.record());
    }
    told
}

/// A branch of the tree.
struct Branch {
    label: &'static str,
    cells: Vec<Cell>,
}

fn tree(sight: &Sight, outlook: &Outlook, wide: bool) -> String {
    let election = &sight.election;
    let ready = condition(election, READY);
    let tone = health(election).tone();
    let reason = ready.map_or("-", |ready| ready.reason.as_str());
    let head = format!("{} {}\n", paint(Tone::Strong, &full_name(election)), paint(tone, reason));
    let mut branches = Vec::new();
    let mut add = |label, cell: Cell| branches.push(Branch { label, cells: vec![cell] });
    match &sight.spec {
        Ok(spec) => {
            let built_in = if sight.classes_seen && sight.class.is_none() { " (built in)" } else { "" };
            add("class", format!("{}{built_in}", spec.class_name).into());
            add("store", store(sight, spec.shared.as_ref(), &spec.key.to_string()));
            if sight.classes_seen {
                add("session", session(sight, spec.shared.as_ref()));
            }
            add("record", record(sight, outlook));
        }
        Err(refusal) => add("refused", Cell::new(&refusal.message, Tone::Bad)),
    }
    add("leader", leader(outlook));
    if let Some(routed) = condition(election, ROUTED) {
        let service = election.spec.service.as_ref().map(|service| service.name.as_str());
        let tone = if routed.status == "True" { Tone::Plain } else { Tone::Bad };
        add("service", Cell::new(format!("{}: {}", service.unwrap_or_default(), routed.message), tone));
    }
    for item in election.status.iter().flat_map(|status| &status.workloads).flat_map(|workloads| &workloads.items) {
        let tone = match item.state {
            WorkloadState::Missing | WorkloadState::Failing => Tone::Bad,
            WorkloadState::Waiting | WorkloadState::WindingDown | WorkloadState::Untouched => Tone::Doubtful,
            WorkloadState::Enabled | WorkloadState::Finished | WorkloadState::Disabled => Tone::Plain,
        };
        add("workload", Cell::new(format!("{:?}/{}: {:?}", item.kind, item.name, item.state), tone));
    }
    if wide {
        for condition in conditions(election).filter(|one| ![READY, STALLED].contains(&one.type_.as_str())) {
            let text = format!("{}={}: {}: {}", condition.type_, condition.status, condition.reason, condition.message);
            add("condition", text.into());
        }
    }
    for block in &outlook.blocks {
        add(
            "trouble",
            Cell::new(block, if condition(election, PAUSED).is_some() { Tone::Doubtful } else { Tone::Bad }),
        );
    }
    for why in &outlook.not_visible {
        add("unseen", Cell::new(format!("not visible from here: {why}"), Tone::Doubtful));
    }
    let pods = candidates(outlook);
    let eligible = outlook.candidates.iter().filter(|one| one.rank.is_some()).count();
    if sight.spec.as_ref().is_ok_and(|spec| spec.cluster.is_none())
        && sight.pods.is_ok()
        && outlook.verdict != "Refused"
    {
        let text = format!("{eligible} of {} could be elected; {}", pods.len(), outlook.now);
        add("pods", Cell::new(text, if outlook.winner.is_some() { Tone::Plain } else { Tone::Bad }));
    } else {
        add("now", outlook.now.clone().into());
    }
    head + &drawn(&branches, &pods)
}

/// Draws the branches, with the candidates below the last one.
fn drawn(branches: &[Branch], pods: &[Vec<Cell>]) -> String {
    let last = branches.len().saturating_sub(1);
    let rows: Vec<Vec<Cell>> = branches
        .iter()
        .map(|branch| [Cell::new(branch.label, Tone::Faint)].into_iter().chain(branch.cells.clone()).collect())
        .collect();
    let mut drawn = String::new();
    for (number, line) in table(&rows).lines().enumerate() {
        drawn += [if number == last { "└─ " } else { "├─ " }, line, "\n"].concat().as_str();
    }
    let count = pods.len();
    for (number, line) in table(pods).lines().enumerate() {
        drawn += ["   ", if number + 1 == count { "└─ " } else { "├─ " }, line, "\n"].concat().as_str();
    }
    drawn
}

/// Returns where the lock is, and whether that place answers.
pub(super) fn store(sight: &Sight, shared: Option<&SharedClass>, key: &str) -> Cell {
    let reachable = condition(&sight.election, STORE_REACHABLE);
    let (said, tone) = match reachable {
        Some(one) if one.status == "True" => ("answers the operator".to_owned(), Tone::Plain),
        Some(one) if one.reason != "NotAccepted" => (format!("{}: {}", one.reason, one.message), Tone::Bad),
        _ => ("not known whether it answers the operator".to_owned(), Tone::Doubtful),
    };
    let place = match shared {
        Some(shared) => format!("{}, key {key}", shared.place()),
        None if sight.classes_seen => format!("Lease {key}"),
        None => "not visible from here: the class says where it is".into(),
    };
    Cell::new(format!("{place}; {said}"), tone)
}

/// Returns the session that holds the lock.
pub(super) fn session(sight: &Sight, shared: Option<&SharedClass>) -> Cell {
    let Some(shared) = shared else { return "none: a Lease is held until another record is written".into() };
    let leader = sight.election.status.as_ref().and_then(|status| status.leader.as_ref());
    if let Some(session) = leader.and_then(|leader| leader.session.as_ref()) {
        return Cell::new(format!("{session}, which is not lictor's"), Tone::Doubtful);
    }
    let class = sight.class.as_ref().and_then(|class| class.status.as_ref());
    let sessions = class.map(|status| status.sessions().join(", "));
    let sessions = sessions.filter(|sessions| !sessions.is_empty()).unwrap_or_else(|| "not known".into());
    Cell::from(format!(
        "{sessions}, TTL {} s; its remaining time is not visible from here, but in the metric \
         lictor_store_left_seconds of the acting replica",
        shared.ttl().as_secs()
    ))
}

fn record(sight: &Sight, outlook: &Outlook) -> Cell {
    match &sight.lock {
        Some(Ok(Stored::Ours(_, record))) => {
            let holder = record.holder.as_ref().map(|holder| holder.pod.as_deref().unwrap_or("this cluster"));
            let since =
                |time: Timestamp| Wall::from_millisecond(time.0).map(|time| age(time, Wall::now())).unwrap_or_default();
            let told = holder.map_or_else(
                || "names no leader".to_owned(),
                |holder| format!("names {holder}, for {}", since(record.since)),
            );
            let generation = record.generation;
            format!("term {} {told}; written by {} for generation {generation}", record.term, record.operator_id).into()
        }
        Some(Ok(Stored::Absent)) => Cell::new("there is none", Tone::Doubtful),
        Some(Ok(Stored::Foreign(what))) => Cell::new(what, Tone::Bad),
        Some(Ok(Stored::Damaged(..))) => Cell::new("it was edited: the operator writes a new one", Tone::Bad),
        Some(Ok(Stored::HeldByOther(..) | Stored::Free(..))) => "not held".into(),
        Some(Err(_)) => Cell::new("not visible from here", Tone::Doubtful),
        None => {
            let term =
                outlook.term.map(|term| format!("; according to the status, the term is {term}")).unwrap_or_default();
            let shared = sight.spec.as_ref().ok().and_then(|spec| spec.shared.as_ref());
            let place = shared.map(|shared| format!(": it is in {}", shared.kind())).unwrap_or_default();
            format!("not visible from here{place}{term}").into()
        }
    }
}

fn leader(outlook: &Outlook) -> Cell {
    let Some(leader) = &outlook.leader else { return Cell::new("none", Tone::Bad) };
    let name = leader.name.as_deref().unwrap_or("a program other than lictor");
    let cluster = leader.cluster_name.as_ref().filter(|cluster| *cluster != name);
    let parts = [
        cluster.map(|cluster| format!("in the cluster {cluster}")),
        leader.node_name.as_ref().map(|node| format!("on the node {node}")),
        leader.pod_ip.as_ref().map(|ip| format!("at {ip}")),
        leader.acquire_time.as_ref().map(|time| format!("for {}", age(time.0, Wall::now()))),
    ];
    let parts: Vec<String> = [Some(name.to_owned())].into_iter().chain(parts).flatten().collect();
    Cell::new(parts.join(" "), Tone::Good)
}

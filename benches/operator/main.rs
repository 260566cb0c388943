//! What the operator costs and how fast it is, in a real control plane: API server, etcd and controllers are real, kwok simulates
//! the nodes, and `lictor run` is the real program in its own process. docs/benchmarks.md explains each figure, with
//! measurements. The benchmark exits with 1 if a target is missed, after it has measured everything.
//!
//! Each part has its own control plane, so that no part sees what another left behind.

mod bare;
mod consul;
mod failover;
mod fair;
mod figures;
mod floor;
mod large;
mod machine;
mod many;
mod observer;
mod peers;
mod record;
mod replicas;
mod scale;
mod strangers;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Parser, ValueEnum};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use consul::{Consul, Servers};
use figures::Report;

/// Measures the operator against a real control plane.
#[derive(Debug, Parser)]
#[command(
    bin_name = "cargo bench --bench operator --",
    after_help = "Examples:\n  cargo bench --bench operator -- --quick\n  cargo bench --bench operator -- failover --runs 20"
)]
struct Options {
    /// What to measure. Default: everything.
    #[arg(value_enum)]
    parts: Vec<Part>,

    /// Measures in ten minutes what can be compared between machines: fewer runs, fewer elections, and of the parts failover,
    /// consul-failover, replicas and scale. It hardly waits for busy neighbours. What else is given on the command line holds.
    #[arg(long)]
    quick: bool,

    /// The number of failovers of each kind, and of moves of a CronJob to another cluster. Of fewer than 100, the p99 has no target.
    #[arg(long, default_value_t = 200, default_value_if("quick", "true", "40"), value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// The number of first handovers in each group of the part large.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    first_runs: u32,

    /// How many seconds each run waits for busy neighbours to end. A run that then begins beside one is counted as such.
    #[arg(long, default_value_t = 45, default_value_if("quick", "true", "1"))]
    wait_seconds: u32,

    /// The number of elections, of three pods each, for start and idle.
    #[arg(long, default_value_t = 1000, default_value_if("quick", "true", "50"), value_parser = clap::value_parser!(u32).range(1..))]
    elections: u32,

    /// How many seconds to watch the idle operator.
    #[arg(long, default_value_t = 60, default_value_if("quick", "true", "30"), value_parser = clap::value_parser!(u32).range(1..))]
    idle_seconds: u32,

    /// The number of pods of no election.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    strangers: u32,

    /// The number of hand-overs between two replicas by SIGTERM.
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "3"))]
    terminations: u32,

    /// The number of hand-overs between two replicas by SIGKILL.
    #[arg(long, default_value_t = 3)]
    kills: u32,

    /// The servers of the parts with Consul.
    #[arg(long, value_enum, default_value_t = Servers::Three)]
    consul: Servers,

    /// How many seconds to watch Consul when nothing happens.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u32).range(60..))]
    consul_idle_seconds: u32,

    /// The number of take-overs by another cluster after SIGTERM.
    #[arg(long, default_value_t = 10)]
    consul_terminations: u32,

    /// The number of take-overs by another cluster after SIGKILL.
    #[arg(long, default_value_t = 5)]
    consul_kills: u32,

    /// The number of moves of a CronJob to another cluster after SIGTERM.
    #[arg(long, default_value_t = 20)]
    workload_terminations: u32,

    /// The number of times that each fault happens to each of the peers. With 0, only their start and their cost at rest are measured.
    #[arg(long, default_value_t = 5)]
    peer_runs: u32,

    /// The number of hand-overs between two agents by SIGTERM.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    agent_terminations: u32,

    /// The number of times that an agent is killed, and that it is stopped, beside the others. Each takes a minute. With 0, only the rest
    /// is measured.
    #[arg(long, default_value_t = 5)]
    agent_losses: u32,

    /// How many seconds to watch the peers when nothing happens.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(30..))]
    peer_rest_seconds: u32,

    /// The file for the figures as JSON.
    #[arg(long, env = "LICTOR_BENCH_JSON", value_name = "FILE",
          default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench/operator.json"))]
    json: PathBuf,

    /// `cargo bench` passes this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// From the loss of a leader to the next one's label.
    Failover,
    /// Failovers in one namespace, while in another one a webhook hangs, or pods flap.
    Fair,
    /// The first handover of an operator in a group of 500 pods and in one of 3, reached by a slice and by label.
    Large,
    /// What happens when one of two replicas of the operator ends.
    Replicas,
    /// From nothing until all elections have a leader, then a minute in which nothing happens.
    Scale,
    /// What pods of no election take of the operator's memory.
    Strangers,
    /// Like failover, with the locks in Consul.
    ConsulFailover,
    /// The requests of few and many elections to Consul when nothing happens.
    ConsulIdle,
    /// From the end of all operators in a cluster to another cluster's leader, and the same by `consul lock`.
    ConsulTakeover,
    /// From the loss of a cluster until its CronJob is resumed in another one.
    ConsulWorkloads,
    /// `lictor agent` beside `consul lock` and client-go with the same TTL: hand-over by SIGTERM, SIGKILL, SIGSTOP; start; memory.
    Agents,
    /// lictor beside client-go, kube-scheduler and `consul lock`: the leader is killed, stopped, hung, cut off; what they cost at rest.
    Peers,
}

impl Options {
    fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_seconds.into())
    }
}

/// What `--quick` measures: what has a ratio or a count for its target.
const QUICK: [Part; 4] = [Part::Failover, Part::Replicas, Part::Scale, Part::ConsulFailover];

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            // However it ends, everything that was started is dropped, and that stops it.
            tokio::select! {
                measured = measure(&options) => measured,
                _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
                _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
            }
        })
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let asked = |part| match (options.parts.as_slice(), options.quick) {
        ([], false) => true,
        ([], true) => QUICK.contains(&part),
        (parts, _) => parts.contains(&part),
    };
    let began = Instant::now();
    let mut report = Report::default();
    let mut all = Map::new();
    let machine = machine::describe()?;
    eprintln!("{}", serde_json::to_string(&machine)?);
    all.insert("machine".into(), machine);
    if asked(Part::Failover) {
        let before = machine::load()?;
        let mut figures =
            failover::measure(options.runs, options.wait(), None, &mut report).await.context("failover")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("failover".into(), figures);
    }
    if asked(Part::Fair) {
        let before = machine::load()?;
        let mut figures = fair::measure(options.runs, &mut report).await.context("fair")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("fair".into(), figures);
    }
    if asked(Part::Large) {
        let before = machine::load()?;
        let mut figures = large::measure(options.first_runs, &mut report).await.context("large")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("large".into(), figures);
    }
    if asked(Part::Replicas) {
        let before = machine::load()?;
        let mut figures =
            replicas::measure(options.terminations, options.kills, &mut report).await.context("replicas")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("replicas".into(), figures);
    }
    if asked(Part::Scale) {
        let before = machine::load()?;
        let mut figures =
            scale::measure(options.elections, options.idle_seconds, &mut report).await.context("scale")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("scale".into(), figures);
    }
    if asked(Part::Strangers) {
        let figures = strangers::measure(options.strangers, &mut report).await.context("strangers")?;
        all.insert("strangers".into(), figures);
    }
    if asked(Part::ConsulFailover) {
        let before = machine::load()?;
        let consul = Consul::start(options.consul);
        let mut figures = failover::measure(options.runs, options.wait(), Some(&consul), &mut report)
            .await
            .context("consul-failover")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("consulFailover".into(), figures);
    }
    if asked(Part::ConsulTakeover) {
        let before = machine::load()?;
        let consul = Consul::start(options.consul);
        let (terminations, kills) = (options.consul_terminations, options.consul_kills);
        let mut figures =
            consul::takeover::measure(&consul, terminations, kills, &mut report).await.context("consul-takeover")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("consulTakeover".into(), figures);
    }
    if asked(Part::ConsulWorkloads) {
        let before = machine::load()?;
        let consul = Consul::start(options.consul);
        let (runs, terminations) = (options.runs, options.workload_terminations);
        let measured = consul::workloads::measure(&consul, runs, terminations, options.wait(), &mut report).await;
        let mut figures = measured.context("consul-workloads")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("consulWorkloads".into(), figures);
    }
    if asked(Part::ConsulIdle) {
        let before = machine::load()?;
        let consul = Consul::start(options.consul);
        let (elections, seconds) = (options.elections, options.consul_idle_seconds);
        let figures = consul::idle::measure(&consul, elections, seconds, &mut report).await.context("consul-idle")?;
        all.insert("consulIdle".into(), json!({"load": [before, machine::load()?], "figures": figures}));
    }
    compare(options, asked, &mut report, &mut all).await?;
    report.print();
    all.insert("table".into(), report.to_json());
    if let Some(directory) = options.json.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(&options.json, serde_json::to_string_pretty(&all)?)
        .with_context(|| format!("writing {}", options.json.display()))?;
    eprintln!("written: {}, after {:.1} min", options.json.display(), began.elapsed().as_secs_f64() / 60.0);
    let missed = report.missed();
    anyhow::ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// Measures the parts that put lictor beside other programs.
async fn compare(
    options: &Options,
    asked: impl Fn(Part) -> bool,
    report: &mut Report,
    all: &mut Map<String, Value>,
) -> anyhow::Result<()> {
    if asked(Part::Agents) {
        let before = machine::load()?;
        let (terminations, losses) = (options.agent_terminations, options.agent_losses);
        let mut figures = peers::agents::measure(terminations, losses, report).await.context("agents")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("agents".into(), figures);
    }
    if asked(Part::Peers) {
        let before = machine::load()?;
        let mut figures =
            peers::measure(options.peer_runs, options.peer_rest_seconds, report).await.context("peers")?;
        figures["load"] = json!([before, machine::load()?]);
        all.insert("peers".into(), figures);
    }
    Ok(())
}

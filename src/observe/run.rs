//! The loop: takes what the source tells, and tells it on.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::stream::BoxStream;
use lictor_core::Instant;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::answers;
use super::heard::Heard;
use super::hooks::{Hooks, Runner, kill_the_rest};
use super::knowledge::{Knowledge, State};
use super::server::serve;
use super::shared::Shared;
use super::state_file;
use super::{About, Role};
use crate::process::{monotonic, nap, spawn, wall};

/// How long connections that are open have at the end.
const CLOSING: Duration = Duration::from_secs(1);

/// How an election is observed.
#[derive(Debug)]
pub struct Settings {
    /// Which election.
    pub about: About,
    /// For how long what was heard counts. None: for ever.
    pub stale_after: Option<Duration>,
    /// The file to keep up.
    pub state_file: Option<PathBuf>,
    /// What to run.
    pub hooks: Option<Hooks>,
    /// A name for this start of this process.
    pub start: String,
}

/// Observes until SIGTERM or Ctrl-C.
///
/// # Errors
/// If it can't begin, or a listener fails.
pub async fn run(
    settings: Settings,
    listeners: Vec<TcpListener>,
    mut source: BoxStream<'static, Heard>,
) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("can't wait for signals")?;
    let shared = Arc::new(Shared::new(settings.about, settings.stale_after, settings.start));
    let mut teller = Teller::new(shared.clone(), settings.state_file, settings.hooks)?;
    let mut served = pin!(serve(listeners, shared.clone()));
    loop {
        let now = monotonic();
        let stale = shared.known(|known| known.stale_at()).map_or(Duration::MAX, |at| at.since(now));
        // It is stale already: there is nothing to wait for but the source.
        let wait = if stale.is_zero() { Duration::MAX } else { stale };
        tokio::select! {
            heard = source.next() => match heard {
                Some(heard) => teller.hear(heard),
                None => bail!("the source has ended"),
            },
            () = nap(wait) => teller.tell(),
            result = &mut served => {
                return result.context("a listener has failed").and_then(|()| bail!("the HTTP server has ended"));
            }
            () = signals.next() => break,
        }
    }
    tracing::info!("ends");
    teller.end();
    // While a hook still runs, whoever asks is told that nobody leads.
    let hooks = async {
        tokio::select! {
            () = teller.finish() => {}
            () = signals.next() => tracing::warn!("does not wait for hooks, because it was asked to end again"),
        }
    };
    tokio::select! {
        () = hooks => {}
        _ = &mut served => {}
    }
    kill_the_rest().await;
    shared.closing.send_replace(true);
    let _ = timeout(CLOSING, served).await;
    Ok(())
}

/// Returns what is heard first, as `GET /election` has it, and what this pod is.
///
/// # Errors
/// If nothing was heard in time. Returns why, if that is known.
pub async fn once(
    settings: Settings,
    mut source: BoxStream<'static, Heard>,
    limit: Duration,
) -> Result<(Value, Role), Option<String>> {
    let mut known = Knowledge::new(settings.stale_after);
    let listen = async {
        while let Some(heard) = source.next().await {
            known.hear(heard, monotonic(), wall());
            if known.age(monotonic()).is_some() {
                break;
            }
        }
    };
    let _ = timeout(limit, listen).await;
    let now = monotonic();
    match known.age(now) {
        Some(_) => Ok((answers::election(&settings.about, &known, now), known.state(now).role)),
        None => Err(known.problem().map(str::to_owned)),
    }
}

/// Tells on what is known.
struct Teller {
    shared: Arc<Shared>,
    /// What was told last.
    told: State,
    states: watch::Sender<State>,
    hooks: Option<JoinHandle<()>>,
    file: Option<(watch::Sender<String>, JoinHandle<()>)>,
    /// Whether the log says that nothing is heard.
    failing: bool,
}

impl Teller {
    fn new(shared: Arc<Shared>, file: Option<PathBuf>, hooks: Option<Hooks>) -> anyhow::Result<Self> {
        let now = monotonic();
        let told = shared.known(|known| known.state(now));
        shared.events.push(answers::told(&shared.about, &told).to_string());
        let (states, heard) = watch::channel(told.clone());
        let file = match file {
            Some(path) => {
                let content = content(&shared, now);
                state_file::replace(&path, &content)
                    .with_context(|| format!("the state file {} can't be written", path.display()))?;
                let (contents, changes) = watch::channel(content);
                Some((contents, spawn(state_file::keep(path, changes))))
            }
            None => None,
        };
        let hooks = match hooks {
            Some(hooks) => {
                let runner = Runner::new(hooks, &shared.about, shared.metrics.clone());
                Some(spawn(runner.context("can't begin to run hooks")?.run(heard)))
            }
            None => None,
        };
        Ok(Self { shared, told, states, hooks, file, failing: false })
    }

    fn hear(&mut self, heard: Heard) {
        let confirmed = matches!(heard, Heard::Confirmed { .. });
        match &heard {
            Heard::Failed(problem) => {
                self.shared.metrics.count_failure();
                if !self.failing {
                    tracing::warn!(problem, "nothing is heard of the election at present");
                    self.failing = true;
                }
            }
            Heard::Confirmed { .. } if self.failing => {
                tracing::info!("the election is heard of again");
                self.failing = false;
            }
            _ => {}
        }
        self.shared.known(|known| known.hear(heard, monotonic(), wall()));
        self.tell();
        if confirmed {
            self.write();
        }
    }

    /// Tells what has changed, if something has.
    fn tell(&mut self) {
        let state = self.shared.known(|known| known.state(monotonic()));
        if state == self.told {
            return;
        }
        if (state.role, &state.leader) != (self.told.role, &self.told.leader) {
            let leader = state.leader.as_ref().map(|leader| leader.name.as_str());
            tracing::info!(role = ?state.role, leader, term = state.term, stale = state.stale, "the election has changed");
        }
        self.told = state;
        self.shared.metrics.count_change();
        self.shared.events.push(answers::told(&self.shared.about, &self.told).to_string());
        self.states.send_replace(self.told.clone());
        self.write();
    }

    fn write(&self) {
        if let Some((contents, _)) = &self.file {
            contents.send_replace(content(&self.shared, monotonic()));
        }
    }

    /// Tells that nothing is known from now on.
    fn end(&mut self) {
        self.shared.known(Knowledge::end);
        self.tell();
    }

    /// Waits until hooks have ended, and the file is gone.
    async fn finish(&mut self) {
        if let Some((contents, task)) = self.file.take() {
            drop(contents);
            let _ = task.await;
        }
        if let Some(hooks) = self.hooks.take() {
            let _ = hooks.await;
        }
    }
}

fn content(shared: &Shared, now: Instant) -> String {
    shared.known(|known| answers::election(&shared.about, known, now)).to_string() + "\n"
}

/// The signals that end this process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

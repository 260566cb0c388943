//! The loop: takes news from the source, and publishes it.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use futures::StreamExt;
use futures::future::join;
use futures::stream::BoxStream;
use lictor_core::Instant;
use lictor_process::{monotonic, nap, spawn, wall};
use serde_json::Value;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::answers;
use super::beside::hand_on;
use super::heard::Heard;
use super::hooks::{Done, Hooks, Runner, kill_the_rest};
use super::knowledge::{Knowledge, State};
use super::server::{router, serve};
use super::shared::Shared;
use super::state_file;
use super::{About, Role};
use crate::signals::endings;

/// How long open connections have at the end.
const CLOSING: Duration = Duration::from_secs(1);

/// The settings of an observer.
#[derive(Debug)]
pub struct Settings {
    /// The observed election.
    pub about: About,
    /// How long news counts; `None` means for ever.
    pub stale_after: Option<Duration>,
    /// The file to keep up to date.
    pub state_file: Option<PathBuf>,
    /// The hooks to run.
    pub hooks: Option<HooksAt>,
    /// A name for this start of this process.
    pub start: String,
}

/// The place where hooks run.
#[derive(Debug)]
pub enum HooksAt {
    /// In this process.
    Here(Hooks),
    /// In the process at the other end, by [`run_hooks`](super::run_hooks). Each hook may take this long.
    Beside(UnixStream, Duration),
}

/// Observes until SIGTERM or Ctrl-C. A second signal does not wait for hooks.
///
/// # Errors
/// If the observer can't begin, or a listener fails.
pub async fn run(
    settings: Settings,
    listeners: Vec<TcpListener>,
    source: BoxStream<'static, Heard>,
) -> anyhow::Result<()> {
    let signals = endings().context("can't wait for signals")?;
    Telling::begin(settings)?.run(listeners, |router| router, source, signals).await
}

/// The published state before any news.
pub struct Telling {
    shared: Arc<Shared>,
    teller: Teller,
}

impl Telling {
    /// Begins to publish that nothing is known.
    ///
    /// # Errors
    /// If the state file can't be written, or hooks can't be run.
    pub fn begin(settings: Settings) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::new(settings.about, settings.stale_after, settings.start));
        let teller = Teller::new(shared.clone(), settings.state_file, settings.hooks)?;
        Ok(Self { shared, teller })
    }

    /// Publishes the source's news, until the source ends or a user asks to end. A second request does not wait for hooks. `wrap` adds
    /// answers to the server.
    ///
    /// # Errors
    /// If a listener fails.
    pub async fn run(
        self,
        listeners: Vec<TcpListener>,
        wrap: impl FnOnce(Router) -> Router,
        mut source: BoxStream<'static, Heard>,
        mut asked: BoxStream<'static, ()>,
    ) -> anyhow::Result<()> {
        let Self { shared, mut teller } = self;
        let mut served = pin!(serve(listeners, wrap(router(shared.clone())), shared.clone()));
        loop {
            let now = monotonic();
            let change = shared.known(|known| known.next_change(now)).map_or(Duration::MAX, |at| at.since(now));
            tokio::select! {
                heard = source.next() => match heard {
                    Some(heard) => teller.hear(heard),
                    None => break,
                },
                () = nap(change) => teller.tell(),
                result = &mut served => {
                    return result.context("a listener has failed").and_then(|()| bail!("the HTTP server has ended"));
                }
                Some(()) = asked.next() => break,
            }
        }
        tracing::info!("ends");
        teller.end();
        // While a hook still runs, the server answers that there is no leader.
        let hooks = async {
            tokio::select! {
                () = teller.finish() => {}
                Some(()) = asked.next() => tracing::warn!("not waiting for hooks, because of a second request to end"),
            }
        };
        tokio::select! {
            () = hooks => {}
            _ = &mut served => {}
        }
        if teller.has_own_hooks {
            kill_the_rest().await;
        }
        shared.closing.send_replace(true);
        let _ = timeout(CLOSING, served).await;
        Ok(())
    }
}

/// Returns the first news in the form of `GET /election`, and the role of this pod.
///
/// # Errors
/// If there was no news in time. The error has the reason, if it is known.
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

/// Publishes the knowledge.
struct Teller {
    shared: Arc<Shared>,
    /// The last published state.
    told: State,
    states: watch::Sender<State>,
    hooks: Option<JoinHandle<()>>,
    /// Whether hooks run in this process.
    has_own_hooks: bool,
    file: Option<(watch::Sender<String>, JoinHandle<()>)>,
    /// Whether the log says that there is no news.
    failing: bool,
    /// The oddity of the news that the log has.
    noted: Option<String>,
}

impl Teller {
    fn new(shared: Arc<Shared>, file: Option<PathBuf>, hooks: Option<HooksAt>) -> anyhow::Result<Self> {
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
        let has_own_hooks = matches!(hooks, Some(HooksAt::Here(_)));
        let hooks = hooks.map(|hooks| start(hooks, &shared, heard)).transpose()?;
        Ok(Self { shared, told, states, hooks, has_own_hooks, file, failing: false, noted: None })
    }

    fn hear(&mut self, heard: Heard) {
        let confirmed = matches!(heard, Heard::Confirmed { .. });
        match &heard {
            Heard::Failed(problem) => {
                self.shared.metrics.count_failure();
                if !self.failing {
                    tracing::warn!(problem, "the source of the election does not answer at present");
                    self.failing = true;
                }
            }
            Heard::Confirmed { .. } if self.failing => {
                tracing::info!("the source of the election answers again");
                self.failing = false;
            }
            _ => {}
        }
        let note = self.shared.known(|known| {
            known.hear(heard, monotonic(), wall());
            known.note().map(str::to_owned)
        });
        // An agent has logged its own problems.
        if let Some(note) =
            note.as_ref().filter(|note| self.noted.as_ref() != Some(note) && self.shared.about.source != "agent")
        {
            tracing::warn!(election = self.shared.about.election, "{note}");
        }
        self.noted = note;
        self.tell();
        if confirmed {
            self.write();
        }
    }

    /// Publishes the state if it has changed.
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

    /// Publishes that nothing is known from now on.
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

/// Starts the runner of hooks, and counts hooks that have ended.
fn start(hooks: HooksAt, shared: &Arc<Shared>, states: watch::Receiver<State>) -> anyhow::Result<JoinHandle<()>> {
    let (done, mut ended) = mpsc::unbounded_channel();
    let counts = shared.metrics.clone();
    let counts = async move {
        while let Some(Done { hook, result }) = ended.recv().await {
            counts.count_hook(&hook, result);
        }
    };
    Ok(match hooks {
        HooksAt::Here(hooks) => {
            let runner = Runner::new(hooks, shared.about.election.clone(), done).context("can't begin to run hooks")?;
            spawn(async { ((), ()) = join(runner.run(states), counts).await })
        }
        HooksAt::Beside(stream, longest) => {
            spawn(async move { ((), ()) = join(hand_on(stream, longest, states, done), counts).await })
        }
    })
}

fn content(shared: &Shared, now: Instant) -> String {
    shared.known(|known| answers::election(&shared.about, known, now)).to_string() + "\n"
}

//! The watchdog: the process that the user started. It starts the guard, which does the same again and starts the agent. Both outlive the
//! agent (A3).
//!
//! The guard is there for whoever stops or kills the agent and the watchdog, for example by their name. The kernel has nothing else for
//! that without privileges: a parent-death signal takes a death, and only the command's own process gets it; a timer that kills is a
//! process's own; a cgroup that can be frozen or killed is one that may be written, which in a container and without root it seldom may.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use futures::stream::BoxStream;
use lictor_core::{Instant, Watchdog, WatchdogCommand};
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper, setsid};

use super::link::{FromAgent, GUARD, WATCHDOG};
use super::place::Name;
use super::processes::{reap, signal_below};
use super::signals::{children, ends, forwarded, stops};
use crate::process::{monotonic, nap};

/// The environment variable by which a process knows that it has a watchdog, and what it is: see [`Part`].
pub const GUARD_VARIABLE: &str = "LICTOR_AGENT_WATCHED";

/// The guard's name, for whoever sends signals by names.
const GUARD_NAME: &str = "agent-guard";

/// What a process of `lictor agent` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the user started.
    Watchdog,
    /// What looks after the agent beside the watchdog.
    Guard,
    /// The agent itself.
    Agent,
    /// What runs the hooks of the agent with this id.
    Hooks(Pid),
}

impl Part {
    /// Returns what this process is.
    pub fn of_this_process() -> Self {
        let Some(said) = std::env::var_os(GUARD_VARIABLE) else { return Self::Watchdog };
        if said == GUARD {
            return Self::Guard;
        }
        let agent = said.to_str().and_then(|said| said.strip_prefix("hooks of ")?.parse().ok());
        agent.and_then(Pid::from_raw).map_or(Self::Agent, Self::Hooks)
    }

    fn variable(self) -> String {
        match self {
            Self::Hooks(agent) => format!("hooks of {}", agent.as_raw_nonzero()),
            Self::Guard => GUARD.into(),
            Self::Watchdog | Self::Agent => "1".into(),
        }
    }

    /// Starts this program again, with the same arguments, as that.
    fn start(self) -> anyhow::Result<Pid> {
        let mut program = Command::new("/proc/self/exe");
        program.args(std::env::args_os().skip(1)).env(GUARD_VARIABLE, self.variable());
        if self == Self::Guard {
            // It makes a session for itself, which who leads a group can't.
            program.arg0(GUARD_NAME);
        } else {
            // A terminal's Ctrl-C comes to the watchdog alone, and is forwarded.
            program.arg0("lictor").process_group(0);
        }
        let child = program.spawn().context("can't start the agent: is /proc mounted?")?;
        Ok(Pid::from_child(&child))
    }
}

/// A3: an agent that was asked to end has to say something within the time that its command has to end, and so much more.
const UNHEARD: Duration = Duration::from_secs(2);

/// From one attempt to kill to the next one.
const KILL_AGAIN: Duration = Duration::from_millis(5);

/// What a watchdog looks after. A simulation has its own.
pub trait Guarded: Send {
    /// Hands on what the agent said last. Returns whether it said anything since the last call. This never waits.
    fn tell(&mut self, watchdog: &mut Watchdog) -> bool;

    /// Kills all that comes from the agent, and not the agent. Returns how many processes there were.
    ///
    /// # Errors
    /// If they can't be found.
    fn kill_command(&mut self) -> io::Result<usize>;

    /// The same with all that comes from the watchdog, when the agent has ended.
    ///
    /// # Errors
    /// If they can't be found.
    fn kill_all(&mut self) -> io::Result<usize>;

    /// Kills the agent itself.
    fn kill_agent(&mut self);

    /// Waits until something may have happened. Returns the agent's exit code if it has ended. This can be cancelled at any time.
    fn hear(&mut self) -> impl Future<Output = Option<u8>> + Send;
}

/// Looks after an agent and its command until both have ended. Returns the exit code to hand on.
///
/// # Errors
/// If what the agent has started can't be found.
pub async fn guard(mut guarded: impl Guarded) -> io::Result<u8> {
    let mut watchdog = Watchdog::default();
    let (mut code, mut nothing) = (0, 0);
    loop {
        // What was told while this process was stopped counts first.
        if guarded.tell(&mut watchdog) {
            nothing = 0;
        }
        let wait = match watchdog.next(monotonic()) {
            WatchdogCommand::Wait(until) => until.map_or(Duration::MAX, |until| until.since(monotonic())),
            WatchdogCommand::KillCommand => {
                nothing = if guarded.kill_command()? == 0 { nothing + 1 } else { 0 };
                if nothing > 1 {
                    watchdog.cleared();
                }
                KILL_AGAIN
            }
            WatchdogCommand::KillAgent => {
                guarded.kill_agent();
                KILL_AGAIN
            }
            WatchdogCommand::KillAll => {
                nothing = if guarded.kill_all()? == 0 { nothing + 1 } else { 0 };
                if nothing > 1 {
                    return Ok(code);
                }
                KILL_AGAIN
            }
        };
        tokio::select! {
            biased;
            ended = guarded.hear() => if let Some(ended) = ended {
                watchdog.ended();
                (code, nothing) = (ended, 0);
            },
            () = nap(wait) => {}
        }
    }
}

/// Starts this program again as the guard, or from there as the agent, and if there are hooks once more to run them. Looks after all of it.
/// Returns the exit code to hand on. `stop_timeout` is how long the command has to end.
///
/// # Errors
/// If it can't begin. Then nothing runs.
pub async fn watch(part: Part, name: &Name, hooks: bool, stop_timeout: Duration) -> anyhow::Result<u8> {
    let is_guard = part == Part::Guard;
    if is_guard {
        // No signal from a terminal, or to the user's process group, comes here.
        setsid().context("can't have a session of its own")?;
        std::fs::write("/proc/self/comm", GUARD_NAME).context("can't change the guard's name: is /proc mounted?")?;
    }
    let (signals, children, stops) = (forwarded()?, children()?, stops()?);
    // What becomes a daemon below this process stays below it. As process 1 of a container, it is so anyway.
    set_child_subreaper(Some(getpid())).context("can't become the parent of what the command leaves behind")?;
    let (child, link) = if is_guard {
        let listener = name.take(GUARD).await?;
        let agent = Part::Agent.start()?;
        if hooks {
            Part::Hooks(agent).start()?;
        }
        (agent, FromAgent::of(agent, listener))
    } else {
        let listener = name.take(WATCHDOG).await?;
        let guard = Part::Guard.start()?;
        (guard, FromAgent::below(guard, listener))
    };
    // The guard is nearer to the agent, and goes first.
    let patience = stop_timeout + if is_guard { UNHEARD } else { UNHEARD + UNHEARD / 4 };
    Ok(guard(Below { child, lives: true, link, signals, children, stops, asked: None, patience }).await?)
}

/// The processes below a watchdog, or a guard, on this machine.
struct Below {
    /// The guard, or the agent.
    child: Pid,
    lives: bool,
    link: FromAgent,
    signals: BoxStream<'static, Signal>,
    children: BoxStream<'static, Signal>,
    stops: BoxStream<'static, Signal>,
    /// When the agent was asked to end, until the [`Watchdog`] hears it.
    asked: Option<Instant>,
    patience: Duration,
}

impl Guarded for Below {
    fn tell(&mut self, watchdog: &mut Watchdog) -> bool {
        let told = self.link.tell(watchdog);
        if let Some(asked) = self.asked.take() {
            watchdog.asked_to_end(asked + self.patience);
        }
        told
    }

    fn kill_command(&mut self) -> io::Result<usize> {
        // If the guard is stopped, what an agent leaves behind that has ended is below the guard.
        signal_below(self.link.agent().unwrap_or(self.child), Signal::KILL)
    }

    fn kill_all(&mut self) -> io::Result<usize> {
        signal_below(getpid(), Signal::KILL)
    }

    fn kill_agent(&mut self) {
        tracing::error!("the agent was asked to end, and does not: it is killed");
        self.signal(Signal::KILL);
    }

    async fn hear(&mut self) -> Option<u8> {
        tokio::select! {
            biased;
            _ = self.children.next() => {
                let ended = reap().into_iter().find(|(pid, _)| *pid == self.child);
                self.lives &= ended.is_none();
                ended.map(|(_, code)| code)
            }
            () = self.link.ready() => None,
            // Until the child is reaped, nobody else has its id.
            Some(signal) = self.signals.next(), if self.lives => {
                if ends(signal) {
                    self.asked = self.asked.or(Some(monotonic()));
                }
                self.signal(signal);
                None
            }
            // A watchdog that is stopped guards nothing, and an agent that is stopped holds the lock for nothing.
            Some(_) = self.stops.next() => {
                tracing::warn!("an agent is not stopped by Ctrl-Z: Ctrl-C ends it, and POST /yield leaves the lock to another one");
                None
            }
        }
    }
}

impl Below {
    /// Sends a signal to the child, unless it was reaped.
    fn signal(&self, signal: Signal) {
        if self.lives
            && let Err(error) = kill_process(self.child, signal)
        {
            tracing::warn!(%error, "the agent could not be signalled");
        }
    }
}

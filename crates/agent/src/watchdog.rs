//! The watchdog: the process that the user started. The watchdog starts the guard, which does the same again and starts the agent. Both
//! outlive the agent (A3).
//!
//! The guard exists because a user may stop or kill both the agent and the watchdog, for example by name. The kernel has no other means
//! without privileges: a parent-death signal needs a death, and reaches only the command's own process; a timer that kills belongs to its
//! process; a cgroup has to be writable to be frozen or killed, which it seldom is in a container and without root.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use futures::stream::BoxStream;
use lictor_core::{Instant, Watchdog, WatchdogCommand};
use lictor_process::{monotonic, nap};
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper, setsid};

use super::link::{FromAgent, GUARD, WATCHDOG};
use super::place::Name;
use super::processes::{reap, signal_below};
use super::signals::{children, ends, forwarded, stops};

/// The environment variable that tells a process that it has a watchdog, and its part: see [`Part`].
pub const GUARD_VARIABLE: &str = "LICTOR_AGENT_WATCHED";

/// The guard's name, for users who send signals by name.
const GUARD_NAME: &str = "agent-guard";

/// The part of a process of `lictor agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The process that the user started.
    Watchdog,
    /// The process that guards the agent beside the watchdog.
    Guard,
    /// The agent itself.
    Agent,
    /// The process that runs the hooks of the agent with this id.
    Hooks(Pid),
}

impl Part {
    /// Returns the part of this process.
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

    /// Starts this program again with the same arguments, in this part.
    fn start(self) -> anyhow::Result<Pid> {
        let mut program = Command::new("/proc/self/exe");
        program.args(std::env::args_os().skip(1)).env(GUARD_VARIABLE, self.variable());
        if self == Self::Guard {
            // The guard makes a session for itself, which the leader of a process group can't.
            program.arg0(GUARD_NAME);
        } else {
            // The watchdog alone gets a terminal's Ctrl-C, and forwards it.
            program.arg0("lictor").process_group(0);
        }
        let child = program.spawn().context("can't start the agent: is /proc mounted?")?;
        Ok(Pid::from_child(&child))
    }
}

/// A3: how long after the command's time to end an agent that was asked to end may stay silent.
const UNHEARD: Duration = Duration::from_secs(2);

/// The pause between two attempts to kill.
const KILL_AGAIN: Duration = Duration::from_millis(5);

/// The processes that a watchdog guards. A simulation has its own.
pub trait Guarded: Send {
    /// Passes on the agent's last message. Returns whether a message came since the last call. This never waits.
    fn tell(&mut self, watchdog: &mut Watchdog) -> bool;

    /// Kills all descendants of the agent, but not the agent. Returns how many processes there were.
    ///
    /// # Errors
    /// If they can't be found.
    fn kill_command(&mut self) -> io::Result<usize>;

    /// Does the same with all descendants of the watchdog, after the agent has ended.
    ///
    /// # Errors
    /// If they can't be found.
    fn kill_all(&mut self) -> io::Result<usize>;

    /// Kills the agent itself.
    fn kill_agent(&mut self);

    /// Waits for a possible change. Returns the agent's exit code if the agent has ended. The wait can be cancelled at any time.
    fn hear(&mut self) -> impl Future<Output = Option<u8>> + Send;
}

/// Guards an agent and its command until both have ended. Returns the exit code to pass on.
///
/// # Errors
/// If the descendants of the agent can't be found.
pub async fn guard(mut guarded: impl Guarded) -> io::Result<u8> {
    let mut watchdog = Watchdog::default();
    let (mut code, mut nothing) = (0, 0);
    loop {
        // A message from while this process was stopped counts first.
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

/// Starts this program again as the guard, or from there as the agent, and once more for hooks if there are any. Guards all of them.
/// Returns the exit code to pass on. `stop_timeout` is how long the command has to end.
///
/// # Errors
/// If the process can't begin. Then nothing runs.
pub async fn watch(part: Part, name: &Name, hooks: bool, stop_timeout: Duration) -> anyhow::Result<u8> {
    let is_guard = part == Part::Guard;
    if is_guard {
        // Signals from a terminal, or to the user's process group, do not reach this session.
        setsid().context("can't have a session of its own")?;
        std::fs::write("/proc/self/comm", GUARD_NAME).context("can't change the guard's name: is /proc mounted?")?;
    }
    let (signals, children, stops) = (forwarded()?, children()?, stops()?);
    // A process below this one that becomes a daemon stays below it. For process 1 of a container, this holds anyway.
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
    // The guard is nearer to the agent, and acts first.
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
        // If the guard is stopped, the remains of an agent that has ended are below the guard.
        signal_below(self.link.agent().unwrap_or(self.child), Signal::KILL)
    }

    fn kill_all(&mut self) -> io::Result<usize> {
        signal_below(getpid(), Signal::KILL)
    }

    fn kill_agent(&mut self) {
        tracing::error!("the agent does not end when asked: killing it");
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
            // Until the child is reaped, no other process has its id.
            Some(signal) = self.signals.next(), if self.lives => {
                if ends(signal) {
                    self.asked = self.asked.or(Some(monotonic()));
                }
                self.signal(signal);
                None
            }
            // A stopped watchdog guards nothing, and a stopped agent holds the lock in vain.
            Some(_) = self.stops.next() => {
                tracing::warn!("Ctrl-Z does not stop an agent: Ctrl-C ends it, and POST /yield leaves the lock to another process");
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

//! The agent itself, as a process: its command, its watchdog, and incoming signals.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use futures::stream::BoxStream;
use lictor_core::{AgentEvent, AgentTiming, Instant, Term};
use lictor_locks::Lock;
use lictor_process::nap;
use rustix::process::{Signal, getpid, set_child_subreaper};

use super::command::{CommandLine, Running};
use super::life::{Processes, live};
use super::link::{GUARD, ToWatchdog, WATCHDOG};
use super::place::Held;
use super::processes::reap;
use super::requests::Requests;
use super::signals::{children, ends, forwarded};

/// How often to check whether all descendants of the command have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Runs the command while the lock is held. Returns the exit code to pass on. `held` keeps this process's [name](super::Name), and
/// `lock` is called once, to begin to take part in the election.
///
/// # Errors
/// If the agent can't begin.
pub async fn run(
    held: Held,
    timing: AgentTiming,
    command: CommandLine,
    lock: impl FnMut() -> Lock + Send,
    requests: Requests,
) -> anyhow::Result<u8> {
    let (signals, children) = (forwarded()?, children()?);
    set_child_subreaper(Some(getpid())).context("can't become the parent of what the command leaves behind")?;
    let inherited = held.hand_down().context("can't hand the agent's name down to the command")?;
    let reach =
        |part| ToWatchdog::connect(held.name(), part).with_context(|| format!("can't reach the agent's {part}"));
    let watchdogs = [reach(WATCHDOG)?, reach(GUARD)?];
    let chain = Chain {
        command,
        watchdogs,
        orphaned: false,
        signals,
        children,
        running: None,
        asked_to_end: None,
        _inherited: inherited,
    };
    Ok(live(timing, chain, lock, requests).await)
}

/// The processes of an agent on this machine.
struct Chain {
    command: CommandLine,
    /// The watchdog, and the guard.
    watchdogs: [ToWatchdog; 2],
    /// Whether the watchdog or the guard is gone.
    orphaned: bool,
    signals: BoxStream<'static, Signal>,
    children: BoxStream<'static, Signal>,
    running: Option<Running>,
    /// The signal that asked this process to end.
    asked_to_end: Option<Signal>,
    _inherited: OwnedFd,
}

impl Processes for Chain {
    fn guard(&mut self, until: Option<Instant>) {
        self.watchdogs.iter_mut().for_each(|watchdog| watchdog.tell(until));
    }

    fn start(&mut self, term: Term, until: Instant) -> io::Result<()> {
        tracing::info!(%term, key = self.command.key, "the lock is held: starting the command");
        self.running = Some(self.command.start(term, until)?);
        Ok(())
    }

    fn terminate(&mut self) {
        if let Some(running) = &self.running {
            running.terminate(self.asked_to_end.unwrap_or(Signal::TERM));
        }
    }

    fn kill(&mut self) {
        if let Some(running) = &self.running {
            running.kill();
        }
    }

    async fn hear(&mut self) -> Vec<AgentEvent> {
        let ended = self.running.as_ref().is_some_and(Running::has_ended);
        let wait = if ended { LOOK_AGAIN } else { Duration::MAX };
        let [watchdog, guard] = &mut self.watchdogs;
        tokio::select! {
            biased;
            _ = self.children.next() => {}
            who = async { tokio::select! {
                () = watchdog.closed() => WATCHDOG,
                () = guard.closed() => GUARD,
            } }, if !self.orphaned => {
                tracing::error!("the {who} is gone: killing the command");
                self.orphaned = true;
                return vec![AgentEvent::Orphaned];
            }
            Some(signal) = self.signals.next() => {
                if ends(signal) && self.asked_to_end.is_none() {
                    self.asked_to_end = Some(signal);
                    self.watchdogs.iter_mut().for_each(ToWatchdog::tell_again);
                    return vec![AgentEvent::Stop];
                }
                if let Some(running) = &self.running {
                    running.signal(signal);
                }
            }
            () = nap(wait) => {}
        }
        vec![]
    }

    fn look(&mut self) -> Vec<AgentEvent> {
        let (ended, mut events) = (reap(), vec![]);
        let Some(running) = &mut self.running else { return events };
        for (_, code) in ended.into_iter().filter(|(pid, _)| running.reaped(*pid)) {
            tracing::info!(code, "the command has ended");
            events.push(AgentEvent::Ended(code));
        }
        if running.has_ended() && running.is_gone() {
            self.running = None;
            events.push(AgentEvent::Gone);
        }
        events
    }
}

//! Hooks: commands that run when this pod begins or stops leading. Only one runs at a time, and only for the present state.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use lictor_core::Instant;
use lictor_process::{monotonic, nap};
use rustix::process::{Pid, Signal, getpid, kill_process_group, set_child_subreaper};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::Role;
use super::knowledge::State;
use super::metrics::HookResult;
use crate::{GUARD_VARIABLE, children, reap, signal_below};

/// How long a late hook has from SIGTERM to SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How often to check whether all descendants of a hook have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long to check at most. A process that is left then can't be killed.
const LOOK_FOR: Duration = Duration::from_secs(5);

/// The commands, and how long each may take.
#[derive(Clone, Debug)]
pub struct Hooks {
    /// The command to run when this pod begins to lead, in the shell's syntax.
    pub on_leader: Option<String>,
    /// The command to run when this pod stops leading, or when it can no longer tell whether it leads.
    pub on_follower: Option<String>,
    /// How long a hook may take.
    pub timeout: Duration,
}

/// Which hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Leader,
    Follower,
}

/// Decides which hook is due. Pure.
#[derive(Debug, Default)]
struct Order(Option<Begun>);

/// The state for which the last hook ran.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    Follows,
    /// The pod leads in this term.
    Leads(Option<i64>),
}

impl Order {
    /// Returns the hook that is due, and notes that it begins. A state that came and went while another hook ran is left out. A pod that
    /// leads in a new term has not led in between, so the follower hook runs first.
    fn next(&mut self, role: Role, term: Option<i64>) -> Option<Hook> {
        let (begun, hook) = match (role, &self.0) {
            (Role::Leader, Some(Begun::Leads(before))) if *before == term => return None,
            (Role::Leader, Some(Begun::Leads(_))) => (Begun::Follows, Hook::Follower),
            (Role::Leader, _) => (Begun::Leads(term), Hook::Leader),
            (_, Some(Begun::Follows)) | (Role::Unknown, None) => return None,
            (Role::Follower | Role::Unknown, _) => (Begun::Follows, Hook::Follower),
        };
        self.0 = Some(begun);
        Some(hook)
    }
}

/// A hook that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) hook: String,
    pub(super) result: HookResult,
}

/// Runs the hooks.
pub(super) struct Runner {
    hooks: Hooks,
    election: String,
    done: mpsc::UnboundedSender<Done>,
    children: BoxStream<'static, Signal>,
}

impl Runner {
    /// Makes this process the parent of all processes that hooks leave behind. `done` receives each hook that has ended.
    ///
    /// # Errors
    /// If the system refuses this.
    pub(super) fn new(hooks: Hooks, election: String, done: mpsc::UnboundedSender<Done>) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Self { hooks, election, done, children: children()? })
    }

    /// Runs the hooks that are due, until a state announces the end of this process.
    pub(super) async fn run(mut self, mut states: watch::Receiver<State>) {
        let mut order = Order::default();
        loop {
            let state = states.borrow_and_update().clone();
            match order.next(state.role, state.term) {
                Some(hook) => self.carry_out(hook, &state).await,
                None if state.ended => return,
                None => {
                    if states.changed().await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn carry_out(&mut self, hook: Hook, state: &State) {
        let (name, command) = match hook {
            Hook::Leader => ("--on-leader", &self.hooks.on_leader),
            Hook::Follower => ("--on-follower", &self.hooks.on_follower),
        };
        let Some(command) = command else { return };
        let end = monotonic() + self.hooks.timeout;
        let result = match self.start(command, hook, state) {
            Ok(pid) => self.wait(pid, name, end).await,
            Err(error) => {
                tracing::error!(hook = name, %error, "the hook could not be started");
                HookResult::Failed
            }
        };
        kill_the_rest().await;
        let _ = self.done.send(Done { hook: name.trim_start_matches("--").into(), result });
    }

    fn start(&self, command: &str, hook: Hook, state: &State) -> io::Result<Pid> {
        let role = match (hook, state.role) {
            (Hook::Leader, _) => "leader",
            (Hook::Follower, Role::Unknown) => "unknown",
            (Hook::Follower, _) => "follower",
        };
        let leader = state.leader.as_ref().map(|leader| leader.name.as_str());
        let child = Command::new("sh")
            .args(["-c", command])
            .env("LICTOR_ROLE", role)
            .env("LICTOR_TERM", state.term.map(|term| term.to_string()).unwrap_or_default())
            .env("LICTOR_LEADER", leader.unwrap_or_default())
            .env("LICTOR_ELECTION", &self.election)
            .env_remove(GUARD_VARIABLE)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Pid::from_child(&child))
    }

    /// Waits until a hook has ended, and ends the hook when its time is over.
    async fn wait(&mut self, pid: Pid, name: &str, end: Instant) -> HookResult {
        let (mut late, mut end) = (false, end);
        loop {
            if let Some((_, code)) = reap().into_iter().find(|(ended, _)| *ended == pid) {
                return match (late, code) {
                    (true, _) => HookResult::Late,
                    (false, 0) => HookResult::Succeeded,
                    (false, code) => {
                        tracing::warn!(hook = name, code, "the hook has failed, and is not repeated");
                        HookResult::Failed
                    }
                };
            }
            let left = end.since(monotonic());
            if left.is_zero() {
                // Until the hook's process is reaped, no other group has its id.
                let signal = if late { Signal::KILL } else { Signal::TERM };
                if !late {
                    tracing::warn!(hook = name, "the hook takes longer than --hook-timeout: ending it");
                }
                let _ = kill_process_group(pid, signal);
                (late, end) = (true, monotonic() + GRACE);
                continue;
            }
            tokio::select! {
                _ = self.children.next() => {}
                () = nap(left) => {}
            }
        }
    }
}

/// Kills all processes that hooks have left behind, and waits until they are gone.
pub(super) async fn kill_the_rest() {
    let end = monotonic() + LOOK_FOR;
    // A process that was about to start another one may hide it from a single look.
    let mut nothing = 0;
    while nothing < 2 {
        reap();
        match signal_below(getpid(), Signal::KILL) {
            Ok(0) => nothing += 1,
            Ok(left) if monotonic() < end => {
                tracing::debug!(left, "killing the processes that a hook has left behind");
                nothing = 0;
                nap(LOOK_AGAIN).await;
            }
            Ok(left) => return tracing::error!(left, "processes that a hook has left behind can't be killed"),
            Err(error) => {
                return tracing::error!(%error, "can't read /proc, which lists the processes that a hook has left behind");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADS: Role = Role::Leader;
    const FOLLOWS: Role = Role::Follower;
    const UNKNOWN: Role = Role::Unknown;

    #[test]
    fn each_change_has_its_hook() {
        let mut order = Order::default();
        let mut next = |role, term| order.next(role, Some(term));
        assert_eq!(next(UNKNOWN, 1), None, "nothing was heard yet");
        assert_eq!(next(FOLLOWS, 1), Some(Hook::Follower));
        assert_eq!((next(FOLLOWS, 2), next(UNKNOWN, 2)), (None, None));
        assert_eq!((next(LEADS, 3), next(LEADS, 3)), (Some(Hook::Leader), None));
        assert_eq!((next(UNKNOWN, 3), next(UNKNOWN, 3)), (Some(Hook::Follower), None));
        assert_eq!(next(LEADS, 3), Some(Hook::Leader), "it is known again");
    }

    #[test]
    fn what_is_outdated_is_left_out() {
        // Several things happen while each hook runs, and only the final state counts.
        let mut order = Order::default();
        assert_eq!(order.next(LEADS, Some(1)), Some(Hook::Leader));
        assert_eq!(order.next(LEADS, Some(1)), None, "it has followed meanwhile, and leads again in the same term");
        assert_eq!(order.next(LEADS, Some(5)), Some(Hook::Follower), "terms 2 to 4 were others'");
        assert_eq!(order.next(LEADS, Some(5)), Some(Hook::Leader));
        assert_eq!(order.next(LEADS, Some(7)), Some(Hook::Follower));
        assert_eq!(order.next(FOLLOWS, Some(8)), None, "it does not lead any more, and knows that");
    }
}

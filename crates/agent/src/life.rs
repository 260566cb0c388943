//! The loop of an agent: takes news of the lock, of processes, of requests and of time, and does what [`lictor_core::Agent`] decides.

use std::io;
use std::time::Duration;

use lictor_core::{Agent, AgentAction, AgentEvent, AgentTiming, Instant, Term};
use lictor_locks::{Lock, LockUpdate, Problem};
use lictor_process::{monotonic, nap};
use tokio::sync::oneshot;

use super::requests::{Condition, Requests, told};

/// The exit code for a command that could not be started.
const NOT_STARTED: u8 = 126;

/// The processes around an agent: its command, its watchdog, and senders of signals. A simulation has its own.
pub trait Processes: Send {
    /// Tells the watchdog until when the command may live.
    fn guard(&mut self, until: Option<Instant>);

    /// Starts the command, which must not begin after `until`.
    ///
    /// # Errors
    /// If no process can be created.
    fn start(&mut self, term: Term, until: Instant) -> io::Result<()>;

    /// Asks the command to end; if it has ended, asks the processes that it left behind.
    fn terminate(&mut self);

    /// Kills the command and all its descendants.
    fn kill(&mut self);

    /// Waits for a possible change of these processes. The wait can be cancelled at any time.
    fn hear(&mut self) -> impl Future<Output = Vec<AgentEvent>> + Send;

    /// Checks how the command has changed since the last call.
    fn look(&mut self) -> Vec<AgentEvent>;
}

/// The state of a living agent.
struct Life<P, L> {
    timing: AgentTiming,
    processes: P,
    take_part: L,
    /// The lock, while the agent takes part in the election.
    lock: Option<Lock>,
    /// The last news of the lock's keeper.
    told: LockUpdate,
    requests: Requests,
    /// The requesters of a yield that wait for an answer.
    asked: Vec<oneshot::Sender<bool>>,
}

/// Runs the command while the lock is held. Returns the exit code to pass on. `take_part` begins to keep the lock.
pub async fn live<P: Processes, L: FnMut() -> Lock + Send>(
    timing: AgentTiming,
    processes: P,
    mut take_part: L,
    requests: Requests,
) -> u8 {
    let (lock, told) = (Some(take_part()), LockUpdate::default());
    Life { timing, processes, take_part, lock, told, requests, asked: vec![] }.run(Agent::new(timing)).await
}

impl<P: Processes, L: FnMut() -> Lock + Send> Life<P, L> {
    async fn run(mut self, mut agent: Agent) -> u8 {
        let mut events = vec![];
        loop {
            // Time comes before all other news, because this process may have been stopped.
            events.insert(0, AgentEvent::Tick);
            let mut next = vec![];
            for event in events.drain(..) {
                let actions = agent.observe(event, monotonic());
                self.publish(&agent);
                for action in actions {
                    if let AgentAction::Exit(code) = action {
                        return code;
                    }
                    self.act(action, &mut next).await;
                }
            }
            for asked in self.asked.drain(..) {
                let _ = asked.send(agent.is_yielding());
            }
            events = next;
            if events.is_empty() {
                self.hear(&agent, &mut events).await;
            }
        }
    }

    async fn act(&mut self, action: AgentAction, events: &mut Vec<AgentEvent>) {
        match action {
            AgentAction::Guard(until) => self.processes.guard(until),
            AgentAction::Start { term, until } => {
                if let Err(error) = self.processes.start(term, until) {
                    tracing::error!(%error, "the command can't be started: is /proc mounted?");
                    events.extend([AgentEvent::Ended(NOT_STARTED), AgentEvent::Gone]);
                }
            }
            AgentAction::Terminate => self.processes.terminate(),
            AgentAction::Kill => self.processes.kill(),
            AgentAction::Reacquire => {
                if let Some(lock) = &self.lock {
                    lock.acquire_again();
                }
            }
            AgentAction::Release => {
                self.release().await;
                events.push(AgentEvent::Released);
            }
            AgentAction::TakePart => {
                tracing::info!("taking part in the election again");
                self.lock = Some((self.take_part)());
            }
            AgentAction::Exit(_) => {}
        }
    }

    async fn release(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        lock.release(self.timing.ttl).await;
        self.told = LockUpdate::default();
    }

    /// Waits for an event, or for a reason to check the processes.
    async fn hear(&mut self, agent: &Agent, events: &mut Vec<AgentEvent>) {
        let now = monotonic();
        let wait = agent.wake_at(now).map_or(Duration::MAX, |at| at.since(now));
        tokio::select! {
            biased;
            heard = self.processes.hear() => events.extend(heard),
            update = next(&mut self.lock) => if let Some(update) = update {
                report(&self.told, &update);
                events.push(AgentEvent::Lock(update.held));
                self.told = update;
            } else {
                // The task has ended without being asked to.
                self.lock = None;
                events.extend([AgentEvent::Lock(None), AgentEvent::Stop]);
            },
            Some(asked) = self.requests.yields.recv() => {
                self.asked.push(asked);
                events.push(AgentEvent::Yield);
            }
            () = nap(wait) => {}
        }
        events.extend(self.processes.look());
    }

    /// Publishes the agent's state to its clients.
    fn publish(&self, agent: &Agent) {
        let new = Condition { state: agent.state(), lock: self.told.clone() };
        self.requests.conditions.send_if_modified(|condition| {
            let differs = *condition != new;
            *condition = new;
            differs
        });
    }
}

/// Waits for news of the lock. `None`: its task has ended.
async fn next(lock: &mut Option<Lock>) -> Option<LockUpdate> {
    let Some(lock) = lock else { return std::future::pending().await };
    lock.changed().await
}

/// Logs the changes of the lock.
fn report(before: &LockUpdate, now: &LockUpdate) {
    let (had, has) = (before.held.map(|held| held.term), now.held.map(|held| held.term));
    if had.is_some() && has.is_none() {
        tracing::warn!("the lock is lost");
    }
    if let Some(problem @ (Problem::Taken { .. } | Problem::NotALock { .. })) =
        now.problem.as_ref().filter(|now| before.problem.as_ref() != Some(now))
    {
        tracing::warn!(problem = told(problem), "this agent can't get the lock");
    }
    let name = |update: &LockUpdate| update.other.as_ref().map(|other| other.name.clone());
    if name(now) != name(before) {
        match &now.other {
            Some(other) => tracing::info!(leader = other.name, "waiting for the lock"),
            None if has.is_none() => tracing::info!("the lock has no holder"),
            None => {}
        }
    }
}

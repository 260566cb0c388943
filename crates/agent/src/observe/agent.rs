//! An agent's own lock, for clients of the agent.
//!
//! An agent knows whether it holds the lock, and until when, so the answer "leader" never lasts longer. About other leaders the agent has
//! only news.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use lictor_core::{AgentState, Instant, Term, Timestamp, Version};
use lictor_locks::Other;
use lictor_process::wall;
use tokio::sync::watch;

use super::Role;
use super::heard::{Fact, Heard, Leader};
use super::server::PATHS;
use crate::{Condition, Handle, Name, with_requests};

/// An agent that does not hold the lock knows this until it acquires the lock itself.
const FOR_EVER: Instant = Instant::after_origin(Duration::MAX);

/// Follows an agent until the agent ends. `own` describes the agent as the leader.
pub fn hear_agent(handle: &Handle, own: Leader) -> BoxStream<'static, Heard> {
    let mut conditions = handle.conditions();
    conditions.mark_changed();
    let ear = Ear { conditions, own, led: None, version: Version::default() };
    unfold(ear, |mut ear| async move {
        ear.conditions.changed().await.ok()?;
        Some((ear.next(), ear))
    })
    .boxed()
}

/// Adds the agent's own answers to the router of an observer.
pub fn with_agent(router: Router, name: Name, handle: Handle) -> Router {
    let paths = format!("{PATHS}, /state (of the agent), and POST /yield\n");
    let absent = move || std::future::ready((StatusCode::NOT_FOUND, paths.clone()));
    with_requests(router.fallback(absent), name, handle)
}

struct Ear {
    conditions: watch::Receiver<Condition>,
    own: Leader,
    /// The term in which the agent leads, and since when.
    led: Option<(Term, Timestamp)>,
    /// Counts the news.
    version: Version,
}

impl Ear {
    fn next(&mut self) -> Heard {
        let condition = self.conditions.borrow_and_update().clone();
        self.version.0 += 1;
        let (version, fact) = (self.version, self.fact(&condition));
        match condition.lock.heard {
            Some(sent) => Heard::Confirmed { sent, version, fact },
            None => Heard::Changed { version, fact },
        }
    }

    fn fact(&mut self, condition: &Condition) -> Fact {
        Fact { note: condition.problem(), ..self.leads(condition) }
    }

    fn leads(&mut self, condition: &Condition) -> Fact {
        match (condition.state, condition.lock.held, &condition.lock.other) {
            // Before and after that, the command must not act, even if the lock is held.
            (AgentState::Leading, Some(held), _) => {
                let (term, since) = *self.led.filter(|(term, _)| *term == held.term).get_or_insert((held.term, wall()));
                self.led = Some((term, since));
                Fact {
                    role: Role::Leader,
                    leader: Some(self.own.clone()),
                    term: Some(term.0),
                    since: Some(since),
                    until: Some(held.until),
                    ..Fact::default()
                }
            }
            (AgentState::Waiting, None, Some(other)) => Fact {
                role: Role::Follower,
                leader: Some(leader(other)),
                term: other.term.map(|term| term.0),
                since: other.since,
                until: Some(FOR_EVER),
                ..Fact::default()
            },
            _ => Fact { role: Role::Follower, until: Some(FOR_EVER), ..Fact::default() },
        }
    }
}

fn leader(other: &Other) -> Leader {
    let Other { name, node, address, .. } = other.clone();
    Leader { name, node, address, ..Leader::default() }
}

#[cfg(test)]
mod tests {
    use lictor_core::HeldLock;

    use super::*;
    use lictor_locks::LockUpdate;

    fn heard(state: AgentState, held: bool, other: bool) -> (Role, Option<String>, Option<Instant>) {
        let (_conditions, conditions) = watch::channel(Condition::default());
        let own = Leader { name: "one".into(), ..Leader::default() };
        let mut ear = Ear { conditions, own, led: None, version: Version::default() };
        let until = Instant::after_origin(Duration::from_secs(8));
        let held = held.then_some(HeldLock { term: Term(7), from: Instant::default(), until });
        let other = other.then(|| Other::named("two".into()));
        let fact = ear.fact(&Condition { state, lock: LockUpdate { held, other, ..LockUpdate::default() } });
        (fact.role, fact.leader.map(|leader| leader.name), fact.until)
    }

    #[test]
    fn it_leads_while_its_command_runs_under_its_lock_and_in_no_other_state() {
        let until = Instant::after_origin(Duration::from_secs(8));
        assert_eq!(heard(AgentState::Leading, true, false), (Role::Leader, Some("one".into()), Some(until)));
        for (state, held) in [
            (AgentState::Leading, false),
            (AgentState::Waiting, false),
            // The earlier holder may still rely on the lock, or another term is wanted.
            (AgentState::Waiting, true),
            (AgentState::Ending, true),
            (AgentState::Releasing, true),
            (AgentState::Away(until), false),
            (AgentState::Ended, false),
        ] {
            assert_eq!(heard(state, held, false), (Role::Follower, None, Some(FOR_EVER)), "{state:?}");
        }
        assert_eq!(heard(AgentState::Waiting, false, true).1.as_deref(), Some("two"));
    }
}

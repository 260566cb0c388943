//! How time goes on, and what must hold at any time.

use std::time::Duration;

use lictor_core::{Term, invariants};
use stateright::Model;

use super::{Action, Cluster, Clusters, Faults, State, end, lags, runs};
use crate::member::{Input, TTL};
use crate::rules::Rule;

impl Clusters {
    pub(super) fn judge_term(state: &mut State, term: Term) {
        // The same leader may be shown anew.
        if state.promoted != Some(term) && !invariants::term_rises(state.promoted, term) {
            state.broken = Some("a term does not rise".into());
        }
        state.promoted = Some(term);
    }

    pub(super) fn judge(state: &mut State) {
        let leads = |cluster: &Cluster| cluster.world.leaders().next().is_some() || runs(cluster);
        if !invariants::at_most_one(state.clusters.iter().map(leads)) {
            state.broken = Some("there is a leader in both clusters".into());
        }
        let within = state.clusters.iter().find_map(|cluster| cluster.world.broken.clone());
        state.broken = state.broken.take().or(within);
    }

    pub(super) fn tick(&self, state: &mut State, but: Option<usize>) {
        state.now += 1;
        // What has not reached an API server by now, never will.
        let late = self.lacks(Rule::PromptOrNever);
        state.requests.retain(|request| late || request.sent.awaited || request.sent.to_store());
        for number in 0..2 {
            let now = state.now;
            let cluster = &mut state.clusters[number];
            if cluster.ends.is_some_and(|ends| ends <= now) {
                end(cluster);
            }
            if cluster.member.is_some() {
                let length = if but == Some(number) { Duration::ZERO } else { self.tick };
                self.give(state, number, &Input::Time(length));
            } else if cluster.returns <= now {
                self.begin(state, number);
            }
        }
    }

    /// Whether time may go on: what has to be done in time, is done.
    pub(super) fn is_due(&self, state: &State) -> bool {
        let sessions = state.store.sessions.iter().flatten();
        sessions.clone().all(|session| state.now < session.renewed + self.ticks(2 * TTL))
            && (0..2).all(|number| {
                let cluster = &state.clusters[number];
                cluster.member.is_none() || !cluster.reachable || !lags(state, number)
            })
            && state.requests.iter().all(|request| {
                let limit = if request.sent.answer.is_some() { 3 } else { self.delay };
                !request.sent.awaited
                    || (request.sent.promotes() && state.now < request.at + self.queue)
                    || (request.sent.to_store() && state.now < request.at + limit)
            })
    }

    fn leads(&self, state: &State) -> usize {
        let leads = |cluster: &&Cluster| {
            if self.workload { runs(cluster) } else { cluster.world.leaders().next().is_some() }
        };
        state.clusters.iter().filter(leads).count()
    }

    /// Nothing goes wrong any more: in the end there is one leader.
    pub(super) fn calms_down(&self, state: &State) -> bool {
        let mut state = State { left: Faults::default(), ..state.clone() };
        let end = state.now + 2 * self.ticks(2 * TTL) + self.ticks(self.returns);
        let mut actions = Vec::new();
        while state.now < end {
            actions.clear();
            self.actions(&state, &mut actions);
            let turn = |action: &&Action| match action {
                Action::Mended(_) | Action::Ready(_) => 0,
                Action::Ticks => 2,
                Action::Lost(_) | Action::Expires(_) => 3,
                _ => 1,
            };
            let Some(next) = actions.iter().min_by_key(turn).and_then(|action| self.next_state(&state, *action)) else {
                return false;
            };
            state = next;
        }
        self.leads(&state) == 1
    }
}

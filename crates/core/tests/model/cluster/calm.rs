//! What becomes of a group when nothing goes wrong any more.

use lictor_core::Pod;
use stateright::Model;

use super::{Action, Cluster, Faults, State, lags, lags_slice};
use crate::operator::holder;

impl Cluster {
    pub(super) fn is_quiet(&self, state: &State) -> bool {
        state.requests.is_empty()
            && state.world.all().all(|pod| !pod.deleting || pod.ended)
            && (0..2).all(|number| {
                let operator = &state.operators[number];
                operator.awake
                    && operator.due().is_none()
                    && operator.seen == state.world.record.0
                    && !lags_slice(state, number)
                    && (0..self.pods).all(|slot| !lags(state, number, slot))
            })
    }

    pub(super) fn is_led(state: &State) -> bool {
        let eligible = state.world.all().any(|pod| pod.ready);
        let leaders: Vec<&Pod> = state.world.leaders().collect();
        let named = state.world.record.1.record().and_then(holder);
        let reached: Option<Vec<_>> = state
            .world
            .slice
            .as_ref()
            .map(|slice| slice.content.endpoints.iter().map(|endpoint| &endpoint.uid).collect());
        if reached.is_some_and(|reached| reached != leaders.iter().map(|pod| &pod.uid).collect::<Vec<_>>()) {
            return false;
        }
        if eligible {
            leaders.len() == 1 && leaders[0].ready && named == Some(&leaders[0].uid)
        } else {
            leaders.is_empty()
        }
    }

    /// Nothing goes wrong any more: what is late arrives, and the operators act one after the other, as their claim has it.
    pub(super) fn calms_down(&self, state: &State) -> bool {
        let mut state = State { left: Faults::default(), ..state.clone() };
        let mut actions = Vec::new();
        for _ in 0..200 {
            if self.is_quiet(&state) {
                return Self::is_led(&state);
            }
            actions.clear();
            self.actions(&state, &mut actions);
            let turn = |action: &&Action| match **action {
                Action::CarriedOut(at) | Action::Answered(at) if state.requests[at].awaited => {
                    state.requests[at].operator + 1
                }
                Action::SeesPod(operator, _)
                | Action::SeesRecord(operator)
                | Action::SeesSlice(operator)
                | Action::Wakes(operator) => operator + 1,
                _ => 0,
            };
            let Some(next) = actions.iter().min_by_key(turn).and_then(|action| self.next_state(&state, *action)) else {
                return false;
            };
            state = next;
        }
        false
    }
}

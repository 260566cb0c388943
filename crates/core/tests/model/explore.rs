//! Explores a model, and tells what was found.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::rules::{COUNTED, Counted, Seen};

/// A model that can tell of itself.
pub trait Told: Model {
    /// Whether all its histories are short. Then it is explored depth first, which needs little memory.
    const SHORT: bool;
    /// Its bounds.
    fn bounds(&self) -> String;
    fn seen(&self) -> &Seen;
    /// What an action does in a state, as a line.
    fn describe(&self, before: &Self::State, action: &Self::Action) -> String;
}

/// Looks at all states, and fails with the history of a broken promise.
pub fn prove<M>(name: &str, model: M, reaches: &[Counted])
where
    M: Told + Clone + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + PartialEq + Send + Sync,
{
    let begun = Instant::now();
    let bounds = model.bounds();
    let told = model.clone();
    let builder = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker: Box<dyn Checker<M>> =
        if M::SHORT { Box::new(builder.spawn_dfs().join()) } else { Box::new(builder.spawn_bfs().join()) };
    let counted: Vec<String> = COUNTED
        .iter()
        .filter(|(what, _)| told.seen().get(*what) > 0)
        .map(|(what, words)| format!("{} {words}", told.seen().get(*what)))
        .collect();
    println!(
        "{name}: {bounds}: {} states, {} transitions, depth {}, {:.1?}; {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed(),
        counted.join(", ")
    );
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        panic!("{name}: it does not hold that {property}:\n{}", history(&told, &path.into_vec()));
    }
    for what in reaches {
        assert!(told.seen().get(*what) > 0, "{name}: never reached: {}", COUNTED[*what as usize].1);
    }
}

/// The shortest history in which a promise is broken, if there is one within the bounds.
pub fn counterexample<M>(name: &str, model: M) -> Option<String>
where
    M: Told + Clone + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + PartialEq + Send + Sync,
{
    let begun = Instant::now();
    let told = model.clone();
    // Breadth first, and one after the other: what is found first, is shortest.
    let checker = model.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries().into_values().next().map(|path| history(&told, &path.into_vec()));
    let verdict = if found.is_some() { "broken" } else { "kept" };
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}, {}: {verdict}; {states} states, depth {depth}, {:.1?}", told.bounds(), begun.elapsed());
    if let Some(history) = &found {
        println!("{history}");
    }
    found
}

fn history<M: Told>(model: &M, path: &[(M::State, Option<M::Action>)]) -> String {
    let lines = path.iter().filter_map(|(state, action)| Some(model.describe(state, action.as_ref()?)));
    lines.map(|line| format!("    {}", line.replace('\n', "\n    "))).collect::<Vec<_>>().join("\n")
}

/// How operators react to what comes to them, as far as it was worked out: the core is pure, and most orders of events bring the same
/// to the same.
pub struct Memo<R>([Mutex<HashMap<(u64, u64), R>>; 32]);

impl<R> Default for Memo<R> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<R: Clone> Memo<R> {
    /// How much is kept of it, in each part.
    const KEPT: usize = 3_000;

    pub fn get(&self, key: (u64, u64), work: impl FnOnce() -> R) -> R {
        #[allow(clippy::cast_possible_truncation, reason = "which part does not matter")]
        let part = &self.0[(key.0 ^ key.1) as usize % self.0.len()];
        if let Some(known) = part.lock().expect("nobody panics here").get(&key) {
            return known.clone();
        }
        let reaction = work();
        let mut known = part.lock().expect("nobody panics here");
        if known.len() >= Self::KEPT {
            known.clear();
        }
        known.insert(key, reaction.clone());
        reaction
    }
}

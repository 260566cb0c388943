//! New elections that wait until there is room for their requests. Pure.
//!
//! When an operator starts, thousands may be new. Each that has begun holds memory until it is led, and the API server takes only so
//! many requests at a time. So the others begin when the requests of those before them have been answered. A namespace whose requests
//! hang keeps only its own elections waiting.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::names::{ElectionName, Namespace};

/// A look at what waits tries so many namespaces, however many there are.
const TRIES: usize = 64;

/// The elections that wait.
#[derive(Default)]
pub(super) struct Beginnings {
    all: BTreeSet<ElectionName>,
    /// By namespace, the first that came first.
    waiting: HashMap<Namespace, VecDeque<ElectionName>>,
    /// The namespaces, whose turn is next first.
    ring: VecDeque<Namespace>,
}

impl Beginnings {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// An election waits, behind those that do already.
    pub(super) fn wait(&mut self, election: ElectionName) {
        if !self.all.insert(election.clone()) {
            return;
        }
        let waiting = self.waiting.entry(election.namespace.clone()).or_default();
        if waiting.is_empty() {
            self.ring.push_back(election.namespace.clone());
        }
        waiting.push_back(election);
    }

    /// Takes at most so many for which there is room. The namespaces take turns.
    pub(super) fn take(&mut self, at_most: usize, has_room: impl Fn(&ElectionName) -> bool) -> Vec<ElectionName> {
        let mut taken = Vec::new();
        for _ in 0..TRIES.min(self.ring.len()) {
            if taken.len() == at_most {
                break;
            }
            let Some(namespace) = self.ring.pop_front() else { break };
            let Some(waiting) = self.waiting.get_mut(&namespace) else { continue };
            if let Some(election) = waiting.pop_front() {
                if has_room(&election) {
                    self.all.remove(&election);
                    taken.push(election);
                } else {
                    // Others of its namespace may have their locks in a store that answers.
                    waiting.push_back(election);
                }
            }
            if waiting.is_empty() {
                self.waiting.remove(&namespace);
            } else {
                self.ring.push_back(namespace);
            }
        }
        taken
    }

    /// None waits any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(elections: &[ElectionName]) -> Vec<String> {
        elections.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn namespaces_take_turns_and_one_without_room_holds_up_no_other() {
        let mut beginnings = Beginnings::default();
        for namespace in ["a", "b", "hangs"] {
            for name in ["x", "y", "x"] {
                beginnings.wait(Namespace::from(namespace).election(name));
            }
        }
        assert_eq!(beginnings.len(), 6, "each once");
        let answers = |election: &ElectionName| election.namespace != Namespace::from("hangs");
        assert_eq!(names(&beginnings.take(1, answers)), ["a/x"]);
        assert_eq!(names(&beginnings.take(9, answers)), ["b/x", "a/y"]);
        assert_eq!(names(&beginnings.take(9, answers)), ["b/y"]);
        assert_eq!((beginnings.take(9, answers).len(), beginnings.len(), beginnings.ring.len()), (0, 2, 1));
        assert_eq!(beginnings.take(9, |_| true).len() + beginnings.take(9, |_| true).len(), 2);
        assert!(beginnings.len() == 0 && beginnings.waiting.is_empty() && beginnings.ring.is_empty());
    }

    #[test]
    fn within_a_namespace_one_without_room_holds_up_no_other() {
        let mut beginnings = Beginnings::default();
        for name in ["in-a-store-that-hangs", "y"] {
            beginnings.wait(Namespace::from("a").election(name));
        }
        let taken = (0..2).flat_map(|_| beginnings.take(9, |election| election.name == "y")).collect::<Vec<_>>();
        assert_eq!(names(&taken), ["a/y"]);
    }
}

//! The elections to decide, in order.
//!
//! Each is decided once, however often it was marked. Urgent elections go first, but those that can wait still get a quarter of the turns.
//! Within each kind, the first marked comes first, so that an election that changes all the time does not hold up the others.

use std::collections::{HashMap, VecDeque};

use crate::controller::names::ElectionName;

/// The elections to decide.
#[derive(Default)]
pub(crate) struct Dirty {
    /// Each marked election, and whether it is urgent.
    marked: HashMap<ElectionName, bool>,
    /// The elections in the order of their marks. An election that has become urgent is in both queues.
    urgent: VecDeque<ElectionName>,
    later: VecDeque<ElectionName>,
}

impl Dirty {
    /// The number of elections to decide.
    pub(crate) fn len(&self) -> usize {
        self.marked.len()
    }

    /// Marks an election.
    pub(crate) fn mark(&mut self, election: ElectionName) {
        if !self.marked.contains_key(&election) {
            self.marked.insert(election.clone(), false);
            self.later.push_back(election);
        }
    }

    /// Marks an election as urgent, so that it goes before those that can wait.
    pub(crate) fn mark_urgent(&mut self, election: ElectionName) {
        if self.marked.insert(election.clone(), true) != Some(true) {
            self.urgent.push_back(election);
        }
    }

    /// Takes this many elections at most.
    pub(crate) fn take(&mut self, at_most: usize) -> Vec<ElectionName> {
        let mut taken = Vec::new();
        let later = self.marked.len().saturating_sub(self.urgent.len()).min(at_most / 4);
        while taken.len() < at_most - later
            && let Some(election) = self.urgent.pop_front()
        {
            self.marked.remove(&election);
            taken.push(election);
        }
        while taken.len() < at_most
            && let Some(election) = self.later.pop_front()
        {
            // The election may have become urgent since.
            if self.marked.get(&election) == Some(&false) {
                self.marked.remove(&election);
                taken.push(election);
            }
        }
        taken
    }
}

impl Extend<ElectionName> for Dirty {
    fn extend<T: IntoIterator<Item = ElectionName>>(&mut self, elections: T) {
        for election in elections {
            self.mark(election);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::names::Namespace;

    fn name(name: &str) -> ElectionName {
        Namespace::from("shop").election(name)
    }

    fn take(dirty: &mut Dirty, at_most: usize) -> Vec<String> {
        dirty.take(at_most).into_iter().map(|election| election.name).collect()
    }

    #[test]
    fn the_first_that_was_marked_comes_first_and_once() {
        let mut dirty = Dirty::default();
        dirty.extend(["c", "a", "b", "a", "c"].map(name));
        assert_eq!((dirty.len(), take(&mut dirty, 2)), (3, vec!["c".into(), "a".into()]));
        // An election that changes all the time comes after those that were there before.
        dirty.mark(name("a"));
        assert_eq!(take(&mut dirty, 9), ["b", "a"]);
        assert_eq!((dirty.len(), take(&mut dirty, 9).len()), (0, 0));
    }

    #[test]
    fn what_is_urgent_comes_first_and_the_others_get_a_quarter_of_the_turns() {
        let mut dirty = Dirty::default();
        dirty.extend((0..6).map(|number| name(&format!("later-{number}"))));
        for number in 0..6 {
            dirty.mark_urgent(name(&format!("urgent-{number}")));
        }
        dirty.mark_urgent(name("later-1"));
        dirty.mark(name("urgent-3"));
        assert_eq!(take(&mut dirty, 4), ["urgent-0", "urgent-1", "urgent-2", "later-0"]);
        assert_eq!(take(&mut dirty, 4), ["urgent-3", "urgent-4", "urgent-5", "later-2"]);
        assert_eq!(take(&mut dirty, 9), ["later-1", "later-3", "later-4", "later-5"]);
        assert_eq!(dirty.len(), 0);
        // The election was taken as urgent, and is marked again.
        dirty.mark(name("x"));
        dirty.mark_urgent(name("x"));
        assert_eq!(take(&mut dirty, 1), ["x"]);
        dirty.mark(name("x"));
        assert_eq!((take(&mut dirty, 9), dirty.len()), (vec!["x".into()], 0));
    }
}

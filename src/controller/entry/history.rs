//! The reported history of one election: its last changes of leader, and counters that only this process keeps.

use std::collections::BTreeSet;

use lictor_api::HistoryEntry;
use lictor_core::Uid;

/// How many changes of leader a status lists.
const REMEMBERED: usize = 10;

/// The reported history of an election.
#[derive(Default)]
pub(crate) struct History {
    transitions: u64,
    label_drift: u64,
    /// The changes of leader, the newest first. `None` means those of the status, until this process adds one.
    told: Option<Vec<HistoryEntry>>,
    /// Pods whose defective annotation was reported already.
    defects: BTreeSet<Uid>,
}

impl History {
    /// How often the leader has changed.
    pub(crate) fn transitions(&self) -> u64 {
        self.transitions
    }

    /// How often another writer changed labels.
    pub(crate) fn label_drift(&self) -> u64 {
        self.label_drift
    }

    /// The changes of leader that the status should list; `None` if those that it lists already.
    pub(crate) fn told(&self) -> Option<&[HistoryEntry]> {
        self.told.as_deref()
    }

    /// Adds a change of leader. `before`: the changes that the status lists.
    pub(crate) fn add(&mut self, change: HistoryEntry, before: impl FnOnce() -> Vec<HistoryEntry>) {
        self.transitions += 1;
        let told = self.told.get_or_insert_with(before);
        told.reserve_exact(1);
        told.insert(0, change);
        told.truncate(REMEMBERED);
    }

    /// Counts that another writer changed labels.
    pub(crate) fn count_drift(&mut self) {
        self.label_drift += 1;
    }

    /// Takes the pods whose annotation is defective now. Returns those whose annotation was not.
    pub(crate) fn renew_defects(&mut self, defective: BTreeSet<Uid>) -> BTreeSet<Uid> {
        let new = defective.difference(&self.defects).cloned().collect();
        self.defects = defective;
        new
    }

    /// The status has the changes that count, because another replica may add to it.
    pub(crate) fn forget(&mut self) {
        self.told = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_goes_on_from_what_the_status_tells() {
        let change = |term| HistoryEntry { term, ..HistoryEntry::default() };
        let terms =
            |history: &History| history.told().map(|told| told.iter().map(|change| change.term).collect::<Vec<_>>());
        let mut history = History::default();
        assert_eq!(terms(&history), None);
        history.add(change(3), || vec![change(2), change(1)]);
        history.add(change(4), || unreachable!("it is known"));
        assert_eq!(terms(&history), Some(vec![4, 3, 2, 1]));
        for term in 5..20 {
            history.add(change(term), Vec::new);
        }
        assert_eq!(terms(&history), Some((10..20).rev().collect()));
        history.forget();
        assert_eq!((terms(&history), history.transitions()), (None, 17));
    }

    #[test]
    fn a_defect_is_told_again_only_if_it_was_put_right() {
        let pods = |uids: &[&str]| uids.iter().map(|uid| Uid((*uid).into())).collect::<BTreeSet<_>>();
        let mut history = History::default();
        assert_eq!(history.renew_defects(pods(&["a"])), pods(&["a"]));
        assert_eq!(history.renew_defects(pods(&["a", "b"])), pods(&["b"]));
        assert_eq!(history.renew_defects(pods(&["b"])), pods(&[]));
        assert_eq!(history.renew_defects(pods(&["a", "b"])), pods(&["a"]));
    }
}

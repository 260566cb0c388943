//! Locks that an election has under other keys than its present one.

use std::collections::BTreeMap;

use crate::handover::is_emptied;
use crate::{Key, RecordOutcome, Stored, Version};

/// The operator's knowledge of these locks beyond what the store's watch shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Strays {
    /// Locks that a fresh listing has shown, though the watch may not have yet.
    listed: BTreeMap<Key, Stored>,
    /// Locks that this operator has emptied or deleted.
    cleared: BTreeMap<Key, Cleared>,
}

#[derive(Clone, Copy, Debug)]
struct Cleared {
    replaced: Version,
    /// The version that the lock has since, or `None` if it was deleted.
    made: Option<Version>,
}

impl Strays {
    /// Takes the locks that a fresh listing has shown.
    pub(super) fn find(&mut self, locks: Vec<(Key, Stored)>) {
        self.listed.extend(locks);
    }

    /// All locks under other keys than `key`: those that the watch shows, and those that a listing has shown since.
    pub(super) fn beside(&mut self, key: &Key, shown: &[(Key, Stored)]) -> Vec<(Key, Stored)> {
        self.listed.retain(|other, listed| {
            let newer = |stray: &Stored| stray.version() >= listed.version();
            other != key && !shown.iter().any(|(shown, stray)| shown == other && newer(stray))
        });
        let listed = self.listed.iter().map(|(key, stored)| (key.clone(), stored.clone()));
        shown.iter().filter(|(key, _)| !self.listed.contains_key(key)).cloned().chain(listed).collect()
    }

    /// Forgets a cleared lock when the watch shows that it is cleared.
    pub(super) fn retain(&mut self, shown: &[(Key, Stored)]) {
        self.cleared.retain(|key, cleared| {
            let still = |stray: &Stored| {
                let older = |version| cleared.made.map_or(version <= cleared.replaced, |made| version < made);
                stray.version().is_some_and(older)
            };
            shown.iter().any(|(other, stray)| other == key && still(stray))
        });
    }

    /// The version that a lock has now, and whether it is emptied. `None` if it is deleted, or can't be.
    pub(super) fn state(&self, key: &Key, stray: &Stored, generation: i64) -> Option<(Version, bool)> {
        match self.cleared.get(key) {
            // The watch has not brought the operator's own write yet.
            Some(Cleared { made, .. }) => made.map(|made| (made, true)),
            None => Some((stray.version()?, is_emptied(stray, generation))),
        }
    }

    /// Takes the outcome of the emptying or deletion of a lock.
    pub(super) fn take(&mut self, key: Key, replaced: Version, outcome: &RecordOutcome) {
        let written = match outcome {
            RecordOutcome::Written(version) => Some(*version),
            RecordOutcome::Conflict | RecordOutcome::Delayed | RecordOutcome::Failed(_) => None,
        };
        let made = written.filter(|version| *version != replaced);
        if made.is_none() {
            // The listing is outdated now, whatever the outcome.
            self.listed.remove(&key);
        }
        if written.is_some() {
            self.cleared.insert(key, Cleared { replaced, made });
        }
    }
}

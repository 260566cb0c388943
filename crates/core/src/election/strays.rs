//! Locks that an election has under other keys than its present one.

use std::collections::BTreeMap;

use crate::handover::is_emptied;
use crate::{Key, RecordOutcome, Stored, Version};

/// What is known of them beyond what the store's watch shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Strays {
    /// Those that a fresh listing has shown, and the watch perhaps not yet.
    listed: BTreeMap<Key, Stored>,
    /// Those that were emptied or deleted here.
    cleared: BTreeMap<Key, Cleared>,
}

#[derive(Clone, Copy, Debug)]
struct Cleared {
    replaced: Version,
    /// The version that the lock has since; none: it was deleted.
    made: Option<Version>,
}

impl Strays {
    /// A fresh listing has shown these.
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

    /// Forgets what was cleared where the watch shows that.
    pub(super) fn retain(&mut self, shown: &[(Key, Stored)]) {
        self.cleared.retain(|key, cleared| {
            let still = |stray: &Stored| {
                let older = |version| cleared.made.map_or(version <= cleared.replaced, |made| version < made);
                stray.version().is_some_and(older)
            };
            shown.iter().any(|(other, stray)| other == key && still(stray))
        });
    }

    /// The version that a lock has now, and whether it is emptied; none: it is deleted, or can't be.
    pub(super) fn state(&self, key: &Key, stray: &Stored, generation: i64) -> Option<(Version, bool)> {
        match self.cleared.get(key) {
            // What was written here, the watch has not brought yet.
            Some(Cleared { made, .. }) => made.map(|made| (made, true)),
            None => Some((stray.version()?, is_emptied(stray, generation))),
        }
    }

    /// Takes what became of a lock that was to be emptied or deleted.
    pub(super) fn take(&mut self, key: Key, replaced: Version, outcome: &RecordOutcome) {
        let written = match outcome {
            RecordOutcome::Written(version) => Some(*version),
            RecordOutcome::Conflict | RecordOutcome::Delayed | RecordOutcome::Failed(_) => None,
        };
        let made = written.filter(|version| *version != replaced);
        if made.is_none() {
            // What a listing has shown is of the past now, whatever the outcome.
            self.listed.remove(&key);
        }
        if written.is_some() {
            self.cleared.insert(key, Cleared { replaced, made });
        }
    }
}

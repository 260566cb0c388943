//! Which elections name a lock as theirs: several, if all but one have to be refused.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::Key;

use crate::controller::names::ElectionName;

/// The elections that name each lock.
#[derive(Default)]
pub(crate) struct Naming(BTreeMap<Key, BTreeSet<ElectionName>>);

impl Naming {
    /// The elections that name a lock.
    pub(crate) fn of(&self, key: &Key) -> impl Iterator<Item = &ElectionName> {
        self.0.get(key).into_iter().flatten()
    }

    /// An election names another lock from now on.
    pub(crate) fn rename(&mut self, election: &ElectionName, before: Option<&Key>, after: Option<&Key>) {
        if let Some(key) = before
            && let Some(naming) = self.0.get_mut(key)
        {
            naming.remove(election);
            if naming.is_empty() {
                self.0.remove(key);
            }
        }
        if let Some(key) = after {
            self.0.entry(key.clone()).or_default().insert(election.clone());
        }
    }
}

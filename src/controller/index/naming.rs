//! Which elections have to do with a lock: those that name it as theirs, of which all but one are refused, or those that are decided by it.

use std::collections::HashMap;

use lictor_core::{Few, Key};

use crate::controller::names::ElectionName;

/// The elections of each lock.
#[derive(Default)]
pub(crate) struct Naming(HashMap<Key, Few<ElectionName>>);

impl Naming {
    /// The elections of a lock.
    pub(crate) fn of(&self, key: &Key) -> impl Iterator<Item = &ElectionName> {
        self.0.get(key).into_iter().flatten()
    }

    /// An election has another lock from now on.
    pub(crate) fn rename(&mut self, election: &ElectionName, before: Option<&Key>, after: Option<&Key>) {
        if before == after {
            return;
        }
        if let Some(key) = before
            && let Some(naming) = self.0.get_mut(key)
        {
            naming.remove(election);
            if naming.is_empty() {
                self.0.remove(key);
            }
        }
        if let Some(key) = after {
            self.0.entry(key.clone()).or_default().insert(election);
        }
    }
}

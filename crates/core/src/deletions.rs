//! Objects that are gone, so that an answer that is older than the deletion does not bring one back.

use std::collections::{BTreeMap, VecDeque};

use crate::{Uid, Version};

/// The number of deletions that are remembered: no answer is late by more of them.
const REMEMBERED: usize = 4096;

/// The last objects that were deleted, and the versions as of which they are gone.
#[derive(Clone, Debug, Default)]
pub struct Deletions {
    at: BTreeMap<Uid, Version>,
    order: VecDeque<Uid>,
}

impl Deletions {
    /// Notes that an object is gone as of a version.
    pub fn note(&mut self, uid: &Uid, version: Version) {
        if let Some(known) = self.at.get_mut(uid) {
            *known = version.max(*known);
            return;
        }
        self.at.insert(uid.clone(), version);
        self.order.push_back(uid.clone());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.at.remove(&oldest);
        }
    }

    /// Returns whether an object at this version is gone since.
    pub fn cover(&self, uid: &Uid, version: Version) -> bool {
        self.at.get(uid).is_some_and(|gone| version <= *gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_newer_than_the_deletion_is_there_and_the_oldest_deletion_is_forgotten_first() {
        let mut deletions = Deletions::default();
        let uid = |number: usize| Uid(number.to_string());
        for number in 0..=REMEMBERED {
            deletions.note(&uid(number), Version(10));
        }
        assert!(!deletions.cover(&uid(0), Version(9)));
        assert!(deletions.cover(&uid(1), Version(10)) && !deletions.cover(&uid(1), Version(11)));
        deletions.note(&uid(1), Version(12));
        deletions.note(&uid(1), Version(11));
        assert!(deletions.cover(&uid(1), Version(12)));
        assert_eq!(deletions.at.len(), REMEMBERED);
    }
}

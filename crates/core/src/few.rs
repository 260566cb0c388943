//! Sets in as little memory as can be.

use std::borrow::Borrow;

/// Names of pods or elections.
pub type Names = Few<String>;

/// A set. There are several for each pod and each election, and most have one element, or a few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Few<T>(Vec<T>);

impl<T: Ord> Few<T> {
    /// Puts something in. Returns whether it was not there.
    pub fn insert<Q>(&mut self, item: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Ord + ToOwned<Owned = T> + ?Sized,
    {
        let Err(at) = self.find(item) else { return false };
        if self.0.len() < EXACT {
            self.0.reserve_exact(1);
        }
        self.0.insert(at, item.to_owned());
        true
    }

    /// Takes something out. Returns whether it was there.
    pub fn remove<Q>(&mut self, item: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let found = self.find(item);
        if let Ok(at) = found {
            self.0.remove(at);
        }
        found.is_ok()
    }

    /// Whether something is there.
    pub fn contains<Q>(&self, item: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.find(item).is_ok()
    }

    fn find<Q>(&self, item: &Q) -> Result<usize, usize>
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.0.binary_search_by(|known| known.borrow().cmp(item))
    }
}

impl<T> Few<T> {
    /// All, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

/// So many take no more memory than they need.
const EXACT: usize = 4;

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items: Vec<T> = items.into_iter().collect();
        items.sort_unstable();
        items.dedup();
        items.shrink_to_fit();
        Self(items)
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(first in proptest::collection::vec("[a-e]", 0..6), changes in proptest::collection::vec(("[a-e]", any::<bool>()), 0..30)) {
            let mut set: BTreeSet<String> = first.iter().cloned().collect();
            let mut names: Names = first.into_iter().collect();
            for (name, is) in changes {
                prop_assert_eq!(names.contains(&name), set.contains(&name));
                if is {
                    prop_assert_eq!(names.insert(&name), set.insert(name));
                } else {
                    prop_assert_eq!(names.remove(&name), set.remove(&name));
                }
                prop_assert!(names.iter().eq(&set) && (names.len(), names.is_empty()) == (set.len(), set.is_empty()));
            }
        }
    }
}

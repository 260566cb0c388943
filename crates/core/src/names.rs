//! Names of pods or elections, in as little memory as can be.

/// A set of names. There are several for each pod and each election, and most have one or a few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// Puts a name in. Returns whether it was not there.
    pub fn insert(&mut self, name: &str) -> bool {
        let Err(at) = self.find(name) else { return false };
        if self.0.len() < FEW {
            self.0.reserve_exact(1);
        }
        self.0.insert(at, name.into());
        true
    }

    /// Takes a name out. Returns whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let found = self.find(name);
        if let Ok(at) = found {
            self.0.remove(at);
        }
        found.is_ok()
    }

    /// Whether a name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// All names, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, String> {
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

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|known| known.as_str().cmp(name))
    }
}

/// So many take no more memory than they need.
const FEW: usize = 4;

impl FromIterator<String> for Names {
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> Self {
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        names.shrink_to_fit();
        Self(names)
    }
}

impl IntoIterator for Names {
    type Item = String;
    type IntoIter = std::vec::IntoIter<String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Names {
    type Item = &'a String;
    type IntoIter = std::slice::Iter<'a, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
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

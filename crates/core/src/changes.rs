//! Changes of names with values, in as little memory as possible, because each waiting write to a pod has some.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Pairs;

/// A merge patch of a [`Pairs`], in the order of its names: a name gets a value, or is removed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Changes(Pairs);

/// A prefix of each value, so that an empty value is not taken for a removed name.
const SET: char = '=';

impl Changes {
    /// The change of a name: `None` leaves it as it is, `Some(None)` removes it.
    pub fn get(&self, name: &str) -> Option<Option<&str>> {
        self.0.get(name).map(|value| value.strip_prefix(SET))
    }

    /// Whether a name changes.
    pub fn contains_key(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All names that change, in order, each with its value, or `None` if it is removed.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name, value.strip_prefix(SET)))
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes a map.
    pub fn apply(&self, to: &mut Pairs) {
        let kept = to.iter().filter(|(name, _)| !self.contains_key(name));
        *to = kept.chain(self.iter().filter_map(|(name, value)| Some((name, value?)))).collect();
    }

    /// Gives a name a value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.extend([(name, Some(value))]);
    }

    /// Leaves a name as it is.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0 = self.iter().filter(|(known, _)| *known != name).collect::<Self>().0;
    }

    /// Takes a name off.
    pub fn take_off(&mut self, name: &str) {
        self.extend([(name, None)]);
    }
}

fn packed<'a>((name, value): (&'a str, Option<&str>)) -> (&'a str, String) {
    (name, value.map_or_else(String::new, |value| format!("{SET}{value}")))
}

impl<'a> FromIterator<(&'a str, Option<&'a str>)> for Changes {
    fn from_iter<T: IntoIterator<Item = (&'a str, Option<&'a str>)>>(changes: T) -> Self {
        Self(changes.into_iter().map(packed).collect())
    }
}

impl<'a> Extend<(&'a str, Option<&'a str>)> for Changes {
    /// If a name has several changes, the last one counts.
    fn extend<T: IntoIterator<Item = (&'a str, Option<&'a str>)>>(&mut self, changes: T) {
        self.0.extend(changes.into_iter().map(packed));
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Changes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_merge_patch(
            before in proptest::collection::btree_map("[a-c]{0,2}", "[=x]{0,2}", 0..6),
            first in proptest::collection::vec(("[a-c]{0,2}", proptest::option::of("[=x]{0,2}")), 0..6),
            then in proptest::collection::vec(("[a-c]{0,2}", proptest::option::of("[=x]{0,2}")), 0..6),
        ) {
            let mut changes: Changes = first.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
            changes.extend(then.iter().map(|(name, value)| (name.as_str(), value.as_deref())));
            let map: BTreeMap<&str, Option<&str>> =
                first.iter().chain(&then).map(|(name, value)| (name.as_str(), value.as_deref())).collect();
            prop_assert!(changes.iter().eq(map.iter().map(|(name, value)| (*name, *value))));
            prop_assert_eq!(changes.is_empty(), map.is_empty());
            for name in ["", "a", "b", "cc"] {
                prop_assert_eq!(changes.get(name), map.get(name).copied());
                prop_assert_eq!(changes.contains_key(name), map.contains_key(name));
            }
            prop_assert_eq!(serde_json::to_value(&changes).unwrap(), serde_json::to_value(&map).unwrap());
            let mut pairs = Pairs::from(before.clone());
            changes.apply(&mut pairs);
            let mut patched = before;
            for (name, value) in map {
                match value {
                    Some(value) => drop(patched.insert(name.into(), value.into())),
                    None => drop(patched.remove(name)),
                }
            }
            prop_assert_eq!(pairs, Pairs::from(patched));
        }
    }
}

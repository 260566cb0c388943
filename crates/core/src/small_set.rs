//! Sets and maps in as little memory as possible.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::iter::FusedIterator;
use std::slice;

/// Names of pods or elections.
pub type Names = SmallSet<String>;

/// A set. Each pod and each election has several, and most have one element, or a few. A large set is stored in another way, so that a
/// change of it costs as little.
#[derive(Clone, Debug)]
pub struct SmallSet<T>(Kind<T>);

#[derive(Clone, Debug)]
enum Kind<T> {
    /// In order.
    Small(Vec<T>),
    #[expect(clippy::box_collection, reason = "without the box, each small set would take 8 bytes more")]
    Large(Box<BTreeSet<T>>),
}

/// All elements of a set, in order.
#[derive(Clone, Debug)]
pub enum Iter<'a, T> {
    /// The elements of a small set.
    Small(slice::Iter<'a, T>),
    /// The elements of a large set.
    Large(btree_set::Iter<'a, T>),
}

/// Gives back the memory of an empty map. The map itself would keep room for eleven elements, and each election has some maps that hold
/// something only for a moment.
pub fn give_back<K, V>(map: &mut BTreeMap<K, V>) {
    if map.is_empty() {
        *map = BTreeMap::new();
    }
}

/// Sets up to this size take no more memory than they need.
const EXACT: usize = 4;
/// A set with more elements than this is a large one, until it has half as many.
const MOST: usize = 64;

impl<T: Ord> SmallSet<T> {
    /// Inserts an element. Returns whether it is new.
    pub fn insert<Q>(&mut self, item: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Ord + ToOwned<Owned = T> + ?Sized,
    {
        match &mut self.0 {
            Kind::Small(items) => {
                let Err(at) = find(items, item) else { return false };
                if items.len() < EXACT {
                    items.reserve_exact(1);
                }
                items.insert(at, item.to_owned());
                if items.len() > MOST {
                    self.0 = Kind::Large(Box::new(std::mem::take(items).into_iter().collect()));
                }
                true
            }
            Kind::Large(items) => !items.contains(item) && items.insert(item.to_owned()),
        }
    }

    /// Removes an element. Returns whether it was there.
    pub fn remove<Q>(&mut self, item: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match &mut self.0 {
            Kind::Small(items) => {
                let found = find(items, item);
                if let Ok(at) = found {
                    items.remove(at);
                }
                found.is_ok()
            }
            Kind::Large(items) => {
                let was = items.remove(item);
                if items.len() <= MOST / 2 {
                    self.0 = Kind::Small(std::mem::take(&mut **items).into_iter().collect());
                }
                was
            }
        }
    }

    /// Whether the set contains an element.
    pub fn contains<Q>(&self, item: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match &self.0 {
            Kind::Small(items) => find(items, item).is_ok(),
            Kind::Large(items) => items.contains(item),
        }
    }
}

fn find<T, Q>(items: &[T], item: &Q) -> Result<usize, usize>
where
    T: Borrow<Q>,
    Q: Ord + ?Sized,
{
    items.binary_search_by(|known| known.borrow().cmp(item))
}

impl<T> SmallSet<T> {
    /// All elements, in order.
    pub fn iter(&self) -> Iter<'_, T> {
        match &self.0 {
            Kind::Small(items) => Iter::Small(items.iter()),
            Kind::Large(items) => Iter::Large(items.iter()),
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Small(items) => items.len(),
            Kind::Large(items) => items.len(),
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self(Kind::Small(Vec::new()))
    }
}

impl<T: PartialEq> PartialEq for SmallSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for SmallSet<T> {}

impl<T: Ord> FromIterator<T> for SmallSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items: Vec<T> = items.into_iter().collect();
        items.sort_unstable();
        items.dedup();
        if items.len() > MOST {
            return Self(Kind::Large(Box::new(items.into_iter().collect())));
        }
        items.shrink_to_fit();
        Self(Kind::Small(items))
    }
}

impl<'a, T> IntoIterator for &'a SmallSet<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        match self {
            Self::Small(items) => items.next(),
            Self::Large(items) => items.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Small(items) => items.size_hint(),
            Self::Large(items) => items.size_hint(),
        }
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<T> FusedIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Of a few names at first, and then of so many that the kind of set changes there and back.
        #[test]
        fn it_is_a_set(
            first in proptest::collection::vec("[a-e]", 0..6),
            changes in proptest::collection::vec(("[a-e]", any::<bool>()), 0..30),
            many in proptest::collection::vec(0..150_u32, 0..200),
            fewer in proptest::collection::vec(0..150_u32, 0..600),
        ) {
            let mut set: BTreeSet<String> = first.iter().cloned().collect();
            let mut names: Names = first.into_iter().collect();
            let many = many.into_iter().map(|number| (number.to_string(), true));
            let fewer = fewer.into_iter().map(|number| (number.to_string(), false));
            for (name, is) in changes.into_iter().chain(many).chain(fewer) {
                prop_assert_eq!(names.contains(&name), set.contains(&name));
                if is {
                    prop_assert_eq!(names.insert(&name), set.insert(name));
                } else {
                    prop_assert_eq!(names.remove(&name), set.remove(&name));
                }
                prop_assert!(names.iter().eq(&set) && (names.len(), names.is_empty()) == (set.len(), set.is_empty()));
                prop_assert_eq!(names.iter().len(), set.len());
                prop_assert_eq!(&names, &set.iter().cloned().collect::<Names>());
            }
        }
    }

    #[test]
    fn a_change_of_a_large_set_moves_no_others() {
        let mut names = Names::default();
        for number in 0..=MOST {
            assert!(matches!(names.0, Kind::Small(_)), "{number}");
            names.insert(&number.to_string());
        }
        assert!(matches!(names.0, Kind::Large(_)));
        for number in 0..=MOST / 2 {
            assert!(matches!(names.0, Kind::Large(_)), "{number}");
            names.remove(&number.to_string());
        }
        assert!(matches!(names.0, Kind::Small(_)));
        assert_eq!(size_of::<Names>(), size_of::<Vec<String>>());
    }
}

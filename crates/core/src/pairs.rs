//! Names with values, such as labels, in as little memory as possible, because each pod of a cluster has some.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map of texts, in the order of its names. All texts are in one piece of memory, each after its length, so a map is read from its start
/// and written as a whole when it changes.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Pairs(Box<str>);

impl Pairs {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Whether a name has a value.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All pairs, in the order of their names.
    pub fn iter(&self) -> Iter<'_> {
        Iter(&self.0)
    }

    /// All names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Gives a name a value. Returns its former value.
    pub fn insert(&mut self, name: String, value: String) -> Option<String> {
        let before = self.get(&name).map(str::to_owned);
        self.extend([(name, value)]);
        before
    }

    /// Removes a name. Returns its value.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let value = self.get(name)?.to_owned();
        *self = self.iter().filter(|(key, _)| *key != name).collect();
        Some(value)
    }
}

/// The pairs of a map.
#[derive(Clone)]
pub struct Iter<'a>(&'a str);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.text()?, self.text()?))
    }
}

impl<'a> Iter<'a> {
    fn text(&mut self) -> Option<&'a str> {
        let mut length = 0;
        for (at, byte) in self.0.bytes().enumerate() {
            length = (length << DIGIT) | usize::from(byte & MOST);
            if byte & MORE == 0 {
                let (text, rest) = self.0[at + 1..].split_at(length);
                self.0 = rest;
                return Some(text);
            }
        }
        None
    }
}

/// The number of bits in a digit of a length. The highest digit comes first, and each is a character of ASCII.
const DIGIT: u32 = 6;
const MOST: u8 = (1 << DIGIT) - 1;
/// The mark of a digit that another one follows.
const MORE: u8 = 1 << DIGIT;

fn push(packed: &mut String, text: &str) {
    let digits = (usize::BITS - text.len().leading_zeros()).div_ceil(DIGIT).max(1);
    for digit in (0..digits).rev() {
        let more = if digit > 0 { MORE } else { 0 };
        let bits = (text.len() >> (digit * DIGIT)) & usize::from(MOST);
        packed.push(char::from(u8::try_from(bits).unwrap_or(MOST) | more));
    }
    packed.push_str(text);
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Pairs {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let mut pairs: Vec<(K, V)> = pairs.into_iter().collect();
        // If a name has several values, the last one counts.
        pairs.reverse();
        pairs.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        pairs.dedup_by(|(one, _), (other, _)| (*one).as_ref() == (*other).as_ref());
        let mut packed = String::new();
        for (name, value) in &pairs {
            push(&mut packed, name.as_ref());
            push(&mut packed, value.as_ref());
        }
        Self(packed.into())
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Extend<(K, V)> for Pairs {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, pairs: T) {
        let more: Vec<(K, V)> = pairs.into_iter().collect();
        *self = self.iter().chain(more.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))).collect();
    }
}

impl<'a> IntoIterator for &'a Pairs {
    type Item = (&'a str, &'a str);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<const N: usize> From<[(String, String); N]> for Pairs {
    fn from(pairs: [(String, String); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl From<BTreeMap<String, String>> for Pairs {
    fn from(map: BTreeMap<String, String>) -> Self {
        map.into_iter().collect()
    }
}

impl From<&Pairs> for BTreeMap<String, String> {
    fn from(pairs: &Pairs) -> Self {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }
}

impl Index<&str> for Pairs {
    type Output = str;

    #[allow(clippy::expect_used, reason = "as of other maps")]
    fn index(&self, name: &str) -> &str {
        self.get(name).expect("the name has a value")
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry::<String, String>()? {
            pairs.push(pair);
        }
        Ok(pairs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(
            pairs in proptest::collection::vec(("[a-c\u{0}é]{0,2}", ".{0,9}"), 0..8),
            long in 0_usize..9000,
            other in "[a-c]{0,2}",
        ) {
            let mut pairs = pairs;
            pairs.push(("long".into(), "x".repeat(long)));
            let mut map: BTreeMap<String, String> = pairs.iter().cloned().collect();
            let mut packed: Pairs = pairs.iter().map(|(name, value)| (name, value)).collect();
            let same = |packed: &Pairs, map: &BTreeMap<String, String>| {
                packed.iter().eq(map.iter().map(|(name, value)| (name.as_str(), value.as_str())))
                    && packed.get(&other) == map.get(&other).map(String::as_str)
                    && (packed.len(), packed.is_empty()) == (map.len(), map.is_empty())
                    && *packed == Pairs::from(map.clone())
            };
            prop_assert!(same(&packed, &map));
            packed.insert(other.clone(), "new".into());
            map.insert(other.clone(), "new".into());
            prop_assert!(same(&packed, &map));
            let json = serde_json::to_string(&packed).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&map).unwrap());
            prop_assert_eq!(&serde_json::from_str::<Pairs>(&json).unwrap(), &packed);
            packed.remove(&other);
            map.remove(&other);
            prop_assert!(same(&packed, &map));
        }
    }
}

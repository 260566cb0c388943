//! Sets and maps in little memory.

use std::collections::BTreeMap;

use litemap::LiteMap;

/// A set, as a sorted vector. Each pod and each election has several, and most have one element, or a few. A `BTreeSet` would have room
/// for eleven.
pub type SmallSet<T> = LiteMap<T, ()>;

/// Names of pods or elections.
pub type Names = SmallSet<String>;

/// Gives back the memory of an empty map. The map itself would keep room for eleven elements, and each election has some maps that hold
/// something only for a moment.
pub fn give_back<K, V>(map: &mut BTreeMap<K, V>) {
    if map.is_empty() {
        *map = BTreeMap::new();
    }
}

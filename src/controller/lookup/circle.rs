//! Circles of dependencies.

use std::collections::{BTreeMap, BTreeSet};

/// Everything that can be reached from a start in one step or more, each with its predecessor on a shortest way. `next` returns the ends
/// of one step.
fn ways<T: Clone + Ord>(start: &T, next: impl Fn(&T) -> BTreeSet<T>) -> BTreeMap<T, T> {
    let mut before: BTreeMap<T, T> = BTreeMap::new();
    let mut front = vec![start.clone()];
    while !front.is_empty() {
        let mut found = Vec::new();
        for here in front {
            for there in next(&here) {
                if !before.contains_key(&there) {
                    before.insert(there.clone(), here.clone());
                    found.push(there);
                }
            }
        }
        // The way on from the start is known.
        found.retain(|there| there != start);
        front = found;
    }
    before
}

/// Everything that can be reached from a start in one step or more, including the start if it is part of a circle.
pub(crate) fn reached<T: Clone + Ord>(start: &T, next: impl Fn(&T) -> BTreeSet<T>) -> BTreeSet<T> {
    ways(start, next).into_keys().collect()
}

/// A shortest circle through a start: its parts in order, the start first; `None` if there is none.
pub(crate) fn circle<T: Clone + Ord>(start: &T, next: impl Fn(&T) -> BTreeSet<T>) -> Option<Vec<T>> {
    let before = ways(start, next);
    let mut parts = vec![start.clone()];
    let mut last = before.get(start)?;
    while last != start {
        parts.push(last.clone());
        last = before.get(last)?;
    }
    parts[1..].reverse();
    Some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Graph = BTreeMap<u8, BTreeSet<u8>>;

    fn graph() -> impl Strategy<Value = Graph> {
        let edge = (0_u8..8, 0_u8..8);
        prop::collection::btree_set(edge, 0..16).prop_map(|edges| {
            let mut graph = Graph::new();
            for (from, to) in edges {
                graph.entry(from).or_default().insert(to);
            }
            graph
        })
    }

    fn step(graph: &Graph, from: u8) -> BTreeSet<u8> {
        graph.get(&from).cloned().unwrap_or_default()
    }

    /// Everything that can be reached in exactly this many steps.
    fn after(graph: &Graph, start: u8, steps: usize) -> BTreeSet<u8> {
        (0..steps).fold(BTreeSet::from([start]), |here, _| here.iter().flat_map(|one| step(graph, *one)).collect())
    }

    proptest! {
        #[test]
        fn a_circle_is_found_if_there_is_one_and_it_is_a_shortest_one(graph in graph(), start in 0_u8..8) {
            let next = |from: &u8| step(&graph, *from);
            let shortest = (1..=8).find(|steps| after(&graph, start, *steps).contains(&start));
            let found = circle(&start, next);
            prop_assert_eq!(found.as_ref().map(Vec::len), shortest);
            if let Some(parts) = found {
                let ring = parts.iter().zip(parts.iter().cycle().skip(1));
                prop_assert!(parts[0] == start && ring.clone().all(|(from, to)| next(from).contains(to)), "{parts:?}");
            }
            let all: BTreeSet<u8> = (1..=8).flat_map(|steps| after(&graph, start, steps)).collect();
            prop_assert_eq!(reached(&start, next), all);
        }

        /// Shows W11: the last election of each circle, in an order, is refused by this, and no other.
        #[test]
        fn without_the_last_of_each_circle_there_is_none_and_nobody_goes_who_is_in_none(graph in graph()) {
            let mut kept: BTreeSet<u8> = BTreeSet::new();
            for last in 0..8 {
                let next = |from: &u8| step(&graph, *from).into_iter().filter(|to| *to == last || kept.contains(to)).collect();
                let closes = circle(&last, next).is_some();
                prop_assert!(!closes || circle(&last, |from| step(&graph, *from)).is_some());
                if !closes {
                    kept.insert(last);
                }
            }
            let next = |from: &u8| step(&graph, *from).intersection(&kept).copied().collect();
            prop_assert!(kept.iter().all(|one| circle(one, next).is_none()), "{kept:?}");
        }
    }
}

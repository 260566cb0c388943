//! Judges how operators behave: they repeat nothing without a pause, and write no label that no election of theirs names.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::servers::api::Change;
use crate::users::{ACTIVE, ROLE};

/// How often operators may write to one pod in a second. Two replicas that act at once, and a controller that undoes all of it, come to
/// less than that, also where they follow a lock of the pods': docs/protocol.md, L1.
const WRITES: u64 = 40;
/// How often a replica may ask in a second for one thing that is denied.
const DENIED: u64 = 24;

/// A second, and how often something was done in it.
type Count = (u64, u64);

/// What was counted.
#[derive(Default)]
pub struct Manners {
    /// By cluster and pod.
    writes: BTreeMap<(usize, String), Count>,
    /// By replica, method and path.
    denied: BTreeMap<(String, String), Count>,
}

impl Manners {
    /// A pod is changed. Returns what is wrong.
    pub fn see_pod(&mut self, cluster: usize, change: &Change, now: u64) -> Option<String> {
        if change.by_hand {
            return None;
        }
        let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
        let name = after["metadata"]["name"].as_str().unwrap_or_default();
        if others(before) != others(after) {
            let labels = &before["metadata"]["labels"];
            return Some(format!("an operator has changed labels of {name} that no election writes: it had {labels}"));
        }
        let count = count(self.writes.entry((cluster, name.to_owned())).or_default(), now);
        (count > WRITES).then(|| format!("{name} is written to {count} times in a second"))
    }

    /// A request was denied. Returns what is wrong.
    pub fn see_denied(&mut self, replica: &str, method: &str, path: &str, now: u64) -> Option<String> {
        let key = (replica.to_owned(), format!("{method} {path}"));
        let count = count(self.denied.entry(key).or_default(), now);
        (count > DENIED).then(|| format!("{replica} asks for what is denied again and again: {method} {path}"))
    }
}

fn count((of, count): &mut Count, now: u64) -> u64 {
    let second = now / 1_000;
    (*of, *count) = if *of == second { (second, *count + 1) } else { (second, 1) };
    *count
}

/// The labels that no election writes.
fn others(pod: &Value) -> Map<String, Value> {
    let mut labels = pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.retain(|key, _| key != ROLE.0 && key != ACTIVE.0);
    labels
}

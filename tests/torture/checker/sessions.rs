//! Sessions in Consul: no failover between replicas of a cluster that lives loses one.

use std::collections::BTreeMap;

use super::super::faults::Kind;
use super::super::record::{Line, Millis, What};
use super::super::windows::{TTL, Windows};

/// How long before it is seen a session was destroyed by hand, at most.
const SEEN_WITHIN: Millis = 5_000;
/// How long before its end a session may have been renewed last: Consul keeps it for two TTLs, and a renewal may have been lost.
const UNRENEWED: Millis = 3 * TTL;

/// What was seen of sessions and of replicas.
#[derive(Default)]
pub struct Sessions {
    /// By cluster, in the order in which they were seen.
    living: BTreeMap<String, Vec<String>>,
    /// By cluster: when a person destroyed one last.
    by_hand: BTreeMap<String, Millis>,
    acts: BTreeMap<String, String>,
    /// How often another replica began to act.
    pub failovers: usize,
    /// How many sessions were made, and how many are lost.
    pub made: usize,
    pub lost: usize,
}

impl Sessions {
    /// Judges a line. Returns what is wrong.
    pub fn step(&mut self, line: &Line, windows: &Windows) -> Option<(String, String)> {
        match &line.what {
            What::Fault { fault, begins: true, .. } if fault.kind == Kind::SessionDestroyed => {
                self.by_hand.insert(fault.cluster().into(), line.at);
                None
            }
            What::Acts { cluster, replica } => {
                let before = self.acts.insert(cluster.clone(), replica.clone());
                self.failovers += usize::from(before.is_some_and(|before| before != *replica));
                None
            }
            What::Session { id, cluster, lives: true } => {
                self.made += 1;
                self.living.entry(cluster.clone()).or_default().push(id.clone());
                None
            }
            What::Session { id, cluster, lives: false } => {
                let living = self.living.entry(cluster.clone()).or_default();
                let first = living.first() == Some(id);
                living.retain(|other| other != id);
                // Of two that were made at one moment, the later one goes.
                if !first {
                    return None;
                }
                self.lost += 1;
                let by_hand = self.by_hand.get(cluster).is_some_and(|at| line.at <= at + SEEN_WITHIN);
                let kept = windows.keeps_sessions(cluster, line.at.saturating_sub(UNRENEWED), line.at);
                let text = || format!("the session {id} of {cluster} is lost, and its operators could renew it");
                (kept && !by_hand).then(|| (cluster.clone(), text()))
            }
            _ => None,
        }
    }
}

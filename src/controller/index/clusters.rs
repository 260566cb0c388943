//! What is known of other clusters: the locks that they hold, and their remarks.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{Instant, Key, Rival};

use crate::controller::entry::ToldElsewhere;
use crate::controller::names::{ElectionName, Namespace};
use crate::store::{Elsewhere, Remark};

#[derive(Default)]
pub(crate) struct Clusters {
    /// Locks that other clusters hold, even if this replica does not know which sessions belong to its own cluster.
    pub(super) held: BTreeMap<Key, Rival>,
    /// The keys of these locks, by the name of the election there.
    led_at: BTreeMap<ElectionName, BTreeSet<Key>>,
    /// The remarks of clusters, by the lock's key.
    pub(super) remarks: BTreeMap<Key, Vec<Remark>>,
    /// C6: when such a lock vanished without its holder having released it.
    pub(super) vanished: BTreeMap<Key, Instant>,
}

impl Clusters {
    /// Takes what became of a lock that another cluster holds or held. Returns the elections there that led or lead by it.
    pub(super) fn hear(&mut self, key: Key, what: Elsewhere, now: Instant) -> [Option<ElectionName>; 2] {
        self.vanished.remove(&key);
        let before = self.held.remove(&key);
        let led = before.as_ref().and_then(named_in);
        if let Some(election) = &led
            && let Some(keys) = self.led_at.get_mut(election)
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.led_at.remove(election);
            }
        }
        let mut leads = None;
        match what {
            Elsewhere::Held(rival) => {
                leads = named_in(&rival);
                if let Some(election) = &leads {
                    self.led_at.entry(election.clone()).or_default().insert(key.clone());
                }
                self.held.insert(key, rival);
            }
            Elsewhere::LetGo => {}
            Elsewhere::Vanished => {
                if before.is_some_and(|rival| rival.may_lead()) {
                    self.vanished.insert(key, now);
                }
            }
        }
        [led, leads]
    }

    /// What clusters have told of an election with this lock. If another cluster leads by another key, both clusters lead.
    pub(super) fn told(&self, election: &ElectionName, key: Option<&Key>) -> ToldElsewhere<'_> {
        let other_key = key.and_then(|key| {
            let found = self.led_at.get(election)?.iter().find(|other| other.store == key.store && *other != key)?;
            Some((found, self.held.get(found)?))
        });
        let remarks = key.and_then(|key| self.remarks.get(key)).map_or(&[][..], Vec::as_slice);
        ToldElsewhere { other_key, remarks }
    }
}

/// The name of the election for which another cluster holds a lock.
fn named_in(rival: &Rival) -> Option<ElectionName> {
    let (namespace, name) = &rival.election;
    (!namespace.is_empty()).then(|| Namespace::from(namespace.as_str()).election(name))
}

//! Switchovers, by their election, which need not exist.

use std::collections::{BTreeMap, BTreeSet};

use lictor_api::Switchover;
use lictor_core::{Names, Uid, Version};
use lictor_kubernetes::Change;

use super::objects::{Content, Objects, OfElection};
use super::pods::link;
use crate::controller::names::{ElectionName, Namespace, SwitchoverId};
use crate::controller::switchover::KnownSwitchover;

/// The part of the index that a change of a Switchover may touch.
pub(crate) struct Switchovers<'a>(pub(super) &'a mut Objects);

impl<'a> Switchovers<'a> {
    pub(crate) fn apply(&mut self, change: Change<(Version, Uid, Switchover)>) {
        match change {
            Change::Applied((version, uid, switchover)) => self.put(version, uid, switchover),
            Change::Deleted((version, uid, switchover)) => {
                self.remove(&id_of(&switchover, uid), version);
            }
            Change::All(scope, version, switchovers) => {
                let present: BTreeSet<&Uid> = switchovers.iter().map(|(_, uid, _)| uid).collect();
                let known =
                    self.0.covered(scope.into()).flat_map(|(_, content)| content.switchovers.values()).flatten();
                let gone = known.filter(|(_, known)| known.version() <= version && !present.contains(&known.id().uid));
                for id in gone.map(|(_, known)| known.id().clone()).collect::<Vec<_>>() {
                    self.remove(&id, version);
                }
                for (version, uid, switchover) in switchovers {
                    self.put(version, uid, switchover);
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    /// Puts a current Switchover in, from the watch or from the answer to a request. The newer one counts.
    pub(crate) fn put(&mut self, version: Version, uid: Uid, switchover: Switchover) {
        if self.0.deletions.cover(&uid, version) {
            return;
        }
        let id = id_of(&switchover, uid);
        let content = self.0.namespaces.entry(id.election.namespace.clone()).or_default();
        // An earlier Switchover of this name may have been about another election.
        let before = content
            .switched
            .get(&id.name)
            .into_iter()
            .flat_map(Names::keys)
            .filter(|election| **election != id.election.name);
        for election in before.cloned().collect::<Vec<_>>() {
            let known = content.switchovers.get(&election).and_then(|known| known.get(&id.name));
            if known.is_some_and(|known| known.version() < version) {
                drop_switchover(content, &election, &id.name);
            }
        }
        link(&mut content.switched, &id.name, &id.election.name, true);
        let known = content.switchovers.entry(id.election.name.clone()).or_default();
        match known.get_mut(&id.name) {
            Some(known) if known.version() >= version => return,
            Some(known) if known.id().uid == id.uid => known.renew(version, switchover),
            _ => {
                known.insert(id.name.clone(), KnownSwitchover::new(id.clone(), version, switchover));
            }
        }
        self.0.dirty.mark(id.election);
    }

    /// Removes a Switchover as of a version, unless the name belongs to another one by now.
    pub(crate) fn remove(&mut self, id: &SwitchoverId, version: Version) {
        self.0.deletions.note(&id.uid, version);
        let Some(content) = self.0.namespaces.get_mut(&id.election.namespace) else { return };
        let Some(known) = content.switchovers.get(&id.election.name) else { return };
        if known.get(&id.name).is_none_or(|known| known.id().uid != id.uid) {
            return;
        }
        drop_switchover(content, &id.election.name, &id.name);
        self.0.tidy(&id.election.namespace);
        self.0.dirty.mark(id.election.clone());
    }

    pub(crate) fn find(self, id: &SwitchoverId) -> Option<&'a mut KnownSwitchover> {
        self.of(&id.election)?.get_mut(&id.name).filter(|known| known.id().uid == id.uid)
    }

    /// The Switchovers of one election, whether or not it exists.
    pub(crate) fn of(self, election: &ElectionName) -> Option<&'a mut OfElection> {
        self.0.namespaces.get_mut(&election.namespace)?.switchovers.get_mut(&election.name)
    }

    /// Prepares for another replica that may act from now on.
    pub(super) fn stand_by(self) {
        let all = self.0.namespaces.values_mut().flat_map(|content| content.switchovers.values_mut());
        all.flat_map(BTreeMap::values_mut).for_each(KnownSwitchover::stand_by);
    }
}

/// Removes a Switchover from the ones that are about this election.
fn drop_switchover(content: &mut Content, election: &str, name: &str) {
    link(&mut content.switched, name, election, false);
    if let Some(known) = content.switchovers.get_mut(election) {
        known.remove(name);
        if known.is_empty() {
            content.switchovers.remove(election);
        }
    }
}

fn id_of(switchover: &Switchover, uid: Uid) -> SwitchoverId {
    let namespace = Namespace::from(switchover.metadata.namespace.clone().unwrap_or_default());
    let election = namespace.election(switchover.spec.election_name.clone());
    SwitchoverId { election, name: switchover.metadata.name.clone().unwrap_or_default(), uid }
}

//! The first step: whether an election has to give way to another election, or to the owner of a key that it would write.

use crate::controller::entry::Group;
use crate::controller::index::{ElectionContext, Index};
use crate::controller::names::ElectionName;

/// Finds an election, and checks whether an older one is in its way. Returns the election with its surroundings, and whether its
/// neighbours have to be decided again.
pub(crate) fn accept<'a>(index: &'a mut Index, election: &ElectionName) -> Option<(ElectionContext<'a>, bool)> {
    let conflicts = index.conflicts();
    let (conflict, standing) = (conflicts.refusal(election), conflicts.standing(election));
    let older = conflicts.older_on_service(election);
    let marked_by_others = conflicts.marked_by_others(election);
    let mut found = index.find(election)?;
    let ElectionContext { entry, around, locks, .. } = &mut found;
    let group = Group { members: &entry.members, pods: around.pods, marked_by_others };
    let in_use = entry.titles.look(&entry.object, &group, locks, &entry.workloads.claims().scopes);
    let neighbours_care = found.entry.object.give_way(conflict.or(in_use), standing);
    found.entry.routing.give_way(older);
    Some((found, neighbours_care))
}

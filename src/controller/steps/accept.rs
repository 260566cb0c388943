//! The first step: whether an election has to give way to another one, or to another owner of what it would write.

use crate::controller::index::{Found, Index};
use crate::controller::names::ElectionName;

/// Finds an election, and checks whether an older one is in its way. Returns the election with its surroundings, and whether its
/// neighbours have to be decided again.
pub(crate) fn accept<'a>(index: &'a mut Index, election: &ElectionName) -> Option<(Found<'a>, bool)> {
    let (conflict, standing) = (index.conflict(election), index.standing(election));
    let older = index.older_on_service(election);
    let mut found = index.find(election)?;
    let Found { entry, around, locks, .. } = &mut found;
    let in_use = entry.titles.look(&entry.object, &entry.members, around.pods, locks, &entry.workloads.claims().scopes);
    let neighbours_care = found.entry.object.give_way(conflict.or(in_use), standing);
    found.entry.routing.give_way(older);
    Some((found, neighbours_care))
}

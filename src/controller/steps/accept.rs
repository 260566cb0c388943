//! The first step: whether an election has to give way to another one.

use crate::controller::index::{Group, Index};
use crate::controller::names::ElectionName;

/// Finds an election, and looks whether an older one is in its way. Returns it with what is known around it, and whether its
/// neighbours have to be looked at, too.
pub(crate) fn accept<'a>(index: &'a mut Index, election: &ElectionName) -> Option<(Group<'a>, bool)> {
    let conflict = index.conflict(election);
    let group = index.group(election)?;
    let neighbours_care = group.entry.object.give_way(conflict);
    Some((group, neighbours_care))
}

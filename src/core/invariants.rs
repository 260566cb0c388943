//! What must never happen, as predicates. The tests of the core, the simulator and the tests on a real cluster use the same.

use super::{Markings, Pod, Term};

/// Never two: at most one pod shows the leader's label.
pub fn at_most_one_leader<'a>(pods: impl IntoIterator<Item = &'a Pod>, markings: &Markings) -> bool {
    pods.into_iter().filter(|pod| markings.shows_leader(pod)).count() <= 1
}

/// The fencing token only rises: whoever is made leader, has a higher term than every leader before.
pub fn term_rises(before: Option<Term>, now: Term) -> bool {
    before.is_none_or(|before| before < now)
}

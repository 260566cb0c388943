//! H9: the terms of an election only rise.

use super::lock::Lock;
use crate::identity::Identity;
use crate::marking::term_of;
use crate::view::View;
use crate::{Stored, Term};

/// The terms that were given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Terms {
    highest: Term,
    /// Leaders of terms below this one begin a new term, because the store was put back to an earlier state, and higher terms were given
    /// since.
    reached: Term,
}

impl Terms {
    /// The terms of an election that had reached this term before its store was put back.
    pub(super) fn that_had_reached(term: Term) -> Self {
        Self { highest: term, reached: term }
    }

    /// The highest term that was seen.
    pub(super) fn highest(self) -> Term {
        self.highest
    }

    /// Whether a term was given before the store was put back, so that higher ones may have been given since.
    pub(super) fn is_outdated(self, term: Term) -> bool {
        term < self.reached
    }

    /// The term of the next leadership: above all that were given, and not below `first`.
    pub(super) fn next(self, first: Term) -> Term {
        self.highest.next().max(first)
    }

    /// Notes a term that was surely given.
    pub(super) fn see(&mut self, term: Term) {
        self.highest = self.highest.max(term);
    }

    /// Notes a term that a person may have written by hand.
    pub(super) fn see_hint(&mut self, hint: Term) {
        self.highest = self.highest.raised_by_hint(hint);
    }

    /// Learns the highest term that the lock, the status and the pods show.
    pub(super) fn learn(&mut self, lock: &Lock, id: &Identity, view: &View) {
        let written = lock.stored().and_then(Stored::written);
        let recorded = written.map_or(Term::default(), |record| record.term);
        let mut sure = self.highest.max(recorded);
        // A lock that moves here from another store may have come too far for this one. The user has to know that.
        let only_source = sure == Term::default() && lock.stored().is_some() && !view.policy.shared;
        if view.status_term.is_credible(view.policy.shared) || only_source {
            sure = sure.max(view.status_term);
        }
        // The first term is known for sure, too, so a term a little above it is as credible as a term a little above the last one.
        let credible = |hint: Term| {
            let given = sure.raised_by_hint(hint);
            if view.first_term.raised_by_hint(hint) == hint { given.max(hint) } else { given }
        };
        let mut highest = sure;
        if let Some(Stored::Damaged(_, hint)) = lock.stored() {
            highest = highest.max(credible(*hint));
        }
        for pod in view.pods.iter().filter(|pod| id.wrote(pod)) {
            highest = highest.max(term_of(pod).map_or(highest, credible));
        }
        self.highest = highest;
    }
}

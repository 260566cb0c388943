//! What an election knows of its writes to pods.

use super::former::{FormerLeaders, deletion};
use super::lock::Lock;
use super::promotions::Promotions;
use super::routes::Routes;
use super::troubles::Troubles;
use super::upkeep::{Upkeep, Wanted};
use crate::identity::Identity;
use crate::step::Step;
use crate::view::View;
use crate::{Markings, Pod, Record, Scope, Stored, Term};

/// The writes to pods that are under way, may still be carried out, or failed.
#[derive(Clone, Debug, Default)]
pub(super) struct PodWrites {
    pub(super) upkeep: Upkeep,
    /// Promotions whose outcome is unknown.
    pub(super) promotions: Promotions,
    /// Former leaders that are to go.
    pub(super) former: FormerLeaders,
    /// Pods that the operator can't label.
    pub(super) troubles: Troubles,
}

impl PodWrites {
    /// Forgets pods that are gone, and promotions that can have no effect any more.
    pub(super) fn retain(&mut self, view: &View) {
        self.promotions.forget(self.upkeep.gone(), view.pods);
        self.upkeep.retain(view.pods);
        self.troubles.retain(view.generation, |uid| view.pods.iter().any(|pod| pod.uid == *uid));
    }

    /// Whether no write is under way, and none may still be carried out.
    pub(super) fn is_idle(&self) -> bool {
        self.upkeep.is_idle() && self.promotions.is_empty()
    }

    /// Corrects the marks on all pods but the leader. Returns whether nothing was left to do.
    pub(super) fn maintain(
        &mut self,
        stored: &Stored,
        leader: Option<&Pod>,
        lock: &Lock,
        term: Term,
        step: &mut Step,
    ) -> bool {
        let view = step.view;
        // While no candidate can be elected, the record may still be that of an earlier spec, or be under an earlier key.
        let records = view.strays.iter().map(|(_, stray)| stray).chain([stored]).filter_map(Stored::written);
        // H16: if a user has deleted the record, upkeep would remove the mark and leave the labels that this cluster noted.
        let noted = view.noted.unwrap_or_default();
        let scopes: Vec<&Scope> =
            records.flat_map(Record::scopes).chain(lock.scopes()).chain(noted).chain([view.scope]).collect();
        let former = scopes.iter().map(|scope| &scope.markings).filter(|old| **old != view.scope.markings);
        let former: Vec<Markings> = former.cloned().collect();
        let leads = leader.is_some_and(|leader| view.scope.markings.shows_leader(leader));
        // H16: where others can write the record, a process believes only what it wrote itself.
        let believed = !view.policy.shared || lock.is_fenced(stored.version());
        let deletion = deletion(leads, self.former.deleted_from, step).filter(|_| believed);
        let wanted =
            Wanted { stored, term, former: &former, scopes: &scopes, leader, deletion, demoted: self.former.demoted() };
        self.upkeep.maintain(&wanted, &mut self.promotions, &self.troubles, step)
    }

    /// Whether a pod shows a leader label or a slice a leader, or may do so because of a write whose outcome is unknown.
    pub(super) fn somebody_may_lead(&self, routes: &Routes, id: &Identity, view: &View) -> bool {
        shows_leader(view) || !self.promotions.is_empty() || routes.may_show(id, view)
    }
}

/// Whether a pod shows a leader label.
pub(super) fn shows_leader(view: &View) -> bool {
    view.pods.iter().any(|pod| view.scope.markings.shows_leader(pod))
}

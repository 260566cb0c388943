//! The election's lock as last known, and how far the operator trusts it.

use std::sync::Arc;

use crate::handover::Chain;
use crate::identity::Identity;
use crate::{Pod, Record, Scope, Stored, Uid, Version};

/// The lock, and how far the operator trusts its knowledge of it.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    /// The content of the lock, or `None` if it has to be read. It is the watch's own copy if that shows the same, because records are
    /// large.
    stored: Option<Arc<Stored>>,
    /// The newest version that was seen.
    newest: Version,
    /// The newest version when the lock was asked for, because the watch may bring something newer than the answer.
    asked_at: Version,
    trust: Trust,
    /// The record that this cluster held last. It names the leader at the time when the lock was lost.
    last: Option<Arc<Stored>>,
    /// The scopes of the records that were seen. They stay when a person deletes or edits a record.
    scopes: Vec<Scope>,
    /// The version that this operator began with: the writers of all versions up to it have ended.
    inherited: Version,
    /// Whether another replica of this cluster has written a record since, and may have more writes on their way. If no other cluster can
    /// lead, that does no harm.
    rivaled: bool,
    /// The version that this process wrote last, whose content is therefore true.
    own: Option<Version>,
    /// H16: the version whose record claims scopes that this cluster never noted.
    claims: Option<Version>,
}

/// The facts that the operator has made sure of for one version of the lock. For any other version it has to make sure again.
#[derive(Clone, Debug, Default)]
struct Trust {
    /// No other writer's request for a record up to this version can arrive late any more: see [`handover`](crate::handover).
    fenced: Option<Version>,
    /// The version of another writer's record after which its leader and this pod were read, or, with `None`, all pods were listed.
    verified: Option<(Version, Option<Uid>)>,
    /// The version of another election's record after which the operator asked the API server for the election.
    confirmed: Option<Version>,
}

impl Lock {
    /// A lock as the store's watch shows it, or `None` if it is not known.
    pub(super) fn new(stored: Option<(Version, Arc<Stored>)>) -> Self {
        let (newest, stored) = stored.map_or((Version::default(), None), |(at, stored)| (at, Some(stored)));
        let (trust, last, scopes) = Default::default();
        Self {
            stored,
            newest,
            asked_at: newest,
            trust,
            last,
            scopes,
            inherited: newest,
            rivaled: false,
            own: None,
            claims: None,
        }
    }

    pub(super) fn stored(&self) -> Option<&Stored> {
        self.stored.as_deref()
    }

    /// The same content, to be kept.
    pub(super) fn share(&self) -> Option<Arc<Stored>> {
        self.stored.clone()
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.stored.as_ref()?.version()
    }

    /// The record, if this cluster holds the lock.
    pub(super) fn record(&self) -> Option<&Record> {
        self.stored.as_ref()?.record()
    }

    /// The record that this cluster held last.
    pub(super) fn last(&self) -> Option<&Record> {
        self.last.as_ref()?.record()
    }

    /// The scopes of the records that were seen.
    pub(super) fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Whether a pod shows a leader label: that of this spec, or of one that a seen record was written under.
    pub(super) fn shows_leader(&self, pod: &Pod, scope: &Scope) -> bool {
        self.scopes.iter().chain([scope]).any(|scope| scope.markings.shows_leader(pod))
    }

    /// Whether the lock is known to be past a version that was written here, because another writer wrote or deleted it.
    pub(super) fn is_past(&self, version: Version) -> bool {
        self.version() != Some(version) && self.newest >= version
    }

    /// Takes the lock as the store's watch shows it, unless something newer is known.
    pub(super) fn observe(&mut self, at: Version, stored: Arc<Stored>) {
        if at > self.newest {
            (self.newest, self.stored) = (at, Some(stored));
        }
    }

    /// Notes that the lock is asked for now.
    pub(super) fn note_asked(&mut self) {
        self.asked_at = self.newest;
    }

    /// Takes the answer, unless the watch has brought something newer meanwhile. In that case the operator reads the lock once more.
    pub(super) fn take_read(&mut self, stored: Stored) {
        let version = stored.version();
        let older = version.is_none_or(|version| version < self.newest);
        if older && self.newest > self.asked_at {
            return;
        }
        if let Some(version) = version.filter(|_| older) {
            // The version that was known at the time of the request is gone: a person put the store back, or the store had hidden the lock.
            (self.newest, self.trust, self.own) = (version, Trust::default(), None);
        }
        self.newest = self.newest.max(version.unwrap_or_default());
        self.keep(stored);
    }

    /// Takes the content that a write has left. Returns whether it is still there: the watch may already show a later write.
    pub(super) fn take_written(&mut self, version: Version, stored: Stored) -> bool {
        let present = version >= self.newest;
        if present {
            self.newest = version;
            self.own = Some(version);
            self.keep(stored);
        }
        present
    }

    /// Takes the content. If the watch has shown the same before, its copy is kept, because it is shared.
    fn keep(&mut self, stored: Stored) {
        if self.stored() != Some(&stored) {
            self.stored = Some(Arc::new(stored));
        }
    }

    /// Notes that this version was deleted.
    pub(super) fn take_deleted(&mut self, version: Version) {
        self.newest = self.newest.max(version);
        self.stored = Some(Arc::new(Stored::Absent));
    }

    /// Forgets the content, so that it has to be read.
    pub(super) fn forget(&mut self) {
        self.stored = None;
    }

    /// Notes that another writer had the lock, or may have had it, so its writes may be on their way.
    pub(super) fn distrust(&mut self) {
        (self.trust.fenced, self.trust.verified) = (None, None);
    }

    /// Forgets which pod led here last, because another cluster leads now.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }

    /// H10: treats a record for a generation that never was as edited by hand.
    pub(super) fn disbelieve(&mut self) {
        self.stored = self.stored.take().map(|stored| Arc::new(Arc::unwrap_or_clone(stored).disbelieved()));
    }

    pub(super) fn is_fenced(&self, version: Option<Version>) -> bool {
        version.is_some() && self.trust.fenced == version
    }

    pub(super) fn fence(&mut self, version: Version) {
        self.trust.fenced = Some(version);
        self.rivaled = false;
    }

    /// Whose record has this version.
    pub(super) fn chain(&self, version: Option<Version>) -> Chain {
        match (self.is_fenced(version), self.rivaled) {
            (true, _) => Chain::Own,
            (false, true) => Chain::Rivals,
            (false, false) => Chain::Others,
        }
    }

    /// Whether another replica has replaced a record of this process by its own.
    pub(super) fn is_undone(&self, id: &Identity) -> bool {
        let written = self.stored.as_ref().and_then(|stored| stored.written());
        self.own.is_some()
            && !self.is_fenced(self.version())
            && written.is_some_and(|record| record.election == id.uid && record.operator_id != id.operator_id)
    }

    /// Whether the pods were looked at after this version of another writer's record, as far as a decision for this pod needs it.
    pub(super) fn is_verified(&self, version: Version, elected: Option<&Pod>) -> bool {
        match &self.trust.verified {
            Some((at, only)) if *at == version => {
                only.as_ref().is_none_or(|uid| elected.is_some_and(|pod| pod.uid == *uid))
            }
            _ => false,
        }
    }

    /// Whether the leader and one pod were read after this version.
    pub(super) fn is_partly_verified(&self, version: Version) -> bool {
        matches!(&self.trust.verified, Some((at, Some(_))) if *at == version)
    }

    /// Notes that the operator looked at the leader and this pod, or, with `None`, at all pods.
    pub(super) fn verify(&mut self, version: Version, only: Option<Uid>) {
        self.trust.verified = Some((version, only));
    }

    pub(super) fn is_confirmed(&self, version: Option<Version>) -> bool {
        version.is_some() && self.trust.confirmed == version
    }

    pub(super) fn confirm(&mut self, version: Version) {
        self.trust.confirmed = Some(version);
    }

    /// H16: takes off a record the scopes that it claims and this cluster has not noted, unless this process wrote it. For a record of a
    /// later generation, the operator does not know what was noted (H10).
    pub(super) fn believe(&mut self, noted: &[Scope], present: &Scope, generation: i64) {
        let version = self.version();
        let Some(stored) = self.stored.as_ref().filter(|_| self.own != version) else { return };
        let Some(record) = stored.written().filter(|record| record.generation <= generation) else { return };
        if record.claims_beyond(noted, present) {
            self.claims = version;
        }
        let sound = record.believed(noted, present);
        if sound != *record {
            self.stored = Some(Arc::new(stored.as_ref().clone().with_written(sound)));
        }
    }

    /// H16: whether the record claims scopes that this cluster never noted.
    pub(super) fn has_claims(&self) -> bool {
        self.claims.is_some() && self.claims == self.version()
    }

    /// Learns from the election's record which scopes are on pods. A tidied record says that nothing is left of earlier scopes.
    pub(super) fn learn(&mut self, id: &Identity, shared: bool) {
        let Some(record) = self.stored.as_ref().and_then(|stored| stored.record()) else { return };
        if record.election != id.uid {
            return;
        }
        self.rivaled |= shared && record.operator_id != id.operator_id && self.newest > self.inherited;
        self.last.clone_from(&self.stored);
        if !record.scopes().eq(&self.scopes) {
            self.scopes = record.scopes().cloned().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Term;

    fn damaged(version: u64) -> Stored {
        Stored::Damaged(Version(version), Term(1))
    }

    fn at(version: u64) -> Lock {
        Lock::new(Some((Version(version), damaged(version).into())))
    }

    #[test]
    fn an_answer_that_is_older_than_what_the_watch_brought_meanwhile_is_ignored() {
        let mut lock = at(5);
        lock.note_asked();
        lock.observe(Version(7), damaged(7).into());
        lock.take_read(damaged(6));
        assert_eq!(lock.version(), Some(Version(7)));
        lock.note_asked();
        lock.take_read(damaged(8));
        assert_eq!(lock.version(), Some(Version(8)));
    }

    #[test]
    fn a_store_that_was_put_back_takes_all_trust_along() {
        let mut lock = at(5);
        lock.fence(Version(5));
        lock.verify(Version(3), None);
        lock.confirm(Version(3));
        lock.note_asked();
        lock.take_read(damaged(3));
        assert_eq!(lock.version(), Some(Version(3)));
        assert!(!lock.is_fenced(Some(Version(5))) && !lock.is_verified(Version(3), None));
        assert!(!lock.is_confirmed(Some(Version(3))));
        lock.observe(Version(4), damaged(4).into());
        assert_eq!(lock.version(), Some(Version(4)), "versions count from there");
    }

    #[test]
    fn a_write_counts_unless_somebody_wrote_after_it() {
        let mut lock = at(5);
        assert!(lock.take_written(Version(6), damaged(6)));
        lock.observe(Version(9), Stored::Absent.into());
        assert!(!lock.take_written(Version(8), damaged(8)));
        assert_eq!(lock.stored(), Some(&Stored::Absent));
    }

    #[test]
    fn what_was_shown_before_the_answer_is_kept_once() {
        let (mut lock, shown) = (at(5), Arc::new(damaged(6)));
        lock.observe(Version(6), shown.clone());
        assert!(lock.take_written(Version(6), damaged(6)));
        lock.note_asked();
        lock.take_read(damaged(6));
        assert!(lock.share().is_some_and(|known| Arc::ptr_eq(&known, &shown)));
        assert!(lock.take_written(Version(7), damaged(7)));
        assert_eq!(lock.version(), Some(Version(7)), "something else takes its place");
    }

    #[test]
    fn a_lock_is_past_what_was_written_when_something_else_is_in_it() {
        let mut lock = at(5);
        assert!(!lock.is_past(Version(5)));
        lock.forget();
        assert!(lock.is_past(Version(5)) && !lock.is_past(Version(6)), "nothing is known of a later one");
    }

    #[test]
    fn nothing_is_known_beside_no_version() {
        let lock = Lock::new(None);
        assert!(!lock.is_fenced(None) && !lock.is_confirmed(None));
    }
}

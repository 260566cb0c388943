//! The election's lock as last known, and how far it is trusted.

use std::sync::Arc;

use crate::handover::Chain;
use crate::identity::Identity;
use crate::{Pod, Record, Scope, Stored, Uid, Version};

/// The lock, and how far what is known of it is trusted.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    /// What is in it; none: it has to be read. The watch's own, where that shows the same: records are large.
    stored: Option<Arc<Stored>>,
    /// The newest version that was seen.
    newest: Version,
    /// What was newest when the lock was asked for: the watch may have brought something newer than the answer.
    asked_at: Version,
    trust: Trust,
    /// The record that this cluster held last: who led when the lock was lost.
    last: Option<Arc<Stored>>,
    /// What was written under the records that were seen. A record that somebody deletes or edits does not take it along.
    scopes: Vec<Scope>,
    /// The version that this operator began with: who wrote up to it, has ended.
    inherited: Version,
    /// Whether another replica of this cluster has written a record since, and may have more on its way. Where no other cluster can
    /// lead, that does no harm.
    rivaled: bool,
    /// The version that this process wrote last: what is in it, is true.
    own: Option<Version>,
    /// H16: the version whose record claims what this cluster never noted.
    claims: Option<Version>,
}

/// What was made sure of for one version of the lock. For any other version it has to be made sure of again.
#[derive(Clone, Debug, Default)]
struct Trust {
    /// No write of anybody else for a record up to this version can arrive late any more: see [`handover`](crate::handover).
    fenced: Option<Version>,
    /// After this version of somebody else's record, its leader and this pod were read; none: all pods were listed.
    verified: Option<(Version, Option<Uid>)>,
    /// The API server was asked for the election after this version of another election's record.
    confirmed: Option<Version>,
}

impl Lock {
    /// A lock as the store's watch shows it; none: it is not known.
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

    /// The same, to be kept.
    pub(super) fn share(&self) -> Option<Arc<Stored>> {
        self.stored.clone()
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.stored.as_ref()?.version()
    }

    /// The record of whoever holds it here.
    pub(super) fn record(&self) -> Option<&Record> {
        self.stored.as_ref()?.record()
    }

    /// The record that this cluster held last.
    pub(super) fn last(&self) -> Option<&Record> {
        self.last.as_ref()?.record()
    }

    /// What was written under the records that were seen.
    pub(super) fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Whether a pod shows the leader's label, of this spec or of one that was written under.
    pub(super) fn shows_leader(&self, pod: &Pod, scope: &Scope) -> bool {
        self.scopes.iter().chain([scope]).any(|scope| scope.markings.shows_leader(pod))
    }

    /// Whether the lock is known to be past a version that was written here: somebody else wrote or deleted it.
    pub(super) fn is_past(&self, version: Version) -> bool {
        self.version() != Some(version) && self.newest >= version
    }

    /// Takes what the store's watch shows, unless something newer is known.
    pub(super) fn observe(&mut self, at: Version, stored: Arc<Stored>) {
        if at > self.newest {
            (self.newest, self.stored) = (at, Some(stored));
        }
    }

    /// Notes that the lock is asked for now.
    pub(super) fn note_asked(&mut self) {
        self.asked_at = self.newest;
    }

    /// Takes the answer, unless the watch has brought something newer meanwhile. Then it is read once more.
    pub(super) fn take_read(&mut self, stored: Stored) {
        let version = stored.version();
        let older = version.is_none_or(|version| version < self.newest);
        if older && self.newest > self.asked_at {
            return;
        }
        if let Some(version) = version.filter(|_| older) {
            // What was known when it was asked for is no more: somebody put the store back, or the store had hidden it.
            (self.newest, self.trust, self.own) = (version, Trust::default(), None);
        }
        self.newest = self.newest.max(version.unwrap_or_default());
        self.keep(stored);
    }

    /// Takes what a write has left. Returns whether it is still there: the watch may show already that somebody wrote after it.
    pub(super) fn take_written(&mut self, version: Version, stored: Stored) -> bool {
        let present = version >= self.newest;
        if present {
            self.newest = version;
            self.own = Some(version);
            self.keep(stored);
        }
        present
    }

    /// Takes what is in it. Where the watch has shown the same before, that is kept: it is shared.
    fn keep(&mut self, stored: Stored) {
        if self.stored() != Some(&stored) {
            self.stored = Some(Arc::new(stored));
        }
    }

    /// Takes that this version was deleted.
    pub(super) fn take_deleted(&mut self, version: Version) {
        self.newest = self.newest.max(version);
        self.stored = Some(Arc::new(Stored::Absent));
    }

    /// Forgets what is in it: it has to be read.
    pub(super) fn forget(&mut self) {
        self.stored = None;
    }

    /// Somebody else had the lock, or may have: their writes may be on their way.
    pub(super) fn distrust(&mut self) {
        (self.trust.fenced, self.trust.verified) = (None, None);
    }

    /// Forgets who led here last: another cluster leads now.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }

    /// H10: what was recorded for a generation that never was counts as edited by hand.
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

    /// Whether the pods were looked at after this version of somebody else's record, as far as it matters for a decision for this pod.
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

    /// Notes that the pods were looked at: the leader and this one; none: all of them.
    pub(super) fn verify(&mut self, version: Version, only: Option<Uid>) {
        self.trust.verified = Some((version, only));
    }

    pub(super) fn is_confirmed(&self, version: Option<Version>) -> bool {
        version.is_some() && self.trust.confirmed == version
    }

    pub(super) fn confirm(&mut self, version: Version) {
        self.trust.confirmed = Some(version);
    }

    /// H16: takes off a record what it claims to be on pods and this cluster has not noted, unless this process wrote it. Of a record
    /// for a later generation it is not known what was noted for that (H10).
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

    /// H16: whether the record claims what this cluster never noted.
    pub(super) fn has_claims(&self) -> bool {
        self.claims.is_some() && self.claims == self.version()
    }

    /// Learns from the record of this election what is written on pods. A tidied record says that nothing is left of what was written
    /// before.
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

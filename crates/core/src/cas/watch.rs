//! The sessions of the other clusters: which have ended, and which to end because nobody renews them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::object::{LockSession, ObjectTag, SessionObject};
use crate::Instant;

/// A session to end: its cluster, the tag of its object (`None`: create it), and the state that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEnd {
    /// The cluster whose session it is.
    pub cluster: String,
    /// The tag that the object must still have. `None`: there must be no object.
    pub expected: Option<ObjectTag>,
    /// The state that ends it.
    pub object: SessionObject,
}

/// The sessions of the other clusters, as last read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionWatch {
    cluster: String,
    installation: String,
    writer: String,
    ttl: Duration,
    seen: BTreeMap<String, Sight>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sight {
    tag: Option<ObjectTag>,
    /// The state, or `None` if there is no object, or if a person has written something else there.
    object: Option<SessionObject>,
    /// B2: when this state was first seen.
    since: Instant,
    /// How long to wait for another state.
    ttl: Duration,
    /// When to try again to end the session.
    not_before: Instant,
    /// Whether the object has another state by now, which was not read yet.
    superseded: bool,
}

impl Sight {
    fn has_ended(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.ended)
    }

    /// When the session may be ended.
    /// A state to count from comes first, where there is no session.
    fn late(&self) -> Instant {
        let wait = if self.object.is_none() { Duration::ZERO } else { self.ttl };
        (self.since + wait).max(self.not_before)
    }
}

impl SessionWatch {
    /// Creates the watch of a process of a cluster, whose own sessions have this TTL.
    pub fn new(cluster: &str, installation: &str, writer: &str, ttl: Duration) -> Self {
        let (cluster, installation) = (cluster.to_owned(), installation.to_owned());
        Self { cluster, installation, writer: writer.to_owned(), ttl, seen: BTreeMap::new() }
    }

    /// Takes the object of a cluster's session as it was read. The answer has come by `now`, so the state is at least as old as that. Reads have
    /// to be taken in the order in which they were sent, each after the answer to the one before.
    pub fn see(&mut self, cluster: &str, found: Option<(ObjectTag, Option<SessionObject>)>, now: Instant) {
        let (tag, object) = found.map_or((None, None), |(tag, object)| (Some(tag), object));
        let before = self.seen.get(cluster);
        if before.is_some_and(|before| before.tag == tag && !before.superseded) {
            return;
        }
        // The owner of a state that can't be read goes by the TTL that it wrote last.
        let ttl = object.as_ref().map(SessionObject::ttl).or(before.map(|before| before.ttl));
        let ttl = ttl.unwrap_or_default().max(self.ttl);
        self.seen
            .insert(cluster.to_owned(), Sight { tag, object, since: now, ttl, not_before: now, superseded: false });
    }

    /// Notes that this cluster has ended a session, under this new tag. The answer may come after a later state was read, which it does not
    /// replace.
    pub fn ended(&mut self, end: SessionEnd, tag: ObjectTag, now: Instant) {
        if self.seen.get(&end.cluster).is_some_and(|sight| sight.tag == end.expected) {
            self.see(&end.cluster, Some((tag, Some(end.object))), now);
        }
    }

    /// Notes that the session of a cluster has another state than expected. Its owner may renew it, so nothing ends it before it is seen again.
    /// Whatever is seen next is a later state, also if it looks the same.
    pub fn superseded(&mut self, end: &SessionEnd) {
        if let Some(sight) = self.seen.get_mut(&end.cluster).filter(|sight| sight.tag == end.expected) {
            sight.superseded = true;
        }
    }

    /// Waits until this moment before it ends the session of a cluster, because an attempt failed or its outcome is unknown.
    pub fn wait_again(&mut self, cluster: &str, until: Instant) {
        if let Some(sight) = self.seen.get_mut(cluster) {
            sight.not_before = until;
        }
    }

    /// Whether the session that holds a lock has ended. B4: the session's object must have been read after the lock's.
    pub fn is_over(&self, session: &LockSession) -> bool {
        let object = self.seen.get(&session.cluster).and_then(|sight| sight.object.as_ref());
        object.is_some_and(|object| object.shows_the_end_of(&session.id))
    }

    /// B3: the sessions that nobody has renewed for the whole of their TTL, which a cluster ends before it takes their locks; and at once those
    /// whose object a person has deleted or overwritten, which get a state to count from.
    pub fn late(&self, now: Instant) -> Vec<SessionEnd> {
        let late = self.seen.iter().filter(|(cluster, sight)| self.ends(cluster, sight) && sight.late() <= now);
        late.map(|(cluster, sight)| SessionEnd {
            cluster: cluster.clone(),
            expected: sight.tag.clone(),
            object: self.next(sight),
        })
        .collect()
    }

    fn next(&self, sight: &Sight) -> SessionObject {
        let number = u64::try_from(sight.since.since(Instant::default()).as_millis()).unwrap_or(u64::MAX);
        match &sight.object {
            None => SessionObject::vacant(&self.writer, number, sight.ttl),
            Some(object) => object.ended_by(&self.writer),
        }
    }

    /// When the next session is late.
    pub fn next_late(&self) -> Option<Instant> {
        self.seen.iter().filter(|(cluster, sight)| self.ends(cluster, sight)).map(|(_, sight)| sight.late()).min()
    }

    /// The clusters whose sessions were seen, in order, and whether each session may still be relied on.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, bool)> {
        self.seen.iter().map(|(cluster, sight)| (cluster.as_str(), !sight.has_ended()))
    }

    /// Whether the session of a cluster was seen.
    pub fn knows(&self, cluster: &str) -> bool {
        self.seen.contains_key(cluster)
    }

    /// Whether this process ends the session once it is late: it renews its own. One installation may have several clusters' names.
    fn ends(&self, cluster: &str, sight: &Sight) -> bool {
        let own = cluster == self.cluster
            && sight
                .object
                .as_ref()
                .is_none_or(|object| object.is_vacant() || object.installation == self.installation);
        !own && !sight.has_ended() && !sight.superseded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn watch() -> SessionWatch {
        SessionWatch::new("here", "h", "w", TTL)
    }

    fn object(installation: &str, id: &str, ttl: u64) -> SessionObject {
        let (id, installation, writer) = (id.to_owned(), installation.to_owned(), "x".to_owned());
        SessionObject { id, installation, writer, renewals: 1, ttl_milliseconds: ttl * 1000, ended: false }
    }

    fn found(tag: &str, object: SessionObject) -> (ObjectTag, Option<SessionObject>) {
        (tag.to_owned(), Some(object))
    }

    fn holder(id: &str) -> LockSession {
        LockSession { cluster: "there".into(), id: id.into() }
    }

    /// B2: the longer one of the two TTLs counts, from when a state was first seen.
    #[test]
    fn a_session_is_ended_when_no_other_state_was_seen_for_the_whole_ttl() {
        for (theirs, late) in [(5, 16), (15, 16), (60, 61)] {
            let mut watch = watch();
            watch.see("there", Some(found("1", object("t", "a", theirs))), at(1));
            watch.see("there", Some(found("1", object("t", "a", theirs))), at(9));
            assert_eq!(watch.next_late(), Some(at(late)), "{theirs}");
            assert_eq!(watch.late(at(late - 1)), []);
            let [end] = &watch.late(at(late))[..] else { panic!("it is late") };
            assert_eq!((end.cluster.as_str(), end.expected.as_deref()), ("there", Some("1")));
            assert!(end.object.ended && end.object.id == "a", "{end:?}");
            watch.see("there", Some(found("2", object("t", "a", theirs))), at(late));
            assert_eq!(watch.late(at(late)), [], "it was renewed");
        }
    }

    #[test]
    fn each_process_renews_its_own_session_and_ends_all_others() {
        for (cluster, installation, ends) in
            [("here", "h", false), ("here", "t", true), ("there", "t", true), ("there", "h", true)]
        {
            let mut watch = watch();
            watch.see(cluster, Some(found("1", object(installation, "a", 15))), at(0));
            assert_eq!(watch.late(at(15)).len(), usize::from(ends), "{cluster} {installation}");
            assert_eq!(watch.next_late().is_some(), ends, "{cluster} {installation}");
        }
    }

    /// B5: absence has no tag, and what a person writes twice has one tag where tags come from contents. So it may be another state than that
    /// which was seen.
    #[test]
    fn a_session_that_a_person_destroyed_gets_a_state_from_which_the_ttl_counts() {
        for destroyed in [None, Some(("1".to_owned(), None))] {
            let mut watch = watch();
            watch.see("there", Some(found("0", object("t", "a", 60))), at(0));
            watch.see("there", destroyed.clone(), at(1));
            let vacant = watch.late(at(9)).remove(0);
            assert_eq!(vacant.expected, destroyed.map(|(tag, _)| tag));
            assert!(vacant.object.is_vacant(), "{vacant:?}");
            watch.ended(vacant, "2".into(), at(10));
            assert_eq!((watch.is_over(&holder("a")), watch.next_late()), (false, Some(at(70))));
            let end = watch.late(at(70)).remove(0);
            assert_eq!((end.expected.as_deref(), end.object.ended), (Some("2"), true));
            watch.ended(end, "3".into(), at(70));
            assert!(watch.is_over(&holder("a")));
            // Its own session is its owner's to make.
            watch.see("here", None, at(70));
            assert_eq!(watch.late(at(200)), []);
        }
    }

    #[test]
    fn a_state_that_was_replaced_meanwhile_counts_anew_when_it_is_seen_again() {
        let mut watch = watch();
        watch.see("there", Some(found("1", object("t", "a", 15))), at(0));
        let end = watch.late(at(15)).remove(0);
        watch.superseded(&end);
        // This process was stopped, for example, and has not looked since.
        assert_eq!((watch.late(at(300)), watch.next_late()), (vec![], None));
        watch.see("there", Some(found("1", object("t", "a", 15))), at(30));
        assert_eq!((watch.late(at(44)), watch.next_late()), (vec![], Some(at(45))));
    }

    #[test]
    fn a_holder_is_judged_by_the_session_of_its_cluster() {
        let mut watch = watch();
        assert!(!watch.is_over(&holder("a")));
        watch.see("there", Some(found("1", object("t", "a", 15))), at(0));
        assert!(!watch.is_over(&holder("a")));
        assert!(watch.is_over(&holder("before")));
        watch.see("there", Some(found("2", object("t", "a", 15).ended_by("y"))), at(1));
        assert!(watch.is_over(&holder("a")));
        assert_eq!(watch.clusters().collect::<Vec<_>>(), [("there", false)]);
    }

    #[test]
    fn the_answer_to_an_end_replaces_no_later_state_and_an_attempt_is_not_repeated_at_once() {
        let mut watch = watch();
        watch.see("there", Some(found("1", object("t", "a", 15))), at(0));
        let end = watch.late(at(15)).remove(0);
        watch.wait_again("there", at(18));
        assert_eq!((watch.late(at(17)).len(), watch.late(at(18)).len()), (0, 1));
        watch.see("there", Some(found("3", object("t", "b", 15))), at(19));
        watch.ended(end, "2".into(), at(20));
        assert!(!watch.is_over(&holder("b")));
    }
}

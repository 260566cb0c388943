//! The sessions of the other clusters: which have ended, and which to end because nobody renews them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::object::{LockSession, ObjectTag, SessionObject};
use crate::Instant;

/// Whether a session may still be relied on by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It may be.
    Live,
    /// It has ended, and never comes back.
    Over,
    /// This cluster has not read the session's object.
    Unread,
}

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
}

impl Sight {
    fn has_ended(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.ended)
    }

    /// When the session may be ended.
    fn late(&self) -> Instant {
        (self.since + self.ttl).max(self.not_before)
    }
}

impl SessionWatch {
    /// Creates the watch of a process, whose own sessions have this TTL.
    pub fn new(installation: &str, writer: &str, ttl: Duration) -> Self {
        Self { installation: installation.to_owned(), writer: writer.to_owned(), ttl, seen: BTreeMap::new() }
    }

    /// Takes the object of a cluster's session as it was read. The answer has come by `now`, so the state is at least as old as that. Reads have
    /// to be taken in the order in which they were sent, each after the answer to the one before.
    pub fn see(&mut self, cluster: &str, found: Option<(ObjectTag, Option<SessionObject>)>, now: Instant) {
        let (tag, object) = found.map_or((None, None), |(tag, object)| (Some(tag), object));
        let before = self.seen.get(cluster);
        if before.is_some_and(|before| before.tag == tag) {
            return;
        }
        // The owner of a state that can't be read goes by the TTL that it wrote last.
        let ttl = object.as_ref().map(SessionObject::ttl).or(before.map(|before| before.ttl));
        let ttl = ttl.unwrap_or_default().max(self.ttl);
        self.seen.insert(cluster.to_owned(), Sight { tag, object, since: now, ttl, not_before: now });
    }

    /// Notes that this cluster has ended a session, under this new tag. The answer may come after a later state was read, which it does not
    /// replace.
    pub fn ended(&mut self, end: SessionEnd, tag: ObjectTag, now: Instant) {
        if self.seen.get(&end.cluster).is_some_and(|sight| sight.tag == end.expected) {
            self.see(&end.cluster, Some((tag, Some(end.object))), now);
        }
    }

    /// Waits until this moment before it ends the session of a cluster, because an attempt failed or its outcome is unknown.
    pub fn wait_again(&mut self, cluster: &str, until: Instant) {
        if let Some(sight) = self.seen.get_mut(cluster) {
            sight.not_before = until;
        }
    }

    /// Whether the session that holds a lock has ended. B4: the session's object must have been read after the lock's.
    pub fn liveness(&self, session: &LockSession) -> Liveness {
        match self.seen.get(&session.cluster) {
            None => Liveness::Unread,
            Some(Sight { object: Some(object), .. }) if object.ended || object.id != session.id => Liveness::Over,
            Some(_) => Liveness::Live,
        }
    }

    /// B3: the sessions that nobody has renewed for the whole of their TTL. A cluster ends them before it takes their locks.
    pub fn late(&self, now: Instant) -> Vec<SessionEnd> {
        let late = self.seen.iter().filter(|(_, sight)| self.ends(sight) && sight.late() <= now);
        late.map(|(cluster, sight)| SessionEnd {
            cluster: cluster.clone(),
            expected: sight.tag.clone(),
            object: sight.object.as_ref().map_or_else(
                || SessionObject {
                    id: String::new(),
                    installation: String::new(),
                    writer: self.writer.clone(),
                    renewals: 0,
                    ttl_milliseconds: u64::try_from(sight.ttl.as_millis()).unwrap_or(u64::MAX),
                    ended: true,
                },
                |object| object.ended_by(&self.writer),
            ),
        })
        .collect()
    }

    /// When the next session is late.
    pub fn next_late(&self) -> Option<Instant> {
        self.seen.values().filter(|sight| self.ends(sight)).map(Sight::late).min()
    }

    /// The clusters whose sessions were seen, in order, and whether each session may still be relied on.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, bool)> {
        self.seen.iter().map(|(cluster, sight)| (cluster.as_str(), !sight.has_ended()))
    }

    fn ends(&self, sight: &Sight) -> bool {
        let own = sight.object.as_ref().is_some_and(|object| object.installation == self.installation);
        !own && !sight.has_ended()
    }
}

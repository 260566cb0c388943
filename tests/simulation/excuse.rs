//! When a cluster may show a leader beside a newer one in the other cluster. docs/consul.md excepts two cases, and nothing else is
//! excused here: nobody can act in the cluster, and its lock is lost; or a person took the lock away, by its session or by its key,
//! while the cluster could not hear of it, or, in a bucket, before it has to. All times are in milliseconds.

mod tests;

use crate::operator::LEASE;
use crate::world::REPLICAS;

const LEASE_MILLIS: u64 = LEASE.as_secs() * 1_000;
/// How long an operator that begins to act waits for Consul's first answers, as docs/consul.md says.
const WAIT_FOR_CONSUL: u64 = 5_000;
/// The limit of a request about the operator's Lease: a fifth of it. Within this time the demotion reaches the API server, too.
const REQUEST: u64 = LEASE_MILLIS / 5;
/// A replica that has the operator's Lease has demoted after so long.
pub const BEGINS: u64 = WAIT_FOR_CONSUL + REQUEST;
/// A standby has demoted so long after the replica before it was lost: that one's Lease has to run out, and is then asked for
/// every fifteenth of it.
pub const TAKES_OVER: u64 = LEASE_MILLIS + LEASE_MILLIS / 15 + BEGINS;
/// C10: within this time a replica takes off what led here, whether or not it acts, once it can know that another cluster leads. Consul may
/// have no leader for 6 s of it, and the watch of its keys pauses for up to 2 s after that.
pub const STEPS_ASIDE: u64 = 10_000;
/// The TTLs of the sessions, which are the defaults. Whoever can't hear that its session was destroyed decides to demote four fifths of it
/// after the last renewal, and its write arrives within the rest.
pub const CONSUL_TTL: u64 = 15_000;
pub const OBJECTS_TTL: u64 = 30_000;
/// Consul's lock delay: a cluster that hears of its loss within it demotes before another cluster can have the lock.
const LOCK_DELAY: u64 = 1_000;
/// How soon a session is renewed anew after a failure, besides a third of the TTL.
const AGAIN: u64 = 5_000;
/// How long after a session in a bucket has to be renewed its cluster has demoted, if a person has ended it: within the time that Consul's
/// lock delay gives.
const GIVES_UP: u64 = LOCK_DELAY;

/// How a replica is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// As it names itself in the operator's Lease; none: it does not run, is stopped, or was asked to end.
    pub identity: Option<String>,
    /// From when on what it sends to the API server is carried out at once; none: something is wrong with its way there.
    pub reaches_api: Option<u64>,
    /// From when on it hears of what happens in the shared store at once; none: something is wrong with its way there.
    pub hears_store: Option<u64>,
    /// From when on nothing is wrong with its ways to both.
    pub well: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Replica {
    condition: Condition,
    /// Since when it runs and reaches the API server.
    able: Option<u64>,
    /// Since when, or from when on, it runs and hears of what happens in the shared store.
    hears: Option<u64>,
    /// Since when nothing is wrong with it.
    well: Option<u64>,
}

/// How a cluster loses a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its session in Consul was not renewed in time.
    Expired,
    /// Its session in a bucket was not renewed in time, and another cluster ended it (S3).
    Ended,
    /// Its operator has found that a person did away with the session's object in a bucket, and has made another session.
    Replaced,
    /// A person destroyed its session in Consul, which had been renewed so long before.
    Destroyed { renewed: u64 },
    /// A person ended its session in a bucket, which had been renewed so long before. There is no lock delay, so another cluster can have
    /// the lock before this one hears of it by its next renewal.
    EndedByHand { renewed: u64 },
    /// A person deleted the key.
    Deleted,
    /// A person put the bucket back to a state in which another cluster has the lock, or nobody.
    PutBack,
}

impl Loss {
    /// How long whoever acts need not have heard of it. When a key has vanished, the other clusters wait for a TTL.
    fn leaves(self, ttl: u64) -> u64 {
        match self {
            Self::Expired | Self::Destroyed { .. } => LOCK_DELAY,
            Self::Deleted => ttl,
            // By its own clock, the cluster has given up its leader before another one may end its session; or it did so itself.
            Self::Ended | Self::Replaced => 0,
            // Whoever acts looks into the bucket before another cluster promotes (C7).
            Self::PutBack => ttl / 3 + GIVES_UP,
            Self::EndedByHand { renewed } => (ttl / 3).saturating_sub(renewed) + GIVES_UP,
        }
    }
}

/// What is known of one cluster.
#[derive(Clone, Debug)]
pub struct Excuse {
    /// The TTL of its sessions.
    ttl: u64,
    replicas: [Replica; REPLICAS],
    /// Who has the operator's Lease, and since when.
    holder: Option<(String, u64)>,
    /// When the operator's Lease was written last.
    renewed: u64,
    /// Since when nobody acts.
    idle: Option<u64>,
    /// When it last lost a lock, and how.
    lost: Option<(u64, Loss)>,
    /// Until when it need not know that its session was destroyed.
    deaf: u64,
    /// When its key was deleted, if whoever acts has not had the time to hear of it since.
    unheard: Option<u64>,
    /// When it was last excused.
    last: Option<u64>,
}

impl Excuse {
    /// Nothing is known yet of a cluster whose sessions have this TTL.
    pub fn new(ttl: u64) -> Self {
        Self {
            ttl,
            replicas: Default::default(),
            holder: None,
            renewed: 0,
            idle: None,
            lost: None,
            deaf: 0,
            unheard: None,
            last: None,
        }
    }

    /// A replica is like this now.
    pub fn replica(&mut self, number: usize, condition: Condition, now: u64) {
        let replica = &mut self.replicas[number];
        let same = replica.condition.identity == condition.identity;
        let able = condition.reaches_api.filter(|_| condition.identity.is_some());
        replica.able = able.map(|from| replica.able.filter(|_| same).unwrap_or(from.max(now)));
        let hears = condition.hears_store.filter(|_| condition.identity.is_some());
        replica.hears = hears.map(|from| replica.hears.filter(|_| same).unwrap_or(from.max(now)));
        let well = condition.well.filter(|_| condition.identity.is_some());
        replica.well = well.map(|from| replica.well.filter(|_| same).unwrap_or(from.max(now)));
        replica.condition = condition;
        self.pass(now);
    }

    /// The operator's Lease was written.
    pub fn claimed(&mut self, holder: Option<&str>, now: u64) {
        self.renewed = now;
        if self.holder.as_ref().map(|(holder, _)| holder.as_str()) != holder {
            self.holder = holder.map(|holder| (holder.to_owned(), now));
        }
        self.pass(now);
    }

    /// A lock of this cluster is lost. Returns what is wrong with that.
    pub fn lose(&mut self, how: Loss, now: u64) -> Option<String> {
        let keeps = self.hears_since();
        self.lost = Some((now, how));
        if how == Loss::Deleted {
            self.unheard = Some(now);
        }
        self.pass(now);
        let renewed = self.ttl / 3 + AGAIN + self.ttl;
        let renews = matches!(how, Loss::Expired | Loss::Ended) && keeps.is_some_and(|since| since + renewed <= now);
        renews.then(|| "a session has ended whose operator runs and reaches its store".into())
    }

    /// Time has passed.
    pub fn pass(&mut self, now: u64) {
        let acts = self.acting().and_then(|replica| Some(replica.able?.max(self.holder.as_ref()?.1) + BEGINS <= now));
        let ttl = self.ttl;
        if acts == Some(true) {
            self.idle = None;
            self.lost = self.lost.filter(|(lost, how)| now <= lost + how.leaves(ttl));
        } else {
            self.idle.get_or_insert(now);
        }
        if let Some((lost, how @ (Loss::Destroyed { renewed } | Loss::EndedByHand { renewed }))) = self.lost
            && now <= lost + how.leaves(ttl)
        {
            // It may have had several sessions, of which the one that it knows to hold its lock was renewed last.
            let valid = lost + ttl.saturating_sub(renewed);
            if self.acting().and_then(|replica| replica.hears).is_none_or(|from| from > now) {
                self.deaf = self.deaf.max(valid);
            } else if matches!(how, Loss::EndedByHand { .. }) {
                self.deaf = self.deaf.max(valid.min(lost + how.leaves(ttl)));
            }
        }
        let hears = self.hears_since();
        self.unheard = self.unheard.filter(|lost| hears.is_none_or(|since| since.max(*lost) + STEPS_ASIDE > now));
        if self.is_excused(now) {
            self.last = Some(now);
        }
    }

    /// The replica that has the operator's Lease, if it runs.
    fn acting(&self) -> Option<&Replica> {
        let holder = &self.holder.as_ref()?.0;
        self.replicas.iter().find(|replica| replica.condition.identity.as_ref() == Some(holder))
    }

    /// Since when, or from when on, whoever acts hears of what happens in the shared store.
    fn hears_since(&self) -> Option<u64> {
        let (_, acts_since) = self.holder.as_ref()?;
        Some(self.acting()?.hears?.max(*acts_since))
    }

    /// Whether it may show a leader beside a newer one.
    pub fn is_excused(&self, now: u64) -> bool {
        // The others wait for a TTL when a key has vanished, so nothing else needs an excuse before.
        let unheard = self.unheard.is_some_and(|lost| lost + self.ttl <= now);
        now < self.deaf || unheard || self.is_helpless(now)
    }

    /// Whether its lock was lost while nobody acted, and nobody had the time to begin to act since.
    fn is_helpless(&self, now: u64) -> bool {
        let (Some(idle), Some((lost, how))) = (self.idle, self.lost) else { return false };
        let mut able = self.replicas.iter().filter_map(|replica| replica.able);
        let taken_over = idle.max(self.renewed) + TAKES_OVER <= now && able.any(|since| since + TAKES_OVER <= now);
        idle <= lost + how.leaves(self.ttl) && !taken_over
    }

    /// Whether it may, or might until so long ago.
    pub fn was_excused(&self, within: u64, now: u64) -> bool {
        self.is_excused(now) || self.last.is_some_and(|last| now <= last + within)
    }

    /// Whether a replica of it could have taken off what led here, since another cluster leads.
    pub fn sees(&self, since: u64, now: u64) -> bool {
        self.replicas.iter().any(|replica| replica.well.is_some_and(|well| well.max(since) + STEPS_ASIDE <= now))
    }

    /// Whether all replicas could act or stand by for long: then Consul needs to keep a session for no longer than it promises.
    pub fn is_settled(&self, now: u64) -> bool {
        self.replicas.iter().all(|replica| replica.able.is_some_and(|since| since + TAKES_OVER <= now))
    }
}

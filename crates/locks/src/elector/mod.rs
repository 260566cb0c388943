//! Elects a leader among the replicas of a program, which runs its work only while it leads.

mod driver;
mod leadership;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use lictor_core::{AgentTiming, ClaimParameters};
use lictor_objects::Objects;
use tokio::sync::watch;

use self::driver::{Callbacks, Driver, Shared};
pub use self::driver::{Ended, Leader};
pub use self::leadership::Leadership;
use crate::consul::{ConsulLock, ConsulLockSettings, Home};
use crate::lease::{LeaseLock, LeaseLockSettings};
use crate::lock::Lock;
use crate::objects::{ObjectLock, ObjectLockSettings};

/// How long a lock lasts without a renewal, by default.
const DURATION: Duration = Duration::from_secs(15);

/// The durations that a Lease can have.
const OF_A_LEASE: RangeInclusive<Duration> = Duration::from_secs(3)..=ClaimParameters::LONGEST;

/// The durations that an object can have. Shorter ones would cost more requests.
const OF_AN_OBJECT: RangeInclusive<Duration> = Duration::from_secs(5)..=ClaimParameters::LONGEST;

/// The TTLs that Consul accepts.
const OF_A_SESSION: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);

/// The time for which requests of an earlier leader may arrive in Consul's lock after the end of its session.
const LOCK_DELAY: Duration = Duration::from_secs(1);

/// The node in Consul's catalog to which sessions belong. It has no checks.
const NODE: &str = "lictor-electors";

/// A7: how long a replica that has yielded takes no part.
const AWAY: Duration = Duration::from_secs(5);

/// Takes part in an election for one replica of a program. All replicas name the same lock. Clones are the same replica.
#[derive(Clone)]
pub struct Elector {
    store: Store,
    identity: String,
    /// What tells this replica from all others that people give the same name.
    start: String,
    duration: Duration,
    finishing: Duration,
    advertised: Option<SocketAddr>,
    callbacks: Callbacks,
    shared: Arc<Shared>,
}

/// Where the lock is.
#[derive(Clone)]
enum Store {
    Lease { client: kube::Client, namespace: String, name: String },
    Consul { client: lictor_consul::Client, key: String },
    Object { objects: Arc<dyn Objects>, name: String },
}

/// A duration that a lock can't have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lock can't last {duration:?}: choose from {allowed:?}, in whole seconds")]
pub struct InvalidDuration {
    /// The refused duration.
    pub duration: Duration,
    /// The durations that the store allows.
    pub allowed: RangeInclusive<Duration>,
}

impl Elector {
    /// Elects by a Lease, in the form of client-go's `LeaseLock`. The account needs the verbs `get`, `list`, `watch` and `patch` for the
    /// Lease, and `create` for Leases.
    pub fn lease(client: kube::Client, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::new(Store::Lease { client, namespace: namespace.into(), name: name.into() })
    }

    /// Elects by a key in Consul, in the form of `api.Lock` of Consul's own library. The token needs the right to write the key, and the
    /// node and the sessions `lictor-electors`. The client's [timeout](lictor_consul::Settings::timeout) should be at most a third of the
    /// [duration](Self::duration), which leaves time to repeat a failed renewal.
    pub fn consul(client: lictor_consul::Client, key: impl Into<String>) -> Self {
        Self::new(Store::Consul { client, key: key.into() })
    }

    /// Elects by an object in a bucket, as `lictor agent --bucket` does: a [`Bucket`](lictor_objects::Bucket) of S3, Google Cloud Storage or
    /// Azure, or any other store that replaces an object only if it has not changed. A replica first tries that the store does. The
    /// account needs the right to read and write the object of this name, and the one that ends in `.trial`. Each replica that does not
    /// lead sends a request every one to four seconds.
    pub fn bucket(objects: Arc<dyn Objects>, name: impl Into<String>) -> Self {
        Self::new(Store::Object { objects, name: name.into() })
    }

    fn new(store: Store) -> Self {
        let start = std::hash::RandomState::new().hash_one(std::process::id());
        Self {
            store,
            identity: host(),
            start: format!("{start:016x}"),
            duration: DURATION,
            finishing: Duration::ZERO,
            advertised: None,
            callbacks: Callbacks::default(),
            shared: Arc::default(),
        }
    }

    /// Sets the name by which people know this replica, by default the host's name, which is the pod's in Kubernetes. The holder of a Lease
    /// and the session in Consul get another part that no other replica has, because two replicas by one name would both take the lock for
    /// theirs.
    #[must_use]
    pub fn identity(mut self, name: impl Into<String>) -> Self {
        self.identity = name.into();
        self
    }

    /// Sets how long the lock lasts without a renewal, by default 15 s. All replicas should have the same. The work ends at the latest four
    /// fifths of it after the last renewal was sent, and another replica leads at the earliest after all of it.
    ///
    /// # Errors
    /// If the store does not allow it: a Lease lasts 3 s to 300 s, an object 5 s to 300 s, a session in Consul 10 s to a day, in whole seconds.
    pub fn duration(mut self, duration: Duration) -> Result<Self, InvalidDuration> {
        let allowed = match &self.store {
            Store::Lease { .. } => OF_A_LEASE,
            Store::Object { .. } => OF_AN_OBJECT,
            Store::Consul { .. } => OF_A_SESSION,
        };
        if !allowed.contains(&duration) || duration.subsec_nanos() != 0 {
            return Err(InvalidDuration { duration, allowed });
        }
        self.duration = duration;
        Ok(self)
    }

    /// Sets the address at which others reach this replica while it leads, for [`leader`](Self::leader) and other readers of the lock.
    #[must_use]
    pub fn advertise(mut self, address: SocketAddr) -> Self {
        self.advertised = Some(address);
        self
    }

    /// Sets how long the work may go on after [`Leadership::ending`] has told it to end, by default not at all. If the lock can't be
    /// renewed, the time is at most three tenths of the [duration](Self::duration), and the work is told so much earlier.
    #[must_use]
    pub fn finishing(mut self, limit: Duration) -> Self {
        self.finishing = limit;
        self
    }

    /// Sets what to call in each leadership before the work begins. It must not block.
    #[must_use]
    pub fn on_leader(mut self, call: impl Fn(&Leadership) + Send + Sync + 'static) -> Self {
        self.callbacks.on_leader = Arc::new(call);
        self
    }

    /// Sets what to call when the work of a leadership has ended or was dropped, before the lock is released: once for each call of
    /// [`on_leader`](Self::on_leader). It must not block.
    #[must_use]
    pub fn on_follower(mut self, call: impl Fn() + Send + Sync + 'static) -> Self {
        self.callbacks.on_follower = Arc::new(call);
        self
    }

    /// Takes part in the election, and runs the work while this replica leads. Returns the work's output when it ends by itself, after the
    /// lock is released.
    ///
    /// When the leadership is over, the work is dropped where it waits, and begins again in the next leadership of this replica. The work is
    /// never polled after its deadline, which counts from when the last renewal was *sent*, and goes on during a suspend: not even after a
    /// SIGSTOP. What runs between two `await`s, on other threads, or in tasks that it has spawned, is not stopped: it has to ask
    /// [`Leadership::is_valid`]. A work that ends after it was [told](Leadership::ending) to, because the leadership is about to be lost or
    /// was yielded, has no output: this replica then takes part again.
    ///
    /// Dropping the returned future drops the work, and releases the lock in the background. A second run of the same elector waits for the
    /// end of the first one.
    ///
    /// # Errors
    /// If the elector is [stopped](Self::stop), or its lock's keeper is gone.
    pub async fn run<W, F>(&self, work: W) -> Result<F::Output, Ended>
    where
        W: FnMut(Leadership) -> F,
        F: Future,
    {
        let running = self.shared.running.clone().lock_owned().await;
        if *self.shared.stop.borrow() {
            return Err(Ended::Stopped);
        }
        let own = Leader {
            name: self.holder(),
            address: self.advertised.map(|address| address.to_string()),
            term: None,
            is_this: true,
        };
        let take_part = || self.take_part();
        let driver = Driver::new(self.timing(), own, self.callbacks.clone(), self.shared.clone(), running, take_part);
        driver.run(work).await
    }

    /// Returns whether this replica leads now, so that surely no other one does.
    pub fn is_leader(&self) -> bool {
        self.leadership().is_some()
    }

    /// Returns the present leadership of this replica, for code outside of the work.
    pub fn leadership(&self) -> Option<Leadership> {
        self.shared.leadership.borrow().clone().filter(Leadership::is_valid)
    }

    /// Follows who leads, as far as this replica knows: `None` before the first news, and when no replica leads or this one takes no part.
    pub fn leader(&self) -> watch::Receiver<Option<Leader>> {
        self.shared.leader.subscribe()
    }

    /// Leaves the lock to another replica: ends the work, releases the lock, and takes no part for 5 s. Returns whether this replica leads,
    /// as otherwise nothing happens. Returns before that is done: [`leader`](Self::leader) shows when another one leads.
    pub fn yield_leadership(&self) -> bool {
        let leads = self.is_leader();
        if leads {
            self.shared.yields.notify_one();
        }
        leads
    }

    /// Ends all runs of this elector for good: each ends its work, releases the lock, and returns [`Ended::Stopped`]. Returns before that
    /// is done: go on to await [`run`](Self::run), after which another replica can lead at once.
    pub fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    fn timing(&self) -> AgentTiming {
        let timing = AgentTiming {
            ttl: self.duration,
            grace: Duration::ZERO,
            stop_timeout: self.finishing,
            away: AWAY,
            shortest_run: Duration::ZERO,
        };
        AgentTiming { grace: self.finishing.min(timing.longest_grace()), ..timing }
    }

    /// The name of this replica in the lock.
    fn holder(&self) -> String {
        match &self.store {
            Store::Lease { .. } | Store::Object { .. } => format!("{}_{}", self.identity, self.start),
            Store::Consul { .. } => self.identity.clone(),
        }
    }

    fn take_part(&self) -> Lock {
        match self.store.clone() {
            Store::Lease { client, namespace, name } => {
                let settings = LeaseLockSettings {
                    namespace,
                    name,
                    identity: self.holder(),
                    duration: self.duration,
                    advertise: self.advertised,
                    grant: "; grant it to this program's service account",
                };
                LeaseLock::start(client, settings)
            }
            Store::Object { objects, name } => {
                let settings = ObjectLockSettings {
                    name,
                    identity: self.holder(),
                    duration: self.duration,
                    node: Some(host()),
                    advertise: self.advertised.map(|address| address.to_string()),
                };
                ObjectLock::start(objects, settings)
            }
            Store::Consul { client, key } => {
                let settings = ConsulLockSettings {
                    session: format!("lictor-elector/{key}/{}/{}", self.identity, self.start),
                    key,
                    identity: self.holder(),
                    home: Home::Node {
                        name: NODE.into(),
                        address: "127.0.0.1".into(),
                        meta: BTreeMap::from([("external-source".to_owned(), "lictor".to_owned())]),
                    },
                    ttl: self.duration,
                    lock_delay: LOCK_DELAY,
                    renew_every: Duration::MAX,
                    advertise: self.advertised.map(|address| address.to_string()),
                    node: Some(host()),
                };
                ConsulLock::start(client, settings, format!("{}-{}", self.identity, self.start))
            }
        }
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = match &self.store {
            Store::Lease { namespace, name, .. } => format!("{namespace}/{name}"),
            Store::Consul { key, .. } => key.clone(),
            Store::Object { name, .. } => name.clone(),
        };
        f.debug_struct("Elector").field("lock", &lock).field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Returns the name of this host, which is the pod's in a pod.
fn host() -> String {
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    std::env::var("HOSTNAME").unwrap_or_else(|_| kernel()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn elector() -> Elector {
        let nothing = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
        Elector::lease(kube::Client::new(tower::service_fn(nothing), "shop"), "shop", "report")
    }

    #[tokio::test]
    async fn a_lease_lasts_whole_seconds_that_agents_could_have_too() {
        for duration in [0, 2999, 3500, 301_000].map(Duration::from_millis) {
            let refused = elector().duration(duration).expect_err("it is refused");
            assert_eq!(refused, InvalidDuration { duration, allowed: OF_A_LEASE });
        }
        let elector = elector().duration(Duration::from_secs(3)).expect("it is allowed");
        assert_eq!(elector.timing().ttl, Duration::from_secs(3));
        // Without a loss of the lock, the work may finish for longer than the lock allows otherwise.
        let timing = elector.finishing(Duration::from_secs(9)).timing();
        assert_eq!((timing.grace, timing.stop_timeout), (Duration::from_millis(900), Duration::from_secs(9)));
    }

    /// Two replicas on one store: the second leads when the first is stopped.
    #[tokio::test]
    async fn an_object_elects_one_of_two() {
        let test = async {
            let memory: Arc<dyn Objects> = Arc::new(lictor_objects::Memory::default());
            let electors = ["one", "two"].map(|name| Elector::bucket(memory.clone(), "report").identity(name));
            let (sender, mut leads) = tokio::sync::mpsc::unbounded_channel();
            let runs = electors.clone().map(|elector| {
                let (sender, name) = (sender.clone(), elector.identity.clone());
                lictor_process::spawn(async move {
                    elector
                        .run(|leadership| {
                            let _ = sender.send((name.clone(), leadership.term()));
                            std::future::pending::<()>()
                        })
                        .await
                })
            });
            let (first, term) = leads.recv().await.expect("one leads");
            let at = electors.iter().position(|elector| elector.identity == first).expect("it is one of them");
            assert!(electors[at].is_leader() && !electors[1 - at].is_leader());
            electors[at].stop();
            let (second, later) = leads.recv().await.expect("the other one leads");
            assert!(second != first && later > term, "{second} {later} after {first} {term}");
            electors[1 - at].stop();
            for run in runs {
                assert_eq!(run.await.expect("it ends"), Err(Ended::Stopped));
            }
        };
        lictor_process::spawn_in(&lictor_process::virtual_process(), test).await.expect("the test passes");
    }

    #[tokio::test]
    async fn two_electors_never_have_one_name_and_clones_are_one_replica() {
        let one = elector().identity("web");
        let other = elector().identity("web");
        assert!(one.holder().starts_with("web_") && one.holder() != other.holder());
        assert_eq!(one.clone().holder(), one.holder());
        one.clone().stop();
        assert_eq!(one.run(|_| async {}).await, Err(Ended::Stopped));
        assert!(!one.yield_leadership() && !one.is_leader());
    }
}

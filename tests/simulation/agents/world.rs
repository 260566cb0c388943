//! Candidates, each in a place of its own with a way of its own to the store that has their lock: Consul, or an API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lictor_consul::Settings;
use lictor_core::AgentTiming;
use lictor_locks::Lock;
use lictor_locks::consul::{ConsulLock, ConsulLockSettings, Home};
use lictor_locks::lease::{LeaseLock, LeaseLockSettings};
use lictor_testing::Prng;
use tokio::time::{Instant, sleep};

use super::judge::Judge;
use super::place::Place;
use crate::log::Log;
use crate::servers::api::ApiServer;
use crate::servers::client::{Listener, connect, kubernetes};
use crate::servers::consul::Consul;
use crate::servers::link::{Link, Weather};
use crate::words;

pub const CANDIDATES: usize = 3;
const KEY: &str = "services/report/leader";
const NAMESPACE: &str = "shop";
const LEASE: &str = "report";
/// How often what is promised is looked at while nothing else happens.
const LOOKS: Duration = Duration::from_millis(50);
/// Whoever starts an agent again does so within so many milliseconds.
const RESTARTS: usize = 3_000;

/// What candidates are told when they start.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The lock is in Consul, or else in a Lease.
    pub consul: bool,
    pub timing: AgentTiming,
    pub lock_delay: Duration,
    renew_every: Duration,
}

impl Setting {
    pub fn of(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0xa6e2);
        let consul = prng.percent(50);
        let ttl = Duration::from_secs(if consul { [10, 15, 30][prng.below(3)] } else { [3, 6, 15][prng.below(3)] });
        let timing = AgentTiming {
            ttl,
            grace: ttl / [10, 5][prng.below(2)],
            stop_timeout: Duration::from_secs([2, 5, 20][prng.below(3)]),
            away: Duration::from_secs([1, 5][prng.below(2)]),
            shortest_run: Duration::from_secs(1),
        };
        let lock_delay = if prng.percent(60) { ttl } else { Duration::from_secs(1) };
        let renew_every = if prng.percent(30) { Duration::from_secs(1) } else { Duration::MAX };
        Self { consul, timing, lock_delay, renew_every }
    }

    /// Whether a command has ended before others can have the lock of a session that somebody has destroyed, even if its agent does not
    /// hear of that.
    pub fn outlasts(&self) -> bool {
        !self.consul || self.lock_delay >= self.timing.ttl
    }

    /// How soon somebody leads when all that was wrong is over: the TTL twice over and the lock delay, or what a Lease says of itself; a
    /// command that was to end; and the pauses of each attempt.
    pub fn recovery(&self) -> Duration {
        2 * self.timing.ttl + self.lock_delay + self.timing.stop_timeout + Duration::from_secs(20)
    }
}

/// The store with the lock.
pub enum Store {
    Consul(Arc<Consul>),
    Api(Arc<ApiServer>),
}

pub struct World {
    pub log: Log,
    pub judge: Arc<Mutex<Judge>>,
    pub setting: Setting,
    pub store: Store,
    pub places: Vec<Arc<Place>>,
    pub links: Vec<Arc<Link>>,
}

impl World {
    pub fn new(seed: u64, log: Log) -> Arc<Self> {
        let mut prng = Prng::new(seed);
        let judge = Arc::new(Mutex::new(Judge::new(log.clone())));
        // Clocks that differ by up to a hundredth, which is far more than real ones do.
        let mut rate = || 995 + u32::try_from(prng.below(11)).unwrap_or(0);
        let setting = Setting::of(seed);
        let store = if setting.consul {
            let consul = Consul::new(seed ^ 0xc0, rate().into());
            tokio::spawn(consul.clone().keep_time());
            Store::Consul(consul)
        } else {
            let (api, told) = (ApiServer::new("west"), log.clone());
            api.observe(move |change| told.note_some(|| words::change("west", change)));
            Store::Api(api)
        };
        let begun = Instant::now();
        let seed = |of: usize| seed.wrapping_mul(31) + u64::try_from(of).unwrap_or(0);
        let places = (0..CANDIDATES).map(|number| {
            let (judge, log) = (judge.clone(), log.clone());
            Place::new(number, rate(), seed(number), judge, log, begun)
        });
        let places = places.collect();
        let links = (0..CANDIDATES).map(|number| Link::new(seed(16 + number))).collect();
        let world = Arc::new(Self { log, judge, setting, store, places, links });
        for number in 0..CANDIDATES {
            tokio::spawn(world.clone().keep_running(number, Prng::new(seed(32 + number))));
        }
        tokio::spawn(world.clone().watch_over());
        world
    }

    /// Starts a candidate again and again.
    async fn keep_running(self: Arc<Self>, number: usize, mut prng: Prng) {
        for start in 0_u64.. {
            let place = &self.places[number];
            place.free().await;
            if start > 0 {
                sleep(Duration::from_millis(u64::try_from(prng.below(RESTARTS)).unwrap_or(0))).await;
            }
            let lock = self.lock(number, format!("c{number}#{start}"));
            place.start(self.setting.timing, lock);
        }
    }

    /// How a candidate takes part in the election. `instance` is unique for each start.
    fn lock(&self, number: usize, instance: String) -> Box<dyn FnMut() -> Lock + Send> {
        let (log, told, link, setting) = (self.log.clone(), instance.clone(), self.links[number].clone(), self.setting);
        let listener: Listener = Arc::new(move |method, path, body, status| {
            log.note_some(|| words::request(&told, method, path, body, status));
        });
        let identity = identity(number);
        match &self.store {
            Store::Consul(consul) => {
                // As src/cli/agent.rs has it.
                let timeout = Duration::from_secs(5).min(setting.timing.ttl / 5);
                let settings = Settings { timeout, ..Settings::new("http://consul.example:8500") };
                let client = connect(consul.clone(), link, listener)(&settings).unwrap();
                let settings = ConsulLockSettings {
                    key: KEY.into(),
                    session: format!("lictor-agent/{KEY}/{identity}"),
                    identity,
                    home: Home::Node {
                        name: "lictor-agents".into(),
                        address: "127.0.0.1".into(),
                        meta: std::collections::BTreeMap::new(),
                    },
                    ttl: setting.timing.ttl,
                    lock_delay: setting.lock_delay,
                    renew_every: setting.renew_every,
                    advertise: None,
                    node: None,
                };
                Box::new(move || ConsulLock::start(client.clone(), settings.clone(), instance.clone()))
            }
            Store::Api(api) => {
                let client = kubernetes(api.clone(), link, listener);
                let ttl = setting.timing.ttl;
                let settings = LeaseLockSettings {
                    namespace: NAMESPACE.into(),
                    name: LEASE.into(),
                    identity,
                    duration: ttl,
                    advertise: None,
                    grant: "",
                };
                Box::new(move || LeaseLock::start(client.clone(), settings.clone()))
            }
        }
    }

    /// Looks at what is promised.
    async fn watch_over(self: Arc<Self>) {
        loop {
            sleep(LOOKS).await;
            if let Store::Consul(consul) = &self.store {
                consul.told().into_iter().for_each(|line| self.log.note(|| format!("consul: {line}")));
            }
            let holder = self.holder();
            let mut judge = self.judge.lock().unwrap();
            judge.compare();
            if let Some(holder) = holder {
                judge.held_by(holder);
            }
            for place in &self.places {
                if let Some(late) = place.overdue() {
                    judge.outlives(place.number, late);
                }
            }
        }
    }

    /// Who holds the lock, by the store.
    pub fn holder(&self) -> Option<usize> {
        let name = match &self.store {
            Store::Consul(consul) => consul.holder(KEY)?,
            Store::Api(api) => {
                let lease = api.get("leases", NAMESPACE, LEASE)?;
                lease["spec"]["holderIdentity"].as_str()?.to_owned()
            }
        };
        (0..CANDIDATES).find(|number| name.ends_with(&identity(*number)))
    }

    /// Whose command can do something.
    pub fn leader(&self) -> Option<usize> {
        self.places.iter().find(|place| place.acts().is_some()).map(|place| place.number)
    }

    /// Somebody destroys the session of a candidate.
    pub fn end_session(&self, number: usize) {
        if let Store::Consul(consul) = &self.store {
            consul.end_session(&format!("lictor-agent/{KEY}/{}", identity(number)));
        }
    }

    /// All ways are open, and everything goes on.
    pub fn repair(&self) {
        self.links.iter().for_each(|link| link.change(|weather| *weather = Weather::default()));
        self.places.iter().for_each(|place| place.go_on());
    }
}

fn identity(number: usize) -> String {
    format!("c{number}_place")
}

//! The way between a process and a server: requests and answers take their time, are lost, held up, carried out twice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use lictor_testing::Prng;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

/// What is late, arrives within so many milliseconds.
const LATEST: usize = 20_000;
/// The same after that, where nobody waits for it any more: its sender has given up, or is no more.
const LEFT_BEHIND: usize = 60_000;
/// How long a watch that is behind takes for each event at most.
const BEHIND: usize = 8_000;
/// Who waits no longer for one way is still in time.
const PROMPT: usize = 1_000;

/// What may happen on the way; percentages of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Weather {
    /// Nothing gets to the server.
    pub requests_cut: bool,
    /// Nothing gets back.
    pub answers_cut: bool,
    /// No connection is made.
    pub refused: bool,
    /// The longest that each way takes, in milliseconds.
    pub slow: usize,
    /// On their way for up to 20 seconds.
    pub late: usize,
    /// Carried out a second time, some seconds later.
    pub twice: usize,
    /// Answered with an error, whether or not they were carried out.
    pub errors: usize,
    /// The token may not write keys in Consul.
    pub unwritable: bool,
    /// The watches that bring nothing: of these resources.
    pub silent: &'static [&'static str],
    /// The watches that bring each event late: of these resources.
    pub behind: &'static [&'static str],
    /// What the server denies.
    pub denied: Option<Denied>,
}

/// Requests of one verb that are answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    pub status: u16,
    pub verb: &'static str,
    /// None: all resources.
    pub resource: Option<&'static str>,
}

impl Denied {
    /// Whether it is about such a request.
    pub fn hits(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource.is_none_or(|only| only == resource)
    }
}

impl Weather {
    /// Whether requests are carried out, and answered, within a second or two.
    pub fn lets_through(&self) -> bool {
        let Self {
            requests_cut,
            answers_cut,
            refused,
            slow,
            late,
            twice: _,
            errors: _,
            unwritable: _,
            silent,
            behind,
            denied,
        } = *self;
        // Who does not hear of its pods does not know whom to demote.
        let hears = !silent.contains(&"pods") && !behind.contains(&"pods");
        let may =
            denied.is_none_or(|denied| !matches!(denied.resource, None | Some("pods" | "leases" | "endpointslices")));
        !requests_cut && !answers_cut && !refused && slow <= PROMPT && late == 0 && hears && may
    }

    /// Whether nothing is wrong, but that requests may be carried out once more.
    pub fn is_prompt(&self) -> bool {
        *self == Self { twice: self.twice, ..Self::default() }
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Nothing was sent.
    Refused,
    /// The connection broke.
    Broken,
}

/// What a server answers out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    None,
    /// An error, and nothing is done.
    Before(usize),
    /// It is done, and the answer is an error.
    After,
}

/// A way.
pub struct Link {
    prng: Mutex<Prng>,
    changed: watch::Sender<Weather>,
    /// When the last of what is on the way arrives, unless that is cut.
    arrives: Mutex<Instant>,
}

impl Link {
    pub fn new(seed: u64) -> Arc<Self> {
        let (prng, changed) = (Mutex::new(Prng::new(seed)), watch::channel(Weather::default()).0);
        Arc::new(Self { prng, changed, arrives: Mutex::new(Instant::now()) })
    }

    /// From now on it is like this.
    pub fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.changed.send_modify(change);
    }

    pub fn weather(&self) -> Weather {
        *self.changed.borrow()
    }

    /// How long it takes until everything that is on the way has arrived; none: something is wrong, so that is not known.
    pub fn clears(&self) -> Option<Duration> {
        self.weather().is_prompt().then(|| self.under_way())
    }

    /// How long it takes until what is on the way has arrived, if nothing is cut.
    pub fn under_way(&self) -> Duration {
        self.arrives.lock().unwrap().saturating_duration_since(Instant::now())
    }

    async fn take(&self, time: Duration) {
        let arrives = Instant::now() + time;
        {
            let mut last = self.arrives.lock().unwrap();
            *last = arrives.max(*last);
        }
        sleep(time).await;
    }

    fn below(&self, limit: usize) -> usize {
        self.prng.lock().unwrap().below(limit.max(1))
    }

    fn percent(&self, percent: usize) -> bool {
        self.prng.lock().unwrap().percent(percent)
    }

    /// How long one way takes.
    fn delay(&self) -> Duration {
        let most = self.weather().slow.max(3);
        Duration::from_millis(u64::try_from(self.below(most)).unwrap_or(0))
    }

    /// How long what is late takes.
    fn lateness(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.below(LATEST)).unwrap_or(0))
    }

    /// Carries a request to the server, and its answer back. What is on its way, stays so when nobody waits any more.
    pub async fn carry<A: Send + 'static>(
        self: &Arc<Self>,
        serve: impl Fn(Mishap) -> BoxFuture<'static, A> + Send + 'static,
    ) -> Result<A, Lost> {
        if self.weather().refused {
            sleep(Duration::from_millis(1)).await;
            return Err(Lost::Refused);
        }
        let (sender, receiver) = oneshot::channel();
        let link = self.clone();
        // Not a task of the process: it goes on without it.
        tokio::spawn(async move {
            link.take(link.delay()).await;
            if link.percent(link.weather().late) {
                link.take(link.lateness()).await;
                if sender.is_closed() {
                    sleep(Duration::from_millis(u64::try_from(link.below(LEFT_BEHIND)).unwrap_or(0))).await;
                }
            }
            // What waits for a dead connection, is sent again when it lives, or given up.
            if !link.open(|weather| weather.requests_cut).await {
                return;
            }
            let weather = link.weather();
            let mishap = match link.below(100) {
                at if at >= weather.errors => Mishap::None,
                at if at % 3 == 0 => Mishap::After,
                at => Mishap::Before(at % 3),
            };
            let twice = link.percent(weather.twice);
            let answer = serve(mishap).await;
            if twice {
                let later = link.lateness();
                tokio::spawn(async move {
                    sleep(later).await;
                    drop(serve(Mishap::None).await);
                });
            }
            link.take(link.delay()).await;
            if link.open(|weather| weather.answers_cut).await {
                let _ = sender.send(answer);
            }
        });
        receiver.await.map_err(|_| Lost::Broken)
    }

    /// Holds up what is on its way while it is cut; returns whether it arrives then.
    async fn open(&self, cut: impl Fn(&Weather) -> bool) -> bool {
        if !cut(&self.weather()) {
            return true;
        }
        let arrives = self.percent(50);
        let _ = self.changed.subscribe().wait_for(|weather| !cut(weather)).await;
        arrives
    }

    /// Something that a server tells on its own: it takes its time, and nothing is left out.
    pub async fn bring(&self, resource: &str) {
        sleep(self.delay()).await;
        let comes = |weather: &Weather| !weather.answers_cut && !weather.silent.contains(&resource);
        let _ = self.changed.subscribe().wait_for(comes).await;
    }

    /// Each event of a watch that is behind takes its time, until it is not behind any more.
    pub async fn lag(&self, resource: &str) {
        if !self.weather().behind.contains(&resource) {
            return;
        }
        let lasts = Duration::from_millis(u64::try_from(self.below(BEHIND)).unwrap_or(0));
        let mut changed = self.changed.subscribe();
        let caught_up = changed.wait_for(|weather| !weather.behind.contains(&resource));
        let _ = tokio::time::timeout(lasts, caught_up).await;
    }
}

//! A Lease that the candidates of an election hold themselves, and that lictor only reads.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use lictor_core::{FollowedLock, Instant, LONGEST_IDENTITY, LockHolder, NotHeld, Timestamp, Version};
use lictor_kubernetes::{Change, changes, failure, list_at, version_of};
use lictor_process::{monotonic, nap_until};

/// The first pause after an unanswered question. It doubles with each further one, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The longest time for which lictor believes a holder that does not renew its Lease, whatever the Lease says: L3.
const LONGEST: Duration = Duration::from_secs(300);

/// Follows one Lease. `timeout` bounds each request. The stream reports each renewal, too.
pub fn follow_lease(
    client: &Client,
    namespace: &str,
    name: &str,
    timeout: Duration,
) -> BoxStream<'static, FollowedLock> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let own = ListParams::default().fields(&format!("metadata.name={name}"));
    let watch = changes("leases", Some(namespace.to_owned()), api.clone(), own.clone(), |lease: Lease| lease);
    let seen = Seen::default();
    let follower =
        Follower { api, own, timeout, watch, seen, broken: false, unanswered: 0, not_before: Instant::default() };
    unfold(follower, |mut follower| async move { Some((follower.next().await, follower)) }).boxed()
}

struct Follower {
    api: Api<Lease>,
    /// Selects the Lease.
    own: ListParams,
    timeout: Duration,
    watch: BoxStream<'static, Change<Lease>>,
    seen: Seen,
    /// Whether the watch has failed since its last report. The Lease itself may still be readable, so the follower asks for it as often as
    /// the watch fails.
    broken: bool,
    /// The number of questions in a row that had no answer.
    unanswered: u32,
    /// When the next question may be sent. Only an answer ends the pause, because the end of the Lease stays in the past until then.
    not_before: Instant,
}

impl Follower {
    async fn next(&mut self) -> FollowedLock {
        loop {
            let due = if self.broken { Some(self.not_before) } else { self.seen.ends() };
            let due = due.map(|due| due.max(self.not_before));
            let change = tokio::select! {
                biased;
                change = self.watch.next() => change,
                () = until(due) => return self.ask().await,
            };
            let told = match change {
                Some(Change::All(_, at, leases)) => self.seen.hear(at, leases.first(), monotonic()),
                Some(Change::Applied(lease)) => self.seen.hear(version_of(&lease), Some(&lease), monotonic()),
                Some(Change::Deleted(lease)) => self.seen.hear(version_of(&lease), None, monotonic()),
                // A new list follows.
                Some(Change::Rewound(_)) => {
                    self.seen = Seen::default();
                    None
                }
                Some(Change::Broken(..)) | None => {
                    self.broken = true;
                    continue;
                }
                Some(Change::Resumed(_)) => None,
            };
            self.broken = false;
            if let Some(lock) = told {
                return lock;
            }
        }
    }

    /// F4: asks the API server, because a silent watch proves nothing. It asks for a list, because only a list says as of which version
    /// there is no such Lease.
    async fn ask(&mut self) -> FollowedLock {
        let sent = monotonic();
        match list_at(self.timeout, &self.api, &self.own).await {
            Ok((at, leases)) => {
                (self.broken, self.unanswered, self.not_before) = (false, 0, Instant::default());
                self.seen.read(at, leases.first(), sent, monotonic())
            }
            Err(error) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << self.unanswered.min(8)).min(LONGEST_PAUSE);
                self.unanswered = self.unanswered.saturating_add(1);
                self.not_before = monotonic() + pause;
                FollowedLock::Unknown(failure("list", "leases", &error).text().to_owned())
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    let Some(due) = due else { return std::future::pending().await };
    nap_until(due).await;
}

/// The observations of a Lease, and when they began to hold.
#[derive(Debug, Default)]
struct Seen {
    /// The version of the API server's store as of which this is known. A watch that resumes after a read reports earlier changes once
    /// more.
    at: Version,
    version: Version,
    /// When this version was first seen, by this process's clock.
    since: Instant,
    /// How long the holder counts without a renewal.
    lasts: Option<Duration>,
    /// F4: whether the API server has confirmed that the holder did not renew the Lease.
    expired: bool,
}

impl Seen {
    /// When the holder no longer counts, unless it renews the Lease.
    fn ends(&self) -> Option<Instant> {
        Some(self.since + self.lasts?).filter(|_| !self.expired)
    }

    /// Takes the Lease as the watch shows it as of a version. Returns `None` if something newer is known.
    fn hear(&mut self, at: Version, lease: Option<&Lease>, now: Instant) -> Option<FollowedLock> {
        (at >= self.at).then(|| self.take(at, lease, now))
    }

    /// Takes the Lease as the API server had it when it was asked, or later. Because one question is answered at a time, a lower version
    /// than before means that the API server's store was restored to an earlier state. Then nothing that was seen before counts.
    fn read(&mut self, at: Version, lease: Option<&Lease>, sent: Instant, now: Instant) -> FollowedLock {
        if at < self.at {
            *self = Self::default();
        }
        match self.take(at, lease, now) {
            FollowedLock::Held(_) if self.ends().is_some_and(|end| end <= sent) => {
                self.expired = true;
                FollowedLock::Free(NotHeld::Expired)
            }
            lock => lock,
        }
    }

    fn take(&mut self, at: Version, lease: Option<&Lease>, now: Instant) -> FollowedLock {
        let Some(lease) = lease else {
            *self = Self { at, ..Self::default() };
            return FollowedLock::Free(NotHeld::Absent);
        };
        let version = version_of(lease);
        if version != self.version {
            *self = Self { version, since: now, ..Self::default() };
        }
        self.at = at;
        let spec = lease.spec.clone().unwrap_or_default();
        let Some(identity) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
            self.lasts = None;
            return FollowedLock::Free(NotHeld::Released);
        };
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        self.lasts = seconds.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds).min(LONGEST));
        if self.expired {
            return FollowedLock::Free(NotHeld::Expired);
        }
        let since = spec.acquire_time.map(|time| Timestamp(time.0.as_millisecond()));
        let transitions = spec.lease_transitions.map(i64::from);
        let identity = identity.chars().take(LONGEST_IDENTITY).collect();
        let tenure = format!("{transitions:?} {:?}", since.map(|since| since.0));
        FollowedLock::Held(LockHolder { identity, address: None, tenure, version, transitions, since })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use lictor_process::{spawn_in, virtual_process};
    use serde_json::{Value, json};

    use super::*;

    fn lease(version: u64, spec: &Value) -> Value {
        json!({"metadata": {"name": "l", "resourceVersion": version.to_string()}, "spec": spec})
    }

    fn by(holder: &str, version: u64) -> Value {
        lease(version, &json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3}))
    }

    fn held(version: u64) -> Value {
        by("web-1_x", version)
    }

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    /// What the watch tells of a Lease.
    fn hear(seen: &mut Seen, lease: &Value, now: Instant) -> Option<FollowedLock> {
        let lease: Lease = serde_json::from_value(lease.clone()).unwrap();
        seen.hear(version_of(&lease), Some(&lease), now)
    }

    /// What the API server answers, as of a version.
    fn read(seen: &mut Seen, at: u64, lease: &Value, now: Instant) -> FollowedLock {
        seen.read(Version(at), Some(&serde_json::from_value(lease.clone()).unwrap()), now, now)
    }

    fn is_held(lock: &FollowedLock) -> bool {
        matches!(lock, FollowedLock::Held(_))
    }

    /// Shows F4.
    #[test]
    fn a_lease_that_is_not_renewed_is_over_only_when_the_api_server_says_so() {
        let mut seen = Seen::default();
        let is_told = |lock: Option<FollowedLock>| lock.as_ref().is_some_and(is_held);
        assert!(is_told(hear(&mut seen, &held(1), at(100))));
        assert_eq!(seen.ends(), Some(at(115)));
        assert!(is_told(hear(&mut seen, &held(2), at(110))), "it was renewed");
        assert_eq!(seen.ends(), Some(at(125)));
        assert!(is_told(hear(&mut seen, &held(2), at(130))), "a watch that begins again shows what it showed");
        assert!(is_held(&read(&mut seen, 3, &held(3), at(131))), "the watch was late");
        let early: Lease = serde_json::from_value(held(3)).unwrap();
        let early = seen.read(Version(3), Some(&early), at(145), at(147));
        assert!(is_held(&early), "when it was asked for, its holder had time to renew it");
        assert_eq!(read(&mut seen, 3, &held(3), at(147)), FollowedLock::Free(NotHeld::Expired));
        assert_eq!(seen.ends(), None);
        assert_eq!(hear(&mut seen, &held(3), at(147)), Some(FollowedLock::Free(NotHeld::Expired)));
        assert!(is_told(hear(&mut seen, &held(4), at(148))), "somebody took it");
    }

    /// Shows F4.
    #[test]
    fn what_a_watch_tells_late_makes_no_holder_younger() {
        let mut seen = Seen::default();
        hear(&mut seen, &held(2), at(100));
        assert!(is_held(&read(&mut seen, 9, &held(3), at(110))));
        assert_eq!((hear(&mut seen, &held(2), at(120)), seen.ends()), (None, Some(at(125))));
        assert_eq!((seen.hear(Version(8), None, at(121)), seen.ends()), (None, Some(at(125))), "a late deletion");
        assert_eq!(read(&mut seen, 12, &held(3), at(125)), FollowedLock::Free(NotHeld::Expired));
        assert_eq!(hear(&mut seen, &held(2), at(126)), None);
        // One that is gone as of a version does not come back by what was before.
        assert_eq!(seen.read(Version(20), None, at(130), at(130)), FollowedLock::Free(NotHeld::Absent));
        assert_eq!(hear(&mut seen, &held(15), at(131)), None);
        // Only an answer can say that the store was put back.
        assert!(is_held(&read(&mut seen, 7, &held(3), at(140))));
        assert_eq!(seen.ends(), Some(at(155)));
    }

    #[test]
    fn a_lease_says_who_holds_it() {
        let mut seen = Seen::default();
        let Some(FollowedLock::Held(holder)) = hear(&mut seen, &held(7), at(0)) else { panic!("it is held") };
        let LockHolder { identity, version, transitions, .. } = holder;
        assert_eq!((identity.as_str(), version, transitions), ("web-1_x", Version(7), Some(3)));
        for free in [json!({}), json!({"holderIdentity": "", "leaseDurationSeconds": 1})] {
            assert_eq!(read(&mut seen, 8, &lease(8, &free), at(50)), FollowedLock::Free(NotHeld::Released));
            assert_eq!(seen.ends(), None);
        }
        assert_eq!(seen.hear(Version(8), None, at(60)), Some(FollowedLock::Free(NotHeld::Absent)));
        // Some programs never say how long it lasts.
        let endless = lease(9, &json!({"holderIdentity": "web-1"}));
        assert!(is_held(&read(&mut seen, 9, &endless, at(999))));
        assert_eq!(seen.ends(), None);
        let long = lease(10, &json!({"holderIdentity": "web-1", "leaseDurationSeconds": 100_000}));
        hear(&mut seen, &long, at(1000));
        assert_eq!(seen.ends(), Some(at(1300)));
    }

    /// What a request is about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Asks {
        /// The watch lists.
        List,
        /// The watch continues.
        Watch,
        /// The Lease is read.
        Read,
    }

    fn asks(request: &Request<Body>) -> Asks {
        let query = request.uri().query().unwrap_or_default();
        match query {
            _ if query.contains("watch=") => Asks::Watch,
            _ if query.contains("limit=") => Asks::List,
            _ => Asks::Read,
        }
    }

    fn list(at: u64, lease: &Value) -> Value {
        json!({"metadata": {"resourceVersion": at.to_string()}, "items": [lease]})
    }

    /// Follows a Lease for some virtual seconds at an API server that answers like this: 1 ms later, or not at all. Returns what is told.
    async fn told_within<F>(seconds: u64, answer: F) -> Vec<FollowedLock>
    where
        F: Fn(Asks) -> Option<(StatusCode, String)> + Clone + Send + Sync + 'static,
    {
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answer(asks(&request));
            async move {
                let Some((code, body)) = answer else { return std::future::pending().await };
                tokio::time::sleep(Duration::from_millis(1)).await;
                let answer = Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap();
                Ok::<_, Infallible>(answer)
            }
        });
        let (client, told) = (Client::new(service, "shop"), Arc::<Mutex<Vec<FollowedLock>>>::default());
        let heard = told.clone();
        let following = spawn_in(&virtual_process(), async move {
            let mut followed = follow_lease(&client, "shop", "l", Duration::from_secs(5));
            while let Some(lock) = followed.next().await {
                heard.lock().unwrap().push(lock);
            }
        });
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        following.abort();
        std::mem::take(&mut *told.lock().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_to_be_asked_is_asked_less_and_less_often() {
        for code in [StatusCode::TOO_MANY_REQUESTS, StatusCode::FORBIDDEN] {
            let (begun, refused) = (tokio::time::Instant::now(), Arc::<Mutex<Vec<Duration>>>::default());
            let noted = refused.clone();
            let spec = json!({"holderIdentity": "web-1", "leaseDurationSeconds": 1});
            let answer = move |asks| match asks {
                Asks::List => Some((StatusCode::OK, list(5, &lease(5, &spec)).to_string())),
                // It no longer reports anything, and this is said after 20 s, too.
                Asks::Watch => None,
                Asks::Read => {
                    noted.lock().unwrap().push(begun.elapsed());
                    Some((code, json!({"kind": "Status", "status": "Failure", "code": code.as_u16()}).to_string()))
                }
            };
            let told = told_within(60, answer).await;
            let refused = refused.lock().unwrap().clone();
            assert!((5..=20).contains(&refused.len()), "{code}: {} within a minute", refused.len());
            let close = refused.windows(3).find(|three| three[2] < three[0] + Duration::from_secs(1));
            assert_eq!(close, None, "{code}: no more than two within a second");
            let unknown = told.iter().filter(|lock| matches!(lock, FollowedLock::Unknown(_))).count();
            assert_eq!(unknown, refused.len(), "each is told once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_fails_and_is_late_does_not_bring_an_earlier_holder_back() {
        let watches = Arc::<Mutex<u32>>::default();
        let event = |kind: &str, object: &Value| json!({"type": kind, "object": object}).to_string() + "\n";
        let late = event("MODIFIED", &by("b", 6)) + &event("DELETED", &by("b", 7)) + &event("ADDED", &by("c", 8));
        let news = event("MODIFIED", &by("d", 9)) + &event("MODIFIED", &by("e", 10));
        let answer = move |asks| {
            let mut watches = watches.lock().unwrap();
            *watches += u32::from(asks == Asks::Watch);
            match (asks, *watches) {
                (Asks::Watch, 1) => Some((StatusCode::INTERNAL_SERVER_ERROR, "{}".to_owned())),
                (Asks::Watch, 2) => Some((StatusCode::OK, late.clone() + &news)),
                (Asks::Watch, _) => None,
                (Asks::List, 0) => Some((StatusCode::OK, list(5, &by("a", 5)).to_string())),
                (Asks::List | Asks::Read, _) => Some((StatusCode::OK, list(9, &by("d", 9)).to_string())),
            }
        };
        let told = told_within(5, answer).await;
        let holders = told.iter().map(|lock| match lock {
            FollowedLock::Held(holder) => holder.identity.as_str(),
            _ => "nobody",
        });
        assert_eq!(holders.collect::<Vec<_>>(), ["a", "d", "d", "e"]);
    }
}

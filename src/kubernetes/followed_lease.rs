//! A Lease that the candidates of an election hold themselves: it is only read.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use lictor_core::{FollowedLock, Instant, LONGEST_IDENTITY, LockHolder, NotHeld, Timestamp, Version};

use super::{Change, changes, failure, version_of, within};
use crate::process::{monotonic, nap};

/// How long to wait before a Lease is asked for again that can't be read. While its watch does not work, it is asked for as often as the
/// watch fails.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest time for which a holder that does not renew its Lease is believed, whatever the Lease says: L3.
const LONGEST: Duration = Duration::from_secs(300);

/// Follows one Lease. `timeout` bounds each request. Each renewal is told, too.
pub fn follow_lease(
    client: &Client,
    namespace: &str,
    name: &str,
    timeout: Duration,
) -> BoxStream<'static, FollowedLock> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let own = ListParams::default().fields(&format!("metadata.name={name}"));
    let watch = changes("leases", Some(namespace.to_owned()), api.clone(), own, |lease: Lease| lease);
    let (name, seen) = (name.to_owned(), Seen::default());
    let follower = Follower { api, name, timeout, watch, seen, asks: None };
    unfold(follower, |mut follower| async move { Some((follower.next().await, follower)) }).boxed()
}

struct Follower {
    api: Api<Lease>,
    name: String,
    timeout: Duration,
    watch: BoxStream<'static, Change<Lease>>,
    seen: Seen,
    /// When the Lease is asked for, besides the watch.
    asks: Option<Instant>,
}

impl Follower {
    async fn next(&mut self) -> FollowedLock {
        loop {
            let due = [self.asks, self.seen.ends()].into_iter().flatten().min();
            let change = tokio::select! {
                biased;
                change = self.watch.next() => change,
                () = until(due) => return self.ask().await,
            };
            match change {
                Some(Change::All(_, _, leases)) => return self.see(leases.into_iter().next().as_ref(), false),
                Some(Change::Applied(lease)) => return self.see(Some(&lease), false),
                Some(Change::Deleted(_)) => return self.see(None, false),
                // A new list follows.
                Some(Change::Rewound(_)) => self.seen = Seen::default(),
                // The Lease itself may well be readable.
                Some(Change::Broken(..)) | None => self.asks = Some(monotonic()),
            }
        }
    }

    fn see(&mut self, lease: Option<&Lease>, asked: bool) -> FollowedLock {
        self.asks = None;
        self.seen.see(lease, asked, monotonic())
    }

    /// F4: a watch that is silent proves nothing, so the API server is asked.
    async fn ask(&mut self) -> FollowedLock {
        match within(self.timeout, self.api.get_opt(&self.name)).await {
            Ok(lease) => self.see(lease.as_ref(), true),
            Err(error) => {
                self.asks = Some(monotonic() + AGAIN);
                FollowedLock::Unknown(failure("get", "leases", &error).text().to_owned())
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    let Some(due) = due else { return std::future::pending().await };
    loop {
        let now = monotonic();
        if now >= due {
            return;
        }
        nap(due.since(now)).await;
    }
}

/// What was seen of a Lease, and since when.
#[derive(Debug, Default)]
struct Seen {
    version: Version,
    /// When this version was first seen, by this process's clock.
    since: Instant,
    /// How long its holder counts without a renewal.
    lasts: Option<Duration>,
    /// F4: the API server has confirmed that it was not renewed.
    expired: bool,
}

impl Seen {
    /// When the holder counts no more, unless it renews the Lease.
    fn ends(&self) -> Option<Instant> {
        Some(self.since + self.lasts?).filter(|_| !self.expired)
    }

    /// Takes the Lease as it is. `asked`: as the API server has it now, and not as a watch shows it.
    fn see(&mut self, lease: Option<&Lease>, asked: bool, now: Instant) -> FollowedLock {
        let Some(lease) = lease else {
            *self = Self::default();
            return FollowedLock::Free(NotHeld::Absent);
        };
        let version = version_of(lease);
        if version != self.version {
            *self = Self { version, since: now, lasts: None, expired: false };
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let Some(identity) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
            self.lasts = None;
            return FollowedLock::Free(NotHeld::Released);
        };
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        self.lasts = seconds.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds).min(LONGEST));
        if self.expired || (asked && self.ends().is_some_and(|end| end <= now)) {
            self.expired = true;
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
    use serde_json::{Value, json};

    use super::*;

    fn lease(version: u64, spec: &Value) -> Lease {
        let lease = json!({"metadata": {"name": "l", "resourceVersion": version.to_string()}, "spec": spec});
        serde_json::from_value(lease).unwrap()
    }

    fn held(version: u64) -> Lease {
        lease(version, &json!({"holderIdentity": "web-1_x", "leaseDurationSeconds": 15, "leaseTransitions": 3}))
    }

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    /// Shows F4.
    #[test]
    fn a_lease_that_is_not_renewed_is_over_only_when_the_api_server_says_so() {
        let mut seen = Seen::default();
        let is_held = |lock: FollowedLock| matches!(lock, FollowedLock::Held(_));
        assert!(is_held(seen.see(Some(&held(1)), false, at(100))));
        assert_eq!(seen.ends(), Some(at(115)));
        assert!(is_held(seen.see(Some(&held(2)), false, at(110))), "it was renewed");
        assert_eq!(seen.ends(), Some(at(125)));
        assert!(is_held(seen.see(Some(&held(2)), false, at(130))), "a watch that begins again shows what it showed");
        assert!(is_held(seen.see(Some(&held(3)), true, at(131))), "the watch was late");
        assert_eq!(seen.see(Some(&held(3)), true, at(146)), FollowedLock::Free(NotHeld::Expired));
        assert_eq!(seen.ends(), None);
        assert_eq!(seen.see(Some(&held(3)), false, at(147)), FollowedLock::Free(NotHeld::Expired));
        assert!(is_held(seen.see(Some(&held(4)), false, at(148))), "somebody took it");
    }

    #[test]
    fn a_lease_says_who_holds_it() {
        let mut seen = Seen::default();
        let FollowedLock::Held(holder) = seen.see(Some(&held(7)), false, at(0)) else { panic!("it is held") };
        let LockHolder { identity, version, transitions, .. } = holder;
        assert_eq!((identity.as_str(), version, transitions), ("web-1_x", Version(7), Some(3)));
        for free in [json!({}), json!({"holderIdentity": "", "leaseDurationSeconds": 1})] {
            assert_eq!(seen.see(Some(&lease(8, &free)), true, at(50)), FollowedLock::Free(NotHeld::Released));
            assert_eq!(seen.ends(), None);
        }
        assert_eq!(seen.see(None, false, at(60)), FollowedLock::Free(NotHeld::Absent));
        // Some programs never say how long it lasts.
        let endless = lease(9, &json!({"holderIdentity": "web-1"}));
        assert!(matches!(seen.see(Some(&endless), true, at(999)), FollowedLock::Held(_)));
        assert_eq!(seen.ends(), None);
        let long = lease(10, &json!({"holderIdentity": "web-1", "leaseDurationSeconds": 100_000}));
        seen.see(Some(&long), false, at(1000));
        assert_eq!(seen.ends(), Some(at(1300)));
    }
}

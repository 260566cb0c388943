//! Programs that elect themselves by crates/locks.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_locks::consul::{ConsulLock, ConsulLockSettings, Home};
use lictor_locks::{HeldLock, Lock, Released};
use lictor_testing::consul::Consul;
use tokio::time::timeout;

use super::ours;

const TTL: Duration = Duration::from_secs(10);

fn lock(consul: &Consul, identity: &str) -> Lock {
    let settings = ConsulLockSettings {
        key: "self-elected/leader".into(),
        identity: identity.into(),
        session: format!("self-elected/{identity}"),
        home: Home::Node { name: "self-elected".into(), address: "127.0.0.1".into(), meta: BTreeMap::new() },
        ttl: TTL,
        lock_delay: Duration::from_secs(1),
        renew_every: Duration::from_secs(3),
        advertise: None,
        node: None,
    };
    ConsulLock::start(ours::client(consul), settings, identity.into())
}

async fn acquired(lock: &mut Lock) -> HeldLock {
    let acquired = timeout(Duration::from_secs(60), lock.acquired()).await;
    acquired.unwrap_or_else(|_| panic!("not within a minute: {:?}", lock.state())).expect("its keeper lives")
}

#[tokio::test]
async fn of_programs_that_elect_themselves_one_leads_at_a_time() {
    let consul = Consul::shared();
    let mut one = lock(consul, "one");
    let first = acquired(&mut one).await;
    let mut other = lock(consul, "other");
    while other.state().other.is_none_or(|leader| leader.name != "one") {
        timeout(TTL, other.changed()).await.expect("it hears of the leader").expect("its keeper lives");
    }
    assert!(timeout(TTL * 2, one.lost(first)).await.is_err(), "it is renewed");
    assert_eq!(other.state().held, None);

    assert_eq!(one.release(TTL).await, Released::Confirmed);
    let second = acquired(&mut other).await;
    assert!(second.term > first.term, "{second:?}, {first:?}");

    // Nobody knows what still relies on it, so the next one has to wait until its session ends.
    let mut one = lock(consul, "one");
    drop(other);
    assert!(timeout(TTL / 2, one.acquired()).await.is_err(), "it was not released");
    let third = acquired(&mut one).await;
    assert!(third.term > second.term, "{third:?}, {second:?}");

    consul.api().delete("/v1/kv/self-elected/leader").await.unwrap();
    timeout(TTL / 2, one.lost(third)).await.expect("it hears at once that a person has deleted the key");
    let fourth = acquired(&mut one).await;
    assert!(fourth.term > third.term, "{fourth:?}, {third:?}");
}

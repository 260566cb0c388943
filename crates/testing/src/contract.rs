//! The contract of [`LockStore`], as tests. Each adapter's own test file runs them.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use lictor::store::{LockStore, Owner, SharedLocks, StoreEvent};
use lictor_core::{Bid, Holder, Key, PlacedBid, Record, RecordOutcome, Scope, Stored, Term, Timestamp, Uid, Version};
use serde_json::json;

/// A store, and the effects of other programs on its content.
#[allow(async_fn_in_trait, reason = "nobody else implements it")]
pub trait World {
    fn store(&self) -> &dyn LockStore;
    /// Returns the store of another cluster that shares the locks, if the store can be shared.
    fn other(&self) -> Option<&dyn LockStore> {
        None
    }
    /// Ends a session, as the expiry of its TTL does.
    async fn end_session(&self, id: &str) {
        unreachable!("there is no session {id}");
    }
    /// Returns the key of the lock with this name.
    fn key(&self, name: &str) -> Key;
    /// Returns the election that owns the locks.
    fn owner(&self) -> Owner;
    /// Writes a value under a key as a program other than lictor.
    async fn put_foreign(&self, key: &Key);
    /// Edits the present record as a person would, in one of [`WAYS`](Self::WAYS) ways.
    async fn damage(&self, key: &Key, way: usize);
    /// The number of ways.
    const WAYS: usize;
}

/// The tests of the contract. Each runs in a world that this expression makes from the test's name.
#[macro_export]
macro_rules! contract {
    ($world:expr) => {
        $crate::contract!(@each $world;
            a_record_is_created_only_where_there_is_none,
            a_record_is_replaced_only_at_the_version_that_was_read,
            of_many_writers_at_one_version_one_wins,
            a_record_is_deleted_only_at_its_version,
            versions_rise_over_deletions,
            a_record_is_read_as_it_was_written,
            a_record_that_names_the_same_leader_has_another_version,
            a_watch_tells_what_there_is_and_every_change_in_the_end,
            what_somebody_else_made_is_left_alone,
            an_edited_record_is_reported_and_can_be_replaced,
            a_lock_is_handed_to_another_cluster_in_one_transaction,
            a_bid_is_no_lock_and_goes_when_nobody_waits_for_it,
        );
    };
    (@each $world:expr; $($test:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let world = ($world)(stringify!($test)).await;
                $crate::contract::$test(&world).await;
            }
        )*
    };
}

/// Returns a record of this term that uses every field.
pub fn record(owner: &Owner, term: i64, pod: Option<&str>) -> Record {
    let scope = |app: &str| -> Scope {
        serde_json::from_value(json!({
            "selector": {"matchLabels": {"app": app}},
            "leader": {"labels": {"role": "leader"}}, "follower": {"labels": {"role": "follower"}},
        }))
        .expect("a scope")
    };
    Record {
        leaving: Vec::new(),
        term: Term(term),
        term_by_version: false,
        holder: pod.map(|pod| Holder {
            pod: Some(pod.into()),
            uid: Uid(format!("uid of {pod}")),
            node: Some("node".into()),
            ip: Some("10.0.0.1".into()),
        }),
        operator_id: "lictor.dev/operator#test".into(),
        since: Timestamp(1_700_000_000_123),
        election: owner.uid.clone(),
        election_name: owner.name.clone(),
        generation: 3,
        scope: scope("web"),
        former: vec![scope("old")],
        drain_obligation: None,
        switchover: None,
        offer: None,
    }
}

fn version(outcome: &RecordOutcome) -> Version {
    let RecordOutcome::Written(version) = outcome else { panic!("not written: {outcome:?}") };
    *version
}

/// One lock in a world.
struct Lock<'a, W> {
    world: &'a W,
    key: Key,
    owner: Owner,
}

impl<'a, W: World> Lock<'a, W> {
    fn new(world: &'a W, name: &str) -> Self {
        Self { world, key: world.key(name), owner: world.owner() }
    }

    async fn write(&self, expected: Option<Version>, term: i64, pod: Option<&str>) -> RecordOutcome {
        self.world.store().write(&self.key, &self.owner, expected, &record(&self.owner, term, pod)).await
    }

    async fn read(&self) -> Stored {
        self.world.store().read(&self.key).await.expect("it can be read")
    }

    async fn delete(&self, version: Version) -> RecordOutcome {
        self.world.store().delete(&self.key, version).await
    }

    async fn holds(&self, version: Version, term: i64, pod: Option<&str>) {
        assert_eq!(self.read().await, Stored::Ours(version, record(&self.owner, term, pod)));
    }
}

pub async fn a_record_is_created_only_where_there_is_none(world: &impl World) {
    let lock = Lock::new(world, "web");
    assert_eq!(lock.read().await, Stored::Absent);
    let first = version(&lock.write(None, 1, Some("a")).await);
    lock.holds(first, 1, Some("a")).await;
    assert_eq!(lock.write(None, 2, Some("b")).await, RecordOutcome::Conflict);
    lock.holds(first, 1, Some("a")).await;
    assert_eq!(Lock::new(world, "other").read().await, Stored::Absent, "another key is another lock");
}

pub async fn a_record_is_replaced_only_at_the_version_that_was_read(world: &impl World) {
    let lock = Lock::new(world, "web");
    assert_eq!(lock.write(Some(Version(1)), 1, Some("a")).await, RecordOutcome::Conflict, "there is none to replace");
    assert_eq!(lock.read().await, Stored::Absent);
    let first = version(&lock.write(None, 1, Some("a")).await);
    let second = version(&lock.write(Some(first), 2, Some("b")).await);
    assert!(second > first);
    for stale in [first, Version(first.0 - 1), Version(second.0 + 1_000_000)] {
        assert_eq!(lock.write(Some(stale), 3, Some("c")).await, RecordOutcome::Conflict);
    }
    lock.holds(second, 2, Some("b")).await;
}

pub async fn of_many_writers_at_one_version_one_wins(world: &impl World) {
    let lock = Lock::new(world, "web");
    let mut expected = None;
    for round in 0..5 {
        let pods: Vec<String> = (0..8).map(|writer| format!("pod-{round}-{writer}")).collect();
        let writers = pods.iter().map(|pod| lock.write(expected, round, Some(pod)));
        let outcomes = futures::future::join_all(writers).await;
        let won: Vec<_> =
            outcomes.iter().zip(&pods).filter(|(outcome, _)| **outcome != RecordOutcome::Conflict).collect();
        let [(outcome, pod)] = won.as_slice() else { panic!("not one: {outcomes:?}") };
        lock.holds(version(outcome), round, Some(pod)).await;
        expected = Some(version(outcome));
    }
}

pub async fn a_record_is_deleted_only_at_its_version(world: &impl World) {
    let lock = Lock::new(world, "web");
    let first = version(&lock.write(None, 1, Some("a")).await);
    let second = version(&lock.write(Some(first), 2, Some("b")).await);
    assert_eq!(lock.delete(first).await, RecordOutcome::Conflict);
    lock.holds(second, 2, Some("b")).await;
    assert_eq!(lock.delete(second).await, RecordOutcome::Written(second));
    assert_eq!(lock.read().await, Stored::Absent);
    assert_eq!(lock.delete(second).await, RecordOutcome::Written(second), "what is gone is a success");
    assert_eq!(lock.write(Some(second), 3, Some("c")).await, RecordOutcome::Conflict, "what is gone can't be replaced");
}

/// B5.
pub async fn versions_rise_over_deletions(world: &impl World) {
    let lock = Lock::new(world, "web");
    let mut last = Version(0);
    for term in 0..3 {
        let created = version(&lock.write(None, term, None).await);
        assert!(created > last);
        last = version(&lock.write(Some(created), term, Some("a")).await);
        assert!(last > created);
        lock.delete(last).await;
    }
}

pub async fn a_record_is_read_as_it_was_written(world: &impl World) {
    let lock = Lock::new(world, "web");
    let mut at = version(&lock.write(None, 1, Some("a")).await);
    // The lock is released and acquired again. Its term stays while it has no holder.
    for (term, pod) in [(1, None), (2, Some("b")), (2, None), (i32::MAX.into(), Some("c"))] {
        at = version(&lock.write(Some(at), term, pod).await);
        lock.holds(at, term, pod).await;
    }
    let empty = Record {
        holder: None,
        former: Vec::new(),
        drain_obligation: None,
        switchover: None,
        offer: None,
        scope: Scope::default(),
        operator_id: String::new(),
        ..record(&lock.owner, 0, None)
    };
    let written = version(&world.store().write(&lock.key, &lock.owner, Some(at), &empty).await);
    assert_eq!(lock.read().await, Stored::Ours(written, empty));
}

pub async fn a_record_that_names_the_same_leader_has_another_version(world: &impl World) {
    let lock = Lock::new(world, "web");
    for pod in [Some("a"), None] {
        let before = lock.read().await.version();
        let first = version(&lock.write(before, 1, pod).await);
        let amended = Record { former: Vec::new(), ..record(&lock.owner, 1, pod) };
        let second = version(&world.store().write(&lock.key, &lock.owner, Some(first), &amended).await);
        assert!(second > first);
        assert_eq!(lock.read().await, Stored::Ours(second, amended.clone()));
        assert_eq!(lock.write(Some(first), 1, pod).await, RecordOutcome::Conflict);
    }
}

/// Returns a bid that answers this version of a lock.
fn bid(owner: &Owner, saw: Version) -> Bid {
    Bid { switchover: Uid("uid of switchover".into()), saw, eligible: true, record: record(owner, 1, None) }
}

/// Waits until a store's watch reports these bids for a lock.
async fn bids_of(
    watch: &mut BoxStream<'static, StoreEvent>,
    key: &Key,
    are: impl Fn(&[PlacedBid]) -> bool,
) -> Vec<PlacedBid> {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
        match event.expect("the watch tells something").expect("the watch goes on") {
            StoreEvent::Bids(of, bids) if of == *key && are(&bids) => return bids,
            _ => {}
        }
    }
}

fn shared(store: &dyn LockStore) -> &dyn SharedLocks {
    store.shared().expect("clusters share it")
}

/// Shows C11, and B6.
pub async fn a_lock_is_handed_to_another_cluster_in_one_transaction(world: &impl World) {
    let (lock, store) = (Lock::new(world, "web"), world.store());
    let held = version(&lock.write(None, 1, None).await);
    let Some(other) = world.other() else {
        assert!(store.shared().is_none(), "it is tested with another cluster");
        return;
    };
    let mut watch = store.watch();
    let first = version(&shared(other).bid(&lock.key, &lock.owner, &bid(&lock.owner, Version(1))).await);
    let early = bids_of(&mut watch, &lock.key, |bids| bids.iter().any(|bid| bid.version == first)).await.remove(0);
    let second = version(&shared(other).bid(&lock.key, &lock.owner, &bid(&lock.owner, held)).await);
    assert!(second > first);
    let placed = bids_of(&mut watch, &lock.key, |bids| bids.iter().any(|bid| bid.version == second)).await.remove(0);
    assert_eq!((placed.bid.clone(), placed.cluster.as_str()), (bid(&lock.owner, held), "east"));
    let given = Record { operator_id: "given".into(), ..placed.bid.record.clone() };
    // The lock or the bid has changed, or that session holds nothing.
    let nobody = PlacedBid { session: None, ..placed.clone() };
    for (at, to) in [(Version(held.0 - 1), &placed), (held, &early), (held, &nobody)] {
        assert_eq!(shared(store).give(&lock.key, at, to, &given).await, RecordOutcome::Conflict);
        lock.holds(held, 1, None).await;
    }
    let at = version(&shared(store).give(&lock.key, held, &placed, &given).await);
    assert!(at > held);
    assert_eq!(other.read(&lock.key).await, Ok(Stored::Ours(at, given.clone())));
    let Stored::HeldByOther(seen, rival) = lock.read().await else { panic!("it is the other cluster's") };
    assert_eq!((seen, rival.cluster.as_deref(), Some(rival.session)), (at, Some("east"), placed.session.clone()));
    bids_of(&mut watch, &lock.key, <[_]>::is_empty).await;
    // The same request again, too late.
    assert_eq!(shared(store).give(&lock.key, held, &placed, &given).await, RecordOutcome::Conflict);
    let after = version(&other.write(&lock.key, &lock.owner, Some(at), &record(&lock.owner, 2, Some("b"))).await);
    assert!(after > at, "who was given it goes on with it");

    // The lock is handed back to a session that has ended meanwhile.
    let free = version(&other.write(&lock.key, &lock.owner, Some(after), &record(&lock.owner, 2, None)).await);
    let mut watch = other.watch();
    let third = version(&shared(store).bid(&lock.key, &lock.owner, &bid(&lock.owner, free)).await);
    let placed = bids_of(&mut watch, &lock.key, |bids| bids.iter().any(|bid| bid.version == third)).await.remove(0);
    world.end_session(placed.session.as_deref().expect("a session holds it")).await;
    let refused = shared(other).give(&lock.key, free, &placed, &given).await;
    assert!(!matches!(refused, RecordOutcome::Written(_)), "{refused:?}");
    assert_eq!(other.read(&lock.key).await, Ok(Stored::Ours(free, record(&lock.owner, 2, None))));
    let ended = bids_of(&mut watch, &lock.key, |bids| bids.iter().all(|bid| bid.session.is_none())).await.remove(0);
    assert!(ended.version > placed.version, "C12: a bid ends with its session");
    assert_eq!(shared(other).give(&lock.key, free, &ended, &given).await, RecordOutcome::Conflict);
}

/// Shows C12.
pub async fn a_bid_is_no_lock_and_goes_when_nobody_waits_for_it(world: &impl World) {
    let (lock, store) = (Lock::new(world, "web"), world.store());
    let held = version(&lock.write(None, 1, None).await);
    let Some(other) = world.other() else { return };
    let placed = version(&shared(other).bid(&lock.key, &lock.owner, &bid(&lock.owner, held)).await);
    let all = store.locks_of(&lock.owner.namespace, &lock.owner.uid, None).await.expect("they can be listed");
    assert_eq!(all.iter().map(|(key, _)| key).collect::<Vec<_>>(), [&lock.key]);
    assert_eq!(other.locks_of(&lock.owner.namespace, &lock.owner.uid, None).await, Ok(Vec::new()));
    let mut watch = store.watch();
    let told = next(&mut watch).await;
    let StoreEvent::All(_, _, told) = told else { panic!("not a list first: {told:?}") };
    assert_eq!(told.len(), 1, "{told:?}");
    bids_of(&mut watch, &lock.key, |bids| bids.len() == 1).await;
    let again = version(&shared(other).bid(&lock.key, &lock.owner, &bid(&lock.owner, placed)).await);
    assert_eq!(
        shared(store).remove_bid(&lock.key, "east", placed).await,
        RecordOutcome::Conflict,
        "it says something else"
    );
    assert_eq!(shared(store).remove_bid(&lock.key, "east", again).await, RecordOutcome::Written(again));
    bids_of(&mut watch, &lock.key, <[_]>::is_empty).await;
    lock.holds(held, 1, None).await;
}

async fn next(watch: &mut BoxStream<'static, StoreEvent>) -> StoreEvent {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
        match event.expect("the watch tells something").expect("the watch goes on") {
            // This is about the holder's validity, not about the locks.
            StoreEvent::LockValidity(..) | StoreEvent::Elsewhere(..) | StoreEvent::Bids(..) => {}
            event => return event,
        }
    }
}

pub async fn a_watch_tells_what_there_is_and_every_change_in_the_end(world: &impl World) {
    let (lock, other) = (Lock::new(world, "web"), Lock::new(world, "other"));
    let first = version(&lock.write(None, 1, Some("a")).await);
    let gone = version(&other.write(None, 1, Some("x")).await);
    other.delete(gone).await;
    let mut watch = world.store().watch();
    let told = next(&mut watch).await;
    let StoreEvent::All(scope, at, all) = told else { panic!("not a list first: {told:?}") };
    assert!(scope.contains(&lock.key), "{scope:?}");
    assert!(at >= first, "{at}");
    assert_eq!(all, [(lock.key.clone(), first, Stored::Ours(first, record(&lock.owner, 1, Some("a"))))]);

    let second = version(&lock.write(Some(first), 2, None).await);
    let third = version(&lock.write(Some(second), 3, Some("b")).await);
    let created = version(&other.write(None, 1, Some("y")).await);
    lock.delete(third).await;
    let (mut versions, mut latest) = (vec![first], Stored::Absent);
    let mut other_told = None;
    loop {
        let told = next(&mut watch).await;
        let StoreEvent::Changed(key, at, stored) = told else { panic!("not a change: {told:?}") };
        if key == other.key {
            other_told = Some((at, stored));
        } else {
            assert!(stored.version().is_none_or(|version| version == at));
            versions.push(at);
            latest = stored;
        }
        if other_told.is_some() && latest == Stored::Absent && versions.last() > Some(&third) {
            break;
        }
    }
    assert!(versions.is_sorted_by(|one, other| one < other), "{versions:?}");
    assert_eq!(other_told, Some((created, Stored::Ours(created, record(&other.owner, 1, Some("y"))))));
}

/// C16.
pub async fn what_somebody_else_made_is_left_alone(world: &impl World) {
    let lock = Lock::new(world, "web");
    // This must also hold if this project once had a lock of that name.
    let ours = version(&lock.write(None, 1, Some("a")).await);
    lock.delete(ours).await;
    world.put_foreign(&lock.key).await;
    let foreign = lock.read().await;
    let Stored::Foreign(what) = &foreign else { panic!("not foreign: {foreign:?}") };
    assert!(!what.is_empty());
    assert_eq!(foreign.version(), None, "there is no version that it could be replaced at");
    assert_eq!(lock.write(None, 2, Some("b")).await, RecordOutcome::Conflict);
    assert_eq!(lock.write(Some(ours), 2, Some("b")).await, RecordOutcome::Conflict);
    assert_eq!(lock.delete(ours).await, RecordOutcome::Conflict);
    assert_eq!(lock.read().await, foreign);
}

pub async fn an_edited_record_is_reported_and_can_be_replaced<W: World>(world: &W) {
    for way in 0..W::WAYS {
        let lock = Lock::new(world, &format!("web-{way}"));
        let written = version(&lock.write(None, 1, Some("a")).await);
        world.damage(&lock.key, way).await;
        let stored = lock.read().await;
        let Stored::Damaged(version_now, hint) = stored else { panic!("way {way}: not damaged: {stored:?}") };
        assert!(version_now > written, "way {way}");
        assert!(hint >= Term(1), "way {way}: the term is still to be seen: {hint}");
        assert_eq!(lock.write(Some(written), 2, Some("b")).await, RecordOutcome::Conflict, "way {way}");
        let again = version(&lock.write(Some(version_now), 2, Some("b")).await);
        lock.holds(again, 2, Some("b")).await;
    }
}

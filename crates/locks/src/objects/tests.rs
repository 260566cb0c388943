//! Keepers and their keys in a store that fails as the test says, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lictor_core::{Failure, LockSession, LockValidity, RecordOutcome, SessionObject, Version};
use lictor_objects::{Asked, Fault, Memory, Object, Objects, Put};
use lictor_process::{monotonic, spawn, spawn_in, virtual_process};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{KeyObject, ObjectKeeper, ObjectKeys, ObjectSettings};
use crate::{Entry, Refusals, Refused, Role, Sessions};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(15);

/// A keeper, and a listener to its keys.
struct Cluster {
    keys: ObjectKeys,
    sessions: watch::Receiver<Sessions>,
    role: watch::Sender<Role>,
    refusals: Arc<Refusals>,
    keeper: JoinHandle<()>,
    listener: JoinHandle<()>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.keeper.abort();
        self.listener.abort();
    }
}

impl Cluster {
    fn new(memory: &Arc<Memory>, name: &str, role: Role) -> Self {
        let settings = ObjectSettings {
            cluster: name.into(),
            installation: format!("installation-{name}"),
            writer: format!("writer-{name}"),
            ttl: TTL,
            poll: SECOND,
        };
        let (role, roles) = watch::channel(role);
        let (keeper, keys, sessions) = ObjectKeeper::new(memory.clone(), settings, monotonic);
        let refusals = keeper.refusals();
        let listening = keys.clone();
        let listener = spawn(async move {
            let mut index = 0;
            loop {
                match listening.wait(index).await {
                    Ok((next, _)) => index = next,
                    Err(_) => sleep(SECOND / 10).await,
                }
            }
        });
        Self { keys, sessions, role, refusals, keeper: spawn(keeper.run(roles)), listener }
    }

    /// Waits until the session is relied on. Returns its name.
    async fn session(&mut self) -> String {
        let kept = |now: &Sessions| matches!(now.validity, LockValidity::Until(_));
        let kept = timeout(60 * SECOND, self.sessions.wait_for(kept)).await.expect("a session is kept").unwrap();
        kept.ids[0].clone().expect("it has a name")
    }

    async fn hold(&self, key: &str, expected: Option<Version>, session: &str) -> RecordOutcome {
        self.keys.hold(key, expected, b"{}", session, &[session.to_owned()]).await
    }

    /// Waits until a key is free, and returns how long it has taken.
    async fn free(&self, key: &str) -> Duration {
        let began = monotonic();
        loop {
            let entry = self.keys.list().await.ok().and_then(|all| all.into_iter().find(|entry| entry.key == key));
            if entry.is_some_and(|entry| entry.session.is_none()) {
                return monotonic().since(began);
            }
            sleep(SECOND / 4).await;
            assert!(monotonic().since(began) < 120 * SECOND, "it is never free");
        }
    }

    fn relies(&self) -> bool {
        matches!(self.sessions.borrow().validity, LockValidity::Until(until) if monotonic() < until)
    }
}

async fn virtually(test: impl Future<Output = ()> + Send + 'static) {
    spawn_in(&virtual_process(), test).await.unwrap();
}

/// Writes an object over whatever is there.
async fn write(memory: &Memory, name: &str, content: Vec<u8>) {
    let tag = memory.get(name).await.unwrap().map(|object| object.tag);
    assert!(matches!(memory.put(name, tag.as_ref(), content).await, Put::Done(_)), "{name}");
}

fn session(id: &str, ended: bool) -> Vec<u8> {
    let object = SessionObject {
        id: id.into(),
        installation: "elsewhere".into(),
        writer: "x".into(),
        renewals: 0,
        ttl_milliseconds: 15_000,
        ended,
    };
    serde_json::to_vec(&object).unwrap()
}

fn lock(version: u64, holder: Option<(&str, &str)>) -> Vec<u8> {
    let session = holder.map(|(cluster, id)| LockSession { cluster: cluster.into(), id: id.into() });
    KeyObject { version, created: version, session, value: Some(json!({})) }.to_bytes()
}

fn version(outcome: &RecordOutcome) -> Version {
    let RecordOutcome::Written(version) = outcome else { panic!("{outcome:?}") };
    *version
}

/// B1 to B3.
#[tokio::test(start_paused = true)]
async fn another_cluster_takes_a_lock_once_its_holder_can_no_longer_rely_on_it() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let (mut west, mut east) =
            (Cluster::new(&memory, "west", Role::Acting(1)), Cluster::new(&memory, "east", Role::Acting(1)));
        let (near, far) = (west.session().await, east.session().await);
        let held = version(&west.hold("a", None, &near).await);
        sleep(40 * SECOND).await;
        let entry = east.keys.read("a").await.unwrap().unwrap();
        assert_eq!((entry.session.as_deref(), entry.version), (Some(near.as_str()), held));
        assert_eq!(east.hold("a", Some(held), &far).await, RecordOutcome::Conflict);
        west.keeper.abort();
        let until = west.sessions.borrow().validity;
        let took = east.free("a").await;
        assert!(LockValidity::Until(monotonic()) > until, "the holder relies on it until {until:?}");
        assert!(took < 2 * TTL + 2 * SECOND, "{took:?}");
        let free = east.keys.read("a").await.unwrap().unwrap();
        assert_eq!(free.version, Version(held.0 + 1), "it has another version without its holder");
        assert!(version(&east.hold("a", Some(free.version), &far).await) > free.version);
        assert_eq!(east.keys.clusters(), [("west".to_owned(), false)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_leaves_frees_its_locks_at_once_and_a_replica_that_stands_by_ends_nothing() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let (mut west, mut east) =
            (Cluster::new(&memory, "west", Role::Acting(1)), Cluster::new(&memory, "east", Role::Acting(1)));
        let (near, _) = (west.session().await, east.session().await);
        version(&west.hold("a", None, &near).await);
        let beside = Cluster::new(&memory, "west", Role::Standby);
        sleep(SECOND).await;
        beside.role.send(Role::Leave).unwrap();
        sleep(20 * SECOND).await;
        assert!(west.relies() && west.sessions.borrow().ids[0].as_ref() == Some(&near), "the acting replica keeps it");
        west.role.send(Role::Leave).unwrap();
        let took = east.free("a").await;
        assert!(took < TTL / 2, "{took:?}");
    })
    .await;
}

/// B4: the session was read before the lock.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_read_while_a_look_was_under_way_is_not_judged_by_what_that_look_found() {
    for (slow, before, after) in [
        ("locks/z.json", lock(1, None), lock(2, None)),
        ("sessions/south.json", session("s.0", false), session("s.1", false)),
    ] {
        virtually(async move {
            let memory = Arc::new(Memory::default());
            write(&memory, "sessions/west.json", session("w.0", false)).await;
            write(&memory, slow, before).await;
            let mut east = Cluster::new(&memory, "east", Role::Acting(1));
            let far = east.session().await;
            memory.faults(move |asked| (*asked == Asked::Get(slow)).then_some(Fault::Slow(8 * SECOND)));
            write(&memory, slow, after).await;
            sleep(6 * SECOND).await;
            write(&memory, "sessions/west.json", session("w.0", true)).await;
            write(&memory, "sessions/west.json", session("w.1", false)).await;
            write(&memory, "locks/a.json", lock(3, Some(("west", "w.1")))).await;
            for _ in 0..20 {
                let entry = east.keys.read("a").await.unwrap().unwrap();
                assert_eq!(entry.session.as_deref(), Some("west/w.1"), "it is live");
                assert_eq!(east.hold("a", Some(entry.version), &far).await, RecordOutcome::Conflict);
                sleep(SECOND / 2).await;
            }
        })
        .await;
    }
}

/// Its session is gone, for example because a person deleted it.
#[tokio::test(start_paused = true)]
async fn a_lock_whose_session_has_no_object_becomes_free() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        write(&memory, "locks/a.json", lock(1, Some(("west", "w.0")))).await;
        memory.faults(|asked| (*asked == Asked::List).then_some(Fault::Slow(SECOND)));
        let east = Cluster::new(&memory, "east", Role::Acting(1));
        let entry = east.keys.read("a").await.unwrap().unwrap();
        assert_eq!(entry.session.as_deref(), Some("west/w.0"), "it was read before the first poll");
        let took = east.free("a").await;
        assert!(took >= TTL, "its owner may rely on it: {took:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_other_programs_stay_as_they_are() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let others =
            ["sessions/cart.json", "sessions/a/b.json", "locks/x.json", "locks/x", "sessions.json", "y/locks/z.json"];
        for name in others {
            write(&memory, name, b"{\"items\": 3}".to_vec()).await;
        }
        let mut east = Cluster::new(&memory, "east", Role::Acting(1));
        east.session().await;
        sleep(5 * TTL).await;
        for name in others {
            assert_eq!(memory.get(name).await.unwrap().unwrap().content, b"{\"items\": 3}", "{name}");
        }
        assert_eq!(east.keys.clusters(), []);
        let locks = east.keys.list().await.unwrap();
        assert_eq!(locks.iter().map(|entry| (entry.key.as_str(), entry.is_lock)).collect::<Vec<_>>(), [("x", false)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_a_person_wrote_over_is_ended_while_a_lock_names_it() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        write(&memory, "sessions/west.json", b"oops".to_vec()).await;
        let east = Cluster::new(&memory, "east", Role::Acting(1));
        sleep(2 * TTL).await;
        assert_eq!(memory.get("sessions/west.json").await.unwrap().unwrap().content, b"oops");
        write(&memory, "locks/a.json", lock(1, Some(("west", "w.0")))).await;
        let took = east.free("a").await;
        assert!(took >= TTL, "its owner may rely on it: {took:?}");
    })
    .await;
}

/// A request of an election must not wait for ever for what nobody does any more.
#[tokio::test(start_paused = true)]
async fn keys_whose_keeper_is_gone_can_no_longer_be_listed() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let mut west = Cluster::new(&memory, "west", Role::Acting(1));
        west.session().await;
        let keys = west.keys.clone();
        memory.faults(|asked| (*asked == Asked::List).then_some(Fault::Slow(5 * SECOND)));
        let waiting = keys.clone();
        let under_way = spawn(async move { waiting.list().await });
        sleep(SECOND).await;
        drop(west);
        let failed = timeout(SECOND, under_way).await.expect("it does not hang").unwrap();
        assert!(matches!(failed, Err(Failure::Refused(_))), "{failed:?}");
        let failed = timeout(SECOND, keys.list()).await.expect("it does not hang");
        assert!(matches!(failed, Err(Failure::Refused(_))), "{failed:?}");
    })
    .await;
}

/// B6.
#[tokio::test(start_paused = true)]
async fn a_replica_relies_on_its_session_once_it_has_looked_into_the_store_since_it_acts() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = lists.clone();
        memory.faults(move |asked| {
            (*asked == Asked::List).then(|| {
                let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
                Fault::Slow(if first { 20 * SECOND } else { SECOND })
            })
        });
        let mut west = Cluster::new(&memory, "west", Role::Standby);
        sleep(15 * SECOND).await;
        assert_eq!(lists.load(Ordering::SeqCst), 1, "it hangs");
        west.role.send(Role::Acting(1)).unwrap();
        west.session().await;
        assert_eq!(lists.load(Ordering::SeqCst), 2);
    })
    .await;
}

/// Shows L7.
#[tokio::test(start_paused = true)]
async fn a_keeper_that_acts_by_another_takeover_relies_on_nothing_from_before() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let mut west = Cluster::new(&memory, "west", Role::Acting(1));
        let session = west.session().await;
        memory.faults(|asked| (*asked == Asked::List).then_some(Fault::Slow(10 * SECOND)));
        let told = tokio::time::Instant::now();
        west.role.send(Role::Acting(2)).unwrap();
        let begun = timeout(SECOND, west.sessions.wait_for(|now| now.takeover == 2)).await.unwrap().unwrap().clone();
        assert_eq!(begun.validity, LockValidity::Unknown);
        assert_eq!(west.session().await, session, "it is the same session");
        assert!(told.elapsed() >= 10 * SECOND, "{:?}", told.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_of_the_keys_before_the_session_is_relied_on() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        write(&memory, "locks/a.json", lock(1, None)).await;
        let mut west = Cluster::new(&memory, "west", Role::Acting(1));
        west.listener.abort();
        let kept = |now: &Sessions| matches!(now.validity, LockValidity::Until(_));
        assert!(timeout(30 * SECOND, west.sessions.wait_for(kept)).await.is_err(), "nobody listens");
        let (index, entries) = west.keys.wait(0).await.unwrap();
        assert_eq!(entries.len(), 1);
        assert!(!west.relies(), "it has not taken them yet");
        let keys = west.keys.clone();
        let listener = spawn(async move { keys.wait(index).await });
        west.session().await;
        listener.abort();
    })
    .await;
}

/// A read of one key tells nothing of the others.
#[tokio::test(start_paused = true)]
async fn a_listener_waits_for_the_first_look_while_keys_are_read() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        write(&memory, "locks/a.json", lock(1, None)).await;
        memory.faults(|asked| (*asked == Asked::List).then_some(Fault::Slow(5 * SECOND)));
        let west = Cluster::new(&memory, "west", Role::Standby);
        let keys = west.keys.clone();
        let listener = spawn(async move { keys.wait(0).await });
        sleep(SECOND).await;
        west.keys.read("a").await.unwrap();
        let told = timeout(10 * SECOND, listener).await.unwrap().unwrap();
        assert!(told.is_ok(), "{told:?}");
    })
    .await;
}

/// What was read before the time was over need not be read again.
#[tokio::test(start_paused = true)]
async fn more_keys_than_can_be_read_in_the_time_of_one_look_are_read_in_several() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        for number in 0..1000 {
            write(&memory, &format!("locks/{number}.json"), lock(1, None)).await;
        }
        memory.faults(|asked| {
            matches!(asked, Asked::Get(name) if name.starts_with("locks/")).then_some(Fault::Slow(SECOND))
        });
        let mut west = Cluster::new(&memory, "west", Role::Acting(1));
        let kept = |now: &Sessions| matches!(now.validity, LockValidity::Until(_));
        timeout(120 * SECOND, west.sessions.wait_for(kept)).await.expect("all are read").unwrap();
        assert_eq!(west.keys.list().await.unwrap().len(), 1000);
    })
    .await;
}

/// C15.
#[tokio::test(start_paused = true)]
async fn a_session_that_holds_what_may_not_be_written_ends_and_the_next_one_is_kept() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let (mut west, mut east) =
            (Cluster::new(&memory, "west", Role::Acting(1)), Cluster::new(&memory, "east", Role::Acting(1)));
        let (near, _) = (west.session().await, east.session().await);
        for key in ["a", "b"] {
            version(&west.hold(key, None, &near).await);
        }
        memory.faults(|asked| (*asked == Asked::Put("locks/a.json")).then_some(Fault::Forbidden));
        for key in ["a", "b"] {
            west.refusals.tell(Refused { key: key.into(), beside: None, session: near.clone() });
        }
        let took = east.free("a").await;
        assert!(took >= TTL, "{took:?}");
        let next = west.session().await;
        assert_ne!(next, near);
        for _ in 0..10 {
            sleep(TTL / 3).await;
            assert!(west.relies(), "it holds nothing that may not be written");
            assert_eq!(west.sessions.borrow().ids[0].as_ref(), Some(&next));
            assert!(west.sessions.borrow().denied.is_some(), "it is still told");
        }
        memory.faults(|_| None);
        sleep(60 * SECOND).await;
        assert_eq!(west.sessions.borrow().denied, None);
    })
    .await;
}

/// C15: the trial writes what is there already.
#[tokio::test(start_paused = true)]
async fn a_trial_of_a_right_changes_no_version() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let mut west = Cluster::new(&memory, "west", Role::Acting(1));
        let near = west.session().await;
        let held = version(&west.hold("a", None, &near).await);
        west.refusals.tell(Refused { key: "a".into(), beside: None, session: near.clone() });
        sleep(10 * SECOND).await;
        let entry = west.keys.read("a").await.unwrap().unwrap();
        assert_eq!(entry.version, held);
        assert!(version(&west.hold("a", Some(held), &near).await) > held);
    })
    .await;
}

/// A write with an unknown outcome is neither a failure nor a success.
#[tokio::test(start_paused = true)]
async fn a_lock_whose_write_arrives_late_is_found() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let mut west = Cluster::new(&memory, "west", Role::Acting(1));
        let near = west.session().await;
        memory.faults(|asked| (*asked == Asked::Put("locks/a.json")).then_some(Fault::Held));
        let outcome = west.hold("a", None, &near).await;
        assert!(matches!(outcome, RecordOutcome::Failed(Failure::Unknown(_))), "{outcome:?}");
        assert_eq!(west.keys.read("a").await, Ok(None));
        memory.deliver();
        memory.faults(|_| None);
        assert_eq!(west.hold("a", None, &near).await, RecordOutcome::Conflict);
        let Entry { session, version: found, .. } = west.keys.read("a").await.unwrap().unwrap();
        assert_eq!(session.as_ref(), Some(&near));
        assert!(version(&west.hold("a", Some(found), &near).await) > found);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_deleted_is_made_anew_under_a_higher_version() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let mut west = Cluster::new(&memory, "west", Role::Acting(1));
        let near = west.session().await;
        let held = version(&west.hold("a", None, &near).await);
        let stale = memory.get("locks/a.json").await.unwrap().unwrap();
        assert_eq!(west.keys.delete("a", held).await, RecordOutcome::Written(held));
        assert_eq!((west.keys.read("a").await, west.keys.list().await), (Ok(None), Ok(vec![])));
        let again = version(&west.hold("a", None, &near).await);
        assert!(again > held);
        let late = memory.put("locks/a.json", Some(&stale.tag), stale.content).await;
        assert_eq!(late, Put::Conflict, "a write that expects the deleted one");
        let released = version(&west.keys.release("a", again).await);
        let entry = west.keys.read("a").await.unwrap().unwrap();
        assert_eq!((entry.session, entry.version), (None, released));
    })
    .await;
}

/// A poll hangs while a session has to be renewed, and another one to be ended.
#[tokio::test(start_paused = true)]
async fn a_look_that_hangs_keeps_nothing_else_from_happening() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let (mut west, mut east) =
            (Cluster::new(&memory, "west", Role::Acting(1)), Cluster::new(&memory, "east", Role::Acting(1)));
        let (near, _) = (west.session().await, east.session().await);
        version(&west.hold("a", None, &near).await);
        sleep(2 * SECOND).await;
        west.keeper.abort();
        memory.faults(|asked| (*asked == Asked::List).then_some(Fault::Slow(Duration::from_secs(3600))));
        for _ in 0..60 {
            sleep(SECOND).await;
            assert!(east.relies());
        }
        let Object { content, .. } = memory.get("sessions/west.json").await.unwrap().unwrap();
        assert!(serde_json::from_slice::<SessionObject>(&content).unwrap().ended);
    })
    .await;
}

/// Two keepers of one cluster: the old one wakes up, and finds that the other one has gone on.
#[tokio::test(start_paused = true)]
async fn replicas_that_take_turns_keep_one_session() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        let (mut one, mut two) =
            (Cluster::new(&memory, "west", Role::Acting(1)), Cluster::new(&memory, "west", Role::Standby));
        let first = one.session().await;
        for _ in 0..5 {
            for (here, there) in [(&one, &two), (&two, &one)] {
                here.role.send(Role::Standby).unwrap();
                there.role.send(Role::Acting(1)).unwrap();
                sleep(SECOND * 3).await;
                assert!(there.relies() && !here.relies());
                assert_eq!(there.sessions.borrow().ids[0].as_ref(), Some(&first));
            }
        }
        two.role.send(Role::Acting(1)).unwrap();
        sleep(60 * SECOND).await;
        assert!(one.relies() && two.relies(), "both renew it");
        assert_eq!(two.session().await, first);
    })
    .await;
}

/// Returns the requests of two clusters, one of which has a standby, in an hour with so many locks: reads, writes and listings.
async fn requests(locks: usize) -> [usize; 3] {
    let memory = Arc::new(Memory::default());
    let counts: Arc<[AtomicUsize; 3]> = Arc::default();
    let counting = counts.clone();
    memory.faults(move |asked| {
        let kind = match asked {
            Asked::Get(_) => 0,
            Asked::Put(_) => 1,
            Asked::List => 2,
        };
        counting[kind].fetch_add(1, Ordering::Relaxed);
        None
    });
    let mut west = Cluster::new(&memory, "west", Role::Acting(1));
    let others =
        [("west", Role::Standby), ("east", Role::Acting(1))].map(|(name, role)| Cluster::new(&memory, name, role));
    let session = west.session().await;
    for lock in 0..locks {
        version(&west.hold(&format!("shop/{lock}"), None, &session).await);
    }
    sleep(60 * SECOND).await;
    let count = || [0, 1, 2].map(|kind| counts[kind].load(Ordering::Relaxed));
    let before = count();
    sleep(3600 * SECOND).await;
    drop(others);
    std::array::from_fn(|kind| count()[kind] - before[kind])
}

/// docs/bucket.md computes the price from these numbers.
#[tokio::test(start_paused = true)]
async fn the_number_of_requests_does_not_grow_with_the_number_of_locks() {
    virtually(async {
        let (one, many) = (requests(1).await, requests(200).await);
        eprintln!(
            "measured: [reads, writes, listings] of three replicas in an hour: {one:?}; with 200 locks: {many:?}"
        );
        for (one, many) in one.into_iter().zip(many) {
            assert!(one > 0 && one.abs_diff(many) * 20 <= one, "{one} and {many}");
        }
    })
    .await;
}

/// B5. Another cluster has written the state that stands for a session whose object a person has deleted. Its owner may still rely on it.
#[tokio::test(start_paused = true)]
async fn a_lock_of_a_session_whose_object_was_deleted_is_not_free_when_it_is_read() {
    virtually(async {
        let memory = Arc::new(Memory::default());
        write(&memory, "sessions/west.json", session("w.0", false)).await;
        write(&memory, "locks/a.json", lock(1, Some(("west", "w.0")))).await;
        let mut east = Cluster::new(&memory, "east", Role::Acting(1));
        east.session().await;
        let vacant = SessionObject::vacant("east", 7, TTL);
        write(&memory, "sessions/west.json", serde_json::to_vec(&vacant).unwrap()).await;
        let entry = east.keys.read("a").await.unwrap().unwrap();
        assert_eq!(entry.session.as_deref(), Some("west/w.0"));
    })
    .await;
}

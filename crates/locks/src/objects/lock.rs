//! A lock in one object that its holder replaces again and again.

use std::sync::Arc;

use lictor_objects::Objects;

use super::claim::{ClaimInObject, ObjectLockSettings};
use crate::claim::{ClaimUpdate, start};
use crate::lock::{Lock, Problem};

/// A lock in an object: of a bucket, or of any other store that replaces an object only if it has not changed.
pub struct ObjectLock;

impl ObjectLock {
    /// Begins to keep a lock. If the store ignores conditions, this process never gets the lock.
    pub fn start(objects: Arc<dyn Objects>, settings: ObjectLockSettings) -> Lock {
        let (identity, duration, name) = (settings.identity.clone(), settings.duration, settings.name.clone());
        let problem = move |claim: &ClaimUpdate| {
            let taken = claim.owner.as_ref().map(|_| Problem::NotALock { object: name.clone() });
            taken.or_else(|| claim.failure.clone().map(Problem::Failed))
        };
        start(identity, duration, |lock| ClaimInObject::new(objects, settings, lock), problem)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use futures::FutureExt;
    use futures::future::BoxFuture;
    use lictor_core::{Failure, HeldLock};
    use lictor_objects::{Asked, Fault, Listed, Memory, Object, Put, Tag};
    use lictor_process::{monotonic, spawn_in, virtual_process};
    use serde_json::{Value, json};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{LockUpdate, Other, Released};

    const TTL: Duration = Duration::from_secs(15);
    const SECOND: Duration = Duration::from_secs(1);
    const NAME: &str = "report";

    /// The store, as one process reaches it, or does not.
    struct Way {
        memory: Arc<Memory>,
        is_cut: AtomicBool,
        ignores_conditions: bool,
    }

    impl Way {
        fn to(memory: &Arc<Memory>) -> Arc<Self> {
            Arc::new(Self { memory: memory.clone(), is_cut: AtomicBool::new(false), ignores_conditions: false })
        }

        fn cut(&self, cut: bool) {
            self.is_cut.store(cut, Ordering::Relaxed);
        }

        fn failure(&self) -> Option<Failure> {
            self.is_cut.load(Ordering::Relaxed).then(|| Failure::Unknown("no answer".into()))
        }
    }

    impl Objects for Way {
        fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Object>, Failure>> {
            match self.failure() {
                Some(failure) => async { Err(failure) }.boxed(),
                None => self.memory.get(name),
            }
        }

        fn put<'a>(&'a self, name: &'a str, expected: Option<&'a Tag>, content: Vec<u8>) -> BoxFuture<'a, Put> {
            async move {
                if let Some(failure) = self.failure() {
                    return Put::Failed(failure);
                }
                let now = self.memory.get(name).await.ok().flatten().map(|object| object.tag);
                let expected = if self.ignores_conditions { now.as_ref() } else { expected };
                self.memory.put(name, expected, content).await
            }
            .boxed()
        }

        fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Failure>> {
            self.memory.list()
        }
    }

    fn lock(objects: Arc<dyn Objects>, identity: &str) -> Lock {
        let settings = ObjectLockSettings {
            name: NAME.into(),
            identity: identity.into(),
            duration: TTL,
            node: Some(format!("node of {identity}")),
            advertise: None,
        };
        ObjectLock::start(objects, settings)
    }

    async fn acquired(lock: &mut Lock) -> HeldLock {
        timeout(120 * SECOND, lock.acquired()).await.expect("it gets the lock").expect("its keeper lives")
    }

    async fn content(memory: &Memory) -> Option<Value> {
        let object = memory.get(NAME).await.expect("it answers")?;
        Some(serde_json::from_slice(&object.content).expect("it is JSON"))
    }

    /// Writes the object as a person does, whatever is there.
    async fn overwrite(memory: &Memory, content: &[u8]) {
        let tag = memory.get(NAME).await.expect("it answers").map(|object| object.tag);
        assert!(matches!(memory.put(NAME, tag.as_ref(), content.to_vec()).await, Put::Done(_)));
    }

    async fn in_virtual_time(test: impl Future<Output = ()> + Send + 'static) {
        spawn_in(&virtual_process(), test).await.expect("the test passes");
    }

    #[tokio::test(start_paused = true)]
    async fn one_holds_the_lock_and_the_other_one_gets_it_within_a_poll_of_its_release() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let mut first = lock(memory.clone(), "one");
            let held = acquired(&mut first).await;
            let mut second = lock(memory.clone(), "two");
            sleep(4 * TTL).await;
            let state = second.state();
            let leader = state.other.expect("it has read who holds it");
            let Other { name, node, address, term, since } = leader;
            assert_eq!((name.as_str(), node.as_deref(), address), ("one", Some("node of one"), None));
            assert_eq!((term, since.is_some(), state.held), (Some(held.term), true, None));
            assert!(monotonic().since(state.heard.expect("it has read")) <= SECOND, "it polls");
            assert_eq!(content(&memory).await.expect("it is there")["term"], json!(held.term));

            assert_eq!(first.release(TTL).await, Released::Confirmed);
            let released = monotonic();
            let next = acquired(&mut second).await;
            assert!(next.term > held.term && monotonic().since(released) <= SECOND, "{next:?} {released:?}");
        })
        .await;
    }

    /// Shows A8. An object that is missing may have been deleted a moment ago, while its holder runs.
    #[tokio::test(start_paused = true)]
    async fn who_finds_no_object_waits_as_for_a_holder() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let (mut one, began) = (lock(memory.clone(), "one"), monotonic());
            assert!(timeout(TTL * 9 / 10, one.acquired()).await.is_err());
            assert_eq!((one.state().other, one.state().problem), (None, None), "nobody holds it");
            // One that is started again in its place does not forget to wait.
            drop(one);
            acquired(&mut lock(memory.clone(), "one")).await;
            assert!(monotonic().since(began) >= TTL);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_lock_of_who_is_cut_off_is_taken_after_its_validity() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let way = Way::to(&memory);
            let mut first = lock(way.clone(), "one");
            let held = acquired(&mut first).await;
            let mut second = lock(memory.clone(), "two");
            sleep(2 * SECOND).await;
            way.cut(true);
            let cut = monotonic();
            first.lost(held).await;
            let lost = monotonic();
            assert!(lost.since(cut) <= TTL * 4 / 5, "{:?}", lost.since(cut));
            assert!(second.state().held.is_none());
            let next = acquired(&mut second).await;
            let waited = monotonic().since(cut);
            assert!(next.term > held.term && waited >= TTL * 4 / 5 && waited <= TTL + SECOND, "{waited:?}");
            way.cut(false);
            sleep(2 * TTL).await;
            assert_eq!((first.state().held, first.state().problem), (None, None));
        })
        .await;
    }

    /// Shows A8. The holder is cut off at that moment, and the next agent has never seen the object.
    #[tokio::test(start_paused = true)]
    async fn a_deleted_object_makes_no_second_holder() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let way = Way::to(&memory);
            let mut first = lock(way.clone(), "one");
            let held = acquired(&mut first).await;
            way.cut(true);
            memory.delete(NAME);
            let mut second = lock(memory.clone(), "two");
            let until = first.state().held.expect("it relies on the lock").until;
            let next = acquired(&mut second).await;
            assert!(monotonic() >= until && next.term > held.term, "{until:?} {:?} {next:?}", monotonic());
            // A holder that reaches the store notices with its next renewal.
            memory.delete(NAME);
            let deleted = monotonic();
            second.lost(next).await;
            assert!(monotonic().since(deleted) <= TTL / 3);
            assert!(acquired(&mut second).await.term > next.term);
            assert!(monotonic().since(deleted) >= TTL, "another agent may have held it");
        })
        .await;
    }

    /// Shows A8.
    #[tokio::test(start_paused = true)]
    async fn another_programs_object_is_never_written() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let (mut first, mut second) = (lock(memory.clone(), "one"), lock(memory.clone(), "two"));
            let held = tokio::select! {
                held = first.acquired() => held,
                held = second.acquired() => held,
            }
            .expect("one of them gets it");
            overwrite(&memory, b"\"of a case at court\"").await;
            sleep(4 * TTL).await;
            for lock in [&first, &second] {
                let LockUpdate { held, problem, .. } = lock.state();
                assert_eq!((held, problem), (None, Some(Problem::NotALock { object: NAME.into() })));
            }
            assert_eq!(content(&memory).await, Some(json!("of a case at court")));

            memory.delete(NAME);
            drop(first);
            let deleted = monotonic();
            let next = acquired(&mut second).await;
            assert!(next.term > held.term && monotonic().since(deleted) >= TTL);
        })
        .await;
    }

    /// Shows A8.
    #[tokio::test(start_paused = true)]
    async fn a_shorter_time_that_a_person_writes_frees_no_lock() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let way = Way::to(&memory);
            let mut first = lock(way.clone(), "one");
            acquired(&mut first).await;
            let mut second = lock(memory.clone(), "two");
            sleep(TTL).await;
            way.cut(true);
            let until = first.state().held.expect("it relies on the lock").until;
            let mut edited = content(&memory).await.expect("it is there");
            edited["durationSeconds"] = json!(1);
            overwrite(&memory, &serde_json::to_vec(&edited).expect("it is JSON")).await;
            acquired(&mut second).await;
            assert!(monotonic() >= until, "{:?} {until:?}", monotonic());
        })
        .await;
    }

    /// An earlier content that a person puts back is waited for as one that is new.
    #[tokio::test(start_paused = true)]
    async fn an_earlier_state_that_is_put_back_makes_no_second_holder_and_no_lower_term() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let mut first = lock(memory.clone(), "one");
            acquired(&mut first).await;
            let earlier = memory.get(NAME).await.expect("it answers").expect("it is there").content;
            assert_eq!(first.release(TTL).await, Released::Confirmed);
            let mut second = lock(memory.clone(), "two");
            let held = acquired(&mut second).await;
            sleep(2 * TTL).await;
            overwrite(&memory, &earlier).await;
            let back = monotonic();
            second.lost(held).await;
            assert!(monotonic().since(back) <= TTL / 3);
            let next = acquired(&mut second).await;
            assert!(monotonic().since(back) >= TTL && next.term > held.term, "{next:?}");
        })
        .await;
    }

    /// Shows A8.
    #[tokio::test(start_paused = true)]
    async fn a_state_that_comes_back_while_an_agent_is_cut_off_is_waited_for_anew() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let (one, two) = (Way::to(&memory), Way::to(&memory));
            let mut first = lock(one.clone(), "one");
            acquired(&mut first).await;
            let mut second = lock(two.clone(), "two");
            sleep(2 * SECOND).await;
            let earlier = memory.get(NAME).await.expect("it answers").expect("it is there").content;
            two.cut(true);
            sleep(2 * TTL).await;
            one.cut(true);
            let until = first.state().held.expect("it relies on the lock").until;
            overwrite(&memory, &earlier).await;
            two.cut(false);
            acquired(&mut second).await;
            assert!(monotonic() >= until, "{:?} {until:?}", monotonic());
        })
        .await;
    }

    /// B1: what an unknown write has done is read, and the write is not repeated.
    #[tokio::test(start_paused = true)]
    async fn answers_that_are_lost_end_the_lock_in_time_and_late_writes_take_nothing() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let mut first = lock(memory.clone(), "one");
            let held = acquired(&mut first).await;
            for fault in [Fault::Unanswered, Fault::Held, Fault::Lost] {
                let (mut left, fault) = (2, fault.clone());
                memory.faults(move |asked| {
                    (*asked == Asked::Put(NAME) && left > 0).then(|| {
                        left -= 1;
                        fault.clone()
                    })
                });
                sleep(2 * TTL).await;
                memory.deliver();
                assert_eq!(first.state().held.map(|held| held.term), Some(held.term), "it was renewed in between");
            }
            memory.faults(|asked| (*asked == Asked::Put(NAME)).then_some(Fault::Held));
            let until = first.state().held.expect("it holds the lock").until;
            first.lost(held).await;
            assert!(monotonic() <= until + TTL / 3);
            drop(first);
            memory.faults(|_| None);
            let mut second = lock(memory.clone(), "two");
            let next = acquired(&mut second).await;
            memory.deliver();
            sleep(2 * TTL).await;
            assert_eq!(second.state().held.map(|held| held.term), Some(next.term));
        })
        .await;
    }

    /// Shows B7.
    #[tokio::test(start_paused = true)]
    async fn a_store_that_ignores_conditions_is_refused() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let way =
                Way { ignores_conditions: true, ..Arc::into_inner(Way::to(&memory)).expect("it is the only one") };
            let mut one = lock(Arc::new(way), "one");
            assert!(timeout(4 * TTL, one.acquired()).await.is_err());
            let problem = one.state().problem.expect("it says so").to_string();
            assert!(problem.contains("no lock can be held in it"), "{problem}");
            assert_eq!(content(&memory).await, None);
        })
        .await;
    }

    /// Shows A5 and A6.
    #[tokio::test(start_paused = true)]
    async fn who_is_started_again_in_its_place_goes_on_at_once_in_a_higher_term() {
        in_virtual_time(async {
            let memory = Arc::new(Memory::default());
            let mut first = lock(memory.clone(), "one");
            let held = acquired(&mut first).await;
            drop(first);
            let (mut again, began) = (lock(memory.clone(), "one"), monotonic());
            let next = acquired(&mut again).await;
            assert!(next.term > held.term && monotonic().since(began) < SECOND, "{next:?}");
            // A6: the object names the term that the command knows.
            again.acquire_again();
            sleep(TTL).await;
            let higher = again.state().held.expect("it holds the lock").term;
            assert!(higher > next.term);
            assert_eq!(content(&memory).await.expect("it is there")["term"], json!(higher));
        })
        .await;
    }
}

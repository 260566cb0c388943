use futures::FutureExt;
use futures::future::BoxFuture;
use lictor_core::{HeldLock, Instant};
use lictor_objects::{Fault, Metadata, Tag};
use lictor_process::{spawn_in, virtual_process};
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::Released;

const TTL: Duration = Duration::from_secs(15);
const SECOND: Duration = Duration::from_secs(1);
/// The lease of a program that knows nothing of lictor.
const FOREIGN: &str = "00000000-0000-0000-0000-000000000001";

/// What is asked of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Look,
    Acquire,
    Renew,
    Change,
    Release,
    Mark,
}

type Late = Box<dyn FnOnce(&mut State) + Send>;
type Faults = Box<dyn FnMut(Asked) -> Option<Fault> + Send>;

/// A blob in memory, with a lease as Azure's.
#[derive(Default)]
struct Blob {
    state: Mutex<State>,
    faults: Mutex<Option<Faults>>,
    late: Mutex<Vec<Late>>,
}

#[derive(Default)]
struct State {
    exists: bool,
    tag: u64,
    metadata: Metadata,
    id: Option<String>,
    until: Instant,
    duration: Duration,
    is_broken: bool,
}

impl State {
    fn state(&self) -> LeaseState {
        match (&self.id, monotonic() < self.until, self.is_broken) {
            (None, ..) => LeaseState::Available,
            (_, true, false) => LeaseState::Leased,
            (_, false, false) => LeaseState::Expired,
            (_, true, true) => LeaseState::Breaking,
            (_, false, true) => LeaseState::Broken,
        }
    }

    fn has(&self, id: &str) -> bool {
        self.id.as_deref() == Some(id)
    }

    fn lease(&mut self, action: Action<'_>) -> bool {
        let (now, state) = (monotonic(), self.state());
        match action {
            _ if !self.exists => return false,
            Action::Acquire { id, duration } if state.is_free() || (state == LeaseState::Leased && self.has(id)) => {
                (self.id, self.duration, self.until) = (Some(id.into()), duration, now + duration);
                self.is_broken = false;
            }
            Action::Renew { id } if self.has(id) && !self.is_broken => self.until = now + self.duration,
            Action::Change { from, to } if self.has(from) && state == LeaseState::Leased => self.id = Some(to.into()),
            Action::Release { id } if self.has(id) => (self.id, self.is_broken) = (None, false),
            _ => return false,
        }
        true
    }

    fn mark(&mut self, id: &str, expected: &Tag, metadata: &Metadata) -> bool {
        let may = self.has(id) && !self.state().is_free() && expected.0 == self.tag.to_string();
        if may {
            (self.tag, self.metadata) = (self.tag + 1, metadata.clone());
        }
        may
    }
}

impl Blob {
    fn faults(&self, faults: impl FnMut(Asked) -> Option<Fault> + Send + 'static) {
        *self.faults.lock().unwrap() = Some(Box::new(faults));
    }

    /// Does what was held back.
    fn deliver(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        for request in late {
            request(&mut self.state.lock().unwrap());
        }
    }

    fn ask<T>(&self, asked: Asked, request: impl FnOnce(&mut State) -> T + Send + 'static) -> Result<T, Failure> {
        let fault = self.faults.lock().unwrap().as_mut().and_then(|faults| faults(asked));
        let lost = || Failure::Unknown("no answer".into());
        match fault {
            None => Ok(request(&mut self.state.lock().unwrap())),
            Some(Fault::Unanswered) => {
                request(&mut self.state.lock().unwrap());
                Err(lost())
            }
            Some(Fault::Held) => {
                self.late.lock().unwrap().push(Box::new(|state| drop(request(state))));
                Err(lost())
            }
            Some(_) => Err(lost()),
        }
    }

    fn foreign(&self, action: Action<'_>) -> bool {
        self.state.lock().unwrap().lease(action)
    }

    fn mark(&self) -> serde_json::Value {
        let state = self.state.lock().unwrap();
        serde_json::from_str(&state.metadata[MARK]).expect("it is JSON")
    }
}

impl Leases for Blob {
    fn look<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<Option<Leased>, Failure>> {
        let id = id.map(str::to_owned);
        let look = move |state: &mut State| {
            let is_asked_for = id.is_none_or(|id| state.has(&id) && !state.state().is_free());
            let leased =
                Leased { state: state.state(), tag: Tag(state.tag.to_string()), metadata: state.metadata.clone() };
            Some(leased).filter(|_| state.exists && is_asked_for)
        };
        async { self.ask(Asked::Look, look) }.boxed()
    }

    fn create(&self) -> BoxFuture<'_, Result<(), Failure>> {
        async {
            self.state.lock().unwrap().exists = true;
            Ok(())
        }
        .boxed()
    }

    fn lease<'a>(&'a self, action: Action<'a>) -> BoxFuture<'a, Result<bool, Failure>> {
        let owned = |id: &str| id.to_owned();
        let asked = match action {
            Action::Acquire { id, duration } => {
                let id = owned(id);
                self.ask(Asked::Acquire, move |state| state.lease(Action::Acquire { id: &id, duration }))
            }
            Action::Renew { id } => {
                let id = owned(id);
                self.ask(Asked::Renew, move |state| state.lease(Action::Renew { id: &id }))
            }
            Action::Change { from, to } => {
                let (from, to) = (owned(from), owned(to));
                self.ask(Asked::Change, move |state| state.lease(Action::Change { from: &from, to: &to }))
            }
            Action::Release { id } => {
                let id = owned(id);
                self.ask(Asked::Release, move |state| state.lease(Action::Release { id: &id }))
            }
        };
        async { asked }.boxed()
    }

    fn mark<'a>(
        &'a self,
        id: &'a str,
        expected: &'a Tag,
        metadata: &'a Metadata,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        let (id, expected, metadata) = (id.to_owned(), expected.clone(), metadata.clone());
        let asked = self.ask(Asked::Mark, move |state| state.mark(&id, &expected, &metadata));
        async { asked }.boxed()
    }
}

fn lock(blob: &Arc<Blob>, identity: &str) -> Lock {
    let settings = ObjectLockSettings {
        name: "report".into(),
        identity: identity.into(),
        duration: TTL,
        node: None,
        advertise: Some("10.0.0.7:80".into()),
    };
    LeasedObjectLock::start(blob.clone(), settings)
}

async fn acquired(lock: &mut Lock) -> HeldLock {
    timeout(120 * SECOND, lock.acquired()).await.expect("it gets the lock").expect("its keeper lives")
}

async fn in_virtual_time(test: impl Future<Output = ()> + Send + 'static) {
    spawn_in(&virtual_process(), test).await.expect("the test passes");
}

#[tokio::test(start_paused = true)]
async fn one_holds_the_lease_and_the_other_one_gets_it_within_a_poll_of_its_release() {
    in_virtual_time(async {
        let blob = Arc::new(Blob::default());
        let (mut first, began) = (lock(&blob, "one"), monotonic());
        let held = acquired(&mut first).await;
        assert_eq!((monotonic(), held.from), (began, Instant::default()), "no holder has to be waited for");
        let mut second = lock(&blob, "two");
        sleep(4 * TTL).await;
        let other = second.state().other.expect("it has read who holds it");
        assert_eq!(
            (other.name.as_str(), other.address.as_deref(), other.term),
            ("one", Some("10.0.0.7:80"), Some(held.term))
        );
        assert_eq!(blob.mark()["term"], json!(held.term));
        assert_eq!(blob.state.lock().unwrap().tag, 1, "renewals write no metadata");
        assert_eq!(first.release(TTL).await, Released::Confirmed);
        let released = monotonic();
        let next = acquired(&mut second).await;
        assert!(next.term > held.term && monotonic().since(released) <= SECOND, "{next:?} {released:?}");
        // A6: the mark names the term that the command knows.
        second.acquire_again();
        sleep(TTL).await;
        let higher = second.state().held.expect("it holds the lock").term;
        assert!(higher > next.term);
        assert_eq!(blob.mark()["term"], json!(higher));
    })
    .await;
}

/// Shows A9.
#[tokio::test(start_paused = true)]
async fn whoever_only_reads_the_lease_believes_a_name_that_the_store_confirms() {
    in_virtual_time(async {
        let blob = Arc::new(Blob::default());
        let told = async || match holder(&*blob).await.unwrap() {
            FollowedLock::Held(held) => Ok(held.identity),
            FollowedLock::Free(why) => Err(why),
            other => panic!("{other:?}"),
        };
        assert_eq!(told().await, Err(NotHeld::Absent));
        let mut one = lock(&blob, "one");
        acquired(&mut one).await;
        assert_eq!(told().await, Ok("one".into()));
        assert_eq!(one.release(TTL).await, Released::Confirmed);
        assert_eq!(told().await, Err(NotHeld::Released));
        // The name of the one before is still there.
        assert!(blob.foreign(Action::Acquire { id: FOREIGN, duration: TTL }));
        assert_eq!(told().await, Ok("another program".into()));
        sleep(TTL).await;
        assert_eq!(told().await, Err(NotHeld::Expired));
    })
    .await;
}

/// Shows A9. A program that knows nothing of lictor has the lease for a while, and leaves the metadata as they are.
#[tokio::test(start_paused = true)]
async fn a_holder_that_writes_no_name_is_told_by_no_other_name_and_terms_rise_over_it() {
    in_virtual_time(async {
        let blob = Arc::new(Blob::default());
        blob.state.lock().unwrap().metadata.insert("owner".into(), "us".into());
        let mut first = lock(&blob, "one");
        let held = acquired(&mut first).await;
        drop(first);
        let mut second = lock(&blob, "two");
        sleep(2 * SECOND).await;
        assert_eq!(second.state().other.map(|other| other.name), Some("one".to_owned()));
        blob.state.lock().unwrap().until = monotonic();
        assert!(blob.foreign(Action::Acquire { id: FOREIGN, duration: 60 * SECOND }));
        sleep(2 * SECOND).await;
        let state = second.state();
        let told = state.other.map(|other| (other.name, other.address, other.term));
        assert_eq!(told, Some(("another program".to_owned(), None, None)));
        assert!(blob.foreign(Action::Release { id: FOREIGN }));
        let next = acquired(&mut second).await;
        assert!(next.term > held.term);
        assert_eq!(blob.state.lock().unwrap().metadata["owner"], "us", "the metadata of others stay");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_one_has_acquired_is_lost_at_the_next_renewal() {
    in_virtual_time(async {
        let blob = Arc::new(Blob::default());
        let mut first = lock(&blob, "one");
        let held = acquired(&mut first).await;
        // A person ends the lease at once, and another program acquires it.
        blob.state.lock().unwrap().until = monotonic();
        assert!(blob.foreign(Action::Acquire { id: FOREIGN, duration: TTL }));
        let taken = monotonic();
        first.lost(held).await;
        assert!(monotonic().since(taken) <= TTL / 3);
        assert_eq!(first.state().other.map(|other| other.name), Some("another program".to_owned()));
        assert!(acquired(&mut first).await.term > held.term && monotonic().since(taken) >= TTL);
    })
    .await;
}

/// A lease that a person breaks is its holder's until it is broken, and the holder ends before that.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_breaking_is_lost_and_has_a_holder() {
    in_virtual_time(async {
        let blob = Arc::new(Blob::default());
        let (mut first, mut second) = (lock(&blob, "one"), lock(&blob, "two"));
        let held = acquired(&mut first).await;
        sleep(4 * SECOND).await;
        let (broken, until) = {
            let mut state = blob.state.lock().unwrap();
            state.is_broken = true;
            (monotonic(), state.until)
        };
        first.lost(held).await;
        assert!(monotonic().since(broken) <= TTL / 3, "its next renewal shows it");
        tokio::select! {
            _ = acquired(&mut first) => {}
            _ = acquired(&mut second) => {}
        }
        assert!(monotonic() >= until);
    })
    .await;
}

/// Shows A9: an answer that is lost is neither success nor failure.
#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_are_resolved_by_the_id_of_the_lease() {
    in_virtual_time(async {
        for asked in [Asked::Acquire, Asked::Renew, Asked::Mark] {
            for fault in [Fault::Unanswered, Fault::Held, Fault::Lost] {
                let blob = Arc::new(Blob::default());
                let (mut once, mut first) = (Some(fault.clone()), lock(&blob, "one"));
                blob.faults(move |now| if now == asked { once.take() } else { None });
                let began = monotonic();
                let mut held = acquired(&mut first).await;
                assert!(monotonic().since(began) <= 2 * SECOND, "{asked:?} {fault:?}");
                sleep(2 * TTL).await;
                let state = first.state();
                let term = state.held.map(|held| held.term);
                assert_eq!(term, Some(held.term), "{asked:?} {fault:?}: {:?}", state.problem);
                blob.deliver();
                sleep(2 * TTL).await;
                assert_eq!(first.state().held.map(|held| held.term), term, "{asked:?} {fault:?}");
                assert_eq!(blob.mark()["term"], json!(held.term), "{asked:?} {fault:?}");
                // The next holder has a higher term.
                assert_eq!(first.release(TTL).await, Released::Confirmed);
                let last = std::mem::replace(&mut held, acquired(&mut lock(&blob, "two")).await);
                assert!(held.term > last.term);
            }
        }
    })
    .await;
}

/// Shows A9.
#[tokio::test(start_paused = true)]
async fn a_term_is_higher_than_that_of_an_agent_that_came_between_the_look_and_the_lease() {
    in_virtual_time(async {
        let blob = Arc::new(Blob::default());
        let mut first = lock(&blob, "one");
        let held = acquired(&mut first).await;
        assert_eq!(first.release(TTL).await, Released::Confirmed);
        let mut mark = blob.mark();
        let later = held.term.0 + 1000;
        (mark["version"], mark["term"]) = (json!(later), json!(later));
        let between = blob.clone();
        blob.faults(move |asked| {
            if asked == Asked::Acquire {
                between.state.lock().unwrap().metadata.insert(MARK.into(), mark.to_string());
            }
            None
        });
        assert!(acquired(&mut lock(&blob, "two")).await.term.0 > later);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_which_nothing_is_heard_ends_before_another_one_gets_it() {
    in_virtual_time(async {
        let blob = Arc::new(Blob::default());
        let mut first = lock(&blob, "one");
        let held = acquired(&mut first).await;
        sleep(TTL).await;
        blob.faults(|_| Some(Fault::Lost));
        first.lost(held).await;
        let (lost, until) = (monotonic(), blob.state.lock().unwrap().until);
        assert!(lost + TTL / 5 <= until, "{lost:?} {until:?}");
    })
    .await;
}

/// Shows A5, and that a late request of the earlier process ends nothing.
#[tokio::test(start_paused = true)]
async fn who_is_started_again_in_its_place_goes_on_at_once_under_an_id_of_its_own() {
    in_virtual_time(async {
        for lost in [None, Some(Asked::Change)] {
            let blob = Arc::new(Blob::default());
            let mut first = lock(&blob, "one");
            let held = acquired(&mut first).await;
            blob.faults(|asked| (asked == Asked::Release).then_some(Fault::Held));
            assert_eq!(first.release(TTL).await, Released::Unconfirmed);
            let mut once = lost;
            blob.faults(move |asked| if once == Some(asked) { once.take().map(|_| Fault::Unanswered) } else { None });
            let (mut again, began) = (lock(&blob, "one"), monotonic());
            let next = acquired(&mut again).await;
            assert!(next.term > held.term && monotonic().since(began) <= 2 * SECOND, "{next:?}");
            blob.deliver();
            sleep(4 * TTL).await;
            assert_eq!(again.state().held.map(|held| held.term), Some(next.term));
        }
    })
    .await;
}

#[test]
fn a_mark_is_ascii_and_any_other_text_is_none() {
    let leased = |text: &str| Leased {
        state: LeaseState::Leased,
        tag: Tag("1".into()),
        metadata: [(MARK.to_owned(), text.to_owned())].into(),
    };
    let holding = Holding {
        holder: "häuser-7\u{1f3e0}".into(),
        node: None,
        address: Some("a\nb".into()),
        term: Term(3),
        since: wall(),
    };
    let mark = Mark { version: 4, lease: FOREIGN.into(), holding };
    let text = mark.to_text().unwrap();
    assert!(text.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{text}");
    assert_eq!(Mark::of(&leased(&text)), Some(mark.clone()));
    let by_hand = Mark { version: HIGHEST + 1, ..mark }.to_text().unwrap();
    for text in ["", "web-1", "{}", &by_hand] {
        assert_eq!(Mark::of(&leased(text)), None, "{text}");
    }
}

#[test]
fn an_id_is_a_guid_and_never_comes_twice() {
    let (one, two) = (new_id(), new_id());
    assert_ne!(one, two);
    let lengths: Vec<_> = one.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12]);
    assert!(one.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{one}");
}

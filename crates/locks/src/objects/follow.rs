//! A lock in an object that the candidates of an election hold themselves, as `lictor agent --bucket` does, or the object's own lease, and
//! that lictor only reads.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use lictor_core::{Failure, FollowedLock, Instant, NotHeld};
use lictor_objects::{Leases, Object, Objects, Tag};
use lictor_process::{monotonic, nap};
use tokio::time::timeout;

use super::claim::{ClaimObject, State};
use super::leased::holder;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Follows the object of this name by reading it every `poll`. Only what differs from the report before is reported.
pub(super) fn follow(objects: Arc<dyn Objects>, name: String, poll: Duration) -> BoxStream<'static, FollowedLock> {
    let lease = objects.leased(&name);
    let follower = Follower { objects, name, lease, poll, seen: None, told: None };
    unfold(follower, |mut follower| async move { Some((follower.next().await, follower)) }).boxed()
}

struct Follower {
    objects: Arc<dyn Objects>,
    name: String,
    /// The object's own lease, if the store has such.
    lease: Option<Arc<dyn Leases>>,
    poll: Duration,
    /// The version that was seen last, and since when, by this process's own clock.
    seen: Option<(Tag, Instant)>,
    told: Option<FollowedLock>,
}

impl Follower {
    async fn next(&mut self) -> FollowedLock {
        loop {
            if self.told.is_some() {
                nap(self.poll).await;
            }
            let lock = self.ask().await;
            if self.told.as_ref() != Some(&lock) {
                self.told = Some(lock.clone());
                return lock;
            }
        }
    }

    async fn ask(&mut self) -> FollowedLock {
        let sent = monotonic();
        let late = || Failure::Unknown(format!("the store has not answered within {PATIENCE:?}"));
        let answer = timeout(PATIENCE, self.objects.get(&self.name)).await.unwrap_or_else(|_| Err(late()));
        let object = match answer {
            Ok(object) => object,
            Err(failure) => return FollowedLock::Unknown(failure.into_text()),
        };
        match (&self.lease, &object) {
            // What is in an object with a lease is its user's own.
            (Some(lease), Some(object)) if ClaimObject::read(&object.content).is_none() => {
                let answer = timeout(PATIENCE, holder(&**lease)).await.unwrap_or_else(|_| Err(late()));
                answer.unwrap_or_else(|failure| FollowedLock::Unknown(failure.into_text()))
            }
            _ => self.read(object, sent, monotonic()),
        }
    }

    /// Reads what a request has shown that was sent and answered at these moments.
    fn read(&mut self, object: Option<Object>, sent: Instant, answered: Instant) -> FollowedLock {
        let Some(Object { tag, content }) = object else {
            self.seen = None;
            return FollowedLock::Free(NotHeld::Absent);
        };
        let since = match &self.seen {
            Some((seen, since)) if *seen == tag => *since,
            _ => {
                self.seen = Some((tag, answered));
                answered
            }
        };
        let Some(ClaimObject { version, duration_seconds, state, .. }) = ClaimObject::read(&content) else {
            return FollowedLock::Unknown(format!("the object {} is no lock of `lictor agent --bucket`", self.name));
        };
        match state {
            // F4: the holder may have written for as long as the last question was on its way.
            State::Held(_) if sent >= since + Duration::from_secs(duration_seconds) => {
                FollowedLock::Free(NotHeld::Expired)
            }
            State::Held(holding) => FollowedLock::Held(holding.followed(version)),
            State::Released => FollowedLock::Free(NotHeld::Released),
            State::Missing => FollowedLock::Free(NotHeld::Absent),
        }
    }
}

#[cfg(test)]
mod tests {
    use lictor_core::Term;
    use lictor_objects::{Asked, Fault, Memory};
    use lictor_process::{spawn_in, virtual_process};
    use serde_json::json;

    use super::*;

    const NAME: &str = "shop/report";
    const POLL: Duration = Duration::from_secs(1);

    async fn put(memory: &Memory, content: serde_json::Value) {
        let tag = memory.get(NAME).await.unwrap().map(|object| object.tag);
        memory.put(NAME, tag.as_ref(), content.to_string().into()).await;
    }

    fn held(version: u64, holder: &str, term: i64) -> serde_json::Value {
        json!({
            "version": version, "durationSeconds": 10, "written": 0, "state": "held", "holder": holder, "term": Term(term),
            "since": 5, "address": "10.0.0.1:80",
        })
    }

    /// Shows F4.
    #[tokio::test]
    async fn a_holder_counts_until_it_has_not_renewed_for_as_long_as_it_said() {
        let test = async {
            let memory = Arc::new(Memory::default());
            let mut locks = follow(memory.clone(), NAME.into(), POLL);
            assert_eq!(locks.next().await, Some(FollowedLock::Free(NotHeld::Absent)));
            put(&memory, held(1, "web-0", 7)).await;
            let Some(FollowedLock::Held(first)) = locks.next().await else { panic!("it is held") };
            assert_eq!((first.identity.as_str(), first.address.as_deref()), ("web-0", Some("10.0.0.1:80")));
            put(&memory, held(2, "web-0", 7)).await;
            let Some(FollowedLock::Held(renewed)) = locks.next().await else { panic!("it is held") };
            assert_eq!(renewed.tenure, first.tenure);
            let began = monotonic();
            assert_eq!(locks.next().await, Some(FollowedLock::Free(NotHeld::Expired)));
            let waited = monotonic().since(began);
            assert!((10..=11).contains(&waited.as_secs()), "{waited:?}");
            put(&memory, held(3, "web-0", 8)).await;
            let Some(FollowedLock::Held(again)) = locks.next().await else { panic!("it is held") };
            assert_ne!(again.tenure, first.tenure);
            put(&memory, json!({"version": 4, "durationSeconds": 1, "written": 0, "state": "released"})).await;
            assert_eq!(locks.next().await, Some(FollowedLock::Free(NotHeld::Released)));
        };
        spawn_in(&virtual_process(), test).await.unwrap();
    }

    #[tokio::test]
    async fn what_can_not_be_read_is_unknown() {
        let test = async {
            let memory = Arc::new(Memory::default());
            put(&memory, json!("somebody's")).await;
            let mut locks = follow(memory.clone(), NAME.into(), POLL);
            let Some(FollowedLock::Unknown(why)) = locks.next().await else { panic!("it is no lock") };
            assert!(why.contains(NAME) && why.contains("lictor agent"), "{why}");
            memory.faults(|asked| matches!(asked, Asked::Get(_)).then_some(Fault::Unanswered));
            let Some(FollowedLock::Unknown(other)) = locks.next().await else { panic!("it does not answer") };
            assert_ne!(why, other);
        };
        spawn_in(&virtual_process(), test).await.unwrap();
    }
}

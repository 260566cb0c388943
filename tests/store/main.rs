//! The store in memory: the contract of all stores, and the faults that tests and the simulation ask it for.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod contract;

use futures::StreamExt;
use lictor::store::{Fault, LockStore, MemoryStore, Owner, StoreEvent, StoreScope};
use lictor_core::{Failure, Key, Record, RecordOutcome, StoreId, Stored, Term, Uid, Version};

use self::contract::{World, record};

#[derive(Default)]
struct Memory(MemoryStore);

impl World for Memory {
    fn store(&self) -> &dyn LockStore {
        &self.0
    }

    fn key(&self, name: &str) -> Key {
        Key::lease("shop", name)
    }

    fn owner(&self) -> Owner {
        Owner { namespace: "shop".into(), name: "web".into(), uid: Uid("uid of web".into()) }
    }

    async fn put_foreign(&self, key: &Key) {
        self.0.put(key, |_| Stored::Foreign("somebody's".into()));
    }

    async fn damage(&self, key: &Key, _way: usize) {
        self.0.put(key, |version| Stored::Damaged(version, Term(5)));
    }

    const WAYS: usize = 1;
}

fn everything() -> StoreScope {
    StoreScope { store: StoreId::leases(), namespace: None }
}

contract!(|_test| std::future::ready(Memory::default()));

impl Memory {
    fn record(&self, term: i64) -> Record {
        record(&self.owner(), term, Some("a"))
    }

    async fn write(&self, expected: Option<Version>, term: i64) -> RecordOutcome {
        self.0.write(&self.key("web"), &self.owner(), expected, &self.record(term)).await
    }

    async fn read(&self) -> Result<Stored, Failure> {
        self.0.read(&self.key("web")).await
    }

    /// The term that is there; none if there is no record.
    async fn term(&self) -> Option<i64> {
        self.read().await.expect("it can be read").record().map(|record| record.term.0)
    }
}

fn is_unknown(outcome: &RecordOutcome) -> bool {
    matches!(outcome, RecordOutcome::Failed(Failure::Unknown(_)))
}

#[tokio::test]
async fn a_refused_request_is_not_carried_out() {
    let memory = Memory::default();
    memory.0.inject(Fault::Refuse);
    assert!(matches!(memory.write(None, 1).await, RecordOutcome::Failed(Failure::Refused(_))));
    memory.0.inject(Fault::Refuse);
    assert!(matches!(memory.read().await, Err(Failure::Refused(_))));
    assert_eq!(memory.term().await, None);
}

#[tokio::test]
async fn a_lost_request_is_unknown_and_not_carried_out() {
    let memory = Memory::default();
    memory.0.inject(Fault::LoseRequest);
    assert!(is_unknown(&memory.write(None, 1).await));
    assert_eq!(memory.term().await, None);
    assert!(memory.0.deliver_late().is_empty());
}

#[tokio::test]
async fn a_request_with_a_lost_answer_is_unknown_and_carried_out() {
    let memory = Memory::default();
    memory.0.inject(Fault::LoseAnswer);
    assert!(is_unknown(&memory.write(None, 1).await));
    assert_eq!(memory.term().await, Some(1));
    let version = memory.read().await.expect("it can be read").version().expect("there is a record");
    memory.0.inject(Fault::LoseAnswer);
    assert!(is_unknown(&memory.0.delete(&memory.key("web"), version).await));
    assert_eq!(memory.term().await, None);
}

#[tokio::test]
async fn a_delayed_request_is_carried_out_late_and_only_against_its_version() {
    let memory = Memory::default();
    let RecordOutcome::Written(first) = memory.write(None, 1).await else { panic!("not written") };
    for term in [2, 3] {
        memory.0.inject(Fault::Delay);
        assert!(is_unknown(&memory.write(Some(first), term).await));
    }
    memory.0.inject(Fault::Delay);
    assert!(is_unknown(&memory.0.delete(&memory.key("web"), first).await));
    assert_eq!(memory.term().await, Some(1), "nothing is done before it is delivered");
    let outcomes = memory.0.deliver_late();
    assert!(matches!(outcomes[..], [RecordOutcome::Written(_), RecordOutcome::Conflict, RecordOutcome::Conflict]));
    assert_eq!(memory.term().await, Some(2));
    assert!(memory.0.deliver_late().is_empty(), "each is delivered once");
}

#[tokio::test]
async fn an_unanswered_read_is_unknown() {
    let memory = Memory::default();
    for fault in [Fault::LoseRequest, Fault::LoseAnswer, Fault::Delay] {
        memory.0.inject(fault);
        assert!(matches!(memory.read().await, Err(Failure::Unknown(_))), "{fault:?}");
    }
}

#[tokio::test]
async fn faults_come_in_the_order_in_which_they_were_asked_for() {
    let memory = Memory::default();
    memory.0.inject(Fault::Refuse);
    memory.0.inject(Fault::LoseAnswer);
    assert!(matches!(memory.write(None, 1).await, RecordOutcome::Failed(Failure::Refused(_))));
    assert!(is_unknown(&memory.write(None, 2).await));
    assert_eq!(memory.term().await, Some(2), "there are no more");
}

#[tokio::test]
async fn a_watch_that_was_not_read_for_long_begins_anew() {
    let memory = Memory::default();
    let mut watch = memory.0.watch();
    let mut expected = None;
    for term in 0..3000 {
        let RecordOutcome::Written(version) = memory.write(expected, term).await else { panic!("not written") };
        expected = Some(version);
    }
    let last = expected.expect("it was written");
    assert_eq!(watch.next().await, Some(StoreEvent::All(everything(), Version(0), Vec::new())));
    let now = (memory.key("web"), last, Stored::Record(last, memory.record(2999)));
    assert_eq!(watch.next().await, Some(StoreEvent::All(everything(), last, vec![now])));
    let RecordOutcome::Written(after) = memory.write(expected, 3000).await else { panic!("not written") };
    let changed = StoreEvent::Changed(memory.key("web"), after, Stored::Record(after, memory.record(3000)));
    assert_eq!(watch.next().await, Some(changed), "and not what was before the list");
}

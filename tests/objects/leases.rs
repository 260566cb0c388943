//! The lease of a blob, on Azurite.

use std::time::Duration;

use lictor_objects::{Action, Blob, LeaseState, Leased, Leases, Metadata, Tag};
use lictor_testing::buckets::{Buckets, Kind};
use lictor_testing::eventually;

const DURATION: Duration = Duration::from_secs(15);
const ONE: &str = "11111111-1111-1111-1111-111111111111";
const TWO: &str = "22222222-2222-2222-2222-222222222222";

async fn blob(container: &str) -> Blob {
    let settings = Buckets::shared(Kind::Azure).create(container).await;
    Blob::new(&settings, "of us/report 1").unwrap_or_else(|error| panic!("{error}"))
}

async fn look(blob: &Blob, id: Option<&str>) -> Option<Leased> {
    blob.look(id).await.expect("it answers")
}

async fn asks(blob: &Blob, action: Action<'_>) -> bool {
    blob.lease(action).await.expect("it answers")
}

async fn marks(blob: &Blob, id: &str, tag: &Tag, value: &str) -> bool {
    let metadata = Metadata::from([("lictor".to_owned(), value.to_owned()), ("owner".to_owned(), "us".to_owned())]);
    blob.mark(id, tag, &metadata).await.expect("it answers")
}

#[tokio::test]
#[ignore = "slow: fetches Azurite by npm, 360 MB"]
async fn a_lease_has_one_holder_who_proves_itself_by_its_id() {
    let blob = blob("lease-one").await;
    assert!(!asks(&blob, Action::Acquire { id: ONE, duration: DURATION }).await, "there is no blob");
    assert_eq!(look(&blob, None).await, None);
    blob.create().await.expect("it is created");
    blob.create().await.expect("it is there");
    let created = look(&blob, None).await.expect("it is there");
    assert_eq!((created.state, look(&blob, Some(ONE)).await), (LeaseState::Available, None));
    assert!(!marks(&blob, ONE, &created.tag, "1").await);

    assert!(asks(&blob, Action::Acquire { id: ONE, duration: DURATION }).await);
    assert!(!asks(&blob, Action::Acquire { id: TWO, duration: DURATION }).await);
    blob.create().await.expect("it is there, and leased");
    let leased = look(&blob, Some(ONE)).await.expect("the lease has this id");
    assert_eq!((leased.state, &leased.tag), (LeaseState::Leased, &created.tag), "a lease changes no tag");
    assert_eq!(look(&blob, Some(TWO)).await, None);
    for action in [Action::Renew { id: TWO }, Action::Release { id: TWO }, Action::Change { from: TWO, to: TWO }] {
        assert!(!asks(&blob, action).await, "{action:?}");
    }

    assert!(!marks(&blob, TWO, &leased.tag, "1").await);
    assert!(marks(&blob, ONE, &leased.tag, r#"{"term": 1, "name": "\u00e4"}"#).await);
    assert!(!marks(&blob, ONE, &leased.tag, "late").await, "the tag is another one");
    let marked = look(&blob, Some(ONE)).await.expect("the lease has this id");
    assert_eq!((marked.metadata.len(), marked.metadata["lictor"].as_str()), (2, r#"{"term": 1, "name": "\u00e4"}"#));

    assert!(asks(&blob, Action::Change { from: ONE, to: TWO }).await);
    assert_eq!((look(&blob, Some(ONE)).await, asks(&blob, Action::Release { id: ONE }).await), (None, false));
    assert!(asks(&blob, Action::Renew { id: TWO }).await && asks(&blob, Action::Release { id: TWO }).await);
    let released = look(&blob, None).await.expect("it is there");
    assert_eq!((released.state, released.metadata), (LeaseState::Available, marked.metadata));
}

#[tokio::test]
#[ignore = "slow: fetches Azurite by npm, 360 MB"]
async fn a_late_renewal_is_refused_when_another_holder_has_had_the_lease() {
    let blob = blob("lease-late").await;
    blob.create().await.expect("it is created");
    assert!(asks(&blob, Action::Acquire { id: ONE, duration: DURATION }).await);
    eventually("the lease expires", || async {
        let found = look(&blob, None).await.expect("it is there");
        if found.state == LeaseState::Expired { Ok(()) } else { Err(format!("{:?}", found.state)) }
    })
    .await;
    assert_eq!(look(&blob, Some(ONE)).await, None, "its id counts no more");
    assert!(asks(&blob, Action::Renew { id: ONE }).await, "nobody had it in between");
    eventually("another holder gets it", || async {
        let acquired = asks(&blob, Action::Acquire { id: TWO, duration: DURATION }).await;
        if acquired { Ok(()) } else { Err("it is leased".to_owned()) }
    })
    .await;
    assert!(!asks(&blob, Action::Renew { id: ONE }).await);
    assert!(!marks(&blob, ONE, &look(&blob, None).await.expect("it is there").tag, "late").await);
    eventually("the lease expires", || async {
        let found = look(&blob, None).await.expect("it is there");
        if found.state == LeaseState::Expired { Ok(()) } else { Err(format!("{:?}", found.state)) }
    })
    .await;
    assert!(!asks(&blob, Action::Renew { id: ONE }).await, "another holder had it in between");
}

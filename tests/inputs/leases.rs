//! The reading of a lock that somebody else may have written to.

use lictor::kubernetes::Namespaces;
use lictor::store::{LeaseStore, LockStore};
use lictor_core::{Key, Stored, Term, Version};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::json::{changed, spoilt, text};
use crate::objects;
use crate::server::{Answer, LIMIT, Lab};

/// Makes a Lease that the API server would accept.
fn lease() -> BoxedStrategy<Value> {
    let record = prop_oneof![
        2 => changed(objects::record()).prop_map(|record| record.to_string()),
        1 => spoilt(objects::record()).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        1 => text(),
    ];
    let holder = prop_oneof![3 => Just(json!("a")), 1 => Just(Value::Null), 1 => text().prop_map(Value::from)];
    let transitions = prop_oneof![3 => Just(json!(7)), 1 => any::<i32>().prop_map(Value::from), 1 => Just(Value::Null)];
    let flags = prop::array::uniform3(prop::bool::weighted(0.8));
    (prop::option::weighted(0.9, record), holder, transitions, flags)
        .prop_map(|(record, holder, transitions, [labelled, owned, dated])| {
            let mut lease = objects::lease("web", record.as_deref().unwrap_or_default());
            let metadata = &mut lease["metadata"];
            if record.is_none() {
                metadata["annotations"] = Value::Null;
            }
            if !labelled {
                metadata["labels"] = Value::Null;
            }
            if owned {
                metadata["ownerReferences"] =
                    json!([{"apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "name": "", "uid": ""}]);
            }
            (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) = (holder, transitions);
            if !dated {
                lease["spec"]["acquireTime"] = Value::Null;
            }
            lease
        })
        .boxed()
}

#[test]
fn only_a_record_that_agrees_with_what_the_lease_shows_is_believed() {
    let lab = Lab::new();
    let store = lab.within(|| LeaseStore::new(lab.server.cluster(), Namespaces::default(), LIMIT));
    let key = Key::lease("shop", "web");
    lab.check(256, &lease(), async |lease| {
        lab.server.always(Answer::json(200, lease.to_string()));
        let stored = store.read(&key).await.map_err(|failure| TestCaseError::fail(format!("{failure:?}")))?;
        let (spec, metadata) = (&lease["spec"], &lease["metadata"]);
        // An owner alone says nothing of who wrote it.
        let ours = !metadata["annotations"].is_null() || !metadata["labels"].is_null();
        let shown = spec["leaseTransitions"].as_i64().unwrap_or(0);
        match stored {
            Stored::Ours(version, record) => {
                prop_assert_eq!(version, Version(12));
                prop_assert_eq!(record.term, Term(shown));
                let holder = record.holder.and_then(|holder| holder.pod);
                prop_assert_eq!(holder.unwrap_or_default(), spec["holderIdentity"].as_str().unwrap_or_default());
            }
            // Its term is a hint, and counts only as one.
            Stored::Damaged(version, _) => prop_assert!(ours && version == Version(12)),
            Stored::Foreign(what) => prop_assert!(!ours && what.contains("shop/web"), "{what}"),
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        }
        Ok(())
    });
}

#[test]
fn the_lock_as_it_is_written_is_read_as_a_record() {
    let lab = Lab::new();
    let store = lab.within(|| LeaseStore::new(lab.server.cluster(), Namespaces::default(), LIMIT));
    lab.server.always(Answer::json(200, objects::lease("web", &objects::record().to_string()).to_string()));
    lab.check(1, &Just(()), async |()| {
        let read = store.read(&Key::lease("shop", "web")).await;
        prop_assert!(matches!(read, Ok(Stored::Ours(..))), "{read:?}");
        Ok(())
    });
}

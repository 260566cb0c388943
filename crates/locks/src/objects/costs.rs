//! How many requests a store of objects gets. docs/bucket.md computes prices from these numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lictor_core::RecordOutcome;
use lictor_objects::{Asked, Memory, Objects};
use lictor_process::monotonic;
use tokio::sync::watch;

use super::{ObjectKeeper, ObjectKeys, ObjectSettings};
use crate::consul::{Role, Sessions};

/// Starts a replica of a cluster.
fn replica(
    objects: Arc<dyn Objects>,
    cluster: &str,
    role: Role,
) -> (ObjectKeys, watch::Receiver<Sessions>, watch::Sender<Role>) {
    let settings = ObjectSettings {
        cluster: cluster.into(),
        installation: cluster.into(),
        writer: cluster.into(),
        ttl: Duration::from_secs(30),
        poll: Duration::from_secs(1),
    };
    let (role, roles) = watch::channel(role);
    let (keeper, keys, sessions) = ObjectKeeper::new(objects, settings, monotonic);
    tokio::spawn(keeper.run(roles));
    let listener = keys.clone();
    tokio::spawn(async move {
        let mut index = 0;
        while let Ok((next, _)) = listener.wait(index).await {
            index = next;
        }
    });
    (keys, sessions, role)
}

/// Returns the requests of one hour, by their kinds, with so many locks, which the first cluster holds.
async fn requests(locks: usize) -> BTreeMap<&'static str, usize> {
    let memory = Arc::new(Memory::polled());
    let counted: Arc<Mutex<BTreeMap<&'static str, usize>>> = Arc::default();
    let counts = counted.clone();
    memory.faults(move |asked| {
        let kind = match asked {
            Asked::Get(_) => "reads",
            Asked::Put(_) => "writes",
            Asked::List => "listings",
        };
        *counts.lock().unwrap().entry(kind).or_default() += 1;
        None
    });
    let (keys, mut sessions, _west) = replica(memory.clone(), "west", Role::Acting);
    let (_, _, _standby) = replica(memory.clone(), "west", Role::Standby);
    let (_, _, _east) = replica(memory, "east", Role::Acting);
    let held = sessions.wait_for(|now| matches!(now.validity, lictor_core::LockValidity::Until(_))).await;
    let session = held.unwrap().ids[0].clone().unwrap();
    for lock in 0..locks {
        let written = keys.hold(&format!("shop/{lock}"), None, b"{}", &session, &[]).await;
        assert!(matches!(written, RecordOutcome::Written(_)), "{written:?}");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    counted.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    std::mem::take(&mut *counted.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_number_of_requests_does_not_grow_with_the_number_of_locks() {
    let (one, many) = (requests(1).await, requests(1000).await);
    eprintln!("measured: three replicas of two clusters in an hour: {one:?}; with 1,000 locks: {many:?}");
    for (kind, count) in &one {
        let other = many[kind];
        assert!(other.abs_diff(*count) * 20 <= *count, "{kind}: {count} and {other}");
    }
    assert!(one["writes"] < 1000 && one["listings"] < 1500 && one["reads"] < 3000, "{one:?}");
}

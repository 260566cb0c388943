//! A switchover to another cluster: everything ends in one before anything starts in the other.

use lictor_testing::kubernetes::eventually;
use serde_json::json;

use super::{Side, never_both_run, two};
use crate::switchover::{ask, complete, told};

/// The term in which a side leads, as its status says.
async fn led_in(side: &Side) -> i64 {
    eventually("the term is told", || async {
        let status = side.lab().election("web").await.status.unwrap_or_default();
        let own =
            status.leader.as_ref().and_then(|leader| leader.cluster_name.as_deref()) == Some(&side.member.cluster);
        status.term.filter(|_| own).ok_or_else(|| format!("{status:?}"))
    })
    .await
}

/// Shows C11, W3 and W4.
#[tokio::test(flavor = "multi_thread")]
async fn the_workloads_follow_a_switchover_to_the_other_cluster_and_back() {
    let (west, east) = two("wl-switched", json!({})).await;
    let from = east.recorder.catch_up().await;
    let from_term = led_in(&west).await;
    ask(west.lab(), "there", json!({"fromTerm": from_term, "toClusterName": "east"})).await;
    east.wait_all_enabled().await;
    west.wait_all_disabled().await;
    let status = complete(west.lab(), "there").await;
    assert_eq!((status.from, status.to), (None, None), "clusters lead, and no pods");
    let (_, message) = told(west.lab(), "there", "Complete", "True", "SwitchedOver").await;
    assert!(message.starts_with("the cluster east leads instead of this cluster in term "), "{message}");
    never_both_run(&west, &east, from).await;
    let from_term = led_in(&east).await;
    ask(east.lab(), "back", json!({"fromTerm": from_term, "toClusterName": "west"})).await;
    west.wait_all_enabled().await;
    east.wait_all_disabled().await;
    complete(east.lab(), "back").await;
    never_both_run(&west, &east, from).await;
    assert_eq!(
        (west.recorder.turns(true).len(), east.recorder.turns(true).len()),
        (8, 4),
        "each was enabled once a turn"
    );
}

//! A start with many elections.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use lictor_api::LeaderElection;
use lictor_testing::kubernetes::{Lab, PodSpec, eventually};
use serde_json::json;

/// So many that most of them are not decided within the second after which a status would say so.
const ELECTIONS: usize = 200;

/// Returns when a condition became true.
fn since(election: &LeaderElection, type_: &str) -> Option<Timestamp> {
    let conditions = election.status.iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|condition| condition.type_ == type_ && condition.status == "True");
    found.next().map(|condition| condition.last_transition_time.0)
}

/// Without the backlog in `steps/report.rs`, most elections get a status that says nothing, and another one seconds later.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for 200 groups"]
async fn a_start_with_many_elections_writes_no_status_that_says_nothing() {
    let _alone = crate::alone().await;
    let lab = Lab::new("many").await;
    for number in 0..ELECTIONS {
        let name = format!("web-{number}");
        lab.pod(&name, PodSpec { labels: json!({"app": name}), ..PodSpec::default() }).await;
        lab.apply_election(&name, json!({"selector": {"matchLabels": {"app": name}}})).await;
    }
    let _operator = lab.operator(&[]);
    let all = eventually("all have their leader", || async {
        let all = lab.elections_api().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let led = all.iter().filter(|election| since(election, "Elected").is_some()).count();
        if led == ELECTIONS { Ok(all) } else { Err(format!("{led} of {ELECTIONS}")) }
    })
    .await;
    // A status that says nothing says when the spec was accepted, a second or more before there is a leader.
    let twice = all.iter().filter(|election| since(election, "Accepted") < since(election, "Elected"));
    let twice: Vec<String> = twice.map(ResourceExt::name_any).collect();
    eprintln!("measured: {} of {ELECTIONS} elections had two statuses", twice.len());
    assert!(twice.len() < ELECTIONS / 2, "{twice:?}");
}

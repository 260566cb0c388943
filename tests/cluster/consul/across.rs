//! Switchovers to another cluster, on a real Consul: C11 to C13.

use std::time::Duration;

use kube::ResourceExt;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Operator, Recorder, eventually};
use serde_json::{Value, json};

use super::member::{Member, Recorded, entry, two};
use crate::switchover::{ask, complete, failed, term, told, try_ask};

/// Two clusters at one lock, with a pod each: `a` in the west leads, and `b` in the east follows.
struct Two {
    west: Member,
    east: Member,
    of_west: Operator,
    of_east: Operator,
    recorded: Recorded,
}

impl Two {
    async fn new(test: &str, fields: Value) -> Self {
        let ([west, east], [of_west, of_east], recorded) = two(test, fields.clone(), fields).await;
        knows_term(&west).await;
        Self { west, east, of_west, of_east, recorded }
    }
}

/// Waits until the status names the term in which a pod of this cluster leads.
async fn knows_term(member: &Member) {
    let found = entry(Consul::shared(), &member.key()).await.expect("the key is there");
    let term = found["ModifyIndex"].as_i64();
    member.lab.wait_status("web", "the term is told", |web| web.status.as_ref().and_then(|s| s.term) >= term).await;
}

async fn to(member: &Member, cluster: &str) -> Value {
    json!({"fromTerm": term(&member.lab).await, "toClusterName": cluster})
}

/// Waits until there is no key of a bid for the election's lock.
async fn no_bid_is_left(member: &Member) {
    eventually("no bid is left", || async {
        let path = format!("/v1/kv/{}/.bid/?keys&consistent", member.key());
        let answer = Consul::shared().api().get(&path).await?;
        if answer.status == 404 { Ok(()) } else { Err(answer.text) }
    })
    .await;
}

async fn follows(member: &Member, pod: &str) {
    eventually("it follows", || async {
        let roles = member.lab.roles().await;
        if roles.contains(&(pod.to_owned(), "follower".to_owned())) { Ok(()) } else { Err(format!("{roles:?}")) }
    })
    .await;
}

async fn there_and_back(test: &str, fields: Value) {
    let two = Two::new(test, fields).await;
    let before = term(&two.west.lab).await;
    ask(&two.west.lab, "there", to(&two.west, "east").await).await;
    let status = complete(&two.west.lab, "there").await;
    two.east.lab.wait_leader("b").await;
    follows(&two.west, "a").await;
    two.west.wait_led_elsewhere("east", "b").await;
    let name = |pod: &Option<lictor_api::SwitchoverPod>| pod.as_ref().map(|pod| pod.pod_name.clone());
    assert_eq!((name(&status.from), name(&status.to)), (Some("a".into()), Some("b".into())), "{status:?}");
    assert!(status.term > Some(before) && status.duration_milliseconds.is_some(), "{status:?}");
    eprintln!("measured: a switchover to the other cluster: {} ms", status.duration_milliseconds.unwrap_or_default());
    two.east
        .lab
        .wait_status("web", "it is told why", |web| {
            let history = web.status.iter().flat_map(|status| &status.history);
            history.into_iter().any(|change| change.reason == "SwitchedOver")
        })
        .await;
    no_bid_is_left(&two.west).await;
    // It is for the cluster that leads.
    ask(&two.west.lab, "again", json!({"fromTerm": before, "toClusterName": "east"})).await;
    let message = failed(&two.west.lab, "again", "LedElsewhere").await;
    assert!(message.contains("in the cluster that leads"), "{message}");

    knows_term(&two.east).await;
    ask(&two.east.lab, "back", to(&two.east, "west").await).await;
    complete(&two.east.lab, "back").await;
    two.west.lab.wait_leader("a").await;
    follows(&two.east, "b").await;
    no_bid_is_left(&two.west).await;
    assert_eq!(two.recorded.kept_the_promises().await, 3, "{}\n{}", two.of_west.log(), two.of_east.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leadership_moves_to_the_cluster_that_a_user_names_and_back() {
    there_and_back("across", json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_where_the_key_has_the_leaders_name_and_there_are_several_sessions() {
    there_and_back("across-name", json!({"record": "LeaderName", "sessions": {"count": 3, "ttlSeconds": 10}})).await;
}

/// Shows C12.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_fresh_bid_nobody_is_demoted() {
    let mut two = Two::new("across-none", json!({})).await;
    // Nobody there can lead.
    two.east.lab.kill_pod("b").await;
    two.east.lab.wait_candidates(0, 0).await;
    ask(&two.west.lab, "unable", to(&two.west, "east").await).await;
    let message = failed(&two.west.lab, "unable", "NotReady").await;
    assert!(message.contains("east says that it can't lead"), "{message}");
    no_bid_is_left(&two.west).await;
    // Nobody answers: there is no such cluster.
    ask(&two.west.lab, "nobody", to(&two.west, "north").await).await;
    let message = failed(&two.west.lab, "nobody", "NotReady").await;
    assert!(message.contains("north does not answer"), "{message}");
    // It is waited for.
    let mut patient = to(&two.west, "east").await;
    patient["deadlineSeconds"] = json!(600);
    ask(&two.west.lab, "patient", patient).await;
    told(&two.west.lab, "patient", "Accepted", "True", "Accepted").await;
    assert_eq!(two.recorded.kept_the_promises().await, 1, "a leads all the time: {}", two.of_west.log());
    two.east.lab.ready_pods(&["c"]).await;
    complete(&two.west.lab, "patient").await;
    two.east.lab.wait_leader("c").await;
    assert_eq!(two.recorded.kept_the_promises().await, 2);
    // Its operator does not run.
    two.of_west.stop().await;
    knows_term(&two.east).await;
    ask(&two.east.lab, "stopped", to(&two.east, "west").await).await;
    let message = failed(&two.east.lab, "stopped", "NotReady").await;
    assert!(message.contains("west does not answer"), "{message}");
    two.east.lab.wait_leader("c").await;
    assert_eq!(two.recorded.kept_the_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_meant_is_refused() {
    let two = Two::new("across-refused", json!({})).await;
    ask(&two.west.lab, "own", to(&two.west, "west").await).await;
    let message = failed(&two.west.lab, "own", "AlreadyLeader").await;
    assert!(message.contains("the cluster west is already the leader"), "{message}");
    ask(&two.east.lab, "other", json!({"fromTerm": 1, "toClusterName": "east"})).await;
    failed(&two.east.lab, "other", "LedElsewhere").await;
    let both = try_ask(&two.west.lab, "both", json!({"fromTerm": 1, "toClusterName": "east", "toPodName": "a"})).await;
    let refused = both.expect_err("it is contradictory").to_string();
    assert!(refused.contains("leave out spec.toPodName or spec.toClusterName"), "{refused}");
    let force = try_ask(&two.west.lab, "force", json!({"fromTerm": 1, "toClusterName": "east", "force": true})).await;
    let refused = force.expect_err("it is contradictory").to_string();
    assert!(refused.contains("spec.force needs spec.toPodName"), "{refused}");
    assert_eq!(two.recorded.kept_the_promises().await, 1);
}

/// The east, as this test plays it: its session, and what it answers.
struct Played {
    session: String,
    west: Member,
    operator: Operator,
    recorder: Recorder,
}

impl Played {
    /// The west leads, and a user wants the east to lead.
    async fn new(test: &str) -> Self {
        let west = Member::new(test, "west", Consul::shared().address(), json!({})).await;
        let recorder = west.lab.record().await;
        let operator = west.operator(&[]);
        west.lab.ready_pods(&["a"]).await;
        west.elect(json!({})).await;
        west.lab.wait_leader("a").await;
        knows_term(&west).await;
        let api = Consul::shared().api();
        let body = json!({"Name": test, "TTL": "600s", "LockDelay": "0s", "NodeChecks": []});
        let made = api.put("/v1/session/create", body).await.expect("Consul answers").ok();
        let session = made["ID"].as_str().expect("an id").to_owned();
        ask(&west.lab, "there", to(&west, "east").await).await;
        let played = Self { session, west, operator, recorder };
        played.offers("a").await;
        played
    }

    async fn entry(&self) -> Value {
        entry(Consul::shared(), &self.west.key()).await.expect("the key is there")
    }

    /// Waits until the lock is offered while this pod leads. An empty name: nobody leads.
    async fn offers(&self, leader: &str) {
        eventually("the lock is offered", || async {
            let entry = self.entry().await;
            let record = &entry["Value"];
            let fits =
                record["offer"]["cluster"] == "east" && record["holder"]["pod"].as_str().unwrap_or_default() == leader;
            if fits { Ok(()) } else { Err(entry.to_string()) }
        })
        .await;
    }

    /// Answers the present record.
    async fn bid(&self) {
        let entry = self.entry().await;
        let mut record = entry["Value"].clone();
        let switchover = record["offer"]["switchover"].clone();
        for field in ["cluster", "namespace", "name", "holder", "offer", "switchover"] {
            record.as_object_mut().expect("an object").remove(field);
        }
        record["election"] = json!("uid in the east");
        let bid = json!({
            "cluster": "east", "namespace": "there", "name": "web", "switchover": switchover, "saw": entry["ModifyIndex"],
            "eligible": true, "record": record,
        });
        let path = format!("/v1/kv/{}/.bid/east?acquire={}", self.west.key(), self.session);
        assert_eq!(Consul::shared().api().put(&path, bid).await.expect("Consul answers").ok(), json!(true));
    }

    /// Answers until nobody leads in the west, and not after that.
    async fn vacated(test: &str) -> Self {
        let played = Self::new(test).await;
        played.bid().await;
        played.offers("").await;
        follows(&played.west, "a").await;
        played
    }

    async fn is_given(&self) {
        eventually("the lock is given", || async {
            let entry = self.entry().await;
            let given = entry["Session"] == json!(self.session) && entry["Value"]["cluster"] == "east";
            if given && entry["Value"]["election"] == "uid in the east" { Ok(()) } else { Err(entry.to_string()) }
        })
        .await;
    }

    /// The west leads again, and the user is told so.
    async fn is_back(&self) {
        self.west.lab.wait_leader("a").await;
        let message = failed(&self.west.lab, "there", "NotReady").await;
        assert!(message.contains("leads again"), "{message}");
        no_bid_is_left(&self.west).await;
        assert_eq!(self.recorder.assert_promises().await, 2);
    }
}

/// Shows C11 and C12.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_before_the_transaction_leaves_it_to_the_next_one() {
    let mut played = Played::vacated("across-killed").await;
    played.operator.signal("KILL");
    played.operator.ended().await;
    let _next = played.west.operator(&[]);
    played.bid().await;
    // As the record was: the next operator may have written another one before.
    let given = tokio::time::timeout(Duration::from_secs(2), played.is_given()).await;
    if given.is_err() {
        played.bid().await;
        played.is_given().await;
    }
    assert_eq!(played.recorder.assert_promises().await, 1);
    assert!(played.west.lab.roles().await.contains(&("a".to_owned(), "follower".to_owned())));
}

/// Shows C11 and C12.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_between_the_bid_and_the_transaction_gets_nothing() {
    let played = Played::vacated("across-session").await;
    let path = format!("/v1/session/destroy/{}", played.session);
    Consul::shared().api().put(&path, "").await.expect("Consul answers").ok();
    played.is_back().await;
}

/// Shows C11 and C12.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_somebody_edits_meanwhile_is_not_handed_over() {
    let played = Played::vacated("across-edited").await;
    let raw =
        Consul::shared().api().get(&format!("/v1/kv/{}?raw", played.west.key())).await.expect("Consul answers").text;
    let path = format!("/v1/kv/{}?flags=3304740253564472344", played.west.key());
    Consul::shared().api().put(&path, raw + " ").await.expect("Consul answers").ok();
    // An answer to the record before the edit.
    played.west.lab.wait_leader("a").await;
    let annotations = played.west.lab.get_pod("a").await.annotations().clone();
    assert!(annotations.contains_key("lictor.dev/term"), "{annotations:?}");
    assert_eq!(played.recorder.assert_promises().await, 2);
}

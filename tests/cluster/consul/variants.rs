//! The ways in which a class can keep its locks, each with an election, a failover, a restart and a deletion.

use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::eventually;
use serde_json::{Value, json};

use super::member::{Member, entry};

/// Returns the content of the key while `a` or `b` led, and the name of that pod.
async fn works(test: &str, consul: &Consul, fields: Value) -> (Value, String) {
    let member = Member::new(test, "west", consul.address(), fields).await;
    let recorder = member.lab.record().await;
    let mut operator = member.operator(&[]);
    member.lab.ready_pods(&["a", "b"]).await;
    member.elect(json!({})).await;
    let first = member.lab.wait_any_leader().await;
    member.lab.kill_pod(&first).await;
    let second = if first == "a" { "b" } else { "a" };
    member.lab.wait_leader(second).await;
    operator.stop().await;
    let before = entry(consul, &member.key()).await.expect("the key is there");
    let operator = member.operator(&[]);
    operator.sees_leader(&member.lab.namespace, "web", second).await;
    assert_eq!(entry(consul, &member.key()).await.as_ref(), Some(&before), "nothing was written");
    member.wait_class("True", "Answers").await;
    assert_eq!(recorder.assert_promises().await, 2);
    member.lab.delete_election("web").await;
    for key in [member.key(), format!("{}/record", member.key())] {
        eventually("the key is gone", || async {
            match entry(consul, &key).await {
                None => Ok(()),
                Some(found) => Err(found.to_string()),
            }
        })
        .await;
    }
    (before, second.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_may_hold_only_the_leaders_name() {
    let (key, leader) = works("consul-name", Consul::shared(), json!({"record": "LeaderName"})).await;
    assert_eq!(key["Value"], json!(leader));
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_may_be_spread_over_several_sessions() {
    let fields = json!({"sessions": {"ttlSeconds": 10, "count": 3}});
    works("consul-sessions", Consul::shared(), fields).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_may_belong_to_the_agents_own_node() {
    works("consul-agent", Consul::shared(), json!({"node": {"useAgent": true}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_consul_serves_as_well() {
    works("consul-old", &Consul::start(Kind::Old), json!({})).await;
}

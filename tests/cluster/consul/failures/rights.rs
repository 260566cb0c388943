//! Tokens that are revoked, and tokens that may not read or write the keys.

use std::time::Instant;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::{Cluster, PodSpec, eventually};
use serde_json::json;

use super::super::member::{Member, entry, sessions_of};
use super::servers::{at_three, at_three_as};
use super::{Side, TTL, kept_their_promises, two, within};

/// Creates a token with these rules. Returns its secret and its accessor.
fn token(consul: &Consul, name: &str, rules: &str) -> (String, String) {
    consul.cli(&["acl", "policy", "create", &format!("-name={name}"), &format!("-rules={rules}")]);
    token_of(consul, name)
}

/// Creates another token with an existing policy.
fn token_of(consul: &Consul, policy: &str) -> (String, String) {
    let token = consul.cli(&["acl", "token", "create", &format!("-policy-name={policy}"), "-format=json"]);
    let token: serde_json::Value = serde_json::from_str(&token).expect("a token");
    let text = |name: &str| token[name].as_str().expect("a token has it").to_owned();
    (text("SecretID"), text("AccessorID"))
}

fn revoke(consul: &Consul, accessor: &str) {
    consul.cli(&["acl", "token", "delete", "-accessor-id", accessor]);
}

/// Returns the rules for the sessions' node and for the keys.
fn rules(member: &str, keys: &str) -> String {
    format!(
        "session \"lictor-{member}\" {{ policy = \"write\" }}\nnode \"lictor-{member}\" {{ policy = \"write\" \
         }}\n{keys}"
    )
}

fn keys(member: &str) -> String {
    format!("key_prefix \"{member}-\" {{ policy = \"write\" }}")
}

/// Gives the class another token.
async fn give(member: &Member, token: &str) {
    let secrets: Api<Secret> = Api::namespaced(member.lab.client.clone(), &member.lab.namespace);
    let patch = Patch::Merge(json!({"stringData": {"token": token}}));
    secrets.patch("token", &PatchParams::default(), &patch).await.expect("a Secret can be patched");
}

/// Revokes a token, and replaces it in time, and then not in time.
async fn revoked(consul: &Consul) {
    let test = "right-gone";
    let (first, accessor) = token(consul, test, &rules(test, &keys(test)));
    let (second, next) = token_of(consul, test);
    let member = at_three(consul, consul.server(1), test, Some(&first)).await;
    let (side, leader) = Side::led(member, &["a", "b"]).await;
    let node = format!("lictor-{test}");
    let session = sessions_of(consul, &side.member, &node).await;
    let before = entry(consul, &side.member.key()).await;

    revoke(consul, &accessor);
    // A request that waits at Consul may go on for a while. The next renewal fails.
    let message = side.member.wait_class("False", "TokenUnknown").await;
    assert!(message.contains("the token is unknown to Consul"), "{message}");
    give(&side.member, &second).await;
    side.member.wait_class("True", "Answers").await;
    assert_eq!(side.recorder.demoted_at().await, None, "the leader stayed: {}", side.operator.log());
    assert_eq!(sessions_of(consul, &side.member, &node).await, session);
    assert_eq!(entry(consul, &side.member.key()).await, before, "nothing was written");
    side.operator.logs("continues with a new token").await;

    revoke(consul, &next);
    let began = Instant::now();
    side.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    let took = side.recorder.demoted_at().await.expect("it was demoted").duration_since(began);
    assert!(took < TTL, "demoted after {took:?}");
    side.member.wait_class("False", "TokenUnknown").await;
    give(&side.member, &token_of(consul, test).0).await;
    let began = Instant::now();
    side.member.lab.wait_leader(&leader).await;
    within("right-gone, led again with a new token", began);
    side.member.wait_class("True", "Answers").await;
    side.recorder.assert_promises().await;
}

/// Takes a token's rights on the keys away. Consul then shows no keys, and does not mention the rights.
async fn hidden(consul: &Consul) {
    let test = "right-keys";
    let (first, _) = token(consul, test, &rules(test, &keys(test)));
    let member = at_three(consul, consul.server(1), test, Some(&first)).await;
    let (side, leader) = Side::led(member, &["a", "b"]).await;
    let before = entry(consul, &side.member.key()).await.expect("the key is there");

    let update = |rules: String| {
        consul.cli(&["acl", "policy", "update", &format!("-name={test}"), &format!("-rules={rules}")]);
    };
    update(rules(test, ""));
    // The next answer to the watch has no keys. From then on the operator can't know whether it still holds the lock.
    let rule = format!("key_prefix \"{}\" {{ policy = \"write\" }}", side.member.key());
    side.member.lab.wait_message("web", "Elected", "HandoverFails", &rule).await;
    let note = side.member.lab.wait_event("LeaderElection", "web", "NoLeader").await;
    assert!(note.contains("the lock was lost"), "{note}");
    let found = entry(consul, &side.member.key()).await.expect("the key is there");
    assert_eq!(found, before, "nothing was written");
    assert!(side.member.lab.roles().await.iter().all(|(_, role)| role != "leader"));

    update(rules(test, &keys(test)));
    let began = Instant::now();
    side.member.lab.wait_leader(&leader).await;
    within("right-keys, led again with all rights", began);
    side.member.lab.wait_condition("web", "Elected", "True", "Elected").await;
    let found = entry(consul, &side.member.key()).await.expect("the key is there");
    assert_eq!(found["Session"], before["Session"], "the lock was never let go of");
    side.recorder.assert_promises().await;
}

/// Takes the right to write the keys away from the token of the cluster that leads, whose renewals of the session succeed. `left`: the
/// rule that it still has for the keys.
async fn unwritable(consul: &Consul, test: &str, left: &str) {
    let (restricted, _) = token(consul, test, &rules(test, &keys(test)));
    let west = at_three(consul, consul.server(1), test, Some(&restricted)).await;
    let east = at_three_as(consul, consul.server(1), test, "east", &format!("{test}-east"), None).await;
    let (west, east) = two(west, east).await;
    let node = format!("lictor-{test}");
    let before = sessions_of(consul, &west.member, &node).await;
    let update = |rules: String| {
        consul.cli(&["acl", "policy", "update", &format!("-name={test}"), &format!("-rules={rules}")]);
    };

    update(rules(test, left));
    let began = Instant::now();
    west.member.lab.kill_pod("a").await;
    let message = west.member.wait_class("False", "Forbidden").await;
    assert!(message.contains(&format!("key_prefix \"{}\"", west.member.key())), "{message}");
    east.member.lab.wait_leader("b").await;
    within(&format!("{test}, the other cluster leads"), began);

    // It takes part in nothing that it may not write, and goes on to say so, also with another session.
    west.member.lab.ready_pods(&["c"]).await;
    eventually("there is another session", || async {
        let now = sessions_of(consul, &west.member, &node).await;
        if now.len() == 1 && now != before { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    let after = sessions_of(consul, &west.member, &node).await;
    tokio::time::sleep(TTL).await;
    west.member.wait_class("False", "Forbidden").await;
    assert_eq!(sessions_of(consul, &west.member, &node).await, after, "it is kept");

    update(rules(test, &keys(test)));
    west.member.wait_class("True", "Answers").await;
    west.member.wait_led_elsewhere("east", "b").await;
    let began = Instant::now();
    east.member.lab.kill_pod("b").await;
    west.member.lab.wait_leader("c").await;
    within(&format!("{test}, led again with the right"), began);
    assert_eq!(kept_their_promises(&[&west, &east]).await, 3);
}

/// A token with the right to one key. An election with another key, which was never held, ends no session.
async fn single(consul: &Consul) {
    let test = "right-single";
    let key = format!("key_prefix \"{test}-{}/web\" {{ policy = \"write\" }}", std::process::id());
    let (restricted, _) = token(consul, test, &rules(test, &key));
    let member = at_three(consul, consul.server(1), test, Some(&restricted)).await;
    let (side, _) = Side::led(member, &["a"]).await;
    let before = sessions_of(consul, &side.member, &format!("lictor-{test}")).await;
    let other = json!({"className": side.member.class, "selector": {"matchLabels": {"app": "other"}}});
    side.member.lab.apply_election("other", other).await;
    let pod = PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() };
    side.member.lab.pod("o", pod).await;
    side.member.lab.wait_message("other", "Elected", "HandoverFails", "key_prefix").await;
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(side.recorder.demoted_at().await, None, "the other election goes on");
    assert_eq!(sessions_of(consul, &side.member, &format!("lictor-{test}")).await, before);
    side.member.wait_class("True", "Answers").await;
    side.recorder.assert_promises().await;
}

/// C15.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_cluster_that_may_not_write_its_lock_any_more_lets_another_one_lead() {
    let consul = Consul::start(Kind::Three);
    // Starting it blocks this thread.
    let _ = Cluster::shared();
    tokio::join!(
        unwritable(&consul, "right-write", "key_prefix \"right-write-\" { policy = \"read\" }"),
        unwritable(&consul, "right-none", ""),
        single(&consul),
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_revoked_token_is_replaced_without_losing_the_leader_and_hidden_keys_are_no_deleted_locks() {
    let consul = Consul::start(Kind::Three);
    // Starting it blocks this thread.
    let _ = Cluster::shared();
    tokio::join!(revoked(&consul), hidden(&consul));
}

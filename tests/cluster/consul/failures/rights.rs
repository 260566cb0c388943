//! Tokens that are revoked, and such that hide the keys.

use std::time::Instant;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::Cluster;
use serde_json::json;

use super::super::member::{Member, entry, sessions_of};
use super::servers::at_three;
use super::{Side, TTL, within};

/// Makes a token with these rules; its secret, and what it is revoked by.
fn token(consul: &Consul, name: &str, rules: &str) -> (String, String) {
    consul.cli(&["acl", "policy", "create", &format!("-name={name}"), &format!("-rules={rules}")]);
    token_of(consul, name)
}

/// Another token of a policy that there is.
fn token_of(consul: &Consul, policy: &str) -> (String, String) {
    let token = consul.cli(&["acl", "token", "create", &format!("-policy-name={policy}"), "-format=json"]);
    let token: serde_json::Value = serde_json::from_str(&token).expect("a token");
    let text = |name: &str| token[name].as_str().expect("a token has it").to_owned();
    (text("SecretID"), text("AccessorID"))
}

fn revoke(consul: &Consul, accessor: &str) {
    consul.cli(&["acl", "token", "delete", "-accessor-id", accessor]);
}

/// The rights on the sessions' node, and those on the keys.
fn rules(member: &str, keys: &str) -> String {
    format!(
        "session \"lictor-{member}\" {{ policy = \"write\" }}\nnode \"lictor-{member}\" {{ policy = \"write\" }}\n{keys}"
    )
}

fn keys(member: &str) -> String {
    format!("key_prefix \"{member}-\" {{ policy = \"write\" }}")
}

/// The class gets another token.
async fn give(member: &Member, token: &str) {
    let secrets: Api<Secret> = Api::namespaced(member.lab.client.clone(), &member.lab.namespace);
    let patch = Patch::Merge(json!({"stringData": {"token": token}}));
    secrets.patch("token", &PatchParams::default(), &patch).await.expect("a Secret can be patched");
}

/// A token that is revoked, and replaced in time; and then not in time.
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
    // What hangs at Consul may go on for a while; the next renewal does not.
    let message = side.member.wait_class("False", "TokenUnknown").await;
    assert!(message.contains("the token is unknown to Consul"), "{message}");
    give(&side.member, &second).await;
    side.member.wait_class("True", "Answers").await;
    assert_eq!(side.recorder.demoted_at(), None, "the leader stayed: {}", side.operator.log());
    assert_eq!(sessions_of(consul, &side.member, &node).await, session);
    assert_eq!(entry(consul, &side.member.key()).await, before, "nothing was written");
    side.operator.logs("goes on with a new token").await;

    revoke(consul, &next);
    let began = Instant::now();
    side.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    let took = side.recorder.demoted_at().expect("it was demoted").duration_since(began);
    assert!(took < TTL, "demoted after {took:?}");
    side.member.wait_class("False", "TokenUnknown").await;
    give(&side.member, &token_of(consul, test).0).await;
    let began = Instant::now();
    side.member.lab.wait_leader(&leader).await;
    within("right-gone, led again with a new token", began);
    side.member.wait_class("True", "Answers").await;
    side.kept_its_promises().await;
}

/// A token that loses its rights on the keys: Consul then shows none, and says nothing of rights.
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
    // The watch shows no key when it is answered next. Whether the lock is still held can't be known any more.
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
    side.kept_its_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_revoked_token_is_replaced_without_losing_the_leader_and_hidden_keys_are_no_deleted_locks() {
    let consul = Consul::start(Kind::Three);
    // Its start holds this thread up.
    let _ = Cluster::shared();
    tokio::join!(revoked(&consul), hidden(&consul));
}

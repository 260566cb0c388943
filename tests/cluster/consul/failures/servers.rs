//! Consul's servers: they are away at the start, go away, and come back; three of them lose their leader, and their quorum.

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use lictor_testing::consul::{Consul, Kind, Server};
use lictor_testing::kubernetes::{Cluster, eventually};
use serde_json::json;

use super::super::member::Member;
use super::{Side, TTL, within};

/// Creates a cluster whose class names one of three servers. `token` replaces the one with all rights.
pub(super) async fn at_three(consul: &Consul, server: &Server, test: &str, token: Option<&str>) -> Member {
    at_three_as(consul, server, test, "west", test, token).await
}

/// Creates another one of these clusters, whose sessions are on the node `lictor-NODE`.
pub(super) async fn at_three_as(
    consul: &Consul,
    server: &Server,
    test: &str,
    cluster: &str,
    node: &str,
    token: Option<&str>,
) -> Member {
    let fields = json!({
        "tls": {"caSecretRef": {"name": "ca"}, "certSecretRef": {"name": "client"}, "serverName": "server.dc1.consul"},
        "tokenSecretRef": {"name": "token"},
        "node": {"name": format!("lictor-{node}")},
    });
    let member = Member::new(test, cluster, server.address(), fields).await;
    let file = |name: &str| {
        let path = consul.variable(name).expect("there are three servers");
        std::fs::read_to_string(path).expect("a file of the CA can be read")
    };
    let token = token.or(consul.variable("HTTP_TOKEN")).expect("there are three servers");
    let secrets: Api<Secret> = Api::namespaced(member.lab.client.clone(), &member.lab.namespace);
    let certificate = json!({"tls.crt": file("CLIENT_CERT"), "tls.key": file("CLIENT_KEY")});
    for secret in [
        json!({"metadata": {"name": "ca"}, "stringData": {"ca.crt": file("CACERT")}}),
        json!({"metadata": {"name": "client"}, "type": "kubernetes.io/tls", "stringData": certificate}),
        json!({"metadata": {"name": "token"}, "stringData": {"token": token}}),
    ] {
        let secret = serde_json::from_value(secret).expect("a Secret");
        secrets.create(&PostParams::default(), &secret).await.expect("a Secret can be made");
    }
    member
}

/// Without Consul at the start, no pod leads until Consul comes.
async fn away_at_the_start(consul: &Consul) {
    let member = Member::new("fail-start", "west", consul.address(), json!({})).await;
    consul.server(1).kill();
    let side = Side::new(member, &["a", "b"]).await;
    side.member.elect(json!({})).await;
    let message = side.member.wait_class("False", "NoAnswer").await;
    assert!(message.contains("can't be reached"), "{message}");
    side.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    let message = side.member.lab.wait_condition("web", "StoreReachable", "False", "NoAnswer").await;
    assert!(message.contains("class's condition Ready"), "{message}");
    assert!(side.member.lab.roles().await.iter().all(|(_, role)| role != "leader"));

    consul.server(1).start();
    consul.server(1).usable().await;
    let began = Instant::now();
    let leader = side.member.lab.wait_any_leader().await;
    within("fail-start, led when Consul is there", began);
    side.member.wait_class("True", "Answers").await;
    side.member.lab.wait_condition("web", "Elected", "True", "Elected").await;

    // An operator that starts without Consul finds its predecessor's leader, and does not know until when its lock is valid.
    consul.server(1).pause();
    let began = Instant::now();
    side.operator.signal("KILL");
    let Side { member, recorder, .. } = side;
    let side = Side { operator: member.operator(&[]), member, recorder };
    side.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    let demoted = side.recorder.demoted_at().await.expect("it was demoted").duration_since(began);
    assert!(demoted < 2 * TTL, "its session still lasted when it was demoted: {demoted:?}");
    consul.server(1).resume();
    let began = Instant::now();
    side.member.lab.wait_leader(&leader).await;
    within("fail-start, led again when Consul goes on", began);
    side.recorder.assert_promises().await;
}

/// The leader is demoted in time, or keeps its label, as the user chose.
async fn going_away(consul: &Consul) {
    let (demoted, leader) =
        Side::led(Member::new("fail-away", "west", consul.address(), json!({})).await, &["a", "b"]).await;
    let (kept, stays) =
        Side::led(Member::new("fail-kept", "west", consul.address(), json!({})).await, &["a", "b"]).await;
    kept.member.elect(json!({"sharedStore": {"whenLost": "Keep"}})).await;

    // Consul hangs, and continues with everything that it knew.
    consul.server(1).pause();
    let began = Instant::now();
    demoted.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    let note = demoted.member.lab.wait_event("LeaderElection", "web", "NoLeader").await;
    assert!(note.contains("could not be confirmed in time"), "{note}");
    demoted.member.wait_class("False", "NoAnswer").await;
    kept.member.wait_class("False", "NoAnswer").await;
    let took = demoted.recorder.demoted_at().await.expect("it was demoted").duration_since(began);
    assert!(took < TTL, "demoted after {took:?}");
    eprintln!("measured: fail-away, demoted after {:.1} s", took.as_secs_f64());
    consul.server(1).resume();
    let began = Instant::now();
    let again = demoted.member.lab.wait_any_leader().await;
    within("fail-away, led when Consul goes on", began);
    assert_eq!(again, leader, "nobody else could lead meanwhile");
    demoted.member.wait_class("True", "Answers").await;
    demoted.member.lab.wait_condition("web", "Elected", "True", "Elected").await;

    // Consul dies and forgets everything: sessions, locks and indexes start again.
    consul.server(1).kill();
    demoted.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    consul.server(1).start();
    consul.server(1).usable().await;
    let began = Instant::now();
    demoted.member.lab.wait_any_leader().await;
    within("fail-away, led when Consul has begun anew", began);
    kept.member.wait_class("True", "Answers").await;
    eventually("the kept one's lock is there again", || async {
        let found = super::super::member::entry(consul, &kept.member.key()).await.unwrap_or_default();
        if found["Value"]["holder"]["pod"] == json!(stays) { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    demoted.recorder.assert_promises().await;
    kept.recorder.assert_promises().await;
    assert_eq!(kept.recorder.demoted_at().await, None, "it was never demoted");
    let counts: BTreeSet<usize> = kept.recorder.leaders_since_first().into_iter().collect();
    assert_eq!(counts, BTreeSet::from([1]));
}

/// The servers lose their leader, and then their quorum.
async fn servers_that_agree_on_nothing(consul: &Consul) {
    let first = consul.leader().await;
    let asked = consul.servers().iter().find(|server| !std::ptr::eq(*server, first)).expect("there are three");
    let member = at_three(consul, asked, "fail-three", None).await;
    let (side, leader) = Side::led(member, &["a", "b"]).await;

    first.kill();
    let began = Instant::now();
    consul.leader().await;
    assert_eq!(side.recorder.demoted_at().await, None, "another leads Consul long before the validity ends");
    eprintln!("measured: Consul's servers have another leader after {:.1} s", began.elapsed().as_secs_f64());
    // The new leader works: a failover needs a transaction.
    side.member.lab.kill_pod(&leader).await;
    let next = if leader == "a" { "b" } else { "a" };
    side.member.lab.wait_leader(next).await;
    within("fail-three, failover after Consul's leader died", began);
    side.member.wait_class("True", "Answers").await;
    side.member.lab.ready_pods(&["c"]).await;

    let third = consul.servers().iter().find(|server| !std::ptr::eq(*server, first) && !std::ptr::eq(*server, asked));
    let third = third.expect("there are three");
    third.pause();
    let began = Instant::now();
    side.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    let took = side.recorder.demoted_at().await.expect("it was demoted").duration_since(began);
    assert!(took < TTL, "demoted after {took:?}");
    let message = side.member.wait_class("False", "NoLeader").await;
    assert!(message.contains("Consul has no leader") || message.contains("No cluster leader"), "{message}");
    third.resume();
    let began = Instant::now();
    side.member.lab.wait_leader(next).await;
    within("fail-three, led when the quorum is there again", began);
    side.member.wait_class("True", "Answers").await;
    side.recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn without_consul_nobody_leads_for_long_unless_the_user_chose_so() {
    // Starting them blocks this thread.
    let (late, leaving, three) = (Consul::start(Kind::Dev), Consul::start(Kind::Dev), Consul::start(Kind::Three));
    let _ = Cluster::shared();
    tokio::join!(away_at_the_start(&late), going_away(&leaving), servers_that_agree_on_nothing(&three));
}

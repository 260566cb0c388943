//! Elections that the candidates hold themselves, with the programs that do so: client-go's leader election, Consul's own library, `consul
//! lock`, `lictor agent`. The programs run on this machine, in the names of pods.

use std::process::Command;

use kube::ResourceExt;
use lictor_testing::buckets::{self, Buckets};
use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::{Lab, PodSpec};
use lictor_testing::{Candidate, program, tool};
use serde_json::{Value, json};

use crate::consul::member::Member;
use crate::objects::across::{member, member_at};
use crate::switchover::{ask, failed, term};

/// A Go program with client-go's leader election.
fn client_go(lab: &Lab, identity: &str) -> Candidate {
    let mut command = Command::new(tool("elector"));
    command.arg("--kubeconfig").arg(lab.cluster.kubeconfig());
    command.args(["--namespace", &lab.namespace, "--name", "web-lock", "--identity", identity, "--duration", "5s"]);
    command.arg("--file").arg(std::env::temp_dir().join(format!("lictor-test-{}", lab.namespace)));
    Candidate::start(command)
}

/// A Go program with api.Lock of Consul's library.
fn consul_api(consul: &Consul, key: &str, value: &str) -> Candidate {
    let address = consul.address().trim_start_matches("http://").to_owned();
    let mut command = Command::new(tool("locker"));
    command.args(["--address", &address, "--key", key, "--value", value]);
    Candidate::start(command)
}

/// `consul lock`. It ends when its input is closed.
fn consul_lock(consul: &Consul, prefix: &str, name: &str) -> Candidate {
    let mut command = consul.command();
    let name = format!("-name={name}");
    command.args(["lock", "-pass-stdin", &name, prefix, "echo leads; cat"]);
    Candidate::start(command)
}

/// `lictor agent`.
fn agent(lock: &[&str], identity: &str) -> Candidate {
    let mut command = Command::new(program());
    command.arg("agent").args(lock).args(["--identity", identity, "--", "sh", "-c", "echo leads; exec sleep 1000"]);
    Candidate::start(command)
}

/// `lictor agent` whose lock is an object in a bucket.
fn agent_in_bucket(server: &Buckets, url: &str, identity: &str) -> Candidate {
    let mut command = Command::new(program());
    command.args(["agent", "--bucket", url, "--ttl", "5s", "--identity", identity, "--"]);
    command.args(["sh", "-c", "echo leads; exec sleep 1000"]).envs(server.environment(server.socket()));
    Candidate::start(command)
}

fn agent_on_blob(server: &Buckets, url: &str, identity: &str) -> Candidate {
    let mut command = Command::new(program());
    command.args(["agent", "--azure-blob-lease", url, "--ttl", "15s", "--identity", identity, "--"]);
    command.args(["sh", "-c", "echo leads; exec sleep 1000"]).envs(server.environment(server.socket()));
    Candidate::start(command)
}

fn agent_on_lease(lab: &Lab, identity: &str) -> Candidate {
    let (lease, kubeconfig) = (format!("{}/web-lock", lab.namespace), lab.cluster.kubeconfig());
    let kubeconfig = kubeconfig.to_str().expect("a path is text");
    agent(&["--lease", &lease, "--kubeconfig", kubeconfig, "--ttl", "5s"], identity)
}

fn by_lease() -> Value {
    json!({"electedBy": "Candidates", "followedLock": {"lease": {"name": "web-lock"}}})
}

/// Waits until the status says who holds the lock, and which pod that is.
async fn wait_holder(lab: &Lab, holder: &str, pod: Option<&str>) -> Option<i64> {
    let what = format!("{holder} is the holder, {pod:?}");
    let found = lab.wait_status("web", &what, |web| {
        let lock = web.status.as_ref().and_then(|status| status.followed_lock.clone()).unwrap_or_default();
        let is = lock.holder.as_deref().is_some_and(|own| own == holder || own.starts_with(&format!("{holder}_")));
        lock.state == "Held" && is && lock.pod_name.as_deref() == pod
    });
    found.await.status.and_then(|status| status.followed_lock).and_then(|lock| lock.transitions)
}

/// Waits until the status says that nobody holds the lock, in these words.
async fn wait_free(lab: &Lab, says: &str) {
    lab.wait_status("web", &format!("the lock is free: {says}"), |web| {
        let conditions = web.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| {
            (condition.type_.as_str(), condition.reason.as_str()) == ("Elected", "FollowedLockFree")
                && condition.message.contains(says)
        })
    })
    .await;
}

/// Shows F1 and F4.
#[tokio::test(flavor = "multi_thread")]
async fn the_label_follows_a_lease_whoever_holds_it() {
    let lab = Lab::new("candidates-lease").await;
    let mut operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    let recorder = lab.record().await;
    lab.elect(by_lease()).await;
    wait_free(&lab, "web-lock does not exist").await;

    let mut a = client_go(&lab, "a_7f01");
    a.says("leads");
    lab.wait_leader("a").await;
    let before = wait_holder(&lab, "a_7f01", Some("a")).await;
    let lease = lab.leases_api().get("web-lock").await.expect("it is there");
    assert!(lease.labels().is_empty() && lease.annotations().is_empty(), "lictor wrote to it: {lease:?}");
    let b = client_go(&lab, "b");
    a.end().await;
    b.says("leads");
    lab.wait_leader("b").await;
    assert!(wait_holder(&lab, "b", Some("b")).await > before);

    // The operator is not there when the lock moves.
    let c = agent_on_lease(&lab, "c");
    operator.stop().await;
    b.signal("KILL");
    c.says("leads");
    operator = lab.operator(&[]);
    lab.wait_leader("c").await;
    wait_holder(&lab, "c", Some("c")).await;

    // Whoever is killed outright releases nothing, and nobody else takes the lock. The agent's first process is its watchdog, without
    // which it ends in good order.
    c.signal("KILL");
    wait_free(&lab, "has no holder").await;
    let last = client_go(&lab, "a");
    last.says("leads");
    lab.wait_leader("a").await;
    last.signal("KILL");
    wait_free(&lab, "has not renewed it").await;
    lab.wait_no_leader().await;
    drop(operator);
    assert_eq!(recorder.assert_promises().await, 4);
}

/// Shows F1 and F3.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_gone_loses_its_label_whatever_the_lock_says() {
    let lab = Lab::new("candidates-gone").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    let recorder = lab.record().await;
    lab.elect(by_lease()).await;
    let mut a = client_go(&lab, "a");
    lab.wait_leader("a").await;
    lab.kill_pod("a").await;
    let message = lab.wait_condition("web", "Elected", "False", "HolderNotFound").await;
    assert!(message.contains("\"a\" holds the Lease") && message.contains("spec.followedLock.identity"), "{message}");
    assert_eq!(lab.roles().await, [("b".to_owned(), "follower".to_owned())]);
    // The program still runs here, and renews the lock. So another pod by this name counts as its holder.
    lab.ready_pods(&["a"]).await;
    lab.wait_leader("a").await;
    // A pod that is not in the group is nobody.
    lab.pod("other", PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() }).await;
    let _other = client_go(&lab, "other");
    a.end().await;
    lab.wait_condition("web", "Elected", "False", "HolderNotFound").await;
    assert_eq!(wait_holder(&lab, "other", None).await, Some(1));
    lab.wait_no_leader().await;
    assert_eq!(recorder.assert_promises().await, 2);
}

/// The first operator is stopped right when the lock moves, and goes on when the second one acts.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_was_paused_does_no_harm_while_the_lock_moves() {
    let lab = Lab::new("candidates-paused").await;
    let first = lab.operator(&[]);
    first.acts().await;
    let second = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    let recorder = lab.record().await;
    lab.elect(by_lease()).await;
    let mut leader = client_go(&lab, "a");
    lab.wait_leader("a").await;
    for (next, paused, other) in [("b", &first, &second), ("c", &second, &first), ("a", &first, &second)] {
        let candidate = client_go(&lab, next);
        let ended = leader.end();
        paused.signal("STOP");
        ended.await;
        candidate.says("leads");
        lab.wait_leader(next).await;
        other.sees_leader(&lab.namespace, "web", next).await;
        paused.signal("CONT");
        leader = candidate;
    }
    assert!(recorder.assert_promises().await >= 4);
}

/// Shows F1.
#[tokio::test(flavor = "multi_thread")]
async fn the_label_follows_a_key_in_consul_whoever_holds_it() {
    follow_a_key(Consul::shared(), "candidates-consul").await;
}

/// Shows F1.
#[tokio::test(flavor = "multi_thread")]
async fn the_label_follows_a_key_in_an_old_consul_too() {
    follow_a_key(&Consul::start(Kind::Old), "candidates-old").await;
}

/// Shows F4.
#[tokio::test(flavor = "multi_thread")]
async fn the_label_follows_an_object_in_a_bucket() {
    let server = Buckets::shared(buckets::Kind::S3);
    let bucket = server.create("candidates").await;
    let member = member("candidates-bucket", "west", &bucket, server.socket(), "Hold").await;
    follow_an_object(&member, &bucket.url, |url, identity| agent_in_bucket(server, url, identity)).await;
}

/// Shows A9.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: fetches Azurite by npm, 360 MB"]
async fn the_label_follows_the_lease_of_a_blob() {
    let server = Buckets::shared(buckets::Kind::Azure);
    let mut bucket = server.create("followed").await;
    let endpoint = server.endpoint(server.socket());
    let account = endpoint.rsplit('/').next().expect("it ends with the account");
    bucket.url = format!("{}@{account}.blob.core.windows.net", bucket.url);
    let member = member_at(server, "candidates-blob", "west", &bucket, server.socket(), "Hold").await;
    follow_an_object(&member, &bucket.url, |url, identity| agent_on_blob(server, url, identity)).await;
}

async fn follow_an_object(member: &Member, bucket: &str, agent: impl Fn(&str, &str) -> Candidate) {
    let (lab, _operator) = (&member.lab, member.operator(&[]));
    lab.ready_pods(&["a", "b"]).await;
    let recorder = lab.record().await;
    let key = format!("{}/app", member.prefix);
    member.elect(json!({"electedBy": "Candidates", "followedLock": {"key": key}})).await;
    wait_free(lab, &key).await;
    let url = format!("{bucket}/{key}");
    let mut first = agent(&url, "a");
    first.says("leads");
    lab.wait_leader("a").await;
    wait_holder(lab, "a", Some("a")).await;
    let second = agent(&url, "b");
    first.end().await;
    second.says("leads");
    lab.wait_leader("b").await;
    second.signal("KILL");
    lab.wait_condition("web", "Elected", "False", "FollowedLockFree").await;
    lab.wait_no_leader().await;
    assert_eq!(recorder.assert_promises().await, 2);
}

async fn follow_a_key(consul: &Consul, test: &str) {
    let member = Member::new(test, "west", consul.address(), json!({})).await;
    let (lab, _operator) = (&member.lab, member.operator(&[]));
    lab.ready_pods(&["a", "b", "c"]).await;
    let recorder = lab.record().await;
    let prefix = format!("{}/app", member.prefix);
    let key = format!("{prefix}/.lock");
    member.elect(json!({"electedBy": "Candidates", "followedLock": {"key": key}})).await;
    wait_free(lab, &key).await;

    let mut by_command = consul_lock(consul, &prefix, "a");
    by_command.says("leads");
    lab.wait_leader("a").await;
    assert_eq!(wait_holder(lab, "a", Some("a")).await, Some(1));
    let mut by_library = consul_api(consul, &key, "b");
    by_command.end().await;
    by_library.says("leads");
    lab.wait_leader("b").await;
    wait_holder(lab, "b", Some("b")).await;
    let agent = agent(&["--consul", consul.address(), "--key", &key, "--ttl", "10s"], "c");
    by_library.end().await;
    agent.says("leads");
    lab.wait_leader("c").await;
    wait_holder(lab, "c", Some("c")).await;

    // The pod is gone, and the agent on this machine holds the lock all the same.
    lab.kill_pod("c").await;
    lab.wait_condition("web", "Elected", "False", "HolderNotFound").await;
    lab.wait_no_leader().await;
    drop(agent);
    // The next holder writes its pod's address.
    let ip = lab.pods_api().get("b").await.expect("it is there").status.and_then(|status| status.pod_ip);
    let by_ip = json!({"key": key, "identity": {"from": "PodIP"}});
    member.elect(json!({"electedBy": "Candidates", "followedLock": by_ip})).await;
    let by_library = consul_api(consul, &key, &format!("{}:8080", ip.expect("it has an address")));
    by_library.says("leads");
    lab.wait_leader("b").await;
    assert_eq!(recorder.assert_promises().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_where_the_candidates_elect_is_refused() {
    let member = Member::new("candidates-refused", "west", Consul::shared().address(), json!({})).await;
    let (lab, _operator) = (&member.lab, member.operator(&[]));
    let follow = |candidates: Value| json!({"electedBy": "Candidates", "followedLock": candidates});
    lab.ready_pods(&["a"]).await;
    for (candidates, reason, says) in [
        (json!({"key": member.key()}), "FollowsItself", "give the record another name with spec.key"),
        (json!({"key": "elsewhere/.lock"}), "KeyNotAllowed", "lets elections follow"),
    ] {
        member.elect(follow(candidates)).await;
        let message = lab.wait_condition("web", "Accepted", "False", reason).await;
        assert!(message.contains(says), "{message}");
    }
    member.elect(follow(json!({"lease": {"name": "web-lock"}}))).await;
    let _a = client_go(lab, "a");
    lab.wait_leader("a").await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    ask(lab, "move", json!({"fromTerm": term(lab).await})).await;
    let message = failed(lab, "move", "ElectedByCandidates").await;
    assert!(message.contains("SIGTERM"), "{message}");
    let said = lab.election("web").await.status.expect("a status");
    assert_eq!(said.worst_case_failover_seconds, None);
}

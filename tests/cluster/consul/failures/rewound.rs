//! Consul's state is put back to an earlier snapshot, with its indexes, locks and sessions.

use std::path::PathBuf;
use std::time::Instant;

use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::{Cluster, eventually};
use serde_json::json;

use super::super::member::{Member, entry, sessions_of};
use super::{Side, kept_their_promises, two, within};

/// A snapshot of Consul's state. Dropping it deletes the file.
struct Snapshot(PathBuf);

impl Snapshot {
    fn save(consul: &Consul, name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lictor-{name}-{}.snap", std::process::id()));
        consul.cli(&["snapshot", "save", path.to_str().expect("a path is text")]);
        Self(path)
    }

    fn restore(&self, consul: &Consul) {
        consul.cli(&["snapshot", "restore", self.0.to_str().expect("a path is text")]);
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the term that the leader carries.
async fn term(side: &Side, leader: &str) -> i64 {
    let pod = side.member.lab.get_pod(leader).await;
    pod.metadata
        .annotations
        .and_then(|all| all.get("lictor.dev/term")?.parse().ok())
        .expect("a leader carries its term")
}

/// Waits until the lock names this pod, with the term that the pod carries.
async fn settled(consul: &Consul, side: &Side, leader: &str) {
    eventually("the lock and the pod agree", || async {
        let found = entry(consul, &side.member.key()).await.unwrap_or_default();
        let at_least = found["ModifyIndex"].as_i64().max(found["Value"]["term"].as_i64());
        let term = term(side, leader).await;
        let agree = found["Value"]["holder"]["pod"] == json!(leader) && found["Session"].is_string();
        if agree && at_least == Some(term) { Ok(()) } else { Err(format!("{found} and {term}")) }
    })
    .await;
}

/// Kills the leader, and creates a pod that takes its place. Returns the new leader.
async fn failover(side: &Side, leader: &str, name: &str) -> String {
    side.member.lab.ready_pods(&[name]).await;
    side.member.lab.kill_pod(leader).await;
    let next = side.member.lab.wait_any_leader().await;
    side.member.lab.wait_elected("web").await;
    next
}

/// With one cluster, the election continues, and terms still rise.
async fn one_cluster(consul: &Consul) {
    let before_all = Snapshot::save(consul, "before");
    let member = Member::new("rewound-one", "west", consul.address(), json!({})).await;
    let (side, mut leader) = Side::led(member, &["a", "b"]).await;
    let earlier = Snapshot::save(consul, "earlier");
    for name in ["c", "d", "e"] {
        leader = failover(&side, &leader, name).await;
    }

    // An older record of a pod that is gone. The pod with the leader label continues to lead.
    let highest = term(&side, &leader).await;
    earlier.restore(consul);
    let began = Instant::now();
    settled(consul, &side, &leader).await;
    within("rewound-one, an older record", began);
    assert!(term(&side, &leader).await > highest, "the term has risen");
    assert_eq!(
        side.recorder.demoted_at().await.map(|_| side.recorder.leaders_since_first().last().copied()),
        Some(Some(1))
    );
    leader = failover(&side, &leader, "f").await;

    // Neither a record nor a session.
    let highest = term(&side, &leader).await;
    before_all.restore(consul);
    let began = Instant::now();
    settled(consul, &side, &leader).await;
    within("rewound-one, no record and no session", began);
    assert!(term(&side, &leader).await > highest, "the term has risen");
    leader = failover(&side, &leader, "g").await;

    // A lock of a session that was lost since.
    let old = Snapshot::save(consul, "old");
    let node = "lictor-west";
    let [(_, session)] = sessions_of(consul, &side.member, node).await.try_into().expect("one session");
    consul.api().put(&format!("/v1/session/destroy/{session}"), "").await.expect("Consul answers").ok();
    eventually("there is another session", || async {
        let found = entry(consul, &side.member.key()).await.unwrap_or_default();
        if found["Session"].is_string() && found["Session"] != json!(session) { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    side.member.lab.wait_any_leader().await;
    leader = failover(&side, &leader, "h").await;
    let highest = term(&side, &leader).await;
    old.restore(consul);
    let began = Instant::now();
    settled(consul, &side, &leader).await;
    within("rewound-one, the lock of an earlier session", began);
    assert!(term(&side, &leader).await > highest, "the term has risen");
    failover(&side, &leader, "i").await;
    side.recorder.assert_promises().await;
}

/// With two clusters and a state before all locks, neither leads beside the other.
async fn two_clusters_without_locks(consul: &Consul) {
    let before_all = Snapshot::save(consul, "before-two");
    let (west, east) = two(
        Member::new("rewound-none", "west", consul.address(), json!({})).await,
        Member::new("rewound-none", "east", consul.address(), json!({})).await,
    )
    .await;
    for _ in 0..3 {
        let holder = || async {
            let found = entry(consul, &west.member.key()).await.unwrap_or_default();
            found["Value"]["holder"]["pod"].as_str().map(str::to_owned).ok_or_else(|| found.to_string())
        };
        before_all.restore(consul);
        let began = Instant::now();
        // Each notices by itself that its session is gone.
        eventually("one of them leads", || async {
            let holder = holder().await?;
            let roles = [west.member.lab.roles().await, east.member.lab.roles().await].concat();
            let leads: Vec<&str> =
                roles.iter().filter(|(_, role)| role == "leader").map(|(pod, _)| pod.as_str()).collect();
            if leads == [holder.as_str()] { Ok(()) } else { Err(format!("{roles:?}, {holder}")) }
        })
        .await;
        within("rewound-none, no locks and no sessions", began);
        let (cluster, pod, other) =
            if holder().await == Ok("a".into()) { ("west", "a", &east) } else { ("east", "b", &west) };
        other.member.wait_led_elsewhere(cluster, pod).await;
        kept_their_promises(&[&west, &east]).await;
    }
}

/// With two clusters and a state in which the other has the lock, that one leads, or its session expires.
async fn two_clusters(consul: &Consul) {
    let (west, east) = two(
        Member::new("rewound-two", "west", consul.address(), json!({})).await,
        Member::new("rewound-two", "east", consul.address(), json!({})).await,
    )
    .await;
    // The west has the lock in the snapshot, and the east afterwards.
    let wests = Snapshot::save(consul, "wests");
    west.member.lab.kill_pod("a").await;
    east.member.lab.wait_leader("b").await;
    west.member.lab.ready_pods(&["c"]).await;
    west.member.wait_led_elsewhere("east", "b").await;
    east.member.lab.wait_elected("web").await;

    // The west is there: it has its lock again.
    wests.restore(consul);
    let began = Instant::now();
    west.member.lab.wait_leader("c").await;
    within("rewound-two, back to the other cluster", began);
    east.member.wait_led_elsewhere("west", "c").await;
    kept_their_promises(&[&west, &east]).await;

    // The west is gone when it has its lock again.
    west.member.lab.kill_pod("c").await;
    east.member.lab.wait_leader("b").await;
    east.member.lab.wait_elected("web").await;
    west.operator.signal("KILL");
    wests.restore(consul);
    let began = Instant::now();
    let reason = "LedElsewhere";
    east.member.lab.wait_condition("web", "Elected", "True", reason).await;
    east.member.lab.wait_leader("b").await;
    within("rewound-two, back to a cluster that is gone", began);
    kept_their_promises(&[&west, &east]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn when_consul_is_put_back_to_an_earlier_state_terms_rise_and_no_two_lead() {
    // Starting them blocks this thread.
    let all = [Consul::start(Kind::Dev), Consul::start(Kind::Dev), Consul::start(Kind::Dev)];
    let _ = Cluster::shared();
    tokio::join!(one_cluster(&all[0]), two_clusters(&all[1]), two_clusters_without_locks(&all[2]));
}

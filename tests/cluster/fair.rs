//! Trouble in one namespace, and failovers in another: `make bench ARGS=fair` measures what the first costs the second. Here it is only
//! seen that nobody waits for somebody else's requests.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::ListParams;
use lictor_testing::kubernetes::{Lab, Operator, PodSpec, eventually, hanging_webhook, silent_server};
use serde_json::json;

/// The number of failovers whose median counts.
const FAILOVERS: usize = 7;
/// How many times longer it may be beside trouble, on a machine that does other things as well. One that waits for a request that hangs
/// takes hundreds of times longer.
const FACTOR: u32 = 8;
/// The elections whose writes hang, and the requests that hang at least: together they want more than one namespace may have.
const ELECTIONS: [&str; 3] = ["one", "two", "three"];
const HANGING: usize = 12;
/// How long one failover may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An operator for the namespaces of both labs, and a group in the first one.
async fn start(calm: &Lab, troubled: &Lab) -> Operator {
    let both = format!("{},{}", calm.namespace, troubled.namespace);
    let operator = calm.operator(&["--namespaces", &both]);
    calm.ready_pods(&["a", "b", "c"]).await;
    calm.elect(json!({})).await;
    calm.wait_any_leader().await;
    operator
}

/// Returns the median time of failovers, from when the leader is not ready until another pod has its label.
async fn median(lab: &Lab) -> Duration {
    let mut times = Vec::new();
    for _ in 0..FAILOVERS {
        let leader = lab.wait_any_leader().await;
        let begun = Instant::now();
        lab.set_condition(&leader, "Ready", false).await;
        wait_other_leader(lab, &leader).await;
        times.push(begun.elapsed());
        lab.set_condition(&leader, "Ready", true).await;
        lab.wait_any_leader().await;
    }
    times.sort();
    times[FAILOVERS / 2]
}

/// Asks all the time, because an answer may come after milliseconds.
async fn wait_other_leader(lab: &Lab, old: &str) {
    let (pods, leads) = (lab.pods_api(), ListParams::default().labels("role=leader"));
    let other = async {
        while pods.list(&leads).await.expect("pods can be listed").items.iter().all(|pod| pod.name_any() == old) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, other).await.expect("another pod leads");
}

/// Lets each leader become not ready as soon as it leads, for ever.
async fn flap(lab: &Lab, count: &Cell<u32>) {
    loop {
        let leader = lab.wait_any_leader().await;
        lab.set_condition(&leader, "Ready", false).await;
        wait_other_leader(lab, &leader).await;
        lab.set_condition(&leader, "Ready", true).await;
        count.set(count.get() + 1);
    }
}

/// Panics if the trouble has made failovers slower.
fn judge(what: &str, before: Duration, beside: Duration) {
    eprintln!("measured: a failover takes {before:?}, and {beside:?} while {what}");
    assert!(beside < before * FACTOR, "{beside:?} while {what}, {before:?} before");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_the_requests_of_a_namespace_whose_webhook_hangs() {
    let (calm, troubled) = (Lab::new("beside-hanging").await, Lab::new("hanging").await);
    let recorder = calm.record().await;
    let _operator = start(&calm, &troubled).await;
    let before = median(&calm).await;

    let (port, hung) = silent_server().await;
    let webhook = hanging_webhook(&troubled.namespace, port, &json!({}));
    troubled.try_kubectl(&["apply", "-f", "-"], Some(&webhook.to_string())).expect("it can be applied");
    for election in ELECTIONS {
        troubled.apply_election(election, json!({"selector": {"matchLabels": {"group": election}}})).await;
        for number in 0..8 {
            let spec = PodSpec { labels: json!({"group": election}), ..PodSpec::default() };
            troubled.pod(&format!("{election}-{number}"), spec).await;
        }
    }
    eventually("requests hang", || async {
        let count = hung.load(Ordering::Relaxed);
        if count >= HANGING { Ok(()) } else { Err(format!("{count}")) }
    })
    .await;
    let beside = median(&calm).await;
    let roles = troubled.roles().await;
    assert!(roles.iter().all(|(_, role)| role.is_empty()), "nothing hung: {roles:?}");
    let name = troubled.namespace.as_str();
    troubled.try_kubectl(&["delete", "validatingwebhookconfiguration", name], None).expect("it can be deleted");
    judge("a webhook hangs elsewhere", before, beside);
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_an_election_whose_pods_flap() {
    let (calm, troubled) = (Lab::new("beside-flapping").await, Lab::new("flapping").await);
    let recorder = calm.record().await;
    let _operator = start(&calm, &troubled).await;
    let before = median(&calm).await;

    troubled.ready_pods(&["a", "b", "c"]).await;
    troubled.elect(json!({})).await;
    troubled.wait_any_leader().await;
    let flaps = Cell::new(0);
    let beside = tokio::select! {
        beside = median(&calm) => beside,
        () = flap(&troubled, &flaps) => unreachable!("it goes on for ever"),
    };
    assert!(flaps.get() > 1, "nothing flapped");
    judge("the pods of another election flap", before, beside);
    recorder.assert_promises().await;
}

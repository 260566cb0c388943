//! A group with more pods than a page of a list.

use std::time::Instant;

use kube::ResourceExt;
use kube::api::ListParams;
use lictor_testing::kubernetes::{Cluster, Lab, eventually};
use serde_json::{Value, json};

/// The number of pods. A page has 500, so the watch's list and each list of the core take two pages.
const PODS: usize = 520;

/// Returns how many pods have each role.
async fn roles(lab: &Lab) -> (usize, usize) {
    let roles = lab.roles().await;
    let of = |wanted: &str| roles.iter().filter(|(_, role)| role == wanted).count();
    (of("leader"), of("follower"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for 520 pods on a control plane of its own"]
async fn a_group_of_several_pages_has_one_leader_through_restart_failover_and_end() {
    let _alone = crate::alone().await;
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&format!("large-{}", std::process::id()), 6)));
    cluster.install_crds();
    let lab = Lab::of(cluster, "large").await;
    let recorder = lab.record().await;
    let pods: Vec<String> = (0..PODS).map(|number| format!("p{number:03}")).collect();
    lab.ready_pods(&pods.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let pages = lab.pods_api().list(&ListParams::default().labels("app=web").limit(500)).await;
    assert!(pages.expect("pods can be listed").metadata.continue_.is_some(), "the API server cuts the list");

    let labelled = async |lab: &Lab| {
        eventually("all are labelled", || async {
            let (leaders, followers) = roles(lab).await;
            if (leaders, followers) == (1, lab.roles().await.len() - 1) {
                Ok(())
            } else {
                Err(format!("{leaders} {followers}"))
            }
        })
        .await;
    };
    let mut operator = lab.operator(&[]);
    // The first pod that counts is on the second page of a list, which the API server sorts by name.
    let last = pods.last().expect("there are pods");
    lab.patch_pod(last, json!({"metadata": {"annotations": {"lictor.dev/priority": "9"}}})).await;
    let begun = Instant::now();
    lab.elect(json!({})).await;
    labelled(&lab).await;
    eprintln!("measured: {PODS} pods have their labels after {:?}", begun.elapsed());
    let leader = leader_of(&lab).await.expect("one leads");
    assert_eq!(&leader, last);

    // A second operator has to read all pods, page by page, and writes to none.
    assert!(operator.stop().await.success());
    let before = versions(&lab).await;
    let operator = lab.operator(&[]);
    operator.sees_leader(&lab.namespace, "web", &leader).await;
    assert_eq!(versions(&lab).await, before, "nothing is written again");

    // The first handover after another operator's record stamps all candidates. The second one does not.
    let mut before = leader;
    for handover in ["first", "second"] {
        let begun = Instant::now();
        lab.kill_pod(&before).await;
        let next = eventually("another one leads", || leader_of(&lab)).await;
        eprintln!("measured: {handover} failover among {PODS} pods: {:?}", begun.elapsed());
        assert_ne!(next, before);
        labelled(&lab).await;
        before = next;
    }

    lab.delete_election("web").await;
    eventually("no pod has a role any more", || async {
        let left: Vec<Value> =
            lab.roles().await.into_iter().filter(|(_, role)| !role.is_empty()).map(|pod| json!(pod)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    recorder.assert_promises().await;
}

async fn leader_of(lab: &Lab) -> Result<String, String> {
    let leads = ListParams::default().labels("app=web,role=leader");
    let pods = lab.pods_api().list(&leads).await.map_err(|error| error.to_string())?;
    pods.items.first().map(ResourceExt::name_any).ok_or_else(|| "nobody leads".to_owned())
}

async fn versions(lab: &Lab) -> Vec<Option<String>> {
    let pods = lab.pods_api().list(&ListParams::default().labels("app=web")).await.expect("pods can be listed");
    pods.items.iter().map(ResourceExt::resource_version).collect()
}

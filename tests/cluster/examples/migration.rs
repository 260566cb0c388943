//! The manifests of docs/migration.md: each is applied where what it replaces has been at work.

use std::collections::BTreeSet;
use std::process::Stdio;

use k8s_openapi::api::apps::v1::Deployment;
use lictor_api::LeaderElection;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Cluster, Lab, eventually};

use super::{api, apply_example, directory, follows, reaches};

/// The migrations that a test below is about.
const TESTED: [&str; 4] = ["leader-elector", "consul-lock", "labelling-script", "statefulset-ordinal"];

pub(super) async fn all(cluster: &'static Cluster) {
    let all = std::fs::read_dir(directory("migration")).expect("migrations can be listed");
    let all = all.map(|entry| entry.expect("migrations can be listed").file_name().into_string().expect("a name"));
    assert_eq!(all.collect::<BTreeSet<_>>(), TESTED.map(str::to_owned).into(), "each has its test");
    tokio::join!(
        leader_elector(cluster),
        consul_lock(cluster),
        labelling_script(cluster),
        statefulset_ordinal(cluster)
    );
}

/// The name of the pod that leads.
fn leader(election: &LeaderElection) -> Option<&str> {
    election.status.as_ref()?.leader.as_ref()?.pod_name.as_deref()
}

/// Waits until all three pods of an election could lead and one of them does; returns its name.
async fn leads(lab: &Lab, name: &str) -> String {
    let ready = |election: &LeaderElection| {
        let candidates = election.status.as_ref().and_then(|status| status.candidates.as_ref());
        candidates.is_some_and(|candidates| candidates.summary == "3/3")
    };
    let what = "one of three pods leads";
    let election = lab.wait_status(name, what, |election| ready(election) && leader(election).is_some()).await;
    leader(&election).expect("it leads").to_owned()
}

async fn leader_elector(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "sidecar").await;
    // The lock of a sidecar that keeps it in a Lease by the same name: the page says that it has to go first.
    let lease =
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: worker}\nspec: {holderIdentity: worker-0}\n";
    lab.try_kubectl(&["apply", "-f", "-"], Some(lease)).expect("a Lease can be made");
    apply_example(&lab, "migration/leader-elector");
    lab.wait_condition("worker", "Elected", "False", "LockNotOurs").await;
    lab.try_kubectl(&["delete", "lease", "worker"], None).expect("it can be deleted");
    leads(&lab, "worker").await;
}

async fn consul_lock(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "lock").await;
    let prefix = format!("services/{}/batch", lab.namespace);
    let mut command = Consul::shared().command();
    let command = command.args(["lock", "-pass-stdin", &prefix, "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut holder = command.spawn().expect("consul lock starts");
    let key = format!("/v1/kv/{prefix}/.lock");
    eventually("consul lock holds the lock", || async {
        let found = Consul::shared().api().get(&key).await?.json()[0].clone();
        if found["Session"].is_string() { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    apply_example(&lab, "migration/consul-lock");
    lab.wait_condition("batch", "Elected", "False", "HeldByOther").await;
    runs(&lab, 0).await;
    drop(holder.stdin.take());
    follows(&lab, "batch").await;
    runs(&lab, 1).await;
    assert!(holder.wait().expect("consul lock ends").success());
}

/// Waits until the Deployment of `consul-lock` has this number of replicas.
async fn runs(lab: &Lab, replicas: i32) {
    eventually(&format!("{replicas} replicas are wanted"), || async {
        let batch = api::<Deployment>(lab).get("batch").await.map_err(|error| error.to_string())?;
        let wanted = batch.spec.as_ref().and_then(|spec| spec.replicas);
        if wanted == Some(replicas) { Ok(()) } else { Err(format!("{wanted:?}")) }
    })
    .await;
}

/// The pod that the script labelled stays the leader, though it is not the first by anything else.
async fn labelling_script(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "script").await;
    let deployment = directory("migration/labelling-script/deployment.yaml");
    lab.try_kubectl(&["apply", "-f", deployment.to_str().expect("the path is text")], None).expect("it is applied");
    lab.try_kubectl(&["rollout", "status", "deployment/api", "--timeout=60s"], None).expect("its pods are ready");
    let names = lab.try_kubectl(&["get", "pods", "-l", "app=api", "-ojsonpath={.items[*].metadata.name}"], None);
    let names = names.expect("pods can be listed");
    let labelled = names.split_whitespace().max().expect("there are pods");
    lab.try_kubectl(&["label", "pod", labelled, "active=true"], None).expect("it is labelled");
    apply_example(&lab, "migration/labelling-script");
    assert_eq!(leads(&lab, "api").await, labelled);
    reaches(&lab, "api", labelled).await;
    let term = lab.election("api").await.status.and_then(|status| status.term);
    assert_eq!(term, Some(1), "nobody led in between");
}

async fn statefulset_ordinal(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "ordinal").await;
    apply_example(&lab, "migration/statefulset-ordinal");
    assert_eq!(leads(&lab, "queue").await, "queue-0", "it is ready first");
    reaches(&lab, "queue", "queue-0").await;
    lab.delete_pod("queue-0").await;
    let next = |election: &LeaderElection| leader(election).is_some_and(|pod| pod != "queue-0");
    let election = lab.wait_status("queue", "another replica leads", next).await;
    reaches(&lab, "queue", leader(&election).expect("it leads")).await;
}

//! etcd is put back to an earlier state while the operator runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lictor_testing::kubernetes::{Cluster, Lab, eventually};
use serde_json::json;

/// The time of a failover afterwards: the operator has noticed, and has read everything again.
const IN_TIME: Duration = Duration::from_secs(30);

/// A control plane whose etcd and API server are stopped.
struct Stopped<'a> {
    cluster: &'a Cluster,
    data: PathBuf,
}

impl<'a> Stopped<'a> {
    fn stop(cluster: &'a Cluster) -> Self {
        let stopped = Self::stop_etcd(cluster);
        cluster.order("kill", "kube-apiserver");
        stopped
    }

    /// Stops etcd alone. The API server runs on, which it should not after a restore.
    fn stop_etcd(cluster: &'a Cluster) -> Self {
        let (command, directory) = cluster.command("etcd");
        let data = command.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--data-dir") {
            Some("") => command.get(at + 1).cloned(),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => None,
        });
        cluster.order("kill", "etcd");
        Self { cluster, data: directory.join(data.expect("etcd is told where its data is")) }
    }

    fn save(&self, copy: &Path) {
        copy_all(&self.data, copy);
    }

    fn restore(&self, copy: &Path) {
        std::fs::remove_dir_all(&self.data).expect("it can be removed");
        copy_all(copy, &self.data);
    }

    async fn start(self) {
        self.cluster.order("start", "etcd");
        self.cluster.order("start", "kube-apiserver");
        eventually("the API server answers", || async { self.cluster.try_kubectl(&["get", "--raw", "/readyz"], None) })
            .await;
    }
}

fn copy_all(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.expect("cp runs").success());
}

/// Returns the term that a pod carries.
async fn term(lab: &Lab, pod: &str) -> i64 {
    let pod = lab.get_pod(pod).await;
    let term = pod.metadata.annotations.and_then(|all| all.get("lictor.dev/term")?.parse().ok());
    term.unwrap_or_default()
}

async fn goes_on(test: &str, api_server_runs_on: bool) {
    let cluster = Cluster::start_for_orders(&format!("{test}-{}", std::process::id()));
    let cluster: &'static Cluster = Box::leak(Box::new(cluster));
    let copy = cluster.kubeconfig().with_file_name("etcd-copy");
    let lab = Lab::of(cluster, test).await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let first = lab.wait_any_leader().await;
    let first_term = term(&lab, &first).await;
    let stopped = Stopped::stop(cluster);
    stopped.save(&copy);
    stopped.start().await;

    let mut leader = first.clone();
    for name in ["c", "d", "e"] {
        lab.ready_pods(&[name]).await;
        lab.kill_pod(&leader).await;
        leader = lab.wait_any_leader().await;
    }
    let highest = term(&lab, &leader).await;
    assert!(highest > first_term);
    lab.wait_status("web", "the status has the term", |election| {
        election.status.as_ref().and_then(|status| status.term) == Some(highest)
    })
    .await;

    if api_server_runs_on {
        let stopped = Stopped::stop_etcd(cluster);
        stopped.restore(&copy);
        cluster.order("start", "etcd");
        operator.logs("restored to an earlier state").await;
    }
    let stopped = Stopped::stop(cluster);
    if !api_server_runs_on {
        stopped.restore(&copy);
    }
    stopped.start().await;
    let recorder = lab.record().await;
    let restored = Instant::now();
    // Only the deletion of the leader shows whether the operator continues.
    let shown = lab.wait_any_leader().await;
    eprintln!(
        "measured: after the restore {shown} leads in term {}, the highest was {highest}",
        term(&lab, &shown).await
    );
    lab.kill_pod(&shown).await;
    let next = eventually("another one leads", || async {
        let roles = lab.roles().await;
        let leader = roles.iter().find(|(_, role)| role == "leader").map(|(pod, _)| pod.clone());
        leader.ok_or_else(|| format!("{roles:?}"))
    })
    .await;
    let took = restored.elapsed();
    eprintln!("measured: {next} leads in term {} {took:?} after the restore", term(&lab, &next).await);
    assert!(took < IN_TIME, "{took:?}");
    assert!(term(&lab, &next).await > highest, "terms rise above all that this operator gave");
    operator.logs("restored to an earlier state").await;
    assert!(operator.metric("lictor_restores_total").await >= Some(1.0));
    recorder.assert_promises().await;
    lab.wait_status("web", "the status has the term", |election| {
        election.status.as_ref().and_then(|status| status.term) > Some(highest)
    })
    .await;
    let _ = std::fs::remove_dir_all(&copy);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane that is stopped and started"]
async fn when_etcd_is_put_back_to_an_earlier_state_the_operator_says_so_and_goes_on_with_higher_terms() {
    goes_on("restored", false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane that is stopped and started"]
async fn an_api_server_that_ran_on_when_etcd_was_put_back_does_no_harm_after_its_own_restart() {
    goes_on("restored-late", true).await;
}

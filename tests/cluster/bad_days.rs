//! Days on which Kubernetes itself does not work: what users see, and that all is well afterwards.

use std::path::Path;

use serde_json::json;

use crate::consul::failures::libfaketime;
use crate::support::{Cluster, Lab, Operator, eventually};

/// Asks etcd, which stands behind a control plane of the test's own, to refuse all writes, as it does when it has run out of space; or
/// to go on.
async fn out_of_space(cluster: &Cluster, is: bool) {
    let directory = cluster.kubeconfig().parent().expect("it is in a directory");
    let clusters = std::fs::read_dir(directory.join("clusters")).expect("kwokctl has its files there");
    let own = clusters.last().expect("there is one").expect("it can be read").path().join("kwok.yaml");
    let text = std::fs::read_to_string(own).expect("it can be read");
    let port = text.lines().find_map(|line| line.trim().strip_prefix("etcdPort: ")).expect("etcd has a port");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().expect("a client can be made");
    let order = json!({"action": if is { "ACTIVATE" } else { "DEACTIVATE" }, "memberID": "0", "alarm": "NOSPACE"});
    let url = format!("http://127.0.0.1:{port}/v3/maintenance/alarm");
    let answer = http.post(url).body(order.to_string()).send().await.expect("etcd answers");
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap_or_default());
}

/// `/readyz` says that it is not, and has this text.
async fn wait_unready(operator: &Operator, text: &str) -> String {
    eventually(&format!("/readyz says {text:?}"), || async {
        let (status, said) = operator.get("/readyz").await;
        if status == 503 && said.contains(text) { Ok(said) } else { Err(said) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_server_refuses_all_writes_the_leader_stays_and_the_operator_says_why_it_does_not_act() {
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&format!("full-{}", std::process::id()), 1)));
    cluster.install_definitions();
    let lab = Lab::of(cluster, "full").await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    out_of_space(cluster, true).await;
    let said = wait_unready(&operator, "database space exceeded").await;
    eprintln!("measured: etcd is out of space: {said}");
    operator.logs("this replica stands by").await;
    lab.wait_leader(&leader).await;
    assert_eq!(operator.get("/healthz").await.0, 200, "it would not help to start it anew");
    out_of_space(cluster, false).await;
    eventually("it is ready again", || async {
        let ready = operator.get("/readyz").await;
        if ready.0 == 200 { Ok(()) } else { Err(ready.1) }
    })
    .await;
    lab.kill_pod(&leader).await;
    lab.wait_any_leader().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_of_the_api_server_is_told() {
    let lab = Lab::new("expired").await;
    // The certificates of this control plane last for a hundred years.
    let library = libfaketime();
    let preload = [("LD_PRELOAD", library.to_str().expect("a path is text")), ("FAKETIME", "+200y")];
    let operator = lab.operator_in(Path::new(lab.cluster.kubeconfig()), &[], &preload);
    let said = wait_unready(&operator, "certificate").await;
    eprintln!("measured: the API server's certificate has expired: {said}");
    assert!(said.contains("expired"), "{said}");
}

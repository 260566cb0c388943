//! Days on which Kubernetes itself does not work: what users see, and that everything works again afterwards.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::ListParams;
use lictor_testing::kubernetes::{Cluster, Lab, Operator, PodSpec, eventually, hanging_webhook, silent_server};
use serde_json::json;

use crate::consul::failures::libfaketime;

/// Makes the etcd of the test's own control plane refuse all writes, as it does without free space, or accept them again.
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

/// Waits until `/readyz` reports that the operator is not ready, with this text.
async fn wait_unready(operator: &Operator, text: &str) -> String {
    eventually(&format!("/readyz says {text:?}"), || async {
        let (status, said) = operator.get("/readyz").await;
        if status == 503 && said.contains(text) { Ok(said) } else { Err(said) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own"]
async fn while_the_api_server_refuses_all_writes_the_leader_stays_and_the_operator_says_why_it_does_not_act() {
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&format!("full-{}", std::process::id()), 1)));
    cluster.install_crds();
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for 200 pods, and requests that hang"]
async fn a_webhook_that_hangs_in_one_namespace_does_not_slow_failovers_in_others() {
    const GROUPS: usize = 10;
    let cluster = Cluster::second();
    let (hangs, lab) = (Lab::of(cluster, "hangs").await, Lab::of(cluster, "works").await);
    let served = format!("{},{}", hangs.namespace, lab.namespace);
    let _operator = lab.operator(&["--namespaces", &served]);
    let group = |number: usize| format!("g{number}");
    for number in 0..GROUPS {
        for pod in ["a", "b"] {
            let labels = json!({"app": group(number)});
            lab.pod(&format!("{}-{pod}", group(number)), PodSpec { labels, ..PodSpec::default() }).await;
        }
        let spec = json!({"selector": {"matchLabels": {"app": group(number)}}});
        lab.apply_election(&group(number), spec).await;
    }
    let leader = async |number: usize| {
        let selector = format!("app={},role=leader", group(number));
        let led = lab.pods_api().list(&ListParams::default().labels(&selector)).await.map_err(|e| e.to_string())?;
        led.items.first().map(ResourceExt::name_any).ok_or_else(|| "nobody leads".to_owned())
    };
    for number in 0..GROUPS {
        eventually("there is a leader", || leader(number)).await;
    }

    let (port, taken) = silent_server().await;
    let webhook = hanging_webhook(&hangs.namespace, port, &json!({}));
    let pods: Vec<String> = (0..200).map(|number| format!("p{number}")).collect();
    hangs.ready_pods(&pods.iter().map(String::as_str).collect::<Vec<_>>()).await;
    cluster.try_kubectl(&["apply", "-f", "-"], Some(&webhook.to_string())).expect("a webhook can be made");
    hangs.elect(json!({})).await;
    eventually("its requests hang", || async {
        let taken = taken.load(Ordering::Relaxed);
        if taken >= 9 { Ok(()) } else { Err(format!("{taken} hang")) }
    })
    .await;

    let mut took = Vec::new();
    for number in 0..GROUPS {
        let before = leader(number).await.expect("it has one");
        let begun = Instant::now();
        lab.kill_pod(&before).await;
        eventually("another one leads", || leader(number)).await;
        took.push(begun.elapsed());
    }
    took.sort();
    let (median, longest) = (took[GROUPS / 2], took[GROUPS - 1]);
    eprintln!("measured: failovers beside a namespace that hangs: median {median:?}, longest {longest:?}");
    assert!(longest < Duration::from_secs(2), "{took:?}");
}

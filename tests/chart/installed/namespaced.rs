//! An installation by a user without rights on the cluster, in their own namespace.

use lictor_testing::kubernetes::{Lab, eventually};
use serde_json::json;

use super::{Release, cluster, drain};
use crate::account::Account;
use crate::helm::helm;
use crate::rights::assert_documented;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own, and Helm"]
async fn whoever_administers_a_namespace_can_install_it_there() {
    let cluster = cluster("chart-ns");
    // The cluster's administrator does this once: docs/install.md.
    cluster.install_crds();
    let lab = Lab::of(cluster, "shop").await;
    let namespace: &'static str = lab.namespace.clone().leak();
    let role = documented("kind: ClusterRole\nmetadata: {name: lictor-namespace}");
    cluster.try_kubectl(&["apply", "-f", "-"], Some(&role)).unwrap_or_else(|error| panic!("{error}"));
    cluster.kubectl(&["create", "namespace", "ops"]);
    let roles = [(namespace, "admin"), (namespace, "lictor-namespace"), ("ops", "admin"), ("ops", "lictor-namespace")];
    let owner = Account::new(cluster, "ops", "owner", &roles);

    let release = Release::new(cluster, "lictor", "ops");
    let values = format!("namespaces: [{namespace}]");
    release.helm_as(owner.kubeconfig(), &["install", "--skip-crds", "--wait"], &values).expect("it can be installed");
    let account = release.account();
    let mut operator = release.operator(&account);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    operator.sees_leader(namespace, "web", &leader).await;
    eventually("it is ready", || async {
        let ready = operator.get("/readyz").await;
        if ready.0 == 200 { Ok(()) } else { Err(ready.1) }
    })
    .await;
    assert_documented(cluster, "The operator, with namespaces", namespace, "ops:lictor");
    assert_documented(cluster, "The same, in the namespace of the release", "ops", "ops:lictor");
    account.refused(&["get", "pods", "-A"], None, "cannot list resource \"pods\"");
    account.refused(&["-n", "default", "get", "leases"], None, "cannot list resource \"leases\"");

    // The Role shows that one namespace has the same controller twice.
    let second = Release::new(cluster, "second", namespace);
    let error = second.helm_as(owner.kubeconfig(), &["install", "--skip-crds"], &values).expect_err("it is refused");
    assert!(error.contains(&format!("serves the controller lictor.dev/operator already in {namespace}")), "{error}");
    // Two in one namespace would share a Lease, whatever they serve.
    let third = Release::new(cluster, "third", "ops");
    let error = third.helm_as(owner.kubeconfig(), &["install", "--skip-crds"], "namespaces: [ops]");
    let error = error.expect_err("it is refused");
    assert!(error.contains("the release lictor in this namespace has the controller lictor.dev/operator"), "{error}");

    let values = format!("{values}\nreplicaCount: 1");
    release.helm_as(owner.kubeconfig(), &["upgrade", "--wait"], &values).expect("it can be upgraded");
    lab.wait_leader(&leader).await;
    drain::the_only_replica_leaves_its_node(cluster, "ops").await;
    account.lictor(&release.hook("test")).await.unwrap_or_else(|error| panic!("{error}"));

    assert!(operator.stop().await.success());
    let told = account.lictor(&release.hook("pre-delete")).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("removed all labels"), "{told}");
    for pod in ["a", "b"] {
        lab.wait_clean(pod).await;
    }
    let uninstall = ["uninstall", "lictor", "--namespace", "ops", "--wait", "--timeout", "90s"];
    helm(Some(owner.kubeconfig()), &uninstall).unwrap_or_else(|error| panic!("{error}"));
    for namespace in [namespace, "ops"] {
        let kinds = "deploy,role,rolebinding,sa";
        let left = cluster.kubectl(&["-n", namespace, "get", kinds, "-l", "app.kubernetes.io/name=lictor", "-oname"]);
        assert_eq!(left, "", "in {namespace}");
        assert_eq!(cluster.kubectl(&["-n", namespace, "get", "leases", "-oname"]), "", "in {namespace}");
    }
}

/// Returns the YAML block in docs/install.md that contains this text.
fn documented(text: &str) -> String {
    let blocks = include_str!("../../../docs/install.md").split("```").filter_map(|block| block.strip_prefix("yaml\n"));
    blocks.into_iter().find(|block| block.contains(text)).expect("there is one").to_owned()
}

//! An installation by an administrator, for all namespaces.

use kube::ResourceExt;
use kube::api::ListParams;
use lictor_testing::kubernetes::{Cluster, Lab, Operator};
use serde_json::{Value, json};

use super::{Release, cluster, people, restricted};
use crate::account::Account;
use crate::documented::annotation;
use crate::helm::{helm, objects};
use crate::rendered::cases;
use crate::rights::assert_documented;

const VALUES: &str = r#"
routing: {enabled: false}
policies: {others: {enabled: true}}
classes:
- name: reserved
  spec: {lease: {}, allowedNamespaces: {names: [bank]}}
- name: consul
  spec:
    keyPattern: services/{namespace}/*
    consul: {address: "http://127.0.0.1:1", clusterName: west, tokenSecretRef: {name: consul-token}}
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own, and Helm"]
async fn it_elects_with_its_own_rights_and_no_others() {
    let cluster = cluster("chart");
    let release = Release::new(cluster, "lictor", "lictor");
    cluster.kubectl(&["create", "namespace", "lictor"]);
    cluster.kubectl(&["label", "namespace", "lictor", "pod-security.kubernetes.io/enforce=restricted"]);
    release.helm(&["install", "--wait"], VALUES).expect("it can be installed");
    restricted::pods_are_made(&release, cluster);
    every_snapshot_is_accepted(cluster);
    what_artifact_hub_shows_is_accepted(cluster);
    another_release_with_the_same_controller_is_refused(cluster);
    for secret in ["consul-token", "another"] {
        cluster.kubectl(&["-n", "lictor", "create", "secret", "generic", secret, "--from-literal=token=x"]);
    }

    let account = release.account();
    let mut operator = release.operator(&account);
    let lab = Lab::of(cluster, "shop").await;
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect(json!({})).await;
    let first = lab.wait_any_leader().await;
    lab.kill_pod(&first).await;
    let leader = lab.wait_any_leader().await;
    operator.sees_leader(&lab.namespace, "web", &leader).await;

    assert_documented(cluster, "The operator, with routing.enabled: false", "lictor", "lictor:lictor");
    // The operator's pods have this account.
    assert_documented(cluster, "A pod of a group", &lab.namespace, &format!("{}:default", lab.namespace));
    the_operators_token_can_do_no_more(&account, &lab, &leader);
    a_tenant_stays_in_its_place(cluster, &lab, &leader).await;
    people::see_classes_and_run_elections(cluster, &lab).await;
    a_label_that_is_no_role_is_refused_with_the_value_to_extend(&lab).await;
    the_policies_let_the_others_work(cluster, &lab);
    the_cluster_can_be_its_own_hub(cluster);
    an_upgrade_changes_no_leader(&release, &account, &mut operator, &lab, &leader).await;
    the_hook_of_an_upgrade_renews_the_crds(&release, cluster).await;
    the_test_says_what_is_not_well(&release, &account, cluster).await;
    the_hook_of_an_upgrade_makes_a_crd_that_was_deleted(&release, cluster).await;
    assert!(operator.stop().await.success());
    an_uninstall_leaves_nothing_behind(&release, &account, &lab).await;
    the_crds_go_when_asked_for(&release, cluster, &lab).await;
}

/// Checks that an upgrade reports missing rights on workloads, and that the workloads follow once the rights are granted. The
/// leader stays the same.
async fn an_upgrade_changes_no_leader(
    release: &Release,
    account: &Account,
    operator: &mut Operator,
    lab: &Lab,
    leader: &str,
) {
    deployment(lab);
    let template = json!({"spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "example/settle"}],
    }}}});
    let importer = json!({"kind": "Deployment", "name": "importer", "replicas": 2});
    assert!(!operator.log().contains("list services"), "Services are watched only when an election asks for it");
    let workloads = json!([importer, {"kind": "Job", "name": "settle", "jobTemplate": template}]);
    lab.elect(json!({"workloads": workloads, "service": {"name": "web-leader", "ports": [{"port": 80}]}})).await;
    let told = lab.wait_condition("web", "Routed", "False", "Forbidden").await;
    assert!(told.contains("not allowed to list") && told.contains("routing.enabled"), "{told}");
    let told = lab.wait_condition("web", "WorkloadsFollow", "False", "Forbidden").await;
    assert!(told.contains("not allowed to list"), "{told}");
    let before = lab.election("web").await.status.expect("it has a status");
    let values = VALUES.replace("routing: {enabled: false}\n", "");
    let values = format!("{values}\nworkloads: {{enabled: true}}\nreplicaCount: 3\nstrategy: {{type: Recreate}}\n");
    release.helm(&["upgrade"], &values).expect("it can be upgraded");
    lab.cluster.kubectl(&["-n", "lictor", "rollout", "status", "deployment", "lictor", "--timeout=60s"]);
    let ready = ["-n", "lictor", "get", "deployment", "lictor", "-ojsonpath={.status.readyReplicas}"];
    assert_eq!(lab.cluster.kubectl(&ready), "3");
    // Only who has written the record itself may begin to write slices in its term: otherwise the next operator begins another one.
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    assert!(operator.stop().await.success());
    *operator = release.operator(account);
    operator.sees_leader(&lab.namespace, "web", leader).await;
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    let after = lab.election("web").await.status.expect("it has a status");
    assert_eq!((after.leader, after.term), (before.leader, before.term), "an upgrade changes no leader");
    assert_eq!(replicas(lab), "2");
    let job = format!("settle-{}", after.term.expect("there is a term"));
    lab.try_kubectl(&["wait", "--for=condition=Complete", "job", &job, "--timeout=60s"], None).expect("it has run");
    assert_documented(
        lab.cluster,
        "The operator, with workloads.enabled and routing.enabled",
        "lictor",
        "lictor:lictor",
    );
    let image = r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example/evil"}]}}}}"#;
    let refused = |arguments: &[&str], says: &str| {
        account.refused(&[&["-n", lab.namespace.as_str()], arguments].concat(), None, says);
    };
    refused(&["patch", "deployment", "importer", "-p", image], "not its spec.template");
    refused(&["annotate", "deployment", "importer", "example.com/a=b"], "only its own annotations of deployments");
    refused(&["create", "job", "evil", "--image=example/evil"], "may create only Jobs of elections");
    refused(&["patch", "job", &job, "-p", r#"{"spec":{"parallelism":9}}"#], "not its spec.parallelism");
    slices_of_elections_and_no_others_can_be_written(account, lab);
    services_of_elections_and_no_others_can_be_written(account, lab);
}

fn services_of_elections_and_no_others_can_be_written(account: &Account, lab: &Lab) {
    let ns = ["-n", lab.namespace.as_str()];
    let refused = |arguments: &[&str], input: Option<&Value>, says: &str| {
        account.refused(&[ns.as_slice(), arguments].concat(), input.map(Value::to_string).as_deref(), says);
    };
    let own = lab.try_kubectl(&["get", "service", "web-leader", "-ojson"], None).expect("it exists");
    let own: Value = serde_json::from_str(&own).expect("it is JSON");
    let made = |change: &dyn Fn(&mut Value)| {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]},
            "metadata": {"name": "mine", "labels": own["metadata"]["labels"], "ownerReferences": own["metadata"]["ownerReferences"]},
        });
        change(&mut service);
        service
    };
    let create = ["create", "-f", "-"];
    let others = "may write only the Services of elections";
    refused(&create, Some(&made(&|service| service["metadata"]["ownerReferences"] = json!([]))), others);
    refused(&create, Some(&made(&|service| service["metadata"]["labels"] = json!({}))), others);
    let bare = "only Services without a selector and without external addresses";
    refused(&create, Some(&made(&|service| service["spec"]["selector"] = json!({"app": "bank"}))), bare);
    refused(&create, Some(&made(&|service| service["spec"]["externalIPs"] = json!(["10.9.9.9"]))), bare);
    // Other commands read the Service first, which this account may not.
    let apply = ["apply", "--server-side", "-f", "-"];
    let selecting = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": "bank"}},
        })
    };
    refused(&apply, Some(&selecting("web-leader")), "may not change the selector");

    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "foreign"}, "spec": {"ports": [{"port": 80}]}});
    lab.try_kubectl(&["create", "-f", "-"], Some(&foreign.to_string())).expect("a person can make it");
    let not_ours = "the Service foreign was not made by lictor";
    refused(&apply, Some(&selecting("foreign")), not_ours);
    let path = format!("/api/v1/namespaces/{}/services/foreign", lab.namespace);
    refused(&["delete", "--raw", &path], None, not_ours);
}

fn slices_of_elections_and_no_others_can_be_written(account: &Account, lab: &Lab) {
    let ns = ["-n", lab.namespace.as_str()];
    let own = lab.try_kubectl(&["get", "endpointslice", "web-leader-lictor-ipv4", "-ojson"], None).expect("it exists");
    let own: Value = serde_json::from_str(&own).expect("it is JSON");
    let refused = |verb: &str, change: &dyn Fn(&mut Value), says: &str| {
        let mut slice = own.clone();
        slice["metadata"].as_object_mut().expect("an object").remove("resourceVersion");
        change(&mut slice);
        account.refused(&[ns.as_slice(), &[verb, "-f", "-"]].concat(), Some(&slice.to_string()), says);
    };
    let others = "may write only the EndpointSlices of elections";
    refused("create", &|slice| slice["metadata"]["name"] = json!("mine"), others);
    refused("replace", &|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] = json!("another"), others);
    let manager = "endpointslice.kubernetes.io/managed-by";
    refused("replace", &|slice| slice["metadata"]["labels"][manager] = json!("me"), others);
    refused("replace", &|slice| slice["metadata"]["ownerReferences"] = json!([]), others);
    let two = |slice: &mut Value| {
        let one = slice["endpoints"][0].clone();
        slice["endpoints"].as_array_mut().expect("a list").push(one);
    };
    refused("replace", &two, "may name only one pod");
    let pods = "may name only pods of the same namespace";
    refused("replace", &|slice| slice["endpoints"][0]["targetRef"] = Value::Null, pods);
    refused("replace", &|slice| slice["endpoints"][0]["targetRef"]["namespace"] = json!("bank"), pods);
    refused("replace", &|slice| slice["endpoints"][0]["targetRef"]["kind"] = json!("Node"), pods);
    refused("replace", &|slice| slice["endpoints"][0]["addresses"] = json!(["10.0.0.1", "10.0.0.2"]), pods);

    let foreign = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "foreign"},
        "addressType": "IPv4", "endpoints": [],
    });
    lab.try_kubectl(&["create", "-f", "-"], Some(&foreign.to_string())).expect("a person can make it");
    let not_ours = "the EndpointSlice foreign was not made by lictor";
    account.refused(&[ns.as_slice(), &["replace", "-f", "-"]].concat(), Some(&foreign.to_string()), not_ours);
    account.refused(&[ns.as_slice(), &["delete", "endpointslice", "foreign"]].concat(), None, not_ours);
    for (verb, what) in
        [("patch", "endpointslices"), ("update", "services"), ("delete", "endpoints"), ("get", "services")]
    {
        let can = ["-n", &lab.namespace, "auth", "can-i", verb, what, "--as=system:serviceaccount:lictor:lictor"];
        assert!(lab.cluster.try_kubectl(&can, None).is_err(), "{verb} {what}");
    }
}

async fn the_hook_of_an_upgrade_renews_the_crds(release: &Release, cluster: &'static Cluster) {
    let arguments = release.hook("pre-upgrade");
    assert_documented(cluster, "The Job of helm upgrade", "lictor", "lictor:lictor-upgrade");
    let account = Account::of(cluster, "lictor", "lictor-upgrade");
    cluster.kubectl(&["annotate", "crd", "leaderelections.lictor.dev", "lictor.dev/version-"]);
    let told = account.lictor(&arguments).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("leaderelections.lictor.dev comes from lictor"), "{told}");
    account.refused(&["delete", "crd", "leaderelections.lictor.dev"], None, "cannot delete resource");
    account.refused(&["get", "secrets", "-A"], None, "cannot list resource \"secrets\"");
    release.unhook("pre-upgrade");
}

/// A CRD that somebody deleted comes back with the next upgrade. The right to create is for these names only.
async fn the_hook_of_an_upgrade_makes_a_crd_that_was_deleted(release: &Release, cluster: &'static Cluster) {
    let arguments = release.hook("pre-upgrade");
    let account = Account::of(cluster, "lictor", "lictor-upgrade");
    cluster.kubectl(&["delete", "crd", "electionclasses.lictor.dev"]);
    account.lictor(&arguments).await.unwrap_or_else(|error| panic!("{error}"));
    let other = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "evils.lictor.dev"},
        "spec": {
            "group": "lictor.dev", "scope": "Cluster", "names": {"kind": "Evil", "plural": "evils"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
    .to_string();
    account.refused(&["apply", "--server-side", "-f", "-"], Some(&other), "is forbidden");
    release.unhook("pre-upgrade");
}

async fn the_test_says_what_is_not_well(release: &Release, account: &Account, cluster: &Cluster) {
    let arguments = release.hook("test");
    let told = account.lictor(&arguments).await.expect_err("Consul is not there");
    assert!(told.contains("wrong  the class consul is not ready: NoAnswer"), "{told}");
    for well in ["ok     3 CRDs come from", "rights are granted", "ok     an operator acts"] {
        assert!(told.contains(well), "{told}");
    }
    cluster.kubectl(&["delete", "lec", "consul", "reserved"]);
    account.lictor(&arguments).await.unwrap_or_else(|error| panic!("{error}"));
}

async fn an_uninstall_leaves_nothing_behind(release: &Release, account: &Account, lab: &Lab) {
    let cluster = lab.cluster;
    let arguments = release.hook("pre-delete");
    assert_documented(
        cluster,
        "The Job of helm uninstall, and the operator as long as that runs",
        "lictor",
        "lictor:lictor",
    );
    let told = account.lictor(&arguments).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("the operator has stopped") && told.contains("removed all labels"), "{told}");
    let election = lab.election("web").await;
    assert!(election.finalizers().is_empty(), "{:?}", election.finalizers());
    for pod in lab.pods_api().list(&ListParams::default()).await.expect("pods can be listed") {
        let written = ["lictor.dev/term", "lictor.dev/election", "controller.kubernetes.io/pod-deletion-cost"];
        let left = pod.annotations().keys().find(|key| written.contains(&key.as_str()));
        assert!(left.is_none() && !pod.labels().contains_key("role"), "{:?}", pod.metadata);
    }
    for namespace in [lab.namespace.as_str(), "lictor"] {
        assert_eq!(cluster.kubectl(&["-n", namespace, "get", "leases", "-oname"]), "", "in {namespace}");
    }
    let importer = lab.try_kubectl(&["get", "deployment", "importer", "-oyaml"], None).expect("it is there");
    assert!(!importer.contains("lictor.dev/"), "{importer}");
    let uninstall = ["uninstall", "lictor", "--namespace", "lictor", "--wait", "--timeout", "90s"];
    helm(Some(cluster.kubeconfig()), &uninstall).unwrap_or_else(|error| panic!("{error}"));
    let kinds = "deploy,rs,pod,job,sa,role,rolebinding,pdb,svc,cm,secret";
    let left = cluster.kubectl(&["-n", "lictor", "get", kinds, "-l", "app.kubernetes.io/name=lictor", "-oname"]);
    assert_eq!(left, "");
    let kinds = "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding";
    let left = cluster.kubectl(&["get", kinds, "-l", "app.kubernetes.io/name=lictor", "-oname"]);
    assert_eq!(left, "");
    cluster.kubectl(&["-n", &lab.namespace, "get", "le", "web"]);
}

async fn the_crds_go_when_asked_for(release: &Release, cluster: &'static Cluster, lab: &Lab) {
    release.helm(&["install"], "uninstall: {deleteCRDs: true}").expect("it can be installed again");
    let account = release.account();
    let mut operator = release.operator(&account);
    lab.wait_any_leader().await;
    assert!(operator.stop().await.success());
    let arguments = release.hook("pre-delete");
    let title = "The same, with uninstall.deleteCRDs";
    assert_documented(cluster, title, "lictor", "lictor:lictor");
    let told = account.lictor(&arguments).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("the classes and the CRDs"), "{told}");
    assert_eq!(cluster.kubectl(&["get", "crd", "-oname"]).matches("lictor.dev").count(), 0);
}

/// Applies them to the real API server, with all its kinds.
fn every_snapshot_is_accepted(cluster: &Cluster) {
    cluster.kubectl(&["-n", "lictor", "create", "serviceaccount", "elector"]);
    for namespace in ["shop", "bank", "consul", "keys"] {
        cluster.kubectl(&["create", "namespace", namespace]);
    }
    let runtime = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc",
    });
    cluster.try_kubectl(&["create", "-f", "-"], Some(&runtime.to_string())).expect("a RuntimeClass can be made");
    for (name, values) in cases() {
        let text = std::fs::read_to_string(values.with_file_name(format!("{name}.yaml"))).expect("there is a snapshot");
        let known = objects(&text).into_iter().filter(|object| object["apiVersion"] != "monitoring.coreos.com/v1");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": known.collect::<Vec<_>>()}).to_string();
        let arguments =
            ["apply", "--dry-run=server", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-"];
        cluster.try_kubectl(&arguments, Some(&list)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

fn what_artifact_hub_shows_is_accepted(cluster: &Cluster) {
    let examples = annotation("crdsExamples");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": examples}).to_string();
    let accepts = ["apply", "--dry-run=server", "--server-side", "--force-conflicts", "--validate=strict"];
    let arguments = [accepts.as_slice(), &["-n", "shop", "-oname", "-f", "-"]].concat();
    let told = cluster.try_kubectl(&arguments, Some(&list)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(told.lines().count(), 3, "{told}");
}

fn another_release_with_the_same_controller_is_refused(cluster: &'static Cluster) {
    cluster.kubectl(&["create", "namespace", "second"]);
    let second = Release::new(cluster, "second", "second");
    let error = second.helm(&["install", "--dry-run=server"], "{}").expect_err("it is refused");
    let says = "the release lictor in the namespace lictor serves the controller lictor.dev/operator already";
    assert!(error.contains(says), "{error}");
    let made = second.helm(&["install", "--dry-run=server"], "controller: example.com/second").expect("it is possible");
    assert!(!made.contains("kind: ElectionClass"), "the class lease is the first one's: {made}");
}

/// Checks that each of these is refused by what its words name.
fn the_operators_token_can_do_no_more(account: &Account, lab: &Lab, pod: &str) {
    let ns = ["-n", lab.namespace.as_str()];
    let refused = |arguments: &[&str], says: &str| account.refused(&[&ns, arguments].concat(), None, says);
    let patch = |patch: &str, says: &str| refused(&["patch", "pod", pod, "--type=strategic", "-p", patch], says);
    refused(&["label", "pod", pod, "app=other", "--overwrite"], "may not change the label app of a pod");
    refused(&["label", "pod", pod, "app-"], "may not change the label app of a pod");
    // On the leader it is lictor's own; on another pod there is none, or a user's.
    let (cost, written) = ("controller.kubernetes.io/pod-deletion-cost", "lictor.dev/pod-deletion-cost");
    let foreign = "may not change a deletion cost of a pod that somebody else has written";
    refused(&["annotate", "pod", pod, &format!("{cost}=7"), "--overwrite"], foreign);
    let both = |value: &str| [format!("{cost}={value}"), format!("{written}={value}")];
    let [new, says_so] = both("7");
    account.allowed(&[&ns, ["annotate", "pod", pod, &new, &says_so, "--overwrite"].as_slice()].concat(), None);
    lab.cluster.kubectl(&[&ns, ["annotate", "pod", pod, &format!("{cost}=8"), "--overwrite"].as_slice()].concat());
    refused(&["annotate", "pod", pod, &new, &says_so, "--overwrite"], foreign);
    refused(&["annotate", "pod", pod, &format!("{cost}-")], foreign);
    refused(&["annotate", "pod", pod, &format!("{cost}-"), &format!("{written}-")], foreign);
    let [old, says_so] = both("1000");
    lab.cluster.kubectl(&[&ns, ["annotate", "pod", pod, &old, &says_so, "--overwrite"].as_slice()].concat());
    refused(&["annotate", "pod", pod, "example.com/a=b"], "may not change the annotation example.com/a of a pod");
    patch(r#"{"spec":{"containers":[{"name":"main","image":"example/evil"}]}}"#, "not its spec");
    patch(r#"{"metadata":{"finalizers":["example.com/keep"]}}"#, "not other finalizers and owners");
    patch(
        r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}"#,
        "not other finalizers and owners",
    );
    refused(
        &["patch", "pod", pod, "--type=merge", "-p", r#"{"metadata":{"managedFields":[{}]}}"#],
        "may not remove others from the managedFields",
    );
    let debugger = r#"{"spec":{"ephemeralContainers":[{"name":"evil","image":"example/evil"}]}}"#;
    for subresource in ["ephemeralcontainers", "status", "resize"] {
        let way = format!("--subresource={subresource}");
        let says = format!("cannot patch resource \"pods/{subresource}\"");
        let told = account.kubectl(&[&ns, ["patch", "pod", pod, &way, "-p", debugger].as_slice()].concat(), None);
        let told = told.expect_err("it is refused");
        assert!(told.contains(&says) || told.contains(&says.replace("patch", "get")), "{told}");
    }
    refused(&["delete", "pod", pod], "cannot delete resource \"pods\"");
    refused(&["run", "new", "--image=example/evil"], "cannot create resource \"pods\"");
    refused(&["get", "secret", "any"], "cannot get resource \"secrets\"");
    refused(&["scale", "deployment", "any", "--replicas=0"], "cannot get resource \"deployments\"");
    refused(&["patch", "le", "web", "--subresource=scale", "-p", "{}"], "leaderelections/scale");
    refused(&["delete", "le", "web"], "cannot delete resource \"leaderelections\"");
    let unplaced = |arguments: &[&str], says: &str| account.refused(arguments, None, says);
    unplaced(&["-n", "lictor", "get", "secret", "another"], "cannot get resource \"secrets\"");
    unplaced(&["-n", "lictor", "get", "secrets"], "cannot list resource \"secrets\"");
    account.allowed(&["-n", "lictor", "get", "secret", "consul-token"], None);
    unplaced(&["cordon", "node-000000"], "cannot get resource \"nodes\"");
    unplaced(&["patch", "node", "node-000000", "-p", "{}"], "\"nodes\"");
    unplaced(
        &["patch", "lec", "consul", "--type=merge", "-p", r#"{"spec":{"keyPattern":"*"}}"#],
        "\"electionclasses\"",
    );
    let heartbeat = ["-n", "kube-node-lease", "patch", "lease", "node-000000", "--type=merge", "-p"];
    let hold = |patch| [heartbeat.as_slice(), &[patch]].concat();
    let foreign = "the Lease node-000000 was not made by lictor";
    unplaced(&hold(r#"{"spec":{"holderIdentity":"me"}}"#), foreign);
    unplaced(&hold(r#"{"metadata":{"labels":{"app.kubernetes.io/managed-by":"lictor"}}}"#), foreign);
    unplaced(&["-n", "kube-node-lease", "delete", "lease", "node-000000"], foreign);
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "claim"}}).to_string();
    account.refused(
        &["-n", "kube-system", "create", "-f", "-"],
        Some(&lease),
        "may write only the Leases of elections",
    );
    refused(
        &["patch", "lease", "web", "--type=merge", "-p", r#"{"metadata":{"annotations":{"lictor.dev/record":null}}}"#],
        "may write only the Leases of",
    );
}

async fn a_tenant_stays_in_its_place(cluster: &'static Cluster, lab: &Lab, leader: &str) {
    let namespace = lab.namespace.as_str();
    let tenant = Account::new(cluster, namespace, "tenant", &[(namespace, "edit")]);
    let account = format!("--serviceaccount={namespace}:tenant");
    let class = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": "mine"},
        "spec": {"consul": {"address": "http://consul:8500", "clusterName": "west"}, "keyPattern": "services/*"},
    });
    tenant.refused(&["create", "-f", "-"], Some(&class.to_string()), "cannot create resource \"electionclasses\"");
    let pod = |arguments: &[&str], says: &str| tenant.refused(&[&["-n", namespace], arguments].concat(), None, says);
    pod(
        &["label", "pod", leader, "role=follower", "--overwrite"],
        "the label role of a pod says who leads, and only lictor may change it",
    );
    pod(&["label", "pod", leader, "role-"], "only lictor may change it");
    pod(
        &["annotate", "pod", leader, "lictor.dev/term=9999", "--overwrite"],
        "only lictor may write the annotation lictor.dev/term",
    );
    pod(
        &["annotate", "pod", leader, "lictor.dev/election-"],
        "only lictor may write the annotation lictor.dev/election",
    );
    pod(
        &["run", "forged", "--image=example/web", "--labels=app=web", "--annotations=lictor.dev/term=9999"],
        "only lictor may write the annotation lictor.dev/term on a pod: leave it as it is, and leave it out of a new \
         pod",
    );
    cluster.kubectl(&["create", "clusterrole", "statuses", "--verb=get,patch", "--resource=pods/status"]);
    cluster.kubectl(&["-n", namespace, "create", "rolebinding", "statuses", "--clusterrole=statuses", &account]);
    let follow = r#"{"metadata":{"labels":{"role":"follower"}}}"#;
    pod(&["patch", "pod", leader, "--subresource=status", "-p", follow], "only lictor may change it");
    tenant.allowed(&["-n", namespace, "annotate", "pod", leader, "lictor.dev/priority=1"], None);
    tenant.allowed(&["-n", namespace, "label", "pod", leader, "team=shop"], None);

    // It may create its own elections, but not with the key of another namespace, nor with another's class.
    let cases = [
        (
            "consul",
            json!("services/bank/web/leader"),
            "KeyNotAllowed",
            format!("allows only \"services/{namespace}/*\" here"),
        ),
        ("reserved", json!(null), "ClassNotOffered", format!("is not offered to the namespace \"{namespace}\"")),
    ];
    for (class, key, reason, says) in cases {
        let election = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
            "metadata": {"name": "thief", "namespace": namespace},
            "spec": {"className": class, "key": key, "selector": {"matchLabels": {"app": "thief"}}},
        });
        tenant.allowed(&["create", "-f", "-"], Some(&election.to_string()));
        let told = lab.wait_condition("thief", "Accepted", "False", reason).await;
        assert!(told.contains(&says), "{told}");
        tenant.allowed(&["-n", namespace, "delete", "le", "thief"], None);
    }
    tenant.refused(&["-n", "bank", "get", "le"], None, "cannot list resource \"leaderelections\"");
}

fn the_cluster_can_be_its_own_hub(cluster: &Cluster) {
    cluster.kubectl(&["create", "namespace", "lictor-locks"]);
    let class = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": "hub"},
        "spec": {"hub": {"namespace": "lictor-locks", "clusterName": "hub"}},
    });
    cluster.try_kubectl(&["create", "-f", "-"], Some(&class.to_string())).unwrap_or_else(|error| panic!("{error}"));
    cluster.kubectl(&["wait", "--for=condition=Ready", "electionclass/hub", "--timeout=60s"]);
    let session = cluster.kubectl(&["-n", "lictor-locks", "get", "leases", "-oname"]);
    assert!(session.contains("sessions-hub-"), "{session}");
    cluster.kubectl(&["delete", "electionclass", "hub"]);
}

/// lictor writes any label that an election's author names, so a policy has to stop it.
async fn a_label_that_is_no_role_is_refused_with_the_value_to_extend(lab: &Lab) {
    lab.apply_election(
        "deputy",
        json!({
            "selector": {"matchLabels": {"app": "deputy"}}, "leader": {"labels": {"network": "trusted"}},
        }),
    )
    .await;
    lab.pod("deputy", lictor_testing::kubernetes::PodSpec { labels: json!({"app": "deputy"}), ..Default::default() })
        .await;
    lab.wait_message("deputy", "Elected", "HandoverFails", "add it to the value podWrites.labels of its chart").await;
    lab.try_kubectl(&["delete", "le", "deputy", "--timeout=30s"], None).unwrap_or_else(|error| panic!("{error}"));
    lab.kill_pod("deputy").await;
}

/// Checks that ReplicaSets, Jobs with their finalizers, evictions and the garbage collector still work.
fn the_policies_let_the_others_work(cluster: &'static Cluster, lab: &Lab) {
    let own = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {
        "metadata": {"labels": {"app": "batch"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example/once"}]},
    }}});
    lab.try_kubectl(&["create", "-f", "-"], Some(&own.to_string())).expect("a Job can be made");
    lab.try_kubectl(&["wait", "--for=condition=Complete", "job/once", "--timeout=60s"], None).expect("it completes");
    lab.try_kubectl(&["delete", "job", "once", "--cascade=foreground", "--timeout=60s"], None)
        .expect("it can be deleted");
    let left = cluster.kubectl(&["-n", &lab.namespace, "get", "pods", "-l", "app=batch", "-oname"]);
    assert_eq!(left, "");
}

fn deployment(lab: &Lab) {
    let importer = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "importer"}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": "importer"}}, "template": {
            "metadata": {"labels": {"app": "importer"}}, "spec": {"containers": [{"name": "main", "image": "example/importer"}]},
        },
    }});
    lab.try_kubectl(&["create", "-f", "-"], Some(&importer.to_string())).expect("a Deployment can be made");
}

fn replicas(lab: &Lab) -> String {
    lab.try_kubectl(&["get", "deployment", "importer", "-ojsonpath={.spec.replicas}"], None).expect("it is there")
}

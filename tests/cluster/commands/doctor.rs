//! `doctor` and `report`.

use lictor_testing::kubernetes::{Lab, PodSpec};
use serde_json::{Value, json};

use super::{compare, plugin, told};

fn apply(lab: &Lab, object: &Value) {
    lab.try_kubectl(&["apply", "-f", "-"], Some(&object.to_string())).expect("it can be applied");
}

fn service(lab: &Lab, name: &str, selector: &Value) {
    let spec = json!({"selector": selector, "ports": [{"port": 80}]});
    apply(lab, &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}));
}

/// Runs a command about this lab's installation.
pub fn about(lab: &Lab, arguments: &[&str]) -> std::process::Output {
    let own = ["--namespaces", &lab.namespace, "--lease-namespace", &lab.namespace, "-n", &lab.namespace];
    plugin(lab, lab.cluster.kubeconfig(), &[arguments, &own].concat()).output().expect("lictor starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_what_is_wrong_and_says_what_to_do() {
    let lab = Lab::new("cmd-doctor").await;
    // Other tests make classes for the default controller.
    let controller = format!("test/{}", lab.namespace);
    apply(
        &lab,
        &json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": lab.namespace},
            "spec": {"controller": controller, "lease": {}},
        }),
    );
    let _operator = lab.operator(&["--controller", &controller]);
    lab.pod("web-0", PodSpec::default()).await;
    lab.pod("web-1", PodSpec::default()).await;
    lab.wait_ready("web-0", true).await;
    lab.wait_ready("web-1", true).await;
    lab.elect(json!({"className": lab.namespace})).await;
    lab.wait_any_leader().await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    service(&lab, "web-leader", &json!({"app": "web", "role": "leader"}));
    let told = |what: &str| {
        let output = about(&lab, &["doctor", "--timeout", "20", "--controller", &controller]);
        told(&["doctor", what], &output).lines().filter(|line| !line.contains("Kubernetes v1.")).fold(
            String::new(),
            |all, line| {
                let line = line.split(" acts: ").next().unwrap_or_default();
                all + line + "\n"
            },
        )
    };
    let mut printed = told("(all is well)");
    // The label is misspelt.
    service(&lab, "web-leader", &json!({"app": "wob", "role": "leader"}));
    lab.patch_pod("web-1", json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}})).await;
    lab.elect_as("younger", json!({"className": lab.namespace})).await;
    lab.wait_condition("younger", "Ready", "False", "PodsTaken").await;
    lab.apply_election(
        "still",
        json!({"selector": {"matchLabels": {"app": "y"}}, "paused": true, "className": lab.namespace}),
    )
    .await;
    lab.wait_condition("still", "Ready", "True", "Paused").await;
    printed += &told("(a Service, and a conflict)").replace("(web-1)", "(web-0)");
    lab.try_kubectl(&["delete", "service", "web-leader"], None).expect("it can be deleted");
    service(&lab, "web", &json!({"app": "web"}));
    printed += &told("(before the cut-over)");
    compare(&lab, "doctor", &printed);
    let json: Value = serde_json::from_slice(&about(&lab, &["doctor", "-ojson", "--controller", &controller]).stdout)
        .expect("it is JSON");
    let wrong = json.as_array().unwrap().iter().filter(|finding| finding["result"] == "wrong").count();
    assert_eq!(wrong, 1, "{json}");
}

/// The account of the operator is found by its Deployment.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_checks_the_rights_of_the_operators_account() {
    let lab = Lab::new("cmd-account").await;
    let template = json!({
        "metadata": {"labels": {"app": "lictor"}},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "main", "image": "lictor"}]},
    });
    let labels = json!({"app.kubernetes.io/name": "lictor", "app.kubernetes.io/version": "0.0.9"});
    apply(
        &lab,
        &json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "lictor", "labels": labels},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "lictor"}}, "template": template},
        }),
    );
    let found = told(&["doctor"], &about(&lab, &["doctor", "--timeout", "1"]));
    let account = format!("system:serviceaccount:{}:default", lab.namespace);
    assert!(
        found.contains(&format!(
            "wrong  rights are missing to the operator's account {account}: get/list/watch/patch leaderelections in"
        )),
        "{found}"
    );
    assert!(
        found.contains("note   the Deployment") && found.contains("runs lictor 0.0.9, and this program is"),
        "{found}"
    );
    assert!(found.contains("wrong  no operator acts: there is no Lease") && found.contains("(exit code 3)"), "{found}");
}

/// Elections that route by a slice, or have workloads, need rights that others do not.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_checks_the_rights_that_elections_ask_for() {
    let lab = Lab::new("cmd-asked").await;
    let grant = |rules: Value| {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "lictor"}, "rules": rules});
        apply(&lab, &role);
    };
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let always = [
        rule("lictor.dev", &["leaderelections", "leaderelections/status", "switchovers", "switchovers/status"], &["*"]),
        rule("", &["pods"], &["*"]),
        rule("apps", &["replicasets", "statefulsets", "daemonsets"], &["get"]),
        rule("batch", &["jobs"], &["get"]),
        rule("", &["replicationcontrollers"], &["get"]),
        rule("coordination.k8s.io", &["leases"], &["*"]),
        rule("events.k8s.io", &["events"], &["*"]),
    ];
    let more = [
        rule("", &["services", "endpoints"], &["get", "list", "watch"]),
        rule("discovery.k8s.io", &["endpointslices"], &["get", "list", "watch", "create", "update", "delete"]),
        rule("apps", &["deployments"], &["get", "list", "watch", "patch"]),
    ];
    grant(json!(always));
    apply(
        &lab,
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "lictor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lictor"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": lab.namespace}],
        }),
    );
    let labels = json!({"app.kubernetes.io/name": "lictor"});
    let template = json!({"metadata": {"labels": {"app": "lictor"}}, "spec": {"containers": [{"name": "main", "image": "lictor"}]}});
    apply(
        &lab,
        &json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "lictor", "labels": labels},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "lictor"}}, "template": template},
        }),
    );
    let found = || told(&["doctor"], &about(&lab, &["doctor", "--timeout", "1"]));
    let plain = found();
    assert!(plain.contains("rights are granted to the operator's account"), "{plain}");
    assert!(!plain.contains("spec.service") && !plain.contains("spec.workloads"), "{plain}");
    lab.elect(json!({
        "service": {"name": "web-leader"}, "workloads": [{"kind": "Deployment", "name": "importer"}],
    }))
    .await;
    let lacking = found();
    let place = format!("in the namespace {}", lab.namespace);
    for says in [
        format!("for spec.service of {}/web: get endpoints {place}, list/watch services {place}, ", lab.namespace),
        format!("create/delete/get/list/update/watch endpointslices {place}. With the chart, set routing.enabled"),
        format!(
            "for spec.workloads of {}/web: get/list/patch/watch deployments {place}. With the chart",
            lab.namespace
        ),
    ] {
        assert!(lacking.contains(&says), "{says:?} is not in {lacking}");
    }
    grant(json!([always.as_slice(), more.as_slice()].concat()));
    let granted = found();
    assert!(granted.contains("ok     9 more rights are granted, for spec.service of"), "{granted}");
    assert!(granted.contains("ok     4 more rights are granted, for spec.workloads of"), "{granted}");
    lab.elect(json!({"service": {"name": "web-leader", "ports": [{"port": 80}]}})).await;
    let lacking = found();
    let creates = format!("for spec.service of {}/web: create/delete/patch services {place}", lab.namespace);
    assert!(lacking.contains(&creates), "{creates:?} is not in {lacking}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_has_what_helps_and_no_secrets() {
    const SECRET: &str = "hunter2";
    let lab = Lab::new("cmd-report").await;
    let _operator = lab.operator(&[]);
    let annotations = json!({"example.com/token": SECRET, "lictor.dev/priority": "7"});
    lab.pod("web-0", PodSpec { annotations: annotations.clone(), ..PodSpec::default() }).await;
    lab.wait_ready("web-0", true).await;
    let container = json!({"name": "main", "image": "x", "env": [{"name": "PASSWORD", "value": SECRET}]});
    let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
    apply(
        &lab,
        &json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": "web", "annotations": annotations},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "workloads": [{"kind": "Job", "name": "settle", "jobTemplate": job}]},
        }),
    );
    lab.wait_leader("web-0").await;
    apply(
        &lab,
        &json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "consul-token"}, "stringData": {"token": SECRET},
        }),
    );
    apply(
        &lab,
        &json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "lictor", "labels": {"app.kubernetes.io/name": "lictor"}, "annotations": annotations},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "lictor"}},
                "template": {"metadata": {"labels": {"app": "lictor"}, "annotations": annotations}, "spec": {"containers": [container]}}},
        }),
    );
    lab.wait_event("LeaderElection", "web", "Elected").await;
    let output = about(&lab, &["report", "--file", "-"]);
    let report = String::from_utf8(output.stdout).expect("it is text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!report.contains(SECRET), "{report}");
    for part in [
        "PASSWORD",
        "lictor.dev/priority: \"7\"",
        "web-0 is the leader",
        "(left out)",
        "lictor.dev/record",
        "kind: Lease",
        "result: ok",
    ] {
        // What kinds an object in a list has, its list says.
        assert!(part == "kind: Lease" || report.contains(part), "{part} is not in {report}");
    }
    let file = std::env::temp_dir().join(format!("{}.yaml", lab.namespace));
    let path = file.to_str().expect("a path is text");
    let written = told(&["report"], &about(&lab, &["report", "--file", path]));
    assert!(written.contains(": read it before you send it"), "{written}");
    let again = told(&["report"], &about(&lab, &["report", "--file", path]));
    assert!(again.contains("name another file with --file") && again.contains("(exit code 1)"), "{again}");
    std::fs::remove_file(&file).expect("it is there");
}

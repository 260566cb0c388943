//! `check`: what it foretells of an election comes true when the election is applied, and until then nothing is written.

use std::io::Write;
use std::process::{Output, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use lictor_testing::kubernetes::{Lab, PodSpec, User, eventually};
use serde_json::{Value, json};

use super::{compare, plugin, told};

/// An election as a document.
fn election(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": name}, "spec": spec})
}

/// Checks these documents from the standard input.
fn check_as(lab: &Lab, kubeconfig: &std::path::Path, documents: &[Value], more: &[&str]) -> Output {
    let mut command = plugin(lab, kubeconfig, &[&["check", "-f", "-"], more].concat());
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("lictor starts");
    let texts: Vec<String> = documents.iter().map(ToString::to_string).collect();
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(texts.join("\n---\n").as_bytes()).expect("it reads");
    drop(input);
    child.wait_with_output().expect("it ends")
}

fn check(lab: &Lab, documents: &[Value]) -> Output {
    check_as(lab, lab.cluster.kubeconfig(), documents, &[])
}

/// What is foretold of one election, for a program, and the exit code.
fn foretold(lab: &Lab, document: &Value) -> (Value, Option<i32>) {
    let output = check_as(lab, lab.cluster.kubeconfig(), std::slice::from_ref(document), &["-ojson"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let mut all: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (all[0].take(), output.status.code())
}

/// The versions of everything that lictor could write in the namespace.
async fn versions(lab: &Lab) -> Vec<String> {
    let pods = lab.pods_api().list(&ListParams::default()).await.expect("pods can be listed").items;
    let mut all: Vec<String> =
        pods.iter().map(|pod: &Pod| format!("{} {:?}", pod.name_any(), pod.resource_version())).collect();
    let kinds = "leaderelections,services,endpointslices,cronjobs";
    let paths = "-ojsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    all.extend(lab.try_kubectl(&["get", kinds, paths], None).expect("they can be listed").lines().map(str::to_owned));
    let leases = lab.leases_api().list(&ListParams::default()).await.expect("Leases can be listed").items;
    all.extend(leases.iter().map(ResourceExt::name_any));
    all.sort();
    all
}

/// Three ready pods, one with a label of somebody else.
async fn group(lab: &Lab) {
    lab.ready_pods(&["web-0", "web-1"]).await;
    lab.pod("web-2", PodSpec { labels: json!({"role": "backend"}), ..PodSpec::default() }).await;
    lab.wait_ready("web-2", true).await;
    // Without priorities, the second in which each became ready would decide.
    for (pod, priority) in [("web-0", "1"), ("web-1", "5")] {
        lab.patch_pod(pod, json!({"metadata": {"annotations": {"lictor.dev/priority": priority}}})).await;
    }
}

fn apply(lab: &Lab, object: &Value) {
    lab.try_kubectl(&["apply", "-f", "-"], Some(&object.to_string())).expect("it can be applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_election_would_write_is_shown_and_nothing_is_written() {
    let lab = Lab::new("cmd-check").await;
    let _operator = lab.operator(&[]);
    group(&lab).await;
    let service = |name: &str, selector: Value| {
        let spec = json!({"selector": selector, "ports": [{"port": 80}]});
        apply(&lab, &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}));
    };
    service("leads", json!({"app": "web", "role": "leader"}));
    service("taken", json!({"app": "web", "role": "backend"}));
    let container = json!({"name": "main", "image": "example/report"});
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
    apply(
        &lab,
        &json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "report"},
            "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": job}},
        }),
    );
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "service": {"name": "web-leader", "ports": [{"name": "http", "port": 80}]},
        "workloads": [{"kind": "CronJob", "name": "report"}, {"kind": "CronJob", "name": "nothing"}],
    });
    let mut insists = spec.clone();
    insists["whenLabelInUse"] = json!("Replace");
    eventually("the operator acts", || async {
        lab.leases_api().get("lictor.dev-operator").await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    let before = versions(&lab).await;
    let other = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"}, "spec": {}});
    let documents = [other, election("web", &spec)];
    let mut printed = told(&["check", "-f", "web.yaml"], &check(&lab, &documents));
    printed += &told(&["check", "-f", "insists.yaml"], &check(&lab, &[election("web", &insists)]));
    let nobody = json!({"selector": {"matchLabels": {"app": "nobody"}}});
    printed += &told(&["check", "-f", "nobody.yaml"], &check(&lab, &[election("nobody", &nobody)]));
    assert_eq!(versions(&lab).await, before);

    // It comes true.
    apply(&lab, &election("web", &spec));
    let elected = lab.wait_condition("web", "Elected", "True", "LabelInUse").await;
    assert!(elected.contains("web-1"), "{elected}");
    let mut edited = spec.clone();
    edited["selector"]["matchLabels"] = json!({"app": "web", "tier": "none"});
    edited["preemption"] = json!("HigherPriority");
    printed += &told(&["check", "-f", "web.yaml"], &check(&lab, &[election("web", &spec)]));
    printed += &told(&["check", "-f", "edited.yaml"], &check(&lab, &[election("web", &edited)]));
    compare(&lab, "check", &printed);
}

/// Each refusal has the condition's reason and words.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_foretold_to_be_refused_is_refused_in_the_same_words() {
    let lab = Lab::new("cmd-refused").await;
    let _operator = lab.operator(&[]);
    let labels = json!({"app": "sets", "role": "backend"});
    apply(
        &lab,
        &json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "sets"}, "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example/web"}]}},
        }}),
    );
    let labels = json!({"app": "own"});
    apply(
        &lab,
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "own"}, "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example/web"}]}},
        }}),
    );
    lab.pod("mine", PodSpec { labels: json!({"app": "mine", "role": "db"}), ..PodSpec::default() }).await;
    lab.ready_pods(&["web-0"]).await;
    lab.elect(json!({"key": "taken", "workloads": [{"kind": "CronJob", "name": "report"}]})).await;
    lab.wait_leader("web-0").await;
    lab.wait_condition("web", "Accepted", "True", "Accepted").await;
    let ready = ["get", "pods", "-l", "app in (sets,own)", "-ojsonpath={.items[*].status.phase}"];
    eventually("the controllers have made their pods", || async {
        let phases = lab.try_kubectl(&ready, None)?;
        if phases == "Running Running" { Ok(()) } else { Err(phases) }
    })
    .await;
    let of = |app: &str, more: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"app": app}}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec
    };
    for (name, reason, spec) in [
        ("taken-pods", "PodsTaken", of("web", json!({}))),
        ("taken-key", "KeyTaken", of("nobody", json!({"key": "taken"}))),
        ("taken-work", "WorkloadTaken", of("nobody", json!({"workloads": [{"kind": "CronJob", "name": "report"}]}))),
        ("set", "LabelInUse", of("sets", json!({"whenLabelInUse": "Replace"}))),
        ("label", "LabelInUse", of("mine", json!({}))),
        ("circle", "CircularWorkloads", of("own", json!({"workloads": [{"kind": "Deployment", "name": "own"}]}))),
        ("no-class", "UnknownClass", of("nobody", json!({"className": "nothing"}))),
        ("no-pods", "NoCandidates", json!({})),
    ] {
        let document = election(name, &spec);
        let (preview, code) = foretold(&lab, &document);
        assert_eq!(
            (&preview["verdict"], &preview["reason"], code),
            (&json!("Refused"), &json!(reason), Some(1)),
            "{preview}"
        );
        apply(&lab, &document);
        let message = lab.wait_condition(name, "Accepted", "False", reason).await;
        let foretold = preview["message"].as_str().expect("it says why");
        // Of two elections of the same second, neither time tells which one is older.
        let [message, foretold] = [&message, foretold].map(|text| text.replace("older election", "election"));
        assert!(message.starts_with(&foretold), "{name}:\n{message}\n{foretold}");
        lab.delete_election(name).await;
        lab.wait_election_gone(name).await;
    }
    // The schema and its rules refuse these before the operator sees them.
    for (spec, says) in [
        (of("web", json!({"selectr": 1})), "selectr"),
        (of("web", json!({"preemption": "Sometimes"})), "preemption"),
        (json!({"selector": {}}), "selector"),
    ] {
        let (preview, code) = foretold(&lab, &election("new", &spec));
        assert_eq!((&preview["reason"], code), (&json!("Invalid"), Some(1)), "{preview}");
        assert!(preview["message"].as_str().is_some_and(|message| message.contains(says)), "{preview}");
    }
    // The same for one that exists.
    let (preview, _) = foretold(&lab, &election("web", &of("web", json!({"selectr": 1}))));
    assert_eq!(&preview["reason"], &json!("Invalid"), "{preview}");
    // One of two in the same file comes first.
    let both = [
        election("first", &of("mine", json!({"whenLabelInUse": "Replace"}))),
        election("second", &of("mine", json!({}))),
    ];
    let printed = told(&["check"], &check(&lab, &both));
    let says = "the pod \"mine\" is already selected by the election of the same file,";
    assert!(printed.contains(says) && printed.contains("(exit code 1)"), "{printed}");
}

/// Whoever may list elections may check, without the API server's own word; and each right that lacks is named.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_only_read_may_check() {
    let lab = Lab::new("cmd-reader").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["web-0"]).await;
    let user = User::new(&lab).await;
    let document = election("web", &json!({"selector": {"matchLabels": {"app": "web"}}}));
    let check = || told(&["check"], &check_as(&lab, user.kubeconfig(), std::slice::from_ref(&document), &[]));
    user.may(|verb, _| verb != "patch").await;
    eventually("the rights are in force", || {
        let said = check();
        async move { if said.contains("web-0 would be elected") { Ok(()) } else { Err(said) } }
    })
    .await;
    let said = check();
    let server = "not visible what the API server itself would say, so only the rest is checked";
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(server) && words.contains("not allowed to patch leaderelections"), "{said}");
    user.may(|_, _| false).await;
    eventually("the rights are gone", || {
        let said = check();
        let is_one_line = said.lines().filter(|line| line.starts_with("lictor: ")).count() == 1;
        let says = said.contains("not allowed to list leaderelections") && said.contains("(exit code 1)");
        async move { if is_one_line && says { Ok(()) } else { Err(said) } }
    })
    .await;
}

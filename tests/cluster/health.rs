//! What kstatus (Helm, Flux) and Argo CD take elections and classes for: judged by their own code, of statuses that the operator wrote.

use std::collections::BTreeMap;
use std::process::Command;

use kube::api::{Api, Patch, PatchParams};
use lictor_api::{ElectionClass, page};
use lictor_testing::kubernetes::{Lab, eventually};
use lictor_testing::tool;
use serde_json::{Value, json};

/// Returns the script that Argo CD runs, as docs/operating.md installs it.
fn script() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/argo-cd/argocd-cm.yaml");
    let patch: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).expect("it is YAML");
    let of = |kind: &str| patch["data"][format!("resource.customizations.health.lictor.dev_{kind}")].clone();
    assert_eq!(of("LeaderElection"), of("ElectionClass"), "one script is for both");
    of("LeaderElection").as_str().expect("there is a script").to_owned()
}

/// Returns what kstatus and Argo CD say of each object of a list, by its name.
fn judged(list: &str) -> BTreeMap<String, (String, String)> {
    let directory = std::env::temp_dir().join(format!("lictor-health-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (lua, objects) = (directory.join("health.lua"), directory.join("list.json"));
    std::fs::write(&lua, script()).unwrap();
    std::fs::write(&objects, list).unwrap();
    let output =
        Command::new(tool("health")).arg(lua).stdin(std::fs::File::open(objects).unwrap()).output().expect("it runs");
    std::fs::remove_dir_all(directory).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("it is text");
    let words = lines.lines().map(|line| line.splitn(4, '\t').map(str::to_owned).collect::<Vec<_>>());
    words.map(|words| (words[0].clone(), (words[1].clone(), words[2].clone()))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_flux_and_argo_see_whether_an_election_is_well() {
    let lab = Lab::new("health").await;
    let operator = lab.operator(&[]);
    operator.acts().await;
    let classes: Api<ElectionClass> = Api::all(lab.client.clone());
    let class = |name: &str, spec: Value| {
        let name = format!("{name}-{}", lab.namespace);
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": name}, "spec": spec,
        });
        let (classes, parameters) = (classes.clone(), PatchParams::apply("test"));
        async move {
            classes.patch(&name, &parameters, &Patch::Apply(object)).await.expect("a class can be made");
            name
        }
    };
    let strange = class("strange", json!({"lease": {}, "controller": "test/nobody"})).await;
    let own = class("own", json!({"lease": {}})).await;
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    let others = json!({"matchLabels": {"app": "other"}});
    for (name, spec) in [
        ("empty", json!({"selector": others})),
        ("paused", json!({"selector": others, "paused": true})),
        ("web-pods-taken", json!({"selector": {"matchLabels": {"app": "web"}}})),
        ("web-key-taken", json!({"selector": others, "key": "web"})),
        ("unknown-class", json!({"selector": others, "className": "nobodys"})),
        ("no-candidates", json!({})),
        ("unserved", json!({"selector": others, "className": strange})),
    ] {
        lab.apply_election(name, spec).await;
    }
    // Its name, STATUS in kubectl, and what kstatus and Argo CD say.
    let expected = [
        ("web", "Led", "Current", "Healthy"),
        ("empty", "NoEligiblePod", "InProgress", "Progressing"),
        ("paused", "Paused", "Current", "Suspended"),
        ("web-pods-taken", "PodsTaken", "InProgress", "Progressing"),
        ("web-key-taken", "KeyTaken", "InProgress", "Progressing"),
        ("unknown-class", "UnknownClass", "InProgress", "Progressing"),
        ("no-candidates", "NoCandidates", "Failed", "Degraded"),
        ("unserved", "Pending", "InProgress", "Progressing"),
    ];
    eventually("each has its STATUS", || async {
        let text = lab.try_kubectl(&["get", "le", "--no-headers"], None)?;
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let is_shown =
            |(name, status, ..): &(&str, &str, &str, &str)| rows.iter().any(|row| row[..2] == [*name, *status]);
        if expected.iter().all(is_shown) { Ok(()) } else { Err(text) }
    })
    .await;
    let judgement = judged(&lab.try_kubectl(&["get", "le", "-o", "json"], None).expect("kubectl lists them"));
    for (name, _, kstatus, argo) in expected {
        assert_eq!(judgement[name], (kstatus.to_owned(), argo.to_owned()), "{name}: {judgement:#?}");
    }
    for name in ["empty", "web-pods-taken", "web-key-taken", "unknown-class", "no-candidates"] {
        let ready = lab.election(name).await.status.unwrap_or_default().conditions.remove(0);
        let sections = [page("accepted"), page("elected")];
        assert!(ready.type_ == "Ready" && sections.iter().any(|page| ready.message.ends_with(page)), "{ready:#?}");
    }

    eventually("the class is told to be served", || async {
        let text = lab.try_kubectl(&["get", "lec", "--no-headers"], None)?;
        let row = text.lines().find(|row| row.starts_with(&own)).ok_or_else(|| text.clone())?;
        if row.contains("True") && row.contains("Served") { Ok(()) } else { Err(row.to_owned()) }
    })
    .await;
    let judgement = judged(&lab.try_kubectl(&["get", "lec", "-o", "json"], None).expect("kubectl lists them"));
    assert_eq!(judgement[&own], ("Current".to_owned(), "Healthy".to_owned()));
    assert_eq!(lab.election("web").await.status.unwrap_or_default().class_name.as_deref(), Some("lease"));

    // A change that no operator has seen yet is not well.
    drop(operator);
    lab.elect(json!({"preemption": "HigherPriority"})).await;
    let judgement = judged(&lab.try_kubectl(&["get", "le", "-o", "json"], None).expect("kubectl lists them"));
    assert_eq!(judgement["web"], ("InProgress".to_owned(), "Progressing".to_owned()), "{judgement:#?}");
    for name in [strange, own] {
        lab.try_kubectl(&["delete", "lec", &name], None).expect("a class can be deleted");
    }
}

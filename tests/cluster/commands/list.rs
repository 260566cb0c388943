//! `list`: in what order, in which formats, and how soon.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{Patch, PatchParams};
use lictor_testing::kubernetes::{Lab, PodSpec, eventually};
use serde_json::{Value, json};

use super::{Live, compare, plugin, run, session, told};

#[tokio::test(flavor = "multi_thread")]
async fn problems_come_first_in_every_format() {
    let lab = Lab::new("cmd-list").await;
    let _operator = lab.operator(&[]);
    lab.pod("web-0", PodSpec::default()).await;
    lab.wait_ready("web-0", true).await;
    lab.elect(json!({})).await;
    lab.wait_leader("web-0").await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    lab.apply_election("nobody", json!({"selector": {"matchLabels": {"app": "none"}}})).await;
    lab.apply_election("lost", json!({})).await;
    lab.apply_election("still", json!({"selector": {"matchLabels": {"app": "y"}}, "paused": true})).await;
    lab.wait_condition("nobody", "Ready", "False", "NoEligiblePod").await;
    lab.wait_condition("lost", "Ready", "False", "NoCandidates").await;
    lab.wait_condition("still", "Ready", "True", "Paused").await;

    let printed = session(
        &lab,
        &[
            &["list"],
            &["list", "-o", "wide"],
            &["list", "-o", "name"],
            &["list", "--problems"],
            &["list", "-n", "default"],
            &["list", "-n", "default", "--problems"],
        ],
    );
    compare(&lab, "list", &printed);
    let json: Value = serde_json::from_slice(&run(&lab, &["list", "-ojson"]).stdout).expect("it is JSON");
    let names: Vec<_> = json["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(
        (&json["kind"], names),
        (&json!("List"), ["lost", "nobody", "still", "web"].map(Value::from).iter().collect())
    );
    let yaml = run(&lab, &["list", "-oyaml"]);
    assert!(String::from_utf8_lossy(&yaml.stdout).contains("  kind: LeaderElection\n"), "{}", told(&["list"], &yaml));
    // Other tests have theirs in the same control plane.
    let all = String::from_utf8(run(&lab, &["list", "-A"]).stdout).expect("it is text");
    assert!(all.starts_with("NAMESPACE ") && all.lines().any(|line| line.starts_with(&lab.namespace)), "{all}");
}

/// The statuses of elections for which no operator acts are old.
#[tokio::test(flavor = "multi_thread")]
async fn that_no_operator_acts_is_said() {
    let lab = Lab::new("cmd-idle").await;
    let controller = format!("test/{}", lab.namespace);
    let class = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": lab.namespace},
        "spec": {"controller": controller, "lease": {}},
    });
    lab.try_kubectl(&["apply", "-f", "-"], Some(&class.to_string())).expect("it can be applied");
    lab.pod("web-0", PodSpec::default()).await;
    lab.elect(json!({"className": lab.namespace})).await;
    let says = |arguments: &[&str]| told(arguments, &run(&lab, arguments));
    let never = format!("no operator of {controller} acts, so what the statuses say may be over: there is no Lease");
    let listed = says(&["list", "--problems"]);
    assert!(listed.contains(&never) && listed.contains("(exit code 3)"), "{listed}");
    let mut operator = lab.operator(&["--controller", &controller]);
    lab.wait_condition("web", "Ready", "True", "Led").await;
    for arguments in [&["list"][..], &["status", "web"]] {
        let said = says(arguments);
        assert!(!said.contains("no operator") && said.contains("Led"), "{said}");
    }
    operator.signal("KILL");
    operator.ended().await;
    let killed = format!("renewed the Lease {}/{} last ", lab.namespace, controller.replace('/', "-"));
    eventually("it is noticed", || {
        let said = says(&["list", "--problems"]);
        let noticed = said.contains(&killed) && said.contains("(exit code 3)");
        async move { if noticed { Ok(()) } else { Err(said) } }
    })
    .await;
    for arguments in [&["status", "web"][..], &["explain", "web"]] {
        let said = says(arguments);
        assert!(said.contains(&killed), "{said}");
    }
    let mut watch = Live::start(plugin(&lab, lab.cluster.kubeconfig(), &["watch"]));
    watch.shows(&killed).await;
}

/// The number of elections, and within what time they are listed, or within how many times what kubectl takes: this program is not
/// optimised, and the machine may be slow or busy.
pub const MANY: usize = 1000;
const SOON: Duration = Duration::from_secs(1);
const TIMES: u32 = 4;
const TRIES: usize = 30;

/// Makes that many elections, with what an operator has told of each.
pub async fn many(lab: &Lab) {
    let condition = |type_: &str, reason: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({"type": type_, "status": "True", "reason": reason, "message": "web-0 is the leader", "lastTransitionTime": time})
    };
    let entry =
        |term: i64| json!({"term": term, "leaderName": "web-0", "reason": "LeaderDeleted", "durationMilliseconds": 70});
    let status = json!({"status": {
        "observedGeneration": 1, "className": "lease", "term": 12, "candidates": {"total": 3, "eligible": 3, "summary": "3/3"},
        "leader": {"name": "web-0", "podName": "web-0", "nodeName": "n1", "podIP": "10.0.0.1"},
        "conditions": [condition("Ready", "Led"), condition("Accepted", "Accepted"), condition("Elected", "Elected"),
            condition("StoreReachable", "Answers")],
        "history": (3..13).rev().map(entry).collect::<Vec<_>>(),
    }});
    let status = &status;
    let made = stream::iter(0..MANY).map(|number| async move {
        let name = format!("web-{number:03}");
        lab.elect_as(&name, json!({})).await;
        let patch = Patch::Merge(status);
        lab.elections_api().patch_status(&name, &PatchParams::default(), &patch).await.expect("it can be written");
    });
    made.buffer_unordered(16).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for 1,000 elections to be made"]
async fn a_thousand_elections_are_listed_soon() {
    let _alone = crate::alone().await;
    let lab = Lab::new("cmd-many").await;
    many(&lab).await;
    let (mut fastest, mut kubectl) = (Duration::MAX, Duration::MAX);
    let is_soon = |fastest: Duration, kubectl: Duration| fastest < SOON || fastest < kubectl.saturating_mul(TIMES);
    for _ in 0..TRIES {
        let begun = Instant::now();
        lab.try_kubectl(&["get", "leaderelections"], None).expect("elections can be listed");
        kubectl = kubectl.min(begun.elapsed());
        let begun = Instant::now();
        let output = run(&lab, &["list"]);
        fastest = fastest.min(begun.elapsed());
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), MANY + 1);
        if is_soon(fastest, kubectl) {
            break;
        }
    }
    eprintln!("measured: {MANY} elections are listed within {fastest:?}, by kubectl within {kubectl:?}");
    assert!(is_soon(fastest, kubectl), "{fastest:?}, kubectl {kubectl:?}");
}

//! The commands about one election.

use kube::api::{Patch, PatchParams};
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Lab, PodSpec, User, eventually};
use serde_json::{Value, json};

use super::{Live, compare, group, plugin, run, session, told};
use crate::consul::member::Member;

#[tokio::test(flavor = "multi_thread")]
async fn one_election_is_shown_with_why_each_candidate_would_or_would_not_lead() {
    let lab = Lab::new("cmd-one").await;
    let _operator = group(&lab).await;
    let printed = session(
        &lab,
        &[
            &["status", "web"],
            &["status", "web", "-o", "wide"],
            &["status", "web", "-o", "name"],
            &["explain", "web"],
            &["explain", "web", "-o", "yaml"],
            &["who", "web"],
            &["who", "web", "-o", "name"],
            &["who", "web", "-o", "yaml"],
            &["history", "web"],
            &["history", "web", "-o", "yaml"],
            &["status", "nothing"],
        ],
    );
    compare(&lab, "one", &printed);
    let status: Value = serde_json::from_slice(&run(&lab, &["status", "web", "-ojson"]).stdout).expect("it is JSON");
    assert_eq!((&status["winner"], &status["next"]), (&json!("web-1"), &json!("web-0")), "{status}");
    assert_eq!(status["record"]["holder"]["pod"], json!("web-1"), "{status}");
    // What is printed for `kubectl` is what it takes.
    let leader = String::from_utf8(run(&lab, &["who", "web", "-oname"]).stdout).expect("it is text");
    assert_eq!(lab.try_kubectl(&["get", leader.trim(), "-oname"], None), Ok(leader));
    lab.wait_event("LeaderElection", "web", "Elected").await;
    let events = String::from_utf8(run(&lab, &["history", "web", "--events"]).stdout).expect("it is text");
    assert!(events.contains("web-1 is the leader in term 1"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_conditions_numbers_and_other_leaders_mean_for_each_candidate_is_said() {
    let lab = Lab::new("cmd-preferred").await;
    let nodes = [lab.node("one", json!({"rack": "one"})).await, lab.node("two", json!({"rack": "two"})).await];
    let made = async |name: &str, app: &str, node: &str, annotations: Value| {
        lab.pod(
            name,
            PodSpec { labels: json!({"app": app}), annotations, node: Some(node.into()), ..PodSpec::default() },
        )
        .await;
        lab.wait_ready(name, true).await;
        lab.set_condition(name, "example.com/caught-up", name != "web-3").await;
    };
    let lag = |lag: &str| json!({"example.com/lag": lag});
    made("other-0", "other", &nodes[0], json!({})).await;
    for (name, node, annotations) in [
        ("web-0", 0, lag("3")),
        ("web-1", 1, lag("3")),
        ("web-2", 1, lag("40")),
        ("web-3", 1, lag("0")),
        ("web-4", 1, json!({})),
    ] {
        made(name, "web", &nodes[node], annotations).await;
    }
    let spec = |app: &str| {
        let preferences = json!([
            {"byAnnotation": "example.com/lag", "order": "Lowest"}, {"spread": {"group": "racks", "topologyKey": "rack"}},
        ]);
        let eligibility = json!({"conditions": ["example.com/caught-up"]});
        json!({"selector": {"matchLabels": {"app": app}}, "eligibility": eligibility, "preferences": preferences})
    };
    let _operator = lab.operator(&[]);
    lab.elect_as("other", spec("other")).await;
    lab.wait_condition("other", "Ready", "True", "Led").await;
    lab.elect_as("web", spec("web")).await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    let explained = told(&["explain"], &run(&lab, &["explain", "web"]));
    for line in [
        "1   web-1   leader     ready   remains the leader",
        "2   web-0   follower   ready   after web-1: web-1 has fewer leaders of its group near it, 0 against 1 by rack",
        "3   web-2   follower   ready   after web-0: web-0 has the lower example.com/lag, 3 against 40",
        "4   web-4   follower   ready   after web-2: web-2 has example.com/lag, 40, and the other pod has none, or none that is a whole number",
        "-   web-3   follower   ready   not eligible: the pod's condition example.com/caught-up is not True",
    ] {
        assert!(explained.contains(line), "{line} is not in\n{explained}");
    }
    lab.patch_pod("web-0", json!({"metadata": {"annotations": lag("1")}})).await;
    let explained = told(&["explain"], &run(&lab, &["explain", "web"]));
    let stays = "web-1 is healthy and remains the leader; web-0 would rank higher, but spec.preferences move no leader";
    assert!(explained.contains(stays), "{explained}");
}

/// What is foretold comes true: by the same order.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_foretold_is_elected_when_the_leader_goes() {
    let lab = Lab::new("cmd-next").await;
    let _operator = group(&lab).await;
    lab.patch_pod(
        "web-2",
        json!({"metadata": {"annotations": {"lictor.dev/never-leader": null, "lictor.dev/priority": "9"}}}),
    )
    .await;
    lab.wait_candidates(3, 4).await;
    let mut printed = session(&lab, &[&["explain", "web"]]);
    lab.kill_pod("web-1").await;
    lab.wait_leader("web-2").await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    lab.wait_candidates(2, 3).await;
    printed += &session(&lab, &[&["explain", "web"]]);
    for pod in ["web-0", "web-2"] {
        lab.patch_pod(pod, json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}})).await;
    }
    lab.wait_condition("web", "Ready", "False", "NoEligiblePod").await;
    printed += &session(&lab, &[&["explain", "web"], &["who", "web"], &["who", "web", "-o", "name"]]);
    compare(&lab, "next", &printed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_election_says_so_and_a_refused_one_says_why() {
    let lab = Lab::new("cmd-pause").await;
    let _operator = group(&lab).await;
    let mut printed = session(&lab, &[&["pause", "web"], &["pause", "web"]]);
    lab.wait_condition("web", "Ready", "True", "Paused").await;
    printed += &session(&lab, &[&["explain", "web"], &["resume", "web"]]);
    lab.wait_condition("web", "Ready", "True", "Led").await;
    printed += &session(&lab, &[&["resume", "web"], &["pause", "nothing"]]);
    lab.elect_as("younger", json!({})).await;
    lab.wait_condition("younger", "Ready", "False", "PodsTaken").await;
    printed += &session(&lab, &[&["status", "younger"], &["explain", "younger"]]);
    compare(&lab, "paused", &printed);
    // Who applied the field is named, for they may apply it again.
    let applied = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "paused": false},
    });
    let applied = lab.elections_api().patch("web", &PatchParams::apply("git").force(), &Patch::Apply(applied)).await;
    applied.expect("it can be applied");
    let told = told(&["pause", "web"], &run(&lab, &["pause", "web"]));
    assert!(told.contains("spec.paused was last applied by git, which may reset it"), "{told}");
}

/// Of what a user may not see, one line says so, and the rest is shown.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_may_not_see_is_named() {
    let lab = Lab::new("cmd-rights").await;
    let _operator = group(&lab).await;
    let user = User::new(&lab).await;
    let mut printed = String::new();
    for resources in [&["leaderelections", "pods", "leases"][..], &["leaderelections"], &[]] {
        user.may(|verb, resource| verb != "patch" && resources.contains(&resource)).await;
        let reads = |resource| {
            lab.try_kubectl(
                &[
                    "auth",
                    "can-i",
                    "list",
                    resource,
                    "--as",
                    &format!("system:serviceaccount:{}:lictor", lab.namespace),
                ],
                None,
            )
        };
        eventually("the rights are in force", || {
            let wrong: Vec<_> = ["leaderelections.lictor.dev", "pods", "leases.coordination.k8s.io"]
                .into_iter()
                .filter(|resource| reads(resource).is_ok() != resources.contains(&resource.split('.').next().unwrap()))
                .collect();
            async move { if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?}")) } }
        })
        .await;
        for arguments in [&["status", "web"][..], &["explain", "web"], &["pause", "web"]] {
            printed += &told(arguments, &plugin(&lab, user.kubeconfig(), arguments).output().expect("lictor starts"));
        }
    }
    compare(&lab, "rights", &printed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_in_consul_says_what_can_not_be_seen_from_here() {
    let member = Member::new("cmd-consul", "west", Consul::shared().address(), json!({})).await;
    let _operator = member.operator(&[]);
    member.lab.ready_pods(&["a"]).await;
    member.elect(json!({})).await;
    member.lab.wait_leader("a").await;
    member.lab.wait_condition("web", "Ready", "True", "Led").await;
    member.wait_class("True", "Answers").await;
    compare(&member.lab, "consul", &session(&member.lab, &[&["status", "web"], &["explain", "web"], &["who", "web"]]));
}

/// --watch shows each change, until Ctrl-C.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_each_change_and_ends_with_ctrl_c() {
    let lab = Lab::new("cmd-watch").await;
    let _operator = group(&lab).await;
    let mut watch = Live::start(plugin(&lab, lab.cluster.kubeconfig(), &["status", "web", "--watch"]));
    watch.shows("web-1   leader").await;
    lab.kill_pod("web-1").await;
    watch.shows("web-0   leader").await;
    assert_eq!(watch.interrupt(), Some(130));
}

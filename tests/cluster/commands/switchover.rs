//! `switchover`: what it asks for, and how it waits. What comes of it, the tests say here in the operator's place, but for the last.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use lictor_api::Switchover;
use lictor_testing::kubernetes::{Lab, Proxy, eventually};
use serde_json::{Value, json};

use super::{compare, group, plugin, run, session, told};

fn api(lab: &Lab) -> Api<Switchover> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// Makes an election that an operator has led to term 7, without one that would carry the Switchover out.
async fn led(test: &str) -> Lab {
    let lab = Lab::new(test).await;
    lab.elect(json!({})).await;
    let patch = Patch::Merge(json!({"status": {"term": 7, "leader": {"name": "web-0", "podName": "web-0"}}}));
    lab.elections_api().patch_status("web", &PatchParams::default(), &patch).await.expect("it can be written");
    lab
}

/// The one Switchover, when it is there.
async fn only(lab: &Lab) -> Switchover {
    eventually("there is a Switchover", || async {
        let mut all = api(lab).list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        if all.len() == 1 { Ok(all.remove(0)) } else { Err(format!("{} of them", all.len())) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_names_the_present_term_and_who_asks() {
    let lab = led("cmd-swo").await;
    let at = "2999-01-01T00:00:00Z";
    let arguments =
        ["switchover", "web", "--to", "web-1", "--at", at, "--deadline", "60", "--force", "--hold", "9", "-ojson"];
    let made: Value = serde_json::from_slice(&run(&lab, &arguments).stdout).expect("it is JSON");
    let spec = &only(&lab).await.spec;
    assert_eq!(made["spec"], json!(spec), "{made}");
    assert_eq!(
        made["spec"],
        json!({
            "electionName": "web", "fromTerm": 7, "toPodName": "web-1", "notBeforeTime": at, "deadlineSeconds": 60, "force": true,
            "holdSeconds": 9, "requestedBy": "kwok-admin",
        })
    );
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-7-"), "{name}");
    api(&lab).delete(name, &DeleteParams::default()).await.expect("it can be deleted");
    let arguments = ["switchover", "web", "--to-cluster", "east", "-ojson"];
    let made: Value = serde_json::from_slice(&run(&lab, &arguments).stdout).expect("it is JSON");
    let spec = json!({"electionName": "web", "fromTerm": 7, "toClusterName": "east", "force": false, "holdSeconds": 300, "requestedBy": "kwok-admin"});
    assert_eq!(made["spec"], spec);
    lab.apply_election("fresh", json!({"selector": {"matchLabels": {"app": "none"}}})).await;
    compare(&lab, "switchover", &session(&lab, &[&["switchover", "fresh"], &["switchover", "nothing"]]));
    let late = told(&["switchover"], &run(&lab, &["switchover", "web", "--wait", "--timeout", "1"]));
    assert!(
        late.contains("the switchover has not ended within 1 s, and continues: no operator has looked")
            && late.contains("(exit code 4)"),
        "{late}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_how_it_ended() {
    let lab = led("cmd-wait").await;
    let condition = |type_: &str, reason: &str, message: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time})
    };
    let complete = json!({
        "conditions": [condition("Complete", "SwitchedOver", "web-1 leads")], "term": 8, "durationMilliseconds": 31,
        "from": {"podName": "web-0"}, "to": {"podName": "web-1"},
    });
    let failed = json!({"conditions": [condition("Failed", "Superseded", "the election is in term 8 already")]});
    for (status, code, says) in [
        (Some(complete), 0, "web-1 leads web instead of web-0 in term 8, after 31 ms"),
        (Some(failed), 3, "Superseded: the election is in term 8 already"),
        (None, 1, "was deleted before it had ended"),
    ] {
        let mut command = plugin(&lab, lab.cluster.kubeconfig(), &["switchover", "web", "--wait"]);
        let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("lictor starts");
        let name = only(&lab).await.metadata.name.unwrap();
        if let Some(status) = &status {
            let patch = Patch::Merge(json!({"status": status}));
            api(&lab).patch_status(&name, &PatchParams::default(), &patch).await.expect("it can be written");
        } else {
            api(&lab).delete(&name, &DeleteParams::default()).await.expect("it can be deleted");
        }
        let output = waiting.wait_with_output().expect("it ends");
        let said = told(&["switchover"], &output);
        assert!(output.status.code() == Some(code) && said.contains(says), "{said}");
        if status.is_some() {
            api(&lab).delete(&name, &DeleteParams::default()).await.expect("it can be deleted");
        }
    }
}

/// Presses Ctrl-C. Returns what it says then.
fn interrupt(waiting: &mut Child) -> String {
    assert!(Command::new("kill").args(["-INT", &waiting.id().to_string()]).status().expect("kill runs").success());
    let mut said = String::new();
    waiting.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it can be read");
    assert_eq!(waiting.wait().expect("it ends").code(), Some(130), "{said}");
    said
}

/// The API server has the request, and its answer has not come yet.
#[tokio::test(flavor = "multi_thread")]
async fn who_presses_ctrl_c_before_the_answer_is_told_what_may_be_created() {
    let lab = led("cmd-ctrl-c").await;
    let proxy = Proxy::start(lab.cluster).await;
    proxy.hold(|asked| asked.method == "POST" && asked.path.contains("/switchovers"));
    for arguments in [&["switchover", "web"][..], &["switchover", "web", "--wait", "-ojson"]] {
        let mut command = plugin(&lab, proxy.kubeconfig(), arguments);
        let mut waiting = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("lictor starts");
        let name = proxy.held().await.body["metadata"]["name"].as_str().expect("it has a name").to_owned();
        let said = interrupt(&mut waiting);
        let commands = ["get", "delete"].map(|verb| format!("`kubectl -n {} {verb} swo {name}`", lab.namespace));
        assert!(
            said.contains("the API server has not answered the request")
                && commands.iter().all(|one| said.contains(one)),
            "{said}"
        );
        let answers = proxy.deliver_late().await;
        assert_eq!(answers[0].status, 201, "{answers:?}");
        // What it was told to do.
        api(&lab).delete(&name, &DeleteParams::default()).await.expect("it is there by that name");
    }
}

/// An operator carries it out, or says why not.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_an_operator_is_told_what_that_did() {
    let lab = Lab::new("cmd-move").await;
    let _operator = group(&lab).await;
    let waits = |arguments: &[&str]| {
        let all = [&["switchover", "web", "--wait"], arguments].concat();
        told(&all, &run(&lab, &all))
    };
    let done = waits(&[]);
    assert!(done.contains("\nweb-0 leads web instead of web-1 in term 2, after "), "{done}");
    assert!(!done.contains("exit code"), "{done}");
    lab.wait_leader("web-0").await;
    lab.wait_condition("web", "Ready", "True", "Led").await;

    // What follows of it for the order, the operator and `explain` read alike.
    let explained = told(&["explain"], &run(&lab, &["explain", "web"]));
    let held = "after web-0: a switchover has replaced web-1, which ranks last for another ";
    assert!(explained.contains(held), "{explained}");
    let annotations = json!({"lictor.dev/never-leader": null, "lictor.dev/priority": "9"});
    lab.patch_pod("web-2", json!({"metadata": {"annotations": annotations}})).await;
    lab.elect(json!({"preemption": "HigherPriority"})).await;
    lab.wait_candidates(3, 4).await;
    let explained = told(&["explain"], &run(&lab, &["explain", "web"]));
    let protected =
        "web-2 would rank higher, but a switchover has made web-0 the leader, so no pod preempts it for another ";
    assert!(explained.contains(protected), "{explained}");
    assert_eq!(lab.wait_any_leader().await, "web-0");
    lab.patch_pod("web-2", json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}})).await;
    lab.wait_candidates(2, 4).await;

    for (arguments, says, code) in [
        (&["--to", "web-2"][..], "\nNeverLeader: ", 3),
        (&["--to", "web-3"], "\nNotEligible: ", 3),
        (&["--to", "web-3", "--deadline", "2"], "\nDeadlineExceeded: ", 3),
        (
            &["--to", "web-3", "--deadline", "600", "--timeout", "1"],
            "\nthe switchover has not ended within 1 s, and continues: ",
            4,
        ),
    ] {
        let said = waits(arguments);
        assert!(said.contains(says) && said.contains(&format!("(exit code {code})")), "{said}");
    }

    let arguments = ["switchover", "web", "--to", "web-3", "--deadline", "600", "--wait"];
    let mut command = plugin(&lab, lab.cluster.kubeconfig(), &arguments);
    let mut waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("lictor starts");
    let (mut output, mut created) = (BufReader::new(waiting.stdout.take().expect("it is piped")), String::new());
    output.read_line(&mut created).expect("it can be read");
    let name = created.split(['/', ' ']).nth(1).expect("it has a name").to_owned();
    eventually("it listens for Ctrl-C", || async {
        let status = std::fs::read_to_string(format!("/proc/{}/status", waiting.id())).map_err(|e| e.to_string())?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default().trim();
        // SIGINT is the second bit.
        if u64::from_str_radix(caught, 16).is_ok_and(|bits| bits & 2 != 0) { Ok(()) } else { Err(status) }
    })
    .await;
    let said = interrupt(&mut waiting);
    let undo = format!("`kubectl -n {} delete swo {name}` takes it back", lab.namespace);
    assert!(said.contains(&format!("the switchover {name} continues: {undo}")), "{said}");
    let left = api(&lab).get(&name).await.expect("it is there");
    let over = |type_: &str| left.status.iter().flat_map(|status| &status.conditions).any(|told| told.type_ == type_);
    assert!(!over("Complete") && !over("Failed"), "{left:?}");
}

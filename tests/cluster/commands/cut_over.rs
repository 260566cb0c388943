//! The commands of the first cut-over as docs/routing.md has them, forth and back, and what `doctor` says before each. Kubernetes' own
//! controllers write slices and Endpoints; a recorder sees that at no revision the Service reaches nobody.

use std::process::Command;

use lictor_testing::kubernetes::{Lab, Operator, SliceRecorder, eventually};
use lictor_testing::tool;
use serde_json::json;

use super::doctor::about;
use super::told;

/// The commands of a section of the page, in the lab's namespace.
fn commands(lab: &Lab, section: &str) -> Vec<String> {
    let page = include_str!("../../../docs/routing.md");
    let section = page.split("\n### ").find(|text| text.starts_with(&format!("{section}\n"))).expect("the page has it");
    let block = section.split("```\n").nth(1).expect("it has commands");
    let here = |line: &str| line.replace("-n shop ", &format!("-n {} ", lab.namespace));
    block.lines().map(here).collect()
}

/// Types a command, as a person does.
fn run(lab: &Lab, command: &str) {
    let output = Command::new("bash")
        .args(["-euc", &format!("kubectl() {{ '{}' \"$@\"; }}\n{command}", tool("kubectl").display())])
        .env("KUBECONFIG", lab.cluster.kubeconfig())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("bash starts");
    assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn doctor(lab: &Lab) -> String {
    told(&["doctor"], &about(lab, &["doctor", "--timeout", "20"]))
}

/// Waits until the doctor names a command.
async fn is_next(lab: &Lab, command: &str) {
    eventually(&format!("the doctor says: {command}"), || async {
        let said = doctor(lab);
        if said.contains(command) { Ok(()) } else { Err(said) }
    })
    .await;
}

/// Follows commands. Before each that changes something, the doctor says that it comes next, unless it begins with one of `wishes`: that
/// somebody wants to go that way, nobody can know.
async fn follow(lab: &Lab, commands: &[String], wishes: &[&str]) {
    for command in commands {
        let changes = [" patch ", " delete "].iter().any(|verb| command.contains(verb));
        let short = command.replace(&format!("kubectl -n {} ", lab.namespace), "");
        if changes && !wishes.iter().any(|wish| short.starts_with(wish)) {
            is_next(lab, command).await;
        }
        run(lab, command);
    }
}

/// Waits until a Service reaches so many pods.
async fn reaches(recorder: &SliceRecorder, pods: usize) {
    eventually(&format!("the Service reaches {pods}"), || async {
        let reached = recorder.reached("web", "IPv4");
        if reached.last().is_some_and(|reached| reached.addresses.len() == pods) {
            Ok(())
        } else {
            Err(format!("{reached:?}"))
        }
    })
    .await;
}

/// Three pods and a Service that reaches them, as Kubernetes writes it. Returns from which version on it does.
async fn before(test: &str) -> (Lab, Operator, SliceRecorder, u64) {
    let lab = Lab::new(test).await;
    let recorder = lab.record_slices().await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["web-0", "web-1", "web-2"]).await;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec});
    lab.try_kubectl(&["apply", "-f", "-"], Some(&service.to_string())).expect("it can be applied");
    reaches(&recorder, 3).await;
    let since = recorder.catch_up().await;
    (lab, operator, recorder, since)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_cut_over_by_label_and_back_reaches_somebody_all_the_time() {
    let (lab, _operator, recorder, since) = before("cut-label").await;
    follow(&lab, &commands(&lab, "By label"), &[]).await;
    reaches(&recorder, 1).await;
    let led = recorder.catch_up().await;
    let said = doctor(&lab);
    assert!(said.contains("ok     1 Services that select a leader's label reach at most one pod"), "{said}");
    follow(&lab, &commands(&lab, "And back"), &["patch service", "delete le"]).await;
    lab.wait_no_leader().await;
    reaches(&recorder, 3).await;
    recorder.catch_up().await;
    let revisions = recorder.assert_always_somebody("web", "IPv4", since);
    assert!(revisions > 2, "{revisions} revisions, at version {led} of one pod");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_cut_over_by_slice_and_back_reaches_somebody_all_the_time() {
    let (lab, _operator, recorder, since) = before("cut-slice").await;
    follow(&lab, &commands(&lab, "By label"), &[]).await;
    let leader = lab.wait_any_leader().await;
    reaches(&recorder, 1).await;
    let led = recorder.catch_up().await;
    // Kubernetes has written the Endpoints, too: what is left of them is mirrored.
    run(&lab, &format!("kubectl -n {} wait --for=create endpoints/web --timeout=30s", lab.namespace));
    follow(&lab, &commands(&lab, "By slice"), &["patch le"]).await;
    let message = lab.wait_condition("web", "Routed", "True", "Routed").await;
    assert!(message.contains(&format!(" {leader} at ")), "{message}");
    let names = lab.try_kubectl(
        &["get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-ojsonpath={.items[*].metadata.name}"],
        None,
    );
    assert_eq!(names.as_deref(), Ok("web-lictor-ipv4"), "nothing is left of before");
    assert_eq!(lab.try_kubectl(&["get", "endpoints", "web", "--ignore-not-found"], None).as_deref(), Ok(""));
    follow(&lab, &commands(&lab, "And back to the label"), &["patch service"]).await;
    eventually("lictor's slice is gone", || async {
        let found = lab.try_kubectl(&["get", "endpointslice", "web-lictor-ipv4", "--ignore-not-found"], None)?;
        if found.is_empty() { Ok(()) } else { Err(found) }
    })
    .await;
    let one = recorder.catch_up().await;
    recorder.assert_at_most_one("web", "IPv4", led);
    follow(&lab, &commands(&lab, "And back"), &["patch service", "delete le"]).await;
    reaches(&recorder, 3).await;
    recorder.catch_up().await;
    let revisions = recorder.assert_always_somebody("web", "IPv4", since);
    assert!(revisions > 6 && one > led, "{revisions} revisions");
}

/// Shows R4.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_changes_in_the_middle_of_the_cut_over_is_reached_when_the_selector_is_put_on_again() {
    let (lab, _operator, recorder, since) = before("cut-change").await;
    follow(&lab, &commands(&lab, "By label"), &[]).await;
    let leader = lab.wait_any_leader().await;
    reaches(&recorder, 1).await;
    let led = recorder.catch_up().await;
    let forth = commands(&lab, "By slice");
    let deletes = forth.iter().position(|command| command.contains(" delete ")).expect("leftovers are deleted");
    let (until, rest) = forth.split_at(deletes);
    follow(&lab, until, &["patch le"]).await;
    let never = json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}});
    lab.patch_pod(&leader, never).await;
    let next = eventually("another pod leads", || async {
        let next = lab.wait_any_leader().await;
        if next == leader { Err(next) } else { Ok(next) }
    })
    .await;
    lab.wait_condition("web", "Routed", "False", "LeftoverEndpoints").await;
    let changed = recorder.catch_up().await;
    recorder.assert_at_most_one("web", "IPv4", led);
    // What is left names the old leader, and lictor's slice nobody.
    let named = recorder.revisions().into_iter().rfind(|revision| revision.name == "web-lictor-ipv4");
    assert_eq!(named.map(|revision| revision.pods), Some(Vec::new()), "at version {changed}");

    let again = commands(&lab, "And back to the label").swap_remove(0);
    let page = include_str!("../../../docs/routing.md").replace("-n shop ", &format!("-n {} ", lab.namespace));
    assert_eq!(page.matches(&again).count(), 2, "the page names it for this, too");
    is_next(&lab, &again).await;
    run(&lab, &again);
    lab.wait_condition("web", "Routed", "False", "ServiceHasSelector").await;
    let takes_off = until.iter().position(|command| command.contains("/spec/selector")).expect("it is taken off");
    eventually("Kubernetes has written who leads by now", || async {
        let reached = recorder.reached("web", "IPv4").pop().ok_or("nothing")?;
        let pod = lab.get_pod(&next).await;
        let ip = pod.status.and_then(|status| status.pod_ip).unwrap_or_default();
        if reached.addresses.iter().eq([&ip]) { Ok(()) } else { Err(format!("{reached:?}, not {ip}")) }
    })
    .await;
    follow(&lab, &until[takes_off..], &[]).await;
    follow(&lab, rest, &[]).await;
    let message = lab.wait_condition("web", "Routed", "True", "Routed").await;
    assert!(message.contains(&format!(" {next} at ")), "{message}");
    recorder.catch_up().await;
    recorder.assert_always_somebody("web", "IPv4", since);
}

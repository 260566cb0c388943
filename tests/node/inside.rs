//! examples/observe and examples/agent on real nodes, as they are but for the images, which come from no registry, and for the agent's command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::eventually;
use crate::figures::Figures;
use crate::nodes::Nodes;

/// An image with a shell and lictor.
pub const REPORT: &str = "report:node";
/// An image with a shell.
const SHELL: &str = "busybox:node";
const NAMESPACE: &str = "inside";

/// What the agents run: it becomes a process that nothing else on this machine is.
const COMMAND: &str = "sh, -c, 'echo \"reports in term $LICTOR_TERM\"; exec sleep 86399'";
const RUNNING: &str = "sleep\086399\0";

/// Applies the manifests of an example, with these changes.
fn apply(nodes: &Nodes, directory: &str, changes: &[(&str, &str)]) {
    let directory = lictor_testing::file(directory);
    for entry in std::fs::read_dir(&directory).expect("the example is there").map_while(Result::ok) {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let text = changes.iter().fold(text, |text, (old, new)| text.replace(old, new));
        for part in text.split("\n---\n") {
            let mut object: Value = serde_saphyr::from_str(part).expect("it is YAML");
            object["metadata"]["namespace"] = json!(NAMESPACE);
            if object["kind"] == "RoleBinding" {
                object["subjects"][0]["namespace"] = json!(NAMESPACE);
            }
            nodes.apply(&object);
        }
    }
}

/// Returns the pods of an app that are not being deleted, with their roles.
fn pods(nodes: &Nodes, app: &str) -> BTreeMap<String, String> {
    let all = nodes.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", &format!("app={app}"), "-o", "json"]);
    let all: Value = serde_json::from_str(&all).expect("it is JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = all["items"].as_array().expect("a list").iter();
    let pods = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["labels"]["role"]))).collect()
}

/// Returns the last line that a program in a pod has printed.
fn last_line(nodes: &Nodes, pod: &str, container: &str) -> Result<String, String> {
    let printed = nodes.try_kubectl(&["logs", "-n", NAMESPACE, pod, "-c", container, "--tail=1"])?;
    Ok(printed.trim().to_owned())
}

/// Waits until each of three programs says the same of who leads as the labels do. `hears` says whether a line says so.
async fn all_hear(nodes: &Nodes, app: &str, hears: impl Fn(&Value, &str, &str) -> bool) -> String {
    eventually(&format!("all programs of {app} hear who leads"), || async {
        let pods = pods(nodes, app);
        let leader =
            pods.iter().find(|(_, role)| *role == "leader").ok_or_else(|| format!("nobody leads: {pods:?}"))?;
        if pods.len() != 3 {
            return Err(format!("{pods:?}"));
        }
        for pod in pods.keys() {
            let line = last_line(nodes, pod, app)?;
            let said: Value = serde_json::from_str(&line).map_err(|error| format!("{pod}: {line:?}: {error}"))?;
            if !hears(&said, pod, leader.0) {
                return Err(format!("{pod} hears {line}, and {} leads", leader.0));
            }
        }
        Ok(leader.0.clone())
    })
    .await
}

/// `worker` has a native sidecar, which asks the API server, and `mailer` an ordinary one, which reads the files of its pod.
pub async fn programs_hear_who_leads(nodes: &Nodes, figures: &mut Figures) {
    nodes.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
    apply(nodes, "examples/observe", &[("busybox:1.37", SHELL)]);
    let worker = |said: &Value, pod: &str, leader: &str| {
        let role = if pod == leader { "leader" } else { "follower" };
        said["role"] == role && said["leader"]["name"] == leader && said["stale"] == false
    };
    // A follower's files do not say who leads.
    let mailer = |said: &Value, pod: &str, leader: &str| said["name"] == if pod == leader { leader } else { "" };
    for app in ["worker", "mailer"] {
        let hear = async || match app {
            "worker" => all_hear(nodes, app, worker).await,
            _ => all_hear(nodes, app, mailer).await,
        };
        let first = hear().await;
        // It hears that it leads no more, and another one that it does.
        nodes.kubectl(&["annotate", "pod", "-n", NAMESPACE, &first, "lictor.dev/never-leader=true"]);
        let moved = async || loop {
            let leader = hear().await;
            if leader != first {
                return leader;
            }
        };
        let began = Instant::now();
        let second = moved().await;
        figures.time(
            &format!("a leader is moved, until all programs of examples/observe/{app}.yaml hear it"),
            began.elapsed(),
        );
        nodes.kubectl(&["annotate", "pod", "-n", NAMESPACE, &first, "lictor.dev/never-leader-"]);
        nodes.kubectl(&["delete", "pod", "-n", NAMESPACE, &second, "--wait=false"]);
        let third = loop {
            let leader = hear().await;
            if leader != second {
                break leader;
            }
        };
        println!("examples/observe/{app}.yaml: {first}, {second} and {third} have led, and all programs heard it");
    }
    nodes.kubectl(&["delete", "leaderelections,deployments", "-n", NAMESPACE, "--all"]);
}

/// Counts the commands of agents that live, all the time.
struct Count {
    ends: Arc<AtomicBool>,
    most: Arc<AtomicUsize>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Count {
    fn start() -> Self {
        let (ends, most) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (end, highest) = (ends.clone(), most.clone());
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                highest.fetch_max(commands(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { ends, most, thread: Some(thread) }
    }

    /// Returns the most that lived at one moment.
    fn end(mut self) -> usize {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("it has counted");
        self.most.load(Ordering::Relaxed)
    }
}

fn commands() -> usize {
    let processes = std::fs::read_dir("/proc").expect("there is /proc").map_while(Result::ok);
    let lines = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line == RUNNING).count()
}

pub async fn a_command_runs_in_one_pod_only(nodes: &Nodes, figures: &mut Figures) {
    let python = "python3, /app/worker.py, /data/reports.db";
    apply(nodes, "examples/agent", &[("report:1", REPORT), (python, COMMAND)]);
    let count = Count::start();
    let term = |pod: &str| -> Option<u64> {
        let printed = nodes.try_kubectl(&["logs", "-n", NAMESPACE, pod, "-c", "worker"]).ok()?;
        printed.lines().filter_map(|line| line.strip_prefix("reports in term ")?.parse().ok()).next_back()
    };
    let runs = async |after: u64| {
        eventually("the command runs in one of two pods", || async {
            let pods = pods(nodes, "report");
            let found: Vec<_> = pods.keys().filter_map(|pod| Some((pod.clone(), term(pod)?))).collect();
            match found.as_slice() {
                [(pod, term)] if pods.len() == 2 && *term > after => Ok((pod.clone(), *term)),
                _ => Err(format!("{found:?} of {pods:?}")),
            }
        })
        .await
    };
    let (mut leader, mut last) = runs(0).await;
    for _ in 0..2 {
        // Who asks the agent beside the command, and the one that waits, hear the same.
        for pod in pods(nodes, "report").into_keys() {
            eventually("the agents tell who leads", || async {
                let said = nodes.try_kubectl(&[
                    "exec",
                    "-n",
                    NAMESPACE,
                    &pod,
                    "-c",
                    "worker",
                    "--",
                    "wget",
                    "-qO-",
                    "http://127.0.0.1:8090/election",
                ])?;
                let said: Value = serde_json::from_str(&said).map_err(|error| format!("{said}: {error}"))?;
                let (role, name) = (said["role"].as_str(), said["leader"]["name"].as_str().unwrap_or_default());
                let own = if pod == leader { "leader" } else { "follower" };
                if role == Some(own) && name.starts_with(&leader) { Ok(()) } else { Err(said.to_string()) }
            })
            .await;
        }
        let began = Instant::now();
        nodes.kubectl(&["delete", "pod", "-n", NAMESPACE, &leader, "--wait=false"]);
        let (next, term) = runs(last).await;
        figures.time("an agent's pod is deleted, until its command runs in another pod", began.elapsed());
        assert_ne!(next, leader, "a deleted pod does not come back");
        (leader, last) = (next, term);
    }
    assert_eq!(count.end(), 1, "the command ran in two pods at once, or was not seen");
    println!("examples/agent: the command ran in one pod at a time, and moved with its term to {last}");
    // Agents leave their Lease, for its term goes on. When they are gone, so that none makes it again, it is deleted:
    // later in this test only the operator's own Leases may be left.
    nodes.kubectl(&["delete", "deployments", "-n", NAMESPACE, "--all", "--cascade=foreground"]);
    nodes.kubectl(&["delete", "leases", "-n", NAMESPACE, "--all"]);
}

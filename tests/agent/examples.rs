//! examples/agent: the manifests on a real API server, with the rights that they give and no others, and the worker whose database refuses
//! a lower term.

use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use lictor_testing::consul::{Consul, eventually};
use lictor_testing::kubernetes::Lab;
use lictor_testing::{file, signal, skip};

use crate::Bench;
use crate::bench::children;

#[tokio::test]
async fn the_manifests_are_applied_and_their_command_line_runs_with_their_rights() {
    let (lab, bench) = (Lab::new("example").await, Bench::new("example"));
    let path = file("examples/agent");
    let path = path.to_str().expect("a path is text");
    lab.try_kubectl(&["apply", "--dry-run=server", "-f", path], None).unwrap_or_else(|error| panic!("{error}"));
    lab.try_kubectl(&["apply", "-f", path], None).unwrap_or_else(|error| panic!("{error}"));
    let deployments: Api<Deployment> = Api::namespaced(lab.client.clone(), &lab.namespace);
    eventually("both pods run", || async {
        let deployment = deployments.get("report").await.map_err(|error| error.to_string())?;
        let ready = deployment.status.and_then(|status| status.ready_replicas);
        if ready == Some(2) { Ok(()) } else { Err(format!("{ready:?}")) }
    })
    .await;

    // As in a pod, but for the service account's token, and a command that ends.
    let deployment = deployments.get("report").await.expect("it is there");
    let pod = deployment.spec.expect("it has a spec").template.spec.expect("it has one");
    let container = &pod.containers[0];
    assert_eq!(container.command, Some(vec!["lictor".to_owned(), "agent".to_owned()]));
    let words = container.args.clone().expect("it has arguments");
    let (arguments, command) = words.split_at(words.iter().position(|word| word == "--").expect("there is a command"));
    assert_eq!(command[1..], ["python3", "/app/worker.py", "/data/reports.db"]);
    let account = pod.service_account_name.expect("it has one");
    let token = lab.try_kubectl(&["create", "token", &account], None).expect("the account has a token");
    let config = bench.directory.join("kubeconfig");
    std::fs::copy(lab.cluster.kubeconfig(), &config).expect("it can be copied");
    let config = config.to_str().expect("a path is text");
    let credentials = format!("--token={}", token.trim());
    for set in [&["set-credentials", "pod", &credentials][..], &["set-context", "--current", "--user=pod"]] {
        lab.try_kubectl(&[&["--kubeconfig", config, "config"], set].concat(), None).expect("it can be set");
    }
    let expanded: Vec<String> = arguments.iter().map(|word| word.replace("$(NAMESPACE)", &lab.namespace)).collect();
    let listen = expanded.iter().position(|word| word == "127.0.0.1:8090").expect("it listens");
    let mut expanded: Vec<&str> = expanded.iter().map(String::as_str).collect();
    // Another program of this machine may have that port.
    expanded[listen] = "127.0.0.1:0";
    expanded.extend(["--kubeconfig", config]);
    let mut agent = bench.start(&expanded, &["sh", "-c", "echo \"begin $LICTOR_TERM $$\" >>log"], &[]);
    assert_eq!(agent.ended().await.code(), Some(0), "{}", agent.errors());
    assert_eq!(bench.begun().len(), 1);
}

/// Reports whether a transaction can begin in the worker's database at once.
fn writable(directory: &Path) -> bool {
    let begin = "import sqlite3; sqlite3.connect('reports.db', 0, isolation_level=None).execute('BEGIN IMMEDIATE')";
    let python = Command::new("python3").args(["-c", begin]).current_dir(directory).stderr(Stdio::null()).status();
    python.is_ok_and(|status| status.success())
}

/// Shows what a fencing token is for: a write that comes after the end of its term.
#[tokio::test]
async fn the_database_refuses_what_a_worker_of_an_earlier_term_writes() {
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        return skip("the worker of examples/agent: python3 is not installed");
    }
    let (consul, bench) = (Consul::shared(), Bench::new("fencing"));
    let worker = file("examples/agent/worker.py");
    let worker = worker.to_str().expect("a path is text");
    let script = format!("echo \"begin $LICTOR_TERM $$\" >>log; exec python3 {worker} reports.db >>log 2>&1");
    let agent = |identity: &str| {
        let lock = ["--consul", consul.address(), "--key", &bench.key, "--ttl", "10s", "--identity", identity];
        bench.start(&lock, &["sh", "-c", &script], &[("REPORT_SECONDS", "0.1")])
    };
    let first = agent("one");
    let (term, old) = bench.begins(1).await;
    bench.logs(&format!("a report in term {term}")).await;
    let second = agent("two");
    second.says("waiting for the lock").await;
    let chain = [first.watchdog(), first.guard().await, first.agent().await];
    signal("STOP", &chain);
    // Between two transactions, because a worker that stops within one keeps the database locked.
    eventually("the worker has stopped between two transactions", || async {
        signal("STOP", &[old]);
        if writable(&bench.directory) {
            return Ok(());
        }
        signal("CONT", &[old]);
        Err("the database is locked".to_owned())
    })
    .await;
    let (next, new) = bench.begins(2).await;
    bench.logs(&format!("a report in term {next}")).await;

    // The worker goes on alone, as a write that was under way does: nothing that would end it runs.
    signal("CONT", &[old]);
    bench.logs(&format!("refused: term {term} is over")).await;
    let terms = bench.lines("log");
    let terms: Vec<u64> =
        terms.iter().filter_map(|line| line.strip_prefix("a report in term ")?.parse().ok()).collect();
    assert!(terms.is_sorted() && terms.contains(&term) && terms.contains(&next), "{terms:?}");
    assert!(children(second.agent().await).contains(&new), "who has the later term goes on");
    signal("CONT", &chain);
    first.says("waiting for the lock").await;
}

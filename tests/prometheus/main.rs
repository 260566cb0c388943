//! The alerts, judged by Prometheus' own programs: by promtool with made-up figures, and by a Prometheus that scrapes a real operator.
//! `make prometheus` runs this: to build Prometheus takes minutes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lictor_testing::kubernetes::{Lab, eventually};
use lictor_testing::{free_address, tool};
use serde_json::{Value, json};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a program of hack/tools.sh. Returns what it printed, or its error text.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(tool(program)).args(arguments).current_dir(ROOT).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let both = || format!("{}{}", text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(both()) }
}

/// A directory with the chart's alerts in rules.yaml, as a release named lictor in the namespace lictor has them. It is deleted with
/// the test.
struct Files(PathBuf);

impl Files {
    fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("lictor-prometheus-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let made = run(
            "helm",
            &[
                "template",
                "lictor",
                "charts/lictor",
                "--namespace=lictor",
                "--kube-version=1.33.0",
                "--set=metrics.rules.enabled=true",
                "--show-only=templates/metrics.yaml",
            ],
        );
        let made = made.expect("the chart is rendered");
        let objects: Vec<Value> = serde_saphyr::from_multiple(&made).expect("it is YAML");
        let rules = objects.into_iter().find(|object| object["kind"] == "PrometheusRule").expect("there are alerts");
        let files = Self(directory);
        files.write("rules.yaml", &rules["spec"].to_string());
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the path is text").to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running Prometheus. Dropping this kills it.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    /// Starts one that scrapes an operator each second, with the labels that the chart's ServiceMonitor gives it.
    fn start(files: &Files, operator: &str) -> Self {
        let configuration = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{
                "job_name": "lictor", "honor_labels": true,
                "static_configs": [{"targets": [operator], "labels": {"namespace": "lictor"}}],
            }],
        });
        files.write("prometheus.yaml", &configuration.to_string());
        let address = free_address().to_string();
        let log = std::fs::File::create(files.path("log")).unwrap();
        let child = Command::new(tool("prometheus"))
            .arg(format!("--config.file={}", files.path("prometheus.yaml")))
            .arg(format!("--storage.tsdb.path={}", files.path("data")))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("Prometheus starts");
        Self { child, address }
    }

    /// Waits until a query has an answer that satisfies this. An answer has a line for each series.
    async fn answers(&self, query: &str, holds: impl Fn(&str) -> bool) -> String {
        let url = format!("http://{}", self.address);
        eventually(&format!("Prometheus answers {query}"), || async {
            let answer = run("promtool", &["query", "instant", &url, query])?;
            if holds(&answer) { Ok(answer) } else { Err(answer) }
        })
        .await
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_alert_fires_when_it_should_and_only_for_its_own_release() {
    let files = Files::new("alerts");
    files.write("alerts.yaml", include_str!("alerts.yaml"));
    run("promtool", &["check", "rules", "--lint=all", "--lint-fatal", &files.path("rules.yaml")])
        .expect("the rules are valid");
    run("promtool", &["test", "rules", &files.path("alerts.yaml")]).unwrap_or_else(|error| panic!("{error}"));
    let rules: Value = serde_json::from_str(&std::fs::read_to_string(files.path("rules.yaml")).unwrap()).unwrap();
    for rule in rules["groups"][0]["rules"].as_array().expect("there are rules") {
        let name = rule["alert"].as_str().expect("it has a name");
        assert!(
            include_str!("alerts.yaml").contains(&format!("alertname=\"{name}\"")),
            "{name} never fires in alerts.yaml"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_scrapes_a_real_operator() {
    let lab = Lab::new("prometheus").await;
    let mut operator = lab.operator(&[]);
    operator.acts().await;
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    lab.elect_as("web-taken", json!({"key": "web"})).await;
    let leader = lab.wait_any_leader().await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    lab.wait_condition("web-taken", "Ready", "False", "KeyTaken").await;

    let files = Files::new("scrape");
    let prometheus = Prometheus::start(&files, &operator.address().await);
    let namespace = lab.namespace.as_str();
    prometheus.answers("up", |answer| answer.contains("=> 1 ")).await;
    let web = format!("namespace=\"{namespace}\",election=\"web\"");
    let one = |answer: &str| answer.lines().count() == 1 && answer.contains("=> 1 ");
    prometheus.answers(&format!("lictor_leader{{{web},pod=\"{leader}\"}}"), one).await;
    prometheus.answers(&format!("lictor_ready{{{web},reason=\"Led\"}}"), one).await;
    prometheus.answers("lictor_build_info{job=\"lictor\",namespace=\"lictor\",version!=\"\"}", one).await;
    prometheus.answers("process_start_time_seconds > 0", |answer| answer.lines().count() == 1).await;
    prometheus.answers("count({__name__=~\"lictor_.+\", election=\"web\"})", |answer| answer.contains("=> 9 ")).await;

    // What is not well is pending, and nothing else is.
    let pending = prometheus.answers("ALERTS", |answer| answer.contains("LictorNotReady")).await;
    assert_eq!(pending.lines().count(), 1, "{pending}");
    assert!(
        pending.contains("election=\"web-taken\"") && pending.contains(&format!("namespace=\"{namespace}\"")),
        "{pending}"
    );
    operator.stop().await;
    let pending = prometheus.answers("ALERTS", |answer| answer.contains("LictorNobodyActs")).await;
    assert!(pending.contains("namespace=\"lictor\""), "{pending}");
}

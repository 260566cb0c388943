//! The chart's Prometheus queries use only metrics that the program has, and docs/metrics.md has all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lictor::telemetry::{ElectionFigures, Metrics};
use lictor_core::{LockValidity, StoreId};
use serde_json::Value;

use crate::helm::{find, objects, template};

fn made() -> Vec<Value> {
    let made = template("metrics: {rules: {enabled: true}, dashboard: {enabled: true}}", &[]).expect("it is made");
    objects(&made)
}

fn alerts(made: &[Value]) -> Vec<Value> {
    let groups = find(made, "PrometheusRule", "lictor")["spec"]["groups"].as_array().expect("it has groups").clone();
    groups.iter().flat_map(|group| group["rules"].as_array().expect("it has rules").clone()).collect()
}

/// Returns every query in the alerts and the dashboard.
fn queries() -> Vec<String> {
    let made = made();
    let alerts = alerts(&made).into_iter().map(|rule| rule["expr"].as_str().expect("it is text").to_owned());
    let dashboard = find(&made, "ConfigMap", "dashboard")["data"]["lictor.json"].as_str().expect("it has a dashboard");
    let dashboard: Value = serde_json::from_str(dashboard).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels").clone();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("it has targets").clone());
    let shown = targets.map(|target| target["expr"].as_str().expect("it is text").to_owned());
    alerts.chain(shown).collect()
}

/// Returns the words of a query that begin with `lictor_`.
fn names(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("lictor_"))
}

/// Returns all that the program tells, once each of its metrics has a value.
fn told() -> String {
    let metrics = Metrics::default();
    metrics.record(ElectionFigures {
        namespace: "shop".into(),
        name: "web".into(),
        leader: Some("web-0".into()),
        has_candidate: true,
        paused: true,
        ready: Some((true, "Paused".into())),
        ..ElectionFigures::default()
    });
    metrics.observe_failover(Duration::from_millis(10));
    metrics.count_watch_failure("pods");
    metrics.count_dropped_event("full");
    metrics.count_switchover("Complete");
    let end = lictor_process::monotonic() + Duration::from_secs(60);
    metrics.store_held(&StoreId("consul/consul".into()), LockValidity::Until(end));
    metrics.encode().expect("it can be written")
}

/// Returns the names by which the program's metrics are asked for, and their labels.
fn told_names() -> BTreeMap<String, BTreeSet<String>> {
    let told = told();
    let mut names = BTreeMap::new();
    for line in told.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
        let labels =
            labels.split('"').step_by(2).filter_map(|before| before.trim_matches([',', '}']).strip_suffix('='));
        names.insert(name.to_owned(), labels.map(str::to_owned).collect());
    }
    assert!(names.len() > 20, "{told}");
    names
}

/// At 10,000 elections, each of these is 10,000 series.
#[test]
fn an_election_has_few_series() {
    let told = told();
    let series = told.lines().filter(|line| !line.starts_with('#') && line.contains("election=\"web\""));
    assert_eq!(series.count(), 10, "{told}");
    assert_eq!(
        told.lines().filter(|line| line.starts_with("lictor_failover_duration_seconds_count")).count(),
        1,
        "{told}"
    );
}

#[test]
fn the_page_has_every_metric_with_its_labels() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut listed = BTreeMap::new();
    for row in rows.filter(|row| row.starts_with("lictor_") || row.starts_with("process_")) {
        let (name, labels) = row.split_once('{').unwrap_or((row, ""));
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()).map(str::to_owned);
        assert!(listed.insert(name.to_owned(), labels.collect()).is_none(), "{name} is there twice");
    }
    // A histogram has several names, and is listed by its own.
    let told: BTreeMap<_, BTreeSet<String>> = told_names()
        .into_iter()
        .filter(|(name, _)| !name.ends_with("_sum") && !name.ends_with("_count"))
        .map(|(name, labels)| match name.strip_suffix("_bucket") {
            Some(histogram) => (histogram.to_owned(), BTreeSet::new()),
            None => (name, labels),
        })
        .collect();
    assert_eq!(listed, told);
}

#[test]
fn every_metric_that_is_asked_for_is_told() {
    let names_told = told_names();
    let queries = queries();
    let asked: BTreeSet<&str> = queries.iter().flat_map(|query| names(query)).collect();
    assert!(asked.len() >= 8, "{asked:?}");
    let unknown: Vec<_> = asked.iter().filter(|name| !names_told.contains_key(**name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} is none of {names_told:?}");
}

/// Each alert is about its own release, and its runbook is a section that exists.
#[test]
fn every_alert_names_its_release_and_a_section() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operating.md")).unwrap();
    let alerts = alerts(&made());
    assert!(alerts.len() >= 9, "{alerts:#?}");
    for alert in alerts {
        let name = alert["alert"].as_str().expect("it has a name");
        let expression = alert["expr"].as_str().expect("it is text");
        assert!(expression.contains("job=\"lictor\", namespace=\"lictor\""), "{name}: {expression}");
        let runbook = alert["annotations"]["runbook_url"].as_str().expect("it has a runbook");
        assert_eq!(runbook, format!("docs/operating.md#{}", name.to_lowercase()));
        assert!(page.contains(&format!("\n### {name}\n")), "docs/operating.md has no section {name}");
    }
}

#[test]
fn every_bracket_is_closed() {
    for query in queries() {
        let mut open = Vec::new();
        for c in query.chars() {
            match c {
                '(' => open.push(')'),
                '[' => open.push(']'),
                '{' => open.push('}'),
                ')' | ']' | '}' => assert_eq!(open.pop(), Some(c), "{query}"),
                _ => {}
            }
        }
        assert!(open.is_empty() && query.matches('"').count() % 2 == 0, "{query}");
    }
}

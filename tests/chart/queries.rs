//! The chart's Prometheus queries use only metrics that the program has.

use std::collections::BTreeSet;
use std::time::Duration;

use lictor::telemetry::{ElectionFigures, Metrics};
use lictor_core::StoreId;
use serde_json::Value;

use crate::helm::{find, objects, template};

/// Returns every query in the alerts and the dashboard.
fn queries() -> Vec<String> {
    let made = template("metrics: {rules: {enabled: true}, dashboard: {enabled: true}}", &[]).expect("it is made");
    let made = objects(&made);
    let groups = find(&made, "PrometheusRule", "lictor")["spec"]["groups"].as_array().expect("it has groups").clone();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("it has rules").clone());
    let alerts = rules.map(|rule| rule["expr"].as_str().expect("it is text").to_owned());
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

#[test]
fn every_metric_that_is_asked_for_is_told() {
    let metrics = Metrics::default();
    metrics.record(ElectionFigures {
        namespace: "shop".into(),
        name: "web".into(),
        leader: Some("web-0".into()),
        term: 1,
        transitions: 1,
        label_drift: 0,
        has_candidate: true,
    });
    metrics.observe_failover("shop", "web", Duration::from_millis(10));
    metrics.count_watch_failure("pods");
    metrics.store_held(&StoreId("consul/consul".into()), true);
    let told = metrics.encode().expect("it can be written");
    let families = told.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let families: Vec<(&str, &str)> = families.collect();
    let named = |name: &str| {
        families.iter().any(|(family, kind)| match *kind {
            "counter" => name.strip_suffix("_total") == Some(family),
            "histogram" => name.strip_suffix("_bucket") == Some(family),
            _ => name == *family,
        })
    };
    let queries = queries();
    let asked: BTreeSet<&str> = queries.iter().flat_map(|query| names(query)).collect();
    assert!(asked.len() >= 8, "{asked:?}");
    let unknown: Vec<_> = asked.iter().filter(|name| !named(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} is none of {families:?}");
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

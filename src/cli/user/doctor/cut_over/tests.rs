use std::collections::BTreeSet;

use lictor_api::Classes;
use serde_json::Value;

use super::*;
use crate::cli::user::outlook::read;

/// A Service `web` with a selector, an election `web`, two pods, and what slices name.
struct Shop {
    election: LeaderElection,
    services: Vec<ServiceSelector>,
    around: Surroundings,
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn slice(writer: SliceWriter, pods: &[&str]) -> NamedBySlice {
    let pods: BTreeSet<String> = pods.iter().map(|pod| (*pod).to_owned()).collect();
    NamedBySlice { service: "web".into(), writer, pods }
}

impl Shop {
    /// `leader`: the pod that leads; none: nobody ever did. `routed`: the reason of the condition, if the Service is
    /// named.
    fn new(selector: &[(&str, &str)], leader: Option<&str>, routed: Option<&str>) -> Self {
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        let mut status = json!({});
        if let Some(leader) = leader {
            status = json!({"term": 3, "leader": {"name": leader, "podName": leader}});
        }
        if let Some(reason) = routed {
            spec["service"] = json!({"name": "web"});
            status["conditions"] = json!([{
                "type": ROUTED, "status": "False", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        }
        let pod = |name: &str| {
            let role = match leader {
                None => None,
                Some(leader) => Some(if name == leader { "leader" } else { "follower" }),
            };
            let mut labels = labels(&[("app", "web")]);
            labels.extend(role.map(|role| ("role".to_owned(), role.to_owned())));
            Pod { name: name.into(), labels: labels.into(), ..Pod::default() }
        };
        Self {
            election: election(&spec, &status),
            services: vec![service("web", selector)],
            around: Surroundings { pods: vec![pod("web-0"), pod("web-1")], slices: Vec::new(), unread: false },
        }
    }

    fn with(mut self, slices: &[NamedBySlice]) -> Self {
        self.around.slices = slices.to_vec();
        self
    }

    /// What comes next, without the word in front of it.
    fn next(&self) -> Option<String> {
        let scope = read(&self.election, &Classes::new()).0.unwrap().scope;
        let step = next_step(&Group { election: &self.election, scope }, &self.services, &self.around);
        step.map(|(_, finding)| finding.line().trim_end().to_owned())
    }
}

fn election(spec: &Value, status: &Value) -> LeaderElection {
    let object = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": spec, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn service(name: &str, selector: &[(&str, &str)]) -> ServiceSelector {
    ServiceSelector { namespace: "shop".into(), name: name.into(), selector: labels(selector) }
}

const ALL: &[(&str, &str)] = &[("app", "web")];
const LEADER: &[(&str, &str)] = &[("app", "web"), ("role", "leader")];
const HAS_SELECTOR: Option<&str> = Some("ServiceHasSelector");
const ADD: &str = r#"kubectl -n shop patch service web -p '{"spec":{"selector":{"role":"leader"}}}'"#;
const OFF: &str = r#"kubectl -n shop patch service web --type=json -p '[{"op":"remove","path":"/spec/selector"}]'"#;

#[test]
fn each_state_of_the_way_names_the_command_that_comes_next() {
    let kubernetes = |pods: &[&str]| slice(SliceWriter::Kubernetes, pods);
    let own = slice(SliceWriter::Lictor, &["web-1"]);
    let cases = vec![
        // By label.
        (Shop::new(ALL, None, None), "No pod carries role=leader yet: kubectl lictor explain web -n shop"),
        (Shop::new(ALL, Some("web-1"), None), ADD),
        (
            Shop::new(LEADER, None, None),
            r#"kubectl -n shop patch service web --type=json -p '[{"op":"remove","path":"/spec/selector/role"}]'"#,
        ),
        // By slice.
        (Shop::new(ALL, None, HAS_SELECTOR), "there is no leader yet: kubectl lictor explain web -n shop"),
        (Shop::new(ALL, Some("web-1"), HAS_SELECTOR), ADD),
        (
            Shop::new(LEADER, Some("web-1"), HAS_SELECTOR).with(&[kubernetes(&["web-0", "web-1"])]),
            "check again in a moment",
        ),
        (Shop::new(LEADER, Some("web-1"), HAS_SELECTOR).with(&[kubernetes(&["web-1"])]), OFF),
        (Shop::new(LEADER, Some("web-1"), HAS_SELECTOR).with(&[kubernetes(&["web-0"])]), "check again in a moment"),
        (
            Shop::new(&[], Some("web-1"), Some("LeftoverEndpoints")).with(&[kubernetes(&["web-0"])]),
            r#"kubectl -n shop patch service web -p '{"spec":{"selector":{"app":"web","role":"leader"}}}'"#,
        ),
        (
            Shop::new(&[], Some("web-1"), None).with(&[kubernetes(&["web-1"])]),
            r#"kubectl -n shop patch le web --type=merge -p '{"spec":{"service":{"name":"web"}}}'"#,
        ),
        // And back.
        (
            Shop::new(LEADER, Some("web-1"), HAS_SELECTOR).with(&[kubernetes(&["web-1"]), own]),
            r#"To return to the label: kubectl -n shop patch le web --type=json -p '[{"op":"remove","path":"/spec/service"}]'"#,
        ),
    ];
    for (shop, command) in cases {
        let next = shop.next().unwrap_or_default();
        assert!(next.contains(command), "{command} is not in: {next}");
    }
}

#[test]
fn at_the_ends_of_the_way_and_where_the_operator_says_what_to_do_nothing_comes_next() {
    let agree = || [slice(SliceWriter::Kubernetes, &["web-1"]), slice(SliceWriter::Lictor, &["web-1"])];
    for shop in [
        Shop::new(LEADER, Some("web-1"), None),
        Shop::new(&[("app", "other")], Some("web-1"), None),
        Shop::new(&[], Some("web-1"), None),
        Shop::new(&[], Some("web-1"), None).with(&[slice(SliceWriter::Kubernetes, &["db-0"])]),
        Shop::new(&[], Some("web-1"), None).with(&[slice(SliceWriter::Others, &["web-1"])]),
        Shop::new(&[], Some("web-1"), Some("LeftoversNameLeader")).with(&agree()),
        Shop::new(LEADER, Some("web-1"), Some("Forbidden")),
    ] {
        assert_eq!(shop.next(), None);
    }
}

#[test]
fn another_service_that_reaches_the_leader_is_enough_and_one_of_another_group_is_none() {
    let mut shop = Shop::new(ALL, Some("web-1"), None);
    shop.services.push(service("other-leader", &[("app", "other"), ("role", "leader")]));
    assert!(shop.next().unwrap().contains(ADD));
    shop.services.push(service("web-leader", LEADER));
    assert_eq!(shop.next(), None);
}

#[test]
fn labels_with_a_slash_are_named_as_json_pointers_name_them() {
    let asks = service("web", &[("app", "web"), ("example.com/a~b", "x")]);
    let command = take_off(&asks, &labels(&[("example.com/a~b", "x"), ("role", "leader")]));
    assert!(command.ends_with(r#"-p '[{"op":"remove","path":"/spec/selector/example.com~1a~0b"}]'"#), "{command}");
}

#[test]
fn a_service_that_asks_for_the_label_where_no_election_writes_it_is_named_if_it_reaches_nobody() {
    let Shop { services, around, .. } = Shop::new(LEADER, None, None);
    let found = without_election(&services[0], &around.pods).unwrap().line();
    assert!(found.contains("note") && found.contains("/spec/selector/role"), "{found}");
    let Shop { around, .. } = Shop::new(LEADER, Some("web-1"), None);
    assert!(without_election(&services[0], &around.pods).is_none());
    assert!(without_election(&service("web", ALL), &[]).is_none());
}

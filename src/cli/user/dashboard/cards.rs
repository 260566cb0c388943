//! What belongs to an election besides its pods, a card for each part that the election has.

use lictor_api::{Asked, ELECTED, Held, LeaderElection, ROUTED, STORE_REACHABLE, WORKLOADS_FOLLOW};
use lictor_core::{ProbeRequest, ProbeTarget, TargetPort};
use serde::Serialize;

use crate::cli::user::outlook::Sight;
use crate::cli::user::reading::condition;
use crate::cli::user::status::{session, store};

/// One part of an election.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Card {
    kind: &'static str,
    title: String,
    /// Whether all is well with the part. `None`: unknown.
    well: Option<bool>,
    /// Names and values.
    lines: Vec<(String, String)>,
}

/// Returns the cards of an election. A part that the election does not have has none.
pub(super) fn cards(sight: &Sight) -> Vec<Card> {
    [service(&sight.election), probe(sight), lock(sight), workloads(&sight.election), clusters(sight)]
        .into_iter()
        .flatten()
        .collect()
}

fn service(election: &LeaderElection) -> Option<Card> {
    let service = election.spec.service.as_ref()?;
    let ports = service.ports.iter().map(|port| {
        let name = port.name.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
        format!("{name}{}", port.port)
    });
    let ports = ports.collect::<Vec<_>>().join(", ");
    let mut lines = vec![("ports".to_owned(), ports)];
    lines.extend(condition(election, ROUTED).map(|routed| ("route".into(), routed.message.clone())));
    Some(Card { kind: "service", title: service.name.clone(), well: holds(election, ROUTED), lines })
}

fn probe(sight: &Sight) -> Option<Card> {
    let probe = sight.spec.as_ref().ok()?.probe.as_ref()?;
    let title = match &probe.asked {
        Asked::Nothing => "by a connection alone".to_owned(),
        Asked::LikeReadiness => "as the pod's readiness probe".into(),
        Asked::Target(target) => asked(target),
    };
    let mut lines = Vec::new();
    if probe.asked != Asked::Nothing {
        let rules = &probe.rules;
        lines.push((
            "every".to_owned(),
            format!("{} s, for at most {} s", rules.period.as_secs(), rules.timeout.as_secs()),
        ));
        lines.push(("fails after".into(), format!("{} in a row without success", rules.failure_threshold)));
    }
    let held = match &probe.connection {
        Held::Off => None,
        Held::Port(port) => Some(format!("a connection to port {} that stays open", told(port))),
        Held::OfService => Some("a connection to the Service's port that stays open".to_owned()),
    };
    lines.extend(held.map(|held| ("and".into(), held)));
    let fails = condition(&sight.election, ELECTED).is_some_and(|elected| elected.reason == "ProbeFails");
    Some(Card { kind: "probe", title, well: Some(!fails), lines })
}

fn asked(target: &ProbeTarget) -> String {
    let port = told(&target.port);
    match &target.request {
        ProbeRequest::Http(http) => format!("GET {} at port {port}", http.path),
        ProbeRequest::Tcp => format!("a TCP connection to port {port}"),
        ProbeRequest::Grpc(_) => format!("a gRPC health check at port {port}"),
    }
}

fn told(port: &TargetPort) -> String {
    match port {
        TargetPort::Number(number) => number.to_string(),
        TargetPort::Name(name) => name.clone(),
    }
}

fn lock(sight: &Sight) -> Option<Card> {
    let spec = sight.spec.as_ref().ok()?;
    let shared = spec.shared.as_ref();
    let mut lines = vec![("store".to_owned(), store(sight, shared, &spec.key.to_string()).into_text())];
    if sight.classes_seen {
        lines.push(("session".into(), session(sight, shared).into_text()));
    }
    let title = spec.key.name.clone();
    Some(Card { kind: "lock", title, well: holds(&sight.election, STORE_REACHABLE), lines })
}

fn workloads(election: &LeaderElection) -> Option<Card> {
    let status = election.status.as_ref().and_then(|status| status.workloads.as_ref());
    let items = status.map(|status| status.items.as_slice()).unwrap_or_default();
    if election.spec.workloads.is_empty() && items.is_empty() {
        return None;
    }
    let lines = items.iter().map(|item| (format!("{:?}/{}", item.kind, item.name), format!("{:?}", item.state)));
    let title = format!("{} that follow the leader", election.spec.workloads.len());
    Some(Card { kind: "workloads", title, well: holds(election, WORKLOADS_FOLLOW), lines: lines.collect() })
}

fn clusters(sight: &Sight) -> Option<Card> {
    let shared = sight.spec.as_ref().ok()?.shared.as_ref()?;
    let leader = sight.election.status.as_ref().and_then(|status| status.leader.as_ref());
    let leads = leader.and_then(|leader| leader.cluster_name.clone()).unwrap_or_else(|| "none".into());
    let lines = vec![
        ("leads".to_owned(), leads),
        ("this cluster".into(), shared.cluster().to_owned()),
        ("they meet in".into(), shared.place()),
    ];
    Some(Card { kind: "clusters", title: format!("seen from {}", shared.cluster()), well: None, lines })
}

/// Whether a condition holds. `None`: unknown.
fn holds(election: &LeaderElection, type_: &str) -> Option<bool> {
    match condition(election, type_)?.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

//! Reads how an election's leader is probed.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lictor_core::{HttpProbe, ProbeRequest, ProbeRules, ProbeTarget, TargetPort};

use crate as api;

/// How lictor probes a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What lictor asks periodically.
    pub asked: Asked,
    /// The port to which lictor holds a connection.
    pub connection: Held,
    /// The periods and thresholds.
    pub rules: ProbeRules,
}

/// The port of the leader to which lictor holds a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nowhere.
    Off,
    /// This port.
    Port(TargetPort),
    /// The first TCP port to which the election's Service leads, if the leader has it.
    OfService,
}

/// What lictor asks a leader periodically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    Nothing,
    /// The same of each leader.
    Target(ProbeTarget),
    /// What the leader's own readiness probes ask.
    LikeReadiness,
}

impl Probe {
    /// Reads `spec.probe`. `by_default`: the connection without `spec.probe.connection`.
    pub(super) fn resolve(probe: Option<&api::Probe>, by_default: Held) -> Option<Self> {
        let nothing = api::Probe::default();
        let found = Self::of(probe.unwrap_or(&nothing), by_default);
        (found.asked != Asked::Nothing || found.connection != Held::Off).then_some(found)
    }

    fn of(probe: &api::Probe, by_default: Held) -> Self {
        let target = |port: &IntOrString, request| ProbeTarget { port: resolve_port(port), request };
        let http = probe.http_get.as_ref().map(|http| target(&http.port, resolve_http(http)));
        let tcp = probe.tcp_socket.as_ref().map(|tcp| target(&tcp.port, ProbeRequest::Tcp));
        let grpc = probe.grpc.as_ref().map(|grpc| target(&grpc.port, ProbeRequest::Grpc(grpc.service.as_str().into())));
        let connection = match &probe.connection {
            None => by_default,
            Some(connection) if !connection.enabled => Held::Off,
            Some(connection) => connection.port.as_ref().map_or(by_default, |port| Held::Port(resolve_port(port))),
        };
        let rules = |period: u32, timeout: u32, failure_threshold, success_threshold| ProbeRules {
            period: Duration::from_secs(period.max(1).into()),
            timeout: Duration::from_secs(timeout.max(1).into()),
            failure_threshold,
            success_threshold,
        };
        if let Some(like) = &probe.like_readiness {
            let rules = rules(like.period_seconds, like.timeout_seconds, like.failure_threshold, 1);
            return Self { asked: Asked::LikeReadiness, connection, rules };
        }
        Self {
            asked: http.or(tcp).or(grpc).map_or(Asked::Nothing, Asked::Target),
            connection,
            rules: rules(probe.period_seconds, probe.timeout_seconds, probe.failure_threshold, probe.success_threshold),
        }
    }
}

fn resolve_http(http: &api::HttpGet) -> ProbeRequest {
    let header = |header: &api::HttpHeader| (header.name.as_str().into(), header.value.as_str().into());
    ProbeRequest::Http(Box::new(HttpProbe {
        tls: http.scheme == api::HttpScheme::Https,
        host: http.host.as_deref().map(Into::into),
        path: http.path.as_str().into(),
        headers: http.http_headers.iter().map(header).collect(),
    }))
}

fn resolve_port(port: &IntOrString) -> TargetPort {
    match port {
        IntOrString::Int(number) => TargetPort::Number((*number).try_into().unwrap_or_default()),
        IntOrString::String(name) => TargetPort::Name(name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resolved(probe: Value) -> Probe {
        Probe::of(&serde_json::from_value(probe).unwrap(), Held::Off)
    }

    #[test]
    fn a_probe_asks_at_a_port_with_a_number_or_a_name() {
        let header = json!({"name": "X-Role", "value": "leader"});
        let http = json!({"port": "web", "scheme": "HTTPS", "host": "web.example", "httpHeaders": [header]});
        let found = resolved(json!({"httpGet": http, "connection": {"port": 7000}}));
        let request = ProbeRequest::Http(Box::new(HttpProbe {
            tls: true,
            host: Some("web.example".into()),
            path: "/".into(),
            headers: [("X-Role".into(), "leader".into())].into(),
        }));
        let port = TargetPort::Name("web".into());
        assert_eq!(found.asked, Asked::Target(ProbeTarget { port, request }));
        assert_eq!(found.connection, Held::Port(TargetPort::Number(7000)));
        let grpc = resolved(json!({"grpc": {"port": 9000}}));
        let (port, request) = (TargetPort::Number(9000), ProbeRequest::Grpc("".into()));
        assert_eq!((grpc.asked, grpc.connection), (Asked::Target(ProbeTarget { port, request }), Held::Off));
    }

    #[test]
    fn the_connection_to_the_services_port_is_held_unless_the_probe_says_otherwise() {
        let resolved = |probe: Option<Value>, by_default| {
            let probe: Option<api::Probe> = probe.map(|probe| serde_json::from_value(probe).unwrap());
            Probe::resolve(probe.as_ref(), by_default).map(|probe| probe.connection)
        };
        assert_eq!(resolved(None, Held::Off), None);
        assert_eq!(resolved(None, Held::OfService), Some(Held::OfService));
        assert_eq!(resolved(Some(json!({"tcpSocket": {"port": 1}})), Held::OfService), Some(Held::OfService));
        let port = Some(Held::Port(TargetPort::Number(7)));
        assert_eq!(resolved(Some(json!({"connection": {"port": 7}})), Held::OfService), port);
        assert_eq!(resolved(Some(json!({"connection": {"enabled": false}})), Held::OfService), None);
        let asked = json!({"tcpSocket": {"port": 1}, "connection": {"enabled": false}});
        assert_eq!(resolved(Some(asked), Held::OfService), Some(Held::Off));
    }

    #[test]
    fn like_readiness_has_times_of_its_own() {
        let rules = |probe| {
            let Probe { asked, rules, .. } = resolved(probe);
            let ProbeRules { period, timeout, failure_threshold, success_threshold } = rules;
            (asked, period.as_secs(), timeout.as_secs(), failure_threshold, success_threshold)
        };
        let like = json!({"periodSeconds": 5, "failureThreshold": 2, "timeoutSeconds": 4});
        let others = json!({"likeReadiness": like, "periodSeconds": 9, "successThreshold": 9});
        assert_eq!(rules(others), (Asked::LikeReadiness, 5, 4, 2, 1));
        assert_eq!(rules(json!({"likeReadiness": {}})), (Asked::LikeReadiness, 1, 1, 3, 1));
        assert_eq!(rules(json!({"connection": {"port": 1}})), (Asked::Nothing, 2, 1, 3, 1));
    }
}

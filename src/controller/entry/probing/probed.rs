//! What one leader is asked: what its election wants, with the ports and readiness probes of its pod.

use std::net::IpAddr;

use lictor_api::{Asked, Held, ResolvedProbe};
use lictor_core::{OnlyByKubelet, Pod, ProbeRequest, ProbeRules, ProbeTarget, Service, TargetPort, Uid};

/// A leader, and how to probe it.
#[derive(Clone, PartialEq)]
pub(crate) struct Probed {
    pub(crate) leader: Uid,
    pub(super) ip: IpAddr,
    /// What it is asked periodically. All must be answered correctly.
    pub(super) questions: Vec<Question>,
    /// The port to which a connection is held.
    pub(super) connection: Option<u16>,
    pub(super) rules: ProbeRules,
    /// What it can't be asked.
    pub(super) unasked: Option<Unasked>,
}

/// What a leader is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The container whose readiness probe it is.
    pub(super) container: Option<Box<str>>,
    /// The port, or why there is none. Without a port, the probe fails.
    pub(super) port: Result<u16, String>,
    pub(super) request: ProbeRequest,
}

/// What a leader can't be asked, although `likeReadiness` wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unasked {
    /// No container of it has a readiness probe.
    NoReadinessProbe,
    /// The readiness probe of this container, for this reason.
    Container(Box<str>, OnlyByKubelet),
}

impl Probed {
    /// How to probe this leader; `None` if it has no address. `service`: the Service through which it is reached.
    pub(crate) fn of(pod: &Pod, probe: &ResolvedProbe, service: Option<&Service>) -> Option<Self> {
        let ip = pod.ip.as_ref()?.parse().ok()?;
        let (mut questions, mut unasked) = (Vec::new(), None);
        match &probe.asked {
            Asked::Nothing => {}
            Asked::Target(target) => questions.push(Question::of(pod, target, None)),
            Asked::LikeReadiness => {
                unasked = pod.readiness_probes.is_empty().then_some(Unasked::NoReadinessProbe);
                for readiness in &pod.readiness_probes {
                    let container = readiness.container.clone();
                    match &readiness.target {
                        Ok(target) => questions.push(Question::of(pod, target, Some(container))),
                        Err(why) => unasked = unasked.or(Some(Unasked::Container(container, *why))),
                    }
                }
            }
        }
        let connection = match &probe.connection {
            Held::Off => None,
            // The condition Routed tells of a port that the pod does not have.
            Held::OfService => {
                let port = service.and_then(|service| service.ports.iter().find(|port| port.protocol == "TCP"));
                port.and_then(|port| number(pod, &port.target).ok())
            }
            Held::Port(port) => match number(pod, port) {
                Ok(number) => Some(number),
                Err(why) => {
                    questions.push(Question { container: None, port: Err(why), request: ProbeRequest::Tcp });
                    None
                }
            },
        };
        Some(Self { leader: pod.uid.clone(), ip, questions, connection, rules: probe.rules, unasked })
    }
}

impl Question {
    fn of(pod: &Pod, target: &ProbeTarget, container: Option<Box<str>>) -> Self {
        Self { container, port: number(pod, &target.port), request: target.request.clone() }
    }
}

/// The number of a pod's TCP port.
///
/// # Errors
/// If the pod has no port of this name: returns which names there are.
fn number(pod: &Pod, port: &TargetPort) -> Result<u16, String> {
    pod.port(port, "TCP").ok_or_else(|| {
        let TargetPort::Name(name) = port else { return String::new() };
        let tcp = pod.ports.iter().filter(|port| port.protocol == "TCP");
        let names: Vec<&str> = tcp.map(|port| port.name.as_str()).collect();
        let are =
            if names.is_empty() { "no TCP port has a name".into() } else { format!("there are {}", names.join(", ")) };
        format!("no container of the pod has a TCP port named {name:?}: {are}")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lictor_core::{NamedPort, ReadinessProbe, ServicePort};

    use super::*;

    fn pod(readiness_probes: Vec<ReadinessProbe>) -> Pod {
        let port =
            |name: &str, protocol: &str, number| NamedPort { name: name.into(), protocol: protocol.into(), number };
        Pod {
            uid: Uid("a".into()),
            ip: Some("10.0.0.1".into()),
            ports: vec![port("web", "TCP", 8080), port("dns", "UDP", 53), port("admin", "TCP", 9901)],
            readiness_probes: readiness_probes.into(),
            ..Pod::default()
        }
    }

    fn probed(pod: &Pod, asked: Asked, connection: Held) -> Probed {
        let second = Duration::from_secs(1);
        let rules = ProbeRules { period: second, timeout: second, failure_threshold: 1, success_threshold: 1 };
        Probed::of(pod, &ResolvedProbe { asked, connection, rules }, None).unwrap()
    }

    fn tcp(port: TargetPort) -> ProbeTarget {
        ProbeTarget { port, request: ProbeRequest::Tcp }
    }

    fn name(name: &str) -> TargetPort {
        TargetPort::Name(name.into())
    }

    fn ports(probed: &Probed) -> Vec<Result<u16, &str>> {
        probed.questions.iter().map(|question| question.port.as_ref().copied().map_err(String::as_str)).collect()
    }

    #[test]
    fn ports_are_looked_up_by_name() {
        let found = probed(&pod(Vec::new()), Asked::Target(tcp(name("web"))), Held::Port(name("admin")));
        assert_eq!((ports(&found), found.connection, &found.unasked), (vec![Ok(8080)], Some(9901), &None));
        let lacking = probed(&pod(Vec::new()), Asked::Nothing, Held::Port(name("dns")));
        let why = "no container of the pod has a TCP port named \"dns\": there are web, admin";
        assert_eq!((ports(&lacking), lacking.connection), (vec![Err(why)], None));
        let nameless = Pod { ports: Vec::new(), ..pod(Vec::new()) };
        let lacking = probed(&nameless, Asked::Target(tcp(name("web"))), Held::Off);
        assert_eq!(
            ports(&lacking),
            [Err("no container of the pod has a TCP port named \"web\": no TCP port has a name")]
        );
    }

    #[test]
    fn all_readiness_probes_are_asked_and_the_first_that_cannot_be_is_told() {
        let readiness = |container: &str, target| ReadinessProbe { container: container.into(), target };
        let exec = || readiness("script", Err(OnlyByKubelet::Exec));
        let other = || readiness("node", Err(OnlyByKubelet::OtherHost));
        let web = || readiness("main", Ok(tcp(TargetPort::Number(1))));
        let side = || readiness("side", Ok(tcp(TargetPort::Number(2))));
        let script = Some(Unasked::Container("script".into(), OnlyByKubelet::Exec));
        for (probes, asked, unasked) in [
            (vec![web(), side()], vec![Ok(1), Ok(2)], None),
            (vec![web(), exec(), side(), other()], vec![Ok(1), Ok(2)], script.clone()),
            (vec![exec()], vec![], script),
            (vec![], vec![], Some(Unasked::NoReadinessProbe)),
        ] {
            let found = probed(&pod(probes), Asked::LikeReadiness, Held::Port(TargetPort::Number(3)));
            assert_eq!((ports(&found), found.connection), (asked, Some(3)));
            assert_eq!(found.unasked, unasked);
        }
    }

    #[test]
    fn a_connection_is_held_to_the_first_tcp_port_of_the_service_if_the_pod_has_it() {
        let port = |name: &str, protocol: &str, target| ServicePort {
            name: name.into(),
            protocol: protocol.into(),
            app_protocol: None,
            target,
        };
        let service = |ports: Vec<ServicePort>| Service { ports, ..Service::default() };
        let dns = port("dns", "UDP", TargetPort::Number(53));
        let web = port("http", "TCP", TargetPort::Name("web".into()));
        let second = Duration::from_secs(1);
        let rules = ProbeRules { period: second, timeout: second, failure_threshold: 1, success_threshold: 1 };
        let probe = ResolvedProbe { asked: Asked::Nothing, connection: Held::OfService, rules };
        let held = |service: Option<&Service>| {
            let probed = Probed::of(&pod(Vec::new()), &probe, service).unwrap();
            assert!(probed.questions.is_empty(), "a port that the pod lacks says nothing against the leader");
            probed.connection
        };
        assert_eq!(held(Some(&service(vec![dns.clone(), web]))), Some(8080));
        assert_eq!(held(Some(&service(vec![dns]))), None);
        assert_eq!(held(Some(&service(vec![port("http", "TCP", TargetPort::Name("none".into()))]))), None);
        assert_eq!(held(None), None);
    }
}

//! The slice through which a Service reaches the leader: one `EndpointSlice` for each address family, which names the leader alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Node, Pod, TargetPort, Term, Uid, Version, ZONE_LABEL};

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `IPv4`
    V4,
    /// `IPv6`
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: &str) -> Self {
        if address.contains(':') { Self::V6 } else { Self::V4 }
    }

    /// The family's name in the API server.
    pub const fn word(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// An election's use of routing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing<'a> {
    /// The user wants no routing.
    #[default]
    Off,
    /// The Service is not known yet, or can't be used, so the operator writes no address. It takes out an existing one if it must.
    Unusable,
    /// Clients reach the leader through this Service.
    By(&'a Service),
}

/// A Service without a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// The Service's name.
    pub name: String,
    /// The families of the Service's addresses.
    pub families: Vec<Family>,
    /// The Service's ports.
    pub ports: Vec<ServicePort>,
    /// Whether the Service also routes to a leader that is not ready.
    pub publish_not_ready: bool,
    /// R4: the addresses to which the Service routes by slices and Endpoints of others.
    pub others: BTreeSet<String>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// The port's name, empty if it is the only one.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The application protocol.
    pub app_protocol: Option<String>,
    /// The pod's port.
    pub target: TargetPort,
}

/// A slice, as last observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The slice's name.
    pub name: String,
    /// The slice's uid.
    pub uid: Uid,
    /// The version that was observed.
    pub version: Version,
    /// The slice's content.
    pub content: SliceContent,
    /// The name of the election that the slice was written for, if it has no owner any more because the election was deleted with
    /// `--cascade=orphan`.
    pub orphan_of: Option<String>,
}

impl Slice {
    /// R3: whether the slice belongs to an election: the election owns it, or an earlier one of the same name has left it without an owner.
    pub fn is_of(&self, uid: &Uid, name: &str) -> bool {
        self.content.election == *uid || self.orphan_of.as_deref() == Some(name)
    }
}

/// Versions of slices, by their names.
pub(crate) type SliceVersions = BTreeMap<String, (Uid, Version)>;

/// The content of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceContent {
    /// The election that the slice belongs to.
    pub election: Uid,
    /// The Service that the slice is for.
    pub service: String,
    /// The family of the slice's address.
    pub family: Family,
    /// The term that the slice was written in.
    pub term: Term,
    /// The leader, or nothing if no pod is to be reached. Another program wrote any further endpoints.
    pub endpoints: Vec<Endpoint>,
    /// The ports of the leader.
    pub ports: Vec<SlicePort>,
}

/// A pod in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The pod's address.
    pub address: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub uid: Uid,
    /// The pod's node.
    pub node: Option<String>,
    /// The zone of the node.
    pub zone: Option<String>,
    /// Whether the pod takes new connections.
    pub ready: bool,
    /// Whether the pod's probes succeed.
    pub serving: bool,
    /// Whether the pod is being deleted.
    pub terminating: bool,
}

/// A port in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The application protocol.
    pub app_protocol: Option<String>,
    /// The number of the pod's port.
    pub number: u16,
}

impl Service {
    /// The name of the slice for a family. No other program uses it, and each operator uses the same.
    pub fn slice(&self, family: Family) -> String {
        slice_name(&self.name, family)
    }

    /// R4: whether slices of others route to another pod than this content does.
    pub(crate) fn contradicts(&self, content: &SliceContent) -> bool {
        let named = |address: &String| content.endpoints.iter().any(|endpoint| endpoint.address == *address);
        content.shows() && self.others.iter().any(|other| Family::of(other) == content.family && !named(other))
    }
}

/// The name of a Service's slice for a family.
pub fn slice_name(service: &str, family: Family) -> String {
    format!("{service}-lictor-{}", family.word().to_lowercase())
}

impl SliceContent {
    /// The content of a slice that shows no leader.
    pub fn empty(election: &Uid, service: &str, family: Family, term: Term) -> Self {
        Self {
            election: election.clone(),
            service: service.into(),
            family,
            term,
            endpoints: Vec::new(),
            ports: Vec::new(),
        }
    }

    /// The content while this pod leads. It is empty if the pod has no address of this family.
    pub fn of(election: &Uid, service: &Service, family: Family, term: Term, pod: &Pod, node: Option<&Node>) -> Self {
        let empty = Self::empty(election, &service.name, family, term);
        let Some(address) = pod.addresses().find(|address| Family::of(address) == family) else { return empty };
        let serving = pod.ready && !pod.finished;
        let endpoint = Endpoint {
            address: address.to_owned(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            zone: node.and_then(|node| node.labels.get(ZONE_LABEL)).map(str::to_owned),
            ready: service.publish_not_ready || (serving && !pod.deleting),
            serving,
            terminating: pod.deleting,
        };
        // The controller of Kubernetes, too, leaves out a port whose name the pod does not have.
        let ports = service.ports.iter().filter_map(|port| port.of(pod)).collect();
        Self { endpoints: vec![endpoint], ports, ..empty }
    }

    /// Whether the slice names this pod.
    pub(crate) fn names(&self, pod: &Uid) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.uid == *pod)
    }

    /// Whether the slice names any pod.
    pub fn shows(&self) -> bool {
        !self.endpoints.is_empty()
    }
}

impl ServicePort {
    fn of(&self, pod: &Pod) -> Option<SlicePort> {
        let number = pod.port(&self.target, &self.protocol)?;
        let (name, protocol, app_protocol) = (self.name.clone(), self.protocol.clone(), self.app_protocol.clone());
        Some(SlicePort { name, protocol, app_protocol, number })
    }
}

impl fmt::Display for SliceContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.endpoints.as_slice() {
            [] => write!(f, "nobody")?,
            all => {
                for (n, endpoint) in all.iter().enumerate() {
                    write!(f, "{}{}", if n == 0 { "" } else { ", " }, endpoint.uid)?;
                    if !endpoint.ready {
                        f.write_str(" (not ready)")?;
                    }
                }
            }
        }
        write!(f, " in term {}", self.term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NamedPort, Pairs};

    fn service() -> Service {
        let port =
            |name: &str, target| ServicePort { name: name.into(), protocol: "TCP".into(), app_protocol: None, target };
        Service {
            name: "web-leader".into(),
            families: vec![Family::V4, Family::V6],
            ports: vec![port("http", TargetPort::Name("web".into())), port("raw", TargetPort::Number(7000))],
            publish_not_ready: false,
            others: BTreeSet::new(),
        }
    }

    fn pod() -> Pod {
        let named = |protocol: &str, number| NamedPort { name: "web".into(), protocol: protocol.into(), number };
        Pod {
            name: "a".into(),
            uid: Uid("uid-a".into()),
            ip: Some("10.0.0.1".into()),
            other_ip: Some("fd00::1".into()),
            node: Some("n1".into()),
            ready: true,
            ports: vec![named("UDP", 1), named("TCP", 8080)],
            ..Pod::default()
        }
    }

    fn content(pod: &Pod, family: Family) -> SliceContent {
        let labels = Pairs::from([(ZONE_LABEL.to_owned(), "z1".to_owned())]);
        let node = Node { labels, ..Node::default() };
        SliceContent::of(&Uid("e".into()), &service(), family, Term(7), pod, Some(&node))
    }

    #[test]
    fn a_leader_is_shown_with_its_address_of_the_family_its_node_and_its_zone() {
        for (family, address) in [(Family::V4, "10.0.0.1"), (Family::V6, "fd00::1")] {
            let content = content(&pod(), family);
            let [endpoint] = content.endpoints.as_slice() else { panic!("{content:?}") };
            assert_eq!((endpoint.address.as_str(), endpoint.uid.0.as_str()), (address, "uid-a"));
            assert_eq!((endpoint.node.as_deref(), endpoint.zone.as_deref()), (Some("n1"), Some("z1")));
            assert!(endpoint.ready && endpoint.serving && !endpoint.terminating);
            assert_eq!((content.term, content.family, content.shows()), (Term(7), family, true));
        }
        let alone = Pod { other_ip: None, ..pod() };
        let content = content(&alone, Family::V6);
        assert!(!content.shows() && content.ports.is_empty());
    }

    #[test]
    fn named_ports_are_looked_up_by_name_and_protocol() {
        let numbers = |pod: &Pod| {
            let ports = content(pod, Family::V4).ports;
            ports.into_iter().map(|port| (port.name, port.number)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&pod()), [("http".to_owned(), 8080), ("raw".to_owned(), 7000)]);
        assert_eq!(numbers(&Pod { ports: Vec::new(), ..pod() }), [("raw".to_owned(), 7000)]);
    }

    #[test]
    fn a_pod_that_is_not_ready_or_goes_is_shown_as_such() {
        let shown = |pod: Pod, service: &Service| {
            let content = SliceContent::of(&Uid("e".into()), service, Family::V4, Term(1), &pod, None);
            let endpoint = content.endpoints[0].clone();
            (endpoint.ready, endpoint.serving, endpoint.terminating, endpoint.zone)
        };
        assert_eq!(shown(Pod { ready: false, ..pod() }, &service()), (false, false, false, None));
        assert_eq!(shown(Pod { deleting: true, ..pod() }, &service()), (false, true, true, None));
        let publishes = Service { publish_not_ready: true, ..service() };
        assert_eq!(shown(Pod { ready: false, ..pod() }, &publishes), (true, false, false, None));
    }

    #[test]
    fn what_others_route_to_is_compared_in_its_own_family() {
        for (others, contradicted) in [
            (&[][..], [false, false]),
            (&["10.0.0.1", "fd00::1"], [false, false]),
            (&["10.0.0.1", "10.0.0.2"], [true, false]),
            (&["fd00::2"], [false, true]),
        ] {
            let service = Service { others: others.iter().map(|other| (*other).to_owned()).collect(), ..service() };
            let of = [Family::V4, Family::V6].map(|family| service.contradicts(&content(&pod(), family)));
            assert_eq!(of, contradicted, "{others:?}");
            let nobody = SliceContent::empty(&Uid("e".into()), "web-leader", Family::V4, Term(7));
            assert!(!service.contradicts(&nobody));
        }
    }

    #[test]
    fn words() {
        assert_eq!(service().slice(Family::V6), "web-leader-lictor-ipv6");
        assert_eq!(content(&pod(), Family::V4).to_string(), "uid-a in term 7");
        let waits = content(&Pod { ready: false, ..pod() }, Family::V4);
        assert_eq!(waits.to_string(), "uid-a (not ready) in term 7");
        let two = SliceContent { endpoints: vec![waits.endpoints[0].clone(); 2], ..waits };
        assert_eq!(two.to_string(), "uid-a (not ready), uid-a (not ready) in term 7");
        let empty = SliceContent::empty(&Uid("e".into()), "s", Family::V4, Term(2));
        assert_eq!(empty.to_string(), "nobody in term 2");
    }
}

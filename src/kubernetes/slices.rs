//! EndpointSlices, through which Services reach leaders. This is the only place in this program that writes to them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::core::v1::{Endpoints, ObjectReference};
use k8s_openapi::api::discovery::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use lictor_api::{GROUP, LeaderElection};
use lictor_core::{
    ELECTION_ANNOTATION, Endpoint, Failure, Family, Slice, SliceContent, SliceOutcome, SlicePort, TERM_ANNOTATION,
    Term, Uid, WriteSlice,
};
use lictor_kubernetes::{Change, changes, failure, version_of, within};

use super::Namespaces;
use super::workloads::FIELD_MANAGER;

/// The label by which a slice belongs to a Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// The label that names the writer of a slice. All other writers then leave the slice alone.
const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "lictor.dev";
/// The writer of the slices of Services that have a selector.
const SELECTOR_MANAGER: &str = "endpointslice-controller.k8s.io";
/// The label of Endpoints from which Kubernetes makes no slices.
const SKIP_MIRROR_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Labels below these names tell kube-proxy and others what to do with a slice.
const STEERING: [&str; 2] = ["service.kubernetes.io/", "endpointslice.kubernetes.io/"];
/// The annotation that changes with every write, even if nothing else does.
const STAMP_ANNOTATION: &str = "lictor.dev/stamp";

/// Watches the slices that this program writes, each with its namespace.
pub fn watch_slices(client: &Client, namespaces: &Namespaces) -> BoxStream<'static, Change<(String, Slice)>> {
    let own = ListParams::default().labels(&format!("{MANAGER_LABEL}={MANAGER}"));
    let apis = namespaces.apis::<k8s::EndpointSlice>(client);
    let slim = |object: k8s::EndpointSlice| (object.namespace().unwrap_or_default(), read(&object));
    select_all(apis.into_iter().map(|(scope, api)| changes("endpointslices", scope, api, own.clone(), slim))).boxed()
}

/// The slices and Endpoints, besides lictor's slices, by which a Service reaches pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// The slices that lictor did not write.
    pub slices: Vec<String>,
    /// Whether there are Endpoints of the Service's name, from which Kubernetes makes slices.
    pub endpoints: bool,
    /// The addresses that both name, whether or not they are ready.
    pub addresses: BTreeSet<String>,
}

/// The slices of one cluster.
#[derive(Clone)]
pub struct Slices {
    client: Client,
    timeout: Duration,
}

impl Slices {
    /// Creates the client. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Reads one slice from the API server.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn read(&self, namespace: &str, name: &str) -> Result<Option<Slice>, Failure> {
        match within(self.timeout, self.api(namespace).get_opt(name)).await {
            Ok(slice) => Ok(slice.as_ref().map(read)),
            Err(error) => Err(failure("get", "endpointslices", &error)),
        }
    }

    /// Creates, replaces or deletes one slice of the election of this name, if it is still as the request expects it.
    pub async fn write(&self, namespace: &str, election: &str, write: &WriteSlice) -> SliceOutcome {
        let api = self.api(namespace);
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let (verb, written) = match write {
            WriteSlice::Create { name, content } => {
                let object = spell(name, election, content);
                ("create", within(self.timeout, api.create(&parameters, &object)).await.map(Some))
            }
            WriteSlice::Replace { name, uid, version, content, stamp } => {
                let mut object = spell(name, election, content);
                object.metadata.uid = Some(uid.0.clone());
                object.metadata.resource_version = Some(version.to_string());
                let (operator, number) = stamp;
                object.annotations_mut().insert(STAMP_ANNOTATION.into(), format!("{operator}/{}", number.0));
                ("update", within(self.timeout, api.replace(name, &parameters, &object)).await.map(Some))
            }
            WriteSlice::Delete { name, uid, version } => {
                let version = Some(version.to_string());
                let preconditions = Preconditions { uid: Some(uid.0.clone()), resource_version: version };
                let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                let deleted = within(self.timeout, api.delete(name, &parameters)).await;
                if let Some(object) = deleted.as_ref().ok().and_then(|deleted| deleted.as_ref().left())
                    && !object.finalizers().is_empty()
                {
                    // The slice still routes.
                    let (name, why) = (object.name_any(), object.finalizers().join(", "));
                    let why = format!("EndpointSlice {name} was deleted, and its finalizers keep it: take {why} off");
                    return SliceOutcome::Failed(Failure::Refused(why));
                }
                ("delete", deleted.map(|_| None))
            }
        };
        match written {
            Ok(Some(object)) => SliceOutcome::Written(Box::new(read(&object))),
            Ok(None) => SliceOutcome::Gone,
            Err(kube::Error::Api(status)) if status.code == 409 => SliceOutcome::Conflict,
            Err(kube::Error::Api(status)) if status.code == 404 && verb != "create" => SliceOutcome::Gone,
            Err(error) => SliceOutcome::Failed(failure(verb, "endpointslices", &error)),
        }
    }

    /// Looks for other slices and Endpoints by which the Service reaches pods. These are consistent reads, not from a cache of the API
    /// server.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn leftovers(&self, namespace: &str, service: &str) -> Result<Leftovers, Failure> {
        // The Endpoints come first, so that slices that are made from them in between are seen.
        let endpoints = Api::<Endpoints>::namespaced(self.client.clone(), namespace);
        let found = within(self.timeout, endpoints.get_opt(service)).await;
        let found = found.map_err(|error| failure("get", "endpoints", &error))?;
        let is_mirrored =
            |endpoints: &Endpoints| endpoints.labels().get(SKIP_MIRROR_LABEL).is_none_or(|skip| skip != "true");
        let mirrored = found.filter(is_mirrored);
        let selector = foreign_slices(service);
        let listed = within(self.timeout, self.api(namespace).list(&ListParams::default().labels(&selector))).await;
        let listed = listed.map_err(|error| failure("list", "endpointslices", &error))?;
        let subsets = mirrored.iter().flat_map(|endpoints| endpoints.subsets.iter().flatten());
        let mirrors = subsets.flat_map(|subset| subset.addresses.iter().chain(&subset.not_ready_addresses).flatten());
        let named = listed.iter().flat_map(|slice| &slice.endpoints).flat_map(|endpoint| endpoint.addresses.clone());
        Ok(Leftovers {
            slices: listed.iter().map(ResourceExt::name_any).collect(),
            endpoints: mirrored.is_some(),
            addresses: mirrors.map(|address| address.ip.clone()).chain(named).collect(),
        })
    }

    fn api(&self, namespace: &str) -> Api<k8s::EndpointSlice> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// The pods that a slice of a Service names, and the slice's writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedBySlice {
    /// The Service.
    pub service: String,
    /// The writer of the slice.
    pub writer: SliceWriter,
    /// The pods, by name.
    pub pods: BTreeSet<String>,
}

/// The writer of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceWriter {
    /// This program.
    Lictor,
    /// Kubernetes, by the Service's selector.
    Kubernetes,
    /// Kubernetes, by Endpoints, or any other program.
    Others,
}

/// Lists the slices of all Services of a namespace.
///
/// # Errors
/// If there is no answer, or a refusal.
pub async fn list_slices(client: &Client, namespace: &str, timeout: Duration) -> Result<Vec<NamedBySlice>, Failure> {
    let api = Api::<k8s::EndpointSlice>::namespaced(client.clone(), namespace);
    let listed = within(timeout, api.list(&ListParams::default().labels(SERVICE_LABEL))).await;
    let listed = listed.map_err(|error| failure("list", "endpointslices", &error))?;
    let named = |slice: &k8s::EndpointSlice| {
        let pods = slice.endpoints.iter().filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone());
        NamedBySlice {
            service: slice.labels().get(SERVICE_LABEL).cloned().unwrap_or_default(),
            writer: match slice.labels().get(MANAGER_LABEL).map(String::as_str) {
                Some(MANAGER) => SliceWriter::Lictor,
                Some(SELECTOR_MANAGER) => SliceWriter::Kubernetes,
                _ => SliceWriter::Others,
            },
            pods: pods.collect(),
        }
    };
    Ok(listed.iter().map(named).collect())
}

/// Returns the selector of all slices of a Service that this program did not write.
pub fn foreign_slices(service: &str) -> String {
    format!("{SERVICE_LABEL}={service},{MANAGER_LABEL}!={MANAGER}")
}

/// Returns the object for a content.
fn spell(name: &str, election: &str, content: &SliceContent) -> k8s::EndpointSlice {
    let SliceContent { election: uid, service, family, term, .. } = content;
    let (endpoints, ports) = spell_content(content);
    k8s::EndpointSlice {
        metadata: ObjectMeta {
            name: Some(name.into()),
            labels: Some(
                [(SERVICE_LABEL.to_owned(), service.clone()), (MANAGER_LABEL.to_owned(), MANAGER.to_owned())].into(),
            ),
            annotations: Some(
                [(ELECTION_ANNOTATION.to_owned(), election.to_owned()), (TERM_ANNOTATION.to_owned(), term.to_string())]
                    .into(),
            ),
            owner_references: Some(vec![OwnerReference {
                api_version: LeaderElection::api_version(&()).into_owned(),
                kind: LeaderElection::kind(&()).into_owned(),
                name: election.into(),
                uid: uid.0.clone(),
                controller: Some(true),
                block_owner_deletion: Some(false),
            }]),
            ..ObjectMeta::default()
        },
        address_type: family.word().into(),
        endpoints,
        ports: Some(ports),
    }
}

fn spell_content(content: &SliceContent) -> (Vec<k8s::Endpoint>, Vec<k8s::EndpointPort>) {
    let endpoint = |endpoint: &Endpoint| k8s::Endpoint {
        addresses: vec![endpoint.address.clone()],
        conditions: Some(k8s::EndpointConditions {
            ready: Some(endpoint.ready),
            serving: Some(endpoint.serving),
            terminating: Some(endpoint.terminating),
        }),
        node_name: endpoint.node.clone(),
        zone: endpoint.zone.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            name: Some(endpoint.pod.clone()),
            uid: Some(endpoint.uid.0.clone()),
            ..ObjectReference::default()
        }),
        ..k8s::Endpoint::default()
    };
    let port = |port: &SlicePort| k8s::EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        app_protocol: port.app_protocol.clone(),
        port: Some(port.number.into()),
    };
    (content.endpoints.iter().map(endpoint).collect(), content.ports.iter().map(port).collect())
}

/// Returns a slice as the core sees it. A slice that differs from what lictor would write for its content was edited by another program.
/// Its content has no term, so that it equals no wanted content.
fn read(object: &k8s::EndpointSlice) -> Slice {
    let owner = object.owner_references().iter().find(|owner| {
        owner.controller == Some(true)
            && owner.api_version.starts_with(GROUP)
            && owner.kind == LeaderElection::kind(&())
    });
    let annotation = |name: &str| object.annotations().get(name);
    let mut content = SliceContent {
        election: Uid(owner.map(|owner| owner.uid.clone()).unwrap_or_default()),
        service: object.labels().get(SERVICE_LABEL).cloned().unwrap_or_default(),
        family: if object.address_type == Family::V6.word() { Family::V6 } else { Family::V4 },
        term: Term(annotation(TERM_ANNOTATION).and_then(|term| term.parse().ok()).unwrap_or_default()),
        endpoints: object.endpoints.iter().flat_map(read_endpoint).collect(),
        ports: object.ports.iter().flatten().map(read_port).collect(),
    };
    let named = annotation(ELECTION_ANNOTATION) == owner.map(|owner| &owner.name);
    let own = object.labels().get(MANAGER_LABEL).is_some_and(|manager| manager == MANAGER);
    let steered = |name: &String| name != MANAGER_LABEL && STEERING.iter().any(|below| name.starts_with(below));
    let (endpoints, ports) = spell_content(&content);
    let same = object.endpoints.len() == endpoints.len()
        && object.endpoints.iter().zip(&endpoints).all(|(found, spelt)| is_as_spelt(found, spelt))
        && object.ports.iter().flatten().eq(&ports)
        && object.address_type == content.family.word();
    // A user who deletes an election may keep its slices. Then the API server only removes their owner.
    let ownerless = object.owner_references().iter().all(|owner| owner.controller != Some(true));
    let orphan_of = annotation(ELECTION_ANNOTATION).filter(|_| own && ownerless).cloned();
    if !(named || orphan_of.is_some()) || !own || !same || object.labels().keys().any(steered) {
        content.term = Term::default();
    }
    Slice {
        name: object.name_any(),
        uid: Uid(object.uid().unwrap_or_default()),
        version: version_of(object),
        content,
        orphan_of,
    }
}

fn is_as_spelt(found: &k8s::Endpoint, spelt: &k8s::Endpoint) -> bool {
    // The server may name the pod's namespace, which can only be this one.
    let mut found = found.clone();
    if let Some(pod) = &mut found.target_ref {
        pod.namespace = None;
    }
    found == *spelt
}

fn read_endpoint(endpoint: &k8s::Endpoint) -> impl Iterator<Item = Endpoint> {
    let k8s::Endpoint { addresses, conditions, node_name, zone, target_ref, .. } = endpoint;
    let conditions = conditions.clone().unwrap_or_default();
    let pod = target_ref.clone().unwrap_or_default();
    addresses.iter().map(move |address| Endpoint {
        address: address.clone(),
        pod: pod.name.clone().unwrap_or_default(),
        uid: Uid(pod.uid.clone().unwrap_or_default()),
        node: node_name.clone(),
        zone: zone.clone(),
        // A missing condition counts as true, except for the last one.
        ready: conditions.ready.unwrap_or(true),
        serving: conditions.serving.unwrap_or(true),
        terminating: conditions.terminating.unwrap_or(false),
    })
}

fn read_port(port: &k8s::EndpointPort) -> SlicePort {
    SlicePort {
        name: port.name.clone().unwrap_or_default(),
        protocol: port.protocol.clone().unwrap_or_default(),
        app_protocol: port.app_protocol.clone(),
        number: port.port.and_then(|port| port.try_into().ok()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn content() -> SliceContent {
        SliceContent {
            election: Uid("e".into()),
            service: "web-leader".into(),
            family: Family::V4,
            term: Term(7),
            endpoints: vec![Endpoint {
                address: "10.0.0.1".into(),
                pod: "a".into(),
                uid: Uid("uid-a".into()),
                node: Some("n1".into()),
                zone: None,
                ready: false,
                serving: true,
                terminating: true,
            }],
            ports: vec![SlicePort { name: String::new(), protocol: "TCP".into(), app_protocol: None, number: 8080 }],
        }
    }

    fn object(content: &SliceContent) -> Value {
        let mut object = json!(spell("web-leader-lictor-ipv4", "web", content));
        object["metadata"]["uid"] = json!("s");
        object["metadata"]["resourceVersion"] = json!("12");
        object
    }

    fn read_back(object: Value) -> Slice {
        read(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn what_is_written_is_read_back() {
        let empty =
            SliceContent { family: Family::V6, ..SliceContent::empty(&Uid("e".into()), "s", Family::V6, Term(2)) };
        for content in [content(), empty] {
            let slice = read_back(object(&content));
            assert_eq!(
                (slice.name.as_str(), slice.uid.0.as_str(), slice.version.0),
                ("web-leader-lictor-ipv4", "s", 12)
            );
            assert_eq!(slice.content, content);
        }
        // The API server tells empty lists as null.
        let mut nothing = object(&SliceContent { endpoints: Vec::new(), ports: Vec::new(), ..content() });
        (nothing["endpoints"], nothing["ports"]) = (Value::Null, Value::Null);
        assert_eq!(read_back(nothing).content.term, Term(7));
    }

    #[test]
    fn what_somebody_edited_differs() {
        let edits: [(&str, Value); 14] = [
            ("/endpoints/0/hints", json!({"forZones": [{"name": "z"}]})),
            ("/endpoints/0/hostname", json!("x")),
            ("/endpoints/0/addresses", json!(["10.0.0.1", "10.0.0.2"])),
            ("/endpoints/0/addresses", json!(["10.0.0.9"])),
            ("/endpoints/0/nodeName", json!("n2")),
            ("/endpoints/0/targetRef/kind", json!("Node")),
            ("/endpoints/0/targetRef/uid", json!("other")),
            ("/endpoints/0/conditions", json!({})),
            ("/ports", json!([])),
            ("/ports/0/port", json!(9090)),
            ("/addressType", json!("FQDN")),
            ("/metadata/labels/kubernetes.io~1service-name", json!("other")),
            ("/metadata/labels/endpointslice.kubernetes.io~1managed-by", json!("me")),
            ("/metadata/labels/service.kubernetes.io~1headless", json!("")),
        ];
        for (pointer, value) in edits {
            let mut edited = object(&content());
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let field = field.replace("~1", "/");
            edited.pointer_mut(parent).unwrap()[field.as_str()] = value;
            assert_ne!(read_back(edited).content, content(), "{pointer}");
        }
        let mut two = object(&content());
        let one = two["endpoints"][0].clone();
        two["endpoints"].as_array_mut().unwrap().push(one);
        let two = read_back(two).content;
        assert_eq!((two.endpoints.len(), two == content()), (2, false));
        for (owner, election) in [
            (json!([]), ""),
            (json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "e", "controller": true}]), ""),
        ] {
            let mut other = object(&content());
            other["metadata"]["ownerReferences"] = owner;
            assert_eq!(read_back(other).content.election.0, election);
        }
    }

    #[test]
    fn a_slice_whose_owner_was_taken_out_is_known_by_its_marks() {
        assert_eq!(read_back(object(&content())).orphan_of, None);
        let mut orphan = object(&content());
        orphan["metadata"]["ownerReferences"] = json!([]);
        let read = read_back(orphan.clone());
        assert_eq!((read.orphan_of.as_deref(), &read.content.election.0), (Some("web"), &String::new()));
        assert_eq!((read.content.term, read.content.endpoints.len()), (Term(7), 1));
        assert!(read.is_of(&Uid("new".into()), "web") && !read.is_of(&Uid("new".into()), "other"));
        for (pointer, value) in [
            ("/metadata/labels/endpointslice.kubernetes.io~1managed-by", json!("me")),
            (
                "/metadata/ownerReferences",
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "e", "controller": true}]),
            ),
            ("/metadata/annotations", json!({})),
        ] {
            let mut other = orphan.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert_eq!(read_back(other).orphan_of, None, "{pointer}");
        }
    }

    #[test]
    fn what_others_add_beside_it_does_not_matter() {
        let mut labelled = object(&content());
        labelled["metadata"]["labels"]["team"] = json!("shop");
        labelled["metadata"]["annotations"]["lictor.dev/stamp"] = json!("x");
        labelled["endpoints"][0]["targetRef"]["namespace"] = json!("shop");
        assert_eq!(read_back(labelled).content, content());
    }
}

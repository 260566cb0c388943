//! Lists of pods, as protobuf. After a restart, the operator decides nothing before it has read all pods: 30,000 pods are 113 MB of JSON,
//! or 70 MB of protobuf, which the API server makes in two thirds of the time.
//!
//! The messages are those of `generated.proto` in k8s.io/api/core/v1 and k8s.io/apimachinery, with the fields that matter here.

use std::collections::BTreeMap;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListMeta, ListParams, ObjectList, PartialObjectMeta, TypeMeta};
use kube::client::Body;
use prost::Message;

use super::slim::{
    Empty, SlimContainer, SlimContainerStatus, SlimIp, SlimPod, SlimPort, SlimSpec, SlimState, SlimStatus,
};
use crate::kubernetes::nodes::SlimCondition;

/// An API server, or a proxy before it, that has no protobuf answers with JSON.
const EITHER: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf, application/json");
/// The same for the metadata alone. They are a list of the same shape, whose items have nothing else.
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, \
     application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
);
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The beginning of each answer; an envelope follows.
const MAGIC: &[u8] = b"k8s\0";

/// Lists pods like [`Api::list`].
///
/// # Errors
/// Like [`Api::list`].
pub async fn list(api: &Api<SlimPod>, parameters: &ListParams) -> kube::Result<ObjectList<SlimPod>> {
    match ask(api, parameters, EITHER).await? {
        Some(listed) => Ok(listed),
        None => api.list(parameters).await,
    }
}

/// Lists the metadata of pods like [`Api::list_metadata`].
///
/// # Errors
/// Like [`Api::list_metadata`].
pub async fn list_metadata(api: &Api<SlimPod>, parameters: &ListParams) -> kube::Result<ObjectList<SlimPod>> {
    if let Some(listed) = ask(api, parameters, METADATA).await? {
        return Ok(listed);
    }
    let ObjectList { types, metadata, items } = api.list_metadata(parameters).await?;
    let slim = |PartialObjectMeta { metadata, .. }| SlimPod { metadata, ..SlimPod::default() };
    Ok(ObjectList { types, metadata, items: items.into_iter().map(slim).collect() })
}

/// Returns the list, or `None` if it has to be asked for as JSON, to learn why it is refused, or because it can't be read.
async fn ask(
    api: &Api<SlimPod>,
    parameters: &ListParams,
    accept: HeaderValue,
) -> kube::Result<Option<ObjectList<SlimPod>>> {
    let request = kube::core::Request::new(api.resource_url()).list(parameters).map_err(kube::Error::BuildRequest)?;
    let mut request: Request<Vec<u8>> = request;
    request.headers_mut().insert(ACCEPT, accept);
    let answer = api.clone().into_client().send(request.map(Body::from)).await?;
    let is_protobuf =
        answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()));
    if !answer.status().is_success() {
        return Ok(None);
    }
    let body = answer.into_body().collect().await?.to_bytes();
    if !is_protobuf {
        return serde_json::from_slice(&body).map(Some).map_err(kube::Error::SerdeError);
    }
    // A text in the answer may not be UTF-8, where JSON has another character in its place.
    let unreadable = |error: &_| tracing::debug!(%error, "a list of pods can't be read as protobuf");
    Ok(read(&body).inspect_err(unreadable).ok())
}

/// Returns the list, or why there is none. An answer that is not a whole list of one version counts as none, because an empty list would
/// say that there are no pods.
fn read(answer: &[u8]) -> Result<ObjectList<SlimPod>, String> {
    let envelope = answer.strip_prefix(MAGIC).ok_or("it does not begin like an answer")?;
    let envelope = Envelope::decode(envelope).map_err(|error| error.to_string())?;
    let PodList { metadata, items } = PodList::decode(envelope.raw.as_slice()).map_err(|error| error.to_string())?;
    let metadata = metadata.filter(|metadata| !metadata.resource_version.is_empty()).ok_or("it has no version")?;
    let metadata = ListMeta {
        resource_version: some(metadata.resource_version),
        continue_: some(metadata.continue_),
        ..ListMeta::default()
    };
    let types = TypeMeta { api_version: "v1".into(), kind: "PodList".into() };
    Ok(ObjectList { types, metadata, items: items.into_iter().map(SlimPod::from).collect() })
}

/// A message has an empty text for a missing one.
fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct PodList {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetaOfList>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<Pod>,
}

#[derive(Clone, PartialEq, Message)]
struct MetaOfList {
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    continue_: String,
}

#[derive(Clone, PartialEq, Message)]
struct Pod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Meta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Meta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "8")]
    creation: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deletion: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owners: Vec<Owner>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Owner {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct Spec {
    #[prost(message, repeated, tag = "2")]
    containers: Vec<Container>,
    #[prost(string, tag = "10")]
    node_name: String,
    #[prost(message, repeated, tag = "20")]
    init_containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "6")]
    ports: Vec<Port>,
    #[prost(message, optional, tag = "11")]
    readiness_probe: Option<Probe>,
    #[prost(string, tag = "24")]
    restart_policy: String,
}

#[derive(Clone, PartialEq, Message)]
struct Port {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    number: i32,
    #[prost(string, tag = "4")]
    protocol: String,
}

#[derive(Clone, PartialEq, Message)]
struct Probe {
    #[prost(message, optional, tag = "1")]
    handler: Option<Handler>,
}

/// A command has no fields that matter.
#[derive(Clone, PartialEq, Message)]
struct Handler {
    #[prost(message, optional, tag = "2")]
    http: Option<Http>,
    #[prost(message, optional, tag = "3")]
    tcp: Option<Tcp>,
    #[prost(message, optional, tag = "4")]
    grpc: Option<Grpc>,
}

#[derive(Clone, PartialEq, Message)]
struct Http {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(message, optional, tag = "2")]
    port: Option<NumberOrName>,
    #[prost(string, tag = "3")]
    host: String,
    #[prost(string, tag = "4")]
    scheme: String,
    #[prost(message, repeated, tag = "5")]
    headers: Vec<Header>,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Tcp {
    #[prost(message, optional, tag = "1")]
    port: Option<NumberOrName>,
    #[prost(string, tag = "2")]
    host: String,
}

#[derive(Clone, PartialEq, Message)]
struct Grpc {
    #[prost(int32, tag = "1")]
    port: i32,
    #[prost(string, tag = "2")]
    service: String,
}

/// `IntOrString`: a name if the kind is 1.
#[derive(Clone, PartialEq, Message)]
struct NumberOrName {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int32, tag = "2")]
    number: i32,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "1")]
    phase: String,
    #[prost(message, repeated, tag = "2")]
    conditions: Vec<Condition>,
    #[prost(string, tag = "6")]
    pod_ip: String,
    #[prost(message, repeated, tag = "8")]
    containers: Vec<ContainerStatus>,
    #[prost(message, repeated, tag = "10")]
    init_containers: Vec<ContainerStatus>,
    #[prost(message, repeated, tag = "12")]
    pod_ips: Vec<Ip>,
    #[prost(message, repeated, tag = "13")]
    ephemeral_containers: Vec<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerStatus {
    #[prost(message, optional, tag = "2")]
    state: Option<State>,
}

#[derive(Clone, PartialEq, Message)]
struct State {
    #[prost(message, optional, tag = "2")]
    running: Option<Nothing>,
    #[prost(message, optional, tag = "3")]
    terminated: Option<Nothing>,
}

/// A message whose fields do not matter here.
#[derive(Clone, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct Condition {
    #[prost(string, tag = "1")]
    type_: String,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(message, optional, tag = "4")]
    last_transition: Option<Time>,
    #[prost(string, tag = "5")]
    reason: String,
}

#[derive(Clone, PartialEq, Message)]
struct Ip {
    #[prost(string, tag = "1")]
    ip: String,
}

impl Time {
    /// Zero means no time, as in the API server.
    fn moment(&self) -> Option<meta::Time> {
        Timestamp::from_second(self.seconds).ok().filter(|_| self.seconds != 0).map(meta::Time)
    }
}

impl From<Pod> for SlimPod {
    fn from(Pod { metadata, spec, status }: Pod) -> Self {
        let (metadata, spec, status) =
            (metadata.unwrap_or_default(), spec.unwrap_or_default(), status.unwrap_or_default());
        Self { metadata: metadata.into(), spec: spec.into(), status: status.into() }
    }
}

impl From<Meta> for meta::ObjectMeta {
    fn from(of: Meta) -> Self {
        let owner = |Owner { kind, name, uid, api_version, controller }| meta::OwnerReference {
            kind,
            name,
            uid,
            api_version,
            controller,
            ..Default::default()
        };
        Self {
            name: some(of.name),
            generate_name: some(of.generate_name),
            namespace: some(of.namespace),
            uid: some(of.uid),
            resource_version: some(of.resource_version),
            creation_timestamp: of.creation.as_ref().and_then(Time::moment),
            deletion_timestamp: of.deletion.as_ref().and_then(Time::moment),
            labels: Some(of.labels).filter(|labels| !labels.is_empty()),
            annotations: Some(of.annotations).filter(|annotations| !annotations.is_empty()),
            owner_references: Some(of.owners.into_iter().map(owner).collect::<Vec<_>>()).filter(|all| !all.is_empty()),
            finalizers: Some(of.finalizers).filter(|finalizers| !finalizers.is_empty()),
            ..Self::default()
        }
    }
}

impl From<Spec> for SlimSpec {
    fn from(of: Spec) -> Self {
        let slim = |containers: Vec<Container>| containers.into_iter().map(SlimContainer::from).collect();
        Self {
            node_name: some(of.node_name),
            containers: slim(of.containers),
            init_containers: slim(of.init_containers),
        }
    }
}

impl From<Container> for SlimContainer {
    fn from(of: Container) -> Self {
        let port = |of: Port| SlimPort { name: some(of.name), protocol: some(of.protocol), container_port: of.number };
        Self {
            name: of.name,
            restart_policy: some(of.restart_policy),
            ports: of.ports.into_iter().map(port).collect(),
            readiness_probe: of.readiness_probe.map(|probe| probe.handler.unwrap_or_default().into()),
        }
    }
}

impl From<Handler> for k8s::Probe {
    fn from(Handler { http, tcp, grpc }: Handler) -> Self {
        let port = |of: Option<NumberOrName>| match of.unwrap_or_default() {
            NumberOrName { kind: 1, name, .. } => IntOrString::String(name),
            NumberOrName { number, .. } => IntOrString::Int(number),
        };
        let header = |Header { name, value }| k8s::HTTPHeader { name, value };
        Self {
            http_get: http.map(|of| k8s::HTTPGetAction {
                path: some(of.path),
                port: port(of.port),
                host: some(of.host),
                scheme: some(of.scheme),
                http_headers: Some(of.headers.into_iter().map(header).collect()),
            }),
            tcp_socket: tcp.map(|of| k8s::TCPSocketAction { port: port(of.port), host: some(of.host) }),
            grpc: grpc.map(|of| k8s::GRPCAction { port: of.port, service: some(of.service) }),
            ..Self::default()
        }
    }
}

impl From<Status> for SlimStatus {
    fn from(of: Status) -> Self {
        let condition = |of: Condition| SlimCondition {
            type_: of.type_,
            status: of.status,
            last_transition_time: of.last_transition.as_ref().and_then(Time::moment),
            reason: some(of.reason),
        };
        let statuses = |all: Vec<ContainerStatus>| all.into_iter().map(SlimContainerStatus::from).collect();
        Self {
            phase: some(of.phase),
            pod_ip: some(of.pod_ip),
            pod_ips: of.pod_ips.into_iter().map(|Ip { ip }| SlimIp { ip }).collect(),
            conditions: of.conditions.into_iter().map(condition).collect(),
            container_statuses: statuses(of.containers),
            init_container_statuses: statuses(of.init_containers),
            ephemeral_container_statuses: statuses(of.ephemeral_containers),
        }
    }
}

impl From<ContainerStatus> for SlimContainerStatus {
    fn from(of: ContainerStatus) -> Self {
        let State { running, terminated } = of.state.unwrap_or_default();
        let state = SlimState { running: running.map(|_| Empty {}), terminated: terminated.map(|_| Empty {}) };
        Self { state }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Response, StatusCode};
    use kube::Client;
    use serde_json::json;

    use super::*;

    type Given = (StatusCode, &'static str, Vec<u8>);

    /// Lists from an API server that gives these answers, one after the other. Returns the names and what is left.
    async fn listed(answers: Vec<Given>) -> (kube::Result<Vec<String>>, usize) {
        let answers = Arc::new(Mutex::new(answers));
        let left = answers.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            let (status, kind, body) = answers.lock().unwrap().remove(0);
            let answer = Response::builder().status(status).header(CONTENT_TYPE, kind).body(Body::from(body)).unwrap();
            async { Ok::<_, Infallible>(answer) }
        });
        let api = Api::namespaced(Client::new(service, "shop"), "shop");
        let listed = list(&api, &ListParams::default()).await;
        let names = |all: ObjectList<SlimPod>| all.items.into_iter().filter_map(|pod| pod.metadata.name).collect();
        (listed.map(names), left.lock().unwrap().len())
    }

    fn protobuf() -> Vec<u8> {
        let pod = |name: &str| Pod { metadata: Some(Meta { name: name.into(), ..Meta::default() }), ..Pod::default() };
        let metadata = MetaOfList { resource_version: "7".into(), ..MetaOfList::default() };
        let list = PodList { metadata: Some(metadata), items: vec![pod("a"), pod("b")] };
        [MAGIC, &Envelope { raw: list.encode_to_vec() }.encode_to_vec()].concat()
    }

    fn json() -> Vec<u8> {
        json!({"metadata": {}, "items": [{"metadata": {"name": "a"}}]}).to_string().into_bytes()
    }

    #[tokio::test]
    async fn a_list_is_read_as_what_it_is() {
        let (names, left) = listed(vec![(StatusCode::OK, PROTOBUF, protobuf())]).await;
        assert_eq!((names.unwrap(), left), (vec!["a".to_owned(), "b".into()], 0));
        let (names, left) = listed(vec![(StatusCode::OK, "application/json", json())]).await;
        assert_eq!((names.unwrap(), left), (vec!["a".to_owned()], 0));
    }

    #[tokio::test]
    async fn what_is_refused_is_asked_for_as_json_which_says_why() {
        let status =
            json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
        let refused = (StatusCode::GONE, PROTOBUF, b"k8s\0".to_vec());
        let why = (StatusCode::GONE, "application/json", status.to_string().into_bytes());
        let (names, left) = listed(vec![refused.clone(), why]).await;
        assert!(matches!(names, Err(kube::Error::Api(status)) if status.code == 410) && left == 0);
        let (names, left) = listed(vec![refused, (StatusCode::OK, "application/json", json())]).await;
        assert_eq!((names.unwrap().len(), left), (1, 0));
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_asked_for_as_json() {
        let whole = protobuf();
        for length in 0..whole.len() {
            let cut = (StatusCode::OK, PROTOBUF, whole[..length].to_vec());
            let (names, left) = listed(vec![cut, (StatusCode::OK, "application/json", json())]).await;
            assert_eq!((names.unwrap().len(), left), (1, 0), "{length} of {}", whole.len());
        }
        // An envelope around nothing.
        let hollow = [MAGIC, &Envelope::default().encode_to_vec()].concat();
        let (names, left) =
            listed(vec![(StatusCode::OK, PROTOBUF, hollow), (StatusCode::OK, "application/json", json())]).await;
        assert_eq!((names.unwrap().len(), left), (1, 0));
        // Not UTF-8: the name of the second pod.
        let mut spoilt = whole;
        *spoilt.last_mut().unwrap() = 0xff;
        let (names, left) =
            listed(vec![(StatusCode::OK, PROTOBUF, spoilt), (StatusCode::OK, "application/json", json())]).await;
        assert_eq!((names.unwrap().len(), left), (1, 0));
    }
}

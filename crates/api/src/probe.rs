//! `LeaderElection.spec.probe`: how lictor checks the leader.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rule for a port's number or name. A name is one of Kubernetes' port names, which have a letter.
const PORT: &str =
    "type(self) == int ? self >= 1 && self <= 65535 : self.matches('^[a-z0-9-]*[a-z][a-z0-9-]*$') && self.size() <= 15";
const WHICH_PORT: &str =
    "a port is a number from 1 to 65535, or the name of a container's port: write for example 8080 or http";

/// How lictor checks that the leader works. The operator must be able to reach the pods' addresses.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.httpGet) || has(self.tcpSocket) || has(self.grpc) || has(self.likeReadiness) || has(self.connection)")
        .message("a probe needs httpGet, tcpSocket, grpc, likeReadiness or connection: write for example httpGet: {path: /leader, port: 8080}"),
    validation = Rule::new("[has(self.httpGet), has(self.tcpSocket), has(self.grpc), has(self.likeReadiness)].filter(x, x).size() <= 1")
        .message("a probe has only one of httpGet, tcpSocket, grpc and likeReadiness: leave the others out. Only connection can be combined with one of them"),
    validation = Rule::new("self.timeoutSeconds <= self.periodSeconds")
        .message("probe.timeoutSeconds is longer than probe.periodSeconds: shorten the timeout or lengthen the period")
)]
pub struct Probe {
    /// Sends an HTTP GET request. A response with a status from 200 to 399 is a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,

    /// Opens a TCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,

    /// Calls the standard health service of gRPC, without TLS. The answer SERVING is a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<Grpc>,

    /// Asks the leader what the readinessProbe of each of its containers asks, at the times in likeReadiness instead of
    /// those in probe. All of them must succeed. lictor can't run the command of exec: the condition Elected then says
    /// NotProbed, and the leader stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like_readiness: Option<LikeReadiness>,

    /// Holds a TCP connection to the leader. lictor sees within milliseconds that the leader's process has ended,
    /// because the connection is closed and new ones are refused. Use it alone, or together with one of the others,
    /// which also detect a leader that hangs. Default: lictor holds it if there is a spec.service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<HeldConnection>,

    /// The time between two probes, in seconds, 1 to 300. Does not apply to connection. Default: 2.
    #[serde(default = "seconds::<2>")]
    #[schemars(range(min = 1, max = 300))]
    pub period_seconds: u32,

    /// How long lictor waits for a response or a connection, in seconds, 1 to 300. Can't be longer than periodSeconds.
    /// Default: 1.
    #[serde(default = "seconds::<1>")]
    #[schemars(range(min = 1, max = 300))]
    pub timeout_seconds: u32,

    /// How many probes in a row must fail before the leader counts as failed, 1 to 100. Does not apply to connection.
    /// Default: 3.
    #[serde(default = "seconds::<3>")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: u32,

    /// How many probes in a row must succeed before a failed leader counts as healthy again, 1 to 100. Does not apply
    /// to connection. Default: 1.
    #[serde(default = "seconds::<1>")]
    #[schemars(range(min = 1, max = 100))]
    pub success_threshold: u32,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            http_get: None,
            tcp_socket: None,
            grpc: None,
            like_readiness: None,
            connection: None,
            period_seconds: seconds::<2>(),
            timeout_seconds: seconds::<1>(),
            failure_threshold: seconds::<3>(),
            success_threshold: seconds::<1>(),
        }
    }
}

/// An HTTP GET request to the leader's pod.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// The path, which begins with a slash. Default: /.
    #[serde(default = "root_path")]
    #[schemars(length(max = 1024), regex(pattern = "^/"))]
    pub path: String,

    /// The port: a number from 1 to 65535, or the name that a container of the pod gives to one of its TCP ports.
    #[x_kube(validation = Rule::new(PORT).message(WHICH_PORT))]
    pub port: IntOrString,

    /// HTTP (default) or HTTPS. lictor does not verify the pod's certificate.
    #[serde(default)]
    pub scheme: HttpScheme,

    /// The host name in the URL. The header Host and, with HTTPS, SNI name it. lictor sends the request to the pod's
    /// address in any case. Default: the pod's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^([A-Za-z0-9-]+[.])*[A-Za-z][A-Za-z0-9-]*$')").message("httpGet.host is a host name, for example web.example: leave it out to ask the pod by its address"))]
    pub host: Option<String>,

    /// Further headers of the request, at most 16. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub http_headers: Vec<HttpHeader>,
}

/// The scheme of an HTTP request.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpScheme {
    /// Plain HTTP.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
}

/// A header of an HTTP request.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HttpHeader {
    /// The name: letters, digits and '-'.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9-]+$')").message("a header's name has letters, digits and '-', for example X-Role"))]
    pub name: String,

    /// The value, of at most 1024 printable characters of ASCII.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^[ -~]*$')").message("a header's value has printable characters of ASCII only"))]
    pub value: String,
}

/// A call of grpc.health.v1.Health/Check, the standard health service of gRPC, in the leader's pod.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Grpc {
    /// The port: a number from 1 to 65535, or the name that a container of the pod gives to one of its TCP ports.
    #[x_kube(validation = Rule::new(PORT).message(WHICH_PORT))]
    pub port: IntOrString,

    /// The service whose health is asked for. Default: empty, which stands for the whole server.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub service: String,
}

/// The times with which lictor asks the leader what its readinessProbe asks.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.timeoutSeconds <= self.periodSeconds")
        .message("probe.likeReadiness.timeoutSeconds is longer than periodSeconds: shorten the timeout or lengthen the period")
)]
pub struct LikeReadiness {
    /// The time between two probes, in seconds, 1 to 300. Default: 1.
    #[serde(default = "seconds::<1>")]
    #[schemars(range(min = 1, max = 300))]
    pub period_seconds: u32,

    /// How many probes in a row must fail before the leader counts as failed, 1 to 100. Default: 3.
    #[serde(default = "seconds::<3>")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: u32,

    /// How long lictor waits for a response or a connection, in seconds, 1 to 300. Can't be longer than periodSeconds.
    /// Default: 1.
    #[serde(default = "seconds::<1>")]
    #[schemars(range(min = 1, max = 300))]
    pub timeout_seconds: u32,
}

/// A TCP connection that lictor holds open to the leader's pod, and over which it sends nothing.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HeldConnection {
    /// The port: a number from 1 to 65535, or the name that a container of the pod gives to one of its TCP ports. A
    /// server must listen there as long as the pod can lead, and must accept a connection over which nothing is sent.
    /// The server may close the connection.
    /// Default: the first TCP port to which spec.service leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new(PORT).message(WHICH_PORT))]
    pub port: Option<IntOrString>,

    /// Whether lictor holds the connection. Default: true. Without spec.probe.connection: true if there is a
    /// spec.service.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// A TCP connection to the leader's pod.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TcpSocket {
    /// The port: a number from 1 to 65535, or the name that a container of the pod gives to one of its TCP ports.
    #[x_kube(validation = Rule::new(PORT).message(WHICH_PORT))]
    pub port: IntOrString,
}

fn seconds<const N: u32>() -> u32 {
    N
}

fn yes() -> bool {
    true
}

fn root_path() -> String {
    "/".into()
}

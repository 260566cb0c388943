//! `ElectionClass.spec.consul`: which Consul keeps the locks, and how lictor reaches and uses it.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shared::{LockPolicy, LostCluster, SecretKeyRef, SecretRef, number};

/// A CEL expression: an optional field did not change.
macro_rules! same {
    ($field:literal) => {
        concat!(
            "has(self.",
            $field,
            ") == has(oldSelf.",
            $field,
            ") && (!has(self.",
            $field,
            ") || self.",
            $field,
            " == oldSelf.",
            $field,
            ")"
        )
    };
}

// `namespace` is a reserved word in CEL. The API server accepts it unescaped, but then overestimates its cost.

/// Keeps the locks in keys in Consul. All clusters whose classes name the same Consul and the same keys elect one
/// leader together.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.tls) || self.address.startsWith('https://')")
        .message("consul.tls is given, but consul.address does not begin with https://: write https:// there, or leave tls out"),
    validation = Rule::new("!(has(self.tokenSecretRef) && has(self.login))")
        .message("lictor gets its token either from a Secret or by a login: leave out consul.tokenSecretRef or consul.login"),
    validation = Rule::new("!has(self.login) || self.address.matches('^(https://.*|http://(localhost|127[.][0-9.]+|[[]::1[]])(:[0-9]+)?/?)$')")
        .message("consul.login sends the token of lictor's account, so the connection must be encrypted: write https:// into consul.address"),
    validation = Rule::new(concat!(same!("datacenter"), " && ", same!("__namespace__"), " && ", same!("partition"), " && self.record == oldSelf.record"))
        .message("datacenter, namespace, partition and record of consul can't be changed, because running elections have their locks there: make another class")
)]
pub struct ConsulStore {
    /// The address of a Consul agent, or of a load balancer in front of several. It begins with http:// or https:// and
    /// has the port, for example http://consul.example:8500.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://([a-zA-Z0-9_.-]+|[[][0-9a-fA-F:.]+[]])(:[0-9]{1,5})?/?$')").message("consul.address must be http:// or https://, a host and a port, and nothing after it, for example http://consul.example:8500"))]
    #[x_kube(validation = Rule::new("!isURL(self) || url(self).getPort() == '' || (int(url(self).getPort()) >= 1 && int(url(self).getPort()) <= 65535)").message("the port in consul.address must be from 1 to 65535, for example http://consul.example:8500"))]
    pub address: String,

    /// This cluster's name in the records of locks and in status.leader.clusterName. Each cluster that uses the same
    /// Consul needs its own name. At most 63 lower-case letters, digits and '-', with a letter or digit at both ends.
    /// This field can't be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("consul.clusterName may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example west"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("consul.clusterName can't be changed, because the locks of running elections name it: make another class"))]
    pub cluster_name: String,

    /// The Consul datacenter that keeps the locks. This field can't be changed. Default: the datacenter of the agent
    /// that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message("consul.datacenter may have letters, digits, '-' and '_', for example dc1"))]
    pub datacenter: Option<String>,

    /// The Consul namespace of sessions and keys, in Consul Enterprise. This field can't be changed. Default: the
    /// namespace of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message("consul.namespace may have letters, digits, '-' and '_', for example team-a"))]
    pub namespace: Option<String>,

    /// The Consul admin partition of sessions and keys, in Consul Enterprise. This field can't be changed. Default: the
    /// partition of the agent that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message("consul.partition may have letters, digits, '-' and '_', for example default"))]
    pub partition: Option<String>,

    /// The certificates for an https:// address. Default: lictor trusts the certificate authorities in its image, and
    /// presents no client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ConsulTls>,

    /// The Secret with the ACL token, by default in its key "token". lictor reads the Secret again when it changes.
    /// Can't be combined with login. Default: none. lictor then has the rights of Consul's anonymous token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKeyRef>,

    /// Gets an ACL token by logging in to Consul with the service account of lictor's pod. Can't be combined with
    /// tokenSecretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<ConsulLogin>,

    /// The Consul node that lictor's sessions belong to. This field can't be changed.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("consul.node can't be changed, because the sessions that hold the locks belong to it: make another class"))]
    pub node: ConsulNode,

    /// The Consul sessions that hold the locks. All elections of the class share them.
    #[serde(default)]
    pub sessions: ConsulSessions,

    /// The content of a lock's key. Record (default): the whole record as JSON. LeaderName: only the name
    /// of the leader's pod, for programs that can read nothing else. lictor then keeps the record in a second key, with
    /// /record appended to the name of the first. This field must be the same in all clusters that share the locks, and
    /// can't be changed.
    #[serde(default)]
    pub record: ConsulRecord,

    /// The services in Consul that elections may register with spec.sharedStore.consulService. {name} and {namespace} stand for the
    /// election's name and namespace, * stands for any characters. Elections that register the same name share its
    /// callers. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9*-]|[{]name[}]|[{]namespace[}])+$')").message("consul.servicePattern may have lower-case letters, digits, '-', '*', {name} and {namespace}, for example {namespace}-{name}"))]
    pub service_pattern: Option<String>,

    /// Controls what lictor does with its locks while it can reach Consul but not this cluster's API server.
    #[serde(default)]
    pub when_cluster_is_lost: LostCluster,

    /// Controls what the acting operator does with its locks when SIGTERM stops it. Hold (default): it keeps them for
    /// the replica that acts next, until the sessions expire. Release: it demotes its leaders and releases the locks at
    /// once so that other clusters can acquire them, even if another replica of this cluster stands by.
    #[serde(default)]
    pub when_operator_stops: LockPolicy,
}

/// TLS for an https:// address: which certificates lictor trusts, and which one it presents.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulTls {
    /// The Secret with the certificates of the authorities that lictor trusts, in PEM format, by default in its key
    /// "ca.crt". lictor then trusts no others. Default: lictor trusts the authorities in its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,

    /// The Secret of type kubernetes.io/tls with lictor's client certificate (tls.crt) and its private key (tls.key).
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<SecretRef>,

    /// The host name in Consul's certificate, for example server.dc1.consul. Default: the host in the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$')").message("consul.tls.serverName must be the name of a host, for example server.dc1.consul"))]
    pub server_name: Option<String>,
}

/// Logs in to Consul by an auth method of type jwt, with a token that is valid for Consul only. lictor logs out when it
/// stops.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulLogin {
    /// The name of the auth method in Consul.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message("consul.login.authMethodName may have letters, digits, '-' and '_', for example kubernetes"))]
    pub auth_method_name: String,

    /// The file in lictor's container that holds a projected token of its service account, with an audience of its own.
    /// lictor refuses a token that the API server accepts, because Consul could use it to act as lictor. The chart
    /// mounts the token with consulLogin.audience. Default: /var/run/secrets/lictor.dev/consul/token.
    #[serde(default = "service_account_token")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.startsWith('/')").message("consul.login.tokenPath must be an absolute path, for example /var/run/secrets/lictor.dev/consul/token"))]
    pub token_path: String,
}

/// The Consul node that the sessions belong to. Consul ends a session when its node goes away.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.name) || !self.useAgent")
        .message("consul.node.name names a node that lictor registers, and useAgent: true uses the agent's node: leave one of the two out")
)]
pub struct ConsulNode {
    /// The name of a Consul node that lictor registers for its sessions. This node has no health checks. Each cluster
    /// that uses the same Consul needs its own name. Default: lictor- and the cluster's name, for example lictor-west.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$')").message("consul.node.name may have letters, digits, '-', '_' and '.', and must begin and end with a letter or digit, for example lictor-west"))]
    pub name: Option<String>,

    /// Whether the sessions belong to the node of the agent that answers, and end when the health checks of that node
    /// fail. Use this with a Consul agent on lictor's own node. If several servers share the address, the sessions end
    /// whenever one of these servers restarts. Default: false.
    #[serde(default)]
    pub use_agent: bool,
}

/// The Consul sessions that hold the locks.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulSessions {
    /// The number of sessions among which the elections are divided, 1 to 16. It can be raised but not lowered.
    /// Default: 1.
    #[serde(default = "number::<1>")]
    #[x_kube(validation = Rule::new("self >= oldSelf").message("consul.sessions.count can't be lowered, because each session holds locks: make another class"))]
    #[schemars(range(min = 1, max = 16))]
    pub count: u32,

    /// How long lictor may act after its last renewal of a session, in seconds, 10 to 86400. If lictor stops renewing,
    /// Consul itself ends the session after up to twice this time. A change applies to sessions that lictor creates
    /// later. Default: 15.
    #[serde(default = "number::<15>")]
    #[schemars(range(min = 10, max = 86400))]
    pub ttl_seconds: u32,

    /// How long Consul withholds a lock after the session that held it has ended without releasing it, in seconds, 0 to
    /// 60. A change applies to sessions that lictor creates later. Default: 1.
    #[serde(default = "number::<1>")]
    #[schemars(range(min = 0, max = 60))]
    pub lock_delay_seconds: u32,
}

impl Default for ConsulSessions {
    fn default() -> Self {
        Self { count: 1, ttl_seconds: 15, lock_delay_seconds: 1 }
    }
}

/// The content of a lock's key.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum ConsulRecord {
    /// The record as JSON.
    #[default]
    Record,
    /// The name of the leader's pod. The record is in a second key.
    LeaderName,
}

/// The state of the Consul that keeps the locks.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulStatus {
    /// The version of the Consul agent that answers.
    pub version: String,

    /// The name of the Consul node that the sessions belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,

    /// The sessions that hold this cluster's locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
}

fn service_account_token() -> String {
    "/var/run/secrets/lictor.dev/consul/token".into()
}

//! `ElectionClass.spec.consul`: which Consul keeps the locks, how lictor reaches it and what it holds them by.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// In a rule: a field that may be left out is as it was.
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

// `namespace` is a reserved word in rules. Unescaped it is accepted as a name, and its cost is estimated beyond all limits.

/// Locks in the keys of a Consul. All clusters whose classes name the same Consul and the same keys elect one leader together.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.tls) || self.address.startsWith('https://')")
        .message("consul.tls is given, but consul.address does not begin with https://: write https:// there, or leave tls out"),
    validation = Rule::new("!(has(self.tokenSecretRef) && has(self.login))")
        .message("lictor gets its token either from a Secret or by a login: leave out consul.tokenSecretRef or consul.login"),
    validation = Rule::new(concat!(same!("datacenter"), " && ", same!("__namespace__"), " && ", same!("partition"), " && self.record == oldSelf.record"))
        .message("datacenter, namespace, partition and record of consul can't be changed, for running elections have their locks there: make another class")
)]
pub struct ConsulStore {
    /// Where Consul is reached: the address of an agent or of a load balancer, beginning with http:// or https:// and with the
    /// port, for example http://consul.example:8500.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://([a-zA-Z0-9_.-]+|[[][0-9a-fA-F:.]+[]])(:[0-9]{1,5})?/?$')").message("consul.address must be http:// or https://, a host and a port, and nothing after it, for example http://consul.example:8500"))]
    #[x_kube(validation = Rule::new("!isURL(self) || url(self).getPort() == '' || (int(url(self).getPort()) >= 1 && int(url(self).getPort()) <= 65535)").message("the port in consul.address must be from 1 to 65535, for example http://consul.example:8500"))]
    pub address: String,

    /// This cluster's name in the records of locks and in status.leader.clusterName: another one in each cluster that uses the same
    /// Consul. At most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit. It can't be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("consul.clusterName may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example west"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("consul.clusterName can't be changed, for the locks of running elections name it: make another class"))]
    pub cluster_name: String,

    /// The Consul datacenter that keeps the locks. It can't be changed. Default: that of the agent that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message("consul.datacenter may have letters, digits, '-' and '_', for example dc1"))]
    pub datacenter: Option<String>,

    /// The Consul namespace of sessions and keys, for Consul Enterprise. It can't be changed. Default: that of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message("consul.namespace may have letters, digits, '-' and '_', for example team-a"))]
    pub namespace: Option<String>,

    /// The Consul admin partition of sessions and keys, for Consul Enterprise. It can't be changed. Default: that of the agent
    /// that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message("consul.partition may have letters, digits, '-' and '_', for example default"))]
    pub partition: Option<String>,

    /// Certificates for an address with https://. Default: the certificate authorities that lictor's image trusts, and no
    /// client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ConsulTls>,

    /// The Secret with the ACL token, in its key "token" by default. It is read anew when it changes. Not together with login.
    /// Default: none, lictor has the rights of the anonymous token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKeyRef>,

    /// Gets a token by a login with the service account of lictor's pod. Not together with tokenSecretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<ConsulLogin>,

    /// The Consul node that lictor's sessions belong to. It can't be changed.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("consul.node can't be changed, for the sessions that hold the locks are on it: make another class"))]
    pub node: ConsulNode,

    /// The sessions that hold the locks; all elections of the class share them.
    #[serde(default)]
    pub sessions: ConsulSessions,

    /// What the key of a lock holds. It can't be changed, and must be the same in all clusters that share the locks. Record
    /// (default): the whole record as JSON. LeaderName: only the name of the leader's pod, for programs that read nothing
    /// else; the record is then in a second key, named like the first with /record after it.
    #[serde(default)]
    pub record: ConsulRecord,

    /// What lictor does with its locks while it can't reach this cluster's API server, but Consul.
    #[serde(default)]
    pub when_cluster_is_lost: LostCluster,

    /// What the operator that acts does with its locks when it is stopped in good order (SIGTERM). Hold (default): it leaves them
    /// to its successor, until the sessions expire. Release: it demotes its leaders and hands the locks to the other clusters
    /// at once, also where another replica stands by.
    #[serde(default)]
    pub when_operator_stops: LockPolicy,
}

/// How an https:// address is trusted, and how lictor proves who it is.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulTls {
    /// The Secret with the certificates of the authorities that Consul's certificate may come from, as PEM, in its key
    /// "ca.crt" by default; no others are trusted then. Default: those that lictor's image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,

    /// The Secret of the type kubernetes.io/tls with lictor's client certificate (tls.crt) and its key (tls.key). Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<SecretRef>,

    /// The name that Consul's certificate must be made out to, for example server.dc1.consul. Default: the host of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$')").message("consul.tls.serverName must be the name of a host, for example server.dc1.consul"))]
    pub server_name: Option<String>,
}

/// Names a Secret.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The Secret's namespace. Default: the one that lictor itself runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("this is no name for a namespace: it may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example lictor"))]
    pub namespace: Option<String>,

    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')").message("this is no name for a Secret: it may have lower-case letters, digits, '-' and '.', and must begin and end with a letter or digit, for example consul-tls"))]
    pub name: String,
}

/// Names one value in a Secret.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's namespace. Default: the one that lictor itself runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("this is no name for a namespace: it may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example lictor"))]
    pub namespace: Option<String>,

    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')").message("this is no name for a Secret: it may have lower-case letters, digits, '-' and '.', and must begin and end with a letter or digit, for example consul-token"))]
    pub name: String,

    /// The key in the Secret's data. Default: ca.crt for certificate authorities, token for a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9._-]+$')").message("this is no key of a Secret: it may have letters, digits, '-', '_' and '.', for example token"))]
    pub key: Option<String>,
}

/// A login by a Consul auth method of the type kubernetes or jwt. lictor logs out when it ends.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulLogin {
    /// The auth method's name in Consul.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9_-]+$')").message("consul.login.authMethodName may have letters, digits, '-' and '_', for example kubernetes"))]
    pub auth_method_name: String,

    /// The file with the token of the service account, in lictor's container. Default:
    /// /var/run/secrets/kubernetes.io/serviceaccount/token.
    #[serde(default = "service_account_token")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.startsWith('/')").message("consul.login.tokenPath must be an absolute path, for example /var/run/secrets/kubernetes.io/serviceaccount/token"))]
    pub token_path: String,
}

/// Which Consul node the sessions belong to: they end with it.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.name) || !self.useAgent")
        .message("consul.node.name goes with a node of lictor's own, and useAgent: true takes the agent's: leave one of the two out")
)]
pub struct ConsulNode {
    /// The name of a node that lictor registers for its sessions, and that has no health checks. Another one in each cluster
    /// that uses the same Consul. Default: lictor- and the cluster's name, for example lictor-west.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$')").message("consul.node.name may have letters, digits, '-', '_' and '.', and must begin and end with a letter or digit, for example lictor-west"))]
    pub name: Option<String>,

    /// Whether the sessions belong to the node of the agent that answers, and end when that node's health checks fail: for a
    /// Consul agent on lictor's own node. With an address that several servers share, sessions end whenever one of them is
    /// restarted. Default: false.
    #[serde(default)]
    pub use_agent: bool,
}

/// The sessions that hold the locks.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulSessions {
    /// How many sessions the elections are spread over, 1 to 16. There may be more later, but not fewer. Default: 1.
    #[serde(default = "number::<1>")]
    #[x_kube(validation = Rule::new("self >= oldSelf").message("consul.sessions.count can't be lowered, for locks are held by each of them: make another class"))]
    #[schemars(range(min = 1, max = 16))]
    pub count: u32,

    /// How long lictor may act after its last renewal of a session, in seconds, 10 to 86400. Consul itself ends a session that
    /// is not renewed only after up to twice this time. A change counts for sessions that are made later. Default: 15.
    #[serde(default = "number::<15>")]
    #[schemars(range(min = 10, max = 86400))]
    pub ttl_seconds: u32,

    /// How long Consul gives a lock to nobody after the session that held it has ended without releasing it, in seconds,
    /// 0 to 60. A change counts for sessions that are made later. Default: 1.
    #[serde(default = "number::<1>")]
    #[schemars(range(min = 0, max = 60))]
    pub lock_delay_seconds: u32,
}

impl Default for ConsulSessions {
    fn default() -> Self {
        Self { count: 1, ttl_seconds: 15, lock_delay_seconds: 1 }
    }
}

/// What the key of a lock holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum ConsulRecord {
    /// The record as JSON.
    #[default]
    Record,
    /// The name of the leader's pod; the record is in a second key.
    LeaderName,
}

/// What becomes of the locks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum LockPolicy {
    /// They are kept.
    #[default]
    Hold,
    /// They are given up for other clusters to take.
    Release,
}

/// What lictor does while this cluster's API server does not answer.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LostCluster {
    /// Hold (default): the locks are kept, for the leaders most likely run on. Release: after releaseAfterSeconds the sessions
    /// are not renewed any more, and when Consul has ended them, other clusters elect leaders of their own; the leader's label
    /// stays on the pod here until the API server answers again.
    #[serde(default)]
    pub policy: LockPolicy,

    /// How long the API server must have been silent before the sessions are left to expire, in seconds, 10 to 86400. Default: 60.
    #[serde(default = "number::<60>")]
    #[schemars(range(min = 10, max = 86400))]
    pub release_after_seconds: u32,
}

impl Default for LostCluster {
    fn default() -> Self {
        Self { policy: LockPolicy::Hold, release_after_seconds: 60 }
    }
}

/// What is known of a Consul.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulStatus {
    /// The version of the agent that answers.
    pub version: String,

    /// The name of the Consul node that the sessions belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,

    /// The sessions that hold this cluster's locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
}

fn service_account_token() -> String {
    "/var/run/secrets/kubernetes.io/serviceaccount/token".into()
}

fn number<const N: u32>() -> u32 {
    N
}

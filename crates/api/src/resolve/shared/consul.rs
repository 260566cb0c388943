//! Reads a class that keeps its locks in Consul into valid values.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use lictor_core::StoreId;

use super::common::{
    LONGEST_KEY, SecretId, SecretKey, Shared, check_key_below, is_http, release_after, secret_id, secret_key,
    watched_prefix,
};
use crate::consul::{self as api, ConsulRecord};
use crate::resolve::{Refusal, refused_key};
use crate::{ElectionClassSpec, LockPolicy};

/// The suffix of the key of a record, where the lock's own key holds only the leader's name.
const RECORD_SUFFIX: &str = "/record";

/// The part of a key below which a lock's bids are (C12).
const BIDS: &str = ".bid";

/// Where and how a class keeps its locks in Consul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsulClass {
    /// The class's name.
    pub name: String,
    /// `http://` or `https://`, host and port, without a slash at the end.
    pub address: String,
    /// This cluster's name in records.
    pub cluster: String,
    /// The datacenter. `None`: that of the agent.
    pub datacenter: Option<String>,
    /// The namespace in Consul Enterprise.
    pub namespace: Option<String>,
    /// The partition in Consul Enterprise.
    pub partition: Option<String>,
    /// Where the certificates come from.
    pub tls: TlsSources,
    /// Where the token comes from.
    pub credentials: Credentials,
    /// The node that the sessions belong to.
    pub node: SessionNode,
    /// The number of sessions, at least one.
    pub sessions: usize,
    /// The sessions' time to live.
    pub ttl: Duration,
    /// The sessions' lock delay.
    pub lock_delay: Duration,
    /// What the key of a lock holds.
    pub record: ConsulRecord,
    /// How long the cluster's API server must be unreachable before the operator releases the locks. `None`: it keeps
    /// them.
    pub release_after: Option<Duration>,
    /// Whether the operator releases its locks when it is stopped.
    pub release_on_stop: bool,
    /// The prefix of all keys of this class's locks. It ends with a slash.
    pub prefix: String,
}

/// Where the certificates of a connection come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSources {
    /// The trusted authorities, in PEM format. `None`: those of the system.
    pub authorities: Option<SecretKey>,
    /// The Secret with the client certificate and its private key, in `tls.crt` and `tls.key`.
    pub certificate: Option<SecretId>,
    /// The name in the server's certificate. `None`: the host in the address.
    pub server_name: Option<String>,
}

/// Where the token comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// No token.
    #[default]
    Anonymous,
    /// A token from a Secret.
    Secret(SecretKey),
    /// A token from a login.
    Login {
        /// The auth method.
        method: String,
        /// The file with the service account's token.
        token_path: PathBuf,
    },
}

/// The node that sessions belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionNode {
    /// A node of this name that lictor registers.
    Own(String),
    /// The node of the agent that answers, with its health checks.
    Agent,
}

/// Reads a class.
pub(super) fn consul_class(
    name: &str,
    class: &ElectionClassSpec,
    store: &api::ConsulStore,
) -> Result<ConsulClass, &'static str> {
    // This pattern names every field, so that a new one can't be forgotten.
    let api::ConsulStore {
        address,
        cluster_name,
        datacenter,
        namespace,
        partition,
        tls,
        token_secret_ref,
        login,
        node,
        sessions,
        record,
        // Each election reads the pattern, so a change of it is no reason to connect again.
        service_pattern: _,
        when_cluster_is_lost,
        when_operator_stops,
    } = store;
    if !is_http(address) {
        return Err(
            "consul.address must be http:// or https://, a host and a port, for example http://consul.example:8500",
        );
    }
    if cluster_name.is_empty() {
        return Err("consul.clusterName is empty: write this cluster's name, for example west");
    }
    let prefix = watched_prefix(class)?;
    Ok(ConsulClass {
        name: name.into(),
        address: address.trim_end_matches('/').into(),
        cluster: cluster_name.clone(),
        datacenter: datacenter.clone(),
        namespace: namespace.clone(),
        partition: partition.clone(),
        tls: tls.as_ref().map(resolve_tls).unwrap_or_default(),
        credentials: match (token_secret_ref, login) {
            (Some(_), Some(_)) => return Err("leave out consul.tokenSecretRef or consul.login"),
            (Some(secret), None) => Credentials::Secret(secret_key(secret, "token")),
            (None, Some(_)) if !is_private(address) => {
                return Err("consul.login sends the token of lictor's account: write https:// into consul.address");
            }
            (None, Some(api::ConsulLogin { auth_method_name, token_path })) => {
                Credentials::Login { method: auth_method_name.clone(), token_path: token_path.into() }
            }
            (None, None) => Credentials::Anonymous,
        },
        node: match (&node.name, node.use_agent) {
            (Some(_), true) => return Err("leave out consul.node.name or consul.node.useAgent"),
            (None, true) => SessionNode::Agent,
            (Some(name), false) => SessionNode::Own(name.clone()),
            (None, false) => SessionNode::Own(format!("lictor-{cluster_name}")),
        },
        // The same limits as in the CRD, because the CRD in the cluster may be older.
        sessions: usize::try_from(sessions.count.clamp(1, 16)).unwrap_or(1),
        ttl: Duration::from_secs(sessions.ttl_seconds.clamp(10, 86_400).into()),
        lock_delay: Duration::from_secs(sessions.lock_delay_seconds.min(60).into()),
        record: *record,
        release_after: release_after(when_cluster_is_lost),
        release_on_stop: *when_operator_stops == LockPolicy::Release,
        prefix,
    })
}

/// Returns whether an address is safe from eavesdroppers.
fn is_private(address: &str) -> bool {
    let Some(rest) = address.strip_prefix("http://") else { return true };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    host.is_some_and(|host| host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback()))
}

fn resolve_tls(tls: &api::ConsulTls) -> TlsSources {
    let api::ConsulTls { ca_secret_ref, cert_secret_ref, server_name } = tls;
    TlsSources {
        authorities: ca_secret_ref.as_ref().map(|secret| secret_key(secret, "ca.crt")),
        certificate: cert_secret_ref.as_ref().map(secret_id),
        server_name: server_name.clone(),
    }
}

impl Shared for ConsulClass {
    fn kind(&self) -> &'static str {
        "Consul"
    }

    fn place(&self) -> String {
        format!("Consul at {}", self.address)
    }

    fn store(&self) -> StoreId {
        StoreId::of_class("consul", &self.name)
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The longest time until another cluster can have the lock after this one stops renewing. A renewal that is on its way may still count;
    /// after that, Consul's servers wait up to twice the TTL, then for the lock delay, and contenders ask only every few seconds. If Consul's
    /// servers elect a leader meanwhile, their time starts again.
    fn expiry(&self) -> Duration {
        self.ttl * 2 + self.ttl / 3 + self.lock_delay + Duration::from_secs(5)
    }

    fn release_after(&self) -> Option<Duration> {
        self.release_after
    }

    fn release_on_stop(&self) -> bool {
        self.release_on_stop
    }

    fn secrets(&self) -> BTreeSet<SecretId> {
        let token = match &self.credentials {
            Credentials::Secret(token) => Some(&token.secret),
            Credentials::Anonymous | Credentials::Login { .. } => None,
        };
        let authorities = self.tls.authorities.as_ref().map(|authorities| &authorities.secret);
        [token, authorities, self.tls.certificate.as_ref()].into_iter().flatten().cloned().collect()
    }

    fn check_key(&self, key: &str) -> Result<(), Refusal> {
        check_key_below(&self.prefix, key)?;
        if key.split('/').any(|part| part == BIDS) {
            return Err(refused_key(format!(
                "the lock would be named {key:?}, and keys below {BIDS} are reserved for messages between clusters: \
                 choose another name in spec.key"
            )));
        }
        if self.record == ConsulRecord::LeaderName {
            if key.ends_with(RECORD_SUFFIX) {
                return Err(refused_key(format!(
                    "the lock would be named {key:?}, and in the class {:?} such a key holds the record of another \
                     lock: write a spec.key that does not end with {RECORD_SUFFIX}",
                    self.name
                )));
            }
            if key.len() + RECORD_SUFFIX.len() > LONGEST_KEY {
                return Err(refused_key(format!(
                    "the lock would be named {key:?}, which is longer than {LONGEST_KEY} characters with \
                     {RECORD_SUFFIX} appended: write a shorter spec.key"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> Result<ConsulClass, &'static str> {
        let spec: ElectionClassSpec = serde_json::from_value(spec.clone()).unwrap();
        consul_class("consul", &spec, spec.consul.as_ref().unwrap())
    }

    /// Reads a class with these fields of `consul`, besides the required ones.
    fn with(fields: &Value) -> Result<ConsulClass, &'static str> {
        let mut spec = json!({"consul": {"address": "https://consul.example:8501/", "clusterName": "west"}});
        for (key, value) in fields.as_object().unwrap() {
            spec["consul"][key] = value.clone();
        }
        read(&spec)
    }

    #[test]
    fn the_smallest_class_has_all_defaults() {
        let class = read(&json!({"consul": {"address": "http://consul.example:8500", "clusterName": "west"}}));
        let expected = ConsulClass {
            name: "consul".into(),
            address: "http://consul.example:8500".into(),
            cluster: "west".into(),
            datacenter: None,
            namespace: None,
            partition: None,
            tls: TlsSources::default(),
            credentials: Credentials::Anonymous,
            node: SessionNode::Own("lictor-west".into()),
            sessions: 1,
            ttl: Duration::from_secs(15),
            lock_delay: Duration::from_secs(1),
            record: ConsulRecord::Record,
            release_after: None,
            release_on_stop: false,
            prefix: "services/".into(),
        };
        assert_eq!(class, Ok(expected));
    }

    #[test]
    fn secrets_have_their_default_keys_and_each_is_named_once() {
        let class = with(&json!({
            "tokenSecretRef": {"name": "consul"},
            "tls": {
                "caSecretRef": {"name": "consul"}, "certSecretRef": {"namespace": "pki", "name": "client"},
                "serverName": "server.dc1.consul",
            },
        }));
        let class = class.unwrap();
        let own = SecretId { namespace: None, name: "consul".into() };
        let other = SecretId { namespace: Some("pki".into()), name: "client".into() };
        assert_eq!(class.credentials, Credentials::Secret(SecretKey { secret: own.clone(), key: "token".into() }));
        assert_eq!(class.tls.authorities, Some(SecretKey { secret: own.clone(), key: "ca.crt".into() }));
        assert_eq!(class.tls.certificate.as_ref(), Some(&other));
        assert_eq!(class.address, "https://consul.example:8501");
        assert_eq!(class.secrets(), BTreeSet::from([own, other.clone()]));
        assert_eq!(other.to_string(), "pki/client");
    }

    #[test]
    fn policies_and_sources_are_read() {
        let class = with(&json!({
            "address": "https://consul.example:8501",
            "login": {"authMethodName": "kubernetes"}, "node": {"useAgent": true}, "whenOperatorStops": "Release",
            "whenClusterIsLost": {"policy": "Release"}, "sessions": {"count": 4, "ttlSeconds": 30, "lockDelaySeconds": 0},
        }));
        let class = class.unwrap();
        let token_path = "/var/run/secrets/lictor.dev/consul/token".into();
        assert_eq!(class.credentials, Credentials::Login { method: "kubernetes".into(), token_path });
        assert_eq!(class.node, SessionNode::Agent);
        assert!(class.release_on_stop);
        assert_eq!(class.release_after, Some(Duration::from_secs(60)));
        assert_eq!((class.sessions, class.ttl, class.lock_delay), (4, Duration::from_secs(30), Duration::ZERO));
    }

    #[test]
    fn a_login_is_sent_where_nobody_on_the_way_can_read_it() {
        let login = |address: &str| with(&json!({"address": address, "login": {"authMethodName": "k"}}));
        for private in
            ["https://consul.example:8501", "http://localhost:8500", "http://127.0.0.1:8500/", "http://[::1]:8500"]
        {
            assert!(login(private).is_ok(), "{private}");
        }
        for open in [
            "http://consul.example:8500",
            "http://localhost.example:8500",
            "http://127.0.0.1.example",
            "http://[::2]:1",
        ] {
            assert!(login(open).unwrap_err().contains("write https://"), "{open}");
        }
    }

    #[test]
    fn what_older_crds_let_pass_is_refused() {
        let refused = |fields: &Value, says: &str| {
            let message = with(fields).unwrap_err();
            assert!(message.contains(says), "{message}");
        };
        refused(&json!({"address": "consul:8500"}), "for example http://consul.example:8500");
        refused(&json!({"address": "http://"}), "for example http://consul.example:8500");
        refused(&json!({"clusterName": ""}), "for example west");
        refused(
            &json!({"login": {"authMethodName": "k"}, "tokenSecretRef": {"name": "t"}}),
            "leave out consul.tokenSecretRef",
        );
        refused(&json!({"node": {"name": "n", "useAgent": true}}), "leave out consul.node.name");
    }

    #[test]
    fn where_the_key_has_the_leaders_name_no_lock_takes_the_key_of_a_record() {
        let class = with(&json!({"record": "LeaderName"})).unwrap();
        assert_eq!(class.check_key("services/shop/web/leader"), Ok(()));
        let long = format!("services/{}", "x".repeat(500));
        for key in ["services/shop/web/record", &long, "other/shop"] {
            assert_eq!(class.check_key(key).unwrap_err().reason, "KeyNotAllowed", "{key}");
        }
        assert_eq!(with(&json!({})).unwrap().check_key("services/shop/web/record"), Ok(()));
    }

    #[test]
    fn no_lock_takes_the_key_of_a_bid() {
        let class = with(&json!({})).unwrap();
        for key in ["services/shop/web/.bid/west", "services/.bid", "services/.bid/web"] {
            assert_eq!(class.check_key(key).unwrap_err().reason, "KeyNotAllowed", "{key}");
        }
        assert_eq!(class.check_key("services/shop/web/bid/west.bid"), Ok(()));
    }
}

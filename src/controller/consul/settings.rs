//! The inputs of a class's store: its settings, and the contents of the Secrets that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lictor_consul::Settings;
use lictor_core::SessionParameters;

use crate::api::{ConsulClass, ConsulRecord, ElectionClass, SecretId, SecretKey, SessionNode, consul_class};
use crate::kubernetes::SecretData;

/// The inputs of a store. The store is made again when they change.
#[derive(Clone, PartialEq)]
pub(crate) struct Made {
    pub(crate) settings: Settings,
    pub(crate) cluster: String,
    pub(crate) prefix: String,
    pub(crate) record: ConsulRecord,
    pub(crate) node: SessionNode,
    pub(crate) sessions: usize,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
}

/// The known Secrets; `None` if a Secret does not exist.
pub(crate) type Secrets = BTreeMap<SecretId, Option<SecretData>>;

/// A problem of a store, for its class's condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

pub(crate) fn release_after(class: &ElectionClass) -> Option<Duration> {
    consul_class(class)?.ok()?.release_after
}

pub(crate) fn secrets_of(class: &ElectionClass) -> BTreeSet<SecretId> {
    consul_class(class).and_then(Result::ok).map(|class| class.secrets()).unwrap_or_default()
}

/// The inputs of a class's store; `None` until every Secret has been read.
pub(crate) fn made(class: &ConsulClass, secrets: &Secrets, timeout: Duration) -> Result<Option<Made>, Trouble> {
    let ca = match &class.tls.authorities {
        None => None,
        Some(key) => match secret(secrets, key)? {
            Some(ca) => Some(ca.to_vec()),
            None => return Ok(None),
        },
    };
    let identity = match &class.tls.certificate {
        None => None,
        Some(id) => {
            let part = |key: &str| secret(secrets, &SecretKey { secret: id.clone(), key: key.into() });
            match (part("tls.crt")?, part("tls.key")?) {
                (Some(certificate), Some(key)) => Some((certificate.to_vec(), key.to_vec())),
                _ => return Ok(None),
            }
        }
    };
    let settings = Settings {
        datacenter: class.datacenter.clone(),
        namespace: class.namespace.clone(),
        partition: class.partition.clone(),
        server_name: class.tls.server_name.clone(),
        ca,
        identity,
        timeout: timeout.min(SessionParameters { ttl: class.ttl }.longest_request()),
        ..Settings::new(&class.address)
    };
    Ok(Some(Made {
        settings,
        cluster: class.cluster.clone(),
        prefix: class.prefix.clone(),
        record: class.record,
        node: class.node.clone(),
        sessions: class.sessions,
        ttl: class.ttl,
        lock_delay: class.lock_delay,
    }))
}

/// A value in a Secret; `None` until the Secret has been read.
pub(crate) fn secret<'a>(secrets: &'a Secrets, key: &SecretKey) -> Result<Option<&'a [u8]>, Trouble> {
    let missing = |message| Trouble { reason: "SecretMissing", message };
    match secrets.get(&key.secret) {
        None => Ok(None),
        Some(None) => Err(missing(format!("there is no Secret {}: create it", key.secret))),
        Some(Some(data)) => data.get(&key.key).map(Some).ok_or_else(|| {
            let keys: Vec<&str> = data.keys().collect();
            missing(format!("the Secret {} has no key {:?}; it has: {}", key.secret, key.key, keys.join(", ")))
        }),
    }
}

/// The problem that invalid settings cause.
pub(crate) fn invalid_settings(error: &impl ToString) -> Trouble {
    Trouble { reason: "InvalidSettings", message: error.to_string() }
}

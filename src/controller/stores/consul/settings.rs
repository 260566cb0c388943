//! The inputs of a class's store: its settings, and the contents of the Secrets that they name.

use std::time::Duration;

use lictor_api::{ConsulClass, ConsulRecord, SecretKey, SessionNode};
use lictor_consul::Settings;
use lictor_core::SessionParameters;

use crate::controller::stores::class_store::{Secrets, Trouble, secret};

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

//! The leader as a service in Consul's catalog, for programs that find each other there or by DNS.
//!
//! All clusters write it to one node, so that the next leader's service replaces the last one's, even if the last one's cluster is gone.
//! They write it in a transaction that checks the lock, so that a late cluster changes nothing.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use lictor_consul::{OpError, Service, Transaction, TxnOp};
use lictor_core::{Failure, Key, Version};
use lictor_locks::consul::{failure, refused};

use super::keys::ConsulKeys;
use crate::store::{Directory, Registration};

/// The node of the leaders' services. It has no health checks, so the services count as healthy.
const NODE: &str = "lictor-leaders";
/// The tag of a leader's service: `leader.NAME.service.consul`.
const TAG: &str = "leader";

impl Directory for ConsulKeys {
    fn register<'a>(
        &'a self,
        key: &'a Key,
        version: Option<Version>,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        self.publish(key, version, registration).boxed()
    }
}

impl ConsulKeys {
    async fn publish(&self, key: &Key, version: Option<Version>, registration: &Registration) -> Result<bool, Failure> {
        let name = key.name.clone();
        let id = format!("lictor:{name}");
        let operations = [
            match version {
                Some(Version(index)) => TxnOp::KvCheckIndex { key: name, index },
                None => TxnOp::KvCheckNotExists { key: name },
            },
            match &registration.leader {
                Some(leader) => TxnOp::ServiceSet {
                    node: NODE.into(),
                    service: Service {
                        id,
                        name: registration.service.clone(),
                        tags: vec![TAG.into()],
                        address: leader.address.clone(),
                        port: leader.port,
                        meta: leader.meta.clone(),
                        modify_index: 0,
                    },
                },
                None => TxnOp::ServiceDelete { node: NODE.into(), id, name: registration.service.clone() },
            },
        ];
        let client = &self.client;
        let mut done = client.transact(&operations).await;
        if let Transaction::RolledBack(errors) = &done
            && errors.iter().all(OpError::is_node)
        {
            if registration.leader.is_none() {
                return Ok(true);
            }
            client.register_node(NODE, "127.0.0.1", &BTreeMap::new()).await.map_err(failure)?;
            done = client.transact(&operations).await;
        }
        match done {
            Transaction::Applied(_) => Ok(true),
            Transaction::RolledBack(errors) if errors.iter().any(OpError::is_index) => Ok(false),
            Transaction::RolledBack(errors) => Err(refused("the leader's service", &errors)),
            Transaction::Failed(error) => Err(failure(error)),
        }
    }
}

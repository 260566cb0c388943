//! The catalog's nodes and services, and the agent that answers.

use std::collections::BTreeMap;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Request, Token};
use super::error::Purpose;
use super::{Client, Error};

/// The agent that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Consul's version. `None` means that the token may not read it.
    pub version: Option<String>,
    /// The agent's node. `None` means that the token may not read it.
    pub node: Option<String>,
    /// The agent's datacenter. `None` means that the token may not read it.
    pub datacenter: Option<String>,
}

/// A node in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogNode {
    /// The node's address.
    pub address: String,
    /// The node's metadata.
    pub meta: BTreeMap<String, String>,
    /// The node's services, by ID.
    pub services: BTreeMap<String, Service>,
}

/// A service of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Service {
    /// The ID, which is unique on its node.
    #[serde(rename = "ID")]
    pub id: String,
    /// The name by which clients look it up.
    #[serde(rename = "Service")]
    pub name: String,
    /// The tags, by which clients can also look it up.
    #[serde(rename = "Tags", default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// The address. An empty one means the node's address.
    #[serde(rename = "Address", default)]
    pub address: String,
    /// The port.
    #[serde(rename = "Port", default)]
    pub port: u16,
    /// The metadata.
    #[serde(rename = "Meta", default, deserialize_with = "null_as_default")]
    pub meta: BTreeMap<String, String>,
    /// The index of the last change, which is ignored when the service is written.
    #[serde(rename = "ModifyIndex", default)]
    pub modify_index: u64,
}

impl Service {
    pub(super) fn to_json(&self) -> Value {
        let Self { id, name, tags, address, port, meta, modify_index: _ } = self;
        // A weight of zero would remove it from DNS answers.
        json!({
            "ID": id, "Service": name, "Tags": tags, "Address": address, "Port": port, "Meta": meta,
            "Weights": {"Passing": 1, "Warning": 1},
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawAgent {
    config: RawConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawConfig {
    version: String,
    node_name: String,
    datacenter: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawNodeServices {
    node: RawNode,
    #[serde(default, deserialize_with = "null_as_default")]
    services: BTreeMap<String, Service>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawNode {
    address: String,
    #[serde(default, deserialize_with = "null_as_default")]
    meta: BTreeMap<String, String>,
}

impl Client {
    /// Registers a node, or changes it. The node gets no check named `serfHealth`, so that no server takes it for a lost member
    /// and removes it.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn register_node(&self, node: &str, address: &str, meta: &BTreeMap<String, String>) -> Result<(), Error> {
        let mut body = json!({"Node": node, "Address": address, "NodeMeta": meta});
        if let Some(partition) = self.scope("partition") {
            body["Partition"] = json!(partition);
        }
        let purpose = Purpose::new(format!("register the node {node}"), node_rule(node, "write"));
        self.send(Request::put(["catalog", "register"], purpose).body(&body)).await?.done()
    }

    /// Removes a node with its services and sessions, if it exists.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn deregister_node(&self, node: &str) -> Result<(), Error> {
        let mut body = json!({"Node": node});
        if let Some(partition) = self.scope("partition") {
            body["Partition"] = json!(partition);
        }
        let purpose = Purpose::new(format!("remove the node {node}"), node_rule(node, "write"));
        self.send(Request::put(["catalog", "deregister"], purpose).body(&body)).await?.done()
    }

    /// Reads a node and its services consistently. Returns `None` if there is no such node, or the token may not read it.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn node(&self, node: &str) -> Result<Option<CatalogNode>, Error> {
        let purpose = Purpose::new(format!("read the node {node}"), node_rule(node, "read"));
        let answer = self.send(Request::get(["catalog", "node", node], purpose).consistent()).await?;
        answer.index()?;
        Ok(answer.json::<Option<RawNodeServices>>()?.map(|RawNodeServices { node, services }| CatalogNode {
            address: node.address,
            meta: node.meta,
            services,
        }))
    }

    /// Reads the agent that answers. A token without the right (`agent "NODE" { policy = "read" }`) gets empty fields and no
    /// error.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn agent_self(&self) -> Result<Agent, Error> {
        let purpose = Purpose::new("read the agent's settings", "agent_prefix \"\" { policy = \"read\" }");
        let request = Request::get(["agent", "self"], purpose).expecting(&[StatusCode::FORBIDDEN]);
        let answer = self.send(request).await?;
        if answer.status == StatusCode::FORBIDDEN {
            return match answer.refused() {
                Error::Forbidden(_) => Ok(Agent::default()),
                error => Err(error),
            };
        }
        let RawAgent { config: RawConfig { version, node_name, datacenter } } = answer.json()?;
        Ok(Agent { version: Some(version), node: Some(node_name), datacenter: Some(datacenter) })
    }

    /// Returns whether the server that answers knows a leader. This needs no rights.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn leader_known(&self) -> Result<bool, Error> {
        let purpose = Purpose::new("ask for the leader", "no rule: anybody may");
        let answer = self.send(Request::get(["status", "leader"], purpose).token(Token::None)).await?;
        Ok(!answer.json::<String>()?.is_empty())
    }
}

fn node_rule(node: &str, policy: &str) -> String {
    format!("node \"{node}\" {{ policy = \"{policy}\" }}")
}

/// Reads `null` as the default, because Go sometimes writes an empty list as `null`.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

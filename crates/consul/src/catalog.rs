//! Nodes, services, and the agent that answers.

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
    /// Consul's version; none: the token may not read it.
    pub version: Option<String>,
    /// The agent's node; none: the token may not read it.
    pub node: Option<String>,
    /// The agent's datacentre; none: the token may not read it.
    pub datacenter: Option<String>,
}

/// A node of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogNode {
    /// Where it is.
    pub address: String,
    /// Its labels.
    pub meta: BTreeMap<String, String>,
    /// Its services, by ID.
    pub services: BTreeMap<String, Service>,
}

/// A service of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Service {
    /// Unique on its node.
    #[serde(rename = "ID")]
    pub id: String,
    /// What it is looked up by.
    #[serde(rename = "Service")]
    pub name: String,
    /// Further words to look it up by.
    #[serde(rename = "Tags", default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// Where it is; empty: where its node is.
    #[serde(rename = "Address", default)]
    pub address: String,
    /// Its port.
    #[serde(rename = "Port", default)]
    pub port: u16,
    /// Its labels.
    #[serde(rename = "Meta", default, deserialize_with = "null_as_default")]
    pub meta: BTreeMap<String, String>,
    /// When it was changed last; what is written has none.
    #[serde(rename = "ModifyIndex", default)]
    pub modify_index: u64,
}

impl Service {
    pub(super) fn to_json(&self) -> Value {
        let Self { id, name, tags, address, port, meta, modify_index: _ } = self;
        // A weight of zero would keep it out of DNS answers.
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
    /// Registers a node, or changes it. Without a check of the name `serfHealth`, so that no server takes it for a member that
    /// is gone and removes it.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
    pub async fn register_node(&self, node: &str, address: &str, meta: &BTreeMap<String, String>) -> Result<(), Error> {
        let mut body = json!({"Node": node, "Address": address, "NodeMeta": meta});
        if let Some(partition) = self.scope("partition") {
            body["Partition"] = json!(partition);
        }
        let purpose = Purpose::new(format!("register the node {node}"), node_rule(node, "write"));
        self.send(Request::put(["catalog", "register"], purpose).body(&body)).await?.done()
    }

    /// Removes a node with its services and sessions, if it is there.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
    pub async fn deregister_node(&self, node: &str) -> Result<(), Error> {
        let mut body = json!({"Node": node});
        if let Some(partition) = self.scope("partition") {
            body["Partition"] = json!(partition);
        }
        let purpose = Purpose::new(format!("remove the node {node}"), node_rule(node, "write"));
        self.send(Request::put(["catalog", "deregister"], purpose).body(&body)).await?.done()
    }

    /// Reads a node and its services, past every cache. `None`: there is no such node, or the token may not read it.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
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

    /// The agent that answers. A token that may not read it (`agent "NODE" { policy = "read" }`) learns nothing, without an
    /// error.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
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

    /// Whether the server that answers knows of a leader. Needs no rights.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
    pub async fn leader_known(&self) -> Result<bool, Error> {
        let purpose = Purpose::new("ask for the leader", "no rule: anybody may");
        let answer = self.send(Request::get(["status", "leader"], purpose).token(Token::None)).await?;
        Ok(!answer.json::<String>()?.is_empty())
    }
}

fn node_rule(node: &str, policy: &str) -> String {
    format!("node \"{node}\" {{ policy = \"{policy}\" }}")
}

/// Go writes an empty list as `null` at times.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

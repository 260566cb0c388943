//! Consul servers, and the classes that keep their locks there.

mod by_hand;
mod cli;
pub mod idle;
pub mod takeover;
pub mod telemetry;
pub mod workloads;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use lictor_consul::{Client, Settings};
use lictor_testing::consul::{Api, Kind};
use serde_json::{Value, json};

use crate::world::{SYSTEM, World};

/// The kind of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Servers {
    /// One agent that keeps its state in memory: nothing waits for a disk or for another server.
    Dev,
    /// Three servers with their data on disk, with ACLs and TLS.
    Three,
}

/// The servers.
pub struct Consul {
    consul: lictor_testing::consul::Consul,
}

impl Consul {
    /// Starts them.
    pub fn start(servers: Servers) -> Self {
        eprintln!("consul: {servers:?} is started");
        let kind = match servers {
            Servers::Dev => Kind::Dev,
            Servers::Three => Kind::Three,
        };
        Self { consul: lictor_testing::consul::Consul::start(kind) }
    }

    /// Returns the API of the server that all use.
    pub fn api(&self) -> Api {
        self.consul.api()
    }

    /// Returns a command of Consul's own program.
    pub fn command(&self) -> std::process::Command {
        self.consul.command()
    }

    /// Makes a client like the operator's.
    pub fn client(&self) -> anyhow::Result<Client> {
        let file = |name: &str| self.file(name).map(|file| file.map(String::into_bytes));
        let identity = file("CLIENT_CERT")?.zip(file("CLIENT_KEY")?);
        let client = Client::new(&Settings {
            ca: file("CACERT")?,
            identity,
            timeout: Duration::from_secs(5),
            ..Settings::new(self.consul.address())
        })?;
        client.set_token(self.consul.variable("HTTP_TOKEN"))?;
        Ok(client)
    }

    /// Creates a class of this name, which is also the cluster's name. `spec` and `consul` are further fields.
    pub fn class(&self, world: &World, name: &str, spec: &Value, consul: &Value) -> anyhow::Result<()> {
        let mut class = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": name},
            "spec": {"consul": {"address": self.consul.address(), "clusterName": name}},
        });
        if let (Some(ca), Some(token)) = (self.file("CACERT")?, self.consul.variable("HTTP_TOKEN")) {
            let secret = json!({"namespace": SYSTEM, "name": "consul"});
            world.apply(&json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": secret,
                "stringData": {
                    "ca.crt": ca, "tls.crt": self.file("CLIENT_CERT")?, "tls.key": self.file("CLIENT_KEY")?,
                    "token": token,
                },
            }))?;
            class["spec"]["consul"]["tls"] = json!({"caSecretRef": secret, "certSecretRef": secret});
            class["spec"]["consul"]["tokenSecretRef"] = secret;
        }
        merge(&mut class["spec"], spec);
        merge(&mut class["spec"]["consul"], consul);
        world.apply(&class)
    }

    fn file(&self, name: &str) -> anyhow::Result<Option<String>> {
        let path = self.consul.variable(name).map(PathBuf::from);
        path.map(|path| std::fs::read_to_string(&path).with_context(|| path.display().to_string())).transpose()
    }
}

fn merge(into: &mut Value, from: &Value) {
    for (name, value) in from.as_object().into_iter().flatten() {
        into[name] = value.clone();
    }
}

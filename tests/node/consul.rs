//! Consul, in a pod and beside the nodes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use lictor_testing::tool;

use crate::nodes::{Nodes, pack};

/// The Consul image, and the agent on this machine, which ends with this process.
pub struct Consul {
    agent: OnceLock<Child>,
}

impl Consul {
    /// Packs the image.
    pub fn pack(image: &Path) -> Self {
        pack(image, "consul:node", &[&tool("consul")]);
        Self { agent: OnceLock::new() }
    }

    /// Starts an agent on this machine. It listens only on the loopback address, so its port is forwarded to the pods' side.
    pub async fn on_host(&self, nodes: &Nodes) -> String {
        let mut agent = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/hack/consul.sh"))
            .args(["hold", "dev", "node"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("hack/consul.sh starts");
        let output = BufReader::new(agent.stdout.take().expect("its output is piped"));
        let lines = output.lines().map_while(Result::ok).take_while(|line| !line.is_empty());
        let address = lines.filter_map(|line| line.strip_prefix("CONSUL_HTTP_ADDR=http://").map(str::to_owned)).last();
        let address = address.expect("hack/consul.sh makes an agent");
        assert!(self.agent.set(agent).is_ok(), "there is one agent");

        let listener = TcpListener::bind((nodes.host.as_str(), 0)).await.expect("this machine has an address there");
        let port = listener.local_addr().expect("it has a port").port();
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let address = address.clone();
                tokio::spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(address).await {
                        let _ = copy_bidirectional(&mut from, &mut to).await;
                    }
                });
            }
        });
        format!("http://{}:{port}", nodes.host)
    }

    /// Starts an agent in a pod, behind a Service. There is no DNS for names of Services here.
    pub fn in_pod(nodes: &Nodes) -> String {
        let labels = json!({"app": "consul"});
        nodes.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "consul"}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "consul", "namespace": "consul"}, "spec": {
                "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [{
                    "name": "consul", "image": "consul:node", "imagePullPolicy": "Never",
                    "command": ["/bin/consul", "agent", "-dev", "-client", "0.0.0.0"],
                    "readinessProbe": {"httpGet": {"path": "/v1/status/leader", "port": 8500}, "periodSeconds": 1},
                }]}}}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "consul", "namespace": "consul"}, "spec": {
                "selector": labels, "ports": [{"port": 8500}]}},
        ]}));
        nodes.kubectl(&["rollout", "status", "deployment/consul", "-n", "consul", "--timeout=60s"]);
        let address = nodes.kubectl(&["get", "service", "consul", "-n", "consul", "-o", "jsonpath={.spec.clusterIP}"]);
        format!("http://{address}:8500")
    }
}

//! `kubectl lictor report`: collects everything that a helper needs to see, in one file without secrets.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lictor_api::{Classes, GROUP, LeaderElection, as_yaml};
use lictor_core::{Pod, Selector};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::access::Served;
use super::doctor::{Operator, examine};
use super::outlook::read;
use super::reading::{Reader, full_name};
use crate::cli::support::{Ended, block_on, print};

/// How long to wait for an operator to act, in seconds.
const TIMEOUT: u64 = 10;
/// The label of the operator's pods.
const OPERATOR: &str = "app.kubernetes.io/name=lictor";
/// The replacement for values that are left out.
const LEFT_OUT: &str = "(left out)";

/// Writes a support bundle: one YAML file with what `doctor` finds, classes, elections, Switchovers, locks, pods,
/// Services, Events, and the operator's Deployment and log.
///
/// It contains no Secrets, no environment variables, no templates of pods or Jobs, and only lictor's own annotations.
/// It does contain the names of objects, nodes and addresses, so read it before you send it. It names everything that
/// you have no right to see.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor report\n  kubectl lictor report -n shop --file -    # one namespace, to the standard output"
)]
pub(crate) struct Report {
    #[command(flatten)]
    served: Served,

    /// The file; - is the standard output. An existing file is not overwritten. Default: lictor-report-TIME.yaml.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// How many lines to include from each log of the operator.
    #[arg(long, value_name = "LINES", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    log_lines: u32,
}

impl Report {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.write())
    }

    async fn write(self) -> anyhow::Result<Ended> {
        let text = as_yaml(&self.gather(&self.served.reader().await?).await?)?;
        let now = Timestamp::now().to_string();
        let default = || {
            PathBuf::from(format!("lictor-report-{}.yaml", now.split('.').next().unwrap_or_default().replace(':', "")))
        };
        let path = self.file.unwrap_or_else(default);
        if path == Path::new("-") {
            print(&text)?;
        } else {
            let mut file = std::fs::File::create_new(&path)
                .with_context(|| format!("can't write {}: name another file with --file", path.display()))?;
            std::io::Write::write_all(&mut file, text.as_bytes())?;
            print(&format!("wrote {}: read it before you send it\n", path.display()))?;
        }
        Ok(Ended::Well)
    }

    async fn gather(&self, reader: &Reader) -> anyhow::Result<Value> {
        let (installation, namespaces) = (&self.served.installation, self.served.namespaces());
        let mut findings = Vec::new();
        let examined = examine(reader, installation, Some(&namespaces), TIMEOUT, |finding| {
            findings.push(finding);
            Ok(())
        });
        examined.await?;
        let classes = reader.classes().await;
        let mut bundle = Map::new();
        bundle
            .insert("about".into(), json!({"lictor": env!("CARGO_PKG_VERSION"), "time": Timestamp::now().to_string()}));
        bundle.insert("doctor".into(), json!(findings));
        bundle.insert("classes".into(), of(classes.as_ref().map(|all| all.values().map(cleaned).collect::<Vec<_>>())));
        let mut scopes = Vec::new();
        for scope in namespaces.scopes() {
            scopes.push(around(reader, scope.as_deref(), classes.as_ref().unwrap_or(&Classes::new())).await);
        }
        bundle.insert("elections".into(), json!(scopes));
        let operator = Operator::find(reader, installation).await;
        let logs = reader.logs(&operator.namespace, OPERATOR, self.log_lines.into()).await;
        let logs = logs.map(|logs| logs.into_iter().map(|(pod, log)| (pod, of(log.as_ref()))).collect::<Map<_, _>>());
        bundle.insert(
            "operator".into(),
            json!({
                "namespace": operator.namespace,
                "deployment": operator.deployment.as_ref().map(described),
                "lease": of(reader.operator_lease(&operator.namespace, &installation.lease_name()).await.as_ref()),
                "logs": of(logs.as_ref()),
            }),
        );
        Ok(Value::Object(bundle))
    }
}

/// The contents of a namespace, or of all.
async fn around(reader: &Reader, scope: Option<&str>, classes: &Classes) -> Value {
    let elections = reader.elections(scope).await.map_err(|error| error.to_string());
    let (switchovers, locks, events) =
        tokio::join!(reader.switchovers(scope), reader.locks(scope), reader.all_events(scope));
    let mut groups = Map::new();
    for election in elections.iter().flatten() {
        let namespace = election.namespace().unwrap_or_default();
        if let (Ok(spec), _) = read(election, classes) {
            let pods = pods(reader, &namespace, &spec.scope.selector).await;
            groups.insert(full_name(election), pods);
        }
    }
    json!({
        "namespace": scope,
        "elections": of(elections.as_ref().map(|all| all.iter().map(election).collect::<Vec<_>>())),
        "switchovers": of(switchovers.as_ref().map(|all| all.iter().map(cleaned).collect::<Vec<_>>())),
        "locks": of(locks.as_ref().map(|all| all.iter().map(cleaned).collect::<Vec<_>>())),
        "events": of(events.as_ref().map(|all| all.iter().map(cleaned).collect::<Vec<_>>())),
        "pods": groups,
    })
}

async fn pods(reader: &Reader, namespace: &str, selector: &Selector) -> Value {
    let found = reader.pods(namespace, selector).await;
    let nodes = match &found {
        Ok(pods) => reader.nodes(pods, &[]).await,
        Err(why) => Err(why.clone()),
    };
    let told = |pod: &Pod| {
        let own: Map<String, Value> = pod
            .annotations
            .iter()
            .filter(|(key, _)| is_ours(key))
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .collect();
        let node = nodes.as_ref().ok().and_then(|nodes| nodes.get(pod.node.as_ref()?));
        json!({
            "name": pod.name, "uid": pod.uid.0, "version": pod.version.0, "labels": pod.labels, "annotations": own,
            "node": pod.node, "nodeLost": node.map(|node| node.lost), "nodeCordoned": node.map(|node| node.cordoned),
            "ready": pod.ready, "readySince": pod.ready_since.map(|since| since.0), "deleting": pod.deleting,
            "finished": pod.finished, "disrupted": pod.disrupted,
        })
    };
    of(found.as_ref().map(|pods| pods.iter().map(told).collect::<Vec<_>>()))
}

/// The object that was read, or why it was not.
fn of<T: Serialize, E: std::fmt::Display>(seen: Result<T, E>) -> Value {
    match seen {
        Ok(value) => json!(value),
        Err(why) => json!({"notVisible": why.to_string()}),
    }
}

/// An election without its users' templates.
fn election(election: &LeaderElection) -> Value {
    let mut object = cleaned(election);
    let workloads = object.pointer_mut("/spec/workloads").and_then(Value::as_array_mut);
    for workload in workloads.into_iter().flatten() {
        if let Some(template) = workload.get_mut("jobTemplate") {
            *template = json!(LEFT_OUT);
        }
    }
    object
}

/// An object without the annotations of others, and without its managed fields.
fn cleaned(object: &impl Serialize) -> Value {
    let mut object = json!(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| is_ours(key));
        }
    }
    object
}

fn is_ours(key: &str) -> bool {
    key.split('/').next() == Some(GROUP)
}

/// How the operator is run, without the values of environment variables.
fn described(deployment: &Deployment) -> Value {
    let spec = deployment.spec.as_ref();
    let pod = spec.and_then(|spec| spec.template.spec.as_ref());
    let containers = pod.into_iter().flat_map(|pod| &pod.containers).map(|container| {
        let names = container.env.iter().flatten().map(|variable| &variable.name).collect::<Vec<_>>();
        json!({"name": container.name, "image": container.image, "args": container.args, "envNames": names, "resources": container.resources})
    });
    json!({
        "name": deployment.name_any(), "labels": deployment.labels(), "replicas": spec.and_then(|spec| spec.replicas),
        "serviceAccount": pod.and_then(|pod| pod.service_account_name.clone()),
        "containers": containers.collect::<Vec<_>>(), "status": deployment.status,
    })
}

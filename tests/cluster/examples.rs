//! Every directory of `examples/`, applied as it is except for Consul's address, in a control plane with one operator that has
//! only the rights that docs/operating.md and docs/workloads.md name.

mod migration;

use std::collections::BTreeSet;
use std::path::PathBuf;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use lictor_api::LeaderElection;
use lictor_objects::Credentials;
use lictor_testing::buckets::{Buckets, Kind};
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Cluster, Lab, Operator, eventually};
use serde_json::{Value, json};

/// The examples that a test below is about.
const TESTED: [&str; 14] = [
    "service",
    "switchover",
    "label",
    "consul",
    "bucket",
    "hub",
    "cronjob-between-clusters",
    "cold-standby",
    "stateful-cold-standby",
    "job-for-each-term",
    "migration",
    "know",
    "observe",
    "candidates",
];
/// Those that have no operator: tests/agent/examples.rs.
const ELSEWHERE: [&str; 1] = ["agent"];
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// The placeholder for an address in the classes.
const ADDRESS: &str = "http://consul.example:8500";
/// The place of the bucket in examples/bucket. The tests' server has the default region.
const BUCKET: &str = "s3://example-locks/lictor\n    region: eu-central-1";

fn directory(example: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).join(example)
}

/// Applies an example: first as a dry run, then with the address of a running Consul.
fn apply_example(lab: &Lab, example: &str) {
    apply_example_with(lab, example, ADDRESS, Consul::shared().address());
}

/// Applies an example: first as a dry run, then with this placeholder replaced.
fn apply_example_with(lab: &Lab, example: &str, placeholder: &str, replacement: &str) {
    let path = directory(example);
    let path = path.to_str().expect("the path is text");
    lab.try_kubectl(&["apply", "--dry-run=server", "-f", path], None).unwrap_or_else(|error| panic!("{error}"));
    let entries = std::fs::read_dir(path).expect("it can be listed");
    // As kubectl does, which does not look into the directories below.
    let files = entries.map(|entry| entry.expect("it can be listed").path());
    let files: BTreeSet<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).expect("a file can be read"));
    let text = texts.collect::<Vec<_>>().join("\n---\n").replace(placeholder, replacement);
    lab.try_kubectl(&["apply", "-f", "-"], Some(&text)).unwrap_or_else(|error| panic!("{error}"));
}

/// Waits until an election is accepted and has a leader, and its workloads follow.
async fn follows(lab: &Lab, name: &str) -> LeaderElection {
    lab.wait_condition(name, "Accepted", "True", "Accepted").await;
    lab.wait_condition(name, "Elected", "True", "Elected").await;
    lab.wait_condition(name, "WorkloadsFollow", "True", "Follow").await;
    lab.election(name).await
}

fn api<K>(lab: &Lab) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// Returns an annotation of a workload.
fn written<'a>(object: &'a impl ResourceExt, annotation: &str) -> Option<&'a str> {
    object.annotations().get(annotation).map(String::as_str)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own, and every example to its end"]
async fn each_example_does_what_it_says() {
    let all = std::fs::read_dir(directory("")).expect("examples can be listed");
    let all = all.map(|entry| entry.expect("examples can be listed").file_name().into_string().expect("a name"));
    let tested = TESTED.into_iter().chain(ELSEWHERE).map(str::to_owned);
    assert_eq!(all.collect::<BTreeSet<_>>(), tested.collect(), "each has its test");
    // Classes belong to the whole cluster, and an operator with the default settings serves these, so no other test may see them.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&format!("examples-{}", std::process::id()), 3)));
    cluster.install_crds();
    let kubeconfig = kubeconfig_with(cluster, &[rights_of_operating(), role_of_workloads()]);
    // The class in examples/bucket names no Secret, so the operator takes the identity of its own pod.
    let Credentials::Given(identity) = Buckets::shared(Kind::S3).settings("any").credentials else {
        panic!("a given one")
    };
    let identity: Vec<_> =
        identity.iter().map(|(name, value)| (name.as_str(), std::str::from_utf8(value).expect("text"))).collect();
    let _operator = Operator::start(&kubeconfig.0, &["--lease-namespace", "default"], &identity);
    tokio::join!(
        pods(cluster),
        label(cluster),
        cron_job(cluster),
        cold_standby(cluster),
        stateful_cold_standby(cluster),
        job(cluster),
        migration::all(cluster),
        know(cluster),
        observe(cluster),
        candidates(cluster)
    );
}

/// A kubeconfig that is deleted with the test.
struct Kubeconfig(PathBuf);

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Makes a kubeconfig of a service account that has these ClusterRoles.
fn kubeconfig_with(cluster: &Cluster, roles: &[Value]) -> Kubeconfig {
    cluster.kubectl(&["create", "serviceaccount", "lictor"]);
    for role in roles {
        cluster.try_kubectl(&["apply", "-f", "-"], Some(&role.to_string())).unwrap_or_else(|error| panic!("{error}"));
        let name = role["metadata"]["name"].as_str().expect("a role has a name");
        let role = format!("--clusterrole={name}");
        cluster.kubectl(&["create", "clusterrolebinding", name, &role, "--serviceaccount=default:lictor"]);
    }
    let token = format!("--token={}", cluster.kubectl(&["create", "token", "lictor", "--duration=1h"]).trim());
    let file = Kubeconfig(std::env::temp_dir().join(format!("lictor-examples-{}", std::process::id())));
    std::fs::copy(cluster.kubeconfig(), &file.0).expect("the kubeconfig can be copied");
    let path = file.0.to_str().expect("the path is text");
    cluster.kubectl(&["--kubeconfig", path, "config", "set-credentials", "lictor", &token]);
    cluster.kubectl(&["--kubeconfig", path, "config", "set-context", "--current", "--user=lictor"]);
    file
}

/// Reads the table of rights in docs/operating.md.
fn rights_of_operating() -> Value {
    let section = include_str!("../../docs/operating.md").split("\n## ").find(|section| section.starts_with("Rights"));
    let rows = section.expect("there is one").lines().filter_map(|line| line.strip_prefix("| "));
    let rule = |row: &str| {
        let (resources, rest) = row.split_once(" | ")?;
        let verbs: Vec<_> =
            rest.split_once('|')?.0.split(',').map(str::trim).filter(|verb| VERBS.contains(verb)).collect();
        let (group, resources) = match resources.strip_prefix('`') {
            Some(named) => named.split_once("` ")?,
            None => ("", resources),
        };
        let resources: Vec<_> = resources.split(", ").collect();
        (!verbs.is_empty()).then(|| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
    };
    let rules: Vec<_> = rows.filter_map(rule).collect();
    assert!(rules.len() > 5, "{rules:?}");
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "lictor"}, "rules": rules,
    })
}

/// Reads the role in docs/workloads.md.
fn role_of_workloads() -> Value {
    let blocks = include_str!("../../docs/workloads.md").split("```").filter_map(|block| block.strip_prefix("yaml\n"));
    let role = blocks.into_iter().find(|block| block.contains("kind: ClusterRole\n")).expect("there is one");
    serde_saphyr::from_str(role).expect("it is YAML")
}

/// Waits until a Service reaches this pod and no other.
async fn reaches(lab: &Lab, service: &str, pod: &str) {
    let selector = format!("kubernetes.io/service-name={service}");
    let output = "-ojsonpath={.items[*].endpoints[*].targetRef.name}";
    eventually(&format!("{service} reaches {pod} alone"), || async {
        let reached = lab.try_kubectl(&["get", "endpointslices", "-l", &selector, output], None)?;
        if reached == pod { Ok(()) } else { Err(reached) }
    })
    .await;
}

/// Tests `service`, and `switchover`, `consul`, `bucket` and `hub` applied over it. The Service has no selector, and reaches the leader by the number that
/// its container gives the port.
async fn pods(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "pods").await;
    apply_example(&lab, "service");
    lab.wait_candidates(3, 3).await;
    let message = lab.wait_condition("web", "Routed", "True", "Routed").await;
    let leader = lab.wait_any_leader().await;
    assert!(message.contains(&leader), "{message}");
    reaches(&lab, "web-leader", &leader).await;
    let slice =
        lab.try_kubectl(&["get", "endpointslice", "web-leader-lictor-ipv4", "-ojsonpath={.ports[0].port}"], None);
    assert_eq!(slice.as_deref(), Ok("8080"));
    apply_example(&lab, "switchover");
    let complete = ["wait", "--for=condition=Complete", "switchover/web", "--timeout=60s"];
    lab.try_kubectl(&complete, None).unwrap_or_else(|error| panic!("{error}"));
    let next = lab.wait_any_leader().await;
    assert_ne!(next, leader);
    reaches(&lab, "web-leader", &next).await;
    apply_example(&lab, "consul");
    its_lock_is_shared_by(&lab, "consul").await;
    let settings = Buckets::shared(Kind::S3).create("example-locks").await;
    let endpoint = settings.endpoint.expect("a server of the tests has an address");
    apply_example_with(&lab, "bucket", BUCKET, &format!("s3://example-locks/lictor\n    endpoint: {endpoint}"));
    its_lock_is_shared_by(&lab, "bucket").await;
    // This control plane is its own hub here, reached by a kubeconfig all the same.
    let kubeconfig = cluster.kubectl(&["config", "view", "--raw", "--minify", "--flatten"]);
    cluster.kubectl(&["create", "namespace", "lictor-locks"]);
    cluster.kubectl(&["create", "secret", "generic", "hub", &format!("--from-literal=kubeconfig={kubeconfig}")]);
    apply_example(&lab, "hub");
    its_lock_is_shared_by(&lab, "hub").await;
}

/// Waits until a pod leads whose lock a class of this name keeps.
async fn its_lock_is_shared_by(lab: &Lab, class: &str) {
    let ready = ["wait", "--for=condition=Ready", &format!("electionclass/{class}"), "--timeout=60s"];
    let told = lab.try_kubectl(&ready, None);
    let shown = || lab.try_kubectl(&["get", "electionclass", class, "-oyaml"], None).unwrap_or_default();
    told.unwrap_or_else(|error| panic!("{error}\n{}", shown()));
    lab.wait_status("web", &format!("its lock has moved to the class {class}"), |election| {
        let status = election.status.as_ref().filter(|status| status.class_name.as_deref() == Some(class));
        let leader = status.and_then(|status| status.leader.as_ref());
        leader.and_then(|leader| leader.cluster_name.as_deref()) == Some("west")
    })
    .await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    lab.wait_any_leader().await;
}

/// The Service selects the label.
async fn label(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "label").await;
    apply_example(&lab, "label");
    lab.wait_candidates(3, 3).await;
    let leader = lab.wait_any_leader().await;
    reaches(&lab, "web-leader", &leader).await;
    lab.delete_pod(&leader).await;
    let next = eventually("another pod leads", || async {
        let next = lab.wait_any_leader().await;
        if next == leader { Err(next) } else { Ok(next) }
    })
    .await;
    reaches(&lab, "web-leader", &next).await;
}

/// Nothing runs in these pods: the lock is held in their names, by the account that they have. tests/node runs an agent with such a manifest.
async fn candidates(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "candidates").await;
    apply_example(&lab, "candidates");
    lab.wait_candidates(3, 3).await;
    let message = lab.wait_condition("web", "Elected", "False", "FollowedLockFree").await;
    assert!(message.contains("web-lock"), "{message}");
    let pods = lab.pods_api().list(&ListParams::default()).await.expect("pods can be listed");
    let mut terms = vec![];
    for pod in pods.iter().take(2) {
        let (name, account) = (pod.name_any(), format!("--as=system:serviceaccount:{}:web", lab.namespace));
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "web-lock"},
            "spec": {"holderIdentity": format!("{name}_5f2c"), "leaseDurationSeconds": 300},
        });
        lab.try_kubectl(&["apply", &account, "-f", "-"], Some(&lease.to_string()))
            .unwrap_or_else(|error| panic!("{error}"));
        lab.wait_leader(&name).await;
        reaches(&lab, "web-leader", &name).await;
        lab.wait_condition("web", "Elected", "True", "Elected").await;
        terms.push(lab.election("web").await.status.and_then(|status| status.term).expect("it has a term"));
    }
    assert!(terms[0] < terms[1], "{terms:?}");
    // The election keeps its own record in another Lease.
    assert!(lab.leases_api().get("web").await.is_ok());
}

/// What the pods read is tested in tests/examples.rs, and on real nodes.
async fn know(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "know").await;
    apply_example(&lab, "know");
    lab.wait_condition("know", "Elected", "True", "Elected").await;
    let leader = lab.election("know").await.status.and_then(|status| status.leader);
    let leader = leader.and_then(|leader| leader.pod_name).expect("a pod leads");
    reaches(&lab, "know-leader", &leader).await;
}

/// What a sidecar hears is tested in tests/observe. Here: its account may do what the sidecar needs, and nothing else.
async fn observe(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "observe").await;
    apply_example(&lab, "observe");
    for election in ["worker", "mailer"] {
        lab.wait_condition(election, "Elected", "True", "Elected").await;
    }
    let account = format!("--as=system:serviceaccount:{}:worker", lab.namespace);
    let may = |verb: &str, what: &str| lab.try_kubectl(&["auth", "can-i", verb, what, &account], None).is_ok();
    for (verb, what, expected) in [
        ("list", "leaderelections.lictor.dev/worker", true),
        ("watch", "leaderelections.lictor.dev/worker", true),
        ("watch", "leaderelections.lictor.dev/mailer", false),
        ("patch", "leaderelections.lictor.dev/worker", false),
        ("list", "pods", false),
    ] {
        assert_eq!(may(verb, what), expected, "{verb} {what}");
    }
}

async fn cron_job(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "cronjob").await;
    apply_example(&lab, "cronjob-between-clusters");
    let election = follows(&lab, "nightly").await;
    let leader = election.status.and_then(|status| status.leader).expect("there is a leader");
    assert_eq!((leader.cluster_name.as_deref(), leader.pod_name), (Some("west"), None));
    let report = api::<CronJob>(&lab).get("report").await.expect("it is there");
    assert_eq!(report.spec.as_ref().and_then(|spec| spec.suspend), Some(false));
    assert_eq!(written(&report, "lictor.dev/enabled"), Some("true"));
}

async fn cold_standby(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "standby").await;
    created_without_replicas(&lab);
    apply_example(&lab, "cold-standby");
    let election = follows(&lab, "importer").await;
    let workloads = election.status.and_then(|status| status.workloads).expect("the status tells of workloads");
    assert_eq!(workloads.wind_down_seconds, 15, "as the example says");
    eventually("two replicas run", || async {
        let importer = api::<Deployment>(&lab).get("importer").await.map_err(|error| error.to_string())?;
        let ready = importer.status.as_ref().and_then(|status| status.ready_replicas);
        if ready == Some(2) { Ok(()) } else { Err(format!("{:#?}", importer.status)) }
    })
    .await;
}

/// Types what the page and the manifest say, so that no pod runs before lictor lets it.
fn created_without_replicas(lab: &Lab) {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/workloads.md")).expect("it is there");
    let manifest = directory("cold-standby").join("deployment.yaml");
    let text = std::fs::read_to_string(&manifest).expect("it is there");
    let command =
        "kubectl patch --local -f deployment.yaml -p '{\"spec\":{\"replicas\":0}}' -o yaml | kubectl create -f -";
    assert!(page.contains(command) && text.contains(command), "both say {command}");
    let manifest = manifest.to_str().expect("the path is text");
    let patch = r#"{"spec":{"replicas":0}}"#;
    let empty = lab.try_kubectl(&["patch", "--local", "-f", manifest, "-p", patch, "-o", "yaml"], None);
    let empty = empty.unwrap_or_else(|error| panic!("{error}"));
    let empty: Value = serde_saphyr::from_str(&empty).expect("it is YAML");
    assert_eq!(empty["spec"]["replicas"], 0);
    lab.try_kubectl(&["create", "-f", "-"], Some(&empty.to_string())).unwrap_or_else(|error| panic!("{error}"));
}

async fn stateful_cold_standby(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "stateful").await;
    apply_example(&lab, "stateful-cold-standby");
    let election = follows(&lab, "archive").await;
    let workloads = election.status.and_then(|status| status.workloads).expect("the status tells of workloads");
    assert_eq!(workloads.wind_down_seconds, 15, "as the example says");
    let archive = api::<StatefulSet>(&lab).get("archive").await.expect("it is there");
    assert_eq!(archive.spec.as_ref().and_then(|spec| spec.replicas), Some(2));
    assert_eq!(written(&archive, "lictor.dev/enabled"), Some("true"));
}

async fn job(cluster: &'static Cluster) {
    let lab = Lab::of(cluster, "job").await;
    apply_example(&lab, "job-for-each-term");
    for _ in 0..2 {
        let election = follows(&lab, "ledger").await;
        let status = election.status.expect("it has a status");
        let term = status.term.expect("there is a term");
        eventually("the Job of the term has run, and is the only one", || async {
            let jobs = api::<Job>(&lab).list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let done = |job: &Job| job.status.as_ref().and_then(|status| status.succeeded) == Some(1);
            let told: Vec<_> = jobs.items.iter().map(|job| (job.name_any(), done(job))).collect();
            if told == [(format!("settle-{term}"), true)] { Ok(()) } else { Err(format!("{told:?}")) }
        })
        .await;
        let leader = status.leader.and_then(|leader| leader.pod_name).expect("a pod leads");
        lab.kill_pod(&leader).await;
        lab.wait_status("ledger", "another pod leads", |election| {
            let status = election.status.as_ref();
            let next = status.and_then(|status| status.leader.as_ref()).and_then(|leader| leader.pod_name.as_ref());
            next.is_some_and(|next| *next != leader) && status.and_then(|status| status.term) > Some(term)
        })
        .await;
    }
}

#[test]
fn the_examples_share_one_class() {
    let class = |example: &str| -> Value {
        let text = std::fs::read_to_string(directory(example).join("class.yaml")).expect("it has a class");
        serde_saphyr::from_str(&text).expect("it is YAML")
    };
    for example in ["cronjob-between-clusters", "cold-standby", "stateful-cold-standby"] {
        assert_eq!(class(example), class("consul"), "{example}");
    }
}

//! Three real pods behind a Service that reaches only the leader, and what a client of that Service sees when the leader fails.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use lictor_testing::kubernetes::{Recorder, Revision};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::nodes::Nodes;
use crate::timeline::{Steps, Timeline};
use crate::{eventually, files};

/// How long everything must work before each measurement. Then kube-proxy has no change pending that would delay the next one.
const CALM: Duration = Duration::from_millis(1500);
/// The program of each pod: a server that answers with the pod's name.
pub const PROGRAM: &str = "/bin/web";
/// An image whose server never closes a connection.
pub const KEEPS: &str = "web:node";
/// An image whose server lets its connections go when it does not lead any more.
pub const LETS_GO: &str = "lets-go:node";
/// The Service that reaches the leader.
const SERVICE: &str = "leader";
/// How many calls may be answered late where none may be lost. A tenth of a second has 20 calls.
const MOST_LATE: usize = 5;
/// On a pod that may not lead.
const NEVER: &str = "lictor.dev/never-leader";

/// A namespace with three pods, a Service `leader`, and its client.
pub struct Group<'a> {
    nodes: &'a Nodes,
    pub client: Client,
    pub name: &'static str,
    pub recorder: Recorder,
    pub caller: Caller,
    timeline: Timeline,
}

/// A pod that leads.
#[derive(Clone, Debug)]
pub struct Leader {
    pub pod: String,
    pub uid: String,
    pub term: Option<i64>,
    pub since: Instant,
}

/// The measurements of one failover.
#[derive(Clone, Copy, Debug)]
pub struct Failover {
    /// Just before the cause.
    pub began: Instant,
    /// The number of calls without an answer.
    pub lost: usize,
    /// The time from the cause to the next leader's label, as a watcher sees it.
    pub to_label: Duration,
    /// The time from there to the end of the first call that the next leader answered.
    pub to_answer: Duration,
    /// The time from the cause to the end of the first call that the next leader answered.
    pub to_reach: Duration,
    /// The longest time in which no call was answered.
    pub silence: Duration,
    /// What happened in between, if a watcher saw it.
    pub steps: Option<Steps>,
}

/// How clients reach the leader.
pub enum Reach {
    /// By its label, which the Service selects.
    Label,
    /// By a Service that the election makes. The election has these fields of its spec, too.
    Service(Value),
}

/// Tells what can be known about lost calls, if the test fails while this is there.
struct NetworkIfItFails<'a>(&'a Nodes);

impl Drop for NetworkIfItFails<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // All Services are behind the first node.
        self.0.order("tell network 1");
        eprintln!("== this machine");
        for table in [&["route"][..], &["route", "show", "cache"], &["neighbour"]] {
            let _ = Command::new("ip").args(table).status();
        }
    }
}

impl<'a> Group<'a> {
    /// Creates the group. If `probed`, Kubernetes probes the pods; otherwise they are ready while they run, and stop 2 s after
    /// they are told to.
    pub async fn make(nodes: &'a Nodes, name: &'static str, probed: bool, reach: Reach) -> Self {
        Self::make_of(nodes, name, KEEPS, probed, reach).await
    }

    /// Creates the group with pods of this image.
    pub async fn make_of(
        nodes: &'a Nodes,
        name: &'static str,
        image: &'static str,
        probed: bool,
        reach: Reach,
    ) -> Self {
        let client = nodes.client().await;
        nodes.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        let recorder = Recorder::start(client.clone(), name).await;
        let timeline = Timeline::start(&client, name, SERVICE).await;
        let mut container = json!({
            "name": "web", "image": image, "imagePullPolicy": "Never", "command": ["/bin/web"],
            "resources": {"requests": {"cpu": "200m", "memory": "16Mi"}},
            "volumeMounts": [{"name": "podinfo", "mountPath": files::MOUNTED}],
        });
        if probed {
            container["readinessProbe"] = json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 3});
        } else {
            container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 2}}});
        }
        let labels = json!({"app": "web"});
        nodes.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": name}, "spec": {
                "replicas": 3, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "terminationGracePeriodSeconds": 5, "containers": [container], "volumes": [files::volume()],
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": labels}}],
                    // Pods of a lost node are not replaced during this test.
                    "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
                }}}},
        ]}));
        match reach {
            Reach::Label => nodes.apply(&json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": name},
                "spec": {"selector": {"app": "web", "role": "leader"}, "ports": [{"port": 80, "targetPort": 8080}]},
            })),
            Reach::Service(mut fields) => {
                fields["service"] = json!({"name": SERVICE, "ports": [{"port": 80, "targetPort": 8080}]});
                elect(nodes, name, "leader", &fields);
            }
        }
        let caller = Caller::start(Self::address(&client, name, SERVICE).await);
        Self { nodes, client, name, recorder, caller, timeline }
    }

    /// Returns the address of the Service that reaches the leader.
    pub async fn leaders_address(&self) -> SocketAddr {
        Self::address(&self.client, self.name, SERVICE).await
    }

    /// Returns the address of a Service.
    pub async fn address(client: &Client, namespace: &str, service: &str) -> SocketAddr {
        let services = Api::<Service>::namespaced(client.clone(), namespace);
        let service = eventually("there is the Service", || async {
            services.get(service).await.map_err(|error| error.to_string())
        })
        .await;
        let address = service.spec.and_then(|spec| spec.cluster_ip).expect("it has an address");
        format!("{address}:80").parse().expect("an address")
    }

    /// Creates an election of this name, with these fields of its spec besides the selector.
    pub fn elect(&self, name: &str, fields: &Value) {
        elect(self.nodes, self.name, name, fields);
    }

    /// Waits until there are three pods.
    pub async fn runs(&self) {
        eventually("three pods are ready", || async {
            let ready = self.pods().values().filter(|pod| pod.ready && !pod.leaving).count();
            if ready == 3 { Ok(()) } else { Err(format!("{:#?}", self.pods())) }
        })
        .await;
    }

    /// Waits until one pod leads.
    pub async fn leader(&self) -> Leader {
        eventually("one pod leads", || async {
            self.pods().into_values().find_map(|pod| self.leads(&pod)).ok_or_else(|| format!("{:#?}", self.pods()))
        })
        .await
    }

    /// Waits until this many pods are ready, one of them leads, and only that one has answered all calls for a while.
    pub async fn calm(&self, pods: usize) -> Leader {
        let _why = NetworkIfItFails(self.nodes);
        eventually("all is calm", || async {
            let all = self.pods();
            let ready = all.values().filter(|pod| pod.ready && !pod.leaving).count();
            let leader = all.into_values().find_map(|pod| self.leads(&pod)).ok_or("nobody leads")?;
            let calls = self.caller.since(Instant::now().checked_sub(CALM).expect("this machine has run for longer"));
            let other = calls.iter().find(|call| call.answer.as_ref() != Ok(&leader.pod));
            let quiet =
                leader.since.elapsed().min(self.timeline.quiet_for()) >= CALM && calls.len() > 20 && other.is_none();
            let lost = calls.iter().filter(|call| call.answer.is_err()).count();
            let calls = calls.len();
            let why = || format!("{ready} are ready, {leader:?}, {lost} of {calls} calls lost, {other:?}");
            if ready == pods && quiet { Ok(leader) } else { Err(why()) }
        })
        .await
    }

    /// Does something to the leader, and measures how another pod takes over.
    pub async fn fails_over(&self, pods: usize, cause: impl AsyncFnOnce(&Leader)) -> Failover {
        let leader = self.calm(pods).await;
        let began = Instant::now();
        cause(&leader).await;
        let next = eventually("another pod leads", || async {
            let next = self.pods().into_values().find_map(|pod| self.leads(&pod));
            next.filter(|next| next.uid != leader.uid).ok_or_else(|| format!("{:#?}", self.pods()))
        })
        .await;
        let caused = |revision: &&Revision| revision.uid == leader.uid && revision.at >= began;
        let caused = self.recorder.revisions().iter().find(caused).map(|revision| revision.at);
        let run = self.watch(began, &next).await;
        Failover { steps: caused.and_then(|caused| self.timeline.steps(began, caused, &next.pod)), ..run }
    }

    /// Moves the leader to another pod, while both can answer.
    pub async fn is_moved(&self) -> Failover {
        let moved = self.calm(3).await.pod;
        let run = self.fails_over(3, async |leader| self.may_lead(&leader.pod, false).await).await;
        self.may_lead(&moved, true).await;
        run
    }

    /// Deletes the leader's pod.
    pub async fn is_deleted(&self) -> Failover {
        self.fails_over(3, async |leader| self.delete(&leader.pod, &DeleteParams::default()).await).await
    }

    /// Rolls all pods out again, once after the other, and waits until that is done.
    pub async fn is_rolled_out(&self, times: usize) -> Failover {
        let began = Instant::now();
        let run = self.fails_over(3, async |_| (0..times).for_each(|_| self.roll_out())).await;
        let leader = self.leader().await;
        // Leaders moved more than once: the calls of the whole time count, and no single move does.
        Failover { to_label: Duration::ZERO, steps: None, ..self.watch(run.began.max(began), &leader).await }
    }

    fn roll_out(&self) {
        self.nodes.kubectl(&["rollout", "restart", "-n", self.name, "deployment/web"]);
        self.nodes.kubectl(&["rollout", "status", "-n", self.name, "deployment/web", "--timeout=120s"]);
    }

    /// Kills the leader's process.
    pub async fn is_killed(&self) -> Failover {
        self.fails_over(3, async |leader| Self::signal(leader, "KILL")).await
    }

    /// Returns what the client saw from the cause to the first answers of the next leader.
    pub async fn watch(&self, began: Instant, next: &Leader) -> Failover {
        seen(&self.caller, began, &next.pod, next.since).await
    }

    /// Panics if one of the calls since then was lost, or more than a few were late.
    pub async fn assert_none_lost(&self, since: Instant, what: &str) {
        settled(&self.caller, Instant::now()).await;
        let calls = self.caller.since(since);
        let (mut lost, mut late) = (vec![], 0);
        for call in calls.iter().filter(|call| call.answer.is_err()) {
            if self.caller.was_late(call).await {
                late += 1;
            } else {
                lost.push(call);
            }
        }
        assert!(lost.is_empty(), "{what}: {} of {} calls were lost, first {:?}", lost.len(), calls.len(), lost.first());
        // A machine under load drops a packet now and then. A Service that is away for a moment delays many calls.
        assert!(
            late <= MOST_LATE,
            "{what}: {late} of {} calls were answered after more than half a second",
            calls.len()
        );
    }

    /// Sends a signal to a pod's program.
    pub fn signal(leader: &Leader, signal: &str) {
        lictor_testing::signal(signal, &[Nodes::process(&leader.uid, PROGRAM)]);
    }

    /// Deletes a pod.
    pub async fn delete(&self, pod: &str, parameters: &DeleteParams) {
        self.api().delete(pod, parameters).await.expect("a pod can be deleted");
    }

    /// Says that a pod may lead, or may not.
    pub async fn may_lead(&self, pod: &str, may: bool) {
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {NEVER: if may { Value::Null } else { json!("true") }}}}));
        self.api().patch(pod, &PatchParams::default(), &patch).await.expect("a pod can be annotated");
    }

    /// Makes a pod on this node the leader, and waits until everything works.
    pub async fn led_on(&self, node: &str) -> Leader {
        let elsewhere = format!("spec.nodeName!={node}");
        self.nodes.kubectl(&[
            "annotate",
            "pods",
            "-n",
            self.name,
            "--field-selector",
            &elsewhere,
            "--overwrite",
            &format!("{NEVER}=true"),
        ]);
        self.leader_on(node).await;
        self.nodes.kubectl(&["annotate", "pods", "-n", self.name, "--all", &format!("{NEVER}-")]);
        self.calm(3).await
    }

    /// Waits until a pod on this node leads.
    pub async fn leader_on(&self, node: &str) -> Leader {
        eventually(&format!("a pod on {node} leads"), || async {
            let leader = self.leader().await;
            let pod = self.api().get(&leader.pod).await.map_err(|error| error.to_string())?;
            let at = pod.spec.and_then(|spec| spec.node_name);
            if at.as_deref() == Some(node) { Ok(leader) } else { Err(format!("{at:?}")) }
        })
        .await
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), self.name)
    }

    /// Returns the last revision of each existing pod.
    pub fn pods(&self) -> BTreeMap<String, Revision> {
        let mut pods = BTreeMap::new();
        for revision in self.recorder.revisions() {
            pods.insert(revision.uid.clone(), revision);
        }
        pods.retain(|_, pod| !pod.deleted);
        pods
    }

    /// Returns the pod as a leader, with the time since when it leads, if it does.
    fn leads(&self, pod: &Revision) -> Option<Leader> {
        let leads = |revision: &Revision| revision.role.as_deref() == Some("leader") && !revision.deleted;
        if !leads(pod) {
            return None;
        }
        let revisions = self.recorder.revisions();
        let own =
            revisions.iter().rev().filter(|revision| revision.uid == pod.uid).take_while(|revision| leads(revision));
        let since = own.last().map_or(pod.at, |first| first.at);
        Some(Leader { pod: pod.pod.clone(), uid: pod.uid.clone(), term: pod.term, since })
    }
}

/// Creates an election of this name, with these fields of its spec besides the selector.
fn elect(nodes: &Nodes, namespace: &str, name: &str, fields: &Value) {
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
    for (field, value) in fields.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    nodes.apply(&json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    }));
}

/// Returns what a client sees from a cause to the first answers of the pod that got the label at this moment.
pub async fn seen(caller: &Caller, began: Instant, next: &str, labelled: Instant) -> Failover {
    let answered = eventually("the next leader answers", || async {
        let calls = caller.since(began);
        let first = calls.iter().filter(|call| call.answer.as_deref() == Ok(next)).map(|call| call.ended).min();
        first.ok_or_else(|| format!("{:?}", calls.last()))
    })
    .await;
    settled(caller, answered).await;
    let calls = caller.since(began);
    let mut good: Vec<Instant> = calls.iter().filter(|call| call.answer.is_ok()).map(|call| call.ended).collect();
    good.push(began);
    good.sort();
    Failover {
        began,
        lost: calls.iter().filter(|call| call.answer.is_err()).count(),
        to_label: labelled.saturating_duration_since(began),
        to_answer: answered.saturating_duration_since(labelled),
        to_reach: answered.saturating_duration_since(began),
        silence: good.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default(),
        steps: None,
    }
}

/// Waits until all calls that were sent up to this moment have ended.
async fn settled(caller: &Caller, moment: Instant) {
    eventually("the calls end", || async {
        let later = moment + Duration::from_millis(600);
        (!caller.since(later).is_empty()).then_some(()).ok_or_else(|| "no call after that".to_owned())
    })
    .await;
}

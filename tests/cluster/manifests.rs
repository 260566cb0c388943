//! Manifests drawn at random from what the API accepts: elections, Deployments and their labels, in any combination, on real
//! controllers. No election may multiply pods, destroy what is somebody else's, switch a workload off for good, or say what is not so.
//!
//! `make manifests MINUTES=30 SEED=7` runs it for longer, and draws others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PropagationPolicy};
use lictor_api::LeaderElection;
use lictor_testing::Prng;
use lictor_testing::kubernetes::{Lab, eventually};
use serde_json::{Value, json};

const APPS: [&str; 3] = ["a", "b", "c"];
const ELECTIONS: [&str; 4] = ["one", "two", "three", "four"];
/// The most replicas that a Deployment here asks for.
const REPLICAS: usize = 3;
/// What all Deployments ask for together, and as often again for a rollout, or for those of a Deployment that goes while the next one comes.
const MOST_PODS: usize = APPS.len() * 4 * REPLICAS;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map_or(default, |text| text.parse().expect("a number"))
}

/// A Deployment whose template and selector may have labels that elections write.
fn deployment(prng: &mut Prng, app: &str) -> Value {
    let mut labels = json!({"app": app});
    let mut selector = json!({"matchLabels": {"app": app}});
    if prng.percent(40) {
        let (key, value) = (pick(prng, &["role", "tier"]), pick(prng, &["leader", "follower", "backend"]));
        labels[key] = json!(value);
        if prng.percent(50) {
            selector["matchLabels"][key] = json!(value);
        }
    } else if prng.percent(30) {
        let mut expression = json!({"key": pick(prng, &["role", "tier"]), "operator": "DoesNotExist"});
        if prng.percent(50) {
            expression["operator"] = json!("NotIn");
            expression["values"] = json!([pick(prng, &["leader", "follower"])]);
        }
        selector["matchExpressions"] = json!([expression]);
    }
    // As who copies a pod into a template, but without its labels: docs/reliability.md says what that does.
    let bare = labels == json!({"app": app});
    let copied =
        if bare && prng.percent(10) { json!({"lictor.dev/election": pick(prng, &ELECTIONS)}) } else { json!({}) };
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app}, "spec": {
        "replicas": 1 + prng.below(REPLICAS), "selector": selector,
        "template": {"metadata": {"labels": labels, "annotations": copied}, "spec": {
            "containers": [{"name": "main", "image": "example/web:1"}], "terminationGracePeriodSeconds": 1,
        }},
    }})
}

fn election(prng: &mut Prng, name: &str) -> Value {
    let app = if prng.percent(10) { "typo" } else { pick(prng, &APPS) };
    let mut spec = json!({"selector": {"matchLabels": {"app": app}}});
    if prng.percent(40) {
        spec["leader"] = json!({"labels": {pick(prng, &["tier", "role"]): "leader"}});
        spec["follower"] = json!({"labels": if prng.percent(50) { json!({"role": "follower"}) } else { json!({}) }});
    }
    if prng.percent(15) {
        spec["whenLabelInUse"] = json!("Replace");
    }
    if prng.percent(40) {
        spec["workloads"] = json!([{"kind": "Deployment", "name": pick(prng, &APPS)}]);
    }
    if prng.percent(10) {
        spec["paused"] = json!(true);
    }
    json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": name}, "spec": spec})
}

fn pick<'a>(prng: &mut Prng, of: &[&'a str]) -> &'a str {
    of[prng.below(of.len())]
}

struct World {
    lab: Lab,
    deployments: Api<Deployment>,
    prng: Prng,
}

impl World {
    /// Does something that a user may do. What the API server refuses, is as good.
    async fn act(&mut self) {
        let app = pick(&mut self.prng, &APPS);
        let name = pick(&mut self.prng, &ELECTIONS);
        let apply = PatchParams::apply("test").force();
        match self.prng.below(10) {
            0 => drop(self.deployments.delete(app, &DeleteParams::background()).await),
            1 | 2 => {
                let object = deployment(&mut self.prng, app);
                drop(self.deployments.patch(app, &apply, &Patch::Apply(object)).await);
            }
            3 => {
                let orphan = self.prng.percent(30).then_some(PropagationPolicy::Orphan);
                let parameters = DeleteParams { propagation_policy: orphan, ..DeleteParams::default() };
                drop(self.lab.elections_api().delete(name, &parameters).await);
            }
            4..=7 => {
                let object = election(&mut self.prng, name);
                drop(self.lab.elections_api().patch(name, &apply, &Patch::Apply(object)).await);
            }
            8 => {
                let pods = self.pods().await;
                if let Some(pod) = self.prng.pick(&pods) {
                    drop(self.lab.pods_api().delete(&pod.name_any(), &DeleteParams::default()).await);
                }
            }
            _ => {
                let pods = self.pods().await;
                if let Some(pod) = self.prng.pick(&pods) {
                    let patch = json!({"metadata": {"labels": {"note": "mine"}}});
                    let merge = Patch::Merge(patch);
                    drop(self.lab.pods_api().patch(&pod.name_any(), &PatchParams::default(), &merge).await);
                }
            }
        }
    }

    async fn pods(&self) -> Vec<Pod> {
        self.lab.pods_api().list(&ListParams::default()).await.expect("pods can be listed").items
    }

    async fn elections(&self) -> Vec<LeaderElection> {
        self.lab.elections_api().list(&ListParams::default()).await.expect("elections can be listed").items
    }

    /// What a status says that is not so.
    async fn untrue(&self) -> Vec<String> {
        let (pods, elections) = (self.pods().await, self.elections().await);
        elections.iter().filter_map(|election| untrue(election, &pods)).collect()
    }
}

/// What the status of an election says that is not so.
fn untrue(election: &LeaderElection, pods: &[Pod]) -> Option<String> {
    let name = election.name_any();
    let Some(status) = &election.status else { return Some(format!("{name} has no status")) };
    let holds = |type_: &str| status.conditions.iter().any(|one| one.type_ == type_ && one.status == "True");
    let default: BTreeMap<String, String> = [("role".to_owned(), "leader".to_owned())].into();
    let labels = election.spec.leader.as_ref().and_then(|leader| leader.labels.clone()).unwrap_or(default);
    // While an election is refused or paused, its leader has the labels of the spec that was served last.
    let labelled = |pod: &Pod| labels.iter().all(|(key, value)| pod.labels().get(key) == Some(value));
    // A template may have a copy of the mark, and has no term.
    let marked = |pod: &&Pod| {
        let annotations = pod.annotations();
        annotations.get("lictor.dev/election") == Some(&name) && annotations.contains_key("lictor.dev/term")
    };
    let said = status.leader.as_ref().and_then(|leader| leader.pod_uid.as_deref());
    let is = |pod: &&Pod| pod.metadata.uid.as_deref() == said;
    let agrees = if holds("Accepted") && !holds("Paused") {
        let mut leaders = pods.iter().filter(marked).filter(|pod| labelled(pod));
        leaders.next().is_some_and(|pod| is(&pod)) == said.is_some() && leaders.next().is_none()
    } else {
        said.is_none() || pods.iter().filter(marked).any(|pod| is(&pod))
    };
    let agrees = agrees && (!holds("Elected") || said.is_some());
    let stale = status.observed_generation != election.metadata.generation;
    (!agrees || stale).then(|| {
        let pods = pods.iter().map(|pod| (pod.name_any(), &pod.metadata.uid, pod.labels(), pod.annotations()));
        let pods: Vec<_> = pods.collect();
        format!("{name}: the status says {said:?}: {:#?}\n{:#?}\n{pods:#?}", status.conditions, election.spec)
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for controllers for a minute"]
async fn no_manifest_harms_what_is_not_its_own() {
    let (seconds, seed) = (setting("LICTOR_MANIFEST_SECONDS", 60), setting("LICTOR_SEED", 1));
    let lab = Lab::new("manifests").await;
    let deployments: Api<Deployment> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let mut operator = lab.operator(&[]);
    let mut world = World { lab, deployments, prng: Prng::new(seed) };
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut done, mut most) = (0, 0);
    while Instant::now() < end {
        for _ in 0..=world.prng.below(12) {
            world.act().await;
            done += 1;
            let pods = world.pods().await;
            let living: Vec<&Pod> = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
            most = most.max(living.len());
            assert!(living.len() <= MOST_PODS, "seed {seed}: {} pods after {done} manifests", living.len());
            if let Some(left) = living.iter().find(|pod| pod.owner_references().is_empty()) {
                let pod = (left.name_any(), left.labels(), left.annotations());
                let sets: Api<ReplicaSet> = Api::namespaced(world.lab.client.clone(), &world.lab.namespace);
                let sets = sets.list(&ListParams::default()).await.expect("ReplicaSets can be listed").items;
                let sets = sets.into_iter().map(|set| (set.name_any(), set.spec.map(|spec| spec.selector)));
                let elections =
                    world.elections().await.into_iter().map(|election| (election.name_any(), election.spec));
                let (sets, elections): (Vec<_>, Vec<_>) = (sets.collect(), elections.collect());
                panic!("seed {seed}: {pod:#?} left its controller after {done} manifests: {sets:#?} {elections:#?}");
            }
        }
        if world.prng.percent(20) {
            operator.signal("KILL");
            operator.ended().await;
            operator = world.lab.operator(&[]);
        }
        eventually(&format!("seed {seed}, after {done} manifests: each status says what is so"), || async {
            let untrue = world.untrue().await;
            if untrue.is_empty() { Ok(()) } else { Err(untrue.join("\n")) }
        })
        .await;
    }
    println!("{done} manifests, at most {most} pods");
    for election in world.elections().await {
        drop(world.lab.elections_api().delete(&election.name_any(), &DeleteParams::default()).await);
    }
    eventually(&format!("seed {seed}: nothing is left of any election"), || async {
        let sets: Api<ReplicaSet> = Api::namespaced(world.lab.client.clone(), &world.lab.namespace);
        let sets = sets.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        for pod in world.pods().await {
            let template = pod.labels().get("pod-template-hash");
            let set = sets.iter().find(|set| set.labels().get("pod-template-hash") == template);
            let Some(set) = set.filter(|_| pod.metadata.deletion_timestamp.is_none()) else { continue };
            let spec = set.spec.clone().unwrap_or_default();
            let template = spec.template.and_then(|template| template.metadata).unwrap_or_default();
            let (wanted, copied) = (template.labels.unwrap_or_default(), template.annotations.unwrap_or_default());
            let mut have = pod.labels().clone();
            have.remove("note");
            let is_left = |key: &String| key.starts_with("lictor.dev/") && !copied.contains_key(key);
            if have != wanted || pod.annotations().keys().any(is_left) {
                return Err(format!("{wanted:?} was made, and is {:#?}", pod.metadata));
            }
        }
        for deployment in world.deployments.list(&ListParams::default()).await.map_err(|error| error.to_string())? {
            if deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(0) {
                return Err(format!("{} is switched off: {:#?}", deployment.name_any(), deployment.metadata));
            }
        }
        Ok(())
    })
    .await;
}

//! Faults of pods and nodes, and what people do by hand.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api as Objects, DeleteParams, EvictParams, Patch, PatchParams};
use lictor_testing::consul::Api;
use serde_json::{Value, json};

use super::{Course, delete, insist, patch};
use crate::faults::Kind;
use crate::picture::Picture;
use crate::record::{BY_HAND, Group, Kind as Store, PodSeen, What};
use crate::recorder::PREFIX;

impl Course<'_> {
    /// Returns one of the groups that have pods.
    fn a_group(&self, store: Option<Store>) -> Group {
        self.world.book.look(|picture| {
            let fits = |group: &&Group| store.map_or(group.kind != Store::Workload, |store| group.kind == store);
            let all: Vec<&Group> = picture.groups.values().filter(fits).collect();
            all[self.fault.target % all.len()].clone()
        })
    }

    /// Returns one of its pods: the leader, if there is one, or one that does not lead.
    fn a_pod(&self, group: &Group, leads: bool) -> Option<PodSeen> {
        self.world.book.look(|picture| {
            let fits = |pod: &&PodSeen| group.markings.shows_leader(&pod.to_core()) == leads;
            let all: Vec<&PodSeen> = picture.pods_of(group).collect();
            let found: Vec<&PodSeen> = all.iter().copied().filter(fits).collect();
            let from = if found.is_empty() { all } else { found };
            from.get(self.fault.target / 7 % from.len().max(1)).map(|pod| (*pod).clone())
        })
    }

    pub(super) async fn pod(&self) {
        let leads = !matches!(self.fault.kind, Kind::PodDeleted | Kind::PodUnready | Kind::PodRelabelled);
        let Some(pod) = self.a_pod(&self.a_group(None), leads) else { return };
        self.begins(&format!("{}/{}", pod.cluster, pod.name));
        let pods = self.world.pods(&pod.cluster);
        let name = pod.name.as_str();
        let annotation = |value: Value| json!({"metadata": {"annotations": {"lictor.dev/never-leader": value}}});
        match self.fault.kind {
            Kind::LeaderUnready | Kind::PodUnready => {
                set_ready(&pods, name, false).await;
                self.lasts().await;
                set_ready(&pods, name, true).await;
            }
            Kind::LeaderRelabelled | Kind::PodRelabelled => {
                patch(&pods, name, &json!({"metadata": {"labels": {"app": "elsewhere"}}})).await;
                self.lasts().await;
                patch(&pods, name, &json!({"metadata": {"labels": {"app": pod.group()}}})).await;
            }
            Kind::LeaderExcluded => {
                patch(&pods, name, &annotation(json!("true"))).await;
                self.lasts().await;
                patch(&pods, name, &annotation(Value::Null)).await;
            }
            Kind::PriorityChanged => {
                let priority = json!((self.fault.target % 5).to_string());
                patch(&pods, name, &json!({"metadata": {"annotations": {"lictor.dev/priority": priority}}})).await;
            }
            Kind::LeaderTerminates => {
                let slowly = json!({"metadata": {"annotations": {"test.lictor.dev/terminate-slowly": "true"}}});
                patch(&pods, name, &slowly).await;
                delete(&pods, name, DeleteParams::default().grace_period(600)).await;
                self.lasts().await;
                delete(&pods, name, DeleteParams::default().grace_period(0)).await;
            }
            Kind::LeaderForced => delete(&pods, name, DeleteParams::default().grace_period(0)).await,
            _ => delete(&pods, name, DeleteParams::default()).await,
        }
        self.ends();
    }

    pub(super) async fn group(&self) {
        let group = self.a_group(None);
        self.begins(&group.name);
        let pods: Vec<PodSeen> = self.world.book.look(|picture| picture.pods_of(&group).cloned().collect());
        for pod in pods {
            delete(&self.world.pods(&pod.cluster), &pod.name, DeleteParams::default().grace_period(0)).await;
        }
        self.ends();
    }

    pub(super) async fn node(&self) {
        let name = format!("node-{:06}", self.fault.target % 5);
        self.begins(&name);
        let nodes = self.world.nodes();
        patch(&nodes, &name, &json!({"spec": {"unschedulable": true}})).await;
        let on_it = |pod: &&PodSeen| pod.node.as_ref() == Some(&name);
        let pods: Vec<PodSeen> = self.world.book.look(|picture| picture.pods.values().filter(on_it).cloned().collect());
        for pod in pods {
            let api = self.world.pods(&pod.cluster);
            insist(|| async { api.evict(&pod.name, &EvictParams::default()).await.map(drop) }).await;
        }
        self.lasts().await;
        patch(&nodes, &name, &json!({"spec": {"unschedulable": null}})).await;
        self.ends();
    }

    /// Writes the leader's labels on a pod, or removes them, as a person would. Each attempt is recorded before it is sent.
    pub(super) async fn label(&self) {
        let (group, adds) = (self.a_group(None), self.fault.kind == Kind::LabelByHand);
        let Some(pod) = self.a_pod(&group, !adds) else { return };
        self.begins(&format!("{}/{}", pod.cluster, pod.name));
        let labels = group.markings.leader.labels.iter();
        let labels: Value =
            labels.map(|(key, value)| (key.to_owned(), if adds { json!(value) } else { Value::Null })).collect();
        let (pods, began) = (self.world.pods(&pod.cluster), Instant::now());
        for attempt in 0.. {
            let mark = format!("{}.{attempt}", self.number);
            self.world.book.write(What::Hand { mark: mark.clone() });
            let patch = json!({"metadata": {"labels": labels, "annotations": {BY_HAND: mark}}});
            let patched = pods.patch(&pod.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            if patched.is_ok() || began.elapsed() > Duration::from_secs(5) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.ends();
    }

    /// Takes the followers' labels off as soon as they are there.
    pub(super) async fn marks(&self) {
        let (group, began) = (self.a_group(None), Instant::now());
        self.begins(&group.name);
        let labels = group.markings.follower.labels.iter();
        let labels: Value = labels.map(|(key, _)| (key.to_owned(), Value::Null)).collect();
        let undone = json!({"metadata": {"labels": labels}});
        while began.elapsed() < Duration::from_millis(self.fault.millis) {
            let marked = |pod: &&PodSeen| {
                let mut marks = group.markings.follower.labels.iter();
                marks.any(|(key, value)| pod.labels.get(key).is_some_and(|shown| shown == value))
            };
            let pods = |picture: &Picture| picture.pods_of(&group).filter(marked).cloned().collect::<Vec<PodSeen>>();
            for pod in self.world.book.look(pods) {
                patch(&self.world.pods(&pod.cluster), &pod.name, &undone).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.ends();
    }

    pub(super) async fn lease(&self) {
        let group = self.a_group(Some(Store::Leases));
        self.begins(&group.name);
        let leases = self.world.api_of("Lease", Some(&group.clusters[0]));
        if self.fault.kind == Kind::LeaseEdited {
            patch(&leases, &group.name, &json!({"spec": {"holderIdentity": "nobody"}})).await;
        } else {
            insist(|| async { leases.delete(&group.name, &DeleteParams::default()).await.map(drop) }).await;
        }
        self.ends();
    }

    pub(super) async fn key(&self) {
        let group = self.a_group(Some(Store::Consul));
        let path = format!("/v1/kv/{PREFIX}{}", group.name);
        let detail = if self.fault.kind == Kind::SessionDestroyed { self.fault.cluster() } else { &group.name };
        self.begins(detail);
        for server in self.world.consul.servers() {
            let api = server.api();
            let done = match self.fault.kind {
                Kind::KeyEdited => {
                    // These are the flags of Consul's own library. With them, the key is still a lock.
                    let kept = format!("{path}?flags=3304740253564472344");
                    api.put(&kept, "by hand").await.is_ok_and(|answer| answer.status == 200)
                }
                Kind::KeyForged => self.forge(&api, &path, &group).await.is_some(),
                Kind::KeyOverwritten => api.put(&path, "by hand").await.is_ok_and(|answer| answer.status == 200),
                Kind::KeyDeleted => api.delete(&path).await.is_ok_and(|answer| answer.status == 200),
                _ => match api.get(&format!("/v1/session/node/lictor-{}", self.fault.cluster())).await {
                    Ok(answer) if answer.status == 200 => {
                        let id = answer.json()[0]["ID"].as_str().unwrap_or_default().to_owned();
                        api.put(&format!("/v1/session/destroy/{id}"), "").await.is_ok()
                    }
                    _ => false,
                },
            };
            if done {
                break;
            }
        }
        self.ends();
    }

    /// Writes a record that claims all pods, in place of the one that is there. Returns `None` if the server does not answer.
    async fn forge(&self, api: &Api, path: &str, group: &Group) -> Option<()> {
        let entry = api.get(path).await.ok().filter(|answer| answer.status == 200)?.json()[0].clone();
        let mut record = api.get(&format!("{path}?raw")).await.ok().filter(|answer| answer.status == 200)?.json();
        let claimed = json!({"selector": {}, "leader": &group.markings.leader, "follower": &group.markings.follower});
        // By hand there may be anything.
        if record.is_object() {
            match self.fault.target % 2 {
                0 => record["former"] = json!([claimed]),
                _ => record["scope"] = claimed,
            }
            let (flags, version) = (&entry["Flags"], &entry["ModifyIndex"]);
            api.put(&format!("{path}?flags={flags}&cas={version}"), &record.to_string()).await.ok()?;
        }
        Some(())
    }

    pub(super) async fn preference(&self) {
        let group = self.a_group(None);
        let preferences = json!([{"weight": 10, "nodeSelector": {"kubernetes.io/hostname": format!("node-{:06}", self.fault.target % 5)}}]);
        self.begins(&group.name);
        for cluster in &group.clusters {
            let elections = self.world.api_of("LeaderElection", Some(cluster));
            patch(&elections, &group.name, &json!({"spec": {"preferences": preferences}})).await;
        }
        self.ends();
    }
}

async fn set_ready(pods: &Objects<Pod>, name: &str, ready: bool) {
    let condition = json!({
        "type": "Ready", "status": if ready { "True" } else { "False" },
        "lastTransitionTime": k8s_openapi::jiff::Timestamp::now().to_string(),
    });
    let patch = json!({"status": {"conditions": [condition]}});
    insist(|| async { pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop) })
        .await;
}

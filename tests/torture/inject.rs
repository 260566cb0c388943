//! Carries out faults, each with its end. While the API server is away, requests to it are repeated for a while.

mod objects;
mod servers;
mod switchovers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::Value;

use super::faults::{CLUSTERS, Fault, Kind};
use super::record::What;
use super::world::World;

/// How long a request is repeated: as long as a fault may keep the API server away.
const PERSISTENCE: Duration = Duration::from_secs(40);

/// A fault under way: its targets, and how to record it.
struct Course<'a> {
    world: &'a World,
    number: usize,
    fault: Fault,
}

impl World {
    /// Waits until everything that a fault disturbs works, carries the fault out, and ends it. Skips the fault if it would begin
    /// too late.
    pub async fn carry_out(self: Arc<Self>, number: usize, fault: Fault, before: Instant) {
        let fault = match fault.kind {
            Kind::OperatorStoppedAtWork | Kind::ApiLinkLate | Kind::PeerLinkCut | Kind::TakenForGone => {
                self.of_the_acting(fault).await
            }
            _ => fault,
        };
        let parts = fault.needs();
        if !self.take_turn(&parts, before).await {
            return;
        }
        let course = Course { world: &self, number, fault };
        match fault.kind {
            Kind::OperatorKilled | Kind::OperatorStopped | Kind::OperatorStoppedAtWork | Kind::OperatorEnded => {
                course.operators(&[fault.replica()]).await;
            }
            Kind::OperatorsKilled | Kind::OperatorsStopped => course.operators(&[0, 1]).await,
            Kind::ApiServerKilled | Kind::ApiServerStopped => course.component("kube-apiserver").await,
            Kind::EtcdKilled | Kind::EtcdStopped => course.component("etcd").await,
            Kind::ConsulKilled | Kind::ConsulStopped => course.consul(vec![fault.server()]).await,
            Kind::ConsulWithoutQuorum => course.consul(vec![fault.server(), (fault.server() + 1) % 3]).await,
            Kind::ConsulLeaderKilled | Kind::ConsulLeaderStopped => {
                let leader = self.consul.leader().await.socket();
                let at = self.consul.servers().iter().position(|server| server.socket() == leader);
                course.consul(vec![at.expect("it is one of them")]).await;
            }
            Kind::ApiLinkCut
            | Kind::ApiLinkDeaf
            | Kind::ApiLinkMute
            | Kind::ApiLinkReset
            | Kind::ApiLinkSlow
            | Kind::ApiLinkLate => course.link(&[&self.api_links[cluster_at(&fault)][fault.replica()]]).await,
            Kind::PeerLinkCut | Kind::PeerLinkDeaf => {
                // What leads to the replica.
                course.link(&[&self.peer_links[cluster_at(&fault)][fault.replica()]]).await;
            }
            Kind::TakenForGone => {
                let (cluster, replica) = (cluster_at(&fault), fault.replica());
                course.taken_for_gone(&self.api_links[cluster][replica], &self.peer_links[cluster][replica]).await;
            }
            Kind::ConsulLinkCut
            | Kind::ConsulLinkDeaf
            | Kind::ConsulLinkMute
            | Kind::ConsulLinkReset
            | Kind::ConsulLinkSlow => {
                let cluster = cluster_at(&fault);
                let all = std::iter::once(&self.consul_links[cluster]).chain(&self.object_links[cluster]);
                course.link(&all.collect::<Vec<_>>()).await;
            }
            Kind::GroupDeleted => course.group().await,
            Kind::NodeDrained => course.node().await,
            Kind::LabelByHand | Kind::UnlabelByHand => course.label().await,
            Kind::MarksUndone => course.marks().await,
            Kind::LeaseEdited | Kind::LeaseDeleted => course.lease().await,
            Kind::KeyEdited | Kind::KeyForged | Kind::KeyOverwritten | Kind::KeyDeleted | Kind::SessionDestroyed => {
                course.key().await;
            }
            Kind::PreferenceChanged => course.preference().await,
            Kind::SwitchoverAsked => course.switchover().await,
            _ => course.pod().await,
        }
        self.end_turn(&parts);
    }
}

impl Course<'_> {
    fn begins(&self, detail: &str) {
        let (number, fault, detail) = (self.number, self.fault, detail.to_string());
        self.world.book.write(What::Fault { number, fault, begins: true, detail });
    }

    fn ends(&self) {
        let (number, fault) = (self.number, self.fault);
        self.world.book.write(What::Fault { number, fault, begins: false, detail: String::new() });
    }

    async fn lasts(&self) {
        tokio::time::sleep(Duration::from_millis(self.fault.millis)).await;
    }
}

impl World {
    pub fn pods(&self, cluster: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), cluster)
    }

    fn nodes(&self) -> Api<kube::api::DynamicObject> {
        self.api_of("Node", None)
    }
}

fn cluster_at(fault: &Fault) -> usize {
    CLUSTERS.iter().position(|cluster| *cluster == fault.cluster()).unwrap_or_default()
}

/// Repeats a request until the API server has answered it, with whatever answer.
async fn insist<F: Future<Output = Result<(), kube::Error>>>(send: impl Fn() -> F) {
    let began = Instant::now();
    while began.elapsed() < PERSISTENCE {
        match send().await {
            Ok(()) => return,
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn patch<K>(api: &Api<K>, name: &str, patch: &Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    insist(|| async { api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop) }).await;
}

async fn delete(pods: &Api<Pod>, name: &str, parameters: DeleteParams) {
    insist(|| async { pods.delete(name, &parameters).await.map(drop) }).await;
}

//! An independent watcher, with its own client and connections. It shares no code with the operator's watches.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use lictor_api::{LeaderElection, LeaderElectionStatus};
use lictor_testing::consul::Api as Consul;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::machine::Busy;

/// How long nothing must have been written anywhere before a measurement.
const QUIET: Duration = Duration::from_millis(150);
/// The share of the cores above which another process must be working, because this control plane does nothing.
const BUSY: f64 = 0.3;

/// A namespace and a name.
pub type Id = (String, String);

/// What is seen of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSight {
    /// Its label `role`.
    pub role: Option<String>,
    /// Whether its condition Ready is true.
    pub ready: bool,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
}

/// A sight: one change that was seen.
#[derive(Clone, Debug)]
pub enum Sight {
    /// A pod. `None` means that it is gone.
    Pod(Id, Option<PodSight>),
    /// The holder of a Lease.
    Lease(Id, Option<String>),
    /// The lock's key in Consul: the session that holds it, the pod that its record names, and whether that says that all has ended.
    Key { session: Option<String>, holder: Option<String>, ended: bool },
    /// The status of an election.
    Election(Id, Box<LeaderElectionStatus>),
    /// Whether a CronJob is suspended.
    CronJob(Id, bool),
    /// Whether a Deployment has the condition Available.
    Deployment(Id, bool),
    /// The pod that an EndpointSlice names.
    Slice(Id, Option<String>),
    /// Another write.
    Other,
}

/// Sees everything from its creation on.
pub struct Observer {
    sights: mpsc::UnboundedReceiver<(Instant, Sight)>,
    /// The last sight of each pod.
    pub pods: BTreeMap<Id, PodSight>,
    /// The last sight of each election's status.
    pub elections: BTreeMap<Id, LeaderElectionStatus>,
    /// The last sight of each Lease's holder.
    pub leases: BTreeMap<Id, Option<String>>,
    /// The last sight of whether each CronJob is suspended.
    pub cron_jobs: BTreeMap<Id, bool>,
    /// The last sight of whether each Deployment is available.
    pub deployments: BTreeMap<Id, bool>,
    _watches: JoinSet<()>,
}

#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = k8s::Pod)]
struct SlimPod {
    metadata: ObjectMeta,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SlimStatus {
    #[serde(default)]
    conditions: Vec<SlimCondition>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Observer {
    /// Watches pods, elections and Leases of the whole cluster, and with `events` also Events.
    pub async fn start(client: &Client, events: bool) -> anyhow::Result<Self> {
        Self::with_key(client, events, None).await
    }

    /// Does the same, and watches a key in Consul.
    pub async fn with_key(client: &Client, events: bool, key: Option<(Consul, String)>) -> anyhow::Result<Self> {
        let (sender, sights) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        follow(&mut watches, &sender, Api::all(client.clone()), |pod, gone| Some(see_pod(pod, gone))).await?;
        follow(&mut watches, &sender, Api::all(client.clone()), |lease: &Lease, _| {
            // The heartbeats of nodes do not matter here.
            (lease.namespace().as_deref() != Some("kube-node-lease")).then(|| {
                let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                Sight::Lease(id(lease), holder.filter(|holder| !holder.is_empty()))
            })
        })
        .await?;
        if events {
            follow(&mut watches, &sender, Api::all(client.clone()), |_: &Event, _| Some(Sight::Other)).await?;
        }
        Self::with_elections(client, key, sender, sights, watches).await
    }

    /// Watches pods, elections and slices.
    pub async fn of_slices(client: &Client) -> anyhow::Result<Self> {
        let (sender, sights) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        follow(&mut watches, &sender, Api::all(client.clone()), |pod, gone| Some(see_pod(pod, gone))).await?;
        follow(&mut watches, &sender, Api::all(client.clone()), |slice: &EndpointSlice, _| {
            let named = slice.endpoints.first().and_then(|endpoint| endpoint.target_ref.as_ref()?.name.clone());
            Some(Sight::Slice(id(slice), named))
        })
        .await?;
        Self::with_elections(client, None, sender, sights, watches).await
    }

    /// Watches elections, CronJobs and Deployments, and a key in Consul.
    pub async fn of_workloads(client: &Client, key: (Consul, String)) -> anyhow::Result<Self> {
        let (sender, sights) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        follow(&mut watches, &sender, Api::all(client.clone()), |job: &CronJob, _| {
            let suspended = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or_default();
            Some(Sight::CronJob(id(job), suspended))
        })
        .await?;
        follow(&mut watches, &sender, Api::all(client.clone()), |deployment: &Deployment, _| {
            let conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let available = conditions.into_iter().any(|c| c.type_ == "Available" && c.status == "True");
            Some(Sight::Deployment(id(deployment), available))
        })
        .await?;
        follow(&mut watches, &sender, Api::all(client.clone()), |_: &Event, _| Some(Sight::Other)).await?;
        Self::with_elections(client, Some(key), sender, sights, watches).await
    }

    async fn with_elections(
        client: &Client,
        key: Option<(Consul, String)>,
        sender: mpsc::UnboundedSender<(Instant, Sight)>,
        sights: mpsc::UnboundedReceiver<(Instant, Sight)>,
        mut watches: JoinSet<()>,
    ) -> anyhow::Result<Self> {
        follow(&mut watches, &sender, Api::all(client.clone()), |election: &LeaderElection, _| {
            Some(Sight::Election(id(election), Box::new(election.status.clone().unwrap_or_default())))
        })
        .await?;
        if let Some((consul, key)) = key {
            watches.spawn(follow_key(sender, consul, key));
        }
        Ok(Self {
            sights,
            pods: BTreeMap::new(),
            elections: BTreeMap::new(),
            leases: BTreeMap::new(),
            cron_jobs: BTreeMap::new(),
            deployments: BTreeMap::new(),
            _watches: watches,
        })
    }

    /// Returns the next sight, and when it was seen.
    pub async fn next(&mut self) -> anyhow::Result<(Instant, Sight)> {
        let (at, sight) = self.sights.recv().await.context("the watches ended")?;
        match &sight {
            Sight::Pod(id, Some(pod)) => _ = self.pods.insert(id.clone(), pod.clone()),
            Sight::Pod(id, None) => _ = self.pods.remove(id),
            Sight::Election(id, status) => _ = self.elections.insert(id.clone(), (**status).clone()),
            Sight::Lease(id, holder) => _ = self.leases.insert(id.clone(), holder.clone()),
            Sight::CronJob(id, suspended) => _ = self.cron_jobs.insert(id.clone(), *suspended),
            Sight::Deployment(id, available) => _ = self.deployments.insert(id.clone(), *available),
            Sight::Key { .. } | Sight::Slice(..) | Sight::Other => {}
        }
        Ok((at, sight))
    }

    /// Returns the first sight that `fits`, within `patience`.
    pub async fn find<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut fits: impl FnMut(Instant, &Sight) -> Option<T>,
    ) -> anyhow::Result<T> {
        let found = timeout(patience, async {
            loop {
                let (at, sight) = self.next().await?;
                if let Some(found) = fits(at, &sight) {
                    return anyhow::Ok(found);
                }
            }
        });
        found.await.with_context(|| format!("not within {patience:?}: {what}"))?
    }

    /// Waits until the sights satisfy a condition.
    pub async fn until(&mut self, what: &str, patience: Duration, holds: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let found = timeout(patience, async {
            while !holds(self) {
                self.next().await?;
            }
            anyhow::Ok(())
        });
        found.await.with_context(|| format!("not within {patience:?}: {what}"))?
    }

    /// Waits until nothing is written, and for at most this long until no other process keeps the cores busy. Returns whether both
    /// happened.
    pub async fn calm(&mut self, wait: Duration) -> anyhow::Result<bool> {
        let end = Instant::now() + wait;
        loop {
            let busy = Busy::look()?;
            self.quiet(QUIET).await?;
            let calm = busy.share()? <= BUSY;
            if calm || Instant::now() > end {
                return Ok(calm);
            }
        }
    }

    /// Looks on for this long, whatever is seen.
    pub async fn pass(&mut self, period: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + period;
        while let Ok(seen) = tokio::time::timeout_at(end.into(), self.next()).await {
            seen?;
        }
        Ok(())
    }

    /// Waits until nothing was seen for this long.
    pub async fn quiet(&mut self, period: Duration) -> anyhow::Result<()> {
        while let Ok(seen) = timeout(period, self.next()).await {
            seen?;
        }
        Ok(())
    }
}

/// Reports each change of a key, for as long as somebody listens.
async fn follow_key(sender: mpsc::UnboundedSender<(Instant, Sight)>, consul: Consul, key: String) {
    let (mut index, mut last) = (0, None);
    while !sender.is_closed() {
        let path = format!("/v1/kv/{key}?index={index}&wait=60s");
        let request = consul.request(reqwest::Method::GET, &path).timeout(Duration::from_secs(75));
        let Ok(answer) = Consul::send(request).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let at = Instant::now();
        index = answer.index.unwrap_or_default();
        let entry = &answer.json()[0];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let record = entry["Value"].as_str().and_then(|value| STANDARD.decode(value).ok());
        let record: Value = record.and_then(|record| serde_json::from_slice(&record).ok()).unwrap_or_default();
        let ended = record["drainObligation"]["ended"] == true;
        let seen = (text(&entry["Session"]), text(&record["holder"]["pod"]), ended);
        if last.as_ref() != Some(&seen) {
            last = Some(seen.clone());
            let (session, holder, ended) = seen;
            if sender.send((at, Sight::Key { session, holder, ended })).is_err() {
                return;
            }
        }
    }
}

fn see_pod(pod: &SlimPod, gone: bool) -> Sight {
    let holds = |condition: &SlimCondition| condition.type_ == "Ready" && condition.status == "True";
    let sight = PodSight {
        role: pod.labels().get("role").cloned(),
        ready: pod.status.conditions.iter().any(holds),
        deleting: pod.metadata.deletion_timestamp.is_some(),
    };
    Sight::Pod(id(pod), (!gone).then_some(sight))
}

fn id(object: &impl ResourceExt) -> Id {
    (object.namespace().unwrap_or_default(), object.name_any())
}

async fn follow<K>(
    watches: &mut JoinSet<()>,
    sender: &mpsc::UnboundedSender<(Instant, Sight)>,
    api: Api<K>,
    look: impl Fn(&K, bool) -> Option<Sight> + Send + Sync + 'static,
) -> anyhow::Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let sender = sender.clone();
    let first = api.list(&ListParams::default()).await?;
    let mut version = first.metadata.resource_version.clone().context("a list has a version")?;
    for sight in first.items.iter().filter_map(|object| look(object, false)) {
        sender.send((Instant::now(), sight))?;
    }
    watches.spawn(async move {
        loop {
            let Ok(stream) = api.watch(&WatchParams::default().timeout(290), &version).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let mut stream = stream.boxed();
            while let Some(Ok(event)) = stream.next().await {
                let at = Instant::now();
                let (object, gone) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                    WatchEvent::Deleted(object) => (object, true),
                    WatchEvent::Bookmark(bookmark) => {
                        version = bookmark.metadata.resource_version;
                        continue;
                    }
                    // The watch is broken. Whoever waits sees the end of the sights.
                    WatchEvent::Error(_) => return,
                };
                if let Some(newer) = object.resource_version() {
                    version = newer;
                }
                if let Some(sight) = look(&object, gone)
                    && sender.send((at, sight)).is_err()
                {
                    return;
                }
            }
        }
    });
    Ok(())
}

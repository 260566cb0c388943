//! When a watcher saw each step of a handover: the record that names the next leader, and the slice.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, ResourceExt};
use lictor_testing::kubernetes::record;
use tokio::task::JoinHandle;

/// The steps after a cause, each as the time since the cause was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// The cause is there: the old leader's pod has changed.
    pub cause: Duration,
    /// The Lease names the next leader.
    pub record: Duration,
    /// A slice of the Service names the next leader: lictor's own, or Kubernetes' where the Service selects a label.
    pub slice: Duration,
}

/// Watches the Leases and slices of a namespace until it is dropped.
pub struct Timeline {
    records: Watch,
    slices: Watch,
}

struct Watch {
    seen: Arc<Mutex<Vec<Sight>>>,
    task: JoinHandle<()>,
}

/// What an object named, and when that was seen.
#[derive(Clone, Debug)]
struct Sight {
    at: Instant,
    pods: Vec<String>,
}

impl Timeline {
    /// `service`: whose slices are watched.
    pub async fn start(client: &Client, namespace: &str, service: &'static str) -> Self {
        let holder = |lease: &Lease, _| {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
            Sight { at: Instant::now(), pods: holder.into_iter().collect() }
        };
        let endpoints = move |slice: &EndpointSlice, deleted: bool| {
            let of = slice.labels().get("kubernetes.io/service-name").is_some_and(|of| of == service);
            let pods = slice.endpoints.iter().filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone());
            Sight { at: Instant::now(), pods: pods.filter(|_| of && !deleted).collect() }
        };
        let (seen, task) = record(Api::<Lease>::namespaced(client.clone(), namespace), holder).await;
        let records = Watch { seen, task };
        let (seen, task) = record(Api::<EndpointSlice>::namespaced(client.clone(), namespace), endpoints).await;
        Self { records, slices: Watch { seen, task } }
    }

    /// How long no slice has changed.
    pub fn quiet_for(&self) -> Duration {
        self.slices.seen.lock().unwrap().last().map_or(Duration::MAX, |last| last.at.elapsed())
    }

    /// Returns the steps from a cause, which was seen at this moment, to the next leader; `None` if one was not seen: the lock is not
    /// in a Lease, or nobody was put into a slice.
    pub fn steps(&self, asked: Instant, caused: Instant, next: &str) -> Option<Steps> {
        let since = |at: Instant| at.saturating_duration_since(asked);
        let record = since(self.records.first(asked, next)?);
        Some(Steps { cause: since(caused), record, slice: since(self.slices.first(asked, next)?) })
    }
}

impl Watch {
    /// When this pod was named first since then.
    fn first(&self, since: Instant, pod: &str) -> Option<Instant> {
        let seen = self.seen.lock().unwrap();
        let later = seen.iter().rev().take_while(|sight| sight.at >= since);
        later.filter(|sight| sight.pods.iter().any(|named| named == pod)).last().map(|sight| sight.at)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

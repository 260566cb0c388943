//! Slices of other Services that change all the time, as in a cluster in which other things happen. kube-proxy carries out each
//! change, at most one in `minSyncPeriod`, so others have to wait for their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::nodes::Nodes;

const NAMESPACE: &str = "noise";
/// The time between two changes of a Service with a cluster IP.
const PERIOD: Duration = Duration::from_millis(200);
/// The Services with a cluster IP, which take turns. Beside the last one, a headless one changes, too.
const SERVICES: u32 = 5;
const HEADLESS: &str = "headless";

/// Changes them until it is dropped.
pub struct Noise {
    changes: Arc<AtomicU32>,
    began: Instant,
    task: JoinHandle<()>,
}

impl Noise {
    pub async fn start(nodes: &Nodes) -> Self {
        let service = |name: &str, cluster_ip: Option<&str>| {
            let spec = match cluster_ip {
                Some(address) => json!({"clusterIP": address, "ports": [{"port": 80}]}),
                None => json!({"ports": [{"port": 80}]}),
            };
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
        };
        let slice = |name: &str| {
            let mut labels = json!({
                "kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "noise",
            });
            // As Kubernetes labels its own.
            if name == HEADLESS {
                labels["service.kubernetes.io/headless"] = json!("");
            }
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
                "addressType": "IPv4", "endpoints": endpoints(0), "ports": [{"name": "", "port": 80}],
            })
        };
        let names: Vec<String> = (0..SERVICES).map(|number| format!("noise-{number}")).collect();
        let mut objects: Vec<Value> =
            vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})];
        for name in &names {
            objects.extend([service(name, None), slice(name)]);
        }
        objects.extend([service(HEADLESS, Some("None")), slice(HEADLESS)]);
        nodes.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));

        let slices: Api<EndpointSlice> = Api::namespaced(nodes.client().await, NAMESPACE);
        let changes = Arc::new(AtomicU32::new(0));
        let counted = changes.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval(PERIOD);
            let parameters = PatchParams::default();
            for round in 1_u32.. {
                for name in &names {
                    ticks.tick().await;
                    let patch = Patch::Merge(json!({"endpoints": endpoints(round)}));
                    slices.patch(name, &parameters, &patch).await.expect("a slice can be changed");
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                let patch = Patch::Merge(json!({"endpoints": endpoints(round)}));
                slices.patch(HEADLESS, &parameters, &patch).await.expect("a slice can be changed");
            }
        });
        Self { changes, began: Instant::now(), task }
    }

    /// Panics if there were less than four changes a second: then it was no noise.
    pub fn assert_heard(&self) {
        let (changes, time) = (self.changes.load(Ordering::Relaxed), self.began.elapsed());
        println!("noise: slices of Services with a cluster IP changed {changes} times in {time:.0?}");
        assert!(f64::from(changes) >= 4.0 * time.as_secs_f64(), "{changes} changes in {time:?}");
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An address that nobody has (RFC 5737), and another one in the next round.
fn endpoints(round: u32) -> Value {
    json!([{"addresses": [format!("192.0.2.{}", 1 + round % 2)], "conditions": {"ready": true}}])
}

//! Kubernetes' own controllers.

use std::sync::Arc;
use std::time::Duration;

use lictor_testing::Prng;

use crate::judge::WORKLOAD;
use crate::servers::api::ApiServer;
use crate::world::{GRACE, NAMESPACE};

/// The controller of the Deployment, whose pods take up to their grace period to end.
pub async fn run_deployment(api: Arc<ApiServer>, mut prng: Prng) {
    let mut newest = api.newest();
    loop {
        let _ = newest.borrow_and_update();
        let Some(object) = api.get("deployments", NAMESPACE, WORKLOAD) else { return };
        let (wanted, present) = (object["spec"]["replicas"].as_u64(), object["status"]["replicas"].as_u64());
        let generation = object["metadata"]["generation"].clone();
        if object["status"]["observedGeneration"] != generation {
            api.edit("deployments", NAMESPACE, WORKLOAD, |deployment| {
                deployment["status"]["observedGeneration"] = generation;
            });
        }
        if wanted == present {
            let _ = newest.changed().await;
            continue;
        }
        let takes = if wanted > present { 300 } else { GRACE * 1_000 };
        let takes = prng.below(usize::try_from(takes).unwrap_or(1));
        tokio::time::sleep(Duration::from_millis(u64::try_from(takes).unwrap_or(0))).await;
        api.edit("deployments", NAMESPACE, WORKLOAD, |deployment| {
            let wanted = deployment["spec"]["replicas"].clone();
            deployment["status"]["replicas"] = wanted;
        });
    }
}

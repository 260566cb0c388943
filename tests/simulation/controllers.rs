//! Kubernetes' own controllers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use lictor_testing::Prng;
use serde_json::json;

use crate::judge::{Judge, WORKLOAD};
use crate::log::Log;
use crate::process::EPOCH;
use crate::programs::Programs;
use crate::servers::api::ApiServer;
use crate::world::{APPS, GRACE, NAMESPACE, PODS, create_pod};

/// A CronJob that starts something in each minute, where the workload runs.
pub const CRON_JOB: &str = "report";
/// How often it does, in milliseconds.
pub const PERIOD: u64 = 60_000;
/// How long its controller may act by what it saw before, in milliseconds.
const HEARS_WITHIN: usize = 2_000;
/// How soon what belonged to an object that is gone is deleted, in milliseconds.
const COLLECTS_WITHIN: usize = 3_000;

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

/// The controller of the CronJob: it starts the last tick that was not started yet.
pub async fn run_cron_job(api: Arc<ApiServer>, mut prng: Prng, judge: Arc<Mutex<Judge>>, log: Log, cluster: usize) {
    // What it acts by, and since when there is something else.
    let (mut heard, mut changed) = (true, None::<u64>);
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Some(object) = api.get("cronjobs", NAMESPACE, CRON_JOB) else { return };
        let (now, suspended) = (log.now(), object["spec"]["suspend"] == true);
        if suspended == heard {
            changed = None;
        } else {
            let due = *changed.get_or_insert_with(|| now + u64::try_from(prng.below(HEARS_WITHIN)).unwrap_or(0));
            if now >= due {
                (heard, changed) = (suspended, None);
            }
        }
        let due = now / PERIOD * PERIOD;
        let last = object["status"]["lastScheduleTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let last = last.map_or(0, |time| u64::try_from(time.as_millisecond() - EPOCH).unwrap_or(0));
        if heard || last >= due {
            continue;
        }
        let time = Timestamp::from_millisecond(EPOCH + i64::try_from(due).unwrap_or(0)).unwrap_or_default();
        api.edit("cronjobs", NAMESPACE, CRON_JOB, |cron_job| {
            cron_job["status"]["lastScheduleTime"] = json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        });
        judge.lock().unwrap().start_tick(cluster, due);
    }
}

/// The kubelets, and the controller of the pods of elections: a pod that is deleted, and whose object stays, ends some time later, or much
/// later, unless its node is lost. A pod that is gone is made anew by the same name.
pub async fn run_kubelets(api: Arc<ApiServer>, programs: Arc<Programs>, mut prng: Prng, log: Log) {
    let (newest, mut seen) = (api.newest(), 0);
    let (mut ends, mut missing) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let version = *newest.borrow();
        if version == seen && ends.is_empty() && missing.is_empty() {
            continue;
        }
        seen = version;
        let now = log.now();
        let mut draw = |below: &[usize]| {
            let below = below[prng.below(below.len())];
            now + u64::try_from(prng.below(below)).unwrap_or(0)
        };
        for name in APPS.iter().flat_map(|app| (0..PODS).map(move |pod| format!("{app}-{pod}"))) {
            let Some(pod) = api.get("pods", NAMESPACE, &name) else {
                ends.remove(&name);
                if *missing.entry(name.clone()).or_insert_with(|| draw(&[2_000]) + 1_000) <= now {
                    missing.remove(&name);
                    create_pod(&api, &name);
                    programs.start(&name);
                }
                continue;
            };
            missing.remove(&name);
            let deleted = pod["metadata"]["deletionTimestamp"].is_string() && pod["metadata"]["finalizers"].is_array();
            if !deleted || pod["status"]["phase"] == "Failed" {
                ends.remove(&name);
                continue;
            }
            let due = *ends.entry(name.clone()).or_insert_with(|| draw(&[300, 3_000, 30_000]));
            let node = api.get("nodes", "", pod["spec"]["nodeName"].as_str().unwrap_or_default());
            if due <= now && node.is_none_or(|node| node["spec"]["taints"].is_null()) {
                programs.kill(&name);
                api.edit("pods", NAMESPACE, &name, |pod| {
                    pod["status"]["phase"] = json!("Failed");
                    pod["status"]["containerStatuses"] =
                        json!([{"name": "main", "state": {"terminated": {"exitCode": 0}}}]);
                });
            }
        }
    }
}

/// The garbage collector: deletes the Leases of elections that are gone.
pub async fn collect_garbage(api: Arc<ApiServer>, mut prng: Prng, log: Log) {
    let mut orphans = BTreeMap::<String, u64>::new();
    let (newest, mut seen) = (api.newest(), 0);
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let version = *newest.borrow();
        if version == seen && orphans.is_empty() {
            continue;
        }
        seen = version;
        let elections = api.all("leaderelections");
        let lives = |uid: &serde_json::Value| elections.iter().any(|election| election["metadata"]["uid"] == *uid);
        for resource in ["leases", "endpointslices"] {
            for object in api.all(resource) {
                let Some(name) = object["metadata"]["name"].as_str() else { continue };
                let owner = &object["metadata"]["ownerReferences"][0]["uid"];
                if owner.is_null() || lives(owner) {
                    orphans.remove(name);
                    continue;
                }
                let now = log.now();
                let within = u64::try_from(prng.below(COLLECTS_WITHIN)).unwrap_or(0);
                if *orphans.entry(name.into()).or_insert(now + within) <= now {
                    orphans.remove(name);
                    api.remove(resource, NAMESPACE, name);
                }
            }
        }
    }
}

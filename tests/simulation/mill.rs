//! O1, O2: a controller that lets go of pods which it does not select any more, and makes others in their place; and an election of its
//! pods, whose labels it may select by.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lictor_testing::Prng;
use serde_json::{Value, json};

use crate::judge::Judge;
use crate::programs::address;
use crate::run::FAULTS_UNTIL;
use crate::servers::api::{ApiServer, Object};
use crate::users::ROLE;
use crate::world::NAMESPACE;

/// The app of its pods, and the name of the controller and of the election.
const MILL: &str = "mill";
/// How many pods it wants.
const PODS: usize = 3;
/// How many there may be at most where lictor can't read what the controller selects by: each of two replicas may label all three before
/// it sees that they leave, and the first that is seen to have no place may be labelled, too.
const MOST: usize = 9;
/// How often one of its pods is deleted, in milliseconds.
const DELETES_EVERY: usize = 40_000;

/// How a controller selects its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selects {
    /// By the app alone.
    App,
    /// Only those without the label that the election writes.
    Unlabelled,
    /// All but the leader.
    Followers,
}

/// One of a cluster.
#[derive(Clone)]
pub struct Mill {
    api: Arc<ApiServer>,
    selects: Selects,
    /// Whether it is a ReplicaSet, which lictor can read.
    is_known: bool,
}

impl Mill {
    /// Makes the controller, and the election of its pods.
    pub fn new(api: Arc<ApiServer>, seed: u64) -> Self {
        let (selects, is_known) = match seed % 5 {
            0 => (Selects::App, true),
            1 => (Selects::Unlabelled, true),
            2 => (Selects::Followers, true),
            3 => (Selects::Unlabelled, false),
            _ => (Selects::Followers, false),
        };
        let mill = Self { api, selects, is_known };
        mill.api.edit("replicasets", NAMESPACE, MILL, |controller| {
            let expressions = match selects {
                Selects::App => json!([]),
                Selects::Unlabelled => json!([{"key": ROLE.0, "operator": "DoesNotExist"}]),
                Selects::Followers => json!([{"key": ROLE.0, "operator": "NotIn", "values": [ROLE.1]}]),
            };
            let selector = json!({"matchLabels": {"app": MILL}, "matchExpressions": expressions});
            controller["spec"] = json!({"replicas": PODS, "selector": selector});
        });
        mill.api.edit("leaderelections", NAMESPACE, MILL, |election| {
            election["spec"] = json!({"selector": {"matchLabels": {"app": MILL}}});
        });
        mill
    }

    /// Runs until the end.
    pub async fn run(self, mut prng: Prng, judge: Arc<Mutex<Judge>>) {
        let (mut newest, mut made) = (self.api.newest(), 0_usize);
        let (mut seen, mut pods) = (0, Vec::new());
        let begun = tokio::time::Instant::now();
        let (mut deletes, calm) =
            (begun + drawn(&mut prng, DELETES_EVERY), begun + Duration::from_millis(FAULTS_UNTIL));
        loop {
            let version = *newest.borrow_and_update();
            if version != seen {
                (seen, pods) = (version, self.pods());
            }
            let most = if self.is_known { PODS } else { MOST };
            if pods.len() > most {
                judge.lock().unwrap().verdict.get_or_insert_with(|| format!("{} pods of {self:?}", pods.len()));
                return;
            }
            let owned: Vec<&Object> = pods.iter().filter(|pod| is_owned(pod)).collect();
            for pod in owned.iter().filter(|pod| !self.selects(pod)) {
                self.api.edit("pods", NAMESPACE, name(pod), |pod| pod["metadata"]["ownerReferences"] = Value::Null);
            }
            let owned: Vec<&Object> = owned.into_iter().filter(|pod| self.selects(pod)).collect();
            if owned.len() < PODS {
                tokio::time::sleep(drawn(&mut prng, 300)).await;
                made += 1;
                self.make(&format!("{MILL}-{made}"));
                continue;
            }
            tokio::select! {
                _ = newest.changed() => {}
                () = tokio::time::sleep_until(deletes), if deletes < calm => {
                    deletes += drawn(&mut prng, DELETES_EVERY);
                    self.api.remove("pods", NAMESPACE, name(owned[prng.below(owned.len())]));
                }
            }
        }
    }

    /// What is not as it should be, when all is well.
    pub fn verdict(&self) -> Option<String> {
        let election = self.api.get("leaderelections", NAMESPACE, MILL)?;
        let conditions = election["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let (about, holds, labelled) = match (self.selects, self.is_known) {
            (Selects::App, _) => ("Elected", "True", PODS),
            (_, true) => ("Accepted", "False", 0),
            (_, false) => return None,
        };
        let told = conditions.iter().find(|condition| condition["type"] == about).cloned().unwrap_or_default();
        let written = self.pods().iter().filter(|pod| pod["metadata"]["labels"][ROLE.0].is_string()).count();
        let right = told["status"] == holds && written == labelled;
        (!right).then(|| format!("{written} pods of {self:?} are labelled, and its election says {told}"))
    }

    fn pods(&self) -> Vec<Object> {
        let pods = self.api.all("pods").into_iter();
        pods.filter(|pod| pod["metadata"]["labels"]["app"] == MILL).collect()
    }

    fn selects(&self, pod: &Value) -> bool {
        let role = &pod["metadata"]["labels"][ROLE.0];
        match self.selects {
            Selects::App => true,
            Selects::Unlabelled => role.is_null(),
            Selects::Followers => role != ROLE.1,
        }
    }

    fn make(&self, name: &str) {
        let controller = self.api.get("replicasets", NAMESPACE, MILL).unwrap_or_default();
        let api_version = if self.is_known { "apps/v1" } else { "mills.example.com/v1" };
        self.api.edit("pods", NAMESPACE, name, |pod| {
            pod["metadata"]["labels"] = json!({"app": MILL});
            pod["metadata"]["generateName"] = json!(format!("{MILL}-"));
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": api_version, "kind": "ReplicaSet", "name": MILL, "uid": controller["metadata"]["uid"],
                "controller": true,
            }]);
            pod["spec"] = json!({"nodeName": "n0", "containers": []});
            pod["status"] = json!({
                "phase": "Running", "podIP": address(name),
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            });
        });
    }
}

impl std::fmt::Debug for Mill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { selects, is_known, .. } = self;
        write!(f, "a controller that selects by {selects:?} (known: {is_known})")
    }
}

fn is_owned(pod: &Value) -> bool {
    pod["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty())
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

fn drawn(prng: &mut Prng, most: usize) -> Duration {
    Duration::from_millis(u64::try_from(prng.below(most)).unwrap_or(0))
}

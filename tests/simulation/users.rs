//! The elections as their users write them: their specs are changed, they are paused, deleted, and made again by the same name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::controllers::CRON_JOB;
use crate::judge::WORKLOAD;
use crate::log::Log;
use crate::servers::api::ApiServer;
use crate::shared::CLASS;
use crate::world::{APPS, NAMESPACE};

/// The Deployment that has to be available where the workloads run.
pub const NEEDED: &str = "database";
/// How many scopes there are: which pods are selected, and by which labels they are marked.
pub const SCOPES: usize = 3;
/// The names that a Lease with a lock can have.
pub const LEASES: [&str; 2] = ["web", "web-b"];
/// A leader's label by each scope.
pub const ROLE: (&str, &str) = ("role", "leader");
pub const ACTIVE: (&str, &str) = ("active", "true");

/// What users change of an election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    pub scope: usize,
    /// Its lock has another name than the election.
    pub renamed: bool,
    pub rules: usize,
    pub paused: bool,
    /// Through which Service the leader is reached: see [`services`].
    pub routing: usize,
    /// The pods elect their leader themselves, by a Lease: see [`followed_lease`].
    pub followed: bool,
    /// What becomes of the former leader: see [`FORMER`].
    pub former: usize,
}

/// What may become of a former leader.
pub const FORMER: [&str; 3] = ["Keep", "Delete", "DeleteFirst"];

/// The Services of an app, of which its election names one, or none.
pub fn services(app: &str) -> [String; 2] {
    [format!("{app}-leader"), format!("{app}-other")]
}

/// The Lease that the pods of an app hold themselves.
pub fn followed_lease(app: &str) -> String {
    format!("held-{app}")
}

impl Spec {
    fn json(self, app: &str) -> Value {
        let mut spec = json!({"paused": self.paused});
        if app != LEASES[0] {
            spec["className"] = json!(CLASS);
        }
        if app == WORKLOAD {
            let deployment = json!({"kind": "Deployment", "name": WORKLOAD, "replicas": 2});
            spec["workloads"] = json!([deployment, {"kind": "CronJob", "name": CRON_JOB}]);
            spec["eligibility"] = json!({"availableDeploymentName": NEEDED});
            return spec;
        }
        if let Some(service) = services(app).get(self.routing) {
            spec["service"] = json!({"name": service});
        }
        if self.followed {
            spec["electedBy"] = json!("Candidates");
            spec["followedLock"] = json!({"lease": {"name": followed_lease(app)}});
        } else {
            // Beside the kubelet, which shows what happened to a program later.
            spec["probe"] = json!({"connection": {"port": 8080}});
        }
        let selected_by = if self.scope == 2 { "tier" } else { "app" };
        spec["selector"] = json!({"matchLabels": {selected_by: app}});
        if self.scope == 1 {
            spec["leader"] = json!({"labels": {ACTIVE.0: ACTIVE.1}});
            spec["follower"] = json!({"labels": {}});
        }
        if self.renamed {
            spec["key"] = json!(LEASES[1]);
        }
        if self.rules > 0 {
            let preemption = if self.followed { 0 } else { self.rules % 2 };
            spec["preemption"] = json!(["Never", "HigherPriority"][preemption]);
            spec["eligibility"] = json!({"minReadySeconds": self.rules});
            spec["handover"] = json!({"failoverDelaySeconds": self.rules});
        }
        if self.former > 0 {
            spec["handover"]["formerLeader"] = json!(FORMER[self.former]);
            spec["handover"]["respectDisruptionBudgets"] = json!(self.rules.is_multiple_of(2));
        }
        spec
    }
}

/// The users of one cluster.
pub struct Users {
    api: Arc<ApiServer>,
    log: Log,
    cluster: &'static str,
    wanted: Mutex<BTreeMap<&'static str, Wanted>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    spec: Spec,
    /// It was deleted, and is made again after this moment.
    absent_until: u64,
}

impl Users {
    /// Makes all elections.
    pub fn new(api: Arc<ApiServer>, log: Log, cluster: &'static str) -> Arc<Self> {
        let apps = [WORKLOAD].into_iter().chain(APPS);
        let users = Self { api, log, cluster, wanted: Mutex::new(apps.map(|app| (app, Wanted::default())).collect()) };
        users.make_missing();
        Arc::new(users)
    }

    /// Changes the spec of an election, also of one that is gone and will be made again.
    pub fn change(&self, app: &str, change: impl FnOnce(&mut Spec)) {
        let mut wanted = self.wanted.lock().unwrap();
        let Some(wanted) = wanted.get_mut(app) else { return };
        change(&mut wanted.spec);
        let spec = wanted.spec;
        self.log.note(|| format!("{}: {app} is to be {spec:?}", self.cluster));
        if self.api.get("leaderelections", NAMESPACE, app).is_some() {
            self.api.edit("leaderelections", NAMESPACE, app, |election| election["spec"] = spec.json(app));
        }
    }

    /// Deletes an election, and makes it again after this moment.
    pub fn delete(&self, app: &str, absent_until: u64) {
        if let Some(wanted) = self.wanted.lock().unwrap().get_mut(app) {
            wanted.absent_until = absent_until;
        }
        self.log.note(|| format!("{}: {app} is deleted", self.cluster));
        self.api.delete("leaderelections", NAMESPACE, app);
    }

    /// Nothing is paused, nothing stays deleted, operators elect, and former leaders run on.
    pub fn settle(&self) {
        for app in [WORKLOAD].into_iter().chain(APPS) {
            let Spec { paused, followed, former, .. } = self.spec(app);
            if paused || followed || former > 0 {
                self.change(app, |spec| (spec.paused, spec.followed, spec.former) = (false, false, 0));
            }
        }
        self.wanted.lock().unwrap().values_mut().for_each(|wanted| wanted.absent_until = 0);
    }

    pub fn spec(&self, app: &str) -> Spec {
        self.wanted.lock().unwrap().get(app).map(|wanted| wanted.spec).unwrap_or_default()
    }

    /// The label of a leader by the present spec.
    pub fn leader_label(&self, app: &str) -> (&'static str, &'static str) {
        if self.spec(app).scope == 1 { ACTIVE } else { ROLE }
    }

    /// Makes again what was deleted, for as long as the simulation lasts.
    pub async fn go_on(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.make_missing();
        }
    }

    fn make_missing(&self) {
        let (wanted, now) = (self.wanted.lock().unwrap().clone(), self.log.now());
        for (app, Wanted { spec, absent_until }) in wanted {
            if now >= absent_until && self.api.get("leaderelections", NAMESPACE, app).is_none() {
                self.api.edit("leaderelections", NAMESPACE, app, |election| election["spec"] = spec.json(app));
            }
        }
    }

    /// What an election of pods that is settled should have cleaned up, and has not.
    pub fn untidy(&self, app: &str) -> Option<String> {
        let election = self.api.get("leaderelections", NAMESPACE, app)?;
        let spec = self.spec(app);
        let own = |lease: &Value| lease["metadata"]["labels"]["lictor.dev/election-uid"] == election["metadata"]["uid"];
        let stray = LEASES[usize::from(!spec.renamed)];
        if self.api.get("leases", NAMESPACE, stray).is_some_and(|lease| app == LEASES[0] && own(&lease)) {
            return Some(format!("{app} has left the Lease {stray}"));
        }
        let selected_by = if spec.scope == 2 { "tier" } else { "app" };
        for pod in self.api.all("pods") {
            let labels = &pod["metadata"]["labels"];
            let (name, role) = (&pod["metadata"]["name"], labels["role"].as_str());
            let unmarked = spec.scope != 1 && !matches!(role, Some("leader" | "follower"));
            if labels[selected_by] == app && unmarked {
                return Some(format!("{name} is no follower of {app}"));
            }
        }
        None
    }
}

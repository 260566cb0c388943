//! Users who ask for another leader.

use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use super::{Course, insist};
use crate::faults::CLUSTERS;
use crate::record::{Group, Kind, PodSeen};
use crate::world::World;

/// How long a Switchover waits that has a deadline, in seconds.
const PATIENCE: u32 = 15;
/// How long the old leader comes last, in seconds: not for so long that the order of the candidates is always the same.
const HOLD: u32 = 5;

impl Course<'_> {
    /// Asks for another leader, in the term that the election's status shows, as `kubectl lictor switchover` does. Whatever comes of it
    /// is judged by what the API server shows.
    pub(super) async fn switchover(&self) {
        let (group, leads) = self.world.book.look(|picture| {
            let all: Vec<&Group> = picture.groups.values().collect();
            let group = all[self.fault.target % all.len()].clone();
            let leads = picture.leaders(&group).first().map(|leader| leader.cluster.clone());
            (group, leads)
        });
        let cluster = leads.unwrap_or_else(|| group.clusters[self.fault.target % group.clusters.len()].clone());
        let Some(term) = self.world.term_of(&group, &cluster).await else { return };
        let asked = self.targets(&group, &cluster);
        self.begins(&format!("{cluster}/{} from term {term}: {}", group.name, json!(asked)));
        for (at, mut spec) in asked.into_iter().enumerate() {
            (spec["electionName"], spec["fromTerm"], spec["holdSeconds"]) =
                (json!(group.name), json!(term), json!(HOLD));
            if self.fault.target.is_multiple_of(2) {
                spec["deadlineSeconds"] = json!(PATIENCE);
            }
            self.world.ask(&cluster, &format!("asked-{}-{at}", self.number), &spec).await;
        }
        self.ends();
    }

    /// To whom the leadership is to move: one, or two that can't both be right.
    fn targets(&self, group: &Group, cluster: &str) -> Vec<Value> {
        let pods: Vec<String> = self.world.book.look(|picture| {
            let own = picture.pods_of(group).filter(|pod| pod.cluster == cluster);
            let follows = |pod: &&PodSeen| !group.markings.shows_leader(&pod.to_core());
            own.filter(follows).map(|pod| pod.name.clone()).collect()
        });
        let pod = pods.get(self.fault.target / 5 % pods.len().max(1));
        let other = CLUSTERS.iter().find(|other| **other != cluster);
        let across = other.filter(|_| group.clusters.len() > 1).map(|other| json!({"toClusterName": other}));
        let named = pod.map(|pod| json!({"toPodName": pod}));
        match self.fault.target % 5 {
            _ if group.kind == Kind::Workload => across.into_iter().collect(),
            0 => vec![json!({})],
            1 => pod.map(|pod| json!({"toPodName": pod, "force": true})).into_iter().collect(),
            2 => across.or(named).into_iter().collect(),
            3 => named.into_iter().collect(),
            _ => named.into_iter().chain([across.unwrap_or_else(|| json!({}))]).collect(),
        }
    }
}

impl World {
    /// Returns the term that an election's status shows.
    pub async fn term_of(&self, group: &Group, cluster: &str) -> Option<i64> {
        let found = self.api_of("LeaderElection", Some(cluster)).get(&group.name).await.ok()?;
        found.data["status"]["term"].as_i64()
    }

    /// Creates a Switchover.
    pub async fn ask(&self, cluster: &str, name: &str, spec: &Value) {
        let switchovers = self.api_of("Switchover", Some(cluster));
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "Switchover", "metadata": {"name": name}, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).expect("a Switchover");
        // A second one by the same name is refused: the first one counts.
        insist(|| async { switchovers.create(&PostParams::default(), &object).await.map(drop) }).await;
    }
}

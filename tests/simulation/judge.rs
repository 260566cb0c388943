//! Judges every change of a pod, in both clusters together: what was promised.

use std::collections::{BTreeMap, BTreeSet};

use lictor::core::{Term, invariants};
use serde_json::Value;

use crate::log::Log;
use crate::servers::api::Change;

/// A group: of one cluster, or of both together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub app: String,
    /// None: it has its lock in Consul, and pods in both clusters.
    pub cluster: Option<usize>,
}

/// The name of the workload that follows the leader between the clusters, and of its election.
pub const WORKLOAD: &str = "live";

/// After a cluster's operators or its API server were hurt, it takes so long until its labels are known to be right: the operator's
/// own Lease has to run out, and whatever is on its way has to arrive.
const HEALING: u64 = 60_000;

pub struct Judge {
    log: Log,
    /// By cluster and pod: its uid, and whether it shows the leader's label.
    leaders: BTreeMap<(usize, String), String>,
    /// Leaders' labels that a person wrote.
    by_hand: BTreeSet<String>,
    terms: BTreeMap<Group, (Term, String)>,
    /// By cluster, of the workload: whether it is enabled, and whether anything of it runs.
    workload: [(bool, bool); 2],
    /// Until when each cluster can't be held to what is promised between clusters.
    hurt_until: [u64; 2],
    pub verdict: Option<String>,
    pub figures: Figures,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub revisions: u64,
    pub leaderships: u64,
    /// Two leaders in two clusters of which one was hurt.
    pub excused: u64,
}

impl Judge {
    pub fn new(log: Log) -> Self {
        Self {
            log,
            leaders: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            terms: BTreeMap::new(),
            workload: [(false, false); 2],
            hurt_until: [0; 2],
            verdict: None,
            figures: Figures::default(),
        }
    }

    /// A fault of the operators or the API server of a cluster lasts until this moment.
    pub fn hurt(&mut self, cluster: usize, until: u64) {
        self.hurt_until[cluster] = self.hurt_until[cluster].max(until + HEALING);
    }

    /// A lock is taken from a cluster that can't hear of it in time: what it relies on is until when its session lasts by itself.
    pub fn rob(&mut self, cluster: usize, until: u64) {
        self.hurt_until[cluster] = self.hurt_until[cluster].max(until);
    }

    /// A person did away with the lock of a cluster's group: its terms go on from what is still known.
    pub fn forget_term(&mut self, cluster: usize, known: Term) {
        for (group, (term, leader)) in &mut self.terms {
            if group.cluster == Some(cluster) && *term > known {
                (*term, *leader) = (known, String::new());
            }
        }
    }

    fn fail(&mut self, why: String) {
        self.log.note(|| format!("!!! {why}"));
        self.verdict.get_or_insert(why);
    }

    /// The pods that show the leader's label, as "cluster/pod"; of the workload, where it is enabled.
    pub fn leaders(&self, group: &Group) -> Vec<String> {
        if group.app == WORKLOAD {
            let enabled = self.workload.iter().enumerate().filter(|(_, (enabled, _))| *enabled);
            return enabled.map(|(cluster, _)| format!("{cluster}/{WORKLOAD}")).collect();
        }
        let of_group = |(cluster, pod): &(usize, String)| {
            pod.starts_with(&group.app) && group.cluster.is_none_or(|only| only == *cluster)
        };
        self.leaders.keys().filter(|key| of_group(key)).map(|(cluster, pod)| format!("{cluster}/{pod}")).collect()
    }

    /// An API server made a change.
    pub fn see(&mut self, cluster: usize, change: &Change) {
        if change.resource == "deployments" {
            return self.see_workload(cluster, change);
        }
        if change.resource != "pods" {
            return;
        }
        self.figures.revisions += 1;
        let object = change.after.as_ref().or(change.before.as_ref()).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&object["metadata"]["name"]), text(&object["metadata"]["uid"]));
        let leads = |object: &Option<Value>| {
            object.as_ref().is_some_and(|object| object["metadata"]["labels"]["role"] == "leader")
        };
        let (led, leads) = (leads(&change.before), leads(&change.after));
        if change.by_hand && leads && !led {
            self.by_hand.insert(uid.clone());
        } else if !change.by_hand || !leads {
            self.by_hand.remove(&uid);
        }
        let key = (cluster, name.clone());
        if leads {
            self.leaders.insert(key, uid.clone())
        } else {
            self.leaders.remove(&key)
        };
        if change.by_hand || !leads {
            return;
        }
        let app = text(&object["metadata"]["labels"]["app"]);
        let group = Group { cluster: (app != "db").then_some(cluster), app };
        let term = text(&object["metadata"]["annotations"]["lictor.dev/term"]).parse().map(Term).unwrap_or_default();
        self.check(&group, cluster, term, &uid);
    }

    fn see_workload(&mut self, cluster: usize, change: &Change) {
        let Some(object) = &change.after else { return };
        let some = |of: &str| object[of]["replicas"].as_u64().is_some_and(|replicas| replicas > 0);
        self.workload[cluster] = (some("spec"), some("spec") || some("status"));
        let now = self.log.now();
        if invariants::at_most_one(self.workload.iter().map(|(_, runs)| *runs)) {
            return;
        }
        if self.hurt_until.iter().any(|until| now < *until) {
            self.figures.excused += 1;
        } else {
            self.fail("the workload runs in both clusters".into());
        }
    }

    fn check(&mut self, group: &Group, cluster: usize, term: Term, uid: &str) {
        let now = self.log.now();
        let showing: Vec<usize> = self
            .leaders
            .iter()
            .filter(|((_, pod), uid)| pod.starts_with(&group.app) && !self.by_hand.contains(*uid))
            .map(|((of, _), _)| *of)
            .collect();
        if !invariants::at_most_one(showing.iter().map(|of| *of == cluster)) {
            return self.fail(format!("two leaders of {} in one cluster", group.app));
        }
        let hurt = self.hurt_until.iter().any(|until| now < *until);
        if group.cluster.is_none() && !invariants::at_most_one(showing.iter().map(|_| true)) {
            if hurt {
                self.figures.excused += 1;
                return;
            }
            return self.fail(format!("leaders of {} in both clusters", group.app));
        }
        let before = self.terms.get(group).cloned();
        if before.as_ref().is_some_and(|(known, leader)| *known == term && leader == uid) {
            return;
        }
        if !invariants::term_rises(before.as_ref().map(|(term, _)| *term), term) {
            if group.cluster.is_none() && hurt {
                return;
            }
            return self.fail(format!("{uid} leads {} in term {term}, and before it was {before:?}", group.app));
        }
        self.figures.leaderships += 1;
        self.terms.insert(group.clone(), (term, uid.to_owned()));
    }
}

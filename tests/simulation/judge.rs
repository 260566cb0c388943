//! Judges every change of a pod and of the workload, in both clusters together: what was promised.

mod tests;

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{Term, invariants};
use serde_json::Value;

use crate::excuse::{Condition, Excuse, Loss};
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
/// The app of the pods that have one leader in both clusters.
const SHARED: &str = "db";
/// How long what a cluster disables may take to end, as docs/workloads.md says: the pods' grace period, and the controllers' 5 s.
pub const WINDS_DOWN: u64 = crate::world::GRACE * 1_000 + 5_000;

pub struct Judge {
    log: Log,
    /// The pods that show the leader's label, by cluster and name.
    leaders: BTreeMap<(usize, String), Leader>,
    /// Leaders' labels that a person wrote, by the pods' uids.
    by_hand: BTreeSet<String>,
    terms: BTreeMap<Group, (Term, String)>,
    /// By cluster.
    workload: [Workload; 2],
    excuses: [Excuse; 2],
    /// Two that lead in both clusters and were excused, by app: they are counted once.
    told: BTreeSet<String>,
    judged_until: u64,
    pub verdict: Option<String>,
    pub figures: Figures,
}

#[derive(Clone, Debug)]
struct Leader {
    uid: String,
    term: Term,
}

#[derive(Clone, Copy, Debug, Default)]
struct Workload {
    /// Since when it is enabled.
    enabled: Option<u64>,
    /// Since when it is, or its pods run.
    runs: Option<u64>,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub revisions: u64,
    pub leaderships: u64,
    /// How often two led, one in each cluster, of which the older one was excused.
    pub excused: u64,
    /// For how long a cluster was excused, in milliseconds.
    pub excused_for: u64,
    /// How long was judged between the clusters, the time above included.
    pub judged_for: u64,
}

impl Judge {
    pub fn new(log: Log) -> Self {
        Self {
            log,
            leaders: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            terms: BTreeMap::new(),
            workload: [Workload::default(); 2],
            excuses: [Excuse::default(), Excuse::default()],
            told: BTreeSet::new(),
            judged_until: 0,
            verdict: None,
            figures: Figures::default(),
        }
    }

    // What happens

    /// A replica of the operator is like this now.
    pub fn replica(&mut self, cluster: usize, number: usize, condition: Condition) {
        self.excuses[cluster].replica(number, condition, self.log.now());
        self.pass();
    }

    /// A cluster lost a lock.
    pub fn lose(&mut self, cluster: usize, how: Loss) {
        if let Some(wrong) = self.excuses[cluster].lose(how, self.log.now()) {
            self.fail(wrong);
        }
        self.pass();
    }

    /// Whether all of a cluster's replicas could act or stand by for long.
    pub fn is_settled(&self, cluster: usize) -> bool {
        self.excuses[cluster].is_settled(self.log.now())
    }

    /// A person did away with the lock of a cluster's group: its terms go on from what is still known.
    pub fn forget_term(&mut self, cluster: usize, known: Term) {
        for (group, (term, leader)) in &mut self.terms {
            if group.cluster == Some(cluster) && *term > known {
                (*term, *leader) = (known, String::new());
            }
        }
    }

    /// An API server made a change.
    pub fn see(&mut self, cluster: usize, change: &Change) {
        match change.resource.as_str() {
            "deployments" => self.see_workload(cluster, change),
            "pods" => self.see_pod(cluster, change),
            "leases" => self.see_claim(cluster, change),
            _ => {}
        }
        self.pass();
    }

    /// Time has passed: two that were excused, may not be any more.
    pub fn pass(&mut self) {
        let now = self.log.now();
        self.excuses.iter_mut().for_each(|excuse| excuse.pass(now));
        let passed = now - self.judged_until;
        self.judged_until = now;
        self.figures.judged_for += passed;
        if self.excuses.iter().any(|excuse| excuse.is_excused(now)) {
            self.figures.excused_for += passed;
        }
        self.check_shared_pods();
        self.check_workload();
    }

    fn see_claim(&mut self, cluster: usize, change: &Change) {
        let object = change.after.as_ref().or(change.before.as_ref()).unwrap();
        if object["metadata"]["namespace"] == crate::world::OWN_NAMESPACE {
            let holder = change.after.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            self.excuses[cluster].claimed(holder.filter(|holder| !holder.is_empty()), self.log.now());
        }
    }

    fn see_pod(&mut self, cluster: usize, change: &Change) {
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
        let term = text(&object["metadata"]["annotations"]["lictor.dev/term"]).parse().map(Term).unwrap_or_default();
        let app = name.split('-').next().unwrap_or_default().to_owned();
        let key = (cluster, name);
        // A person who takes the term off makes no leader an older one.
        let term = self.leaders.get(&key).filter(|_| change.by_hand).map_or(term, |leader| leader.term);
        if leads {
            self.leaders.insert(key, Leader { uid: uid.clone(), term })
        } else {
            self.leaders.remove(&key)
        };
        if change.by_hand || !leads {
            return;
        }
        let shown = self.shown(&app);
        if !invariants::at_most_one(shown.iter().map(|(of, _)| *of == cluster)) {
            return self.fail(format!("two leaders of {app} in one cluster"));
        }
        let group = Group { cluster: (app != SHARED).then_some(cluster), app };
        self.check_term(group, cluster, term, uid);
    }

    fn see_workload(&mut self, cluster: usize, change: &Change) {
        let Some(object) = &change.after else { return };
        let some = |of: &str| object[of]["replicas"].as_u64().is_some_and(|replicas| replicas > 0);
        let (now, Workload { enabled, runs }) = (self.log.now(), self.workload[cluster]);
        self.workload[cluster] = Workload {
            enabled: some("spec").then(|| enabled.unwrap_or(now)),
            runs: (some("spec") || some("status")).then(|| runs.unwrap_or(now)),
        };
    }

    // What was promised

    fn fail(&mut self, why: String) {
        if self.verdict.is_none() {
            self.log.note(|| format!("!!! {why}"));
            self.verdict = Some(why);
        }
    }

    /// The pods that show the leader's label, as "cluster/pod"; of the workload, where it is enabled.
    pub fn leaders(&self, group: &Group) -> Vec<String> {
        if group.app == WORKLOAD {
            let enabled = self.workload.iter().enumerate().filter(|(_, workload)| workload.enabled.is_some());
            return enabled.map(|(cluster, _)| format!("{cluster}/{WORKLOAD}")).collect();
        }
        let of_group = |(cluster, pod): &(usize, String)| {
            pod.starts_with(&group.app) && group.cluster.is_none_or(|only| only == *cluster)
        };
        self.leaders.keys().filter(|key| of_group(key)).map(|(cluster, pod)| format!("{cluster}/{pod}")).collect()
    }

    /// The leaders of an app whose labels no person wrote, and their clusters.
    fn shown(&self, app: &str) -> Vec<(usize, &Leader)> {
        let leaders = self
            .leaders
            .iter()
            .filter(|((_, pod), leader)| pod.starts_with(app) && !self.by_hand.contains(&leader.uid));
        leaders.map(|((cluster, _), leader)| (*cluster, leader)).collect()
    }

    fn check_shared_pods(&mut self) {
        let shown = self.shown(SHARED);
        let newest = shown.iter().map(|(_, leader)| leader.term).max();
        // Of two with one term, neither is the newer one.
        let newer = shown.iter().filter(|(_, leader)| Some(leader.term) == newest).count() == 1;
        let older = shown.iter().filter(|(_, leader)| !newer || Some(leader.term) != newest);
        let older: Vec<usize> = older.map(|(cluster, _)| *cluster).collect();
        let one = invariants::at_most_one(shown.iter().map(|_| true));
        self.check_one(SHARED, one, &older, 0, || format!("leaders of {SHARED} in both clusters"));
    }

    fn check_workload(&mut self) {
        let began = self.workload.map(|workload| workload.runs);
        let older = usize::from(began[1] < began[0]);
        let one = invariants::at_most_one(began.iter().map(Option::is_some));
        self.check_one(WORKLOAD, one, &[older], WINDS_DOWN, || "the workload runs in both clusters".into());
    }

    /// Of two, the older one may be excused, now or until so long ago.
    fn check_one(&mut self, app: &str, one: bool, older: &[usize], within: u64, what: impl FnOnce() -> String) {
        let now = self.log.now();
        if one {
            self.told.remove(app);
        } else if !older.iter().all(|cluster| self.excuses[*cluster].was_excused(within, now)) {
            self.fail(what());
        } else if self.told.insert(app.to_owned()) {
            self.log.note(|| format!("(excused: {})", what()));
            self.figures.excused += 1;
        }
    }

    fn check_term(&mut self, group: Group, cluster: usize, term: Term, uid: String) {
        let before = self.terms.get(&group).cloned();
        if before.as_ref().is_some_and(|(known, leader)| *known == term && *leader == uid) {
            return;
        }
        if invariants::term_rises(before.as_ref().map(|(term, _)| *term), term) {
            self.figures.leaderships += 1;
            self.terms.insert(group, (term, uid));
        } else if group.cluster.is_some() || !self.excuses[cluster].is_excused(self.log.now()) {
            self.fail(format!("{uid} leads {} in term {term}, and before it was {before:?}", group.app));
        }
    }
}

//! Judges every change of a pod and of the workload, in both clusters together: what was promised.

mod held;
mod manners;
mod switchovers;
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{LEADER_FINALIZER, Term, invariants};
use serde_json::Value;

use self::held::Held;
use self::manners::Manners;
use self::switchovers::Switchovers;
use crate::excuse::{Condition, Excuse, Loss};
use crate::log::Log;
use crate::servers::api::Change;
use crate::servers::client::Passing;
use crate::users::{ACTIVE, LEASES, ROLE};

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
pub const SHARED: &str = "db";
/// What is told of the Services that reach them.
const ROUTED: &str = "db, routed";
/// How long what a cluster disables may take to end, as docs/workloads.md says: the pods' grace period, and the controllers' 5 s.
pub const WINDS_DOWN: u64 = crate::world::GRACE * 1_000 + 5_000;
/// How long nobody may know which ticks a cluster has started that lost its lock: as long as it may have been silent before that, and
/// until the other cluster has waited for what it left.
const SILENT: u64 = 60_000;
/// So many requests of one replica in a second have no other cause than that it repeats them without a pause.
const RESTLESS: u64 = 1_000;
/// How often a pod may become a leader, or cease to be one, in a second, by what operators write. Two replicas that act at once and undo
/// each other's writes come to less than that: docs/protocol.md, L1.
const FLICKERS: u64 = 16;
/// How long a CronJob's controller may start something after the lock was lost: until it has heard that it is suspended.
const SETTLES: u64 = 5_000;

pub struct Judge {
    log: Log,
    /// The pods that show the leader's label, by cluster and name.
    leaders: BTreeMap<(usize, String), Leader>,
    /// Leaders' labels that a person wrote, by the pods' uids.
    by_hand: BTreeSet<(String, &'static str)>,
    terms: BTreeMap<Group, (Term, String)>,
    /// By cluster: the leader's label of the group whose spec changes.
    label: [&'static str; 2],
    /// By cluster: whether a person did away with its lock, which alone knows what was written under earlier specs.
    forgotten: [bool; 2],
    /// By cluster: when two of its replicas were last seen to act.
    both_acted: [Option<u64>; 2],
    /// The apps whose elections have followed a lock.
    followed: BTreeSet<String>,
    /// Who is reached through which Service, by cluster and slice.
    slices: BTreeMap<(usize, String), Slice>,
    /// The highest term in which somebody was reached.
    reached_in: BTreeMap<Group, Term>,
    /// Ticks of the CronJob that were started, and where.
    ticks: BTreeMap<u64, usize>,
    /// When a lock was lost.
    losses: Vec<u64>,
    /// Whether a machine's wall clock has jumped: then nobody knows when a minute is full.
    jumped: bool,
    /// By cluster.
    workload: [Workload; 2],
    switchovers: Switchovers,
    excuses: [Excuse; 2],
    /// Two that lead in both clusters and were excused, by app: they are counted once.
    told: BTreeSet<String>,
    judged_until: u64,
    /// By cluster and pod: how often a leadership of it may have ended because its program was gone, which is once for each end of the
    /// program, and once for each leadership that began after that; and how often one has.
    programs: BTreeMap<(usize, String), (u64, u64)>,
    /// E1: the pods that have led, as their finalizer says, and have not ended: by cluster, app and uid.
    running: BTreeSet<(usize, String, String)>,
    /// The pods whose programs do not run.
    without_program: BTreeSet<(usize, String)>,
    /// The changes of leader for that reason, by the election's uid and the term.
    gone: BTreeSet<(String, u64)>,
    /// By cluster and pod: a second, and how often operators have changed in it whether the pod shows that it leads.
    flickers: BTreeMap<(usize, String), (u64, u64)>,
    /// Since when two lead, one in each cluster, by app.
    two_since: BTreeMap<String, u64>,
    /// By replica: a second, and how many requests it has sent in it.
    requests: BTreeMap<String, (u64, u64)>,
    held: Held,
    manners: Manners,
    pub verdict: Option<String>,
    pub figures: Figures,
}

#[derive(Clone, Debug)]
struct Leader {
    uid: String,
    term: Term,
    /// The keys of the leaders' labels that it shows.
    labels: Vec<&'static str>,
}

#[derive(Clone, Debug)]
struct Slice {
    service: String,
    pods: Vec<String>,
    term: Term,
    /// A person wrote it last.
    by_hand: bool,
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
    /// How many ticks were started, and how many of these in another cluster than the one before.
    pub ticks: u64,
    pub ticks_handed_on: u64,
    /// For how long two showed that they lead, one in each cluster, in milliseconds.
    pub two_led_for: u64,
    /// How often another pod was reached through a Service than before.
    pub switches: u64,
    /// How many elections were deleted.
    pub deletions: u64,
    /// How often a standby took the replica that acted for gone.
    pub taken_for_gone: u64,
    /// For how long two replicas of a cluster acted at once, in milliseconds.
    pub both_acted: u64,
    /// How often the program of a pod ended.
    pub ended: u64,
    /// How often a leader was replaced because its process was gone.
    pub gone: u64,
    /// How many switchovers are complete, and how many failed.
    pub switched_over: u64,
    pub not_switched_over: u64,
    /// How many of those that are complete moved a leadership to the other cluster.
    pub handed_over: u64,
    /// Pods that led when they had held a lock of the pods' own for a while.
    pub followed: u64,
}

impl Judge {
    pub fn new(log: Log, session_ttl: u64) -> Self {
        Self {
            log,
            leaders: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            terms: BTreeMap::new(),
            label: [ROLE.0; 2],
            forgotten: [false; 2],
            both_acted: [None; 2],
            followed: BTreeSet::new(),
            slices: BTreeMap::new(),
            reached_in: BTreeMap::new(),
            ticks: BTreeMap::new(),
            losses: Vec::new(),
            jumped: false,
            workload: [Workload::default(); 2],
            switchovers: Switchovers::default(),
            excuses: [Excuse::new(session_ttl), Excuse::new(session_ttl)],
            told: BTreeSet::new(),
            judged_until: 0,
            programs: BTreeMap::new(),
            running: BTreeSet::new(),
            without_program: BTreeSet::new(),
            gone: BTreeSet::new(),
            flickers: BTreeMap::new(),
            two_since: BTreeMap::new(),
            requests: BTreeMap::new(),
            held: Held::default(),
            manners: Manners::default(),
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
        self.losses.push(self.log.now());
        self.pass();
    }

    /// A replica sends a request.
    pub fn request(&mut self, replica: &str, method: &str, path: &str, status: u16) {
        let now = self.log.now();
        if matches!(status, 403 | 429)
            && let Some(wrong) = self.manners.see_denied(replica, method, path, now)
        {
            self.fail(wrong);
        }
        let second = now / 1_000;
        let (of, count) = self.requests.entry(replica.into()).or_default();
        (*of, *count) = if *of == second { (second, *count + 1) } else { (second, 1) };
        if *count > RESTLESS {
            self.fail(format!("{replica} goes on and on"));
        }
    }

    /// A replica sends a request about Leases, or is answered.
    pub fn pass_by(&mut self, cluster: usize, replica: &str, passing: &Passing<'_>) {
        self.held.pass(cluster, replica, passing, self.log.now());
    }

    /// Two replicas of a cluster act at once.
    pub fn see_both_act(&mut self, clusters: &[usize], lasts: u64) {
        for cluster in clusters {
            self.figures.both_acted += lasts;
            self.both_acted[*cluster] = Some(self.log.now());
        }
    }

    /// An election of this app follows a lock that its pods hold.
    pub fn see_followed(&mut self, app: &str) {
        self.followed.insert(app.to_owned());
    }

    /// The program of a pod ends.
    pub fn end_program(&mut self, cluster: usize, pod: &str) {
        self.figures.ended += 1;
        self.programs.entry((cluster, pod.into())).or_default().0 += 1;
        self.without_program.insert((cluster, pod.into()));
    }

    /// It runs again.
    pub fn begin_program(&mut self, cluster: usize, pod: &str) {
        self.without_program.remove(&(cluster, pod.to_owned()));
    }

    /// Whether the wall clock of a machine has jumped.
    pub fn has_jumped(&self) -> bool {
        self.jumped
    }

    /// The wall clock of a machine jumped.
    pub fn jump(&mut self) {
        self.jumped = true;
    }

    /// Whether all of a cluster's replicas could act or stand by for long.
    pub fn is_settled(&self, cluster: usize) -> bool {
        self.excuses[cluster].is_settled(self.log.now())
    }

    /// A person did away with the lock of a cluster's group: its terms go on from what is still known.
    pub fn forget(&mut self, cluster: usize, known: Term) {
        self.forgotten[cluster] = true;
        for (group, (term, leader)) in &mut self.terms {
            if group.cluster == Some(cluster) && *term > known {
                (*term, *leader) = (known, String::new());
            }
        }
        for (group, term) in &mut self.reached_in {
            if group.cluster == Some(cluster) {
                *term = known.min(*term);
            }
        }
    }

    /// A person put the shared locks back to an earlier state: their terms go on from what each cluster knows by itself.
    pub fn forget_shared(&mut self, known: Term) {
        let shared = Group { app: SHARED.into(), cluster: None };
        if let Some((term, leader)) = self.terms.get_mut(&shared).filter(|(term, _)| *term > known) {
            (*term, *leader) = (known, String::new());
        }
        if let Some(term) = self.reached_in.get_mut(&shared) {
            *term = known.min(*term);
        }
    }

    /// An API server made a change.
    pub fn see(&mut self, cluster: usize, change: &Change) {
        match change.resource.as_str() {
            "deployments" => self.see_workload(cluster, change),
            "pods" => self.see_pod(cluster, change),
            "endpointslices" => self.see_slice(cluster, change),
            "leases" => {
                self.see_claim(cluster, change);
                self.held.see(cluster, change);
                let wrong = self.switchovers.see_record(change, self.forgotten[cluster]);
                if let Some(wrong) = wrong {
                    self.fail(wrong);
                }
            }
            "switchovers" => {
                let wrong = self.switchovers.see(change, self.forgotten[cluster], &mut self.figures);
                if let Some(wrong) = wrong {
                    self.fail(wrong);
                }
            }
            "leaderelections" => self.see_election(cluster, change),
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
        if self.two_since.contains_key(SHARED) {
            self.figures.two_led_for += passed;
        }
        if self.excuses.iter().any(|excuse| excuse.is_excused(now)) {
            self.figures.excused_for += passed;
        }
        self.check_shared_pods();
        self.check_shared_slices();
        self.check_workload();
    }

    fn see_claim(&mut self, cluster: usize, change: &Change) {
        let object = change.after.as_ref().or(change.before.as_ref()).unwrap();
        if object["metadata"]["namespace"] == crate::operator::OWN_NAMESPACE {
            let holder = change.after.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            self.excuses[cluster].claimed(holder.filter(|holder| !holder.is_empty()), self.log.now());
        }
    }

    fn see_pod(&mut self, cluster: usize, change: &Change) {
        self.figures.revisions += 1;
        if let Some(wrong) = self.manners.see_pod(cluster, change, self.log.now()) {
            return self.fail(wrong);
        }
        let object = change.after.as_ref().or(change.before.as_ref()).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&object["metadata"]["name"]), text(&object["metadata"]["uid"]));
        let app = name.split('-').next().unwrap_or_default().to_owned();
        let (before, labels) = (leaders_labels(change.before.as_deref()), leaders_labels(change.after.as_deref()));
        let turns = before.is_empty() != labels.is_empty();
        for key in [ROLE.0, ACTIVE.0] {
            // What the operator leaves there, it has made its own; but it knows nothing of the labels of other specs.
            let owned = !change.by_hand && key == self.label_of(&app, cluster);
            if !labels.contains(&key) || owned {
                self.by_hand.remove(&(uid.clone(), key));
            } else if change.by_hand && !before.contains(&key) {
                self.by_hand.insert((uid.clone(), key));
            }
        }
        let execution = (cluster, app.clone(), uid.clone());
        if change.after.as_deref().is_some_and(executes) {
            self.running.insert(execution);
        } else {
            self.running.remove(&execution);
        }
        let leads = labels.iter().any(|key| !self.by_hand.contains(&(uid.clone(), key)));
        let term = text(&object["metadata"]["annotations"]["lictor.dev/term"]).parse().map(Term).unwrap_or_default();
        let key = (cluster, name.clone());
        // A person who takes the term off makes no leader an older one.
        let term = self.leaders.get(&key).filter(|_| change.by_hand).map_or(term, |leader| leader.term);
        if labels.is_empty() {
            self.leaders.remove(&key)
        } else {
            self.leaders.insert(key, Leader { uid: uid.clone(), term, labels })
        };
        if !change.by_hand && turns {
            self.flicker(cluster, &name);
        }
        if change.by_hand || !leads {
            return;
        }
        if !self.has_one(&app, cluster) {
            return self.fail(format!("two leaders of {app} in one cluster"));
        }
        let running: Vec<&String> =
            self.running.iter().filter(|(of, one, _)| *of == cluster && *one == app).map(|(_, _, uid)| uid).collect();
        if turns && running.contains(&&uid) && running.len() > 1 && !self.forgotten[cluster] {
            return self.fail(format!("{uid} leads, and a former leader runs on: {running:?}"));
        }
        if turns && self.without_program.contains(&(cluster, name.clone())) {
            // A switchover by force does not ask whether it runs.
            self.programs.entry((cluster, name.clone())).or_default().0 += 1;
        }
        let label = self.label_of(&app, cluster);
        let group = Group { cluster: (app != SHARED).then_some(cluster), app };
        // What is left of an earlier spec that is forgotten begins no term.
        if !self.forgotten[cluster]
            || self.leaders.values().any(|leader| leader.uid == uid && leader.labels.contains(&label))
        {
            self.check_term(group, cluster, term, uid);
        }
    }

    /// An operator has changed whether a pod shows that it leads.
    fn flicker(&mut self, cluster: usize, pod: &str) {
        let second = self.log.now() / 1_000;
        let (of, count) = self.flickers.entry((cluster, pod.to_owned())).or_default();
        (*of, *count) = if *of == second { (second, *count + 1) } else { (second, 1) };
        // Each of two replicas that act counts by itself for how long a followed lock is valid. While one of them takes it for over,
        // they undo each other's terms: docs/candidates.md.
        let (app, _) = pod.split_once('-').unwrap_or((pod, ""));
        let both = self.both_acted[cluster].is_some_and(|at| self.log.now() - at <= 1_000);
        if *count > FLICKERS && !(both && self.followed.contains(app)) {
            self.fail(format!("{pod} comes and goes as the leader"));
        }
    }

    /// A Service reaches somebody else, or nobody.
    fn see_slice(&mut self, cluster: usize, change: &Change) {
        let object = change.after.as_ref().or(change.before.as_ref()).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (cluster, text(&object["metadata"]["name"]));
        let Some(after) = &change.after else {
            self.slices.remove(&key);
            return;
        };
        let service = text(&after["metadata"]["labels"]["kubernetes.io/service-name"]);
        let term = text(&after["metadata"]["annotations"]["lictor.dev/term"]).parse().map(Term).unwrap_or_default();
        let endpoints = after["endpoints"].as_array().cloned().unwrap_or_default();
        let pods: Vec<String> = endpoints.iter().map(|endpoint| text(&endpoint["targetRef"]["uid"])).collect();
        let app = service.split('-').next().unwrap_or_default().to_owned();
        let slice = Slice { service: service.clone(), pods: pods.clone(), term, by_hand: change.by_hand };
        let before = self.slices.insert(key, slice);
        if change.by_hand || pods.is_empty() {
            return;
        }
        self.figures.switches += u64::from(before.is_none_or(|before| before.pods != pods));
        let all = self.slices.iter().filter(|((of, _), slice)| *of == cluster && slice.service == service);
        let reached: usize = all.filter(|(_, slice)| !slice.by_hand).map(|(_, slice)| slice.pods.len()).sum();
        if reached > 1 {
            return self.fail(format!("{service} reaches {reached} pods"));
        }
        let group = Group { cluster: (app != SHARED).then_some(cluster), app };
        let known = self.reached_in.get(&group).copied().unwrap_or_default();
        if term >= known {
            self.reached_in.insert(group, term);
        } else if group.cluster.is_some() || !self.excuses[cluster].is_excused(self.log.now()) {
            self.fail(format!("{service} reaches {pods:?} in term {term}, and before it was {known}"));
        }
    }

    /// The pods that are reached through a Service, by their uids.
    pub fn reached(&self, cluster: usize, service: &str) -> Vec<String> {
        let slices = self.slices.iter().filter(|((of, _), slice)| *of == cluster && slice.service == service);
        slices.flat_map(|(_, slice)| slice.pods.clone()).collect()
    }

    /// An election is changed, or gone. If a finalizer kept it until then, none of its leaders' labels is left.
    fn see_election(&mut self, cluster: usize, change: &Change) {
        let object = change.after.as_ref().or(change.before.as_ref()).unwrap();
        let app = object["metadata"]["name"].as_str().unwrap_or_default();
        if app == LEASES[0] {
            let active = object["spec"]["leader"]["labels"][ACTIVE.0] == ACTIVE.1;
            self.label[cluster] = if active { ACTIVE.0 } else { ROLE.0 };
        }
        if let Some(election) = &change.after {
            return self.see_history(cluster, election);
        }
        self.figures.deletions += 1;
        let group = Group { app: app.into(), cluster: Some(cluster) };
        self.terms.remove(&group);
        self.reached_in.remove(&group);
        let left: Vec<String> =
            self.shown(app).iter().filter(|(of, _)| *of == cluster).map(|(_, l)| l.uid.clone()).collect();
        let excused = app == LEASES[0] && self.forgotten[cluster];
        let kept = change.before.as_ref().is_some_and(|before| before["metadata"]["deletionTimestamp"].is_string());
        if kept && !left.is_empty() && !excused {
            self.fail(format!("{app} is gone, and {left:?} still show a leader's label"));
        }
    }

    /// What is told of changes of leader: nobody's process is gone more often than it has ended.
    fn see_history(&mut self, cluster: usize, election: &Value) {
        let uid = election["metadata"]["uid"].as_str().unwrap_or_default();
        let told = election["status"]["history"].as_array().into_iter().flatten();
        let of_web = election["metadata"]["name"] == LEASES[0];
        if let Some(wrong) = told.clone().filter(|_| of_web).find_map(|change| self.held.judge(cluster, change)) {
            return self.fail(wrong);
        }
        for change in told.filter(|change| change["reason"] == "ProcessGone") {
            let (term, pod) = (change["term"].as_u64(), change["previousLeaderName"].as_str().unwrap_or_default());
            if !self.gone.insert((uid.to_owned(), term.unwrap_or_default())) {
                continue;
            }
            self.figures.gone += 1;
            let (may_be_gone, gone) = self.programs.entry((cluster, pod.to_owned())).or_default();
            *gone += 1;
            if gone > may_be_gone {
                self.fail(format!("the process of {pod} is said to be gone, and has not ended"));
            }
        }
    }

    /// The controller of a CronJob starts what is due.
    pub fn start_tick(&mut self, cluster: usize, due: u64) {
        let now = self.log.now();
        self.log.note(|| format!("{} starts the tick {due}", crate::world::CLUSTERS[cluster]));
        self.figures.ticks += 1;
        let before = self.ticks.values().next_back().copied();
        self.figures.ticks_handed_on += u64::from(before.is_some_and(|before| before != cluster));
        let twice = self.ticks.insert(due, cluster).is_some();
        let lost = self.losses.iter().any(|lost| (due..=due + SILENT).contains(&(lost + SETTLES)));
        let unsure = lost || self.jumped || self.excuses.iter().any(|excuse| excuse.was_excused(SILENT, now));
        if twice && !unsure {
            self.fail(format!("the tick {due} is started twice"));
        }
    }

    fn see_workload(&mut self, cluster: usize, change: &Change) {
        let Some(object) = change.after.as_ref().filter(|object| object["metadata"]["name"] == WORKLOAD) else {
            return;
        };
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
        let leads = |(cluster, pod): &(usize, String), leader: &Leader| {
            let label = self.label_of(&group.app, *cluster);
            let of_group = pod.starts_with(&group.app) && group.cluster.is_none_or(|only| only == *cluster);
            of_group && leader.labels.contains(&label)
        };
        let leaders = self.leaders.iter().filter(|(key, leader)| leads(key, leader));
        leaders.map(|((cluster, pod), _)| format!("{cluster}/{pod}")).collect()
    }

    /// The key of the leader's label that the present spec of an app has.
    fn label_of(&self, app: &str, cluster: usize) -> &'static str {
        if app == LEASES[0] { self.label[cluster] } else { ROLE.0 }
    }

    /// The leaders of an app whose labels no person wrote, and their clusters.
    fn shown(&self, app: &str) -> Vec<(usize, &Leader)> {
        let leaders =
            self.leaders.iter().filter(|((_, pod), leader)| pod.starts_with(app) && !self.own(leader).is_empty());
        leaders.map(|((cluster, _), leader)| (*cluster, leader)).collect()
    }

    /// The labels that no person wrote.
    fn own(&self, leader: &Leader) -> Vec<&'static str> {
        let by_hand = |key: &&'static str| self.by_hand.contains(&(leader.uid.clone(), *key));
        leader.labels.iter().copied().filter(|key| !by_hand(key)).collect()
    }

    /// Not even the labels of an earlier spec may show a second leader. Only where a person did away with the record that knew of that
    /// spec, the labels are judged one by one.
    fn has_one(&self, app: &str, cluster: usize) -> bool {
        let shown: Vec<Vec<&str>> =
            self.shown(app).iter().filter(|(of, _)| *of == cluster).map(|(_, leader)| self.own(leader)).collect();
        let of = |key: &str| invariants::at_most_one(shown.iter().map(|labels| labels.contains(&key)));
        let one_by_one = app == LEASES[0] && self.forgotten[cluster];
        if one_by_one { of(ROLE.0) && of(ACTIVE.0) } else { invariants::at_most_one(shown.iter().map(|_| true)) }
    }

    /// The pods that show a leader's label of an earlier spec, though all is settled.
    pub fn leftovers(&self) -> Vec<String> {
        let left = |(cluster, pod): &(usize, String), leader: &Leader| {
            let label = pod.split('-').next().map_or(ROLE.0, |app| self.label_of(app, *cluster));
            !self.forgotten[*cluster] && self.own(leader).iter().any(|key| *key != label)
        };
        let pods = self.leaders.iter().filter(|(key, leader)| left(key, leader));
        pods.map(|((cluster, pod), _)| format!("{cluster}/{pod}")).collect()
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

    /// Through the Services of both clusters, one leader is reached.
    fn check_shared_slices(&mut self) {
        let shown = |(_, slice): &(&(usize, String), &Slice)| {
            slice.service.starts_with(SHARED) && !slice.pods.is_empty() && !slice.by_hand
        };
        let shown: Vec<(usize, Term)> =
            self.slices.iter().filter(shown).map(|((cluster, _), slice)| (*cluster, slice.term)).collect();
        let clusters: BTreeSet<usize> = shown.iter().map(|(cluster, _)| *cluster).collect();
        let newest = shown.iter().map(|(_, term)| *term).max();
        let older: Vec<usize> =
            shown.iter().filter(|(_, term)| Some(*term) != newest).map(|(cluster, _)| *cluster).collect();
        self.check_one(ROUTED, clusters.len() < 2, &older, 0, || format!("Services of both clusters reach a {SHARED}"));
    }

    fn check_workload(&mut self) {
        let began = self.workload.map(|workload| workload.runs);
        let older = usize::from(began[1] < began[0]);
        let one = invariants::at_most_one(began.iter().map(Option::is_some));
        self.check_one(WORKLOAD, one, &[older], WINDS_DOWN, || "the workload runs in both clusters".into());
    }

    /// Of two, the older one may be excused, now or until so long ago.
    fn check_one(&mut self, app: &str, one: bool, older: &[usize], within: u64, what: impl Fn() -> String) {
        let now = self.log.now();
        if one {
            self.told.remove(app);
            self.two_since.remove(app);
            return;
        }
        let since = *self.two_since.entry(app.to_owned()).or_insert(now);
        if app != WORKLOAD && older.iter().any(|cluster| self.excuses[*cluster].sees(since, now)) {
            self.fail(format!("{}, and a replica sees it", what()));
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

/// E1: whether a pod has led, as its finalizer says, and has not ended.
fn executes(pod: &Value) -> bool {
    let finalizers = pod["metadata"]["finalizers"].as_array();
    let own = pod["metadata"]["annotations"][LEADER_FINALIZER] == pod["metadata"]["uid"];
    own && finalizers.is_some_and(|all| all.iter().any(|one| *one == LEADER_FINALIZER))
        && pod["status"]["phase"] != "Failed"
}

/// The keys of the leaders' labels that a pod shows.
fn leaders_labels(pod: Option<&Value>) -> Vec<&'static str> {
    let Some(pod) = pod else { return Vec::new() };
    let shown = [ROLE, ACTIVE].into_iter().filter(|(key, value)| pod["metadata"]["labels"][key] == *value);
    shown.map(|(key, _)| key).collect()
}

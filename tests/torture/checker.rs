//! Decides from the record alone whether every promise was kept.

mod reached;
mod sessions;
mod switchovers;
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lictor_core::{Instant, Pod, Term, invariants};

use self::reached::Reached;
use self::sessions::Sessions;
use self::switchovers::Switchovers;
use super::faults::CLUSTERS;
use super::picture::{Leader, Picture};
use super::record::{Group, Kind, Line, Millis, PodSeen, What};
use super::windows::{LEASE, LOCK_DELAY, Reliable, TTL, WAIT_FOR_CONSUL, Windows};
use super::world::FAILOVER_DELAY;

/// The time that is added to the documented limits: a dead connection is noticed after 20 s, and the machine is busy.
const SLACK: Millis = 25_000;

/// Returns how long a group may have no leader while everything works, by docs/consul.md and the settings of this test: the
/// operator's Lease, the wait for the leader to recover, and for a lock in Consul the time until Consul gives it away, a renewal
/// whose answer was lost, and a new operator's wait for Consul. It does not use what the operator reports about itself.
pub fn led_within(kind: Kind) -> Millis {
    let in_consul = 2 * TTL + TTL.div_ceil(3) + LOCK_DELAY + WAIT_FOR_CONSUL;
    LEASE + FAILOVER_DELAY + SLACK + if kind == Kind::Leases { 0 } else { in_consul }
}

/// How far apart the order of two recorders, one of etcd and one of Consul, may be from the order in which things happened.
const BETWEEN_RECORDERS: Millis = 2_000;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: Millis,
    pub group: String,
    pub text: String,
}

/// What a record shows.
#[derive(Debug, Default)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    /// Two leaders in two clusters, at times when the documents promise nothing.
    pub excuses: Vec<Violation>,
    pub groups: usize,
    pub leaderships: usize,
    pub pod_revisions: usize,
    pub lock_versions: usize,
    pub slice_revisions: usize,
    /// How often a Service began to reach another pod, and how often because a leader was moved that was well.
    pub switches: usize,
    pub planned_switches: usize,
    /// How often another replica of an operator began to act.
    pub failovers: usize,
    /// How many sessions the operators made in Consul, and how many ended.
    pub sessions_made: usize,
    pub sessions_lost: usize,
    /// How many Switchovers moved a leader, how many of these to another cluster, and how many failed.
    pub switchovers: usize,
    pub switchovers_across: usize,
    pub switchovers_failed: usize,
    pub calms: usize,
    /// The length of the record, and the part of it in which no cluster was excused.
    pub lasted: Millis,
    pub judged: Millis,
    pub faults: BTreeMap<String, usize>,
    /// By group, how long no candidate led although one could: in all, and while nothing was disturbed.
    pub vacancies: BTreeMap<String, (Millis, Millis)>,
}

/// The state of a group's judgement.
struct Judged {
    group: Group,
    reliable: Reliable,
    /// The leaders after the last line, by id, each with its term.
    leading: BTreeMap<String, Option<i64>>,
    /// The highest term so far, and its leader.
    last: Option<(i64, String)>,
    vacant_since: Option<Millis>,
    /// The cluster that was given the group's lock, and when.
    granted: Option<(String, Millis)>,
    /// Whether two present leaders were reported, and excused.
    told_two: Option<bool>,
    told_vacant: bool,
    told_running: bool,
    told_late: bool,
}

/// Judges a record, which may end at any line.
pub fn check(lines: &[Line]) -> Verdict {
    let windows = Windows::of(lines);
    let (mut picture, mut verdict) = (Picture::default(), Verdict::default());
    let mut groups: BTreeMap<String, Judged> = BTreeMap::new();
    let (mut reached, mut sessions) = (Reached::default(), Sessions::default());
    let mut switchovers = Switchovers::default();
    for line in lines {
        picture.apply(line);
        count(&mut verdict, &line.what);
        let concerned: Vec<&str> = match &line.what {
            What::Group(group) => {
                let reliable = windows.reliable(&group.clusters, group.kind);
                groups.insert(group.name.clone(), Judged::new(group.clone(), reliable));
                continue;
            }
            What::Pod(pod) => vec![pod.group()],
            What::Workload { name, .. } => vec![name],
            What::Lock { key, cluster, .. } => {
                let name = key.rsplit('/').next().unwrap_or_default();
                if let Some(judged) = groups.get_mut(name) {
                    judged.lock_held(cluster.as_deref(), line.at);
                }
                vec![]
            }
            What::Node { .. } => groups.keys().map(String::as_str).collect(),
            What::Slice(_)
            | What::Switchover(_)
            | What::Session { .. }
            | What::Acts { .. }
            | What::Planned { .. }
            | What::Fault { .. }
            | What::Hand { .. }
            | What::Calm { .. } => vec![],
        };
        let concerned: Vec<String> = concerned.into_iter().map(str::to_owned).collect();
        if let Some((cluster, text)) = sessions.step(line, &windows) {
            verdict.violations.push(Violation { at: line.at, group: cluster, text });
        }
        for (group, text) in switchovers.step(line, &picture) {
            verdict.violations.push(Violation { at: line.at, group, text });
        }
        for judged in groups.values_mut() {
            // Time alone decides about an open vacancy.
            judged.vacancy(line.at, &mut verdict);
            // The same is true of two leaders that are excused.
            if concerned.contains(&judged.group.name) || judged.told_two == Some(true) {
                judged.step(&picture, line.at, &mut verdict);
            }
            judged.stops(&picture, line.at, &mut verdict);
            for wrong in reached.step(line, &judged.group, &judged.reliable, &picture) {
                let found = judged.violation(line.at, wrong.text);
                if wrong.excused { &mut verdict.excuses } else { &mut verdict.violations }.push(found);
            }
        }
    }
    (verdict.switches, verdict.planned_switches) = (reached.switches, reached.planned_switches);
    (verdict.failovers, verdict.sessions_made, verdict.sessions_lost) =
        (sessions.failovers, sessions.made, sessions.lost);
    (verdict.switchovers, verdict.switchovers_across, verdict.switchovers_failed) =
        (switchovers.complete, switchovers.across, switchovers.failed);
    verdict.lasted = lines.last().map_or(0, |line| line.at);
    verdict.judged = verdict.lasted - windows.excused_for(&CLUSTERS, verdict.lasted);
    verdict
}

/// What each minute of a run must show. An hour-long run had 67 faults and 51 leaderships a minute; a busy machine carries out
/// half of that. After the storms, the clusters must be judged in at least every third second.
const FAULTS: f64 = 20.0;
const LEADERSHIPS: f64 = 15.0;
const JUDGED: f64 = 20.0;
/// Of Services that reach another pod. A run of three minutes beside other work had 18.
const SWITCHES: f64 = 8.0;

impl Verdict {
    /// Returns what a run that was to last this many minutes does not show enough of. A slow machine takes longer to show it.
    pub fn lacks(&self, minutes: f64) -> Option<String> {
        let seconds = |millis: Millis| Duration::from_millis(millis).as_secs_f64();
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        let shown = [
            ("storms that were judged", count(self.calms.saturating_sub(1)), 1.0),
            ("faults", count(self.faults.values().sum()), FAULTS * minutes),
            ("leaderships", count(self.leaderships), LEADERSHIPS * minutes),
            ("switches of a Service", count(self.switches), SWITCHES * minutes),
            ("leaders that were moved although they were well", count(self.planned_switches), 1.0),
            ("Switchovers that moved a leader", count(self.switchovers), 1.0),
            ("replicas of an operator that took over from another one", count(self.failovers), 1.0),
            ("seconds in which the clusters were judged", seconds(self.judged), JUDGED * minutes),
        ];
        let (what, shown, needed) = shown.into_iter().find(|(_, shown, needed)| shown < needed)?;
        Some(format!("{what}: {shown:.0}, and {needed:.0} are needed for {minutes} minutes"))
    }
}

fn count(verdict: &mut Verdict, what: &What) {
    match what {
        What::Group(_) => verdict.groups += 1,
        What::Pod(_) => verdict.pod_revisions += 1,
        What::Lock { .. } => verdict.lock_versions += 1,
        What::Slice(_) => verdict.slice_revisions += 1,
        What::Calm { begins: false } => verdict.calms += 1,
        What::Fault { fault, begins: true, .. } => *verdict.faults.entry(format!("{:?}", fault.kind)).or_default() += 1,
        _ => {}
    }
}

impl Judged {
    fn new(group: Group, reliable: Reliable) -> Self {
        Self {
            group,
            reliable,
            leading: BTreeMap::new(),
            last: None,
            vacant_since: None,
            granted: None,
            told_two: None,
            told_vacant: false,
            told_running: false,
            told_late: false,
        }
    }

    fn violation(&self, at: Millis, text: String) -> Violation {
        Violation { at, group: self.group.name.clone(), text }
    }

    /// Judges what changed in the group.
    fn step(&mut self, picture: &Picture, at: Millis, verdict: &mut Verdict) {
        let leaders = picture.leaders(&self.group);
        self.terms(&leaders, at, verdict);
        self.leading = leaders.iter().map(|leader| (leader.id.clone(), leader.term)).collect();
        self.one_at_most(picture, &leaders, at, verdict);
        self.one_executes(picture, &leaders, at, verdict);
        let vacant = leaders.is_empty() && picture.has_eligible(&self.group);
        if !vacant {
            (self.vacant_since, self.told_vacant) = (None, false);
        } else if self.vacant_since.is_none() {
            self.vacant_since = Some(at);
        }
    }

    /// Checks that the term strictly increases. A label that is restored under its own term is the same leadership.
    fn terms(&mut self, leaders: &[Leader], at: Millis, verdict: &mut Verdict) {
        for leader in leaders.iter().filter(|leader| self.leading.get(&leader.id) != Some(&leader.term)) {
            if self.group.kind == Kind::Workload {
                verdict.leaderships += 1;
                continue;
            }
            let Some(term) = leader.term else {
                verdict.violations.push(self.violation(at, format!("{} leads without a term", leader.name)));
                continue;
            };
            let leadership = (term, leader.id.clone());
            if self.last.as_ref() == Some(&leadership) {
                continue;
            }
            verdict.leaderships += 1;
            let before = self.last.as_ref().map(|(term, _)| *term);
            if invariants::term_rises(before.map(Term), Term(term)) {
                self.last = Some(leadership);
            } else {
                let text = format!("{} leads with term {term} after {:?}", leader.name, self.last);
                verdict.violations.push(self.violation(at, text));
            }
        }
    }

    /// Checks that there are never two leaders, at any revision.
    fn one_at_most(&mut self, picture: &Picture, leaders: &[Leader], at: Millis, verdict: &mut Verdict) {
        let pods: Vec<Pod> = picture.pods_of(&self.group).map(PodSeen::to_core).collect();
        let one = match self.group.kind {
            Kind::Workload => invariants::at_most_one(leaders.iter().map(|_| true)),
            Kind::Leases | Kind::Consul | Kind::Objects => invariants::at_most_one_leader(&pods, &self.group.markings),
        };
        if one {
            self.told_two = None;
            return;
        }
        // An excuse may end while the two still lead.
        let excused = self.excused_two(leaders, at);
        if self.told_two.is_none_or(|told| told && !excused) {
            let found = self.violation(at, format!("two lead: {leaders:?}"));
            if excused { &mut verdict.excuses } else { &mut verdict.violations }.push(found);
            self.told_two = Some(excused);
        }
    }

    /// E1: checks that no pod leads while a former leader runs that has to end first.
    fn one_executes(&mut self, picture: &Picture, leaders: &[Leader], at: Millis, verdict: &mut Verdict) {
        let running: Vec<&PodSeen> = picture.pods_of(&self.group).filter(|pod| pod.executes && !pod.deleted).collect();
        let both = running.len() > 1 && running.iter().any(|pod| leaders.iter().any(|leader| leader.id == pod.uid));
        if both && !self.told_running {
            let names: Vec<&String> = running.iter().map(|pod| &pod.name).collect();
            verdict.violations.push(self.violation(at, format!("one leads, and a former leader runs: {names:?}")));
        }
        self.told_running = both;
    }

    /// Returns whether all leaders but the newest are in clusters about which the documents promise nothing now. Within one
    /// cluster, the promise always holds.
    fn excused_two(&self, leaders: &[Leader], at: Millis) -> bool {
        let clusters: BTreeSet<&String> = leaders.iter().map(|leader| &leader.cluster).collect();
        let newest = leaders.iter().max_by_key(|leader| leader.term).map(|leader| &leader.cluster);
        let excused = |cluster: &&String| self.is_excused(cluster, at);
        clusters.len() == leaders.len()
            && match self.group.kind {
                Kind::Workload => clusters.iter().any(excused),
                Kind::Leases | Kind::Consul | Kind::Objects => {
                    clusters.iter().filter(|cluster| Some(**cluster) != newest).all(excused)
                }
            }
    }

    fn is_excused(&self, cluster: &str, at: Millis) -> bool {
        self.reliable.excused.get(cluster).is_some_and(|spans| spans.at(at).is_some())
    }

    /// Checks that there is never no leader for long.
    fn vacancy(&mut self, at: Millis, verdict: &mut Verdict) {
        let Some(since) = self.vacant_since else { return };
        let (longest, judged) = verdict.vacancies.entry(self.group.name.clone()).or_default();
        *longest = (*longest).max(at - since);
        let Some((calm_since, _)) = self.reliable.undisturbed.at(at) else { return };
        let since = since.max(calm_since);
        *judged = (*judged).max(at - since);
        let bound = Duration::from_millis(led_within(self.group.kind));
        if !self.told_vacant && !invariants::led_in_time(Some(moment(since)), moment(at), bound) {
            self.told_vacant = true;
            let text = format!("nobody led for {} ms, and the bound is {bound:?}", at - since);
            verdict.violations.push(self.violation(at, text));
        }
    }

    /// Notes who has the lock from now on. While it is nobody's, nobody has to stop for another: its next holder may lead before the
    /// record shows that it has the lock, for two recorders write it.
    fn lock_held(&mut self, cluster: Option<&str>, at: Millis) {
        if self.granted.as_ref().map(|(holder, _)| holder.as_str()) != cluster {
            (self.granted, self.told_late) = (cluster.map(|cluster| (cluster.to_owned(), at)), false);
        }
    }

    /// Checks that a holder stops before another may start: when another cluster has the lock, this cluster has no leader label.
    fn stops(&mut self, picture: &Picture, at: Millis, verdict: &mut Verdict) {
        let Some((holder, granted)) = &self.granted else { return };
        if self.told_late
            || self.group.kind == Kind::Leases
            || invariants::stops_in_time(moment(at), moment(granted + BETWEEN_RECORDERS))
        {
            return;
        }
        let leaders = if self.leading.is_empty() { Vec::new() } else { picture.leaders(&self.group) };
        let late = leaders.iter().find(|leader| leader.cluster != *holder && !self.is_excused(&leader.cluster, at));
        if let Some(late) = late {
            let text = format!("{late:?} still leads {} ms after {holder} has the lock", at - granted);
            verdict.violations.push(self.violation(at, text));
            self.told_late = true;
        }
    }
}

fn moment(millis: Millis) -> Instant {
    Instant::after_origin(Duration::from_millis(millis))
}

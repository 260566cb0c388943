//! The true state of a cluster: an API server with pods, and the record of one group. It judges every write to a pod.

use std::sync::{Arc, LazyLock};

use lictor_core::{
    ELECTION_ANNOTATION, Family, Key, Marking, Markings, Pairs, Pod, PodChange, PodOutcome, Record, RecordOutcome,
    Rules, Scope, Selector, Service, ServicePort, Slice, SliceContent, SliceOutcome, Stored, TERM_ANNOTATION,
    TargetPort, Term, Uid, Version, WritePod, WriteSlice, invariants,
};

use super::identity::{Known, RANGE};
use super::operator::uid;

pub const ELECTION: &str = "web";

/// As above, where the former leader ends before the next one leads.
static HELD: LazyLock<Scope> = LazyLock::new(|| {
    let mut scope = SPEC.0.clone();
    scope.markings.holds = true;
    scope
});

static SPEC: LazyLock<(Scope, Key, Rules)> = LazyLock::new(|| {
    let role = |value: &str| Marking { labels: map("role", value), annotations: Pairs::default() };
    let selector = Selector { match_labels: map("app", "web"), match_expressions: Vec::new() };
    let markings = Markings { leader: role("leader"), follower: role("follower"), ..Markings::default() };
    (Scope { selector, markings }, Key::lease("", "web"), Rules::default())
});

/// Where routing is explored.
pub static SERVICE: LazyLock<Service> = LazyLock::new(|| {
    let target = TargetPort::Number(80);
    let port = ServicePort { name: String::new(), protocol: "TCP".into(), app_protocol: None, target };
    Service { name: "s".into(), families: vec![Family::V4], ports: vec![port], ..Service::default() }
});

fn map(key: &str, value: &str) -> Pairs {
    [(key, value)].into_iter().collect()
}

pub fn spec() -> (&'static Scope, &'static Key, &'static Rules) {
    let (scope, key, rules) = &*SPEC;
    (scope, key, rules)
}

/// The scope, with a finalizer on the leader or without.
pub fn scope(holds: bool) -> &'static Scope {
    if holds { &HELD } else { spec().0 }
}

/// What an API server does, and with some of its rules switched off does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Preconditions {
    pub versions: bool,
    pub uids: bool,
    pub compare_and_swap: bool,
    pub slice_versions: bool,
    /// Whether it counts which pods show the leader's label: not where a rule is taken out that keeps both promises.
    pub labels_count: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    /// By slot: the pods of one name, one after the other.
    pub pods: Vec<Option<Arc<Known<Pod>>>>,
    /// Of each slot how many pods there were, and its last version.
    pub made: Vec<u32>,
    versions: Vec<u64>,
    pub record: Arc<Known<(Version, Stored)>>,
    /// The slice of the group's Service, where routing is explored. It is made, and names nobody yet.
    pub slice: Option<Arc<Known<Slice>>>,
    /// The highest term that it showed somebody in.
    pub shown: Term,
    /// E1: the pods that have led and whose containers run, where they have to end first.
    pub running: Vec<Uid>,
    /// The last leadership.
    pub promoted: Option<(Term, Uid)>,
    /// Which promise was broken.
    pub broken: Option<String>,
}

/// The slot of a pod, and which one in a row it is there.
pub fn place(uid: &Uid) -> (usize, u32) {
    let (slot, number) = uid.0.split_once('.').expect("uids of this model have two parts");
    (slot[1..].parse().expect("a number"), number.parse().expect("a number"))
}

impl World {
    /// Pods that were made followers by some operator of before, and no record.
    pub fn new(pods: usize, absent: usize, routed: bool) -> Self {
        let content = SliceContent::empty(&uid(), &SERVICE.name, Family::V4, Term(0));
        let version = Version((pods as u64 + 2) * RANGE);
        let slice =
            Slice { name: SERVICE.slice(Family::V4), uid: Uid("slice".into()), version, content, orphan_of: None };
        let mut world = Self {
            pods: vec![None; pods],
            made: vec![0; pods],
            versions: (0..pods).map(|slot| (slot as u64 + 2) * RANGE).collect(),
            record: Arc::new(Known::new((Version(RANGE), Stored::Absent))),
            slice: routed.then(|| Arc::new(Known::new(slice))),
            shown: Term(0),
            running: Vec::new(),
            promoted: None,
            broken: None,
        };
        for slot in 0..pods - absent {
            let mut pod = world.make(slot);
            pod.labels.extend(&map("role", "follower"));
            pod.annotations.extend(&map(ELECTION_ANNOTATION, ELECTION));
            pod.annotations.extend(&map(TERM_ANNOTATION, "0"));
            world.put(slot, pod);
        }
        world
    }

    pub fn pod(&self, slot: usize) -> Option<&Pod> {
        self.pods[slot].as_ref().map(|pod| &pod.value)
    }

    pub fn all(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().flatten().map(|pod| &pod.value)
    }

    fn make(&mut self, slot: usize) -> Pod {
        let number = self.made[slot];
        self.made[slot] += 1;
        Pod {
            name: format!("p{slot}"),
            uid: Uid(format!("p{slot}.{number}")),
            labels: map("app", "web"),
            node: Some("n".into()),
            ip: Some(format!("10.0.0.{slot}")),
            ready: true,
            ..Pod::default()
        }
    }

    pub fn create(&mut self, slot: usize) {
        let pod = self.make(slot);
        self.put(slot, pod);
    }

    pub fn put(&mut self, slot: usize, mut pod: Pod) -> Pod {
        self.versions[slot] += 1;
        pod.version = Version(self.versions[slot]);
        self.pods[slot] = Some(Arc::new(Known::new(pod.clone())));
        pod
    }

    pub fn write_record(&mut self, checks: Preconditions, expected: Option<Version>, record: &Record) -> RecordOutcome {
        if checks.compare_and_swap && self.record.1.version() != expected {
            return RecordOutcome::Conflict;
        }
        let version = Version(self.record.0.0 + 1);
        self.record = Arc::new(Known::new((version, Stored::Ours(version, record.clone()))));
        RecordOutcome::Written(version)
    }

    /// Whether a write could still be carried out.
    pub fn allows(&self, checks: Preconditions, write: &WritePod) -> Option<PodOutcome> {
        let slot = place(&write.uid).0;
        let Some(pod) = self.pod(slot) else { return Some(PodOutcome::Gone) };
        let refused = (checks.uids && pod.uid != write.uid) || (checks.versions && pod.version != write.version);
        refused.then_some(PodOutcome::Conflict)
    }

    pub fn write_pod(&mut self, checks: Preconditions, write: &WritePod) -> PodOutcome {
        if let Some(refused) = self.allows(checks, write) {
            return refused;
        }
        let slot = place(&write.uid).0;
        let Some(before) = self.pod(slot).cloned() else { return PodOutcome::Gone };
        let pod = patched(&before, write);
        if pod == before {
            // As the API server: what changes nothing, has no new version.
            return PodOutcome::Written(Box::new(pod));
        }
        if write.change == PodChange::Promote {
            self.judge_term(checks, &pod);
            self.judge_running(&pod);
        }
        if write.change == PodChange::Release && pod.deleting {
            self.pods[slot] = None;
            return PodOutcome::Written(Box::new(pod));
        }
        let pod = self.put(slot, pod);
        if checks.labels_count && !invariants::at_most_one_leader(self.all(), &spec().0.markings) {
            self.broken = Some("two pods show the leader's label".into());
        }
        PodOutcome::Written(Box::new(pod))
    }

    /// Whether a write to the slice could still be carried out.
    pub fn allows_slice(&self, checks: Preconditions, write: &WriteSlice) -> bool {
        match (write, &self.slice) {
            (WriteSlice::Replace { version, .. }, Some(slice)) => !checks.slice_versions || slice.version == *version,
            _ => false,
        }
    }

    pub fn write_slice(&mut self, checks: Preconditions, write: &WriteSlice) -> SliceOutcome {
        if !self.allows_slice(checks, write) {
            return SliceOutcome::Conflict;
        }
        let (WriteSlice::Replace { content, .. }, Some(before)) = (write, &self.slice) else {
            unreachable!("it is there, and stays: {write}")
        };
        let slice = Slice { version: Version(before.version.0 + 1), content: content.clone(), ..before.value.clone() };
        if content.shows() && content.term < self.shown {
            self.broken = Some(format!("the slice says {content}, and said somebody in term {}", self.shown));
        }
        if content.shows() {
            self.shown = self.shown.max(content.term);
        }
        self.slice = Some(Arc::new(Known::new(slice.clone())));
        SliceOutcome::Written(Box::new(slice))
    }

    fn judge_term(&mut self, checks: Preconditions, pod: &Pod) {
        let term =
            pod.annotations.get(TERM_ANNOTATION).and_then(|term| term.parse().ok()).map(Term).unwrap_or_default();
        if let Some((last, leader)) = &self.promoted {
            let repeated = (term, &pod.uid) == (*last, leader);
            if checks.labels_count && !repeated && !invariants::term_rises(Some(*last), term) {
                self.broken = Some(format!("{} is promoted in term {term}, and {leader} was in term {last}", pod.uid));
            }
        }
        self.promoted = Some((term, pod.uid.clone()));
    }

    /// The containers of a pod that is deleted end, as its kubelet reports.
    pub fn end(&mut self, slot: usize) {
        let Some(mut pod) = self.pod(slot).cloned() else { return };
        self.running.retain(|uid| *uid != pod.uid);
        pod.ended = true;
        if pod.finalizers.is_empty() {
            self.pods[slot] = None;
        } else {
            self.put(slot, pod);
        }
    }

    fn judge_running(&mut self, pod: &Pod) {
        if pod.finalizers.is_empty() || self.running.contains(&pod.uid) {
            return;
        }
        if let Some(other) = self.running.first() {
            self.broken = Some(format!("{} leads, and the former leader {other} has not ended", pod.uid));
        }
        self.running.push(pod.uid.clone());
    }

    /// The pods that show the leader's label.
    pub fn leaders(&self) -> impl Iterator<Item = &Pod> {
        self.all().filter(|pod| spec().0.markings.shows_leader(pod))
    }
}

pub fn patched(pod: &Pod, write: &WritePod) -> Pod {
    let mut pod = pod.clone();
    write.patch.apply(&mut pod);
    pod.deleting |= write.change == PodChange::Delete;
    pod
}

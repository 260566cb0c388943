//! The true state: an API server with pods, nodes and one election, and a store of lock records. It checks the promises at
//! every write, and keeps the history of changes that the operators' watches tell, each at its own pace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lictor_core::{
    Command, ELECTION_ANNOTATION, ElectionRead, Key, Marking, Markings, Node, Outcome, Pairs, Pod, PodChange,
    PodOutcome, Record, RecordOutcome, Rules, Scope, Selector, Stored, TERM_ANNOTATION, Term, Timestamp, Uid, Version,
    WritePod, invariants,
};

use super::Shown;

/// The name of the only election; its uid changes when it is made anew.
pub const ELECTION: &str = "web";

/// The election, as users write it.
#[derive(Clone, Debug)]
pub struct Object {
    pub uid: Uid,
    pub version: Version,
    pub generation: i64,
    pub spec: Spec,
    pub deleting: bool,
    pub status_term: Term,
}

#[derive(Clone, Debug)]
pub struct Spec {
    pub key: Key,
    pub scope: Scope,
    pub rules: Rules,
    pub failover_delay: Duration,
    pub paused: bool,
}

/// What a watch of pods tells.
#[derive(Clone, Debug)]
pub enum PodEvent {
    Applied(Pod),
    Deleted(String, Uid),
}

/// All changes so far. Each operator has seen a prefix of each list.
#[derive(Default)]
pub struct History {
    pub pods: Vec<PodEvent>,
    pub nodes: Vec<(String, Node)>,
    pub records: Vec<(Key, Version, Stored)>,
    pub elections: Vec<Option<Object>>,
}

pub struct World {
    /// Milliseconds.
    pub now: u64,
    version: u64,
    uids: u64,
    pub pods: BTreeMap<String, Pod>,
    pub nodes: BTreeMap<String, Node>,
    pub records: BTreeMap<Key, Stored>,
    pub election: Option<Object>,
    pub history: History,
    /// Leaders' labels that a person wrote, by pod: not the operators' fault.
    by_hand: BTreeSet<(Uid, String)>,
    /// The last leadership of each election.
    last_promotion: BTreeMap<Uid, (Term, Uid)>,
    /// After a person deleted or edited the record: the highest term that could still be known when it was made anew.
    witnessed: Option<Term>,
    /// Whether a person did away with a record: it alone tells for sure what was written under earlier specs.
    pub forgotten: bool,
    /// How many elections there were by now.
    pub made: u32,
    /// Pods that were made followers of an earlier spec, or while no record told of it: by an operator that acted beside the one
    /// that knew better. Its leftovers are never a leader's labels.
    demoted_late: BTreeSet<Uid>,
    /// What was looked at: leaderships, and writes to pods.
    pub shown: Shown,
}

impl World {
    pub fn new(scope: usize) -> Self {
        let mut world = Self {
            now: 1_000_000,
            version: 100,
            uids: 0,
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            records: BTreeMap::new(),
            election: None,
            history: History::default(),
            by_hand: BTreeSet::new(),
            last_promotion: BTreeMap::new(),
            witnessed: None,
            forgotten: false,
            made: 0,
            demoted_late: BTreeSet::new(),
            shown: Shown::default(),
        };
        for name in ["n0", "n1"] {
            world.put_node(name, Node::default());
        }
        world.create_election(scope);
        world
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    pub fn next_uid(&mut self, of: &str) -> Uid {
        self.uids += 1;
        Uid(format!("{of}-uid{}", self.uids))
    }

    // What users and the cluster do

    pub fn put_node(&mut self, name: &str, node: Node) {
        self.nodes.insert(name.into(), node.clone());
        self.history.nodes.push((name.into(), node));
    }

    pub fn create_pod(&mut self, name: &str, node: Option<&str>, ready: bool) {
        let uid = self.next_uid(name);
        let pod = Pod {
            name: name.into(),
            uid,
            labels: [("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "a".to_owned())].into(),
            node: node.map(Into::into),
            ip: Some("10.0.0.1".into()),
            ready,
            ready_since: ready.then_some(Timestamp(i64::try_from(self.now).unwrap_or(0))),
            ..Pod::default()
        };
        self.put_pod(pod);
    }

    /// Changes a pod as its kubelet or a person would.
    pub fn edit_pod(&mut self, name: &str, edit: impl FnOnce(&mut Pod)) {
        let Some(mut pod) = self.pods.get(name).cloned() else { return };
        let before = pod.labels.clone();
        edit(&mut pod);
        for (key, value) in &pod.labels {
            if is_leaders(key, value) && before.get(key) != Some(value) {
                self.by_hand.insert((pod.uid.clone(), key.to_owned()));
            }
        }
        self.put_pod(pod);
    }

    pub fn remove_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.next_version();
            self.history.pods.push(PodEvent::Deleted(pod.name, pod.uid));
        }
    }

    fn put_pod(&mut self, mut pod: Pod) -> Pod {
        pod.version = self.next_version();
        self.by_hand.retain(|(uid, key)| *uid != pod.uid || pod.labels.get(key).is_some_and(|v| is_leaders(key, v)));
        self.pods.insert(pod.name.clone(), pod.clone());
        self.history.pods.push(PodEvent::Applied(pod.clone()));
        pod
    }

    pub fn create_election(&mut self, scope: usize) {
        self.made += 1;
        let uid = self.next_uid(ELECTION);
        let rules = Rules::default();
        let spec = Spec {
            key: Key::lease("", "k0"),
            scope: scopes().swap_remove(scope),
            rules,
            failover_delay: Duration::ZERO,
            paused: false,
        };
        let version = self.next_version();
        let object = Object { uid, version, generation: 1, spec, deleting: false, status_term: Term(0) };
        self.put_election(Some(object));
    }

    /// A change of the spec.
    pub fn edit_election(&mut self, edit: impl FnOnce(&mut Object)) {
        let Some(mut object) = self.election.clone() else { return };
        edit(&mut object);
        object.generation += 1;
        object.version = self.next_version();
        self.put_election(Some(object));
    }

    fn put_election(&mut self, object: Option<Object>) {
        self.election.clone_from(&object);
        self.history.elections.push(object);
    }

    pub fn put_record(&mut self, key: &Key, make: impl FnOnce(Version) -> Stored) {
        let version = self.next_version();
        let stored = make(version);
        self.records.insert(key.clone(), stored.clone());
        self.history.records.push((key.clone(), version, stored));
    }

    /// A person deletes or edits the record. The promise about terms then rests on what is written elsewhere.
    pub fn spoil_record(&mut self, key: &Key, make: impl FnOnce(Version) -> Stored) {
        self.put_record(key, make);
        self.witnessed = Some(Term(i64::MAX));
        self.forgotten = true;
    }

    /// What the garbage collector does with what belonged to an election that is gone.
    pub fn collect_garbage(&mut self) {
        let uid = self.election.as_ref().map(|object| object.uid.clone());
        let orphan = |stored: &Stored| match stored {
            Stored::Ours(_, record) => Some(&record.election) != uid.as_ref(),
            Stored::Damaged(..) => uid.is_none(),
            Stored::Absent | Stored::Free(..) | Stored::HeldByOther(..) | Stored::Foreign(_) => false,
        };
        let orphans: Vec<Key> = self.records.iter().filter(|(_, s)| orphan(s)).map(|(key, _)| key.clone()).collect();
        for key in orphans {
            self.put_record(&key, |_| Stored::Absent);
        }
    }

    // What operators do

    /// The status, if the election is still as it was seen.
    pub fn write_status(&mut self, seen: &Object, term: Term) -> bool {
        let Some(object) = self.election.clone().filter(|object| object.version == seen.version) else { return false };
        let version = self.next_version();
        self.put_election(Some(Object { version, status_term: term, ..object }));
        true
    }

    /// The finalizer is taken off an election that is deleted.
    pub fn finalize(&mut self, seen: &Object) -> bool {
        let fits = self.election.as_ref().is_some_and(|object| object.version == seen.version && object.deleting);
        if fits {
            self.next_version();
            self.put_election(None);
        }
        fits
    }

    /// Carries out a command of an operator that serves the election of this uid.
    pub fn carry_out(&mut self, election: &Uid, command: &Command) -> Result<Outcome, String> {
        Ok(match command {
            Command::ReadRecord { key, .. } => Outcome::RecordRead(Ok(self.stored(key))),
            Command::WriteRecord { key, expected, record, .. } => {
                Outcome::RecordWritten(self.write_record(key, *expected, record))
            }
            Command::ReleaseRecord { version, .. } => Outcome::RecordWritten(RecordOutcome::Written(*version)),
            Command::DeleteRecord { key, version, .. } => {
                let present = self.stored(key);
                Outcome::RecordWritten(if present == Stored::Absent {
                    RecordOutcome::Written(*version)
                } else if present.version() == Some(*version) {
                    self.put_record(key, |_| Stored::Absent);
                    RecordOutcome::Written(*version)
                } else {
                    RecordOutcome::Conflict
                })
            }
            Command::ReadElection => Outcome::ElectionRead(Ok(match &self.election {
                None => ElectionRead::Gone,
                Some(object) => ElectionRead::Present { uid: object.uid.clone(), generation: object.generation },
            })),
            Command::ListLocks => {
                let own = |stored: &Stored| stored.record().is_some_and(|record| record.election == *election);
                let locks = self.records.iter().filter(|(_, stored)| own(stored));
                Outcome::LocksListed(Ok(locks.map(|(key, stored)| (key.clone(), stored.clone())).collect()))
            }
            Command::ListPods { .. } => {
                let listed = self.pods.values().filter(|pod| command.lists(pod, ELECTION));
                Outcome::PodsListed(Ok(listed.cloned().collect()))
            }
            Command::ReadPod { name, .. } => Outcome::PodRead(Ok(self.pods.get(name).cloned())),
            Command::WritePod(write) => Outcome::PodWritten(self.write_pod(election, write)?),
            other => return Err(format!("no request of this simulation: {other:?}")),
        })
    }

    fn write_record(&mut self, key: &Key, expected: Option<Version>, record: &Record) -> RecordOutcome {
        if self.stored(key).version() != expected {
            return RecordOutcome::Conflict;
        }
        if self.witnessed == Some(Term(i64::MAX)) {
            let known =
                self.pods.values().filter_map(|pod| pod.annotations.get(TERM_ANNOTATION)?.parse().ok().map(Term));
            let status = self.election.as_ref().map(|object| object.status_term);
            self.witnessed = known.chain(status).max();
        }
        self.put_record(key, |version| Stored::Ours(version, record.clone()));
        RecordOutcome::Written(Version(self.version))
    }

    fn write_pod(&mut self, election: &Uid, write: &WritePod) -> Result<PodOutcome, String> {
        let Some(mut pod) = self.pods.get(&write.name).cloned() else { return Ok(PodOutcome::Gone) };
        if pod.uid != write.uid || pod.version != write.version {
            return Ok(PodOutcome::Conflict);
        }
        let before = pod.clone();
        write.patch.apply(&mut pod);
        if pod == before {
            // As the API server: what changes nothing, has no new version.
            return Ok(PodOutcome::Written(Box::new(pod)));
        }
        if write.change == PodChange::Promote {
            self.by_hand.retain(|(uid, key)| *uid != pod.uid || !write.patch.labels.contains_key(key));
            self.check_term(election, &pod)?;
        } else if shows_any_leader(&pod) && !shows_any_leader(&before) {
            return Err(format!("a demotion of {} made it a leader", pod.name));
        }
        let set: Vec<(&str, &str)> =
            write.patch.labels.iter().filter_map(|(key, value)| Some((&**key, value.as_deref()?))).collect();
        let writes = |scope: &Scope| set.iter().all(|(key, v)| scope.markings.follower.labels.get(key) == Some(*v));
        let mut recorded = self.records.values().filter_map(Stored::record);
        let of_no_record = !recorded.any(|record| record.former.iter().chain([&record.scope]).any(writes));
        let of_the_past = self.election.as_ref().is_none_or(|object| !writes(&object.spec.scope));
        let stamp = write.change == PodChange::Remove && is_marked(&pod);
        let stamp = stamp && self.election.as_ref().is_none_or(|object| object.deleting);
        if write.change != PodChange::Promote && (of_no_record || of_the_past || stamp) {
            self.demoted_late.insert(pod.uid.clone());
        }
        let pod = self.put_pod(pod);
        self.shown.judged += 1;
        self.check_leaders()?;
        Ok(PodOutcome::Written(Box::new(pod)))
    }

    pub fn stored(&self, key: &Key) -> Stored {
        self.records.get(key).cloned().unwrap_or(Stored::Absent)
    }

    // The promises

    fn check_term(&mut self, election: &Uid, pod: &Pod) -> Result<(), String> {
        let term = pod.annotations.get(TERM_ANNOTATION).and_then(|term| term.parse().ok()).map(Term);
        let Some(term) = term else { return Err(format!("{} is promoted without a term", pod.name)) };
        if let Some((last, leader)) = self.last_promotion.get(election) {
            let repeated = term == *last && *leader == pod.uid;
            let lost = self.witnessed.is_some_and(|witnessed| witnessed < *last && term > witnessed);
            if !repeated && !lost && !invariants::term_rises(Some(*last), term) {
                return Err(format!("{} is promoted in term {term}, and {leader} was in term {last}", pod.uid));
            }
        }
        self.shown.leaderships += 1;
        self.last_promotion.insert(election.clone(), (term, pod.uid.clone()));
        // What is promoted before the record is made anew, can still be known then.
        self.witnessed = self.witnessed.filter(|witnessed| *witnessed == Term(i64::MAX));
        Ok(())
    }

    /// Stricter than for one spec alone: not even the labels of an earlier spec may show a second leader.
    /// Only where a person did away with the record that knew of that spec, the labels are judged one by one.
    fn check_leaders(&self) -> Result<(), String> {
        let judged: Vec<Pod> = self.pods.values().map(|pod| self.without_hands(pod)).collect();
        let one = scopes().iter().all(|scope| invariants::at_most_one_leader(&judged, &scope.markings));
        let shown: Vec<&str> = judged.iter().filter(|pod| shows_any_leader(pod)).map(|pod| pod.name.as_str()).collect();
        if one && (shown.len() <= 1 || self.forgotten) { Ok(()) } else { Err(format!("two leaders: {shown:?}")) }
    }

    /// Whether an operator with an older view left a follower's labels on a pod.
    pub fn is_demoted_late(&self, pod: &Pod) -> bool {
        let present = self.election.as_ref().map(|object| &object.spec.scope.markings);
        let mut old = scopes().into_iter().map(|scope| scope.markings).filter(|markings| Some(markings) != present);
        self.demoted_late.contains(&pod.uid) && !old.any(|markings| markings.shows_leader(pod))
    }

    /// The pod without what a person wrote.
    fn without_hands(&self, pod: &Pod) -> Pod {
        let mut pod = pod.clone();
        let by_hand = |key: &str| self.by_hand.contains(&(pod.uid.clone(), key.to_owned()));
        pod.labels = pod.labels.iter().filter(|(key, _)| !by_hand(key)).collect();
        pod
    }

    pub fn labelled_by_hand(&self, pod: &Pod) -> bool {
        self.by_hand.iter().any(|(uid, _)| *uid == pod.uid)
    }
}

/// The specs that a user changes between: other pods, other labels, both.
pub fn scopes() -> Vec<Scope> {
    let marking = |key: &str, value: &str| Marking {
        labels: [(key.to_owned(), value.to_owned())].into(),
        annotations: Pairs::default(),
    };
    let roles =
        Markings { leader: marking("role", "leader"), follower: marking("role", "follower"), ..Markings::default() };
    let active = Markings { leader: marking("active", "true"), ..Markings::default() };
    let by = |key: &str, value: &str| Selector {
        match_labels: [(key.to_owned(), value.to_owned())].into(),
        match_expressions: Vec::new(),
    };
    vec![
        Scope { selector: by("app", "web"), markings: roles.clone() },
        Scope { selector: by("app", "web"), markings: active },
        Scope { selector: by("tier", "a"), markings: roles },
    ]
}

pub fn shows_any_leader(pod: &Pod) -> bool {
    pod.labels.iter().any(|(key, value)| is_leaders(key, value))
}

fn is_leaders(key: &str, value: &str) -> bool {
    matches!((key, value), ("role", "leader") | ("active", "true"))
}

/// Whether an operator has left anything on a pod.
pub fn is_marked(pod: &Pod) -> bool {
    pod.annotations.contains_key(ELECTION_ANNOTATION) || pod.annotations.contains_key(TERM_ANNOTATION)
}

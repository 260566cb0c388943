//! One election: is it accepted, what is wanted of it, what does it ask for, what follows.

use std::time::Duration;

use lictor_core::{
    Command, Desired, Election, Instant, Key, Knowledge, Known, Locks, Output, Pod, PodCache, Situation, Stored,
    Tenure, WorkloadKind,
};
use tokio::sync::mpsc;

use super::{Controller, Purpose};
use crate::api::{Claims, Refusal, Resolved};
use crate::controller::announce::{announce, announce_defects, announce_refusal};
use crate::controller::consul;
use crate::controller::entry::{Entry, Prober, status_term};
use crate::controller::input::Input;
use crate::controller::names::ElectionName;
use crate::controller::status::{farewell, is_undecided, status};
use crate::controller::wording::holder_name;
use crate::controller::workload_watches::{followed, noted, template};
use crate::process::{monotonic, wall};
use crate::telemetry::ElectionFigures;

/// A status that only counts candidates anew, or says that nothing is decided yet, is not written more often than this.
const STATUS_PERIOD: Duration = Duration::from_secs(1);
/// How often it is looked whether a finalizer can be written.
const FINALIZER_RETRY: Duration = Duration::from_millis(200);

impl Controller {
    /// Looks at one election: is it accepted, what is wanted of it, what does it ask for, what follows.
    pub(super) fn decide(&mut self, election: &ElectionName, draining: bool) {
        let now = monotonic();
        let conflict = self.index.conflict(election);
        let Some(content) = self.index.namespaces.get_mut(&election.namespace) else { return };
        let Some(entry) = content.elections.get(&election.name) else { return };
        let held = held_lock(&self.index.locks, entry, &self.elector);
        let Some(entry) = content.elections.get_mut(&election.name) else { return };
        let neighbours_care = entry.conflict.is_some() != conflict.is_some();
        entry.conflict = conflict;
        let refusal = match &entry.resolved {
            Some(Err(refusal)) => Some(refusal.clone()),
            _ => entry.conflict.clone(),
        };
        let Some(desired) = desired(self.purpose, entry, refusal.as_ref(), held.as_ref(), draining) else {
            entry.forget_decisions();
            entry.prober = None;
            return;
        };
        let lacks = desired == Desired::Run && (!entry.has_finalizer() || entry.lacking_claims().is_some());
        if lacks {
            let claims = entry.lacking_claims().unwrap_or_else(|| entry.claims.clone());
            // What was never written to, has nothing to lose.
            let new = !entry.has_finalizer() && entry.election().is_none();
            self.write_metadata(election, true, claims);
            if new {
                return;
            }
        }
        let Some(entry) = self
            .index
            .namespaces
            .get_mut(&election.namespace)
            .and_then(|content| content.elections.get_mut(&election.name))
        else {
            return;
        };
        self.watches.begin(entry.kinds());
        let unseen = entry.available_deployment().is_some()
            && !self.watches.knows(WorkloadKind::Deployment, &election.namespace);
        // A leader whose lock is lost is demoted all the same.
        let desired = if desired == Desired::Run && (lacks || unseen) { Desired::Freeze } else { desired };
        let deleted = entry.is_deleted();
        let key = key_of(entry, held);
        let desired = match desired {
            Desired::Freeze | Desired::Refuse if draining && self.consul.releases_on_stop(&key.store) => Desired::Leave,
            desired => desired,
        };
        let tenure = match self.shared.knowledge(&key.store, now) {
            Knowledge::Full(tenure) => Some(tenure),
            Knowledge::Nothing => None,
            Knowledge::Awaited(until) => {
                self.timers.add(until, election.clone());
                return;
            }
        };
        let (wake, withdrawn) = self.step_election(election, &key, desired, tenure);
        if withdrawn && (deleted || self.withdraws(election)) {
            if !deleted && self.write_farewell(election) {
                return;
            }
            self.write_metadata(election, false, Claims::default());
            return;
        }
        self.follow_up(election, refusal.as_ref(), desired, wake);
        if neighbours_care {
            self.index.mark_neighbours(election);
        }
    }

    /// One step of an election; returns when the next one is due, and whether nothing is left of it. `tenure`: that of its lock's
    /// store, of which otherwise nothing is known.
    fn step_election(
        &mut self,
        election: &ElectionName,
        key: &Key,
        desired: Desired,
        tenure: Option<Tenure>,
    ) -> (Option<Instant>, bool) {
        let now = monotonic();
        let Some(content) = self.index.namespaces.get_mut(&election.namespace) else { return (None, false) };
        let known =
            content.elections.get(&election.name).map(|entry| followed(entry, content, &self.watches, desired, wall()));
        let (Some(entry), Some(known)) = (content.elections.get_mut(&election.name), known) else {
            return (None, false);
        };
        entry.followed = known;
        let pods: Vec<&Pod> = entry.members.all().filter_map(|pod| content.pods.get(pod)).collect();
        let spec = entry.resolved.as_ref().and_then(|resolved| resolved.as_ref().ok());
        let known = Known {
            now,
            wall: wall(),
            generation: entry.object.metadata.generation.unwrap_or_default(),
            desired,
            key,
            spec: spec.map(Resolved::spec),
            status_term: status_term(&entry.object),
            cluster: entry.followed.cluster,
            workloads: entry.followed.workloads.as_deref(),
            jobs: &entry.followed.jobs,
            wind_down: entry.followed.wind_down,
            pods: &pods,
            nodes: &self.index.nodes,
            probe_failed: entry.probe_failed.as_ref(),
            locks: &self.index.locks,
            tenure,
            rewound: self.shared.rewound(&key.store),
        };
        let Output { requests, announcements, stores } = entry.replica.step(&known, &mut self.begun);
        entry.take_back_requests();
        let wake = entry.election().and_then(Election::wake);
        let selected: Vec<&Pod> = entry.members.candidates().filter_map(|pod| content.pods.get(pod)).collect();
        announce_defects(entry, &selected, &self.executor);
        for announcement in announcements {
            announce(entry, announcement, &self.executor);
        }
        for request in requests {
            let (op, id) = (request.op, entry.id.clone());
            let grant = match &request.command {
                Command::NoteJob { plan, term, .. } => {
                    let claims = noted(entry, plan, *term);
                    self.executor.note_job(id, entry.object.clone(), request.op, &request.command, claims);
                    None
                }
                Command::CreateJob { plan, .. } => {
                    let template = template(entry, plan).cloned();
                    self.executor.create_job(id, entry.object.clone(), request, template)
                }
                _ => self.executor.perform(id, stores.clone(), request),
            };
            if let Some(grant) = grant {
                entry.grants.insert(op, grant);
            }
        }
        (wake, entry.replica.is_withdrawn())
    }

    fn withdraws(&self, election: &ElectionName) -> bool {
        let entry =
            self.index.namespaces.get(&election.namespace).and_then(|content| content.elections.get(&election.name));
        self.purpose == Purpose::Withdraw && entry.is_some_and(|entry| entry.resolved.is_some())
    }

    /// Says in the status of an election that it is served no more. Returns whether that is still to be done.
    fn write_farewell(&mut self, election: &ElectionName) -> bool {
        // That it can't be told must not keep what was written from being taken off.
        const ATTEMPTS: u32 = 3;
        let now = monotonic();
        let Some(content) = self.index.namespaces.get_mut(&election.namespace) else { return false };
        let Some(entry) = content.elections.get_mut(&election.name) else { return false };
        let status = farewell(entry);
        if status == entry.last_status() || entry.writes.status.failures >= ATTEMPTS {
            return false;
        }
        if !entry.writes.is_under_way() && now >= entry.writes.status.not_before {
            let (number, permit) = entry.writes.begin_status();
            self.executor.write_status(entry.id.clone(), number, permit, entry.object.clone(), status);
        }
        let retry = entry.writes.status.not_before.max(now + FINALIZER_RETRY);
        self.timers.add(retry, election.clone());
        true
    }

    /// Puts the finalizer on, and says which workloads are changed, before anything else is written; takes it off after everything
    /// else is gone.
    fn write_metadata(&mut self, election: &ElectionName, held: bool, claims: Claims) {
        let now = monotonic();
        let Some(content) = self.index.namespaces.get_mut(&election.namespace) else { return };
        let Some(entry) = content.elections.get_mut(&election.name) else { return };
        entry.prober = None;
        if entry.writes.may_write_metadata(now) {
            let number = entry.writes.begin_metadata();
            if !held {
                consul::forget(entry, &self.executor);
            }
            self.executor.write_metadata(entry.id.clone(), number, entry.object.clone(), held, claims);
        }
        let retry = entry.writes.metadata.not_before.max(now + FINALIZER_RETRY);
        self.timers.add(retry, election.clone());
    }

    /// Probe, status, metrics and the next wake.
    fn follow_up(
        &mut self,
        election: &ElectionName,
        refusal: Option<&Refusal>,
        desired: Desired,
        wake: Option<Instant>,
    ) {
        let now = monotonic();
        let Some(content) = self.index.namespaces.get_mut(&election.namespace) else { return };
        let Some(entry) = content.elections.get_mut(&election.name) else { return };
        follow_leader(entry, &content.pods, desired, &self.http, &self.sender);
        let selected = entry.members.candidates().filter_map(|pod| content.pods.get(pod));
        let nodes = &self.index.nodes;
        let candidates: Vec<_> =
            selected.map(|pod| (pod, pod.node.as_ref().and_then(|node| nodes.get(node)))).collect();
        self.metrics.record(ElectionFigures {
            namespace: election.namespace.to_string(),
            name: election.name.clone(),
            leader: entry.election().and_then(Election::leader).map(|(_, holder, _)| holder_name(entry, holder)),
            term: entry.election().map_or(0, |group| group.term().0),
            transitions: entry.figures.transitions,
            label_drift: entry.figures.label_drift,
            // A group that another cluster leads has its leader.
            has_candidate: (!candidates.is_empty() || entry.followed.cluster.is_some())
                && !entry.election().is_some_and(|group| matches!(group.situation(), Situation::LedElsewhere(_))),
        });
        let mut retry = None;
        if desired == Desired::Run
            && let Some(claims) = entry.superfluous_claims()
        {
            if entry.writes.may_write_metadata(now) {
                let number = entry.writes.begin_metadata();
                self.executor.write_metadata(entry.id.clone(), number, entry.object.clone(), true, claims);
            }
            retry = Some(entry.writes.metadata.not_before.max(now + FINALIZER_RETRY));
        }
        let mut next = [wake, consul::follow(entry, &self.executor), retry].into_iter().flatten().min();
        if desired != Desired::Withdraw
            && let Some(status) = status(entry, refusal, &candidates, now, self.lease_duration)
        {
            let before = entry.last_status();
            if status != before && !entry.writes.is_under_way() {
                let important = !is_undecided(&status)
                    && (status.leader != before.leader
                        || status.conditions != before.conditions
                        || status.observed_generation != before.observed_generation
                        || status.history.len() != before.history.len());
                let not_before = entry.writes.status.not_before;
                let due = if important { not_before } else { not_before.max(now + STATUS_PERIOD) };
                let due = if entry.wake.is_some_and(|wake| wake <= now) { not_before } else { due };
                if now >= due {
                    if let Some(Refusal { reason, message }) = refusal
                        && !before.conditions.iter().any(|old| old.reason == *reason && old.message == *message)
                    {
                        announce_refusal(entry, reason, message, &self.executor);
                    }
                    let (number, permit) = entry.writes.begin_status();
                    entry.wake = None;
                    self.executor.write_status(entry.id.clone(), number, permit, entry.object.clone(), status);
                } else {
                    let at = entry.wake.filter(|wake| *wake > now).unwrap_or(due).max(not_before);
                    entry.wake = Some(at);
                    next = Some(next.map_or(at, |next| next.min(at)));
                }
            }
        }
        if let Some(at) = next {
            self.timers.add(at, election.clone());
        }
    }
}

/// What is wanted of an election; `None`: nothing, it is somebody else's.
fn desired(
    purpose: Purpose,
    entry: &Entry,
    refusal: Option<&Refusal>,
    held: Option<&Key>,
    draining: bool,
) -> Option<Desired> {
    let ends = entry.is_deleted() || (purpose == Purpose::Withdraw && entry.resolved.is_some());
    if ends {
        return entry.has_finalizer().then_some(Desired::Withdraw);
    }
    if entry.resolved.is_none() {
        // Another lictor serves its class now; what this one holds, it gives up.
        return held.map(|_| Desired::Withdraw);
    }
    Some(if refusal.is_some() {
        Desired::Refuse
    } else if draining || entry.spec().is_some_and(|spec| spec.paused) {
        Desired::Freeze
    } else {
        Desired::Run
    })
}

/// A lock of this election that this lictor wrote.
fn held_lock(locks: &Locks, entry: &Entry, elector: &str) -> Option<Key> {
    let controller = |elector: &str| elector.split('#').next().map(str::to_owned);
    let own =
        |stored: &Stored| stored.written().is_some_and(|record| controller(&record.elector) == controller(elector));
    locks.of(&entry.id.uid).find(|(_, stored)| own(stored)).map(|(key, _)| key.clone())
}

/// The lock to work with: that of the spec; without a valid one that which is held.
fn key_of(entry: &Entry, held: Option<Key>) -> Key {
    match (&entry.conflict, entry.spec()) {
        // A lock that belongs to another election is not even looked at.
        (Some(conflict), _) if conflict.reason == "KeyTaken" => Key::none(),
        (_, Some(spec)) => spec.key.clone(),
        (_, None) => held.unwrap_or_else(|| Key::lease(&*entry.id.election.namespace, &entry.id.election.name)),
    }
}

/// Probes the present leader, and nobody else.
fn follow_leader(
    entry: &mut Entry,
    pods: &PodCache,
    desired: Desired,
    http: &reqwest::Client,
    inputs: &mpsc::UnboundedSender<Input>,
) {
    let wanted =
        entry.spec().and_then(|spec| spec.probe.clone()).filter(|_| desired == Desired::Run).and_then(|probe| {
            let (_, holder, _) = entry.election()?.leader()?;
            let pod = pods.get(holder.pod.as_ref()?).filter(|pod| pod.uid == holder.uid)?;
            let ip = pod.ip.as_ref()?.parse().ok()?;
            Some((holder.uid.clone(), ip, probe))
        });
    let Some((leader, ip, probe)) = wanted else {
        entry.prober = None;
        entry.probe_failed = None;
        return;
    };
    if entry.prober.as_ref().is_some_and(|prober| prober.leader == leader && prober.ip == ip && prober.probe == probe) {
        return;
    }
    entry.probe_failed = None;
    entry.prober = Some(Prober::start(entry.id.clone(), leader, ip, probe, http.clone(), inputs.clone()));
}

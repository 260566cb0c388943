//! The workloads of elections: which are watched, what an election is shown of them, and what is told about them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use lictor_core::{
    Desired, Election, Failure, Instant, JobPlan, NotEligible, Setting, Term, Timestamp, Wish, Workload, WorkloadId,
    WorkloadKind,
};
use tokio::sync::mpsc;

use super::entry::Entry;
use super::index::Content;
use super::input::{Input, forward};
use super::names::Namespace;
use crate::api::{
    Claims, JobTemplate, OnRelease, WORKLOADS_FOLLOW, WorkloadRule, WorkloadState, WorkloadStatus, WorkloadsStatus,
    condition, unknown,
};
use crate::kubernetes::{Change, Namespaces, WatchFailure, WorkloadObject, watch_workloads};

/// What controllers may take, beyond the pods' own grace period, to end what was disabled, in seconds.
const CONTROLLERS: u32 = 5;
/// Around each full minute, how long a CronJob's controller may not have seen yet that it is suspended, and start what is due, in
/// seconds: a third of it before.
const TICK: i64 = 3;

/// The watches of workloads: each begins when the first election names a workload of its kind.
pub(super) struct WorkloadWatches {
    client: Client,
    namespaces: Namespaces,
    sender: mpsc::UnboundedSender<Input>,
    begun: BTreeSet<WorkloadKind>,
    missing: BTreeSet<(WorkloadKind, Option<String>)>,
    forbidden: BTreeMap<(WorkloadKind, Option<String>), Failure>,
}

/// What an election was shown of its workloads.
#[derive(Default)]
pub(super) struct Followed {
    /// `None`: not known yet.
    pub(super) workloads: Option<Vec<Workload>>,
    pub(super) jobs: Vec<JobPlan>,
    /// In seconds.
    pub(super) wind_down: u32,
    /// Whether the cluster itself may lead, if it is the candidate.
    pub(super) cluster: Option<Result<(), NotEligible>>,
    /// The kinds that this operator has no right to see.
    forbidden: BTreeMap<WorkloadKind, Failure>,
    /// Who set each workload's field last, but for this program. What is put right shows it no more.
    setters: BTreeMap<WorkloadId, String>,
}

impl WorkloadWatches {
    pub(super) fn new(client: Client, namespaces: Namespaces, sender: mpsc::UnboundedSender<Input>) -> Self {
        let (begun, missing, forbidden) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { client, namespaces, sender, begun, missing, forbidden }
    }

    /// Begins to watch these kinds, where that is not done already.
    pub(super) fn begin(&mut self, kinds: BTreeSet<WorkloadKind>) {
        for kind in kinds {
            if self.begun.insert(kind) {
                self.missing.extend(self.namespaces.scopes().into_iter().map(|scope| (kind, scope)));
                let changes = watch_workloads(&self.client, &self.namespaces, kind);
                let inputs = futures::StreamExt::map(changes, move |change| Input::Workloads(kind, change));
                forward(&self.sender, inputs);
            }
        }
    }

    /// Notes what a change tells of its watch; returns whether more is known since.
    pub(super) fn observe(&mut self, kind: WorkloadKind, change: &Change<WorkloadObject>) -> bool {
        match change {
            Change::All(scope, ..) => {
                let what = (kind, scope.clone());
                let known = self.forbidden.remove(&what).is_some();
                self.missing.remove(&what) || known
            }
            Change::Broken(scope, WatchFailure::Forbidden(failure)) => {
                let what = (kind, scope.clone());
                let known = self.forbidden.insert(what.clone(), failure.clone()).is_none();
                self.missing.remove(&what) || known
            }
            Change::Broken(_, WatchFailure::Other(_))
            | Change::Rewound(_)
            | Change::Applied(_)
            | Change::Deleted(_) => false,
        }
    }

    /// Whether the workloads of a kind are known in a namespace, as far as there is a right to it.
    pub(super) fn knows(&self, kind: WorkloadKind, namespace: &Namespace) -> bool {
        let in_scope = |scope: &Option<String>| scope.as_deref().is_none_or(|scope| scope == &**namespace);
        self.begun.contains(&kind) && !self.missing.iter().any(|(missing, scope)| *missing == kind && in_scope(scope))
    }

    fn forbidden(&self, kind: WorkloadKind, namespace: &Namespace) -> Option<&Failure> {
        let in_scope = |scope: &Option<String>| scope.as_deref().is_none_or(|scope| scope == &**namespace);
        let found = self.forbidden.iter().find(|((forbidden, scope), _)| *forbidden == kind && in_scope(scope));
        found.map(|(_, failure)| failure)
    }
}

impl Entry {
    /// The kinds of workloads that have to be known for it.
    pub(super) fn kinds(&self) -> BTreeSet<WorkloadKind> {
        let spec = self.spec();
        let named = spec.into_iter().flat_map(|spec| spec.workloads.keys().map(|id| id.kind));
        let mut kinds: BTreeSet<WorkloadKind> = named.chain(self.claims.ids().map(|(id, _)| id.kind)).collect();
        let makes_jobs = spec.is_some_and(|spec| !spec.jobs.is_empty()) || !self.claims.started.is_empty();
        if makes_jobs || kinds.contains(&WorkloadKind::CronJob) {
            kinds.insert(WorkloadKind::Job);
        }
        if self.available_deployment().is_some() {
            kinds.insert(WorkloadKind::Deployment);
        }
        kinds
    }

    /// The Deployment that must be available for this cluster to lead.
    pub(super) fn available_deployment(&self) -> Option<&str> {
        self.spec()?.cluster.as_ref()?.available.as_deref()
    }

    /// Whether a workload matters to it.
    pub(super) fn follows(&self, object: &WorkloadObject) -> bool {
        let claimed = |claim: &lictor_core::WorkloadClaim| claim.election == self.id.election.name;
        self.spec().is_some_and(|spec| spec.workloads.contains_key(&object.id))
            || object.claim.as_ref().is_some_and(claimed)
            || self.claims.claims.contains_key(&object.id.to_string())
            || (object.id.kind == WorkloadKind::Deployment
                && self.available_deployment().is_some_and(|name| name == object.id.name))
    }

    /// What its object has to say before any workload is changed, if it does not yet.
    pub(super) fn lacking_claims(&self) -> Option<Claims> {
        let mut claims = self.claims.clone();
        for (id, rule) in &self.spec()?.workloads {
            claims.claims.insert(id.to_string(), rule.on_release);
        }
        Some(claims).filter(|claims| *claims != self.claims)
    }

    /// What its object need not say any more: these workloads are given back.
    pub(super) fn superfluous_claims(&self) -> Option<Claims> {
        let (spec, workloads) = (self.spec()?, self.followed.workloads.as_ref()?);
        let mut claims = self.claims.clone();
        for (id, _) in self.claims.ids() {
            let claimed = workloads.iter().any(|workload| {
                workload.id == id
                    && workload.claim.as_ref().is_some_and(|claim| claim.election == self.id.election.name)
            });
            let unknown = self.followed.forbidden.contains_key(&id.kind);
            if !spec.workloads.contains_key(&id) && !claimed && !unknown {
                claims.claims.remove(&id.to_string());
            }
        }
        claims.started.retain(|plan, _| spec.jobs.contains_key(plan));
        Some(claims).filter(|claims| *claims != self.claims)
    }
}

/// What an election is shown of its workloads.
pub(super) fn followed(
    entry: &Entry,
    content: &Content,
    watches: &WorkloadWatches,
    desired: Desired,
    wall: Timestamp,
) -> Followed {
    let spec = entry.spec();
    let namespace = &entry.id.election.namespace;
    let kinds = entry.kinds();
    let jobs = spec.map(|spec| &spec.jobs).into_iter().flatten();
    let mut followed = Followed {
        jobs: jobs.clone().map(|(name, _)| plan(entry, name)).collect(),
        wind_down: jobs
            .map(|(_, template)| template_grace(template).saturating_add(CONTROLLERS))
            .max()
            .unwrap_or_default(),
        cluster: spec.and_then(|spec| spec.cluster.as_ref()).map(|_| cluster(entry, content)),
        ..Followed::default()
    };
    for kind in &kinds {
        if let Some(failure) = watches.forbidden(*kind, namespace) {
            followed.forbidden.insert(*kind, failure.clone());
        }
    }
    if !kinds.iter().all(|kind| watches.knows(*kind, namespace)) {
        return followed;
    }
    let rules = spec.map(|spec| &spec.workloads);
    let claimed: BTreeMap<WorkloadId, OnRelease> = entry.claims.ids().collect();
    let named: BTreeSet<&WorkloadId> = rules.into_iter().flat_map(BTreeMap::keys).chain(claimed.keys()).collect();
    let mut workloads = Vec::new();
    for id in named {
        let Some(object) = content.workloads.get(id) else { continue };
        // One that is refused has nothing to do with what it has not claimed, also when it leaves its lock to others.
        let own = |claim: &lictor_core::WorkloadClaim| claim.election == entry.id.election.name;
        if entry.conflict.is_some() && !object.claim.as_ref().is_some_and(own) {
            continue;
        }
        let rule = rules.and_then(|rules| rules.get(id)).copied();
        let released = rule.map_or_else(|| claimed.get(id).copied().unwrap_or_default(), |rule| rule.on_release);
        let wish = match (desired, rule, spec) {
            (Desired::Withdraw, ..) | (_, None, Some(_)) => Wish::Release { restore: released == OnRelease::Restore },
            (_, rule, _) => Wish::Follow { replicas: rule.and_then(|rule| rule.replicas) },
        };
        let rule = rule.unwrap_or_default();
        if let Wish::Follow { .. } = wish {
            followed.wind_down = followed.wind_down.max(wind_down(object, rule));
        }
        // As soon as it is put right, the field is this program's again: whose it was before, is remembered.
        if let Some(setter) = object.setter.as_ref().or_else(|| entry.followed.setters.get(id)) {
            followed.setters.insert(id.clone(), setter.clone());
        }
        workloads.push(shown(object, content, rule, wish, wall));
    }
    let made = content.workloads.values().filter(|object| object.owner.as_ref() == Some(&entry.id.uid));
    for object in made {
        let Some(template) = &object.template else { continue };
        let term = object.id.name.strip_prefix(template.as_str()).and_then(|rest| rest.strip_prefix('-')?.parse().ok());
        // The Jobs of a template that is in the list no more are of no present term.
        let term = term.filter(|_| followed.jobs.iter().any(|plan| plan.name == *template)).unwrap_or_default();
        workloads.push(shown(object, content, WorkloadRule::default(), Wish::FollowTerm(Term(term)), wall));
    }
    followed.workloads = Some(workloads);
    followed
}

fn plan(entry: &Entry, name: &str) -> JobPlan {
    JobPlan { name: name.into(), started: entry.claims.started.get(name).map(|term| Term(*term)) }
}

fn cluster(entry: &Entry, content: &Content) -> Result<(), NotEligible> {
    let Some(name) = entry.available_deployment() else { return Ok(()) };
    let id = WorkloadId { kind: WorkloadKind::Deployment, name: name.into() };
    let available = content.workloads.get(&id).is_some_and(|object| object.available && !object.deleting);
    if available { Ok(()) } else { Err(NotEligible::Unavailable) }
}

fn shown(object: &WorkloadObject, content: &Content, rule: WorkloadRule, wish: Wish, wall: Timestamp) -> Workload {
    let of_it = |job: &&WorkloadObject| job.id.kind == WorkloadKind::Job && job.owner.as_ref() == Some(&object.uid);
    let is_cron_job = object.id.kind == WorkloadKind::CronJob;
    let jobs = || content.workloads.values().filter(of_it).filter(|_| is_cron_job);
    let running = || jobs().filter(|job| !job.finished || job.deleting);
    Workload {
        id: object.id.clone(),
        uid: object.uid.clone(),
        version: object.version,
        setting: object.setting,
        claim: object.claim.clone(),
        deleting: object.deleting,
        finished: object.finished,
        remains: match object.id.kind {
            _ if object.finished => false,
            _ if object.setting.runs() => true,
            WorkloadKind::CronJob => {
                let due = (wall.0 + TICK * 1000 / 3).rem_euclid(60_000) < TICK * 1000;
                due || (rule.delete_running && running().next().is_some())
            }
            WorkloadKind::Deployment | WorkloadKind::Job | WorkloadKind::StatefulSet => {
                let mut pods = content.pods.iter().filter(|pod| !pod.finished);
                !object.idle || pods.any(|pod| object.selector.matches(&pod.labels))
            }
        },
        deletable: rule.delete_running && running().any(|job| !job.deleting),
        last_tick: jobs().map(|job| job.tick).chain([object.tick]).flatten().max().filter(|_| is_cron_job),
        wish,
    }
}

/// How long what runs of a workload may take to end once it is disabled, in seconds.
fn wind_down(object: &WorkloadObject, rule: WorkloadRule) -> u32 {
    let once = object.grace.saturating_add(CONTROLLERS);
    match object.id.kind {
        WorkloadKind::CronJob if !rule.delete_running => u32::try_from(TICK).unwrap_or_default(),
        WorkloadKind::StatefulSet if object.one_by_one => {
            let kept = object.claim.as_ref().map(|claim| claim.kept);
            let numbers = [Some(object.setting), kept, rule.replicas.map(Setting::Replicas)].into_iter().flatten();
            let most = numbers.map(|setting| if let Setting::Replicas(number) = setting { number } else { 1 }).max();
            once.saturating_mul(most.and_then(|most| most.try_into().ok()).unwrap_or(1).max(1))
        }
        _ => once,
    }
}

/// That of a Job's pods, in seconds.
fn template_grace(template: &JobTemplate) -> u32 {
    let pod = template.spec.get("template").and_then(|template| template.get("spec"));
    let grace = pod.and_then(|spec| spec.get("terminationGracePeriodSeconds")?.as_i64());
    grace.map_or(30, |seconds| u32::try_from(seconds.max(0)).unwrap_or(u32::MAX))
}

/// What is told about the workloads, as far as they are known; `None`: there are none.
pub(super) fn told(entry: &Entry, group: &Election, now: Instant) -> Option<(Option<WorkloadsStatus>, Condition)> {
    let (spec, followed) = (entry.spec()?, &entry.followed);
    if spec.workloads.is_empty() && spec.jobs.is_empty() {
        return None;
    }
    let Some(workloads) = &followed.workloads else {
        let message = "the workloads have not been read yet";
        return Some((None, unknown(WORKLOADS_FOLLOW, "NotReadYet", message, entry.generation())));
    };
    let mut items = Vec::new();
    for id in spec.workloads.keys() {
        let found = workloads.iter().find(|workload| workload.id == *id);
        let forbidden = followed.forbidden.contains_key(&id.kind);
        let state = match found {
            _ if forbidden || group.workload_failures().contains_key(id) => WorkloadState::Failing,
            None => WorkloadState::Missing,
            Some(workload) => state(workload, group, &entry.id.election.name, now),
        };
        items.push(WorkloadStatus { kind: id.kind.into(), name: id.name.clone(), state });
    }
    for plan in &followed.jobs {
        let of = |workload: &&Workload| match workload.wish {
            Wish::FollowTerm(term) => plan.job(term) == workload.id,
            Wish::Follow { .. } | Wish::Release { .. } => false,
        };
        if let Some(job) = workloads.iter().filter(of).max_by_key(|job| job.version) {
            let failing = group.workload_failures().contains_key(&job.id);
            let state = if failing { WorkloadState::Failing } else { state(job, group, &entry.id.election.name, now) };
            items.push(WorkloadStatus { kind: job.id.kind.into(), name: job.id.name.clone(), state });
        }
    }
    let condition = follow(entry, group, &items, now);
    Some((Some(WorkloadsStatus { wind_down_seconds: followed.wind_down, items }), condition))
}

fn state(workload: &Workload, group: &Election, election: &str, now: Instant) -> WorkloadState {
    let enabled = workload.claim.as_ref().is_some_and(|claim| claim.enabled && claim.election == election);
    match (enabled, group.leader().is_some()) {
        _ if workload.finished => WorkloadState::Finished,
        (true, true) => WorkloadState::Enabled,
        (false, true) if group.workloads_wait(now).is_some() => WorkloadState::Waiting,
        _ if workload.remains => WorkloadState::WindingDown,
        _ => WorkloadState::Disabled,
    }
}

fn follow(entry: &Entry, group: &Election, items: &[WorkloadStatus], now: Instant) -> Condition {
    let told = |holds: bool, reason: &str, message: String| {
        condition(WORKLOADS_FOLLOW, holds, reason, message, entry.generation())
    };
    if let Some(failure) = entry.followed.forbidden.values().next() {
        return told(false, "Forbidden", failure.text().into());
    }
    if let Some((id, failure)) = group.workload_failures().iter().next() {
        let forbidden = matches!(failure, Failure::Refused(text) if text.starts_with("not allowed"));
        let reason = if forbidden { "Forbidden" } else { "WriteFails" };
        return told(false, reason, format!("{id}: tried again and again: {}", failure.text()));
    }
    let among = |state: WorkloadState| {
        let names = items.iter().filter(move |item| item.state == state);
        let names: Vec<String> = names.map(|item| format!("{:?}/{}", item.kind, item.name)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    if let Some(names) = among(WorkloadState::Missing) {
        return told(
            false,
            "Missing",
            format!("there is no {names} in this namespace: make it, or take it out of spec.workloads"),
        );
    }
    if let Some(id) = group.contested_workloads(now).next() {
        let who = entry.followed.setters.get(id).map_or_else(|| "somebody".into(), |setter| format!("{setter:?}"));
        let field = match id.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => "spec.replicas",
            WorkloadKind::CronJob | WorkloadKind::Job => "spec.suspend",
        };
        let message = format!(
            "{who} sets {field} of {id} to something else, and it is put right again and again: leave the field out of what it \
             applies, or have it ignored there"
        );
        return told(false, "Contested", message);
    }
    if let Some(names) = among(WorkloadState::Waiting) {
        let seconds = group.record().and_then(|record| record.legacy.as_ref()).map_or(0, |legacy| legacy.waits_seconds);
        let message = format!(
            "{names}: enabled at most {seconds} s after the lock was lost by the other cluster, which had not let go of it: what \
             runs there may take so long to end"
        );
        return told(false, "Waiting", message);
    }
    if let Some(names) = among(WorkloadState::WindingDown) {
        return told(false, "WindingDown", format!("{names}: disabled, and what runs of it is ending"));
    }
    told(true, "Follow", "the workloads are as the leadership wants them".into())
}

/// What a request needs that makes or notes a Job.
pub(super) fn template<'a>(entry: &'a Entry, plan: &str) -> Option<&'a JobTemplate> {
    entry.spec()?.jobs.get(plan)
}

/// The claims with one more Job that was made.
pub(super) fn noted(entry: &Entry, plan: &str, term: Term) -> Claims {
    let mut claims = entry.claims.clone();
    claims.started.insert(plan.into(), term.0);
    claims
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_grace_period_of_any_length_is_one() {
        for (given, seconds) in [
            (json!(7), 7),
            (json!(0), 0),
            (json!(-1), 0),
            (json!(5_000_000_000_i64), u32::MAX),
            (json!(u32::MAX), u32::MAX),
            (json!("7"), 30),
            (json!(null), 30),
        ] {
            let template = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": given}}}});
            assert_eq!(template_grace(&serde_json::from_value(template).unwrap()), seconds, "{given}");
        }
        assert_eq!(template_grace(&JobTemplate::default()), 30);
    }
}

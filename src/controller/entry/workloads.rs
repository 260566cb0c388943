//! The workloads of one election: those that it has claimed, and those that it was shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lictor_api::{Claims, JobTemplate, Kept, LeaderElection, WhenReleased, WorkloadRule};
use lictor_core::{
    Desired, Failure, JobPlan, Locks, Pod, PodCache, Record, Scope, Setting, Slice, StoreId, Term, Timestamp,
    Unavailable, Wish, Workload, WorkloadClaim, WorkloadId, WorkloadKind,
};

use crate::controller::lookup::{Labels, WorkloadCache};
use crate::controller::object::{CIRCULAR_WORKLOADS, ElectionObject};
use crate::controller::on_demand::{OnDemandWatches, Watched};
use crate::kubernetes::{ServiceObject, WorkloadObject};

/// How long a controller may take, beyond the pods' own grace period, to end a disabled workload's pods, in seconds.
const CONTROLLERS: u32 = 5;
/// How long a CronJob's controller may act by what it saw before, in milliseconds. So a CronJob that is suspended this long before a full
/// minute may start the Job that is due then, and that Job may be seen this long after it.
const HEARS_WITHIN: i64 = 2_000;
/// How long a suspended CronJob may take to start nothing more, if nobody waits for its Jobs, in seconds.
const TICK: u32 = 3;

/// The workloads of an election.
pub(crate) struct Workloads {
    /// The workloads that the election has changed, according to its object.
    claims: Arc<Claims>,
    /// The workloads that the election was shown in its last step.
    followed: Followed,
    /// Whether the workloads that it leaves as they are were reported.
    left_told: bool,
}

/// The workloads as an election was shown them.
#[derive(Default)]
struct Followed {
    /// `None` until they are known.
    workloads: Option<Vec<Workload>>,
    jobs: Vec<JobPlan>,
    /// How long running workloads may take to end, in seconds.
    wind_down: u32,
    /// If the cluster is the candidate: whether it may lead.
    cluster: Option<Result<(), Unavailable>>,
    /// The kinds that this operator has no right to see.
    forbidden: BTreeMap<WorkloadKind, Failure>,
    /// The kinds that a departing election leaves as they are, because the operator can't see them.
    left: BTreeMap<WorkloadKind, Failure>,
    /// The last writer of each workload's field, other than this program. A field that was put right no longer shows that writer.
    setters: BTreeMap<WorkloadId, String>,
    /// W10: the workloads stay as they are.
    stay: bool,
    /// Why there is no candidate: a workload that would make candidates is switched off.
    switched_off: Option<String>,
}

/// The presence of an election's candidates.
#[derive(Clone, Copy)]
pub(crate) enum Presence {
    /// There are pods.
    Some,
    /// There are none at present.
    None,
    /// There are none, and as far as the operator knows there never were any.
    Never,
}

/// The known objects in the election's namespace.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) pods: &'a PodCache,
    pub(crate) labels: &'a Labels,
    pub(crate) workloads: &'a WorkloadCache,
    pub(crate) services: &'a BTreeMap<String, ServiceObject>,
    pub(crate) slices: &'a BTreeMap<String, Slice>,
}

impl Workloads {
    pub(crate) fn new(seen: &LeaderElection) -> Self {
        let claims = Arc::new(Claims::of(seen.metadata.annotations.as_ref()));
        Self { claims, followed: Followed::default(), left_told: false }
    }

    /// Takes the claims of the current object.
    pub(crate) fn renew(&mut self, seen: &LeaderElection) {
        self.claims = Arc::new(Claims::of(seen.metadata.annotations.as_ref()));
    }

    /// The workloads that the election has changed.
    pub(crate) fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// The workloads that the election was shown; `None` until they are known.
    pub(crate) fn shown(&self) -> Option<&[Workload]> {
        self.followed.workloads.as_deref()
    }

    /// The Jobs that are made once in each term.
    pub(crate) fn jobs(&self) -> &[JobPlan] {
        &self.followed.jobs
    }

    /// How long running workloads may take to end, in seconds.
    pub(crate) fn wind_down(&self) -> u32 {
        self.followed.wind_down
    }

    /// Whether the cluster itself may lead; `None` if pods are the candidates.
    pub(crate) fn cluster(&self) -> Option<Result<(), Unavailable>> {
        self.followed.cluster
    }

    /// The kinds that this operator has no right to see.
    pub(crate) fn forbidden(&self) -> &BTreeMap<WorkloadKind, Failure> {
        &self.followed.forbidden
    }

    /// The workloads that the election leaves as they are, and why. Returns them only once.
    pub(crate) fn take_left(&mut self) -> Option<(Vec<WorkloadId>, Failure)> {
        let left = &self.followed.left;
        let all: Vec<_> = self.claims.ids().map(|(id, _)| id).filter(|id| left.contains_key(&id.kind)).collect();
        let why = left.get(&all.first()?.kind)?.clone();
        (!std::mem::replace(&mut self.left_told, true)).then_some((all, why))
    }

    /// Why there is no candidate, if a workload that would make candidates is switched off.
    pub(crate) fn switched_off(&self) -> Option<&String> {
        self.followed.switched_off.as_ref()
    }

    /// W10: the presence of the candidates. `record`: the record in the election's lock.
    pub(crate) fn presence(&self, object: &ElectionObject, any: bool, record: Option<&Record>) -> Presence {
        let selector = object.spec().filter(|spec| spec.cluster.is_none()).map(|spec| &spec.scope.selector);
        let matched = match &self.claims.selected {
            Some(selected) => Some(selected),
            // The note goes with the last workload. The record still says which selector had candidates.
            None => record
                .filter(|record| record.election == object.id().uid && !object.shares_lock())
                .map(|record| &record.scope.selector),
        };
        match selector {
            Some(_) if any => Presence::Some,
            Some(_) if matched != selector => Presence::Never,
            Some(_) => Presence::None,
            None => Presence::Some,
        }
    }

    /// The last writer of a workload's field, other than this program.
    pub(crate) fn setter(&self, id: &WorkloadId) -> Option<&String> {
        self.followed.setters.get(id)
    }

    /// The kinds of workloads that have to be known for the election.
    pub(crate) fn kinds(&self, object: &ElectionObject) -> BTreeSet<WorkloadKind> {
        let spec = object.spec();
        let named = spec.into_iter().flat_map(|spec| spec.workloads.keys().map(|id| id.kind));
        let mut kinds: BTreeSet<WorkloadKind> = named.chain(self.claims.ids().map(|(id, _)| id.kind)).collect();
        let makes_jobs = spec.is_some_and(|spec| !spec.jobs.is_empty()) || !self.claims.started.is_empty();
        if makes_jobs || kinds.contains(&WorkloadKind::CronJob) {
            kinds.insert(WorkloadKind::Job);
        }
        if object.available_deployment().is_some() {
            kinds.insert(WorkloadKind::Deployment);
        }
        kinds
    }

    /// The claims that the object must name before any workload is changed, if some are missing.
    pub(crate) fn lacking_claims(&self, object: &ElectionObject, locks: &Locks) -> Option<Claims> {
        let mut claims = Claims::clone(&self.claims);
        // H16: a Lease may name the scopes that were written before the lock moved to a shared store.
        if object.shares_lock() {
            let leases = locks.of(&object.id().uid).filter(|(key, _)| key.store == StoreId::leases());
            let recorded = leases.filter_map(|(_, lock)| lock.written()).flat_map(Record::scopes);
            for scope in recorded.chain([&object.spec()?.scope]) {
                if *scope != Scope::default() && !claims.scopes.contains(scope) {
                    claims.scopes.push(scope.clone());
                }
            }
        }
        for (id, rule) in &object.spec()?.workloads {
            claims.claims.insert(id.to_string(), rule.when_released);
        }
        claims.services.extend(object.spec()?.service_name().map(str::to_owned));
        Some(claims).filter(|claims| *claims != *self.claims)
    }

    /// The claims that the object should name now, if they differ. Claims that are over are removed: workloads that were given back,
    /// Services that have no slices of the election, and, if all is `clean`, scopes of earlier specs. The kept fields of workloads are
    /// added, and whether the selector has matched a pod.
    pub(crate) fn present_claims(
        &self,
        object: &ElectionObject,
        any: bool,
        clean: bool,
        unrouted: &[String],
    ) -> Option<Claims> {
        let (spec, workloads) = (object.spec()?, self.shown()?);
        let mut claims = Claims::clone(&self.claims);
        // H16.
        if clean {
            claims.scopes.retain(|scope| object.shares_lock() && *scope == spec.scope);
        }
        // W9.
        for workload in workloads.iter().filter(|workload| claims.claims.contains_key(&workload.id.to_string())) {
            let own = workload.claim.as_ref().filter(|claim| claim.election == object.name());
            // While the workload is enabled, others decide its number of replicas.
            let told = claims.kept.get(&workload.id.to_string()).is_some_and(|kept| kept.uid == workload.uid.0);
            if let (Some(claim), Some(setting)) = (own, workload.kept())
                && !(told && claim.enabled)
            {
                claims.kept.insert(workload.id.to_string(), Kept { uid: workload.uid.0.clone(), setting });
            }
        }
        // W10.
        if any && spec.cluster.is_none() && !(spec.workloads.is_empty() && spec.jobs.is_empty()) {
            claims.selected = Some(spec.scope.selector.clone());
        }
        for (id, _) in self.claims.ids() {
            let claimed = workloads.iter().any(|workload| {
                workload.id == id && workload.claim.as_ref().is_some_and(|claim| claim.election == object.name())
            });
            let unknown = self.followed.forbidden.contains_key(&id.kind);
            if !spec.workloads.contains_key(&id) && !claimed && !unknown {
                claims.claims.remove(&id.to_string());
                claims.kept.remove(&id.to_string());
            }
        }
        if spec.workloads.is_empty() && spec.jobs.is_empty() {
            claims.selected = None;
        }
        claims.started.retain(|plan, _| spec.jobs.contains_key(plan));
        claims.services.retain(|service| spec.service_name() == Some(service) || !unrouted.contains(service));
        Some(claims).filter(|claims| *claims != *self.claims)
    }

    /// Looks at the current workloads.
    pub(crate) fn look(
        &mut self,
        object: &ElectionObject,
        around: Surroundings<'_>,
        watches: &OnDemandWatches,
        (desired, presence): (Desired, Presence),
        wall: Timestamp,
    ) {
        self.followed = self.followed(object, around, watches, (desired, presence), wall);
    }

    fn followed(
        &self,
        object: &ElectionObject,
        around: Surroundings<'_>,
        watches: &OnDemandWatches,
        (desired, presence): (Desired, Presence),
        wall: Timestamp,
    ) -> Followed {
        let spec = object.spec();
        let namespace = &object.election().namespace;
        let kinds = self.kinds(object);
        let jobs = spec.map(|spec| &spec.jobs).into_iter().flatten();
        let mut followed = Followed {
            jobs: jobs.clone().map(|(name, _)| self.plan(name)).collect(),
            wind_down: jobs
                .map(|(_, template)| template_grace(template).saturating_add(CONTROLLERS))
                .max()
                .unwrap_or_default(),
            cluster: spec.and_then(|spec| spec.cluster.as_ref()).map(|_| available(object, around)),
            stay: matches!(presence, Presence::Never)
                && desired == Desired::Run
                && spec.is_some_and(|spec| spec.key.store == StoreId::leases()),
            switched_off: match presence {
                Presence::Some => None,
                Presence::None | Presence::Never => switched_off(object, around),
            },
            ..Followed::default()
        };
        for kind in &kinds {
            if let Some(failure) = watches.forbidden(Watched::Workloads(*kind), namespace) {
                followed.forbidden.insert(*kind, failure.clone());
            }
        }
        // A namespace outlives its elections. A lock that other clusters share is not released while its workloads are unseen.
        let goes = object.is_deleted() && spec.is_some_and(|spec| spec.key.store == StoreId::leases());
        for kind in kinds.iter().filter(|_| goes) {
            if let Some(failure) = watches.hopeless(Watched::Workloads(*kind), namespace) {
                followed.left.insert(*kind, failure.clone());
            }
        }
        let known = |kind| watches.knows(Watched::Workloads(kind), namespace) || followed.left.contains_key(&kind);
        if !kinds.iter().copied().all(known) {
            return followed;
        }
        let rules = spec.map(|spec| &spec.workloads);
        let claimed: BTreeMap<WorkloadId, WhenReleased> = self.claims.ids().collect();
        let named: BTreeSet<&WorkloadId> = rules.into_iter().flat_map(BTreeMap::keys).chain(claimed.keys()).collect();
        // W11: no workload of a circle stays switched off. If clusters share the lock, another cluster may run the same workload.
        let gives_back = spec.is_some_and(|spec| spec.key.store == StoreId::leases())
            && object.conflict().is_some_and(|conflict| conflict.reason == CIRCULAR_WORKLOADS);
        let mut workloads = Vec::new();
        for id in named {
            let Some(workload) = around.workloads.get(id) else { continue };
            // A refused election has nothing to do with workloads that it has not claimed, even when it leaves its lock to others.
            let own = |claim: &WorkloadClaim| claim.election == object.name();
            if object.conflict().is_some() && !workload.claim.as_ref().is_some_and(own) {
                continue;
            }
            let rule = rules.and_then(|rules| rules.get(id)).copied();
            let released = rule.map_or_else(|| claimed.get(id).copied().unwrap_or_default(), |rule| rule.when_released);
            let wish = match (desired, rule, spec) {
                _ if gives_back => Wish::Release { restore: released == WhenReleased::Restore },
                (Desired::Withdraw, ..) | (_, None, Some(_)) => {
                    Wish::Release { restore: released == WhenReleased::Restore }
                }
                _ if followed.stay => Wish::Stay,
                (_, rule, _) => Wish::Follow { replicas: rule.and_then(|rule| rule.replicas) },
            };
            let rule = rule.unwrap_or_default();
            if let Wish::Follow { .. } = wish {
                followed.wind_down = followed.wind_down.max(wind_down(workload, rule));
            }
            // Once the field is put right, this program is its writer again, so the former writer is remembered.
            if let Some(setter) = workload.setter.as_ref().or_else(|| self.setter(id)) {
                followed.setters.insert(id.clone(), setter.clone());
            }
            let noted = self.claims.kept.get(&id.to_string()).filter(|kept| kept.uid == workload.uid.0);
            let noted = noted.map(|kept| kept.setting);
            workloads.push(Workload { noted, ..shown(workload, around, rule, wish, wall) });
        }
        for workload in around.workloads.owned_by(&object.id().uid) {
            let Some(template) = &workload.template else { continue };
            if object.is_deleted() {
                workloads.push(shown(workload, around, WorkloadRule::default(), Wish::Delete, wall));
                continue;
            }
            let term =
                workload.id.name.strip_prefix(template.as_str()).and_then(|rest| rest.strip_prefix('-')?.parse().ok());
            // The Jobs of a template that is no longer in the list belong to no present term.
            let term = term.filter(|_| followed.jobs.iter().any(|plan| plan.name == *template)).unwrap_or_default();
            let wish = if followed.stay { Wish::Stay } else { Wish::FollowTerm(Term(term)) };
            workloads.push(shown(workload, around, WorkloadRule::default(), wish, wall));
        }
        for workload in around.workloads.orphans_of(object.name()) {
            workloads.push(shown(workload, around, WorkloadRule::default(), Wish::Delete, wall));
        }
        followed.workloads = Some(workloads);
        followed
    }

    fn plan(&self, name: &str) -> JobPlan {
        JobPlan { name: name.into(), started: self.claims.started.get(name).map(|term| Term(*term)) }
    }
}

fn available(object: &ElectionObject, around: Surroundings<'_>) -> Result<(), Unavailable> {
    let Some(name) = object.available_deployment() else { return Ok(()) };
    let id = WorkloadId { kind: WorkloadKind::Deployment, name: name.into() };
    let available = around.workloads.get(&id).is_some_and(|workload| workload.available && !workload.deleting);
    if available { Ok(()) } else { Err(Unavailable) }
}

/// The switched-off workload that would make candidates, in a sentence.
fn switched_off(object: &ElectionObject, around: Surroundings<'_>) -> Option<String> {
    let selector = &object.spec()?.scope.selector;
    let would = |workload: &&WorkloadObject| !workload.runs() && selector.matches(&workload.pod_labels);
    let workload = around.workloads.iter().find(|workload| !workload.finished && would(workload))?;
    let is = match workload.setting {
        Setting::Replicas(_) => "has 0 replicas",
        Setting::Suspend(_) => "is suspended",
    };
    let by = workload.claim.as_ref().filter(|claim| !claim.enabled && claim.election != object.name());
    let by = by.map(|claim| format!(", written by the election {}", claim.election)).unwrap_or_default();
    let kind = workload.id.kind;
    Some(format!("the {kind} {} {is}{by}", workload.id.name))
}

fn shown(
    object: &WorkloadObject,
    around: Surroundings<'_>,
    rule: WorkloadRule,
    wish: Wish,
    wall: Timestamp,
) -> Workload {
    let is_cron_job = object.id.kind == WorkloadKind::CronJob;
    let is_of_it = |job: &&WorkloadObject| is_cron_job && job.id.kind == WorkloadKind::Job;
    let jobs = || around.workloads.owned_by(&object.uid).filter(is_of_it);
    let running = || jobs().filter(|job| !job.finished || job.deleting);
    let matches = |pod: &Pod| !pod.finished && object.selector.matches(&pod.labels);
    let pods = || around.labels.pods_of(&object.selector, around.pods).into_iter().filter(|pod| matches(pod)).count();
    let number = match object.id.kind {
        _ if object.finished => 0,
        WorkloadKind::CronJob => running().filter(|_| rule.delete_running).count(),
        WorkloadKind::Deployment | WorkloadKind::Job | WorkloadKind::StatefulSet => pods(),
    };
    Workload {
        id: object.id.clone(),
        uid: object.uid.clone(),
        version: object.version,
        setting: object.setting,
        claim: object.claim.clone(),
        noted: None,
        deleting: object.deleting,
        finished: object.finished,
        remains: match object.id.kind {
            _ if object.finished => false,
            _ if object.setting.runs() => true,
            WorkloadKind::CronJob => is_near_a_tick(wall) || number > 0,
            WorkloadKind::Deployment | WorkloadKind::Job | WorkloadKind::StatefulSet => !object.idle || number > 0,
        },
        running: u32::try_from(number).unwrap_or(u32::MAX),
        deletable: rule.delete_running && running().any(|job| !job.deleting),
        last_tick: jobs().map(|job| job.tick).chain([object.tick]).flatten().max().filter(|_| is_cron_job),
        wish,
    }
}

/// How long a workload's pods may take to end once it is disabled, in seconds.
fn wind_down(object: &WorkloadObject, rule: WorkloadRule) -> u32 {
    let once = object.grace.saturating_add(CONTROLLERS);
    match object.id.kind {
        WorkloadKind::CronJob if !rule.delete_running => TICK,
        WorkloadKind::StatefulSet if object.one_by_one => {
            let kept = object.claim.as_ref().map(|claim| claim.kept);
            let numbers = [Some(object.setting), kept, rule.replicas.map(Setting::Replicas)].into_iter().flatten();
            let most = numbers.map(|setting| if let Setting::Replicas(number) = setting { number } else { 1 }).max();
            once.saturating_mul(most.and_then(|most| most.try_into().ok()).unwrap_or(1).max(1))
        }
        _ => once,
    }
}

/// The same for a Job's pods, in seconds.
fn template_grace(template: &JobTemplate) -> u32 {
    let pod = template.spec.get("template").and_then(|template| template.get("spec"));
    let grace = pod.and_then(|spec| spec.get("terminationGracePeriodSeconds")?.as_i64());
    grace.map_or(30, |seconds| u32::try_from(seconds.max(0)).unwrap_or(u32::MAX))
}

/// Whether the controller of a suspended CronJob may still start the Job that is due at a full minute.
fn is_near_a_tick(wall: Timestamp) -> bool {
    (wall.0 + HEARS_WITHIN).rem_euclid(60_000) < 2 * HEARS_WITHIN
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tick_may_come_two_seconds_after_its_cron_job_was_suspended() {
        for (second, near) in [(57, false), (58, true), (59, true), (60, true), (61, true), (62, false)] {
            assert_eq!(is_near_a_tick(Timestamp(1_800_000_000_000 + second * 1_000)), near, "second {second}");
        }
    }

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

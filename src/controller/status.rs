//! The content of an election's status. Pure: from the known state to the text that a user reads.

mod followed;
mod ready;
mod routing;
mod sharing;
pub(super) mod switchovers;
mod workloads;

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lictor_api::{
    ACCEPTED, Asked, CandidateCount, ELECTED, Leader, LeaderElectionStatus, PAUSED, Refusal, Resolved, STORE_REACHABLE,
    condition, is_unknown, unknown,
};
use lictor_core::{
    Absence, Election, Failure, Holder, Instant, Node, OnlyByKubelet, Pod, ProbeFailure, Rival, Situation, Slice,
    Stays, Timestamp, Uid, absence, eligible,
};

use self::followed::{followed_lock, led_by_nobody, led_unseen};
use self::ready::complete;
pub(super) use self::ready::refusal_message;
pub(super) use self::routing::obstacle;
use self::routing::routed;
use self::sharing::difference;
pub(super) use self::sharing::seen_difference;
use self::workloads::told;
use super::entry::{Entry, Surroundings, ToldElsewhere, Unasked};
use super::object::told_holder;
use super::timers::Moment;
use crate::wording::{self, in_seconds, led_elsewhere, not_eligible};

/// The status that an election should have now; `None` if the present one stays until more is known.
pub(super) fn status(
    entry: &Entry,
    candidates: &[(&Pod, Option<&Node>)],
    around: Surroundings<'_>,
    elsewhere: ToldElsewhere<'_>,
    Moment { now, wall }: Moment,
    operator_lease: std::time::Duration,
) -> Option<LeaderElectionStatus> {
    let (before, slices) = (entry.object.last_status(), around.slices);
    let generation = entry.object.generation();
    let mut status = LeaderElectionStatus {
        observed_generation: Some(generation),
        history: entry.history.told().map_or_else(|| before.history.clone(), <[_]>::to_vec),
        ..before.clone()
    };
    let group = entry.election()?;
    let mut conditions: Vec<Condition> = Vec::new();
    if let Some(Refusal { reason, message }) = entry.object.refusal() {
        conditions.push(condition(ACCEPTED, false, reason, message, generation));
        status.candidates =
            entry.spec().filter(|spec| spec.cluster.is_none()).map(|spec| count(entry, spec, candidates, now));
        let (leader, elected) = while_refused(entry, group, &before, around, generation);
        status.leader = leader;
        conditions.push(elected);
        let said = before.conditions.iter().find(|old| old.type_ == STORE_REACHABLE).cloned();
        let not_known = || unknown(STORE_REACHABLE, "NotAccepted", "see the condition Accepted", generation);
        conditions.push(said.unwrap_or_else(not_known));
    } else {
        let spec = entry.spec()?;
        // T1: a status without a decision must not hide that the leader is gone.
        let is_settling = group.absent().is_none();
        if matches!(group.situation(), Situation::Starting | Situation::Stale) && !spec.paused && is_settling {
            return undecided(entry, group, spec, slices, before, Moment { now, wall });
        }
        let hands_over = group.is_busy() || *group.situation() == Situation::HandingOver;
        if hands_over && group.failure().is_none() && group.workload_failures().is_empty() && is_settling {
            return undecided(entry, group, spec, slices, before, Moment { now, wall });
        }
        status.class_name = Some(spec.class_name.clone());
        status.candidates = Some(match entry.workloads.cluster() {
            Some(fitness) => counted(1, fitness.is_ok().into()),
            None => count(entry, spec, candidates, now),
        });
        status.worst_case_failover_seconds = is_bounded(spec).then(|| worst_case(spec, operator_lease));
        status.followed_lock = entry.following().map(|following| followed_lock(following, candidates));
        status.leader = match group.situation() {
            Situation::LedElsewhere(rival) => Some(leader_elsewhere(rival)),
            _ => leader_here(group, spec),
        };
        let term = group.term().0;
        status.term = (term > 0).then_some(term).or(before.term);
        conditions.push(accepted(entry, generation));
        conditions.push(elected(entry, group, spec, candidates, around, now, generation));
        conditions.push(store_reachable(group, difference(group, spec, elsewhere), generation));
        let leading = group.leader().map(|(_, holder, _)| &holder.uid);
        let leading = candidates.iter().map(|(pod, _)| *pod).find(|pod| Some(&pod.uid) == leading);
        conditions.extend(routed(entry, group, leading, slices));
        let told = told(entry, group, now);
        status.workloads = told.as_ref().and_then(|(workloads, _)| workloads.clone());
        conditions.extend(told.map(|(_, condition)| condition));
        if spec.paused {
            let message = "the election is frozen: set spec.paused to false to continue";
            conditions.push(condition(PAUSED, true, "Paused", message, generation));
        }
    }
    status.conditions = complete(conditions, generation, &before.conditions, in_seconds(wall));
    Some(status)
}

/// T1: the leader of a refused election, and its condition `Elected`. The leader stays as long as it exists.
fn while_refused(
    entry: &Entry,
    group: &Election,
    before: &LeaderElectionStatus,
    around: Surroundings<'_>,
    generation: i64,
) -> (Option<Leader>, Condition) {
    if let Some((_, holder, since)) = group.leader() {
        let told = entry.spec().and_then(|spec| leader_here(group, spec));
        let told = told.unwrap_or_else(|| {
            let cluster_name = before.leader.as_ref().and_then(|leader| leader.cluster_name.clone());
            Leader { cluster_name, ..leader(holder, Some(*since)) }.named()
        });
        let pod = told_holder(&entry.object, holder);
        let message = format!("{pod} is the leader, and remains so while the election is refused");
        return (Some(told), condition(ELECTED, true, "Elected", message, generation));
    }
    if let Some(absent) = group.absent() {
        return (None, missing(entry, around, &absent.holder, absent.what, generation));
    }
    let not_known = || unknown(ELECTED, "NotAccepted", "see the condition Accepted", generation);
    let Some(told) = &before.leader else { return (None, not_known()) };
    // The operator does not read a lock that another election has, and a leader in another cluster can't be seen from here.
    let here = told.pod_uid.is_some() && entry.spec().is_none_or(|spec| is_of(spec, told));
    let holder = as_holder(told).filter(|_| here);
    let shows = |pod: &Pod| entry.spec().is_none_or(|spec| spec.scope.markings.shows_leader(pod));
    if let Some(holder) = holder
        && let Some(what) =
            absence(entry.object.name(), &holder, holder.pod.as_ref().and_then(|name| around.pods.get(name)), shows)
    {
        return (None, missing(entry, around, &holder, what, generation));
    }
    let said = before.conditions.iter().find(|old| old.type_ == ELECTED).cloned();
    (before.leader.clone(), said.unwrap_or_else(not_known))
}

/// Whether a leader belongs to the cluster in which an election is decided.
fn is_of(spec: &Resolved, leader: &Leader) -> bool {
    spec.cluster_name() == leader.cluster_name.as_deref()
}

/// The status's leader as a record has it; `None` if it is no pod.
fn as_holder(told: &Leader) -> Option<Holder> {
    let uid = Uid(told.pod_uid.clone()?);
    Some(Holder { pod: Some(told.pod_name.clone()?), uid, node: None, ip: None })
}

/// T1: the condition `Elected`, if part of the leader is missing.
fn missing(entry: &Entry, around: Surroundings<'_>, holder: &Holder, what: Absence, generation: i64) -> Condition {
    let pod = told_holder(&entry.object, holder);
    let is_there =
        || holder.pod.as_ref().and_then(|name| around.pods.get(name)).is_some_and(|pod| pod.uid == holder.uid);
    let unlabelled = what == Absence::Unlabelled;
    let (mut reason, what) = match what {
        Absence::Gone if is_there() => (
            "LabelMissing",
            format!("{pod} is the leader according to the lock, but its labels no longer match the election"),
        ),
        what => wording::missing(&pod, what),
    };
    let why = if entry.object.refusal().is_some() {
        ": no other pod is elected while the election is refused (condition Accepted)".to_owned()
    } else if entry.spec().is_some_and(|spec| spec.paused) {
        ": no pod is promoted while the election is paused. Set spec.paused to false to elect another leader".to_owned()
    } else if let Some(failure) = entry.election().and_then(Election::failure) {
        if unlabelled {
            reason = "HandoverFails";
        }
        format!(": the operator keeps trying: {}", failure.text())
    } else {
        ": the operator is about to correct this".to_owned()
    };
    condition(ELECTED, false, reason, what + &why, generation)
}

/// Whether a status only says that nothing is decided yet. Such a status can wait, because a decision mostly follows within a moment.
pub(super) fn is_undecided(status: &LeaderElectionStatus) -> bool {
    let accepted = status.conditions.iter().any(|condition| condition.type_ == ACCEPTED && condition.status == "True");
    accepted && is_unknown(&status.conditions, ELECTED)
}

/// The status until the first decision on who leads; `None` after that, because the earlier status stays.
fn undecided(
    entry: &Entry,
    group: &Election,
    spec: &Resolved,
    slices: &BTreeMap<String, Slice>,
    before: LeaderElectionStatus,
    Moment { now, wall }: Moment,
) -> Option<LeaderElectionStatus> {
    let decided = before.conditions.iter().any(|old| old.type_ == ELECTED) && !is_unknown(&before.conditions, ELECTED);
    if decided {
        return None;
    }
    let generation = entry.object.generation();
    let unread = matches!(group.situation(), Situation::Starting | Situation::Stale);
    let elected = match group.failure() {
        Some(failure) => {
            let message = format!("the operator keeps trying: {}", failure.text());
            unknown(ELECTED, "LockNotRead", message, generation)
        }
        None if unread => unknown(ELECTED, "LockNotRead", "the lock has not been read yet", generation),
        None => unknown(ELECTED, "HandingOver", "the first leader is about to be labelled", generation),
    };
    let store = match group.failure() {
        None if unread => unknown(STORE_REACHABLE, "LockNotRead", "the lock has not been read yet", generation),
        _ => store_reachable(group, None, generation),
    };
    let told = told(entry, group, now).map(|(_, condition)| condition);
    let routed = routed(entry, group, None, slices);
    let conditions = [accepted(entry, generation), elected, store].into_iter().chain(routed).chain(told).collect();
    Some(LeaderElectionStatus {
        observed_generation: Some(generation),
        class_name: Some(spec.class_name.clone()),
        conditions: complete(conditions, generation, &before.conditions, in_seconds(wall)),
        ..before
    })
}

/// The status of an election from which lictor has withdrawn. The term stays, so that the next one is higher.
pub(super) fn farewell(entry: &Entry, wall: Timestamp) -> LeaderElectionStatus {
    let before = entry.object.last_status();
    let message =
        "lictor was uninstalled here: its labels are removed, and no leader is elected until it is installed again";
    let generation = entry.object.generation();
    let told = |type_| condition(type_, false, "Uninstalled", message, generation);
    let conditions = vec![told(ACCEPTED), told(ELECTED)];
    LeaderElectionStatus {
        observed_generation: Some(generation),
        conditions: complete(conditions, generation, &before.conditions, in_seconds(wall)),
        leader: None,
        candidates: None,
        workloads: None,
        ..before
    }
}

/// Whether a failover has a longest time: candidates elect their leader when they like, and a former leader may take any time to end (E1).
fn is_bounded(spec: &Resolved) -> bool {
    spec.followed.is_none() && !spec.former_leader.comes_first()
}

/// After a kill of the acting operator, its lease has to end first. Then the leader may have time to recover, or its probe has to fail
/// often enough. A shared store keeps a lock for a while after its holder went silent.
fn worst_case(spec: &Resolved, operator_lease: std::time::Duration) -> i64 {
    let asked = spec.probe.as_ref().filter(|probe| probe.asked != Asked::Nothing);
    let detection = asked.map(|probe| probe.rules.detection()).unwrap_or_default();
    let expiry = spec.shared.as_ref().map(|shared| shared.expiry()).unwrap_or_default();
    let total = operator_lease + spec.failover_delay.max(detection) + expiry;
    i64::try_from(total.as_secs() + u64::from(total.subsec_nanos() > 0)).unwrap_or(i64::MAX)
}

fn count(entry: &Entry, spec: &Resolved, candidates: &[(&Pod, Option<&Node>)], now: Instant) -> CandidateCount {
    let living = candidates.iter().filter(|(pod, _)| !pod.finished);
    let total = u32::try_from(living.clone().count()).unwrap_or(u32::MAX);
    let own = living.filter(|(pod, _)| !entry.titles.foreign().contains(&pod.uid));
    let could = own.filter(|(pod, node)| eligible(pod, *node, &spec.rules, now).is_ok()).count();
    let eligible = u32::try_from(could).unwrap_or(u32::MAX);
    counted(total, eligible)
}

fn counted(total: u32, eligible: u32) -> CandidateCount {
    CandidateCount { total, eligible, summary: format!("{eligible}/{total}") }
}

fn leader(holder: &Holder, since: Option<Timestamp>) -> Leader {
    Leader {
        name: None,
        pod_name: holder.pod.clone(),
        pod_uid: holder.pod.as_ref().map(|_| holder.uid.0.clone()),
        cluster_name: None,
        session: None,
        node_name: holder.node.clone(),
        pod_ip: holder.ip.clone(),
        acquire_time: since.map(in_seconds).map(Time),
    }
}

/// T1: the leader in this cluster, if it exists.
fn leader_here(group: &Election, spec: &Resolved) -> Option<Leader> {
    let (_, holder, since) = group.leader()?;
    let cluster_name = spec.cluster_name().map(str::to_owned);
    Some(Leader { cluster_name, ..leader(holder, Some(*since)) }.named())
}

/// The leader in another cluster, or the session of a program other than lictor.
fn leader_elsewhere(rival: &Rival) -> Leader {
    let Rival { cluster, holder, since, .. } = rival;
    Leader {
        cluster_name: cluster.clone(),
        session: cluster.is_none().then(|| rival.whose_session().to_owned()),
        ..holder.as_ref().map(|holder| leader(holder, *since)).unwrap_or_default()
    }
    .named()
}

fn elected(
    entry: &Entry,
    group: &Election,
    spec: &Resolved,
    candidates: &[(&Pod, Option<&Node>)],
    around: Surroundings<'_>,
    now: Instant,
    generation: i64,
) -> Condition {
    let leads = group.leader().map(|(_, holder, _)| told_holder(&entry.object, holder));
    let leads = leads.as_deref();
    match group.situation() {
        Situation::LedElsewhere(rival) => {
            let reason = if rival.cluster.is_some() { "LedElsewhere" } else { "HeldByOther" };
            return condition(ELECTED, rival.cluster.is_some(), reason, led_elsewhere(rival), generation);
        }
        Situation::AwaitingEnd(former) => {
            let message = awaited_end(former, group, candidates);
            return condition(ELECTED, false, "FormerLeaderRuns", message, generation);
        }
        situation => {
            if let Some((reason, message)) = without_store(situation) {
                return condition(ELECTED, false, reason, message, generation);
            }
        }
    }
    if let Some(absent) = group.absent() {
        return missing(entry, around, &absent.holder, absent.what, generation);
    }
    if let Some(failure) = group.failure() {
        let holds = matches!(group.situation(), Situation::Led | Situation::LedDespiteProbe(_)) && leads.is_some();
        let reason = if holds { "LabellingFails" } else { "HandoverFails" };
        return condition(ELECTED, holds, reason, format!("the operator keeps trying: {}", failure.text()), generation);
    }
    match (group.situation(), leads) {
        (Situation::LedDespiteProbe(failure), Some(pod)) => despite_probe(entry, group, *failure, pod, now),
        (Situation::Recovering(why, _), Some(pod)) => condition(
            ELECTED,
            true,
            "WaitingForRecovery",
            format!(
                "{pod} has {} s (spec.handover.failoverDelaySeconds) to recover before another pod is elected: {}",
                spec.failover_delay.as_secs(),
                not_eligible(why)
            ),
            generation,
        ),
        (Situation::Foreign(what), _) => {
            let message = format!("{what}: delete it, or give this election another spec.key");
            condition(ELECTED, false, "LockNotOurs", message, generation)
        }
        (_, Some(pod)) => {
            let unseen = spec.followed.as_ref().and_then(|lock| led_unseen(lock, &entry.followed, pod, generation));
            let limps = || {
                let trouble = entry.titles.trouble()?;
                let message = format!("{pod} is the leader, but not all pods are candidates: {trouble}");
                Some(condition(ELECTED, true, "LabelInUse", message, generation))
            };
            let flaps = || {
                let (changes, reason) = group.flapping().many(now)?;
                let message = format!(
                    "{pod} is the leader, but the leader has changed {changes} times without staying for ten minutes, \
                     most recently because of {}: `kubectl lictor history {}` shows all changes",
                    reason.word(),
                    entry.object.name()
                );
                Some(condition(ELECTED, true, "Flapping", message, generation))
            };
            let unasked = || {
                let unasked = group.leader().and_then(|(_, holder, _)| entry.probing.unasked(&holder.uid))?;
                let message = format!("{pod} is the leader, but {}", not_probed(unasked));
                Some(condition(ELECTED, true, "NotProbed", message, generation))
            };
            let undeleted = || {
                let (former, why) = group.undeleted()?;
                let message = format!(
                    "{pod} is the leader, but lictor can't delete the former leader {former}: {why}. {DELETABLE}"
                );
                Some(condition(ELECTED, true, "FormerLeaderStays", message, generation))
            };
            let leads = || condition(ELECTED, true, "Elected", format!("{pod} is the leader"), generation);
            unseen.or_else(limps).or_else(undeleted).or_else(unasked).or_else(flaps).unwrap_or_else(leads)
        }
        (_, None) => match (entry.workloads.cluster(), entry.following()) {
            (_, Some(following)) if !spec.paused => led_by_nobody(spec, following, candidates, now, generation),
            (Some(Err(why)), _) => condition(ELECTED, false, "NotEligible", not_eligible(&why.into()), generation),
            (Some(Ok(())), _) => {
                condition(ELECTED, false, "NoLeader", "this cluster is about to take the lock", generation)
            }
            (None, _) => {
                let why = why_nobody(entry, spec, candidates, now);
                condition(ELECTED, false, "NoEligiblePod", why, generation)
            }
        },
    }
}

/// Why there is no leader, if that is because of the lock's store: the reason and the message.
fn without_store(situation: &Situation) -> Option<(&'static str, &'static str)> {
    match situation {
        Situation::StoreLost => Some((
            "StoreLost",
            "there is no leader, because the lock could not be confirmed in time (spec.sharedStore.whenLost)",
        )),
        Situation::StoreRewound => Some((
            "StoreRewound",
            "the store of the lock was restored to an earlier state: this cluster takes the lock once the other clusters \
             must have seen this, too",
        )),
        Situation::LockLost => {
            Some(("LockLost", "the lock was lost: this cluster takes it again as soon as the store allows that"))
        }
        _ => None,
    }
}

/// E1: the pod whose end is awaited before another one leads, the operator's knowledge of it, and the way out for a person.
fn awaited_end(former: &Holder, group: &Election, candidates: &[(&Pod, Option<&Node>)]) -> String {
    let name = former.pod.as_deref().unwrap_or_default();
    let begin = format!("no pod leads before the former leader {name} has ended (spec.handover.formerLeader)");
    if let Some((_, why)) = group.undeleted() {
        return format!("{begin}, and lictor can't delete it: {why}. {DELETABLE}");
    }
    let Some((pod, node)) = candidates.iter().find(|(pod, _)| pod.uid == former.uid) else {
        return format!("{begin}, and it no longer matches spec.selector: kubectl get pod {name} -o yaml shows it");
    };
    let node_name = pod.node.as_deref().unwrap_or_default();
    if node.is_some_and(|node| node.lost) {
        return format!(
            "{begin}, and its node {node_name} does not answer. If the node is off, say so: kubectl taint nodes {node_name} \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        );
    }
    let rest = if pod.deleting {
        "it is being deleted, and its kubelet has not reported the end of its containers"
    } else {
        "lictor deletes it, later if the leader has changed many times in a row"
    };
    format!("{begin}: {rest}")
}

/// The ways to let a former leader be deleted.
const DELETABLE: &str = "Change the PodDisruptionBudget, set respectDisruptionBudgets: false, or grant the right by the \
     chart's value fencing.enabled";

/// What `likeReadiness` can't ask a leader, as half a sentence.
fn not_probed(unasked: &Unasked) -> String {
    let (container, what) = match unasked {
        Unasked::NoReadinessProbe => {
            return "no container of it has a readinessProbe, so spec.probe.likeReadiness has no effect: add one, or \
                    write httpGet, tcpSocket or grpc instead of likeReadiness"
                .to_owned();
        }
        Unasked::Container(container, OnlyByKubelet::Exec) => (container, "runs a command (exec)"),
        Unasked::Container(container, OnlyByKubelet::OtherHost) => (container, "asks another host (host)"),
    };
    format!(
        "the readinessProbe of its container {container} {what}, which only a kubelet can do, so \
         spec.probe.likeReadiness does not ask it: write httpGet, tcpSocket or grpc instead of likeReadiness"
    )
}

/// The condition `Elected` of a leader that fails its probe and stays.
fn despite_probe(entry: &Entry, group: &Election, failure: ProbeFailure, pod: &str, now: Instant) -> Condition {
    let told = group.leader().and_then(|(_, holder, _)| entry.probing.told(&holder.uid));
    let fails = match (failure, told) {
        (ProbeFailure::NoAnswer, Some(told)) => format!("fails its probe ({told})"),
        (ProbeFailure::NoAnswer, None) => "fails its probe".to_owned(),
        (ProbeFailure::ProcessGone(port), _) => {
            format!("refuses connections to port {port}, so its process is gone")
        }
    };
    let why = match group.stays() {
        Stays::Alone => "because no other pod is eligible".to_owned(),
        Stays::AllFail => {
            "because every other eligible pod has failed the probe since its last success, too: check spec.probe"
                .to_owned()
        }
        Stays::Until(_) => format!(
            "for now, because the leader has changed {} times in a row: a change that can wait has to, for longer each \
             time",
            group.flapping().in_row(now)
        ),
    };
    condition(
        ELECTED,
        true,
        "ProbeFails",
        format!("{pod} {fails}, but remains the leader {why}"),
        entry.object.generation(),
    )
}

/// The pods, and why none of them can lead.
fn why_nobody(entry: &Entry, spec: &Resolved, candidates: &[(&Pod, Option<&Node>)], now: Instant) -> String {
    if spec.paused {
        return "the election is frozen and has no leader: set spec.paused to false".into();
    }
    if let Some(why) = entry.workloads.switched_off().filter(|_| candidates.is_empty()) {
        return format!("the selector matches no pod: {why}");
    }
    if candidates.is_empty() {
        return "no pod matches spec.selector: scale up the workload that creates the pods, or correct the selector"
            .into();
    }
    let mut reasons: BTreeMap<Cow<'static, str>, usize> = BTreeMap::new();
    for (pod, node) in candidates {
        if entry.titles.foreign().contains(&pod.uid) {
            *reasons.entry("another program owns a label of the pod (spec.whenLabelInUse)".into()).or_default() += 1;
        } else if let Err(why) = eligible(pod, *node, &spec.rules, now) {
            *reasons.entry(not_eligible(&why)).or_default() += 1;
        }
    }
    let reasons: Vec<String> = reasons.into_iter().map(|(why, pods)| format!("{pods}x {why}")).collect();
    format!("none of {} pods is eligible: {}", candidates.len(), reasons.join(", "))
}

fn accepted(entry: &Entry, generation: i64) -> Condition {
    if let Some(spec) = entry.spec().filter(|_| entry.object.class_is_gone()) {
        let message = format!(
            "the ElectionClass {:?} was deleted: the operator serves the election with the last known settings of the \
             class, and refuses it after its next start. Apply the class again, or name another one in spec.className",
            spec.class_name
        );
        return condition(ACCEPTED, true, "ClassDeleted", message, generation);
    }
    condition(ACCEPTED, true, "Accepted", "the election is served", generation)
}

/// H16.
const FORGED: &str = "the lock's record claims labels or pods that this cluster never wrote. The operator ignores the \
     claim, and the next leadership replaces the record: find out who else may write to the lock in its store";

fn store_reachable(group: &Election, difference: Option<(&str, String)>, generation: i64) -> Condition {
    if group.is_unconfirmed() {
        let message = "the store did not confirm in time that the lock is still held: see the class's condition Ready";
        return condition(STORE_REACHABLE, false, "NoAnswer", message, generation);
    }
    match (group.failure(), difference) {
        (Some(Failure::Unknown(text)), _) => condition(STORE_REACHABLE, false, "NoAnswer", text, generation),
        _ if group.ignores_claims() => condition(STORE_REACHABLE, true, "RecordForged", FORGED, generation),
        (_, Some((reason, message))) => condition(STORE_REACHABLE, true, reason, message, generation),
        (_, None) => condition(STORE_REACHABLE, true, "Answers", "the lock's store answers", generation),
    }
}

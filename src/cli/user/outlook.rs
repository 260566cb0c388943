//! An election's outlook, as far as it can be seen: which pod would be elected, and why. The core decides as it does in
//! the operator; this module asks the core and puts its decision into words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use lictor_api::{
    ACCEPTED, Classes, ELECTED, ElectionClass, ElectionClassSpec, Leader, LeaderElection, PAUSED, READY, Refusal,
    Resolved, STALLED, hold, resolve,
};
use lictor_core::switchover::{Hold, Switchovers};
use lictor_core::{
    Advantage, Contender, Desired, FollowedLock, Following, Forecast, Holder, IdentityRule, IdentitySource, Instant,
    Known, LockHolder, Locks, Node, NotEligible, NotHeld, OtherLeader, Pod, ProbeFailure, Rank, Record, Stored, Term,
    Timestamp, Uid, Unavailable, Verdict,
};
use lictor_process::wall;
use serde::Serialize;

use super::acting::{controllers, idle};
use super::presence::lost;
use super::reading::{NOW, Reader, Seen, condition, conditions, full_name};
use crate::wording::{advantage, describe, not_eligible};

/// The verdict if too little can be seen.
pub(super) const UNKNOWN: &str = "Unknown";

/// An election with everything that can be seen of it.
pub(super) struct Sight {
    pub(super) election: LeaderElection,
    /// Whether the classes can be seen.
    pub(super) classes_seen: bool,
    /// The class that it names, or the default one. `None`: it is built in, or can't be seen.
    pub(super) class: Option<ElectionClass>,
    /// The spec as the operator reads it.
    pub(super) spec: Result<Resolved, Refusal>,
    pub(super) pods: Seen<Vec<Pod>>,
    pub(super) nodes: Seen<BTreeMap<String, Node>>,
    /// The leaders of the other elections in its groups.
    other_leaders: Seen<Vec<OtherLeader>>,
    /// Its lock, if that is a Lease.
    pub(super) lock: Option<Seen<Stored>>,
    /// The effects of complete Switchovers.
    holds: Seen<Vec<Hold>>,
    /// Whether the cluster itself may lead, if it is the candidate.
    cluster: Option<Seen<Result<(), Unavailable>>>,
    /// Why no operator acts for the election. `None`: one acts, or that can't be seen.
    idle: Option<String>,
    /// Whether the election is not applied like this yet.
    planned: bool,
    /// Other objects that could not be seen.
    unseen: Vec<String>,
}

/// An election's outlook.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outlook {
    /// The current leader, according to the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) leader: Option<Leader>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) term: Option<i64>,
    /// The pod that would lead if the core decided now. `None`: no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) winner: Option<String>,
    /// The outcome, in one word.
    pub(super) verdict: &'static str,
    /// The outcome, as a sentence.
    pub(super) now: String,
    /// The pod that would be next if the leader were lost. `None`: no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
    /// The same as a sentence.
    pub(super) if_lost: String,
    /// The obstacle that keeps the operator from deciding so, and what to do.
    pub(super) blocks: Vec<String>,
    pub(super) candidates: Vec<Candidate>,
    /// The objects that could not be seen, and why.
    pub(super) not_visible: Vec<String>,
}

/// A pod that the election selects.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    pub(super) name: String,
    /// leader or follower, as its labels say. Empty: neither.
    pub(super) role: &'static str,
    pub(super) ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    /// The pod's rank among the eligible pods, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<usize>,
    /// Whether a Switchover with spec.force could make the pod the leader.
    pub(super) by_force: bool,
    /// Why the pod would or would not be elected.
    pub(super) why: String,
}

impl Sight {
    /// Reads everything that matters for an election. If something can't be read, the result says why.
    ///
    /// # Errors
    /// If the election itself can't be read.
    pub(super) async fn of(reader: &Reader, namespace: &str, name: &str) -> anyhow::Result<Self> {
        let (election, classes) = tokio::join!(reader.election(namespace, name), reader.classes());
        Ok(Box::pin(Self::around(reader, election?, classes, false)).await)
    }

    /// Reads everything that matters for an election as it is given. `planned`: whether it is not applied like that yet,
    /// so that its status says nothing about its spec.
    pub(super) async fn around(
        reader: &Reader,
        election: LeaderElection,
        classes: Seen<Classes>,
        planned: bool,
    ) -> Self {
        let (namespace, name) = (election.namespace().unwrap_or_default(), election.name_any());
        let (namespace, name) = (namespace.as_str(), name.as_str());
        let mut unseen = Vec::new();
        let classes = classes.unwrap_or_else(|why| {
            unseen.push(format!("the classes, and therefore the lock's place: {why}"));
            assumed(&election)
        });
        let classes_seen = unseen.is_empty();
        let (spec, class) = read(&election, &classes);
        let mut sight = Self {
            classes_seen,
            class: class.filter(|_| classes_seen),
            pods: Ok(Vec::new()),
            nodes: Ok(BTreeMap::new()),
            other_leaders: Ok(Vec::new()),
            lock: None,
            holds: Ok(Vec::new()),
            cluster: None,
            idle: None,
            planned,
            unseen,
            election,
            spec,
        };
        let acting = async { if classes_seen { idle(reader, [&sight.election], &classes).await } else { Vec::new() } };
        let Ok(spec) = &sight.spec else {
            sight.idle = acting.await.pop();
            return sight;
        };
        let lock =
            async { if spec.shared.is_none() && classes_seen { Some(reader.lease(&spec.key).await) } else { None } };
        let pods = async {
            let pods = if spec.cluster.is_some() {
                Ok(Vec::new())
            } else {
                reader.pods(namespace, &spec.scope.selector).await
            };
            let other_leaders = other_leaders(reader, namespace, name, spec).await;
            let nodes = match &pods {
                Ok(pods) => reader.nodes(pods, other_leaders.as_deref().unwrap_or_default()).await,
                Err(_) => Ok(BTreeMap::new()),
            };
            (pods, nodes, other_leaders)
        };
        let cluster = async {
            match spec.cluster.as_ref()?.available.as_deref() {
                Some(deployment) => Some(reader.available(namespace, deployment).await),
                None => Some(Ok(Ok(()))),
            }
        };
        let switchovers = Box::pin(reader.switchovers(Some(namespace)));
        let (lock, (pods, nodes, other_leaders), cluster, switchovers, mut idle) =
            tokio::join!(lock, pods, cluster, switchovers, acting);
        (sight.lock, sight.pods, sight.nodes, sight.cluster) = (lock, pods, nodes, cluster);
        (sight.other_leaders, sight.idle) = (other_leaders, idle.pop());
        sight.holds = switchovers.map(|all| {
            let own = all.iter().filter(|one| one.spec.election_name == name);
            own.filter_map(|one| hold(one, NOW, wall())).collect()
        });
        sight
    }

    /// Asks the core for its decision.
    pub(super) fn outlook(&self) -> Outlook {
        let mut not_visible = self.unseen.clone();
        not_visible.extend(self.pods.as_ref().err().map(|why| format!("the pods: {why}")));
        not_visible.extend(
            self.nodes
                .as_ref()
                .err()
                .map(|why| format!("the nodes, so lost and cordoned ones count as healthy: {why}")),
        );
        if let Err(why) = &self.other_leaders {
            not_visible.push(format!("the other elections, so their leaders count as far away: {why}"));
        }
        if let Err(why) = &self.holds {
            not_visible.push(format!("the Switchovers, so no pod counts as held back by one: {why}"));
        }
        if let Some(Err(why)) = &self.lock {
            not_visible.push(format!("the lock, so the status counts instead: {why}"));
        }
        if let Some(Err(why)) = &self.cluster {
            not_visible.push(format!("the Deployment of spec.eligibility: {why}"));
        }
        let status = self.election.status.clone().unwrap_or_default();
        // T1.
        let told = status.leader.as_ref().zip(self.pods.as_ref().ok().filter(|_| self.spec.is_ok()));
        let gone = told.and_then(|(leader, pods)| lost(&self.election, leader, pods));
        let mut outlook = Outlook {
            leader: status.leader.filter(|_| gone.is_none()),
            term: status.term,
            winner: None,
            verdict: UNKNOWN,
            now: "lictor can't tell from here which pod would be elected".into(),
            next: None,
            if_lost: String::new(),
            blocks: gone.into_iter().chain(self.blocks()).collect(),
            candidates: Vec::new(),
            not_visible,
        };
        if self.is_refused() {
            outlook.verdict = "Refused";
            outlook.now = "no pod is elected or demoted, because the election is refused".into();
        } else if let (Ok(spec), Ok(pods), None | Some(Ok(_))) = (&self.spec, &self.pods, &self.cluster) {
            self.ask(spec, pods, &mut outlook);
        }
        outlook
    }

    /// Whether the spec is invalid, or an older election has the same pods, workloads or lock.
    fn is_refused(&self) -> bool {
        if self.planned {
            return self.spec.is_err();
        }
        let accepted = condition(&self.election, ACCEPTED);
        // The operator still knows a class that was deleted.
        let is_kept = accepted.is_some_and(|accepted| accepted.reason == "ClassDeleted");
        (self.spec.is_err() && !is_kept) || accepted.is_some_and(|accepted| accepted.status == "False")
    }

    /// Asks the core, and puts its decision into words.
    fn ask(&self, spec: &Resolved, pods: &[Pod], outlook: &mut Outlook) {
        let uid = Uid(self.election.uid().unwrap_or_default());
        let (pods, nodes): (Vec<&Pod>, _) = (pods.iter().collect(), self.nodes.clone().unwrap_or_default());
        let locks = Locks::default();
        let record = self.record(spec);
        let failing = condition(&self.election, ELECTED).filter(|elected| elected.reason == "ProbeFails");
        let leader = record.as_ref().and_then(|record| record.holder.as_ref());
        let holds = self.holds.as_deref().unwrap_or_default();
        let (rule, lock) = (IdentityRule { source: IdentitySource::PodName, pattern: None }, self.followed_lock());
        let known = Known {
            following: spec.followed.as_ref().map(|_| Following { rule: &rule, lock: &lock }),
            switchovers: Switchovers { holds, ..Switchovers::default() },
            desired: Desired::Run,
            spec: Some(spec.spec()),
            cluster: self.cluster.as_ref().and_then(|cluster| cluster.clone().ok()),
            pods: &pods,
            nodes: &nodes,
            other_leaders: self.other_leaders.as_deref().unwrap_or_default(),
            probe_failed: failing.and(leader).map(|leader| (&leader.uid, ProbeFailure::NoAnswer)),
            ..Known::new(NOW, &spec.key, &locks)
        };
        let forecast = lictor_core::forecast(&known, &self.election.name_any(), &uid, record.as_ref());
        let Some(Forecast { verdict, contenders }) = forecast else { return };
        let name = |holder: &Holder| holder.pod.clone().unwrap_or_else(|| cluster_name(spec));
        (outlook.verdict, outlook.winner, outlook.now) = match &verdict {
            Verdict::Stays(leader) => ("Stays", Some(name(leader)), stays(&name(leader), &contenders, spec)),
            Verdict::StaysDespiteProbe(leader) => {
                let text = format!(
                    "{} fails its probe but remains the leader, because no other pod is eligible",
                    name(leader)
                );
                ("StaysDespiteProbe", Some(name(leader)), text)
            }
            Verdict::Elected(next, reason) => {
                ("Elected", Some(name(next)), format!("{} would be elected: {}", name(next), describe(reason, leader)))
            }
            Verdict::Vacated(reason) => {
                let text =
                    format!("the leader would be demoted, and no pod would be elected: {}", describe(reason, leader));
                ("Vacated", None, text)
            }
            Verdict::Recovers(why, left) => {
                let text = format!(
                    "the leader has at most {} s (spec.handover.failoverDelaySeconds) to recover: {}",
                    left.as_secs(),
                    not_eligible(why)
                );
                ("Recovers", leader.map(name), text)
            }
            Verdict::Nobody => ("Nobody", None, nobody(spec, &pods)),
        };
        if let Some(followed) = &spec.followed {
            outlook.if_lost = format!("the candidates elect the next leader themselves, with {}", followed.told());
            outlook.candidates = candidates(&contenders, spec, outlook);
            return;
        }
        let winner = outlook.winner.clone();
        let mut rest = contenders.iter().filter(|one| Some(&one.pod.name) != winner.as_ref());
        let next = rest.find_map(|one| Some((one, one.chance.as_ref().ok()?)));
        (outlook.next, outlook.if_lost) = match (winner, next, spec.cluster.is_some()) {
            (_, _, true) => (None, "another cluster that waits for the lock would be elected".into()),
            (Some(_), Some((one, rank)), false) => {
                let after = contenders.iter().filter_map(|other| Some((other, other.chance.as_ref().ok()?)));
                let why = after
                    .filter(|(other, _)| {
                        other.pod.uid != one.pod.uid && Some(&other.pod.name) != outlook.winner.as_ref()
                    })
                    .find_map(|(_, other)| rank.advantage_over(other))
                    .map_or_else(|| "it is the only other eligible pod".into(), |why| advantage("it", why));
                (Some(one.pod.name.clone()), format!("{} would be elected: {why}", one.pod.name))
            }
            (Some(_), None, false) => (None, "no pod could be elected, because no other pod is eligible".into()),
            (None, ..) => (None, String::new()),
        };
        outlook.candidates = candidates(&contenders, spec, outlook);
    }

    /// The operator's words about the lock that the candidates hold, because the operator knows which pod the holder is.
    fn followed_lock(&self) -> FollowedLock {
        let status = self.election.status.as_ref().and_then(|status| status.followed_lock.as_ref());
        match status.map(|followed| (followed.state.as_str(), &followed.pod_name)) {
            Some(("Held", Some(pod))) => {
                FollowedLock::Held(LockHolder { identity: pod.clone(), ..LockHolder::default() })
            }
            Some(("Held" | "Free", _)) => FollowedLock::Free(NotHeld::Released),
            _ => FollowedLock::Unknown(String::new()),
        }
    }

    /// The leader according to the lock or, if the lock can't be read, according to the status.
    fn record(&self, spec: &Resolved) -> Option<Record> {
        if let Some(Ok(stored)) = &self.lock {
            return stored.record().cloned();
        }
        let status = self.election.status.as_ref()?;
        let leader = status.leader.as_ref()?;
        let here = spec.cluster_name() == leader.cluster_name.as_deref();
        let uid = leader.pod_uid.clone().or_else(|| self.election.uid());
        let holder = Holder { pod: leader.pod_name.clone(), uid: Uid(uid?), node: None, ip: None };
        (here && leader.session.is_none()).then(|| Record {
            leaving: Vec::new(),
            term: Term(status.term.unwrap_or_default()),
            term_by_version: false,
            holder: Some(holder),
            operator_id: String::new(),
            since: Timestamp(0),
            election: Uid(self.election.uid().unwrap_or_default()),
            election_name: self.election.name_any(),
            generation: 0,
            scope: spec.scope.clone(),
            former: Vec::new(),
            drain_obligation: None,
            switchover: None,
            offer: None,
        })
    }

    /// The obstacle that keeps the operator from deciding, and what to do.
    fn blocks(&self) -> Vec<String> {
        let name = full_name(&self.election);
        let mut blocks: Vec<String> = self.idle.iter().cloned().collect();
        if self.election.metadata.deletion_timestamp.is_some() {
            blocks.push("the election is being deleted, and lictor removes what it has written".to_owned());
        }
        if self.election.spec.paused {
            let (namespace, name) = name.split_once('/').unwrap_or_default();
            blocks.push(format!(
                "spec.paused is set, so lictor promotes and demotes no pod: `kubectl lictor resume {name} -n \
                 {namespace}`"
            ));
        }
        if let Some(Ok(Stored::Foreign(what))) = &self.lock {
            blocks.push(format!("{what}: delete it, or give this election another spec.key"));
        }
        if !self.planned {
            blocks.extend(self.told_by_status());
        }
        blocks
    }

    /// The obstacle that the status tells.
    fn told_by_status(&self) -> Vec<String> {
        let mut blocks = Vec::new();
        let generation = self.election.metadata.generation;
        match self.election.status.as_ref().and_then(|status| status.observed_generation) {
            None if self.idle.is_some() => {}
            None => blocks.push(
                "no operator has looked at this election: `kubectl lictor doctor` says whether an operator acts and serves its class".into(),
            ),
            seen if seen < generation => blocks.push(
                "the operator has not processed the newest spec yet: if this persists, `kubectl lictor doctor` says why".into(),
            ),
            _ => {}
        }
        for unwell in conditions(&self.election) {
            let follows = [READY, STALLED, PAUSED].contains(&unwell.type_.as_str());
            let limps = [
                "ClassDeleted",
                "Flapping",
                "FormerLeaderStays",
                "LedElsewhere",
                "LabellingFails",
                "ProbeFails",
                "WaitingForRecovery",
                "FollowedLockUnknown",
                "KeysDiffer",
                "RecordsDiffer",
                "WorkloadsDiffer",
            ]
            .contains(&&*unwell.reason);
            // These only refer to what is said anyway about each candidate, or by another condition.
            let said = ["NoEligiblePod", "NotAccepted", "Pending"].contains(&unwell.reason.as_str());
            if !follows && !said && (unwell.status != "True" || limps) {
                blocks.push(format!("{}: {}", unwell.reason, unwell.message));
            }
        }
        blocks
    }
}

/// Reads where the leaders of the other elections in an election's groups are, as their statuses say.
async fn other_leaders(reader: &Reader, namespace: &str, name: &str, spec: &Resolved) -> Seen<Vec<OtherLeader>> {
    if spec.rules.groups().next().is_none() {
        return Ok(Vec::new());
    }
    let elections = reader.elections(Some(namespace)).await.map_err(|error| error.to_string())?;
    let node = |other: &LeaderElection| {
        let leader = other.status.as_ref()?.leader.as_ref()?;
        leader.node_name.clone().filter(|_| leader.cluster_name.as_deref() == spec.cluster_name())
    };
    let spreads = |other: &LeaderElection, group: &str| {
        let spread = other.spec.preferences.iter().filter_map(|preference| preference.spread.as_ref());
        spread.into_iter().any(|spread| spread.group == group)
    };
    let groups: BTreeSet<&Arc<str>> = spec.rules.groups().collect();
    let others = elections.iter().filter(|other| other.name_any() != name);
    let others = others.filter_map(|other| Some((other, node(other)?)));
    let found = others.flat_map(|(other, node)| {
        let shared = groups.iter().filter(move |group| spreads(other, group));
        shared.map(move |group| OtherLeader { group: Arc::clone(group), node: node.clone() })
    });
    Ok(found.collect())
}

/// Returns an election's spec as its lictor reads it, and the class, unless it is the built-in one.
pub(super) fn read(election: &LeaderElection, classes: &Classes) -> (Result<Resolved, Refusal>, Option<ElectionClass>) {
    let read = controllers(classes).find_map(|name| resolve(election, classes, name));
    let spec = read.unwrap_or_else(|| Err(Refusal { reason: "", message: "no class can be found for it".into() }));
    let class = spec.as_ref().ok().and_then(|spec| classes.get(&spec.class_name)).cloned();
    (spec, class)
}

/// Returns a stand-in for a class that can't be seen, so that the rest of the spec can be read.
fn assumed(election: &LeaderElection) -> Classes {
    let status = election.status.as_ref().and_then(|status| status.class_name.clone());
    let Some(name) = election.spec.class_name.clone().or(status) else { return Classes::new() };
    let spec = ElectionClassSpec {
        key_pattern: Some("*".into()),
        follow_pattern: Some("*".into()),
        ..ElectionClassSpec::in_leases()
    };
    let class = ElectionClass::new(&name, spec);
    Classes::from([(name, class)])
}

fn cluster_name(spec: &Resolved) -> String {
    spec.cluster_name().map(|cluster| format!("the cluster {cluster}")).unwrap_or_default()
}

fn stays(leader: &str, contenders: &[Contender], spec: &Resolved) -> String {
    let ranks = |one: &&Contender| one.chance.is_ok();
    let first = contenders.first().filter(ranks).map(|first| first.pod.name.as_str());
    let own = contenders.iter().find(|one| one.pod.name == leader);
    let protected = own.and_then(|own| own.protected);
    let advantage = || {
        let (first, own) = (contenders.first()?.chance.as_ref().ok()?, own?.chance.as_ref().ok()?);
        first.advantage_over(own)
    };
    let preferred = matches!(advantage(), Some(Advantage::Weight(..) | Advantage::Number(..) | Advantage::Apart(..)));
    if let Some(followed) = &spec.followed {
        return format!("{leader} remains the leader as long as it holds {}", followed.told());
    }
    match (first.filter(|first| *first != leader), protected) {
        (Some(first), _) if preferred => format!(
            "{leader} is healthy and remains the leader; {first} would rank higher, but spec.preferences move no leader"
        ),
        (Some(first), _) if !spec.rules.preempt => format!(
            "{leader} is healthy and remains the leader; {first} would rank higher, but spec.preemption is Never"
        ),
        (Some(first), Some(until)) => format!(
            "{leader} is healthy and remains the leader; {first} would rank higher, but a switchover has made {leader} \
             the leader, so no pod preempts it for another {} s",
            left(until)
        ),
        _ => format!("{leader} is healthy and remains the leader"),
    }
}

/// The whole seconds until a moment.
fn left(until: Instant) -> u64 {
    until.since(NOW).as_secs() + 1
}

fn nobody(spec: &Resolved, pods: &[&Pod]) -> String {
    if spec.cluster.is_some() {
        "there is no leader here, and the cluster is not eligible".into()
    } else if let (Some(followed), false) = (&spec.followed, pods.is_empty()) {
        format!("there is no leader, because no eligible pod holds {}", followed.told())
    } else if pods.is_empty() {
        "no pod can be elected, because none matches spec.selector: scale up the workload that creates the pods, or \
         correct the selector"
            .into()
    } else {
        "no pod can be elected, because none is eligible".into()
    }
}

fn candidates(contenders: &[Contender], spec: &Resolved, outlook: &Outlook) -> Vec<Candidate> {
    let mut before: Option<(&str, &Rank)> = None;
    let (mut found, follows) = (Vec::new(), spec.followed.is_some());
    for (place, Contender { pod, chance, by_force, held_back, .. }) in contenders.iter().enumerate() {
        let wins = outlook.winner.as_ref() == Some(&pod.name);
        let why = match (chance, outlook.verdict) {
            (_, "Stays" | "StaysDespiteProbe") if wins => "remains the leader".to_owned(),
            (_, "Recovers") if wins => "leads, and has time to recover".into(),
            (Ok(_), _) if wins => "would be elected now".into(),
            (Ok(_), _) if follows => "does not hold the lock of the candidates".into(),
            (Ok(own), _) => match before.and_then(|(first, rank)| Some((first, rank.advantage_over(own)?))) {
                Some((first, Advantage::NotHeldBack)) => {
                    let long = held_back.map_or_else(String::new, |until| format!(" for another {} s", left(until)));
                    format!("after {first}: a switchover has replaced {}, which ranks last{long}", pod.name)
                }
                Some((first, why)) => format!("after {first}: {}", advantage(first, why)),
                None => "would be elected if the leader were lost".into(),
            },
            (Err(why), _) => match why {
                NotEligible::ReadyTooShortly(until) => {
                    format!("not eligible for another {} s: {}", left(*until), not_eligible(why))
                }
                why => format!("not eligible: {}", not_eligible(why)),
            },
        };
        if let Ok(rank) = chance {
            before = Some((&pod.name, rank));
        }
        found.push(Candidate {
            name: pod.name.clone(),
            role: role(pod, spec),
            ready: pod.ready,
            node: pod.node.clone(),
            rank: (chance.is_ok() && !follows).then_some(place + 1),
            by_force: *by_force,
            why,
        });
    }
    found
}

fn role(pod: &Pod, spec: &Resolved) -> &'static str {
    let markings = &spec.scope.markings;
    if markings.shows_leader(pod) {
        "leader"
    } else if markings.is_follower(pod) {
        "follower"
    } else {
        ""
    }
}

//! What an election comes to, by what can be seen of it: who would be elected, and why. The core decides it, as it does in the operator;
//! here it is only asked and put into words.

use std::collections::BTreeMap;

use kube::ResourceExt;
use lictor_core::switchover::{Hold, Switchovers};
use lictor_core::{
    Advantage, Contender, Desired, FollowedLock, Following, Forecast, Holder, IdentityRule, IdentitySource, Instant,
    Known, LockHolder, Locks, Node, NotEligible, NotHeld, Pod, ProbeFailure, Rank, Record, Stored, Term, Timestamp,
    Uid, Verdict,
};
use serde::Serialize;

use super::presence::lost;
use super::reading::{NOW, Reader, Seen, condition, conditions, full_name};
use crate::api::{
    ACCEPTED, AllowedWorkloads, Classes, DEFAULT_CONTROLLER, ELECTED, ElectionClass, ElectionClassSpec, Leader,
    LeaderElection, LeaseStore, PAUSED, READY, Refusal, Resolved, STALLED, hold, resolve,
};
use crate::process::wall;
use crate::wording::{advantage, describe, not_eligible};

/// The verdict where too little can be seen.
pub(super) const UNKNOWN: &str = "Unknown";

/// An election with all that can be seen of it.
pub(super) struct Sight {
    pub(super) election: LeaderElection,
    /// Whether the classes can be seen.
    pub(super) classes_seen: bool,
    /// The class that it names, or the default one; none: it is built in, or can't be seen.
    pub(super) class: Option<ElectionClass>,
    /// The spec as the operator reads it.
    pub(super) spec: Result<Resolved, Refusal>,
    pub(super) pods: Seen<Vec<Pod>>,
    pub(super) nodes: Seen<BTreeMap<String, Node>>,
    /// Its lock, if that is a Lease.
    pub(super) lock: Option<Seen<Stored>>,
    /// What follows from Switchovers that are complete.
    holds: Seen<Vec<Hold>>,
    /// Whether the cluster itself may lead, if it is the candidate.
    cluster: Option<Seen<Result<(), NotEligible>>>,
    /// What could not be seen, besides.
    unseen: Vec<String>,
}

/// What an election comes to.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outlook {
    /// The present leader, as the operator says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) leader: Option<Leader>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) term: Option<i64>,
    /// Who would lead if the core decided now; none: nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) winner: Option<String>,
    /// What would become of the leadership, in one word.
    pub(super) verdict: &'static str,
    /// The same as a sentence.
    pub(super) now: String,
    /// Who would come next if the leader were lost; none: nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
    /// The same as a sentence.
    pub(super) if_lost: String,
    /// What keeps the operator from deciding so, and what to do.
    pub(super) blocks: Vec<String>,
    pub(super) candidates: Vec<Candidate>,
    /// What could not be seen, and why.
    pub(super) not_visible: Vec<String>,
}

/// A pod that the election selects.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    pub(super) name: String,
    /// leader or follower, as its labels say; empty: neither.
    pub(super) role: &'static str,
    pub(super) ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    /// Its place among those that could be elected, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<usize>,
    /// Whether it could be made the leader by a Switchover with spec.force.
    pub(super) by_force: bool,
    /// Why it would or would not be elected.
    pub(super) why: String,
}

impl Sight {
    /// Reads all that matters of an election. What can't be read is missing, and why is said.
    ///
    /// # Errors
    /// If the election itself can't be read.
    pub(super) async fn of(reader: &Reader, namespace: &str, name: &str) -> anyhow::Result<Self> {
        let (election, classes) = tokio::join!(reader.election(namespace, name), reader.classes());
        let election = election?;
        let mut unseen = Vec::new();
        let classes = classes.unwrap_or_else(|why| {
            unseen.push(format!("the classes, and so where the lock is: {why}"));
            assumed(&election)
        });
        let classes_seen = unseen.is_empty();
        let (spec, class) = read(&election, &classes);
        let mut sight = Self {
            classes_seen,
            class: class.filter(|_| classes_seen),
            pods: Ok(Vec::new()),
            nodes: Ok(BTreeMap::new()),
            lock: None,
            holds: Ok(Vec::new()),
            cluster: None,
            unseen,
            election,
            spec,
        };
        let Ok(spec) = &sight.spec else { return Ok(sight) };
        let lock =
            async { if spec.consul.is_none() && classes_seen { Some(reader.lease(&spec.key).await) } else { None } };
        let pods = async {
            let pods = if spec.cluster.is_some() {
                Ok(Vec::new())
            } else {
                reader.pods(namespace, &spec.scope.selector).await
            };
            let nodes = match &pods {
                Ok(pods) => reader.nodes(pods).await,
                Err(_) => Ok(BTreeMap::new()),
            };
            (pods, nodes)
        };
        let cluster = async {
            match spec.cluster.as_ref()?.available.as_deref() {
                Some(deployment) => Some(reader.available(namespace, deployment).await),
                None => Some(Ok(Ok(()))),
            }
        };
        let switchovers = Box::pin(reader.switchovers(Some(namespace)));
        let (lock, (pods, nodes), cluster, switchovers) = tokio::join!(lock, pods, cluster, switchovers);
        (sight.lock, sight.pods, sight.nodes, sight.cluster) = (lock, pods, nodes, cluster);
        sight.holds = switchovers.map(|all| {
            let own = all.iter().filter(|one| one.spec.election_name == name);
            own.filter_map(|one| hold(one, NOW, wall())).collect()
        });
        Ok(sight)
    }

    /// Asks the core what it would decide.
    pub(super) fn outlook(&self) -> Outlook {
        let mut not_visible = self.unseen.clone();
        not_visible.extend(self.pods.as_ref().err().map(|why| format!("the pods: {why}")));
        not_visible.extend(
            self.nodes
                .as_ref()
                .err()
                .map(|why| format!("the nodes, so lost and cordoned ones are taken for well: {why}")),
        );
        if let Err(why) = &self.holds {
            not_visible.push(format!("the Switchovers, so nobody is taken for held back by one: {why}"));
        }
        if let Some(Err(why)) = &self.lock {
            not_visible.push(format!("the lock, so the status is believed: {why}"));
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
            now: "lictor can't tell from here who would be elected".into(),
            next: None,
            if_lost: String::new(),
            blocks: gone.into_iter().chain(self.blocks()).collect(),
            candidates: Vec::new(),
            not_visible,
        };
        if self.is_refused() {
            outlook.verdict = "Refused";
            outlook.now = "nobody is elected or demoted, because the election is refused".into();
        } else if let (Ok(spec), Ok(pods), None | Some(Ok(_))) = (&self.spec, &self.pods, &self.cluster) {
            self.ask(spec, pods, &mut outlook);
        }
        outlook
    }

    /// Whether its spec is not valid, or an older election has the same pods, workloads or lock.
    fn is_refused(&self) -> bool {
        let accepted = condition(&self.election, ACCEPTED);
        // The operator knows a class that was deleted.
        let is_kept = accepted.is_some_and(|accepted| accepted.reason == "ClassDeleted");
        (self.spec.is_err() && !is_kept) || accepted.is_some_and(|accepted| accepted.status == "False")
    }

    /// Asks the core, and puts it into words.
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
            probe_failed: failing.and(leader).map(|leader| (&leader.uid, ProbeFailure::NoAnswer)),
            ..Known::new(NOW, &spec.key, &locks)
        };
        let forecast = known.forecast(&self.election.name_any(), &uid, record.as_ref());
        let Some(Forecast { verdict, contenders }) = forecast else { return };
        let name = |holder: &Holder| holder.pod.clone().unwrap_or_else(|| cluster_name(spec));
        (outlook.verdict, outlook.winner, outlook.now) = match &verdict {
            Verdict::Stays(leader) => ("Stays", Some(name(leader)), stays(&name(leader), &contenders, spec)),
            Verdict::StaysDespiteProbe(leader) => {
                let text =
                    format!("{} stays the leader although it fails its probe: no other is eligible", name(leader));
                ("StaysDespiteProbe", Some(name(leader)), text)
            }
            Verdict::Elected(next, reason) => {
                ("Elected", Some(name(next)), format!("{} would be elected: {}", name(next), describe(*reason, leader)))
            }
            Verdict::Vacated(reason) => {
                let text = format!("the leader would be demoted, and nobody is elected: {}", describe(*reason, leader));
                ("Vacated", None, text)
            }
            Verdict::Recovers(why, left) => {
                let text = format!(
                    "the leader has at most {} s (spec.handover.failoverDelaySeconds) to recover: {}",
                    left.as_secs(),
                    not_eligible(*why)
                );
                ("Recovers", leader.map(name), text)
            }
            Verdict::Nobody => ("Nobody", None, nobody(spec, &pods)),
        };
        if let Some(followed) = &spec.followed {
            outlook.if_lost = format!("the candidates elect the next one themselves, with {}", followed.told());
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
                    .map_or_else(|| "it is the only other that is eligible".into(), |why| advantage("it", why));
                (Some(one.pod.name.clone()), format!("{} would be elected: {why}", one.pod.name))
            }
            (Some(_), None, false) => (None, "nobody could be elected: no other pod is eligible".into()),
            (None, ..) => (None, String::new()),
        };
        outlook.candidates = candidates(&contenders, spec, outlook);
    }

    /// What the operator says of the lock that the candidates hold themselves: it knows which pod the holder is.
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

    /// What the lock says of the leader. Where the lock can't be read, the status says it.
    fn record(&self, spec: &Resolved) -> Option<Record> {
        if let Some(Ok(stored)) = &self.lock {
            return stored.record().cloned();
        }
        let status = self.election.status.as_ref()?;
        let leader = status.leader.as_ref()?;
        let here = spec.consul.as_ref().map(|consul| &consul.cluster) == leader.cluster_name.as_ref();
        let uid = leader.pod_uid.clone().or_else(|| self.election.uid());
        let holder = Holder { pod: leader.pod_name.clone(), uid: Uid(uid?), node: None, ip: None };
        (here && leader.session.is_none()).then(|| Record {
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

    /// What keeps the operator from deciding, and what to do.
    fn blocks(&self) -> Vec<String> {
        let name = full_name(&self.election);
        let mut blocks = Vec::new();
        if self.election.metadata.deletion_timestamp.is_some() {
            blocks.push("the election is being deleted: what it wrote is taken off".to_owned());
        }
        if self.election.spec.paused {
            let (namespace, name) = name.split_once('/').unwrap_or_default();
            blocks.push(format!(
                "spec.paused is set, so nobody is promoted or demoted: `kubectl lictor resume {name} -n {namespace}`"
            ));
        }
        let generation = self.election.metadata.generation;
        match self.election.status.as_ref().and_then(|status| status.observed_generation) {
            None => blocks.push(
                "no operator has looked at this election: `kubectl lictor doctor` says whether one acts, and serves its class".into(),
            ),
            seen if seen < generation => blocks.push(
                "the operator has not decided by the newest spec yet: if this stays so, `kubectl lictor doctor` says why".into(),
            ),
            _ => {}
        }
        if let Some(Ok(Stored::Foreign(what))) = &self.lock {
            blocks.push(format!("{what}: delete it, or give this election another spec.key"));
        }
        for unwell in conditions(&self.election) {
            let follows = [READY, STALLED, PAUSED].contains(&unwell.type_.as_str());
            let limps = [
                "ClassDeleted",
                "Flapping",
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
            // These only point to what is said anyway: of each candidate, or by another condition.
            let said = ["NoEligiblePod", "NotAccepted", "Pending"].contains(&unwell.reason.as_str());
            if !follows && !said && (unwell.status != "True" || limps) {
                blocks.push(format!("{}: {}", unwell.reason, unwell.message));
            }
        }
        blocks
    }
}

/// Returns an election's spec as the lictor that serves it reads it, and the class, if it is not the built-in one.
pub(super) fn read(election: &LeaderElection, classes: &Classes) -> (Result<Resolved, Refusal>, Option<ElectionClass>) {
    let controllers = classes.values().map(|class| class.spec.controller.as_str());
    let read = [DEFAULT_CONTROLLER].into_iter().chain(controllers).find_map(|name| resolve(election, classes, name));
    let spec = read.unwrap_or_else(|| Err(Refusal { reason: "", message: "no class can be found for it".into() }));
    let class = spec.as_ref().ok().and_then(|spec| classes.get(&spec.class_name)).cloned();
    (spec, class)
}

/// Returns a class by the name that the election wants, to read the rest of the spec by.
fn assumed(election: &LeaderElection) -> Classes {
    let status = election.status.as_ref().and_then(|status| status.class_name.clone());
    let Some(name) = election.spec.class_name.clone().or(status) else { return Classes::new() };
    let spec = ElectionClassSpec {
        controller: DEFAULT_CONTROLLER.into(),
        lease: Some(LeaseStore {}),
        consul: None,
        key_template: None,
        key_pattern: Some("*".into()),
        follow_pattern: Some("*".into()),
        allowed_namespaces: None,
        allowed_workloads: AllowedWorkloads::All,
    };
    let class = ElectionClass::new(&name, spec);
    Classes::from([(name, class)])
}

fn cluster_name(spec: &Resolved) -> String {
    spec.consul.as_ref().map(|consul| format!("the cluster {}", consul.cluster)).unwrap_or_default()
}

fn stays(leader: &str, contenders: &[Contender], spec: &Resolved) -> String {
    let ranks = |one: &&Contender| one.chance.is_ok();
    let first = contenders.first().filter(ranks).map(|first| first.pod.name.as_str());
    let protected = contenders.iter().find(|one| one.pod.name == leader).and_then(|own| own.protected);
    if let Some(followed) = &spec.followed {
        return format!("{leader} stays the leader, as long as it holds {}", followed.told());
    }
    match (first.filter(|first| *first != leader), protected) {
        (Some(first), _) if !spec.rules.preempt => format!(
            "{leader} is healthy and stays the leader; {first} would go before it, but spec.preemption is Never"
        ),
        (Some(first), Some(until)) => format!(
            "{leader} is healthy and stays the leader; {first} would go before it, but a switchover has made {leader} the leader, and \
             nobody preempts it for another {} s",
            left(until)
        ),
        _ => format!("{leader} is healthy and stays the leader"),
    }
}

/// The whole seconds until a moment.
fn left(until: Instant) -> u64 {
    until.since(NOW).as_secs() + 1
}

fn nobody(spec: &Resolved, pods: &[&Pod]) -> String {
    if spec.cluster.is_some() {
        "nobody leads here, and the cluster is not eligible".into()
    } else if let (Some(followed), false) = (&spec.followed, pods.is_empty()) {
        format!("nobody leads, because no pod that may lead holds {}", followed.told())
    } else if pods.is_empty() {
        "nobody can be elected, because no pod matches spec.selector: scale up what makes the pods, or correct the selector"
            .into()
    } else {
        "nobody can be elected, because no pod is eligible".into()
    }
}

fn candidates(contenders: &[Contender], spec: &Resolved, outlook: &Outlook) -> Vec<Candidate> {
    let mut before: Option<(&str, &Rank)> = None;
    let (mut found, follows) = (Vec::new(), spec.followed.is_some());
    for (place, Contender { pod, chance, by_force, held_back, .. }) in contenders.iter().enumerate() {
        let wins = outlook.winner.as_ref() == Some(&pod.name);
        let why = match (chance, outlook.verdict) {
            (_, "Stays" | "StaysDespiteProbe") if wins => "leads, and stays".to_owned(),
            (_, "Recovers") if wins => "leads, and may recover".into(),
            (Ok(_), _) if wins => "would be elected now".into(),
            (Ok(_), _) if follows => "does not hold the lock of the candidates".into(),
            (Ok(own), _) => match before.and_then(|(first, rank)| Some((first, rank.advantage_over(own)?))) {
                Some((first, Advantage::NotHeldBack)) => {
                    let long = held_back.map_or_else(String::new, |until| format!(" for another {} s", left(until)));
                    format!("after {first}: a switchover has replaced {}, which comes last{long}", pod.name)
                }
                Some((first, why)) => format!("after {first}: {}", advantage(first, why)),
                None => "would be elected if the leader were lost".into(),
            },
            (Err(why), _) => match why {
                NotEligible::ReadyTooShortly(until) => {
                    format!("not eligible for another {} s: {}", left(*until), not_eligible(*why))
                }
                why => format!("not eligible: {}", not_eligible(*why)),
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

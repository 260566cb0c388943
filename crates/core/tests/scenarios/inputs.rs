//! What may happen in a scenario, and how it is written.

use std::time::Duration;

use lictor_core::switchover::{Asked, Target};
use lictor_core::{
    Desired, DrainObligation, ELECTION_ANNOTATION, FollowedLock, HandoverOrder, Holder, Instant, Key, LockHolder,
    LockValidity, NotHeld, Offer, PRIORITY_ANNOTATION, Pod, Rival, Setting, Stored, TERM_ANNOTATION, Term, Timestamp,
    Uid, Wish, Workload, WorkloadId, WorkloadKind,
};

use super::world::{ELECTION, HERE, World, record, scope};

/// All that may happen: the subject, what may be said of it, and what that means. Several things are said with `, ` between them.
pub const FORMS: [(&str, &str, &str); 40] = [
    ("pod", "pod NAME: ready | not ready", "its condition; a new pod is made, with app=web"),
    ("pod", "pod NAME: LABEL=VALUE | LABEL=-", "somebody sets or takes off a label"),
    ("pod", "pod NAME: term N", "its annotation says that it was written in that term of the election"),
    ("pod", "pod NAME: priority N", "its annotation by which users order pods"),
    ("pod", "pod NAME: deleting | gone", "its deletion is asked for; it is no more"),
    ("pod", "pod NAME: anew", "it is another pod by the same name: a, then a', then a''"),
    ("lock", "lock: POD in term N | nobody in term N", "somebody writes the record"),
    ("lock", "lock: deleted | overwritten | edited by hand, term N", "a person does that"),
    ("lock", "lock: free", "its session ended: the record is still there"),
    ("lock", "lock: free, left by others, LEGACY", "another cluster held it last"),
    ("lock", "lock: held by CLUSTER, POD in term N, LEGACY", "another cluster holds it"),
    ("lock", "lock: held by CLUSTER, POD in term N, offered by switchover NAME", "it is offered to this cluster, west"),
    ("lock", "lock: given, in term N", "the other cluster hands it over to this one, by the bid that it has"),
    ("lock", "LEGACY: N s to wind down, ended, waits N s, tick NAME N s", "what that one's record says of workloads"),
    ("bid", "bid CLUSTER: can lead | can't lead", "that cluster answers the record as it is"),
    ("bid", "bid CLUSTER: ended", "its session has ended, and so has its answer"),
    ("election", "election: key KEY | label LABEL", "another lock; another label for the roles"),
    ("election", "election: failover delay N s | wind down N s", "how long leaders may recover, and workloads end"),
    ("election", "election: preempt", "a higher priority takes over from a healthy leader"),
    ("election", "election: promote first", "two leaders rather than none"),
    ("election", "election: deleted | made anew", "another one is made by the same name"),
    ("election", "election: gone", "it had no finalizer; who starts later knows only its record"),
    ("store", "store: Consul", "locks are shared with others"),
    ("store", "store: validity N s", "for so long what is held is surely this cluster's own"),
    ("store", "store: TTL N s | silence N s", "of the sessions; how long a lock is kept whose holder is silent"),
    ("store", "store: snapshot | put back", "its state is kept; it is put back to that, versions too"),
    ("workload", "workload KIND/NAME: runs | suspended | N replicas", "somebody sets that; a new workload is made"),
    ("workload", "workload KIND/NAME: remains | ended", "something of it runs, or has ended"),
    ("workload", "workload KIND/NAME: last tick N s", "when its schedule was due last"),
    (
        "switchover",
        "switchover NAME: to POD | to any | to cluster NAME, from term N | given up",
        "it is accepted; it is given up",
    ),
    ("followed", "followed: held by NAME | renewed | free | not known", "the lock that the candidates hold themselves"),
    ("operator", "operator NAME: starts | killed", "it sees all there is; nobody hears answers to it any more"),
    ("operator", "operator NAME: paused | goes on", "its process is stopped, and continued"),
    (
        "operator",
        "operator NAME: sees no WATCH | sees WATCH",
        "pods, locks, election or followed: its cache stays as it is",
    ),
    ("operator", "operator NAME: leaves", "it stops in order, and there is no other"),
    ("next", "next COMMAND: held up | lost | refused | delayed", "what becomes of the next command that begins so"),
    ("next", "next COMMAND: timed out", "its sender gives it up, and it is still on its way"),
    ("next", "next COMMAND: answer lost", "it is carried out, and nobody is told"),
    ("held", "held COMMAND: arrives", "a request that was held up is carried out now"),
    ("time", "time: N s", "so much time passes"),
];

impl World {
    /// Something that happens to a pod; `None`: it is not understood.
    pub fn pod(&mut self, name: &str, parts: &[&str]) -> Option<()> {
        if parts == ["gone"] {
            self.pods.remove(name)?;
            return Some(());
        }
        let new = || Pod {
            name: name.into(),
            uid: Uid(name.into()),
            labels: [("app".to_owned(), ELECTION.to_owned())].into(),
            node: Some("n".into()),
            ready_observed: Some(Instant::default()),
            ..Pod::default()
        };
        let mut pod = self.pods.get(name).cloned().unwrap_or_else(new);
        for part in parts {
            match words(part).as_slice() {
                ["ready"] => pod.ready = true,
                ["not", "ready"] => pod.ready = false,
                ["deleting"] => pod.deleting = true,
                ["anew"] => pod = Pod { uid: Uid(format!("{}'", pod.uid)), ..new() },
                ["term", term] => {
                    pod.annotations.insert(ELECTION_ANNOTATION.into(), ELECTION.into());
                    pod.annotations.insert(TERM_ANNOTATION.into(), (*term).into());
                }
                ["priority", priority] => drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), (*priority).into())),
                [label] => {
                    let (key, value) = label.split_once('=')?;
                    match value {
                        "-" => pod.labels.remove(key),
                        _ => pod.labels.insert(key.into(), value.into()),
                    };
                }
                _ => return None,
            }
        }
        self.put_pod(pod);
        Some(())
    }

    /// Something that others do to the lock.
    pub fn lock_is(&mut self, parts: &[&str]) -> Option<()> {
        let key = self.election.key.clone();
        let before = self.lock(&key).written().cloned();
        match (words(parts[0]).as_slice(), &parts[1..]) {
            (["deleted"], []) => self.put_lock(key, |_| Stored::Absent),
            (["overwritten"], []) => {
                let Stored::HeldByOther(_, rival) = self.lock(&key) else { return None };
                let unreadable = Rival { session: rival.session.clone(), ..Rival::default() };
                self.put_lock(key, |version| Stored::HeldByOther(version, unreadable))
            }
            (["edited", "by", "hand"], [term]) => {
                let hint = match words(term).as_slice() {
                    ["term", hint] => Term(hint.parse().ok()?),
                    _ => return None,
                };
                self.put_lock(key, |version| Stored::Damaged(version, hint))
            }
            (["free"], []) => self.put_lock(key, |version| Stored::Free(version, before, None)),
            (["free"], ["left by others", told @ ..]) => {
                let obligation = Some(obligation(told)?).filter(|_| !told.is_empty());
                self.put_lock(key, |version| Stored::Free(version, None, obligation))
            }
            (["held", "by", cluster], [leadership, told @ ..]) => {
                let (holder, term) = self.leadership(leadership)?;
                let cluster: Option<String> = Some((*cluster).into());
                let (offer, told) = match told.split_last() {
                    Some((last, told)) if last.starts_with("offered ") => (Some(offer(last)?), told),
                    _ => (None, told),
                };
                let obligation = Some(obligation(told)?).filter(|_| !told.is_empty());
                let session = format!("session of {}", cluster.as_deref().unwrap_or_default());
                let rival =
                    Rival { cluster, holder, term, drain_obligation: obligation, session, offer, ..Rival::default() };
                self.put_lock(key, |version| Stored::HeldByOther(version, rival))
            }
            (["given"], [term]) => {
                let term = term.strip_prefix("in term ").and_then(|term| term.parse().ok())?;
                self.be_given(key, Term(term))?
            }
            (_, told) => {
                let (holder, term) = self.leadership(parts[0])?;
                let record = record(&self.election, term, holder);
                if !told.is_empty() {
                    return None;
                }
                self.led = self.led.clone().or_else(|| Some((record.holder.clone()?.uid, term)));
                self.put_lock(key, |version| Stored::Ours(version, record))
            }
        };
        Some(())
    }

    /// What another cluster says to an offer of the lock.
    pub fn bid_is(&mut self, cluster: &str, parts: &[&str]) -> Option<()> {
        match parts {
            ["can lead"] => self.answer(cluster, true),
            ["can't lead"] => self.answer(cluster, false),
            ["ended"] => self.end_bid(cluster),
            _ => None,
        }
    }

    /// `POD in term N`.
    fn leadership(&self, part: &str) -> Option<(Option<Holder>, Term)> {
        let words = words(part);
        let [name, "in", "term", term] = words.as_slice() else { return None };
        let uid = self.pods.get(*name).map_or_else(|| Uid((*name).into()), |pod| pod.uid.clone());
        let holder = Holder { pod: Some((*name).into()), uid, node: Some("n".into()), ip: None };
        Some((Some(holder).filter(|_| *name != "nobody"), Term(term.parse().ok()?)))
    }

    /// Something that users do to the election.
    pub fn election_is(&mut self, parts: &[&str]) -> Option<()> {
        let election = &mut self.election;
        if self.started > 0 {
            election.generation += 1;
        }
        for part in parts {
            match words(part).as_slice() {
                ["key", key] => election.key = Key::lease("", *key),
                ["label", label] => election.scope = scope(label),
                ["failover", "delay", number, "s"] => election.failover_delay = seconds(number)?,
                ["wind", "down", number, "s"] => election.wind_down = number.parse().ok()?,
                ["preempt"] => election.rules.preempt = true,
                ["promote", "first"] => election.order = HandoverOrder::PromoteFirst,
                ["deleted"] => election.desired = Desired::Withdraw,
                ["gone"] => (election.desired, election.gone) = (Desired::Withdraw, true),
                ["made", "anew"] => {
                    election.uid = Uid(format!("{}'", election.uid));
                    (election.generation, election.desired, election.gone) = (1, Desired::Run, false);
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Something that becomes known of the store.
    pub fn store_is(&mut self, parts: &[&str]) -> Option<()> {
        let now = self.now;
        for part in parts {
            match words(part).as_slice() {
                ["Consul"] => self.validity = LockValidity::Unknown,
                ["validity", number, "s"] => self.validity = LockValidity::Until(now + seconds(number)?),
                ["TTL", number, "s"] => self.ttl = seconds(number)?,
                ["silence", number, "s"] => self.silence = seconds(number)?,
                ["snapshot"] => self.save(),
                ["put", "back"] => self.put_back(),
                _ => return None,
            }
        }
        Some(())
    }

    /// Something that becomes of the lock that the candidates hold themselves.
    pub fn followed_is(&mut self, parts: &[&str]) -> Option<()> {
        let version = self.next_version();
        let followed = match (words(parts.first()?).as_slice(), self.followed.take()) {
            (["held", "by", name], _) => FollowedLock::Held(LockHolder {
                identity: (*name).into(),
                tenure: version.to_string(),
                version,
                ..LockHolder::default()
            }),
            (["renewed"], Some(FollowedLock::Held(holder))) => FollowedLock::Held(LockHolder { version, ..holder }),
            (["free"], _) => FollowedLock::Free(NotHeld::Released),
            (["not", "known"], _) => FollowedLock::Unknown("no answer".into()),
            _ => return None,
        };
        self.followed = Some(followed);
        Some(())
    }

    /// Something that becomes of a switchover. There is one at a time.
    pub fn switchover_is(&mut self, name: &str, parts: &[&str]) -> Option<()> {
        let mut asked = match self.accepted.take() {
            Some((asked, _)) if asked.id.0 == name => asked,
            _ => Asked { id: Uid(name.into()), from_term: Term(0), to: Target::Any, force: false },
        };
        let mut gives_up = false;
        for part in parts {
            match words(part).as_slice() {
                ["to", "any"] => asked.to = Target::Any,
                ["to", "cluster", cluster] => asked.to = Target::Cluster((*cluster).into()),
                ["to", pod] => asked.to = Target::Pod(self.pods.get(*pod)?.uid.clone()),
                ["from", "term", term] => asked.from_term = Term(term.parse().ok()?),
                ["given", "up"] => gives_up = true,
                _ => return None,
            }
        }
        self.accepted = Some((asked, gives_up));
        Some(())
    }

    /// Something that happens to a workload.
    pub fn workload(&mut self, id: &str, parts: &[&str]) -> Option<()> {
        let (kind, name) = id.split_once('/')?;
        let kind = match kind {
            "CronJob" => WorkloadKind::CronJob,
            "Deployment" => WorkloadKind::Deployment,
            _ => return None,
        };
        let id = WorkloadId { kind, name: name.into() };
        let version = self.next_version();
        if !self.workloads.iter().any(|workload| workload.id == id) {
            self.workloads.push(new_workload(id.clone()));
        }
        let workload = self.workloads.iter_mut().find(|workload| workload.id == id)?;
        workload.version = version;
        for part in parts {
            match words(part).as_slice() {
                ["runs"] => workload.setting = Setting::Suspend(false),
                ["suspended"] => workload.setting = Setting::Suspend(true),
                [number, "replicas"] => workload.setting = Setting::Replicas(number.parse().ok()?),
                ["remains"] => workload.remains = true,
                [number, "pods", "run"] => (workload.remains, workload.running) = (true, number.parse().ok()?),
                ["ended"] => (workload.remains, workload.running) = (false, 0),
                ["last", "tick", number, "s"] => workload.last_tick = Some(tick(number)?),
                _ => return None,
            }
        }
        Some(())
    }
}

fn new_workload(id: WorkloadId) -> Workload {
    Workload {
        uid: Uid(id.name.clone()),
        id,
        version: lictor_core::Version(0),
        setting: Setting::Suspend(false),
        claim: None,
        noted: None,
        deleting: false,
        finished: false,
        remains: false,
        running: 0,
        deletable: false,
        last_tick: None,
        wish: Wish::Follow { replicas: None },
    }
}

/// `offered by switchover NAME`, to this cluster.
fn offer(part: &str) -> Option<Offer> {
    let switchover = Uid(part.strip_prefix("offered by switchover ")?.into());
    Some(Offer { switchover, cluster: HERE.into() })
}

/// What another cluster says of its workloads.
fn obligation(parts: &[&str]) -> Option<DrainObligation> {
    let mut obligation = DrainObligation::default();
    for part in parts {
        match words(part).as_slice() {
            [number, "s", "to", "wind", "down"] => obligation.wind_down_seconds = number.parse().ok()?,
            ["ended"] => obligation.ended = true,
            ["waits", number, "s"] => obligation.waits_seconds = number.parse().ok()?,
            ["tick", name, number, "s"] => drop(obligation.ticks.insert((*name).into(), tick(number)?)),
            _ => return None,
        }
    }
    Some(obligation)
}

fn words(part: &str) -> Vec<&str> {
    part.split(' ').collect()
}

/// A number of seconds, which may have a fraction.
pub fn seconds(number: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(number.parse().ok()?).ok()
}

fn tick(number: &str) -> Option<Timestamp> {
    number.parse::<i64>().ok().map(|seconds| Timestamp(seconds * 1000))
}

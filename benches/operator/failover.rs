//! From the loss of a leader to the next one's label, as an independent watcher sees it.

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use lictor_api::LeaderElectionStatus;
use serde_json::{Value, json};

use crate::consul::Consul;
use crate::figures::{Report, Sample};
use crate::floor::{Floor, Took};
use crate::machine;
use crate::observer::{Id, Observer, Sight};
use crate::record::Record;
use crate::world::{World, set_ready};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of runs before those that count: an operator's first handover in a group does more (H4 in docs/protocol.md).
const WARM_UP: u32 = 3;
const NAMESPACE: &str = "failover";
const APP: &str = "web";
const CLASS: &str = "consul";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The leader's pod is deleted, and terminates slowly.
    Deletion,
    /// The leader's condition Ready becomes false.
    Unready,
}

/// The times at which each change was seen.
pub struct Seen {
    pub cause: Instant,
    record: Instant,
    demotion: Instant,
    pub promotion: Instant,
    /// The operator's own measurement.
    own: f64,
}

#[derive(Default)]
struct Figures {
    total: Sample,
    to_record: Sample,
    to_demotion: Sample,
    to_promotion: Sample,
    own: Sample,
    floor: Sample,
    floor_record: Sample,
    floor_demotion: Sample,
    floor_promotion: Sample,
    /// The number of runs that began beside a busy process.
    disturbed: u32,
    /// The runs in order, each with its floor.
    runs: Vec<(f64, f64)>,
}

/// Measures `runs` failovers of each kind, with locks in Leases or in Consul. `wait`: for how long each run lets busy processes go first.
pub async fn measure(runs: u32, wait: Duration, consul: Option<&Consul>, report: &mut Report) -> anyhow::Result<Value> {
    let part = if consul.is_some() { "consul-failover" } else { "failover" };
    let world = World::start(part).await?;
    if let Some(consul) = consul {
        consul.class(&world, CLASS, &json!({}), &json!({}))?;
    }
    let _operator = world.operator();
    let lock = format!("services/{NAMESPACE}/{APP}/leader");
    let key = consul.map(|consul| (consul.api(), lock.clone()));
    let observer = Observer::with_key(&world.another_client().await, true, key).await?;
    let mut group = Group::new(&world, observer, consul.map(|_| CLASS)).await?;
    let key = if let Some(consul) = consul { Some(Record::key(consul.client()?, &lock).await?) } else { None };
    let mut floor = group.floor(key).await?;

    let mut figures = [(Cause::Deletion, Figures::default()), (Cause::Unready, Figures::default())];
    let mut loads = Vec::new();
    for run in 0..WARM_UP + runs {
        for (cause, figures) in &mut figures {
            let mut calm = group.observer.calm(wait).await?;
            let bottom = floor.write().await.context("the floor")?;
            calm &= group.observer.calm(wait).await?;
            let seen = group.fail(*cause).await.with_context(|| format!("run {run}, {cause:?}"))?;
            if run >= WARM_UP {
                figures.disturbed += u32::from(!calm);
                figures.add(&seen, &bottom);
            }
        }
        if run % 20 == 19 || run + 1 == WARM_UP + runs {
            let medians = figures
                .each_ref()
                .map(|(_, figures)| format!("{:.2} (floor {:.2})", figures.total.median(), figures.floor.median()));
            let load = machine::load()?;
            eprintln!("{part}: {} runs, medians {} ms, load {load}", run + 1, medians.join(" and "));
            loads.push(load);
        }
    }
    let [(_, deletion), (_, unready)] = &figures;
    let what = |cause: &str| if consul.is_some() { format!("{cause}, Consul") } else { cause.to_owned() };
    deletion.report(&what("leader deleted"), report);
    unready.report(&what("leader not ready"), report);
    Ok(json!({"runs": runs, "loads": loads, "deletion": deletion.to_json(), "unready": unready.to_json()}))
}

/// Three pods and their election, in a namespace of their own.
pub struct Group<'a> {
    world: &'a World,
    pods: Api<Pod>,
    pub observer: Observer,
    made: usize,
}

impl<'a> Group<'a> {
    /// Makes it, and waits until it is led. Without a class, its lock is a Lease.
    pub async fn new(world: &'a World, observer: Observer, class: Option<&str>) -> anyhow::Result<Self> {
        world.namespace(NAMESPACE).await?;
        for number in 0..3 {
            world.pod(NAMESPACE, &format!("{APP}-{number}"), APP, number).await?;
        }
        world.elect(NAMESPACE, APP, class).await?;
        let mut group = Self { pods: Api::namespaced(world.client.clone(), NAMESPACE), world, observer, made: 3 };
        group.settle().await?;
        Ok(group)
    }

    /// Makes the floor for it. Without a key, its record is a Lease.
    pub async fn floor(&mut self, key: Option<Record>) -> anyhow::Result<Floor> {
        let world = self.world;
        world.namespace("floor").await?;
        let client = world.operators_client().await?;
        let record = if let Some(key) = key {
            key
        } else {
            let lease = Api::<Lease>::namespaced(world.client.clone(), NAMESPACE).get(APP).await?;
            Record::lease(world, &client, "floor", &lease).await?
        };
        let mut floor = Floor::new(world, &client, "floor", record).await?;
        let ready = |observer: &Observer| {
            let pods = observer.pods.iter().filter(|((namespace, _), _)| namespace == "floor");
            pods.filter(|(_, pod)| pod.ready).count() == 3
        };
        self.observer.until("the pods of the floor are ready", PATIENCE, ready).await?;
        floor.settle().await?;
        Ok(floor)
    }

    /// Waits until everything is labelled and reported. Returns the leader.
    async fn settle(&mut self) -> anyhow::Result<String> {
        let settled = |observer: &Observer| settled(observer).is_some();
        self.observer.until("the group has settled", PATIENCE, settled).await?;
        settled_leader(&self.observer)
    }

    /// Makes one failover, and waits until the group has settled again.
    pub async fn fail(&mut self, cause: Cause) -> anyhow::Result<Seen> {
        let leader = settled_leader(&self.observer)?;
        let (pods, observer) = (self.pods.clone(), &mut self.observer);
        let (asked, seen) = tokio::join!(bring_about(&pods, &leader, cause), watch(observer, &leader, cause));
        asked?;
        let mut seen = seen?;
        // The status has to be complete before the group changes again, because it counts again afterwards.
        let told = |status: &LeaderElectionStatus| {
            let entry = status.history.first()?;
            (entry.previous_leader_name.as_deref() == Some(leader.as_str())).then_some(entry.duration_milliseconds)
        };
        let id = (NAMESPACE.to_owned(), APP.to_owned());
        let of = |observer: &Observer| observer.elections.get(&id).and_then(told);
        self.observer.until("the status tells of it", PATIENCE, |observer| of(observer).is_some()).await?;
        seen.own = of(&self.observer).map_or(f64::NAN, |took| f64::from(i32::try_from(took).unwrap_or(i32::MAX)));
        match cause {
            Cause::Deletion => {
                self.pods.delete(&leader, &DeleteParams::default().grace_period(0)).await?;
                let name = format!("{APP}-{}", self.made);
                self.world.pod(NAMESPACE, &name, APP, self.made).await?;
                self.made += 1;
            }
            Cause::Unready => set_ready(&self.pods, &leader, true).await?,
        }
        self.settle().await?;
        Ok(seen)
    }
}

async fn bring_about(pods: &Api<Pod>, leader: &str, cause: Cause) -> anyhow::Result<()> {
    match cause {
        Cause::Deletion => {
            pods.delete(leader, &DeleteParams::default()).await?;
            Ok(())
        }
        Cause::Unready => set_ready(pods, leader, false).await,
    }
}

/// Watches a failover from its cause to the next leader's label.
async fn watch(observer: &mut Observer, leader: &str, cause: Cause) -> anyhow::Result<Seen> {
    let id: Id = (NAMESPACE.into(), leader.into());
    let caused = |at: Instant, sight: &Sight| match sight {
        Sight::Pod(pod, Some(pod_sight)) if *pod == id => {
            let is = match cause {
                Cause::Deletion => pod_sight.deleting,
                Cause::Unready => !pod_sight.ready,
            };
            is.then_some(at)
        }
        _ => None,
    };
    let (mut cause, mut record, mut demotion, mut promotion) = (None, None, None, None);
    let lease: Id = (NAMESPACE.into(), APP.into());
    // Records and pods come over two connections, so their order is not certain: the record may be seen before the cause.
    let all = |at: Instant, sight: &Sight| {
        cause = cause.or_else(|| caused(at, sight));
        match sight {
            Sight::Lease(which, Some(holder)) if *which == lease && holder != leader => _ = record.get_or_insert(at),
            Sight::Key { holder: Some(holder), .. } if holder != leader => _ = record.get_or_insert(at),
            Sight::Pod(pod, Some(sight)) if pod.0 == NAMESPACE => match sight.role.as_deref() {
                Some("follower") if pod.1 == leader => _ = demotion.get_or_insert(at),
                Some("leader") if pod.1 != leader => _ = promotion.get_or_insert(at),
                _ => {}
            },
            _ => {}
        }
        Some(Seen { cause: cause?, record: record?, demotion: demotion?, promotion: promotion?, own: f64::NAN })
    };
    observer.find("the next leader", PATIENCE, all).await
}

/// Returns the leader, if every pod is alive and labelled and the status says the same.
fn settled(observer: &Observer) -> Option<&str> {
    let pods: Vec<_> = observer.pods.iter().filter(|((namespace, _), _)| namespace == NAMESPACE).collect();
    if pods.len() != 3 || pods.iter().any(|(_, pod)| pod.deleting || !pod.ready) {
        return None;
    }
    let with = |role: &str| pods.iter().filter(|(_, pod)| pod.role.as_deref() == Some(role)).collect::<Vec<_>>();
    let ([(leader, _)], 2) = (with("leader").as_slice(), with("follower").len()) else { return None };
    let status = observer.elections.get(&(NAMESPACE.into(), APP.into()))?;
    let told = status.leader.as_ref().is_some_and(|told| told.pod_name.as_ref() == Some(&leader.1))
        && status.candidates.as_ref().is_some_and(|candidates| candidates.summary == "3/3");
    told.then_some(leader.1.as_str())
}

fn settled_leader(observer: &Observer) -> anyhow::Result<String> {
    Ok(settled(observer).context("the group is not settled any more")?.to_owned())
}

impl Figures {
    fn add(&mut self, seen: &Seen, floor: &Took) {
        let between = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        let took = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let (total, least) = (between(seen.cause, seen.promotion), took(floor.total()));
        self.total.push(total);
        self.to_record.push(between(seen.cause, seen.record));
        self.to_demotion.push(between(seen.record, seen.demotion));
        self.to_promotion.push(between(seen.demotion, seen.promotion));
        self.own.push(seen.own);
        self.floor.push(least);
        self.floor_record.push(took(floor.record));
        self.floor_demotion.push(took(floor.demotion));
        self.floor_promotion.push(took(floor.promotion));
        self.runs.push((total, least));
    }

    fn report(&self, what: &str, report: &mut Report) {
        report.figure(format!("failover, {what}: p50"), self.total.median(), "ms");
        report.figure(format!("failover, {what}: p99"), self.total.percentile(99), "ms");
        report.figure(format!("floor beside it ({what}): p50"), self.floor.median(), "ms");
        report.figure(format!("floor beside it ({what}): p99"), self.floor.percentile(99), "ms");
        let ratio = |percent| self.total.percentile(percent) / self.floor.percentile(percent);
        report.target(format!("failover / floor, {what}: p50"), ratio(50), "", 1.3);
        let p99 = format!("failover / floor, {what}: p99");
        // Of fewer runs, that is one run divided by another.
        if self.runs.len() < 100 {
            report.figure(p99, ratio(99), "");
        } else {
            report.target(p99, ratio(99), "", 2.0);
        }
        report.figure(format!("runs beside a busy neighbour, {what}"), self.disturbed.into(), "");
        report.figure(format!("the operator's own figure, {what}: p50"), self.own.median(), "ms");
    }

    fn to_json(&self) -> Value {
        json!({
            "total": self.total.to_json(),
            "disturbed": self.disturbed,
            "own": self.own.to_json(),
            "floor": self.floor.to_json(),
            "stages": {
                "causeToRecord": self.to_record.to_json(), "recordToDemotion": self.to_demotion.to_json(),
                "demotionToPromotion": self.to_promotion.to_json(),
            },
            "floorStages": {
                "record": self.floor_record.to_json(), "demotion": self.floor_demotion.to_json(),
                "promotion": self.floor_promotion.to_json(),
            },
            "runs": self.runs,
        })
    }
}

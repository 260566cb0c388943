//! The first handover of an operator in a large group and in a small one, reached by a slice and by label. The first one stamps
//! every candidate (H4 in docs/protocol.md).

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use lictor_testing::kubernetes::Operator;
use serde_json::{Value, json};

use crate::figures::{Report, Sample};
use crate::machine;
use crate::observer::{Observer, PodSight, Sight};
use crate::world::{World, set_ready};

const PATIENCE: Duration = Duration::from_secs(120);
const APP: &str = "web";
const SERVICE: &str = "web-leader";
/// The number of pods of each group.
const SMALL: usize = 3;
const LARGE: usize = 500;
/// How many times longer the large group may take, reached by a slice.
const TARGET: f64 = 3.0;
/// The group that no operator knows, whose stamps are written by hand.
const BY_HAND: &str = "by-hand";
/// How many requests are under way at a time, by hand.
const AT_ONCE: [usize; 3] = [12, 16, 32];
/// How long nothing must have changed before a run.
const QUIET: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
struct Group {
    namespace: &'static str,
    pods: usize,
    routed: bool,
}

const GROUPS: [Group; 4] = [
    Group { namespace: "small-slice", pods: SMALL, routed: true },
    Group { namespace: "large-slice", pods: LARGE, routed: true },
    Group { namespace: "small-label", pods: SMALL, routed: false },
    Group { namespace: "large-label", pods: LARGE, routed: false },
];

/// How long each change came after the cause, in milliseconds.
struct Seen {
    slice: Option<f64>,
    label: f64,
}

#[derive(Default)]
struct Figures {
    slice: Sample,
    label: Sample,
}

/// Measures this many first handovers in each group.
pub async fn measure(runs: u32, report: &mut Report) -> anyhow::Result<Value> {
    let world = World::start("large").await?;
    for group in GROUPS {
        populate(&world, group.namespace, group.pods).await?;
    }
    populate(&world, BY_HAND, LARGE).await?;
    let mut observer = Observer::of_slices(&world.another_client().await).await?;
    let mut operator = world.operator();
    operator.acts().await;
    let mut firsts = Vec::new();
    for group in GROUPS {
        await_ready(&mut observer, group).await?;
        let first = elect(&world, &mut observer, group).await?;
        eprintln!("large: {}: the first leader ever after {}", group.namespace, first.words());
        firsts.push(first);
        settle(&mut observer, group).await?;
    }
    let mut all = GROUPS.map(|_| Figures::default());
    for run in 0..runs {
        operator.stop().await;
        operator = world.operator();
        for (group, figures) in GROUPS.iter().zip(&mut all) {
            let leader = settle(&mut observer, *group).await?;
            operator.sees_leader(group.namespace, APP, &leader).await;
            let seen = fail(&world, &mut observer, *group, &leader).await?;
            figures.slice.extend(seen.slice);
            figures.label.push(seen.label);
            eprintln!("large: run {run}, {}: {}, load {}", group.namespace, seen.words(), machine::load()?);
        }
    }
    let mut by_hand = Vec::new();
    for at_once in AT_ONCE {
        observer.quiet(QUIET).await?;
        let took = stamp(&world.operators_client().await?, at_once).await?;
        eprintln!("large: {} writes by hand, {at_once} at a time: {took:.0} ms", LARGE - 1);
        by_hand.push((at_once, took));
    }
    drop::<Operator>(operator);
    Ok(tell(&all, &firsts, &by_hand, report))
}

fn tell(all: &[Figures; 4], firsts: &[Seen], by_hand: &[(usize, f64)], report: &mut Report) -> Value {
    let mut told = json!({});
    for ((group, figures), first) in GROUPS.iter().zip(all).zip(firsts) {
        let name = group.namespace;
        if let Some(slice) = first.slice {
            report.figure(format!("{name}: from the election's creation to the slice"), slice, "ms");
            report.figure(format!("{name}: to the slice, p50"), figures.slice.median(), "ms");
            report.figure(format!("{name}: to the slice, longest"), figures.slice.greatest(), "ms");
        }
        report.figure(format!("{name}: from the election's creation to the label"), first.label, "ms");
        report.figure(format!("{name}: to the label, p50"), figures.label.median(), "ms");
        report.figure(format!("{name}: to the label, longest"), figures.label.greatest(), "ms");
        told[name] = json!({
            "slice": figures.slice.to_json(), "label": figures.label.to_json(),
            "first": {"slice": first.slice, "label": first.label},
        });
    }
    let [small, large, ..] = all;
    let (small, large) = (small.slice.median(), large.slice.median());
    report.target("first handover by slice, 500 pods / 3 pods: p50", large / small, "", TARGET);
    for (at_once, took) in by_hand {
        report.figure(format!("{} stamps by hand, {at_once} at a time", LARGE - 1), *took, "ms");
    }
    let least = by_hand.iter().map(|(_, took)| *took).fold(f64::INFINITY, f64::min);
    report.figure("first handover by label, 500 pods / its stamps by hand: p50", all[3].label.median() / least, "");
    told["byHand"] = json!(by_hand);
    told
}

impl Seen {
    fn words(&self) -> String {
        let slice = self.slice.map(|slice| format!("slice {slice:.1} ms, ")).unwrap_or_default();
        format!("{slice}label {:.1} ms", self.label)
    }
}

async fn populate(world: &World, namespace: &str, pods: usize) -> anyhow::Result<()> {
    world.namespace(namespace).await?;
    let made = stream::iter(0..pods).map(|number| async move {
        // By name, the first ones are eligible first.
        world.pod(namespace, &format!("{APP}-{number:03}"), APP, number).await.map(drop)
    });
    made.buffer_unordered(16).try_collect().await
}

/// Creates the election, and watches until it is led.
async fn elect(world: &World, observer: &mut Observer, group: Group) -> anyhow::Result<Seen> {
    if group.routed {
        let services: Api<Service> = Api::namespaced(world.client.clone(), group.namespace);
        let service = json!({"metadata": {"name": SERVICE}, "spec": {"ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    }
    let mut election = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
        "metadata": {"name": APP, "namespace": group.namespace}, "spec": {"selector": {"matchLabels": {"app": APP}}},
    });
    if group.routed {
        election["spec"]["service"] = json!({"name": SERVICE});
    }
    let start = Instant::now();
    let (applied, seen) = tokio::join!(async { world.apply(&election) }, watch(observer, group, "", Some(start)));
    applied?;
    seen
}

/// Makes the leader not ready, watches until another pod leads, and makes it ready again.
async fn fail(world: &World, observer: &mut Observer, group: Group, leader: &str) -> anyhow::Result<Seen> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), group.namespace);
    let (asked, seen) = tokio::join!(set_ready(&pods, leader, false), watch(observer, group, leader, None));
    asked?;
    set_ready(&pods, leader, true).await?;
    seen
}

/// Watches a handover. Without a `start`, it counts from when the leader is seen to be not ready.
async fn watch(observer: &mut Observer, group: Group, leader: &str, start: Option<Instant>) -> anyhow::Result<Seen> {
    let (mut cause, mut slice, mut label) = (start, None, None);
    let here = |id: &(String, String)| id.0 == group.namespace;
    let all = |at: Instant, sight: &Sight| {
        match sight {
            Sight::Pod(id, Some(pod)) if here(id) && id.1 == leader && !pod.ready => _ = cause.get_or_insert(at),
            Sight::Pod(id, Some(pod)) if here(id) && id.1 != leader && pod.role.as_deref() == Some("leader") => {
                _ = label.get_or_insert(at);
            }
            Sight::Slice(id, Some(named)) if here(id) && named != leader => _ = slice.get_or_insert(at),
            _ => {}
        }
        let (cause, label) = (cause?, label?);
        let since = |at: Instant| at.saturating_duration_since(cause).as_secs_f64() * 1000.0;
        (!group.routed || slice.is_some()).then(|| Seen { slice: slice.map(since), label: since(label) })
    };
    observer.find("the next leader", PATIENCE, all).await
}

async fn await_ready(observer: &mut Observer, group: Group) -> anyhow::Result<()> {
    until(observer, group, |pods| pods.len() == group.pods && pods.iter().all(|(_, pod)| pod.ready)).await
}

/// Waits until all pods are labelled. Returns the leader.
async fn settle(observer: &mut Observer, group: Group) -> anyhow::Result<String> {
    let with = |pods: &[(&str, &PodSight)], role: &str| {
        pods.iter().filter(|(_, pod)| pod.ready && pod.role.as_deref() == Some(role)).count()
    };
    let settled = |pods: &[(&str, &PodSight)]| with(pods, "leader") == 1 && with(pods, "follower") + 1 == group.pods;
    until(observer, group, settled).await?;
    observer.quiet(QUIET).await?;
    let leads = |pod: &&(&str, &PodSight)| pod.1.role.as_deref() == Some("leader");
    Ok(pods(observer, group).iter().find(leads).context("one leads")?.0.to_owned())
}

/// It is looked only when nothing changes any more, for there are many pods.
async fn until(
    observer: &mut Observer,
    group: Group,
    holds: impl Fn(&[(&str, &PodSight)]) -> bool,
) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds(&pods(observer, group)) {
        anyhow::ensure!(Instant::now() < end, "{} does not settle", group.namespace);
        observer.quiet(QUIET).await?;
    }
    Ok(())
}

fn pods(observer: &Observer, group: Group) -> Vec<(&str, &PodSight)> {
    let here = observer.pods.iter().filter(|((namespace, _), _)| namespace == group.namespace);
    here.map(|((_, name), pod)| (name.as_str(), pod)).collect()
}

/// Writes to all pods but one of a group that no operator knows, so many at a time. Returns the milliseconds.
async fn stamp(client: &Client, at_once: usize) -> anyhow::Result<f64> {
    let api: Api<Pod> = Api::namespaced(client.clone(), BY_HAND);
    let pods = api.list(&ListParams::default()).await?.items;
    let start = Instant::now();
    let writes = stream::iter(pods.into_iter().skip(1)).map(|pod| {
        let api = api.clone();
        async move {
            let patch = json!({"metadata": {
                "uid": pod.uid(), "resourceVersion": pod.resource_version(), "labels": {"role": "follower"},
                "annotations": {"lictor.dev/term": format!("{at_once}"), "lictor.dev/election": "web"},
            }});
            api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        }
    });
    writes.buffer_unordered(at_once).try_collect::<()>().await?;
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

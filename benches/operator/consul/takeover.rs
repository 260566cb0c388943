//! The end of all operators in the leader's cluster: how long until another cluster's pod leads.

use std::time::{Duration, Instant};

use anyhow::Context;
use lictor_testing::kubernetes::Operator;
use serde_json::{Value, json};

use super::Consul;
use super::cli::Contenders;
use crate::figures::{Report, Sample};
use crate::observer::{Observer, Sight};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(90);
pub const CLUSTERS: [&str; 2] = ["west", "east"];
const APP: &str = "web";
const PODS: usize = 2;
const TTL: u32 = 10;
const LOCK_DELAY: u32 = 1;
/// The time that the operator may add to TTL × 2 + lock delay, at which Consul gives the lock away at the latest.
const AFTER_LIMIT: f64 = 0.5;

/// Times after the signal.
struct TakeOver {
    /// The former leader lost its label. Absent after SIGKILL.
    demoted: Option<f64>,
    /// Consul ended the session, or released the lock.
    free: f64,
    led: f64,
}

/// Measures this many take-overs of each kind, beside those of `consul lock`.
pub async fn measure(consul: &Consul, terminations: u32, kills: u32, report: &mut Report) -> anyhow::Result<Value> {
    let world = World::start("consul-takeover").await?;
    for cluster in CLUSTERS {
        world.namespace(cluster).await?;
        for number in 0..PODS {
            world.pod(cluster, &format!("{APP}-{number}"), APP, number).await?;
        }
        let spec =
            json!({"controller": controller(cluster), "keyTemplate": "takeover/{name}", "keyPattern": "takeover/*"});
        let sessions = json!({"ttlSeconds": TTL, "lockDelaySeconds": LOCK_DELAY});
        consul.class(&world, cluster, &spec, &json!({"sessions": sessions, "whenOperatorStops": "Release"}))?;
    }
    let mut observer =
        Observer::with_key(&world.another_client().await, false, Some((consul.api(), format!("takeover/{APP}"))))
            .await?;
    let mut operators = CLUSTERS.map(|cluster| vec![operator(&world, cluster)]);
    for cluster in CLUSTERS {
        world.elect(cluster, APP, Some(cluster)).await?;
        if cluster == CLUSTERS[0] {
            let leads = |observer: &Observer| leader(observer) == Some(0);
            observer.until("the first cluster leads", PATIENCE, leads).await?;
        }
    }
    let mut contenders = Contenders::start(consul).await?;
    let limit = f64::from(TTL * 2 + LOCK_DELAY);
    let mut all = serde_json::Map::new();
    for (signal, times, replicas) in [("TERM", terminations, 1), ("KILL", kills, 2)] {
        for (at, cluster) in CLUSTERS.iter().enumerate() {
            while operators[at].len() < replicas {
                operators[at].push(operator(&world, cluster));
            }
        }
        let (mut led, mut after_free, mut demoted, mut other) = <[Sample; 4]>::default().into();
        for _ in 0..times {
            let from = settle(&mut observer, &operators).await?;
            let lictor = take_over(&mut observer, &operators[from], from, signal);
            // Measurements of milliseconds run one after the other, long ones at the same time.
            let (seen, by_lock) = if signal == "TERM" {
                (lictor.await?, contenders.end(signal).await?)
            } else {
                let (seen, by_lock) = tokio::join!(lictor, contenders.end(signal));
                (seen?, by_lock?)
            };
            eprintln!(
                "consul-takeover: SIG{signal}: free after {:.3} s, the other cluster leads after {:.3} s; consul lock: {:.3} s",
                seen.free,
                seen.led,
                by_lock.as_secs_f64()
            );
            led.push(seen.led);
            after_free.push(seen.led - seen.free);
            demoted.push(seen.demoted.unwrap_or(f64::NAN));
            other.push(by_lock.as_secs_f64());
            operators[from] = (0..replicas).map(|_| operator(&world, CLUSTERS[from])).collect();
        }
        if times > 0 {
            let what = format!("all operators' SIG{signal}");
            let (scale, unit) = if signal == "TERM" { (1000.0, "ms") } else { (1.0, "s") };
            report.figure(format!("{what}: the other cluster leads, median"), led.median() * scale, unit);
            let longest = format!("{what}: the other cluster leads, longest");
            if signal == "TERM" {
                report.figure(longest, led.greatest() * scale, unit);
                report.figure(format!("{what}: until nobody leads here, median"), demoted.median() * scale, unit);
            } else {
                report.target(longest, led.greatest(), unit, limit + AFTER_LIMIT);
            }
            report.figure(
                format!("{what}: from the free lock to the label, median"),
                after_free.median() * scale,
                unit,
            );
            report.figure(
                format!("{what}: from the free lock to the label, longest"),
                after_free.greatest() * scale,
                unit,
            );
            report.figure(format!("holder's SIG{signal}: consul lock beside it, median"), other.median() * scale, unit);
            report.figure(
                format!("holder's SIG{signal}: consul lock beside it, longest"),
                other.greatest() * scale,
                unit,
            );
        }
        all.insert(
            signal.to_owned(),
            json!({
                "led": led.to_json(), "demoted": demoted.to_json(), "freeToLed": after_free.to_json(),
                "consulLock": other.to_json(),
            }),
        );
    }
    all.insert("limitSeconds".into(), json!(limit));
    all.insert("sessionOfConsulLock".into(), contenders.session.clone());
    Ok(Value::Object(all))
}

pub fn controller(cluster: &str) -> String {
    format!("bench/{cluster}")
}

pub fn operator(world: &World, cluster: &str) -> Operator {
    let arguments = ["--namespaces", cluster, "--lease-namespace", cluster, "--controller", &controller(cluster)];
    world.operator_with(&arguments)
}

/// Returns the cluster that leads, if everything is in order in each.
fn leader(observer: &Observer) -> Option<usize> {
    let of = |cluster: &str, role: &str| {
        let is = |((namespace, _), pod): &(&(String, String), &crate::observer::PodSight)| {
            namespace == cluster && pod.ready && pod.role.as_deref() == Some(role)
        };
        observer.pods.iter().filter(is).count()
    };
    let leads = |at: usize| {
        let (here, there) = (CLUSTERS[at], CLUSTERS[1 - at]);
        of(here, "leader") == 1 && of(here, "follower") == PODS - 1 && of(there, "leader") == 0
    };
    (0..CLUSTERS.len()).find(|at| leads(*at))
}

/// Waits until each operator is ready, one cluster leads, and the other says so. Returns the leading cluster.
async fn settle(observer: &mut Observer, operators: &[Vec<Operator>; 2]) -> anyhow::Result<usize> {
    for operator in operators.iter().flatten() {
        lictor_testing::kubernetes::eventually("the operator is ready", || async {
            let (status, body) = operator.get("/readyz").await;
            if status == 200 { Ok(()) } else { Err(body) }
        })
        .await;
    }
    let told = |observer: &Observer| {
        let at = leader(observer)?;
        let id = (CLUSTERS[1 - at].to_owned(), APP.to_owned());
        let told = observer.elections.get(&id)?.leader.as_ref()?.cluster_name.as_deref() == Some(CLUSTERS[at]);
        let followers = observer
            .pods
            .iter()
            .filter(|((namespace, _), pod)| namespace == CLUSTERS[1 - at] && pod.role.as_deref() == Some("follower"));
        (told && followers.count() == PODS).then_some(at)
    };
    observer.until("the clusters have settled", PATIENCE, |observer| told(observer).is_some()).await?;
    observer.quiet(Duration::from_secs(1)).await?;
    told(observer).context("the clusters are not settled any more")
}

async fn take_over(
    observer: &mut Observer,
    operators: &[Operator],
    from: usize,
    signal: &str,
) -> anyhow::Result<TakeOver> {
    let start = Instant::now();
    for operator in operators {
        operator.signal(signal);
    }
    let seconds = |at: Instant| at.saturating_duration_since(start).as_secs_f64();
    let (mut demoted, mut free) = (None, None);
    let led = |at: Instant, sight: &Sight| match sight {
        Sight::Key { session: None, .. } => {
            free.get_or_insert(seconds(at));
            None
        }
        Sight::Pod((namespace, _), Some(pod)) => match pod.role.as_deref() {
            Some("follower") if namespace == CLUSTERS[from] => {
                demoted.get_or_insert(seconds(at));
                None
            }
            Some("leader") if namespace == CLUSTERS[1 - from] => Some(seconds(at)),
            _ => None,
        },
        _ => None,
    };
    let led = observer.find("the other cluster leads", PATIENCE, led).await?;
    Ok(TakeOver { demoted, free: free.unwrap_or(led), led })
}

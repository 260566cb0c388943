//! Faults of servers that answer wrongly and of others who write: requests of one verb that are denied, watches that are behind, records
//! that somebody forges, marks that a controller takes off again and again.

use std::sync::Arc;
use std::time::Duration;

use lictor_testing::Prng;
use serde_json::{Value, json};

use crate::faults::{Fault, What, scattered};
use crate::judge::{SHARED, WORKLOAD};
use crate::servers::api::ApiServer;
use crate::servers::link::{Denied, Link};
use crate::users::{ACTIVE, ROLE};
use crate::world::{APPS, CLUSTERS, NAMESPACE, PODS, REPLICAS, World};

/// What an API server denies, with which status, and of which resource; none: of all.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "patch", "update", "delete"];
const STATUSES: [u16; 2] = [403, 429];
const RESOURCES: [Option<&str>; 8] = [
    None,
    None,
    Some("pods"),
    Some("pods"),
    Some("leases"),
    Some("leases"),
    Some("leaderelections"),
    Some("endpointslices"),
];
/// The resources whose watches are behind together.
const BEHIND: [&[&str]; 4] =
    [&["pods"], &["leases"], &["pods", "leases"], &["leaderelections", "switchovers", "nodes"]];
/// How much longer the workloads of another cluster may take to end than they do, if the record says so, in seconds. The group has to
/// have a leader again in time.
const LONGER: u64 = 25;
/// The ways to forge a record.
const FORGERIES: usize = 8;

/// Beside all others, each kind in some of the seeds.
pub fn adversities(prng: &mut Prng, until: u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    for what in [What::Denied, What::Behind, What::Forged, What::Undone] {
        let times = if prng.percent(30) { [1, 3, 8][prng.below(3)] } else { 0 };
        faults.extend(scattered(prng, times, until, &[1_500, 8_000, 30_000], |prng, at, lasts| Fault {
            at,
            lasts,
            what,
            cluster: prng.below(CLUSTERS.len()),
            replica: prng.below(REPLICAS),
            pod: format!("{}-{}", APPS[prng.below(APPS.len())], prng.below(PODS)),
            number: prng.below(100_000),
        }));
    }
    faults
}

/// What a fault is about, for people.
pub fn shown(fault: &Fault) -> String {
    let cluster = CLUSTERS[fault.cluster];
    match fault.what {
        What::Denied => {
            let Denied { verb, status, resource } = denied(fault);
            format!("of {} in {cluster}: {status} to {verb} {}", whom(fault), resource.unwrap_or("everything"))
        }
        What::Behind => format!("of {} in {cluster}, of {:?}", whom(fault), behind(fault)),
        What::Forged => format!("of {:?}", forgery(fault)),
        _ => format!("of {cluster}/{}, of {:?}", app(fault), undone(fault)),
    }
}

/// Begins or ends one.
pub fn apply(fault: &Fault, world: &World, begins: bool) {
    match fault.what {
        What::Denied => {
            let denied = begins.then(|| denied(fault));
            links(fault, world).for_each(|link| link.change(|weather| weather.denied = denied));
        }
        What::Behind => {
            let behind = if begins { behind(fault) } else { &[] };
            links(fault, world).for_each(|link| link.change(|weather| weather.behind = behind));
        }
        What::Forged if begins => forge(fault, world),
        What::Undone => {
            let cluster = &world.clusters[fault.cluster];
            let label = cluster.users.leader_label(app(fault));
            let task = begins.then(|| {
                let pause = Duration::from_millis(1 + u64::try_from(fault.number).unwrap_or(0) % 20);
                tokio::spawn(undo(cluster.api.clone(), app(fault).to_owned(), undone(fault), label, pause))
            });
            cluster.undo(task);
        }
        _ => {}
    }
}

/// Of one replica, or of all of the cluster.
fn links<'a>(fault: &'a Fault, world: &'a World) -> impl Iterator<Item = &'a Arc<Link>> {
    let of = |number: &usize| !is_of_one(fault) || *number == fault.replica;
    let replicas = world.clusters[fault.cluster].replicas.iter().enumerate();
    replicas.filter(move |(number, _)| of(number)).map(|(_, replica)| &replica.to_api)
}

fn is_of_one(fault: &Fault) -> bool {
    fault.number.is_multiple_of(3)
}

fn whom(fault: &Fault) -> String {
    if is_of_one(fault) { format!("o{}", fault.replica) } else { "all".into() }
}

fn denied(fault: &Fault) -> Denied {
    let number = fault.number / 3;
    let resource = RESOURCES[number / STATUSES.len() / VERBS.len() % RESOURCES.len()];
    Denied { status: STATUSES[number % STATUSES.len()], verb: VERBS[number / STATUSES.len() % VERBS.len()], resource }
}

fn behind(fault: &Fault) -> &'static [&'static str] {
    BEHIND[fault.number / 3 % BEHIND.len()]
}

/// The lock whose record is forged, and how.
fn forgery(fault: &Fault) -> (&'static str, usize) {
    let how = fault.number % FORGERIES;
    (if how == 7 { WORKLOAD } else { SHARED }, how)
}

/// Somebody who may write below the prefix in the shared store writes what no cluster has written. The lock stays whose it is.
fn forge(fault: &Fault, world: &World) {
    let (app, how) = forgery(fault);
    let key = format!("services/{NAMESPACE}/{app}/leader");
    if how == 6 {
        let cluster = CLUSTERS[fault.cluster];
        let Some(record) = world.shared.record(&key) else { return };
        let bid = json!({
            "cluster": cluster, "namespace": NAMESPACE, "name": app, "switchover": "nobody", "saw": 1, "eligible": true,
            "record": record,
        });
        return world.shared.put(&format!("{key}/.bid/{cluster}"), bid);
    }
    world.shared.forge(&key, |record| {
        if (fault.number / FORGERIES).is_multiple_of(2) {
            record["termByVersion"] = json!(false);
        }
        let mut scope = record["scope"].clone();
        let mut claim = |selector: Value, labels: Value| {
            scope["selector"]["matchLabels"] = selector;
            scope["leader"]["labels"].clone_from(&labels);
            scope["follower"]["labels"] = labels;
            scope.clone()
        };
        match how {
            0 => record["former"] = json!([claim(json!({"app": "web"}), json!({"tier": "web"}))]),
            1 => record["former"] = json!([claim(json!({"app": "web"}), json!({ROLE.0: ROLE.1}))]),
            2 => record["former"] = json!([claim(json!({"app": SHARED}), json!({"tier": SHARED}))]),
            3 => record["scope"] = claim(json!({"app": "web"}), json!({"tier": "web"})),
            4 => record["former"] = json!([]),
            5 => record["switchover"] = json!({"id": "nobody", "from": "nobody", "to": "somebody"}),
            _ => {
                let obligation = &mut record["drainObligation"];
                if obligation.is_object() {
                    obligation["windDownSeconds"] = json!(LONGER);
                }
            }
        }
    });
}

/// What a controller takes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undone {
    Followers,
    Leader,
    All,
}

fn undone(fault: &Fault) -> Undone {
    [Undone::Followers, Undone::Leader, Undone::All][fault.number % 3]
}

fn app(fault: &Fault) -> &str {
    fault.pod.split('-').next().unwrap_or_default()
}

/// Takes the marks off the pods of an app as soon as it sees them.
async fn undo(api: Arc<ApiServer>, app: String, what: Undone, leads: (&'static str, &'static str), pause: Duration) {
    let strips = |pod: &Value| {
        let shows = |(key, value): (&str, &str)| pod["metadata"]["labels"][key] == value;
        let (leader, follower) = (shows(leads), pod["metadata"]["labels"][ROLE.0] == "follower");
        match what {
            Undone::Followers => follower,
            Undone::Leader => leader,
            Undone::All => leader || follower,
        }
    };
    let mut newest = api.newest();
    loop {
        let _ = newest.borrow_and_update();
        let pods = (0..PODS).map(|pod| format!("{app}-{pod}"));
        let marked = |name: &String| api.get("pods", NAMESPACE, name).is_some_and(|pod| strips(&pod));
        let pods: Vec<String> = pods.filter(marked).collect();
        if pods.is_empty() {
            let _ = newest.changed().await;
            continue;
        }
        tokio::time::sleep(pause).await;
        for name in pods.iter().filter(|name| marked(name)) {
            api.edit("pods", NAMESPACE, name, |pod| {
                if let Some(labels) = pod["metadata"]["labels"].as_object_mut() {
                    labels.retain(|key, _| key != ROLE.0 && key != ACTIVE.0);
                }
            });
        }
    }
}

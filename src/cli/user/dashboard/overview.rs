//! All elections on the page, kept up to date by a watch.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use lictor_api::{LeaderElection, READY};
use lictor_core::{Uid, Version};
use lictor_kubernetes::{Change, WatchFailure};
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch::Sender;
use tokio::time::{Instant, sleep, timeout_at};

use super::operators::Operators;
use super::shared::{About, Shared};
use super::timeline::{handovers, known_since};
use crate::cli::user::list::{Health, health};
use crate::cli::user::reading::{condition, told_of_watch};
use crate::kubernetes::{Namespaces, watch_elections};

/// Changes within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(150);
/// The pause before a broken watch restarts with a list.
const PAUSE: Duration = Duration::from_millis(500);

/// An election in the list. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    namespace: String,
    name: String,
    uid: Option<String>,
    health: Health,
    /// The reason of the condition Ready.
    status: String,
    /// The problem, if there is one.
    message: Option<String>,
    paused: bool,
    term: Option<i64>,
    leader: Option<String>,
    cluster: Option<String>,
    node: Option<String>,
    address: Option<String>,
    /// Since when the leader leads.
    since: Option<i64>,
    candidates: Option<String>,
    class_name: Option<String>,
    /// When each change to another leader was complete, newest first.
    handovers: Vec<i64>,
    /// Since when all changes are known. `None`: since the election was created.
    known_since: Option<i64>,
    created: Option<i64>,
}

/// The known state of all elections.
struct Overview {
    rows: BTreeMap<(String, String), Row>,
    /// Whether a list has ever arrived.
    listed: bool,
    /// Why the elections can't be read at present.
    trouble: Option<String>,
}

type Told = Change<(Version, Uid, LeaderElection)>;

/// Keeps the elections up to date, and publishes each state as JSON.
pub(super) async fn follow(shared: &Shared, publish: Sender<Option<Arc<str>>>) -> Infallible {
    let scope = Namespaces::new(shared.about.namespace.iter().cloned().collect());
    let mut operators = shared.operators.clone();
    let mut overview = Overview { rows: BTreeMap::new(), listed: false, trouble: None };
    loop {
        let mut changes = watch_elections(shared.reader.client(), &scope);
        // A watch that fails is restarted, because a watch that continues after a failure says nothing until something
        // changes. The failure is reported only if the new watch fails, too.
        let mut first = true;
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                Ok(()) = operators.changed(), if overview.listed => {
                    publish.send_replace(Some(overview.told(&shared.about, &operators.borrow_and_update()).into()));
                    continue;
                }
            };
            let Some(change) = change else { break };
            let together = Instant::now() + TOGETHER;
            let mut works = overview.take(change, first, &shared.about);
            while works && let Ok(Some(change)) = timeout_at(together, changes.next()).await {
                works = overview.take(change, false, &shared.about);
            }
            if works || first {
                publish.send_replace(Some(overview.told(&shared.about, &operators.borrow_and_update()).into()));
            }
            first = false;
            if !works {
                break;
            }
        }
        drop(changes);
        sleep(PAUSE).await;
    }
}

impl Overview {
    /// Takes an event of the watch. Returns whether the watch works.
    fn take(&mut self, change: Told, first: bool, about: &About) -> bool {
        match change {
            Change::All(_, _, all) => {
                self.rows = all.into_iter().map(|(_, _, election)| keyed(&election)).collect();
                (self.listed, self.trouble) = (true, None);
            }
            Change::Rewound(_) => self.rows.clear(),
            Change::Resumed(_) => self.trouble = None,
            Change::Applied((_, _, election)) => self.rows.extend([keyed(&election)]),
            Change::Deleted((_, _, election)) => {
                self.rows.remove(&keyed(&election).0);
            }
            Change::Broken(_, failure) => {
                if first {
                    let hint = match (&failure, &about.namespace) {
                        (WatchFailure::Forbidden(_), None) => ". To see one namespace, start it with -n NAME",
                        _ => "",
                    };
                    self.trouble = Some(told_of_watch(failure) + hint);
                }
                return false;
            }
        }
        true
    }

    /// Returns the elections for the page, problems first.
    fn told(&self, about: &About, operators: &Operators) -> String {
        let mut rows: Vec<&Row> = self.rows.values().collect();
        // Elections of equal health stay ordered by name.
        rows.sort_by_key(|row| row.health);
        let mut told = json!({"about": about, "trouble": self.trouble, "operators": operators});
        if self.listed {
            told["elections"] = json!(rows);
        }
        told.to_string()
    }
}

/// Returns an election's row under its namespace and name.
fn keyed(election: &LeaderElection) -> ((String, String), Row) {
    let row = Row::of(election);
    ((row.namespace.clone(), row.name.clone()), row)
}

impl Row {
    /// Returns what the list shows of an election.
    pub(super) fn of(election: &LeaderElection) -> Self {
        let status = election.status.clone().unwrap_or_default();
        let leader = status.leader.unwrap_or_default();
        let (ready, health) = (condition(election, READY), health(election));
        Self {
            namespace: election.namespace().unwrap_or_default(),
            name: election.name_any(),
            uid: election.uid(),
            health,
            status: ready.map_or_else(|| "-".into(), |ready| ready.reason.clone()),
            message: ready.filter(|_| health < Health::Well).map(|ready| ready.message.clone()),
            paused: election.spec.paused,
            term: status.term,
            leader: leader.name.or(leader.session),
            cluster: leader.cluster_name,
            node: leader.node_name,
            address: leader.pod_ip,
            since: leader.acquire_time.map(|time| time.0.as_millisecond()),
            candidates: status.candidates.map(|candidates| candidates.summary),
            class_name: status.class_name,
            handovers: handovers(&status.history),
            known_since: known_since(&status.history),
            created: election.creation_timestamp().map(|time| time.0.as_millisecond()),
        }
    }
}

#[cfg(test)]
mod tests {
    use lictor_core::Failure;
    use serde_json::Value;

    use super::*;

    fn election(name: &str, ready: &str, reason: &str) -> (Version, Uid, LeaderElection) {
        let condition = json!({
            "type": "Ready", "status": ready, "reason": reason, "message": "it is so", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let election = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": name, "namespace": "shop"},
            "spec": {}, "status": {"conditions": [condition]},
        });
        (Version(1), Uid(name.into()), serde_json::from_value(election).unwrap())
    }

    fn shown(overview: &Overview, about: &About) -> (Vec<String>, Value) {
        let told: Value = serde_json::from_str(&overview.told(about, &Operators::default())).unwrap();
        let names = told["elections"].as_array().into_iter().flatten();
        (names.map(|row| row["name"].as_str().unwrap().to_owned()).collect(), told["trouble"].clone())
    }

    #[test]
    fn problems_come_first_and_what_was_known_stays_while_it_can_not_be_read() {
        let about = About::new(None, None, None);
        let mut overview = Overview { rows: BTreeMap::new(), listed: false, trouble: None };
        let forbidden = || {
            Change::Broken(
                None,
                WatchFailure::Forbidden(Failure::Forbidden("not allowed to list leaderelections".into())),
            )
        };
        assert!(!overview.take(forbidden(), true, &about));
        let (names, trouble) = shown(&overview, &about);
        assert_eq!((names.len(), trouble.as_str().unwrap().ends_with("start it with -n NAME")), (0, true), "{trouble}");
        let all =
            vec![election("b", "True", "Led"), election("a", "True", "Led"), election("z", "False", "NoEligiblePod")];
        assert!(overview.take(Change::All(None, Version(1), all), true, &about));
        assert_eq!(shown(&overview, &about), (vec!["z".into(), "a".into(), "b".into()], Value::Null));
        // One break is no trouble: the watch begins anew.
        assert!(!overview.take(forbidden(), false, &about));
        assert_eq!(shown(&overview, &about).1, Value::Null);
        assert!(!overview.take(forbidden(), true, &about));
        let (names, trouble) = shown(&overview, &about);
        assert!(names.len() == 3 && trouble.is_string(), "{names:?} {trouble}");
        assert!(overview.take(Change::Deleted(election("z", "True", "Led")), false, &about));
        assert!(overview.take(Change::Applied(election("b", "False", "NoEligiblePod")), false, &about));
        assert_eq!(shown(&overview, &about).0, ["b", "a"]);
    }
}

//! One election on the page: what `explain` says, its terms, its Switchovers, and what the user may do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lictor_api::{ACCEPTED, BUILT_IN_CLASS, COMPLETE, FAILED, GROUP, LeaderElection, Switchover};
use lictor_core::ZONE_LABEL;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cards::cards;
use super::overview::Row;
use super::shared::Shared;
use super::timeline::{changes, spans};
use crate::cli::user::changes::Changes;
use crate::cli::user::outlook::Sight;
use crate::cli::user::reading::{Right, Seen, Whose, conditions, last_seen};
use crate::cli::user::switchover::said;

/// How long an answer about the user's rights stays valid.
const RIGHTS_FOR: Duration = Duration::from_secs(15);
/// How long Events that were read stay valid.
const EVENTS_FOR: Duration = Duration::from_secs(5);
/// How many Events are shown, newest first.
const EVENTS: usize = 20;
/// How many Switchovers are shown, newest first.
const SWITCHOVERS: usize = 5;
/// How long a Switchover is shown after it has ended, in seconds.
const ENDED_FOR: i64 = 600;

/// An election that a user looks at.
pub(super) struct Look {
    shared: Shared,
    namespace: String,
    name: String,
    /// `None` before the first look.
    changes: Option<Changes>,
    /// The user's rights, and when the API server named them.
    may: Option<(Instant, Value)>,
    /// The Events about it, and when they were read.
    events: Option<(Instant, Seen<Vec<Value>>)>,
    /// The last data that the page was sent.
    told: Option<Arc<str>>,
}

impl Look {
    /// Starts to look at it.
    pub(super) fn at(shared: Shared, namespace: String, name: String) -> Self {
        Self { shared, namespace, name, changes: None, may: None, events: None, told: None }
    }

    /// Returns its state as JSON, immediately or once it has changed.
    pub(super) async fn next(&mut self) -> Arc<str> {
        loop {
            match &mut self.changes {
                Some(changes) => changes.next().await,
                // The watches begin before the first look, so that no change is missed between them.
                None => self.changes = Some(Changes::new(&self.shared.reader, &self.namespace)),
            }
            // Boxed, because the future contains a dozen requests.
            let seen: Arc<str> = Box::pin(self.look()).await.to_string().into();
            if self.told.as_ref() != Some(&seen) {
                self.told = Some(seen.clone());
                return seen;
            }
        }
    }

    async fn look(&mut self) -> Value {
        let may = self.may().await;
        let reader = &self.shared.reader;
        let (sight, switchovers) =
            tokio::join!(Sight::of(reader, &self.namespace, &self.name), reader.switchovers(Some(&self.namespace)));
        let sight = match sight {
            Ok(sight) => sight,
            Err(error) => return json!({"about": *self.shared.about, "trouble": format!("{error:#}")}),
        };
        let mut outlook = sight.outlook();
        let events = self.events(&sight.election).await;
        let events = events.unwrap_or_else(|why| {
            outlook.not_visible.push(format!("the Events: {why}"));
            Vec::new()
        });
        // Without the right to see them, the outlook says so.
        let switchovers = switchovers.unwrap_or_default();
        let history = sight.election.status.as_ref().map(|status| status.history.clone()).unwrap_or_default();
        let mut told = json!(Row::of(&sight.election));
        if outlook.leader.is_none() {
            // T1: the status may be out of date.
            told["leader"] = Value::Null;
        }
        told["outlook"] = json!(outlook);
        told["conditions"] = json!(conditions(&sight.election).collect::<Vec<_>>());
        told["spans"] = json!(spans(&history));
        told["changes"] = json!(changes(&history));
        told["switchovers"] = json!(shown(switchovers, &self.name));
        told["may"] = may;
        told["events"] = json!(events);
        told["cards"] = json!(cards(&sight));
        told["service"] = json!(sight.election.spec.service.as_ref().map(|service| &service.name));
        told["worst"] = json!(sight.election.status.as_ref().and_then(|status| status.worst_case_failover_seconds));
        told["zones"] = json!(zones(&sight));
        told["idle"] = json!(self.idle(&sight.election));
        json!({"about": *self.shared.about, "trouble": null, "election": told})
    }

    /// Returns why no operator acts on the election. `None`: one does, or that is unknown.
    fn idle(&self, election: &LeaderElection) -> Option<String> {
        let class = election.status.as_ref().and_then(|status| status.class_name.as_ref());
        let class = class.or(election.spec.class_name.as_ref()).map_or(BUILT_IN_CLASS, String::as_str);
        self.shared.operators.borrow().idle.get(class).cloned()
    }

    /// Returns the newest Events about the election.
    async fn events(&mut self, election: &LeaderElection) -> Seen<Vec<Value>> {
        if let Some((read, events)) = &self.events
            && read.elapsed() < EVENTS_FOR
        {
            return events.clone();
        }
        let events = self.shared.reader.events(election).await;
        let events = events.map(|all| all.iter().take(EVENTS).map(occurred).collect::<Vec<_>>());
        self.events = Some((Instant::now(), events.clone()));
        events
    }

    /// Asks the API server what the user may do: true, or why not.
    async fn may(&mut self) -> Value {
        if let Some((asked, may)) = &self.may
            && asked.elapsed() < RIGHTS_FOR
        {
            return may.clone();
        }
        let ask = async |verb: &str, resource: &str, what: &str, role: &str| {
            let namespace = self.namespace.as_str();
            let right = Right { namespace: Some(namespace), group: GROUP, resource, name: None, verb };
            match self.shared.reader.is_allowed(&Whose::Own, right).await {
                Ok(true) => json!(true),
                Ok(false) => json!(format!(
                    "You may not {what}: this needs the right to {verb} {resource} in {namespace}, which the \
                     ClusterRole {role} grants."
                )),
                Err(why) => json!(format!("It is unknown whether you may {what}: {why}")),
            }
        };
        let (switchover, pause) = tokio::join!(
            ask("create", "switchovers", "move the leader", "lictor-switchover"),
            ask("patch", "leaderelections", "pause it", "lictor-edit")
        );
        let may = json!({"switchover": switchover, "pause": pause});
        self.may = Some((Instant::now(), may.clone()));
        may
    }
}

fn occurred(event: &Event) -> Value {
    json!({
        "at": last_seen(event).map(Timestamp::as_millisecond), "warning": event.type_.as_deref() == Some("Warning"),
        "reason": event.reason, "note": event.note,
    })
}

/// Returns the zone of each node that has one. `None`: the nodes can't be seen.
fn zones(sight: &Sight) -> Option<BTreeMap<&str, &str>> {
    let nodes = sight.nodes.as_ref().ok()?;
    Some(nodes.iter().filter_map(|(name, node)| Some((name.as_str(), node.labels.get(ZONE_LABEL)?))).collect())
}

/// Returns the election's Switchovers to show: those in progress, and those that ended a short time ago.
fn shown(mut all: Vec<Switchover>, election: &str) -> Vec<Value> {
    let now = Timestamp::now();
    all.retain(|one| {
        let ended = one.status.as_ref().and_then(|status| status.completion_time.as_ref());
        let recently = ended.is_none_or(|ended| now.as_second() - ended.0.as_second() < ENDED_FOR);
        one.spec.election_name == election && recently
    });
    all.sort_by_key(|one| std::cmp::Reverse((one.creation_timestamp(), one.name_any())));
    all.iter().take(SWITCHOVERS).map(told).collect()
}

fn told(one: &Switchover) -> Value {
    let holds = |type_| said(one, type_).filter(|condition| condition.status == "True");
    let (state, condition) = match (holds(COMPLETE), holds(FAILED), said(one, ACCEPTED)) {
        (Some(complete), ..) => ("Complete", Some(complete)),
        (_, Some(failed), _) => ("Failed", Some(failed)),
        (_, _, Some(accepted)) if accepted.status == "True" => ("Begun", Some(accepted)),
        (_, _, accepted) => ("Waiting", accepted),
    };
    let status = one.status.as_ref();
    let to = status.and_then(|status| status.to.as_ref()).map(|to| &to.pod_name).or(one.spec.to_pod_name.as_ref());
    let message = condition.map(|condition| &condition.message).filter(|message| !message.is_empty());
    json!({"name": one.name_any(), "state": state, "message": message, "to": to})
}

//! What a class's status says of its store.

use lictor_core::Timestamp;

use super::settings::Trouble;
use crate::api::{ConsulStatus, ElectionClass, ElectionClassStatus, READY, SessionNode, condition, unknown};
use crate::controller::class_status::complete;
use crate::store::Sessions;

/// What went wrong with a store last, each by itself.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) settings: Option<Trouble>,
    pub(crate) check: Option<Result<lictor_consul::Agent, lictor_consul::Error>>,
    pub(crate) sessions: Option<Trouble>,
    pub(crate) watch: Option<String>,
}

impl Report {
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        if let Some(Trouble { reason, message }) = &self.settings {
            return Some(Trouble { reason, message: message.clone() });
        }
        if let Some(Err(error)) = &self.check {
            let reason = match error {
                lictor_consul::Error::Unreachable(_) | lictor_consul::Error::Unknown(_) => "NoAnswer",
                lictor_consul::Error::Forbidden(_) => "Forbidden",
                lictor_consul::Error::UnknownToken(_) => "TokenUnknown",
                lictor_consul::Error::Busy(_) => "Busy",
                lictor_consul::Error::NoLeader(_) => "NoLeader",
                lictor_consul::Error::NoNode(_) | lictor_consul::Error::Refused(_) => "Refused",
            };
            return Some(Trouble { reason, message: error.to_string() });
        }
        let watch = || Some(Trouble { reason: "WatchFails", message: self.watch.clone()? });
        self.sessions.clone().or_else(watch)
    }
}

/// What the class's status tells, if that has changed. `store`: on which node its sessions are, and which they are.
pub(crate) fn class_status(
    class: &ElectionClass,
    report: &Report,
    store: Option<(&SessionNode, &Sessions)>,
    wall: Timestamp,
) -> Option<ElectionClassStatus> {
    let before = class.status.clone().unwrap_or_default();
    let asked = report.check.is_some() || report.settings.is_some();
    // What was said stays until more is known.
    if !asked && before.conditions.iter().any(|old| old.type_ == READY) {
        return None;
    }
    let generation = class.metadata.generation.unwrap_or_default();
    let ready = match report.trouble() {
        Some(Trouble { reason, message }) => condition(READY, false, reason, message, generation),
        None if !asked => unknown(READY, "NotAskedYet", "Consul has not answered yet", generation),
        None => condition(READY, true, "Answers", "Consul answers, and the sessions are kept", generation),
    };
    let mut status = ElectionClassStatus {
        observed_generation: Some(generation),
        conditions: complete(ready, &before.conditions, wall),
        ..before.clone()
    };
    if let (Some(Ok(agent)), Some((node, sessions))) = (&report.check, store) {
        let sessions = sessions.ids.iter().flatten().cloned().collect();
        let node_name = match node {
            SessionNode::Own(node) => Some(node.clone()),
            SessionNode::Agent => agent.node.clone(),
        };
        let version = agent.version.clone().unwrap_or_else(|| "unknown".into());
        status.consul = Some(ConsulStatus { version, node_name, sessions });
    }
    (status != before).then_some(status)
}

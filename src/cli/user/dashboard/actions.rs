//! The actions on the page: move the leader, pause, resume. Like the commands of these names, with the user's
//! own rights.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::ResourceExt;
use lictor_api::SwitchoverSpec;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::shared::Shared;
use crate::cli::user::pause::may_be_undone;
use crate::cli::user::switchover::named;

/// For how long the old leader ranks last among the eligible pods, in seconds; the default of the command.
const HOLD: u32 = 300;

/// An action that the user asks for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Move {
    /// The term that the user saw. If it is over, the leadership does not move.
    from_term: i64,
    /// `None`: the next pod in the order.
    to_pod_name: Option<String>,
    /// Whether the pod may lead even if it is not ready, lacks a condition or is on a cordoned node.
    #[serde(default)]
    force: bool,
    /// When to begin. `None`: at once.
    #[serde(default)]
    not_before_time: Option<String>,
    /// How long the Switchover may wait, in seconds. `None`: it does not wait.
    #[serde(default)]
    deadline_seconds: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Freeze {
    paused: bool,
    /// The uid of the election that the user saw, because another election may have its name by now.
    uid: String,
}

/// The target of an action: the token, the namespace, the election's name.
type Place = Path<(String, String, String)>;

/// Creates a Switchover.
pub(super) async fn switch(State(shared): State<Shared>, Path((_, namespace, name)): Place, body: Bytes) -> Response {
    answer(async {
        let Move { from_term, to_pod_name, force, not_before_time, deadline_seconds } = read(&body)?;
        let spec = SwitchoverSpec {
            election_name: name,
            to_pod_name,
            to_cluster_name: None,
            from_term,
            not_before_time,
            deadline_seconds,
            force,
            hold_seconds: HOLD,
            ttl_seconds_after_finished: None,
            requested_by: None,
        };
        let created = shared.reader.create_switchover(&namespace, &named(&shared.reader, spec).await).await?;
        Ok(format!("The Switchover {} was created. The page shows its progress.", created.name_any()))
    })
    .await
}

/// Sets `spec.paused`.
pub(super) async fn pause(State(shared): State<Shared>, Path((_, namespace, name)): Place, body: Bytes) -> Response {
    answer(async {
        let Freeze { paused, uid } = read(&body)?;
        let (election, managers) = shared.reader.election_and_managers(&namespace, &name).await?;
        if election.uid().as_ref() != Some(&uid) {
            anyhow::bail!("{namespace}/{name} was deleted and created again meanwhile: close this, and open it again");
        }
        shared.reader.set_paused(&election, paused).await?;
        let done = if paused { "The election is paused." } else { "The election is resumed." };
        let warning = may_be_undone(&managers).map(|warning| format!(" But {warning}.")).unwrap_or_default();
        Ok(format!("{done}{warning}"))
    })
    .await
}

fn read<T: DeserializeOwned>(body: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).map_err(|error| anyhow::anyhow!("the request can't be read: {error}"))
}

async fn answer(work: impl Future<Output = anyhow::Result<String>>) -> Response {
    let (status, told) = match work.await {
        Ok(done) => (StatusCode::OK, json!({"done": done})),
        Err(error) => (StatusCode::BAD_REQUEST, json!({"error": format!("{error:#}")})),
    };
    (status, [(header::CONTENT_TYPE, "application/json")], told.to_string()).into_response()
}

//! What the page can do: ask for another leader, pause, resume. With the user's own rights, as the commands of these names.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::ResourceExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::shared::Shared;
use crate::api::SwitchoverSpec;
use crate::cli::user::pause::may_be_undone;
use crate::cli::user::switchover::named;

/// How long the old leader comes last among the eligible pods, in seconds; the default of the command.
const HOLD: u32 = 300;

/// What is asked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Move {
    /// The term that the user saw. If it is over, nothing is moved.
    from_term: i64,
    /// None: the next one in the order.
    to_pod: Option<String>,
    /// Whether the pod may lead although it is not ready, or its node is cordoned.
    #[serde(default)]
    force: bool,
    /// When to begin. None: at once.
    #[serde(default)]
    not_before_time: Option<String>,
    /// How long it may wait, in seconds. None: it does not wait.
    #[serde(default)]
    deadline_seconds: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Freeze {
    paused: bool,
    /// The election that the user saw: another one may have its name by now.
    uid: String,
}

/// Where an action is asked for: the token, the namespace, the election's name.
type Place = Path<(String, String, String)>;

/// Creates a Switchover.
pub(super) async fn switch(State(shared): State<Shared>, Path((_, namespace, name)): Place, body: Bytes) -> Response {
    answer(async {
        let Move { from_term, to_pod, force, not_before_time, deadline_seconds } = read(&body)?;
        let spec = SwitchoverSpec {
            election_name: name,
            to_pod,
            to_cluster: None,
            from_term,
            not_before_time,
            deadline_seconds,
            force,
            hold_seconds: HOLD,
            ttl_seconds_after_finished: None,
            requested_by: None,
        };
        let created = shared.reader.create_switchover(&namespace, &named(&shared.reader, spec).await).await?;
        Ok(format!("The Switchover {} was created. The page shows what comes of it.", created.name_any()))
    })
    .await
}

/// Sets `spec.paused`.
pub(super) async fn pause(State(shared): State<Shared>, Path((_, namespace, name)): Place, body: Bytes) -> Response {
    answer(async {
        let Freeze { paused, uid } = read(&body)?;
        let (election, managers) = shared.reader.election_and_managers(&namespace, &name).await?;
        if election.uid().as_ref() != Some(&uid) {
            anyhow::bail!("{namespace}/{name} was deleted and made again meanwhile: close this, and look at it again");
        }
        shared.reader.set_paused(&election, paused).await?;
        let done = if paused { "It is paused." } else { "It is resumed." };
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

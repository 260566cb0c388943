//! Logging in at Consul by an auth method, with the service account's token.

use std::path::Path;

use lictor_consul::{Connect, Settings};
use tokio::time::Instant;

use super::settings::Trouble;

/// A token from a login.
pub(crate) struct Login {
    pub(crate) at: Instant,
    pub(crate) secret: String,
    pub(crate) renew: Option<Instant>,
}

pub(crate) async fn log_in(
    class: &str,
    connect: &Connect,
    settings: &Settings,
    method: &str,
    path: &Path,
) -> Result<Login, Trouble> {
    let trouble = |reason, message| Trouble { reason, message };
    let bearer = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("the service account's token {} can't be read: {error}", path.display());
        trouble("NoServiceAccountToken", message)
    })?;
    let client = connect(settings).map_err(|error| trouble("InvalidSettings", error.to_string()))?;
    let login = client
        .login(method, bearer.trim())
        .await
        .map_err(|error| trouble("LoginFails", format!("can't log in by the auth method {method}: {error}")))?;
    let renew = login.lifetime.map(|lifetime| Instant::now() + lifetime * 2 / 3);
    tracing::info!(class, method, "logged in at Consul");
    Ok(Login { at: Instant::now(), secret: login.secret, renew })
}

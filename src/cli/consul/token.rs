//! The token for Consul in a file that may be replaced while the program runs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use lictor_consul::Client;
use lictor_process::{NAP, nap};

/// Reads a token from a file.
///
/// # Errors
/// If there is no token.
pub(super) fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("can't read the token for Consul from {}", path.display()))?;
    let token = text.trim();
    anyhow::ensure!(!token.is_empty(), "the file with the token for Consul, {}, is empty", path.display());
    Ok(token.to_owned())
}

/// Reads the file about once a second, and gives the client each new token. `known` is the client's present token. A
/// file that is empty, or missing for a moment, changes nothing.
pub(super) async fn follow_token(client: Client, path: PathBuf, mut known: String) {
    let mut problem = None;
    loop {
        nap(NAP).await;
        let token = read_token(&path).and_then(|token| {
            if token != known {
                client.set_token(Some(&token)).context("the token for Consul can't be used")?;
                tracing::info!("the token for Consul has changed");
            }
            Ok(token)
        });
        match token {
            Ok(token) => (known, problem) = (token, None),
            Err(error) => {
                let error = format!("{error:#}");
                if problem.as_ref() != Some(&error) {
                    tracing::warn!(error, "the old token for Consul stays in use");
                    problem = Some(error);
                }
            }
        }
    }
}

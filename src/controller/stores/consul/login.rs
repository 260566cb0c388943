//! Login at Consul by an auth method, with the service account's token.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lictor_consul::{Connect, Settings};
use serde::Deserialize;
use tokio::time::Instant;

use crate::controller::stores::class_store::Trouble;

/// A token that Consul issued at a login.
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
    check_audience(bearer.trim())
        .map_err(|message| trouble("TokenForApiServer", format!("{}: {message}", path.display())))?;
    let client = connect(settings).map_err(|error| trouble("InvalidSettings", error.to_string()))?;
    let login = client
        .login(method, bearer.trim())
        .await
        .map_err(|error| trouble("LoginFails", format!("can't log in by the auth method {method}: {error}")))?;
    let renew = login.lifetime.map(|lifetime| Instant::now() + lifetime * 2 / 3);
    tracing::info!(class, method, "logged in at Consul");
    Ok(Login { at: Instant::now(), secret: login.secret, renew })
}

/// The claims of a token.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    iss: String,
    #[serde(default)]
    aud: Audiences,
}

/// The audience of a token.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

/// Refuses a token that the API server would accept, because its holder would have all rights of the operator. The API server accepts
/// tokens without an audience, and tokens for its own audience, which is its issuer unless the administrator chose others.
fn check_audience(token: &str) -> Result<(), String> {
    const MOUNT: &str =
        "mount a projected token with an audience of its own, for example by the chart's value consulLogin.audience";
    let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Option<Claims> = payload.and_then(|payload| serde_json::from_slice(&payload).ok());
    let Some(Claims { iss, aud }) = claims else {
        return Err(format!("this is not a service account's token: {MOUNT}"));
    };
    let audiences = match aud {
        Audiences::One(one) => vec![one],
        Audiences::Several(several) => several,
    };
    let servers = |audience: &String| {
        *audience == iss || ["kubernetes.default.svc", "kubernetes.default"].iter().any(|name| audience.contains(name))
    };
    if audiences.is_empty() || audiences.iter().any(servers) {
        return Err(format!("with this token, Consul could act as lictor at the API server: {MOUNT}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn token(claims: &Value) -> String {
        format!("e30.{}.signature", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn a_token_that_the_api_server_accepts_is_not_sent() {
        let issuer = "https://kubernetes.default.svc.cluster.local";
        for audiences in [json!(["consul"]), json!("consul"), json!(["consul", "https://consul.example"])] {
            assert_eq!(check_audience(&token(&json!({"iss": issuer, "aud": audiences}))), Ok(()));
        }
        for claims in [
            json!({"iss": issuer, "aud": [issuer]}),
            json!({"iss": issuer, "aud": ["consul", issuer]}),
            json!({"iss": "https://oidc.example/id/1", "aud": ["https://oidc.example/id/1"]}),
            json!({"iss": "https://oidc.example/id/1", "aud": ["https://kubernetes.default.svc"]}),
            // A token from a Secret.
            json!({"iss": "kubernetes/serviceaccount"}),
        ] {
            assert!(check_audience(&token(&claims)).unwrap_err().contains("at the API server"), "{claims}");
        }
        assert!(check_audience("nonsense").unwrap_err().contains("not a service account"));
    }
}

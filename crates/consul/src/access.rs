//! Tokens, logins and logouts.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::client::{Request, Token, token_header};
use super::error::Purpose;
use super::{Client, Error};

/// A token from a login.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The token itself.
    pub secret: String,
    /// The token's name for people and logs.
    pub accessor: String,
    /// How long the token is valid, from when the request was sent. `None` means until it is revoked. The lifetime is the difference of
    /// two timestamps of the same server, so clocks are not compared.
    pub lifetime: Option<Duration>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("accessor", &self.accessor)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct RawToken {
    #[serde(rename = "SecretID")]
    secret: String,
    #[serde(rename = "AccessorID")]
    accessor: String,
    #[serde(rename = "CreateTime")]
    created: Option<String>,
    #[serde(rename = "ExpirationTime")]
    expires: Option<String>,
}

impl From<RawToken> for Login {
    fn from(raw: RawToken) -> Self {
        let RawToken { secret, accessor, created, expires } = raw;
        let time = |text: Option<String>| text?.parse::<Timestamp>().ok();
        let lifetime = time(created).zip(time(expires));
        let lifetime = lifetime.map(|(created, expires)| Duration::try_from(expires - created).unwrap_or_default());
        Self { secret, accessor, lifetime }
    }
}

impl Client {
    /// Logs in with an identity that an auth method accepts, such as the token of a pod's service account, and returns a Consul
    /// token. This client keeps its present token until [`set_token`](Self::set_token) is called.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure. A lost answer leaves a token behind until it expires.
    pub async fn login(&self, auth_method: &str, bearer: &str) -> Result<Login, Error> {
        let purpose = Purpose::new(
            format!("log in to Consul by the auth method {auth_method}"),
            format!("a binding rule of {auth_method} that matches this identity"),
        );
        let body = json!({"AuthMethod": auth_method, "BearerToken": bearer.trim()});
        let request = Request::post(["acl", "login"], purpose).token(Token::None).body(&body);
        Ok(self.send(request).await?.json::<RawToken>()?.into())
    }

    /// Revokes a token from a login. A token that no longer exists counts as revoked.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn logout(&self, token: &str) -> Result<(), Error> {
        let purpose = Purpose::new("log out from Consul", "no rule: only a token from a login can be revoked");
        let request = Request::post(["acl", "logout"], purpose)
            .token(Token::Other(token_header(token)?))
            .expecting(&[StatusCode::FORBIDDEN]);
        let answer = self.send(request).await?;
        match answer.status {
            StatusCode::FORBIDDEN => match answer.refused() {
                Error::UnknownToken(_) => Ok(()),
                error => Err(error),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(times: &str) -> Login {
        let json = format!(r#"{{"AccessorID":"a","SecretID":"s","Local":true,"CreateIndex":1{times}}}"#);
        serde_json::from_str::<RawToken>(&json).unwrap().into()
    }

    #[test]
    fn a_lifetime_is_counted_by_the_servers_clock_alone() {
        let times = r#","CreateTime":"2020-01-01T10:00:00.5+02:00","ExpirationTime":"2020-01-01T08:10:00.5Z""#;
        assert_eq!(login(times).lifetime, Some(Duration::from_secs(600)));
        assert_eq!(login(r#","CreateTime":"2020-01-01T10:00:00Z""#).lifetime, None);
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", login("")), "Login { accessor: \"a\", lifetime: None, .. }");
    }
}

//! The connection to Consul, and the sending of requests.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{Method, StatusCode, Url};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::error::{Error, Purpose};
use super::settings::{Settings, SettingsError};
use super::transport::{Http, Received, Sent, Transport};

/// A function that creates a client from settings.
pub type Connect = Arc<dyn Fn(&Settings) -> Result<Client, SettingsError> + Send + Sync>;

/// A client of one Consul cluster. Clones are cheap, and share connections and the token.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    transport: Arc<dyn Transport>,
    /// The address of Consul, as it was given, for the text of errors.
    address: String,
    base: Url,
    /// The query parameters `dc`, `ns` and `partition`.
    scope: Vec<(&'static str, String)>,
    token: RwLock<Option<HeaderValue>>,
    /// The number of requests whose token Consul did not know.
    rejections: watch::Sender<u64>,
    timeout: Duration,
}

impl Client {
    /// Creates a client without a token, which connects when the first request is sent. The program must have installed a cryptography
    /// provider for rustls.
    ///
    /// # Errors
    /// If a setting is not valid.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let mut base = base_of(settings)?;
        let http = Http::new(settings, &mut base)?;
        Ok(Self::over(settings, base, Arc::new(http)))
    }

    /// Creates a client with another transport than HTTP, for simulations.
    ///
    /// # Errors
    /// If the address is not valid.
    pub fn simulated(settings: &Settings, transport: Arc<dyn Transport>) -> Result<Self, SettingsError> {
        Ok(Self::over(settings, base_of(settings)?, transport))
    }

    fn over(settings: &Settings, base: Url, transport: Arc<dyn Transport>) -> Self {
        let scope = [("dc", &settings.datacenter), ("ns", &settings.namespace), ("partition", &settings.partition)];
        let scope = scope.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        let (rejections, _) = watch::channel(0);
        let (address, timeout) = (settings.address.trim().trim_end_matches('/').to_owned(), settings.timeout);
        let shared = Shared { transport, address, base, scope, token: RwLock::default(), rejections, timeout };
        Self { shared: Arc::new(shared) }
    }

    /// Sets the token for all later requests of all clones. `None` means Consul's anonymous token.
    ///
    /// # Errors
    /// If the token contains characters that a token can't have.
    pub fn set_token(&self, token: Option<&str>) -> Result<(), Error> {
        let token = token.map(token_header).transpose()?;
        *self.shared.token.write().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    /// Returns a counter that changes whenever Consul does not know the token of a request, so that the program can log in again.
    /// The answer to a request that was sent before the last login may also change it.
    pub fn rejections(&self) -> watch::Receiver<u64> {
        self.shared.rejections.subscribe()
    }

    /// Returns the time limit of each request.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// Returns the setting for `ns` or `partition`, which only Consul Enterprise has.
    pub(super) fn scope(&self, name: &str) -> Option<&str> {
        self.shared.scope.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Sends a request, and reads the whole answer.
    pub(super) async fn send(&self, request: Request<'_>) -> Result<Answer, Error> {
        let Request { method, path, query, body, token, timeout, expected, purpose } = request;
        let mut url = self.shared.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().push("v1").extend(path);
        }
        for (name, value) in query {
            url.query_pairs_mut().append_pair(name, &value);
        }
        if !self.shared.scope.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.shared.scope);
        }
        let own = matches!(token, Token::Own);
        let token = match token {
            Token::Own => self.shared.token.read().unwrap_or_else(PoisonError::into_inner).clone(),
            Token::None => None,
            Token::Other(token) => Some(token),
        };
        let sent = Sent { method, url, token, body, timeout };
        let received = self.shared.transport.send(sent).await;
        let received = received.map_err(|broken| purpose.broken(&self.shared.address, &broken))?;
        let Received { status, index, body } = received;
        let answer = Answer { status, index, body, purpose };
        if status.is_success() || expected.contains(&status) {
            return Ok(answer);
        }
        let error = answer.refused();
        if own && matches!(error, Error::UnknownToken(_)) {
            self.shared.rejections.send_modify(|rejections| *rejections += 1);
        }
        Err(error)
    }
}

/// A request.
pub(super) struct Request<'a> {
    method: Method,
    /// The path below `/v1`, not percent-encoded.
    path: Vec<&'a str>,
    query: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
    token: Token,
    timeout: Option<Duration>,
    /// The statuses that are accepted besides success.
    expected: &'static [StatusCode],
    purpose: Purpose,
}

/// The token of a request.
pub(super) enum Token {
    Own,
    None,
    Other(HeaderValue),
}

impl<'a> Request<'a> {
    pub(super) fn get(path: impl IntoIterator<Item = &'a str>, purpose: Purpose) -> Self {
        Self::new(Method::GET, path, purpose)
    }

    pub(super) fn put(path: impl IntoIterator<Item = &'a str>, purpose: Purpose) -> Self {
        Self::new(Method::PUT, path, purpose)
    }

    pub(super) fn post(path: impl IntoIterator<Item = &'a str>, purpose: Purpose) -> Self {
        Self::new(Method::POST, path, purpose)
    }

    fn new(method: Method, path: impl IntoIterator<Item = &'a str>, purpose: Purpose) -> Self {
        let path = path.into_iter().collect();
        Self { method, path, query: vec![], body: None, token: Token::Own, timeout: None, expected: &[], purpose }
    }

    pub(super) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Lets the Consul leader answer after it has made sure that it still leads.
    pub(super) fn consistent(self) -> Self {
        self.query("consistent", "")
    }

    pub(super) fn body(mut self, body: &serde_json::Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self
    }

    pub(super) fn token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }

    pub(super) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn expecting(mut self, expected: &'static [StatusCode]) -> Self {
        self.expected = expected;
        self
    }
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The index for a blocking query.
    index: Option<u64>,
    body: Vec<u8>,
    pub(super) purpose: Purpose,
}

impl Answer {
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| self.purpose.garbled(&error.to_string(), &self.body))
    }

    /// Checks the answer to a change, which must be `true`.
    pub(super) fn done(&self) -> Result<(), Error> {
        if self.json::<bool>()? { Ok(()) } else { Err(self.refused()) }
    }

    /// Returns the index, which Consul sends with each list and each missing key. An answer without it does not come from Consul.
    pub(super) fn index(&self) -> Result<u64, Error> {
        self.index.ok_or_else(|| self.purpose.garbled("no X-Consul-Index", &self.body))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the error for an unexpected answer.
    pub(super) fn refused(&self) -> Error {
        self.purpose.refused(self.status, &self.body)
    }
}

/// Returns the header for a token.
pub(super) fn token_header(token: &str) -> Result<HeaderValue, Error> {
    let mut header = HeaderValue::from_str(token.trim())
        .map_err(|_| Error::Refused("the token for Consul has characters that no token has".into()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Returns the server's address, which has no path, query or password.
fn base_of(settings: &Settings) -> Result<Url, SettingsError> {
    let wrong = || SettingsError::Address(settings.address.clone());
    let base = Url::parse(settings.address.trim()).map_err(|_| wrong())?;
    let plain = matches!(base.path(), "" | "/") && base.query().is_none() && base.username().is_empty();
    if matches!(base.scheme(), "http" | "https") && base.has_host() && plain { Ok(base) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Settings)) -> SettingsError {
        let mut settings = Settings::new("https://127.0.0.1:8501");
        change(&mut settings);
        Client::new(&settings).err().unwrap()
    }

    #[test]
    fn wrong_addresses_are_refused() {
        for address in
            ["", "consul:8500", "ftp://consul", "unix:///run/consul.sock", "http://consul:8500/v1", "http://a@b"]
        {
            assert_eq!(refused(|s| s.address = address.into()), SettingsError::Address(address.into()), "{address}");
        }
    }

    #[test]
    fn wrong_certificates_are_refused() {
        assert!(matches!(refused(|s| s.ca = Some(b"no PEM".to_vec())), SettingsError::Ca(_)));
        assert!(matches!(refused(|s| s.identity = Some((vec![], vec![]))), SettingsError::Identity(_)));
    }

    #[test]
    fn a_server_name_is_a_name() {
        for name in ["", "10.0.0.1", "a b"] {
            assert_eq!(
                refused(|s| s.server_name = Some(name.into())),
                SettingsError::ServerName(name.into()),
                "{name}"
            );
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        assert!(!format!("{:?}", token_header("secret").unwrap()).contains("secret"));
        assert!(token_header("two\nlines").is_err());
    }
}

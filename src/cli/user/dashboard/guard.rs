//! The check of each request to the page: its client has to know the address that the command printed, and to be the page itself.
//!
//! Every user of this machine can connect to the port, and so can every page in the user's browser. The token in the
//! path keeps both out. The check of Host keeps out pages whose name resolves to 127.0.0.1 (DNS rebinding), and the
//! check of Origin requests from other pages.

use anyhow::anyhow;
use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;

/// The requirements on a request.
pub(super) struct Guard {
    port: u16,
    token: String,
}

impl Guard {
    /// Creates it with a new token of 256 random bits.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn new(port: u16) -> anyhow::Result<Self> {
        Ok(Self { port, token: random()? })
    }

    /// Returns the address of the page.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Checks a request.
    ///
    /// # Errors
    /// Returns why the request is refused.
    pub(super) fn check(&self, request: &Request) -> Result<(), &'static str> {
        let host = header(request.headers(), &HOST).filter(|host| self.is_own(host));
        let host = host.ok_or("this program answers as 127.0.0.1 and localhost only, at its own port\n")?;
        // A browser names the requesting page in each request that may change something, and in each request from
        // another page's script.
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        let is_own_page = match (request.headers().contains_key(ORIGIN), reads) {
            (true, _) => header(request.headers(), &ORIGIN).is_some_and(|origin| origin == format!("http://{host}")),
            (false, reads) => reads,
        };
        if !is_own_page {
            return Err("other pages may not use this one\n");
        }
        let token = request.uri().path().split('/').nth(1).unwrap_or_default();
        if bool::from(token.as_bytes().ct_eq(self.token.as_bytes())) {
            Ok(())
        } else {
            Err("the token in this address is missing or wrong: open the address that `lictor dashboard` printed\n")
        }
    }

    fn is_own(&self, host: &str) -> bool {
        ["127.0.0.1", "localhost"].iter().any(|name| {
            let rest = host.strip_prefix(name);
            // A browser omits HTTP's default port.
            rest.is_some_and(|rest| rest == format!(":{}", self.port) || rest.is_empty() && self.port == 80)
        })
    }
}

/// Returns 256 random bits as text for addresses and names of files.
///
/// # Errors
/// If the system has no random numbers.
pub(super) fn random() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| anyhow!("the system has no random numbers for a token"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns the value of a header that occurs once.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn check(guard: &Guard, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<(), &'static str> {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        guard.check(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn only_the_page_itself_and_whoever_knows_the_address_may_ask() {
        let guard = Guard::new(8001).unwrap();
        let token = &guard.token;
        let (own, other) = (format!("/{token}/live"), format!("/{}/live", Guard::new(8001).unwrap().token));
        let host = ("host", "127.0.0.1:8001");
        for (method, path, headers, says) in [
            ("GET", &own, &[host][..], None),
            ("GET", &own, &[("host", "localhost:8001")], None),
            ("GET", &own, &[host, ("origin", "http://127.0.0.1:8001")], None),
            ("POST", &own, &[host, ("origin", "http://127.0.0.1:8001")], None),
            // The token.
            ("GET", &other, &[host], Some("token")),
            ("GET", &"/live".to_owned(), &[host], Some("token")),
            ("GET", &"/".to_owned(), &[host], Some("token")),
            ("GET", &format!("/{}/live", &token[1..]), &[host], Some("token")),
            ("GET", &format!("//{token}/live"), &[host], Some("token")),
            // Another name that leads here, or another port.
            ("GET", &own, &[("host", "attacker.example:8001")], Some("127.0.0.1 and localhost only")),
            ("GET", &own, &[("host", "127.0.0.1:8002")], Some("127.0.0.1 and localhost only")),
            ("GET", &own, &[("host", "127.0.0.1")], Some("127.0.0.1 and localhost only")),
            ("GET", &own, &[("host", "127.0.0.1.attacker.example:8001")], Some("127.0.0.1 and localhost only")),
            ("GET", &own, &[], Some("127.0.0.1 and localhost only")),
            ("GET", &own, &[host, ("host", "attacker.example")], Some("127.0.0.1 and localhost only")),
            // Another page.
            ("POST", &own, &[host], Some("other pages")),
            ("DELETE", &own, &[host], Some("other pages")),
            ("GET", &own, &[host, ("origin", "http://attacker.example")], Some("other pages")),
            ("POST", &own, &[host, ("origin", "null")], Some("other pages")),
            ("POST", &own, &[host, ("origin", "http://localhost:8001")], Some("other pages")),
            ("POST", &own, &[host, ("origin", "https://127.0.0.1:8001")], Some("other pages")),
        ] {
            let refused = check(&guard, method, path, headers).err();
            let as_expected = match (refused, says) {
                (None, None) => true,
                (Some(refused), Some(says)) => refused.contains(says),
                _ => false,
            };
            assert!(as_expected, "{method} {path} {headers:?}: {refused:?}");
        }
    }

    #[test]
    fn a_token_is_long_and_new_each_time() {
        let tokens: std::collections::BTreeSet<_> = (0..100).map(|_| random().unwrap()).collect();
        assert!(tokens.len() == 100 && tokens.iter().all(|token| token.len() == 43), "{tokens:?}");
    }
}

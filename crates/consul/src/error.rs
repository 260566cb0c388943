//! The meaning of a failed request: whether it may have been carried out, and what a person should do.
//!
//! Consul passes errors on as text, so this tells them apart by their text (`agent/structs/errors.go`, `acl/errors.go`).

use reqwest::StatusCode;

use super::Broken;

/// Why a request failed. Only after [`Unknown`](Self::Unknown) may it have been carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client had no connection, so it sent nothing.
    #[error("{0}")]
    Unreachable(String),
    /// The token lacks a right.
    #[error("{0}")]
    Forbidden(String),
    /// Consul does not know the token, or no longer knows it. The program has to log in again.
    #[error("{0}")]
    UnknownToken(String),
    /// There are too many requests or connections. Try again later.
    #[error("{0}")]
    Busy(String),
    /// Consul has no leader at present, or can't reach it. Try again later.
    #[error("{0}")]
    NoLeader(String),
    /// The node of a session is not registered.
    #[error("{0}")]
    NoNode(String),
    /// Consul, or something in front of it, refused the request.
    #[error("{0}")]
    Refused(String),
    /// The server may have carried out the request, or may still do so.
    #[error("{0}")]
    Unknown(String),
}

impl Error {
    /// Returns whether the request may have been carried out, or may still be.
    pub fn may_be_done(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

/// The purpose of a request, for the text of errors.
#[derive(Clone, Debug)]
pub(super) struct Purpose {
    /// The action of the request, for example "read the key a/b".
    pub(super) what: String,
    /// The rule that a policy needs for it, for example `key_prefix "a/b" { policy = "read" }`.
    pub(super) rule: String,
}

impl Purpose {
    pub(super) fn new(what: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { what: what.into(), rule: rule.into() }
    }

    /// Returns the error for a request without a complete answer. `consul` is the address that it was sent to.
    pub(super) fn broken(&self, consul: &str, broken: &Broken) -> Error {
        let what = &self.what;
        match broken {
            Broken::Unsendable(text) => Error::Refused(format!("can't {what}: {text}")),
            Broken::Unreachable(text) => {
                Error::Unreachable(format!("can't {what}: Consul at {consul} can't be reached: {text}"))
            }
            Broken::Late(text) => {
                Error::Unknown(format!("can't {what}: no answer from Consul at {consul} in time: {text}"))
            }
            Broken::Unanswered(text) => {
                Error::Unknown(format!("can't {what}: the connection to Consul at {consul} broke: {text}"))
            }
        }
    }

    /// Returns the error for an answer that is not a success.
    pub(super) fn refused(&self, status: StatusCode, body: &[u8]) -> Error {
        let body = excerpt(body);
        let text = if body.is_empty() {
            format!("can't {}: Consul answered {status}", self.what)
        } else {
            format!("can't {}: Consul answered {}: {body}", self.what, status.as_u16())
        };
        let says = |words: &[&str]| words.iter().any(|word| body.contains(word));
        match status.as_u16() {
            401 | 403 if says(&["ACL not found"]) => {
                Error::UnknownToken(format!("{text}; the token is unknown to Consul, or was revoked, or has expired"))
            }
            401 | 403 => self.forbidden(&body),
            429 => Error::Busy(format!("{text}; too many requests or connections from this address")),
            300..=399 => Error::Refused(format!("{text}; is this the address of Consul's HTTP API?")),
            500 if says(NO_LEADER) => Error::NoLeader(text),
            500 if says(&["Missing node registration"]) => Error::NoNode(text),
            500 if says(NOT_APPLIED) => Error::Refused(text),
            400..=499 => Error::Refused(text),
            _ => Error::Unknown(text),
        }
    }

    /// Returns the error for a token that lacks a right.
    pub(super) fn forbidden(&self, says: &str) -> Error {
        Error::Forbidden(format!("not allowed to {}: {says}; give the token a policy with {}", self.what, self.rule))
    }

    /// Returns the error for a success that can't be understood. The request may have been carried out.
    pub(super) fn garbled(&self, what: &str, body: &[u8]) -> Error {
        Error::Unknown(format!(
            "can't {}: this is not what Consul answers ({what}): {}; is this the address of its HTTP API?",
            self.what,
            excerpt(body)
        ))
    }
}

/// Errors before anything is proposed to the other servers (`canRetry` in `agent/consul/rpc.go`), so nothing was changed.
const NO_LEADER: &[&str] = &[
    "No cluster leader",
    "Raft leader not found in server lookup mapping",
    "Not ready to serve consistent reads",
    "No known Consul servers",
    "No path to datacenter",
    "Remote DC has no server currently reachable",
];

/// Errors about arguments, which one server or all servers refuse, so nothing was changed.
const NOT_APPLIED: &[&str] = &[
    "Invalid Session TTL",
    "Session TTL '",
    "Invalid Behavior setting",
    "Must provide ",
    "Missing check '",
    "is in critical state",
    "ACL support disabled",
    "unknown KV verb",
];

/// Returns the beginning of a body, on one line.
fn excerpt(body: &[u8]) -> String {
    const MOST: usize = 300;
    let text = String::from_utf8_lossy(&body[..body.len().min(MOST)]);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if body.len() > MOST { format!("{line}…") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> Error {
        let purpose = Purpose::new("lock the key a", "key_prefix \"a\" { policy = \"write\" }");
        purpose.refused(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    fn is_unknown(status: u16, body: &str) -> bool {
        refused(status, body).may_be_done()
    }

    #[test]
    fn a_missing_right_is_named() {
        let body = "Permission denied: token with AccessorID 'x' lacks permission 'key:write' on \"a\"";
        let Error::Forbidden(text) = refused(403, body) else { panic!("not forbidden") };
        assert_eq!(
            text,
            "not allowed to lock the key a: Permission denied: token with AccessorID 'x' lacks permission 'key:write' on \
             \"a\"; give the token a policy with key_prefix \"a\" { policy = \"write\" }"
        );
    }

    #[test]
    fn who_could_not_be_reached_is_named() {
        let purpose = Purpose::new("lock the key a", "");
        let why = || "so it is".to_owned();
        for broken in [Broken::Unreachable(why()), Broken::Late(why()), Broken::Unanswered(why())] {
            let text = purpose.broken("http://consul.example:8500", &broken).to_string();
            assert!(text.contains("Consul at http://consul.example:8500 ") && text.ends_with(": so it is"), "{text}");
        }
    }

    #[test]
    fn an_unknown_token_is_told_from_a_missing_right() {
        assert!(matches!(refused(403, "rpc error making call: ACL not found"), Error::UnknownToken(_)));
        assert!(matches!(refused(403, "Permission denied"), Error::Forbidden(_)));
    }

    #[test]
    fn without_a_leader_nothing_was_done() {
        assert!(matches!(refused(500, "No cluster leader"), Error::NoLeader(_)));
        assert!(matches!(refused(500, "rpc error making call: No cluster leader"), Error::NoLeader(_)));
        assert!(!is_unknown(500, "No known Consul servers"));
    }

    #[test]
    fn whatever_may_have_been_proposed_is_unknown() {
        assert!(is_unknown(500, "leadership lost while committing log"));
        assert!(is_unknown(500, "rpc error making call: EOF"));
        assert!(is_unknown(500, ""));
        assert!(is_unknown(502, "Bad Gateway"));
        assert!(is_unknown(503, "rate limit reached"));
        assert!(is_unknown(504, ""));
    }

    #[test]
    fn what_was_refused_was_not_done() {
        for (status, body) in [
            (400, "Failed to parse body"),
            (404, "404 page not found"),
            (413, "Transaction contains too many operations (129 > 128)"),
            (429, ""),
            (301, ""),
            (500, "Invalid Session TTL '5000000000', must be between [10s=24h0m0s]"),
        ] {
            assert!(!is_unknown(status, body), "{status} {body}");
        }
        assert!(matches!(refused(429, ""), Error::Busy(_)));
        assert!(matches!(refused(500, "Missing node registration"), Error::NoNode(_)));
    }

    #[test]
    fn a_long_answer_is_cut() {
        let page = "<html>\n".repeat(1000);
        assert!(refused(502, &page).to_string().len() < 450);
    }
}

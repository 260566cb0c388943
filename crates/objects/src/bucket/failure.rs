//! What a failed request means. Statuses and codes decide, never the wording of a message.

use std::error::Error;

use object_store::client::HttpError;
use reqwest::StatusCode;

use super::service::Answered;
use crate::Failure;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// There is no object of this name.
    Missing(String),
    /// There is no such bucket.
    NoBucket(String),
    /// The condition of a write did not hold, or another write of the object was under way.
    Conflict(String),
    /// The account lacks a right, or is unknown.
    Forbidden(String),
    /// The store refused the request.
    Refused(String),
    /// There was no connection, so nothing was sent.
    Unreachable(String),
    /// The request may have been carried out.
    Unknown(String),
}

impl Cause {
    /// The store did not say which version of the object this is.
    pub(super) fn unnamed() -> Self {
        Self::Unknown("the answer has no ETag or generation".into())
    }

    /// Returns the failure for whoever asked for `what`. `right` is the right that an account needs.
    pub(super) fn failure(self, what: &str, right: &str) -> Failure {
        match self {
            Self::Forbidden(text) => {
                Failure::Forbidden(format!("not allowed to {what}: {text}; the account needs {right}"))
            }
            Self::NoBucket(text) => Failure::Refused(format!("can't {what}: there is no such bucket: {text}")),
            Self::Unreachable(text) => Failure::Refused(format!("can't {what}: the store can't be reached: {text}")),
            Self::Missing(text) | Self::Conflict(text) | Self::Refused(text) => {
                Failure::Refused(format!("can't {what}: {text}"))
            }
            Self::Unknown(text) => Failure::Unknown(format!("can't {what}: {text}")),
        }
    }

    fn of_answer(answered: &Answered) -> Self {
        let text = answered.to_string();
        match answered.status {
            // Of S3, Google Cloud Storage and Azure. No other 404 says that there is no object: it may be about the account, or come from
            // another server.
            StatusCode::NOT_FOUND => match answered.code.as_deref() {
                Some("NoSuchKey" | "BlobNotFound") => Self::Missing(text),
                Some("NoSuchBucket" | "ContainerNotFound") => Self::NoBucket(text),
                _ => Self::Refused(text),
            },
            // S3's 409 (ConditionalRequestConflict) says that another write was under way, and that this one was not carried out.
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => Self::Conflict(text),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Forbidden(text),
            StatusCode::NOT_IMPLEMENTED => Self::Refused(text),
            status if status.is_redirection() => {
                Self::Refused(format!("{text}; are the region and the endpoint those of the bucket?"))
            }
            StatusCode::REQUEST_TIMEOUT => Self::Unknown(text),
            status if status.is_client_error() => Self::Refused(text),
            _ => Self::Unknown(text),
        }
    }

    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut texts: Vec<String> = Vec::new();
        let mut source: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(cause) = source {
            if let Some(answered) = cause.downcast_ref::<Answered>() {
                return Self::of_answer(answered);
            }
            if let Some(broken) = cause.downcast_ref::<reqwest::Error>() {
                let text = innermost(broken);
                return if broken.is_connect() { Self::Unreachable(text) } else { Self::Unknown(text) };
            }
            let text = cause.to_string();
            if texts.last().is_none_or(|last| !last.contains(&text)) {
                texts.push(text);
            }
            source = cause.source();
        }
        Self::Unknown(texts.join(": "))
    }
}

impl From<object_store::Error> for Cause {
    fn from(error: object_store::Error) -> Self {
        Self::of(&error)
    }
}

impl From<HttpError> for Cause {
    fn from(error: HttpError) -> Self {
        Self::of(&error)
    }
}

/// Returns the text of the innermost cause, because the outer ones only say that there was an error.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use object_store::client::{HttpError, HttpErrorKind};

    use super::*;

    fn answer(status: u16, body: &str) -> Cause {
        let answered = Answered::new(StatusCode::from_u16(status).unwrap(), body.as_bytes(), None);
        let source = Box::new(HttpError::new(HttpErrorKind::Unknown, answered));
        object_store::Error::Generic { store: "test", source }.into()
    }

    #[test]
    fn what_an_answer_means() {
        let code =
            |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
        assert!(matches!(answer(404, &code("NoSuchKey")), Cause::Missing(_)));
        assert!(matches!(answer(404, &code("BlobNotFound")), Cause::Missing(_)));
        // versitygw does not know the account.
        assert!(matches!(answer(404, &code("XAdminUserNotFound")), Cause::Refused(_)));
        assert!(matches!(answer(404, "<html>no such page"), Cause::Refused(_)));
        assert!(matches!(answer(404, &code("NoSuchBucket")), Cause::NoBucket(_)));
        assert!(matches!(answer(404, &code("ContainerNotFound")), Cause::NoBucket(_)));
        assert!(matches!(answer(412, &code("PreconditionFailed")), Cause::Conflict(_)));
        assert!(matches!(answer(409, &code("ConditionalRequestConflict")), Cause::Conflict(_)));
        assert!(matches!(answer(409, &code("BlobAlreadyExists")), Cause::Conflict(_)));
        for status in [401, 403] {
            assert!(matches!(answer(status, &code("AccessDenied")), Cause::Forbidden(_)), "{status}");
        }
        for status in [301, 307, 400, 405, 413, 429, 501] {
            assert!(matches!(answer(status, ""), Cause::Refused(_)), "{status}");
        }
        for status in [408, 500, 502, 503, 504] {
            assert!(matches!(answer(status, ""), Cause::Unknown(_)), "{status}");
        }
    }

    #[test]
    fn what_has_no_known_cause_may_have_been_done() {
        let error = object_store::Error::Generic { store: "test", source: "something else".into() };
        assert!(matches!(Cause::from(error), Cause::Unknown(_)));
    }
}

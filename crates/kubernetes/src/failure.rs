//! The meaning of an error of the API server: whether the request may have been carried out, and what a person should do.

use std::time::Duration;

use lictor_core::Failure;

/// The end of a message about a right that the operator does not have.
pub const GRANT_TO_OPERATOR: &str = "; grant it to the operator's service account";

/// Returns the text of a failure, with another account than the operator's to grant a missing right to.
pub fn granting(text: &str, grant: &str) -> String {
    text.strip_suffix(GRANT_TO_OPERATOR).map_or_else(|| text.to_owned(), |text| format!("{text}{grant}"))
}

/// Runs a request with a time limit. An answer after the limit counts as lost.
///
/// # Errors
/// Returns the errors of the request, and an error of its own after the limit.
pub async fn within<T>(limit: Duration, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(limit, request).await {
        Ok(result) => result,
        Err(elapsed) => Err(kube::Error::Service(format!("no answer within {limit:?} ({elapsed})").into())),
    }
}

/// Returns the meaning of a failed request. `verb` and `resource` are the names that RBAC uses.
pub fn failure(verb: &str, resource: &str, error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::Unknown(format!("can't {verb} {resource}: {}", chain(error)));
    };
    // Admission control refuses with the same status a request that the account has the right to make.
    let admission = ["denied request", "denied the request"].iter().any(|words| status.message.contains(words));
    if status.is_forbidden() && !admission {
        return Failure::Forbidden(format!("not allowed to {verb} {resource}: {}{GRANT_TO_OPERATOR}", said(status)));
    }
    let text = format!("can't {verb} {resource}: {}", said(status));
    match status.code {
        // An overloaded server says nothing about the request itself. The caller reads the present state, and tries again.
        408 | 429 => Failure::Unknown(text),
        // The API server did not carry out the request.
        400..=499 => Failure::Refused(text),
        _ => Failure::Unknown(text),
    }
}

/// Returns the text of a refusal, but never a proxy's whole page. The text is empty if something else was parsed as a refusal,
/// for example a watch event that can't be understood.
fn said(status: &kube::core::Status) -> String {
    const MOST: usize = 1000;
    let words = [status.message.as_str(), status.reason.as_str()].map(str::trim);
    let words = words.into_iter().find(|text| !text.is_empty()).unwrap_or("the answer can't be understood");
    words.chars().take(MOST).collect()
}

/// Returns the outcome of a patch that has the object's version as its precondition.
///
/// # Errors
/// Returns `None` if the object has changed meanwhile or is gone, otherwise why it could not be written.
pub fn patched<K>(resource: &str, result: kube::Result<K>) -> Result<K, Option<Failure>> {
    match result {
        Ok(object) => Ok(object),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Err(None),
        Err(error) => Err(Some(failure("patch", resource, &error))),
    }
}

/// Why a watch does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchFailure {
    /// This operator does not have the right.
    Forbidden(Failure),
    /// The cluster does not know the resource: its CRD is not installed.
    Unknown(Failure),
    /// Any other reason.
    Other(Failure),
}

impl From<WatchFailure> for Failure {
    fn from(failure: WatchFailure) -> Self {
        match failure {
            WatchFailure::Forbidden(failure) | WatchFailure::Unknown(failure) | WatchFailure::Other(failure) => failure,
        }
    }
}

/// Returns the meaning of a broken watch, or of its list.
pub fn watch_failure(verb: &str, resource: &str, error: &kube::Error) -> WatchFailure {
    if let kube::Error::Api(status) = error
        // `is_not_found()` does not work here: if the whole group is unknown, the answer is plain text without a reason.
        && status.code == 404
    {
        return WatchFailure::Unknown(Failure::Refused(format!(
            "the cluster does not know {resource}: install the CRDs with `lictor crd | kubectl apply -f -`"
        )));
    }
    let forbidden = matches!(error, kube::Error::Api(status) if status.is_forbidden());
    let failure = failure(verb, resource, error);
    if forbidden { WatchFailure::Forbidden(failure) } else { WatchFailure::Other(failure) }
}

/// The failure of a request that breaks off by a panic.
pub fn defect() -> Failure {
    Failure::Unknown("a defect of lictor, which its log shows as a panic: please report it".into())
}

/// Returns the text of an error with its causes, because the outermost one often says only "client error".
fn chain(error: &kube::Error) -> String {
    // kube's own word before the error of a service says nothing to a person.
    let error: &dyn std::error::Error = match error {
        kube::Error::Service(error) => error.as_ref(),
        error => error,
    };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

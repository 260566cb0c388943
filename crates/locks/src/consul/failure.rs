//! Failures at Consul, as the core sees them.

use lictor_consul::{Error, OpError};
use lictor_core::Failure;

/// Returns the core's failure for a failed request.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Unknown(text) => Failure::Unknown(text),
        Error::Forbidden(text) => Failure::Forbidden(text),
        not_done => Failure::Refused(not_done.to_string()),
    }
}

/// Returns the failure for operations that Consul refuses.
pub fn refused(what: &str, errors: &[OpError]) -> Failure {
    let said: Vec<&str> = errors.iter().map(|error| error.what.as_str()).collect();
    Failure::Refused(format!("Consul refuses {what}: {}", said.join("; ")))
}

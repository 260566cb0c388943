//! What every client of the API server needs here: [`changes`] lists and watches, and never loses the list's version. [`failure`] says
//! whether a failed request may have been carried out, and what a person should do. [`election_of`] recognises the Lease of an election.

mod election_lease;
mod failure;
mod list_watch;

pub use election_lease::{ELECTION_LABEL, LICTOR, MANAGED_BY, RECORD_ANNOTATION, election_of, stored};
pub use failure::{GRANT_TO_OPERATOR, WatchFailure, defect, failure, granting, patched, watch_failure, within};
pub use list_watch::{Change, LARGE_PAGE, Page, Pages, changes, changes_in_pages, list_at};

use kube::ResourceExt;

use lictor_core::Version;

/// Returns an object's version, or zero if the server gave none.
pub fn version_of(object: &impl ResourceExt) -> Version {
    Version(object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default())
}

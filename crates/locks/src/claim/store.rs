//! The port to a store that keeps one claim: a record that is read, and written only if it has not changed.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use lictor_core::{ClaimParameters, Failure, Uid, Version};
use lictor_process::{monotonic, nap_until};

use super::holder::Holder;
use crate::lock::Other;

/// The shortest and the longest time from one look at an object to the next. Each look costs a request. An agent that yields stays away for
/// five seconds by default, in which the others have to look.
const POLL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));

/// The record of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    /// The version of the record. A later one is higher.
    pub(crate) version: Version,
    /// The holder, or the owner of a record that this process must not write.
    pub(crate) holder: Option<String>,
    /// How long the claim lasts without a renewal; of a released one: [`lictor_core::Claim::released`].
    pub(crate) duration: Duration,
    /// The holder, if it is a replica that has described itself.
    pub(crate) replica: Option<Holder>,
    /// The holder for people, if it is known.
    pub(crate) told: Option<Other>,
    /// The owner of a record that this process must not write.
    pub(crate) owner: Option<String>,
    /// The uid of the record's object in Kubernetes.
    pub(crate) installation: Option<Uid>,
}

/// News of a record.
pub(crate) enum News {
    /// The record, or `None` if there is none, as of a version.
    Seen(Version, Option<Claimed>),
    /// The record may have changed, or may be back at an earlier state.
    Uncertain,
    /// No news can be had at present.
    Broken(Failure),
    /// Nothing tells of changes, and it is time to read the record, unless this process holds the claim.
    Due,
}

/// A write in the name of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// The version that is replaced, or `None` if there must be no record yet.
    pub(crate) expected: Option<Version>,
    /// Whether this write changes the holder.
    pub(crate) takes_over: bool,
    /// How long the write may take.
    pub(crate) limit: Duration,
}

/// Why a record was not written, as far as is known.
pub(crate) enum Unwritten {
    /// There is another version.
    Conflict,
    /// Any other reason.
    Failed(Failure),
}

/// Keeps the record of one claim.
pub(crate) trait ClaimStore: Send + Sync {
    /// What the record is kept in, for people.
    const KIND: &'static str;

    /// The record's name, for people.
    fn name(&self) -> &str;

    /// Returns the news of the record from now on.
    fn news(&self) -> BoxStream<'_, News>;

    /// Reads the record within a time limit: `None` if there is none.
    fn read(&self, limit: Duration) -> impl Future<Output = Result<Option<Claimed>, Failure>> + Send;

    /// Writes the record, and returns what the store has now.
    fn write(&self, write: Write) -> impl Future<Output = Result<Claimed, Unwritten>> + Send;

    /// Writes that no process holds the claim, in place of a version, within a time limit. `lasts` is the duration of a released claim.
    fn release(
        &self,
        version: Version,
        lasts: Duration,
        limit: Duration,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Returns the news of a record of which nothing tells, so that it is polled. Its holder needs no poll, because its next renewal fails if the
/// record has changed. `duration` is how long the claim lasts without a renewal.
pub(crate) fn polls(duration: Duration) -> BoxStream<'static, News> {
    let poll = ClaimParameters::patient(duration).retry().clamp(POLL.0, POLL.1);
    unfold((), move |()| async move {
        nap_until(monotonic() + poll).await;
        Some((News::Due, ()))
    })
    .boxed()
}

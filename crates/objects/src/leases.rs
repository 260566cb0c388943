//! Objects that the store itself leases to one holder at a time, as Azure Blob Storage does.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::{Failure, Tag};

/// The metadata of an object, by their names in small letters.
pub type Metadata = BTreeMap<String, String>;

/// One object that the store leases to one holder at a time. The store's clock ends the lease. The holder proves itself by the lease's id, a
/// GUID of its own choice.
pub trait Leases: Send + Sync {
    /// Reads the object: `None` if there is none. With an id, `None` unless the lease has this id and has not ended.
    fn look<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<Option<Leased>, Failure>>;

    /// Creates the object without content, unless there is one.
    fn create(&self) -> BoxFuture<'_, Result<(), Failure>>;

    /// Asks for a change of the lease, and returns whether it was made. `false` means that the lease belongs to somebody else, or that there
    /// is none, or no object.
    fn lease<'a>(&'a self, action: Action<'a>) -> BoxFuture<'a, Result<bool, Failure>>;

    /// Replaces all metadata, if the lease has this id and has not ended, and the object is unchanged since it had this tag. Returns whether
    /// that was so. A change of the lease leaves the tag as it is.
    fn mark<'a>(
        &'a self,
        id: &'a str,
        expected: &'a Tag,
        metadata: &'a Metadata,
    ) -> BoxFuture<'a, Result<bool, Failure>>;
}

/// An object with a lease, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The state of the lease.
    pub state: LeaseState,
    /// The version of content and metadata.
    pub tag: Tag,
    /// The metadata.
    pub metadata: Metadata,
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// There was no lease, or its holder has released it.
    Available,
    /// A holder has it.
    Leased,
    /// Its holder has not renewed it in time.
    Expired,
    /// Somebody has ended it before its time. Its holder still has it for a while, and can't renew it.
    Breaking,
    /// Somebody has ended it before its time, and that is over.
    Broken,
}

impl LeaseState {
    /// Returns whether anybody can acquire the lease.
    pub fn is_free(self) -> bool {
        matches!(self, Self::Available | Self::Expired | Self::Broken)
    }
}

/// A change of a lease. Ids are GUIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Acquire a free lease under this id. It lasts for this long, in whole seconds, after each renewal.
    Acquire {
        /// The id.
        id: &'a str,
        /// From 15 to 60 seconds.
        duration: Duration,
    },
    /// Renew the lease, even if it has expired, unless somebody else has had it since.
    Renew {
        /// The id.
        id: &'a str,
    },
    /// Give another id to a lease that has not ended.
    Change {
        /// The id that it has.
        from: &'a str,
        /// The id that it gets.
        to: &'a str,
    },
    /// Release the lease.
    Release {
        /// The id.
        id: &'a str,
    },
}

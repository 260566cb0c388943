//! Stores of small objects, each of which can be replaced only if it has not changed.
//!
//! | part | what it is |
//! |---|---|
//! | [`Objects`] | the port: read, list, and a write that the store refuses if the object is not as expected |
//! | [`Bucket`] | a bucket in S3, Google Cloud Storage or Azure Blob Storage, or in what speaks the protocol of one of them |
//! | [`Leases`], [`Blob`] | a blob of Azure, and its own lease, which Azure's clock ends |
//! | [`Memory`] | objects in memory, with faults, for the tests of whoever uses the port |
//! | [`honours_conditions`] | the proof, at the start, that a store does refuse such a write |
//!
//! What a user can rely on:
//!
//! - **A write is never repeated.** A conditional write that is sent again after its answer was lost would conflict with itself.
//! - **Only [`Failure::Unknown`] may have been done**, or may still be. A store that refused or could not be reached did nothing.
//! - **There is no deletion**, so a tag that was replaced never comes back, as long as no content does: see [`Tag`].

mod bucket;
mod leases;
mod memory;
mod trial;

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, TryFutureExt};
pub use lictor_core::Failure;

pub use bucket::{Blob, Bucket, BucketSettings, Credentials, SettingsError};
pub use leases::{Action, LeaseState, Leased, Leases, Metadata};
pub use memory::{Asked, Fault, Memory};
pub use trial::{Trial, honours_conditions};

/// A store of small objects, each of which can be replaced only if it has not changed.
pub trait Objects: Send + Sync {
    /// Reads an object from the store itself, never from a cache.
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Object>, Failure>>;

    /// Writes an object. Creates it if `expected` is `None`, and there must be none yet. Otherwise replaces it if its tag is still
    /// this one. No object has an empty tag.
    fn put<'a>(&'a self, name: &'a str, expected: Option<&'a Tag>, content: Vec<u8>) -> BoxFuture<'a, Put>;

    /// Lists all objects with their tags, sorted by name. Names are relative to the prefix of the store.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Failure>>;

    /// Follows the names of objects that seem to have changed. An empty name means that any may have. This only hints when to look:
    /// a change may go unnoticed. `None`: the store says nothing by itself.
    fn changes(&self) -> Option<BoxStream<'static, String>> {
        None
    }

    /// Checks that the store answers, and that this process may do there what it does without being asked. `name` is an object that exists.
    fn check<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        self.get(name).map_ok(drop).boxed()
    }

    /// Returns the own lease of the object with this name, if the store leases objects to one holder at a time.
    fn leased(&self, _name: &str) -> Option<Arc<dyn Leases>> {
        None
    }

    /// Returns what a person does to delete an object, as the end of a sentence.
    fn deletion(&self, name: &str) -> String {
        format!("delete the object {name}")
    }
}

/// The name of one version of an object: an ETag, or what else the store has. An object with an equal tag is unchanged, wherever the tag
/// comes from: a read, a write or a listing.
///
/// S3 makes the tag from the content, so a user has to write a content that the object never had before, for example with a number
/// that rises. Otherwise a late write may replace a version that only looks like the expected one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub String);

impl Tag {
    /// Whether no version has this tag. A server may take an empty condition for none, so a store must not send it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An object, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The name of this version.
    pub tag: Tag,
    /// All that is in it.
    pub content: Vec<u8>,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The object's name.
    pub name: String,
    /// The name of its version.
    pub tag: Tag,
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object has been written. It has this tag now.
    Done(Tag),
    /// Nothing was written: the object has another tag, or exists already, or is gone, or another write of it was under way. In the last
    /// case, a read may still return the expected tag.
    Conflict,
    /// Any other failure.
    Failed(Failure),
}

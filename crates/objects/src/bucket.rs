//! A bucket as a store of objects: S3, Google Cloud Storage, Azure Blob Storage, by the crate `object_store`.
//!
//! The tests run against real servers of the protocols of S3 and Azure. Of Google Cloud Storage, no server is at hand that takes what
//! `object_store` sends, so a server of a few lines stands for it, which shows only what is its own: a generation instead of an ETag, in
//! listings too.

mod blob;
mod failure;
mod service;
mod settings;
mod version;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetOptions, PutOptions, PutResult};

use crate::{Failure, Leases, Listed, Object, Objects, Put, Tag};
pub use blob::Blob;
use failure::Cause;
use service::Generations;
pub use settings::{BucketSettings, Credentials, SettingsError};
use settings::{Opened, Store};
use version::Version;

/// A bucket, or the part of it under a prefix.
pub struct Bucket {
    store: Arc<dyn Store>,
    version: Version,
    prefix: Path,
    /// What a blob with a lease of its own is reached by, in Azure.
    azure: Option<BucketSettings>,
    /// The address, for messages.
    url: String,
    /// The right that its account needs, for messages.
    right: &'static str,
    timeout: Duration,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Bucket {
    /// Creates a client, which connects when the first request is sent. The program must have installed a cryptography provider for
    /// rustls.
    ///
    /// # Errors
    /// If a setting is not valid.
    pub fn new(settings: &BucketSettings) -> Result<Self, SettingsError> {
        let Opened { store, version, prefix, right } = settings::open(settings)?;
        let azure = settings.url.starts_with("az:").then(|| settings.clone());
        Ok(Self { store, version, prefix, right, azure, url: settings.url.clone(), timeout: settings.timeout })
    }

    /// Returns the path of an object, unless the store could not give it back under the same name.
    fn path(&self, name: &str) -> Result<Path, Cause> {
        let full = if self.prefix.is_root() { name.to_owned() } else { format!("{}/{name}", self.prefix) };
        let invalid = || Cause::Refused(format!("'{name}' is no name of an object"));
        let path = Path::parse(&full).map_err(|_| invalid())?;
        if !name.is_empty() && path.as_ref() == full { Ok(path) } else { Err(invalid()) }
    }

    async fn read(&self, name: &str) -> Result<Object, Cause> {
        let path = self.path(name)?;
        let answer = self.store.get_opts(&path, GetOptions::default()).await?;
        let (e_tag, generation) = (answer.meta.e_tag.clone(), answer.meta.version.clone());
        let content = answer.bytes().await?.into();
        let tag = self.version.tag(e_tag, generation).ok_or_else(Cause::unnamed)?;
        Ok(Object { tag, content })
    }

    async fn write(&self, name: &str, expected: Option<&Tag>, content: Vec<u8>) -> Result<Tag, Cause> {
        let path = self.path(name)?;
        let mut attributes = Attributes::new();
        // Without this, Google Cloud Storage lets anyone cache an object that is public.
        attributes.insert(Attribute::CacheControl, "no-store".into());
        let options = PutOptions { mode: self.version.condition(expected), attributes, ..PutOptions::default() };
        let PutResult { e_tag, version, .. } = self.store.put_opts(&path, content.into(), options).await?;
        self.version.tag(e_tag, version).ok_or_else(Cause::unnamed)
    }

    async fn pages(&self) -> Result<Vec<Listed>, Cause> {
        let prefix = if self.prefix.is_root() { String::new() } else { format!("{}/", self.prefix) };
        let mut listed = BTreeMap::new();
        let mut page_token = None;
        loop {
            let options = PaginatedListOptions { page_token: page_token.take(), ..PaginatedListOptions::default() };
            let page = self.store.list_paginated(Some(prefix.as_str()).filter(|prefix| !prefix.is_empty()), options);
            let PaginatedListResult { mut result, page_token: next } = self.in_time(async { Ok(page.await?) }).await?;
            let mut generations = result.extensions.remove::<Generations>().unwrap_or_default();
            for meta in result.objects {
                let Some(name) = meta.location.as_ref().strip_prefix(&prefix) else { continue };
                let generation = generations.0.remove(meta.location.as_ref());
                let tag = self.version.tag(meta.e_tag, generation).ok_or_else(Cause::unnamed)?;
                listed.insert(name.to_owned(), tag);
            }
            if next.is_none() {
                return Ok(listed.into_iter().map(|(name, tag)| Listed { name, tag }).collect());
            }
            page_token = next;
        }
    }

    /// Limits the time of one request and, if one is needed first, of that for credentials.
    async fn in_time<T>(&self, request: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
        tokio::time::timeout(self.timeout, request)
            .await
            .unwrap_or_else(|_| Err(Cause::Unknown(format!("no answer within {:?}", self.timeout))))
    }

    fn failure(&self, what: &str, cause: Cause) -> Failure {
        cause.failure(&format!("{what} in {}", self.url), self.right)
    }
}

impl Objects for Bucket {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Object>, Failure>> {
        async move {
            match self.in_time(self.read(name)).await {
                Ok(object) => Ok(Some(object)),
                Err(Cause::Missing(_)) => Ok(None),
                Err(cause) => Err(self.failure(&format!("read '{name}'"), cause)),
            }
        }
        .boxed()
    }

    fn leased(&self, name: &str) -> Option<Arc<dyn Leases>> {
        Some(Arc::new(Blob::new(self.azure.as_ref()?, name).ok()?))
    }

    fn put<'a>(&'a self, name: &'a str, expected: Option<&'a Tag>, content: Vec<u8>) -> BoxFuture<'a, Put> {
        async move {
            if expected.is_some_and(Tag::is_empty) {
                return Put::Conflict;
            }
            match self.in_time(self.write(name, expected, content)).await {
                Ok(tag) => Put::Done(tag),
                Err(Cause::Conflict(_)) => Put::Conflict,
                // S3 says so when it was to be replaced and is gone.
                Err(Cause::Missing(_)) if expected.is_some() => Put::Conflict,
                Err(cause) => Put::Failed(self.failure(&format!("write '{name}'"), cause)),
            }
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Failure>> {
        async move { self.pages().await.map_err(|cause| self.failure("list the objects", cause)) }.boxed()
    }
}

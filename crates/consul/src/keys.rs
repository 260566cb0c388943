//! Keys and their values.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde::Deserialize;

use super::client::{Answer, Request};
use super::error::Purpose;
use super::{Client, Error};

/// The flags of locks that Consul's own library and `consul lock` make (`LockFlagValue` in `api/lock.go`). These programs refuse to take
/// part if a key has other flags.
pub const LOCK_FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;

/// The entry of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value, which is empty in the answer to a transaction.
    pub value: Vec<u8>,
    /// The flags, which have no meaning for Consul itself.
    pub flags: u64,
    /// The session that holds the lock.
    pub session: Option<String>,
    /// How many times the lock was acquired. A plain write or a deletion resets it, so it is not a fencing token.
    pub lock_index: u64,
    /// The index at which the key was created.
    pub create_index: u64,
    /// The index at which the key was changed last.
    pub modify_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RawEntry {
    key: String,
    value: Option<String>,
    flags: u64,
    session: Option<String>,
    lock_index: u64,
    create_index: u64,
    modify_index: u64,
}

impl RawEntry {
    /// Returns the entry, or `None` if the value is not in base 64.
    pub(super) fn read(self) -> Option<Entry> {
        let Self { key, value, flags, session, lock_index, create_index, modify_index } = self;
        let value = STANDARD.decode(value.unwrap_or_default()).ok()?;
        let session = session.filter(|session| !session.is_empty());
        Some(Entry { key, value, flags, session, lock_index, create_index, modify_index })
    }
}

impl Client {
    /// Reads a key consistently: the answer shows every write that was acknowledged before. Returns `None` if there is no such
    /// key, or the token may not read it.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn read_key(&self, key: &str) -> Result<Option<Entry>, Error> {
        Ok(entries(&self.send(key_request(key)?.consistent()).await?)?.pop())
    }

    /// Lists the keys that begin with `prefix` consistently, with the index to [`wait`](Self::wait) from. Consul silently leaves
    /// out keys that the token may not read.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn list(&self, prefix: &str) -> Result<(u64, Vec<Entry>), Error> {
        let answer = self.send(list_request(prefix)?.consistent()).await?;
        Ok((answer.index()?.max(1), entries(&answer)?))
    }

    /// Waits until something below `prefix` changes after `index`, for at most `wait` (Consul allows 10 minutes) and a little more, and
    /// lists everything. With an `index` of 0 it does not wait. Returns the index to continue from, which is 0 if Consul's index went
    /// back, as it does when Consul's state was restored.
    ///
    /// Silence proves nothing: a server that is cut off stays silent until the wait ends.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn wait(&self, prefix: &str, index: u64, wait: Duration) -> Result<(u64, Vec<Entry>), Error> {
        self.wait_for(list_request(prefix)?, index, wait).await
    }

    /// Does the same with one key: waits until it changes, and returns it; `None` if there is no such key, or the token may not read it.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn wait_key(&self, key: &str, index: u64, wait: Duration) -> Result<(u64, Option<Entry>), Error> {
        let (next, mut entries) = self.wait_for(key_request(key)?, index, wait).await?;
        Ok((next, entries.pop()))
    }

    async fn wait_for(&self, request: Request<'_>, index: u64, wait: Duration) -> Result<(u64, Vec<Entry>), Error> {
        let request = request
            .query("index", index.to_string())
            .query("wait", format!("{}ms", wait.as_millis()))
            // Consul adds up to a sixteenth, and delays a request for up to 7 s while it has no leader.
            .timeout(wait * 17 / 16 + Duration::from_secs(7).max(self.timeout()));
        let answer = self.send(request).await?;
        let next = answer.index()?;
        Ok((if next < index { 0 } else { next.max(1) }, entries(&answer)?))
    }
}

fn key_request(key: &str) -> Result<Request<'_>, Error> {
    let purpose = Purpose::new(format!("read the key {key}"), format!("key \"{key}\" {{ policy = \"read\" }}"));
    Ok(Request::get(path_of(key, &purpose)?, purpose).expecting(&[StatusCode::NOT_FOUND]))
}

fn list_request(prefix: &str) -> Result<Request<'_>, Error> {
    let rule = format!("key_prefix \"{prefix}\" {{ policy = \"read\" }}");
    let purpose = Purpose::new(format!("list the keys below {prefix}"), rule);
    Ok(Request::get(path_of(prefix, &purpose)?, purpose).query("recurse", "").expecting(&[StatusCode::NOT_FOUND]))
}

/// Returns the path of a key. Only some versions of Consul clean paths, so this refuses what they could clean.
fn path_of<'a>(key: &'a str, purpose: &Purpose) -> Result<impl Iterator<Item = &'a str> + use<'a>, Error> {
    let segments = || key.split('/');
    let inner = key.strip_suffix('/').unwrap_or(key);
    if key.is_empty() || inner.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        let what = &purpose.what;
        return Err(Error::Refused(format!("can't {what}: no part between slashes may be empty, '.' or '..'")));
    }
    Ok(["kv"].into_iter().chain(segments()))
}

fn entries(answer: &Answer) -> Result<Vec<Entry>, Error> {
    // Only Consul's own 404 means that there is no such key.
    answer.index()?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(vec![]);
    }
    let raw: Vec<RawEntry> = answer.json()?;
    let read = raw.into_iter().map(RawEntry::read).collect::<Option<_>>();
    read.ok_or_else(|| Error::Unknown(format!("can't {}: a value is not in base 64", answer.purpose.what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_exactly() {
        let json = r#"[{"LockIndex":2,"Key":"a/b","Flags":3304740253564472344,"Value":"AAH/","Session":"s","CreateIndex":9,
            "ModifyIndex":18446744073709551615},
            {"LockIndex":0,"Key":"c","Flags":0,"Value":null,"CreateIndex":1,"ModifyIndex":2}]"#;
        let raw: Vec<RawEntry> = serde_json::from_str(json).unwrap();
        let read: Vec<_> = raw.into_iter().map(|raw| raw.read().unwrap()).collect();
        assert_eq!(read[0].value, [0, 1, 255]);
        assert_eq!(read[0].flags, LOCK_FLAGS);
        assert_eq!(read[0].session.as_deref(), Some("s"));
        assert_eq!(read[0].modify_index, u64::MAX);
        assert_eq!((read[1].value.len(), &read[1].session), (0, &None));
    }

    #[test]
    fn a_key_that_could_be_cleaned_is_refused() {
        let purpose = Purpose::new("", "");
        for key in ["", "/", "/a", "a//b", "a/../b", "./a", "a//"] {
            assert!(path_of(key, &purpose).is_err(), "{key}");
        }
        let path = |key| path_of(key, &purpose).unwrap().collect::<Vec<_>>();
        assert_eq!(path("a/b"), ["kv", "a", "b"]);
        assert_eq!(path("a/"), ["kv", "a", ""]);
    }
}

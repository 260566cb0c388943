//! Reads a class that keeps its locks in a bucket into valid values.

use std::collections::BTreeSet;
use std::time::Duration;

use lictor_core::StoreId;

use super::common::{SecretId, Shared, check_key_below, is_http, release_after, secret_id, watched_prefix};
use crate::bucket as api;
use crate::resolve::Refusal;
use crate::{ElectionClassSpec, LockPolicy};

/// The host of an account in Azure Blob Storage, after the account's name.
const AZURE: &str = ".blob.core.windows.net";

/// Where and how a class keeps its locks in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketClass {
    /// The class's name.
    pub name: String,
    /// The bucket, and the prefix of all objects, without a slash at the end: `s3://BUCKET/PREFIX`,
    /// `gs://BUCKET/PREFIX` or `az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX`. The crate `object_store` reads
    /// each of these forms.
    pub url: String,
    /// The region of a bucket in Amazon S3.
    pub region: Option<String>,
    /// The address of a compatible server, without a slash at the end. `None`: the service's own.
    pub endpoint: Option<String>,
    /// The Secret all of whose values are credentials. `None`: the pod has an identity of its own.
    pub secret: Option<SecretId>,
    /// This cluster's name in records.
    pub cluster: String,
    /// The session's time to live.
    pub ttl: Duration,
    /// How often to look into the bucket, at most a third of `ttl`.
    pub poll: Duration,
    /// How long the cluster's API server must be unreachable before the operator releases the locks. `None`: it keeps
    /// them.
    pub release_after: Option<Duration>,
    /// Whether the operator releases its locks when it is stopped.
    pub release_on_stop: bool,
    /// The prefix of all keys of this class's locks. It ends with a slash.
    pub prefix: String,
}

/// Reads a class.
pub(super) fn bucket_class(
    name: &str,
    class: &ElectionClassSpec,
    store: &api::BucketStore,
) -> Result<BucketClass, &'static str> {
    // This pattern names every field, so that a new one can't be forgotten.
    let api::BucketStore {
        url,
        region,
        endpoint,
        secret_ref,
        cluster_name,
        sessions: api::BucketSessions { ttl_seconds, poll_seconds },
        when_cluster_is_lost,
        when_operator_stops,
    } = store;
    if !is_url(url) {
        return Err("bucket.url must be s3://BUCKET, gs://BUCKET or az://CONTAINER@ACCOUNT.blob.core.windows.net, \
                    and may have a prefix without '//', '..' or a '/' at its end, for example s3://locks/lictor");
    }
    if region.is_some() && !url.starts_with("s3://") {
        return Err("bucket.region is only for a url that begins with s3://: leave it out");
    }
    if endpoint.as_ref().is_some_and(|endpoint| !is_http(endpoint)) {
        return Err("bucket.endpoint must be http:// or https://, a host, and if need be a port and a path, for \
                    example https://minio.example:9000");
    }
    if cluster_name.is_empty() {
        return Err("bucket.clusterName is empty: write this cluster's name, for example west");
    }
    // The same limits as in the CRD, because the CRD in the cluster may be older.
    let ttl = (*ttl_seconds).clamp(5, 86_400);
    if *poll_seconds == 0 || *poll_seconds > ttl / 3 {
        return Err("bucket.sessions.pollSeconds must be at least 1 and at most a third of ttlSeconds");
    }
    Ok(BucketClass {
        name: name.into(),
        url: url.clone(),
        region: region.clone(),
        endpoint: endpoint.as_ref().map(|endpoint| endpoint.trim_end_matches('/').into()),
        secret: secret_ref.as_ref().map(secret_id),
        cluster: cluster_name.clone(),
        ttl: Duration::from_secs(ttl.into()),
        poll: Duration::from_secs((*poll_seconds).into()),
        release_after: release_after(when_cluster_is_lost),
        release_on_stop: *when_operator_stops == LockPolicy::Release,
        prefix: watched_prefix(class)?,
    })
}

fn is_url(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let mut parts = rest.split('/');
    let bucket = parts.next().unwrap_or_default();
    let legal = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.=".contains(c));
    let plain = |text: &str| legal(text) && !text.contains('.');
    let named = match scheme {
        "s3" | "gs" => legal(bucket),
        "az" => bucket
            .split_once('@')
            .is_some_and(|(container, host)| plain(container) && host.strip_suffix(AZURE).is_some_and(plain)),
        _ => false,
    };
    named && !url.contains("..") && parts.all(|part| legal(part) && part != ".")
}

impl Shared for BucketClass {
    fn kind(&self) -> &'static str {
        "object storage"
    }

    fn place(&self) -> String {
        format!("the bucket {}", self.url)
    }

    fn store(&self) -> StoreId {
        StoreId::of_class("bucket", &self.name)
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The longest time until another cluster can have the lock after this one stops renewing: the other one sees the last renewal up to a
    /// third of the TTL late, waits for the TTL, and then looks once more.
    fn expiry(&self) -> Duration {
        self.ttl * 4 / 3 + self.poll
    }

    fn release_after(&self) -> Option<Duration> {
        self.release_after
    }

    fn release_on_stop(&self) -> bool {
        self.release_on_stop
    }

    fn secrets(&self) -> BTreeSet<SecretId> {
        self.secret.iter().cloned().collect()
    }

    /// No key collides with a session or a bid, because these are below `sessions/` and `bids/`, and locks below `locks/`.
    fn check_key(&self, key: &str) -> Result<(), Refusal> {
        check_key_below(&self.prefix, key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Reads a class with these fields of `bucket`, besides the required ones.
    fn with(fields: &Value) -> Result<BucketClass, &'static str> {
        let mut spec = json!({"bucket": {"url": "s3://locks/lictor", "clusterName": "west"}});
        for (key, value) in fields.as_object().unwrap() {
            spec["bucket"][key] = value.clone();
        }
        let spec: ElectionClassSpec = serde_json::from_value(spec).unwrap();
        bucket_class("bucket", &spec, spec.bucket.as_ref().unwrap())
    }

    #[test]
    fn the_smallest_class_has_all_defaults() {
        let expected = BucketClass {
            name: "bucket".into(),
            url: "s3://locks/lictor".into(),
            region: None,
            endpoint: None,
            secret: None,
            cluster: "west".into(),
            ttl: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            release_after: None,
            release_on_stop: false,
            prefix: "services/".into(),
        };
        assert_eq!(expected.place(), "the bucket s3://locks/lictor");
        assert_eq!(expected.expiry(), Duration::from_secs(41));
        assert_eq!(with(&json!({})), Ok(expected));
    }

    #[test]
    fn every_field_is_read() {
        let class = with(&json!({
            "region": "eu-central-1", "endpoint": "https://minio.example:9000/", "clusterName": "east",
            "secretRef": {"namespace": "keys", "name": "minio"}, "sessions": {"ttlSeconds": 30, "pollSeconds": 10},
            "whenClusterIsLost": {"policy": "Release"}, "whenOperatorStops": "Release",
        }));
        let class = class.unwrap();
        let secret = SecretId { namespace: Some("keys".into()), name: "minio".into() };
        assert_eq!(class.secrets(), BTreeSet::from([secret]));
        assert_eq!(class.region.as_deref(), Some("eu-central-1"));
        assert_eq!(class.endpoint.as_deref(), Some("https://minio.example:9000"));
        assert_eq!((class.cluster(), class.store().0.as_str()), ("east", "bucket/bucket"));
        assert_eq!((class.ttl, class.poll), (Duration::from_secs(30), Duration::from_secs(10)));
        assert_eq!((class.release_after, class.release_on_stop), (Some(Duration::from_secs(60)), true));
    }

    #[test]
    fn a_url_names_a_service_a_bucket_and_a_prefix() {
        for url in [
            "s3://locks",
            "s3://locks.example/a/b-c_d.e=1",
            "gs://locks/lictor",
            "az://locks@account1.blob.core.windows.net",
            "az://locks@account1.blob.core.windows.net/lictor",
        ] {
            assert_eq!(with(&json!({"url": url})).map(|class| class.url), Ok(url.to_owned()));
        }
        for url in [
            "",
            "locks",
            "s3://",
            "s3:///lictor",
            "s3://locks/",
            "s3://locks//lictor",
            "s3://locks/../lictor",
            "s3://locks/./lictor",
            "s3://locks/a b",
            "s3://me@locks/lictor",
            "S3://locks",
            "file:///locks",
            "https://locks.s3.amazonaws.com/lictor",
            "az://locks/lictor",
            "az://account1/locks/lictor",
            "az://locks@account1/lictor",
            "az://@account1.blob.core.windows.net/lictor",
            "az://locks@.blob.core.windows.net/lictor",
            "az://locks@account1.example.blob.core.windows.net/lictor",
        ] {
            let message = with(&json!({"url": url})).expect_err(url);
            assert!(message.contains("for example s3://locks/lictor"), "{url}: {message}");
        }
    }

    #[test]
    fn what_older_crds_let_pass_is_refused() {
        let refused = |fields: &Value, says: &str| {
            let message = with(fields).unwrap_err();
            assert!(message.contains(says), "{message}");
        };
        refused(&json!({"clusterName": ""}), "for example west");
        refused(&json!({"endpoint": "minio.example:9000"}), "for example https://minio.example:9000");
        refused(&json!({"url": "gs://locks", "region": "europe-west3"}), "leave it out");
        refused(&json!({"sessions": {"ttlSeconds": 15, "pollSeconds": 6}}), "a third of ttlSeconds");
        refused(&json!({"sessions": {"pollSeconds": 0}}), "at least 1");
        refused(&json!({"sessions": {"ttlSeconds": 1, "pollSeconds": 2}}), "a third of ttlSeconds");
        assert_eq!(with(&json!({"sessions": {"ttlSeconds": 1}})).map(|class| class.ttl), Ok(Duration::from_secs(5)));
    }

    #[test]
    fn a_key_stays_below_the_classs_directory() {
        let class = with(&json!({})).unwrap();
        // Locks have a directory of their own, so no name is taken by sessions or bids.
        for key in ["services/shop/web/leader", "services/sessions/west", "services/bids/west/x", "services/.bid/x"] {
            assert_eq!(class.check_key(key), Ok(()), "{key}");
        }
        let long = format!("services/{}", "x".repeat(504));
        for key in ["", "/services/a", "services/", "services//a", "services/../a", "sessions/west", "other/a", &long] {
            assert_eq!(class.check_key(key).unwrap_err().reason, "KeyNotAllowed", "{key}");
        }
    }
}

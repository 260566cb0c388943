//! Reads a class that keeps its locks in objects, each of which can be replaced only if it has not changed.

use std::collections::BTreeSet;
use std::time::Duration;

use lictor_core::StoreId;

use super::bucket::{self, BucketPlace};
use super::common::{SecretId, Shared, check_key_below, release_after, secret_key, watched_prefix};
use super::hub::HubPlace;
use crate::resolve::Refusal;
use crate::shared::LostCluster;
use crate::{BucketStore, ElectionClassSpec, HubStore, LockPolicy, ObjectSessions};

/// Where and how a class keeps its locks in objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectClass {
    /// The class's name.
    pub name: String,
    /// The store.
    pub place: ObjectPlace,
    /// This cluster's name in records.
    pub cluster: String,
    /// The session's time to live.
    pub ttl: Duration,
    /// How often to look into the store, at most a third of `ttl`.
    pub poll: Duration,
    /// How long the cluster's API server must be unreachable before the operator releases the locks. `None`: it keeps
    /// them.
    pub release_after: Option<Duration>,
    /// Whether the operator releases its locks when it is stopped.
    pub release_on_stop: bool,
    /// The prefix of all keys of this class's locks. It ends with a slash.
    pub prefix: String,
}

/// A store of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectPlace {
    /// A bucket of an object storage.
    Bucket(BucketPlace),
    /// Leases in a namespace of a cluster.
    Hub(HubPlace),
}

/// The fields that the classes of all stores of objects share.
struct Common<'a> {
    cluster_name: &'a str,
    sessions: &'a ObjectSessions,
    when_cluster_is_lost: &'a LostCluster,
    when_operator_stops: LockPolicy,
}

/// Reads a class that keeps its locks in a bucket.
pub(super) fn in_bucket(
    name: &str,
    class: &ElectionClassSpec,
    store: &BucketStore,
) -> Result<ObjectClass, &'static str> {
    // This pattern names every field, so that a new one can't be forgotten.
    let BucketStore {
        url,
        region,
        endpoint,
        secret_ref,
        cluster_name,
        sessions,
        when_cluster_is_lost,
        when_operator_stops,
    } = store;
    let place = bucket::place(url, region.as_ref(), endpoint.as_ref(), secret_ref.as_ref())?;
    let when_operator_stops = *when_operator_stops;
    let common = Common { cluster_name, sessions, when_cluster_is_lost, when_operator_stops };
    object_class(name, class, ObjectPlace::Bucket(place), &common)
}

/// Reads a class that keeps its locks in a hub.
pub(super) fn in_hub(name: &str, class: &ElectionClassSpec, store: &HubStore) -> Result<ObjectClass, &'static str> {
    let HubStore {
        namespace,
        kubeconfig_secret_ref,
        cluster_name,
        sessions,
        when_cluster_is_lost,
        when_operator_stops,
    } = store;
    if namespace.is_empty() {
        return Err("hub.namespace is empty: write a namespace of the hub, for example lictor-locks");
    }
    let kubeconfig = kubeconfig_secret_ref.as_ref().map(|secret| secret_key(secret, "kubeconfig"));
    let place = ObjectPlace::Hub(HubPlace { namespace: namespace.clone(), kubeconfig });
    let when_operator_stops = *when_operator_stops;
    object_class(name, class, place, &Common { cluster_name, sessions, when_cluster_is_lost, when_operator_stops })
}

fn object_class(
    name: &str,
    class: &ElectionClassSpec,
    place: ObjectPlace,
    common: &Common<'_>,
) -> Result<ObjectClass, &'static str> {
    let ObjectSessions { ttl_seconds, poll_seconds } = *common.sessions;
    if common.cluster_name.is_empty() {
        return Err("clusterName is empty: write this cluster's name, for example west");
    }
    // The same limits as in the CRD, because the CRD in the cluster may be older.
    let ttl = ttl_seconds.clamp(5, 86_400);
    if poll_seconds == 0 || poll_seconds > ttl / 3 {
        return Err("sessions.pollSeconds must be at least 1 and at most a third of ttlSeconds");
    }
    Ok(ObjectClass {
        name: name.into(),
        place,
        cluster: common.cluster_name.into(),
        ttl: Duration::from_secs(ttl.into()),
        poll: Duration::from_secs(poll_seconds.into()),
        release_after: release_after(common.when_cluster_is_lost),
        release_on_stop: common.when_operator_stops == LockPolicy::Release,
        prefix: watched_prefix(class)?,
    })
}

impl Shared for ObjectClass {
    fn kind(&self) -> &'static str {
        match self.place {
            ObjectPlace::Bucket(_) => "object storage",
            ObjectPlace::Hub(_) => "the hub",
        }
    }

    fn place(&self) -> String {
        match &self.place {
            ObjectPlace::Bucket(bucket) => format!("the bucket {}", bucket.url),
            ObjectPlace::Hub(hub) => format!("the namespace {} of the hub", hub.namespace),
        }
    }

    fn store(&self) -> StoreId {
        let kind = match self.place {
            ObjectPlace::Bucket(_) => "bucket",
            ObjectPlace::Hub(_) => "hub",
        };
        StoreId::of_class(kind, &self.name)
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

    /// Another cluster may have the lock as soon as the TTL has passed. Consul waits for twice the TTL.
    fn patience(&self) -> Duration {
        Duration::from_secs(5).min(self.ttl / 10)
    }

    /// A hub tells changes, unless its watch is broken.
    fn seen_after(&self) -> Duration {
        self.ttl / 3
    }

    fn release_after(&self) -> Option<Duration> {
        self.release_after
    }

    fn release_on_stop(&self) -> bool {
        self.release_on_stop
    }

    fn secrets(&self) -> BTreeSet<SecretId> {
        let secret = match &self.place {
            ObjectPlace::Bucket(bucket) => bucket.secret.as_ref(),
            ObjectPlace::Hub(hub) => hub.kubeconfig.as_ref().map(|key| &key.secret),
        };
        secret.into_iter().cloned().collect()
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
    fn with(fields: &Value) -> Result<ObjectClass, &'static str> {
        let mut spec = json!({"bucket": {"url": "s3://locks/lictor", "clusterName": "west"}});
        for (key, value) in fields.as_object().unwrap() {
            spec["bucket"][key] = value.clone();
        }
        let spec: ElectionClassSpec = serde_json::from_value(spec).unwrap();
        in_bucket("bucket", &spec, spec.bucket.as_ref().unwrap())
    }

    /// Shows C3: the operator before may have relied on the locks until a fifth of the TTL before the end.
    #[test]
    fn who_takes_over_demotes_before_another_cluster_can_lead() {
        for ttl in [5, 10, 30, 86_400] {
            let class = with(&json!({"sessions": {"ttlSeconds": ttl, "pollSeconds": 1}})).unwrap();
            let margin = class.ttl / 5;
            assert!(class.patience() * 2 <= margin && class.patience() <= Duration::from_secs(5), "{ttl}");
        }
    }

    #[test]
    fn the_smallest_class_has_all_defaults() {
        let place = BucketPlace { url: "s3://locks/lictor".into(), region: None, endpoint: None, secret: None };
        let expected = ObjectClass {
            name: "bucket".into(),
            place: ObjectPlace::Bucket(place),
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
        let ObjectPlace::Bucket(place) = &class.place else { panic!("{class:?}") };
        assert_eq!(place.region.as_deref(), Some("eu-central-1"));
        assert_eq!(place.endpoint.as_deref(), Some("https://minio.example:9000"));
        assert_eq!((class.cluster(), class.store().0.as_str()), ("east", "bucket/bucket"));
        assert_eq!((class.ttl, class.poll), (Duration::from_secs(30), Duration::from_secs(10)));
        assert_eq!((class.release_after, class.release_on_stop), (Some(Duration::from_secs(60)), true));
    }

    #[test]
    fn a_hub_is_this_cluster_or_that_of_a_kubeconfig() {
        let read = |hub: Value| {
            let spec: ElectionClassSpec = serde_json::from_value(json!({"hub": hub})).unwrap();
            in_hub("hub", &spec, spec.hub.as_ref().unwrap())
        };
        let own = read(json!({"namespace": "lictor-locks", "clusterName": "hub"})).unwrap();
        assert_eq!(
            (own.place().as_str(), own.store().0.as_str()),
            ("the namespace lictor-locks of the hub", "hub/hub")
        );
        assert_eq!((own.expiry(), own.secrets()), (Duration::from_secs(41), BTreeSet::new()));
        let secret = SecretId { namespace: None, name: "hub".into() };
        let secret_ref = json!({"name": "hub"});
        let other =
            read(json!({"namespace": "locks", "clusterName": "west", "kubeconfigSecretRef": secret_ref})).unwrap();
        let ObjectPlace::Hub(HubPlace { kubeconfig: Some(kubeconfig), .. }) = &other.place else { panic!("{other:?}") };
        assert_eq!((kubeconfig.key.as_str(), other.secrets()), ("kubeconfig", BTreeSet::from([secret])));
        let refused = read(json!({"namespace": "", "clusterName": "west"})).unwrap_err();
        assert!(refused.contains("for example lictor-locks"), "{refused}");
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
            let class = with(&json!({"url": url})).expect(url);
            assert_eq!(class.place(), format!("the bucket {url}"));
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

//! The stores that several clusters share, as their classes describe them. Each kind of store has a variant of
//! [`SharedClass`] and a file.

mod bucket;
mod common;
mod consul;
mod hub;
mod objects;

use std::ops::Deref;

use super::Refusal;
use crate::{ElectionClass, ElectionClassSpec};
pub use bucket::BucketPlace;
pub use common::{SecretId, SecretKey, Shared};
pub use consul::{ConsulClass, Credentials, SessionNode, TlsSources};
pub use hub::HubPlace;
pub use objects::{ObjectClass, ObjectPlace};

/// How a class keeps its locks in a store that several clusters share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedClass {
    /// In keys in Consul.
    Consul(Box<ConsulClass>),
    /// In objects.
    Objects(Box<ObjectClass>),
}

/// Reads how a class keeps its locks. Returns `None` if it keeps them in Leases, which only its own cluster can see.
///
/// # Errors
/// Returns what is wrong with the class. The CRDs refuse all of this at `kubectl apply`, but the CRDs in the cluster
/// may be older than this program.
pub fn shared_class(class: &ElectionClass) -> Option<Result<SharedClass, Refusal>> {
    let ElectionClassSpec { lease, consul, bucket, hub, .. } = &class.spec;
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let read = match (lease, consul, bucket, hub) {
        (_, None, None, None) => return None,
        (None, Some(store), None, None) => {
            consul::consul_class(name, &class.spec, store).map(|read| SharedClass::Consul(Box::new(read)))
        }
        (None, None, Some(store), None) => {
            objects::in_bucket(name, &class.spec, store).map(|read| SharedClass::Objects(Box::new(read)))
        }
        (None, None, None, Some(store)) => {
            objects::in_hub(name, &class.spec, store).map(|read| SharedClass::Objects(Box::new(read)))
        }
        _ => Err("the class names several stores: keep one of lease, consul, bucket and hub, and leave the others out"),
    };
    Some(read.map_err(|what| Refusal {
        reason: "InvalidClass",
        message: format!("the ElectionClass {name:?} can't be used: {what}"),
    }))
}

impl SharedClass {
    /// Returns the settings of a class in Consul.
    pub fn consul(&self) -> Option<&ConsulClass> {
        match self {
            Self::Consul(consul) => Some(consul),
            Self::Objects(_) => None,
        }
    }

    /// Whether programs may hold locks of their own beside those of the class, which elections can follow.
    pub fn has_followed_keys(&self) -> bool {
        match self {
            Self::Consul(_) => true,
            Self::Objects(objects) => matches!(objects.place, ObjectPlace::Bucket(_)),
        }
    }

    /// Returns the settings of a class in objects.
    pub fn objects(&self) -> Option<&ObjectClass> {
        match self {
            Self::Objects(objects) => Some(objects),
            Self::Consul(_) => None,
        }
    }
}

impl Deref for SharedClass {
    type Target = dyn Shared;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Consul(consul) => &**consul,
            Self::Objects(objects) => &**objects,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> Option<Result<SharedClass, Refusal>> {
        let metadata = json!({"name": "west"});
        let class =
            json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": metadata, "spec": spec});
        shared_class(&serde_json::from_value(class).unwrap())
    }

    #[test]
    fn a_class_keeps_its_locks_in_one_store() {
        let consul = json!({"address": "http://consul.example:8500", "clusterName": "west"});
        let bucket = json!({"url": "s3://locks", "clusterName": "west"});
        let hub = json!({"namespace": "lictor-locks", "clusterName": "west"});
        let store = |spec: Value| read(&spec).map(|read| read.map(|shared| (shared.kind(), shared.store().0)));
        assert_eq!(store(json!({"lease": {}})), None);
        assert_eq!(store(json!({"consul": consul})), Some(Ok(("Consul", "consul/west".into()))));
        assert_eq!(store(json!({"bucket": bucket})), Some(Ok(("object storage", "bucket/west".into()))));
        assert_eq!(store(json!({"hub": hub})), Some(Ok(("the hub", "hub/west".into()))));
        for several in [
            json!({"lease": {}, "consul": consul}),
            json!({"lease": {}, "bucket": bucket}),
            json!({"consul": consul, "bucket": bucket}),
            json!({"lease": {}, "consul": consul, "bucket": bucket}),
            json!({"lease": {}, "hub": hub}),
            json!({"bucket": bucket, "hub": hub}),
        ] {
            let refusal = store(several).unwrap().unwrap_err();
            assert_eq!(refusal.reason, "InvalidClass");
            assert!(refusal.message.contains("\"west\"") && refusal.message.contains("several stores"), "{refusal:?}");
        }
    }

    #[test]
    fn each_kind_of_store_has_its_own_settings() {
        let consul = read(&json!({"consul": {"address": "http://consul.example:8500", "clusterName": "west"}}));
        let bucket = read(&json!({"bucket": {"url": "s3://locks", "clusterName": "west"}}));
        let (consul, bucket) = (consul.unwrap().unwrap(), bucket.unwrap().unwrap());
        assert_eq!((consul.consul().is_some(), consul.objects().is_some()), (true, false));
        assert_eq!((bucket.consul().is_some(), bucket.objects().is_some()), (false, true));
    }
}

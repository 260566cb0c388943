//! The store that the clusters share, whichever it is: what happens to it, and what is seen of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lictor::controller::Clients;
use serde_json::{Value, json};

use crate::excuse::Loss;
use crate::judge::Judge;
use crate::servers::bucket::{self, BY_HAND, Bucket};
use crate::servers::client::{Listener, connect};
use crate::servers::consul::Consul;
use crate::servers::link::Link;
use crate::world::CLUSTERS;

/// The name of the class.
pub const CLASS: &str = "shared";

#[derive(Clone)]
pub enum Shared {
    Consul(Arc<Consul>),
    Bucket(Arc<Bucket>),
}

impl Shared {
    /// What the class of a cluster says of it.
    pub fn spec(&self, cluster: &str, layout: &str) -> (&'static str, Value) {
        match self {
            Self::Consul(_) => {
                ("consul", json!({"address": "http://consul.example:8500", "clusterName": cluster, "record": layout}))
            }
            Self::Bucket(bucket) if bucket.is_hub() => {
                ("hub", json!({"namespace": "lictor-locks", "clusterName": cluster}))
            }
            Self::Bucket(_) => ("bucket", json!({"url": "s3://locks/lictor", "clusterName": cluster})),
        }
    }

    /// How a replica reaches it.
    pub fn clients(&self, link: Arc<Link>, listener: Listener) -> Clients {
        match self {
            Self::Consul(consul) => Clients::default().with_consul(connect(consul.clone(), link, listener)),
            Self::Bucket(bucket) => Clients::default().with_objects(bucket::open(bucket.clone(), link, listener)),
        }
    }

    /// The clusters whose sessions Consul has ended while they held a lock, since this was asked last.
    pub fn expired(&self) -> Vec<usize> {
        let Self::Consul(consul) = self else { return Vec::new() };
        let expired = consul.expired();
        let of = |cluster: &usize| expired.iter().any(|session| session.starts_with(&sessions_of(CLUSTERS[*cluster])));
        (0..CLUSTERS.len()).filter(of).collect()
    }

    /// Tells the judge of each session that ends in a bucket while it holds a lock: another cluster can have the lock at once.
    pub fn tell(&self, judge: Arc<Mutex<Judge>>) {
        let Self::Bucket(bucket) = self else { return };
        bucket.observe(move |cluster, by_owner| {
            if let Some(cluster) = CLUSTERS.iter().position(|name| *name == cluster) {
                judge.lock().unwrap().lose(cluster, if by_owner { Loss::Replaced } else { Loss::Ended });
            }
        });
    }

    /// Whether Consul keeps the sessions of a cluster for twice the TTL, as a real server does, or may end them sooner.
    pub fn keep_for_long(&self, cluster: usize, long: bool) {
        if let Self::Consul(consul) = self {
            consul.keep_for_long(&sessions_of(CLUSTERS[cluster]), long);
        }
    }

    /// Another server leads Consul.
    pub fn change_leader(&self, leaderless: Duration) {
        if let Self::Consul(consul) = self {
            consul.change_leader(leaderless);
        }
    }

    /// A person ends a cluster's session, and with it takes its locks; or does away with its object in a bucket, which takes them only when
    /// the cluster itself, or another one, has noted it.
    pub fn end_session(&self, cluster: usize, way: usize) -> Option<Loss> {
        match self {
            Self::Consul(consul) => {
                let renewed = consul.end_session(&sessions_of(CLUSTERS[cluster]))?;
                Some(Loss::Destroyed { renewed })
            }
            // Two may lead after an end by hand, so it is rarer than what the rules have an answer to.
            Self::Bucket(bucket) if !way.is_multiple_of(4) => {
                bucket.spoil_session(CLUSTERS[cluster], way.is_multiple_of(2));
                None
            }
            Self::Bucket(bucket) => {
                let renewed = bucket.end_session(CLUSTERS[cluster])?;
                Some(Loss::EndedByHand { renewed })
            }
        }
    }

    /// A third cluster with copied values has a session of this cluster's name for as long.
    pub fn come_as(&self, cluster: usize, lasts: u64) {
        match self {
            Self::Consul(consul) => consul.come_as(&sessions_of(CLUSTERS[cluster]), lasts),
            Self::Bucket(bucket) => drop(tokio::spawn(bucket.clone().come_as(CLUSTERS[cluster], lasts))),
        }
    }

    /// A person keeps the present state of a bucket.
    pub fn keep(&self, number: u64) {
        if let Self::Bucket(bucket) = self {
            bucket.keep(number);
        }
    }

    /// A person puts a bucket back to the state that was kept by this number.
    pub fn put_back(&self, number: u64) {
        if let Self::Bucket(bucket) = self {
            bucket.put_back(number);
        }
    }

    /// The cluster whose session holds a lock.
    pub fn holder(&self, key: &str) -> Option<usize> {
        match self {
            Self::Consul(consul) => {
                let session = consul.holder(key)?;
                CLUSTERS.iter().position(|cluster| session.starts_with(&sessions_of(cluster)))
            }
            Self::Bucket(bucket) => {
                let holder = bucket.holder(key)?;
                CLUSTERS.iter().position(|cluster| holder == *cluster)
            }
        }
    }

    /// A person deletes a key, or puts something else there, which leaves the lock as it is, unless that is all of an object in a bucket.
    /// Returns whether the lock is gone.
    pub fn spoil(&self, key: &str, way: usize) -> bool {
        match self {
            Self::Consul(consul) => consul.spoil(key, way.is_multiple_of(2)),
            Self::Bucket(bucket) => {
                match way % 4 {
                    0 | 2 => bucket.delete(key),
                    1 => bucket.forge(key, |value| *value = json!(BY_HAND)),
                    _ => bucket.overwrite(key, BY_HAND.as_bytes()),
                }
                way % 4 != 1
            }
        }
    }

    /// A person deletes what a person has put there. Returns whether there was anything.
    pub fn clear(&self, key: &str) -> bool {
        match self {
            Self::Consul(consul) => consul.clear(key),
            Self::Bucket(bucket) => bucket.clear(key),
        }
    }

    /// The record in a lock.
    pub fn record(&self, key: &str) -> Option<Value> {
        match self {
            Self::Consul(consul) => consul.value(key).and_then(|value| serde_json::from_slice(&value).ok()),
            Self::Bucket(bucket) => bucket.value(key),
        }
    }

    /// Somebody writes another record into a key, which leaves the lock as it is.
    pub fn forge(&self, key: &str, edit: impl FnOnce(&mut Value)) {
        let Some(mut record) = self.record(key).filter(Value::is_object) else { return };
        edit(&mut record);
        self.put(key, record);
    }

    /// Somebody writes something into a key, which leaves the lock as it is.
    pub fn put(&self, key: &str, value: Value) {
        match self {
            Self::Consul(consul) => consul.put(key, &value),
            Self::Bucket(bucket) => bucket.put(key, value),
        }
    }

    /// What happened to it since this was asked last.
    pub fn told(&self) -> Vec<String> {
        match self {
            Self::Consul(consul) => consul.told(),
            Self::Bucket(_) => Vec::new(),
        }
    }
}

/// How the sessions of a cluster are named in Consul.
fn sessions_of(cluster: &str) -> String {
    format!("lictor/{cluster}/")
}

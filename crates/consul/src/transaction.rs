//! Transactions: several operations, all or none.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::catalog::Service;
use super::client::Request;
use super::error::Purpose;
use super::keys::{Entry, RawEntry};
use super::{Client, Error};

/// An operation. A transaction has at most 128, and at most 64 before Consul 1.14.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOp {
    /// Fails the transaction unless the key has this ModifyIndex.
    KvCheckIndex {
        /// The key.
        key: String,
        /// The ModifyIndex.
        index: u64,
    },
    /// Fails the transaction if the key exists.
    KvCheckNotExists {
        /// The key.
        key: String,
    },
    /// Locks and writes a key. The holder may repeat this; with an identical value nothing changes, not even the ModifyIndex.
    KvLock {
        /// The key.
        key: String,
        /// The value to write.
        value: Vec<u8>,
        /// The flags: see [`LOCK_FLAGS`](super::LOCK_FLAGS).
        flags: u64,
        /// The session that gets the lock.
        session: String,
    },
    /// Releases and writes a key.
    KvUnlock {
        /// The key.
        key: String,
        /// The value to write.
        value: Vec<u8>,
        /// The flags: see [`LOCK_FLAGS`](super::LOCK_FLAGS).
        flags: u64,
        /// The session that holds the lock.
        session: String,
    },
    /// Writes a key. A lock stays with its holder.
    KvSet {
        /// The key.
        key: String,
        /// The value to write.
        value: Vec<u8>,
        /// The flags, which have no meaning for Consul itself.
        flags: u64,
    },
    /// Deletes a key, and fails the transaction if the key has another ModifyIndex. A missing key counts as deleted.
    KvDeleteCas {
        /// The key.
        key: String,
        /// The ModifyIndex.
        index: u64,
    },
    /// Writes a service of a node. The node must be registered.
    ServiceSet {
        /// The node's name.
        node: String,
        /// The service. Its index is ignored.
        service: Service,
    },
    /// Deletes a service of a node, if it exists.
    ServiceDelete {
        /// The node's name.
        node: String,
        /// The service's ID.
        id: String,
        /// The service's name, which Consul requires besides the ID.
        name: String,
    },
    /// Deletes a service of a node, and fails the transaction if the service has another ModifyIndex.
    ServiceDeleteCas {
        /// The node's name.
        node: String,
        /// The service's ID.
        id: String,
        /// The service's name, which Consul requires besides the ID.
        name: String,
        /// The ModifyIndex.
        index: u64,
    },
}

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// All operations took place.
    Applied(Applied),
    /// No operation took place, because these failed.
    RolledBack(Vec<OpError>),
    /// There was no usable answer.
    Failed(Error),
}

/// The result of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The keys, without values, in the order of the operations. A deletion and `KvCheckNotExists` add none, `KvCheckIndex` adds
    /// one.
    pub entries: Vec<Entry>,
    /// The services that were written.
    pub services: Vec<Service>,
}

impl Applied {
    /// Returns the entry of a key after the transaction.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.key == key)
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpError {
    /// The operation's position in the transaction.
    pub index: usize,
    /// Consul's text, which is the only way to tell reasons apart.
    pub what: String,
}

impl OpError {
    /// Returns whether a session that held the key was invalidated a short time ago. A watch does not show when that time ends.
    pub fn is_lock_delay(&self) -> bool {
        self.what.contains("due to lock delay")
    }

    /// Returns whether another session holds the lock.
    pub fn is_held(&self) -> bool {
        self.what.contains("lock is already held")
    }

    /// Returns whether this session does not hold the key.
    pub fn is_not_held(&self) -> bool {
        self.what.contains("lock isn't held")
    }

    /// Returns whether the session does not exist, or no longer exists.
    pub fn is_session(&self) -> bool {
        self.what.contains("invalid session")
    }

    /// Returns whether a key or service has another index than expected, is missing, or exists.
    pub fn is_index(&self) -> bool {
        ["failed index check", "failed to check index", "index is stale"].iter().any(|text| self.what.contains(text))
            || self.what.ends_with("exists")
    }

    /// Returns whether the node of a service is not registered.
    pub fn is_node(&self) -> bool {
        self.what.contains("Missing node registration")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawAnswer {
    results: Option<Vec<RawResult>>,
    errors: Option<Vec<RawError>>,
}

#[derive(Deserialize)]
struct RawResult {
    #[serde(rename = "KV")]
    kv: Option<RawEntry>,
    #[serde(rename = "Service")]
    service: Option<Service>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawError {
    op_index: usize,
    what: String,
}

impl Client {
    /// Carries out all operations or none.
    pub async fn transact(&self, operations: &[TxnOp]) -> Transaction {
        let purpose = purpose(operations);
        let body = operations.iter().map(|operation| self.json_of(operation)).collect();
        let request = Request::put(["txn"], purpose).body(&Value::Array(body)).expecting(&[StatusCode::CONFLICT]);
        let answer = match self.send(request).await {
            Ok(answer) => answer,
            Err(error) => return Transaction::Failed(error),
        };
        let raw = match answer.json::<RawAnswer>() {
            Ok(raw) => raw,
            Err(error) => return Transaction::Failed(error),
        };
        if answer.status == StatusCode::CONFLICT {
            let errors: Vec<_> = raw.errors.unwrap_or_default().into_iter().map(OpError::from).collect();
            return match errors.iter().find(|error| error.what.contains("Permission denied")) {
                Some(error) => Transaction::Failed(answer.purpose.forbidden(&error.what)),
                None if errors.is_empty() => Transaction::Failed(answer.refused()),
                None => Transaction::RolledBack(errors),
            };
        }
        let mut applied = Applied::default();
        for result in raw.results.unwrap_or_default() {
            match result.kv.map(RawEntry::read) {
                Some(Some(entry)) => applied.entries.push(entry),
                Some(None) => return Transaction::Failed(answer.purpose.garbled("a value that is not base 64", b"")),
                None => {}
            }
            applied.services.extend(result.service);
        }
        Transaction::Applied(applied)
    }

    fn json_of(&self, operation: &TxnOp) -> Value {
        match operation {
            TxnOp::KvCheckIndex { key, index } => self.kv("check-index", key, json!({"Index": index})),
            TxnOp::KvCheckNotExists { key } => self.kv("check-not-exists", key, json!({})),
            TxnOp::KvLock { key, value, flags, session } => {
                self.kv("lock", key, json!({"Value": STANDARD.encode(value), "Flags": flags, "Session": session}))
            }
            TxnOp::KvUnlock { key, value, flags, session } => {
                self.kv("unlock", key, json!({"Value": STANDARD.encode(value), "Flags": flags, "Session": session}))
            }
            TxnOp::KvSet { key, value, flags } => {
                self.kv("set", key, json!({"Value": STANDARD.encode(value), "Flags": flags}))
            }
            TxnOp::KvDeleteCas { key, index } => self.kv("delete-cas", key, json!({"Index": index})),
            TxnOp::ServiceSet { node, service } => self.service("set", node, service.to_json()),
            TxnOp::ServiceDelete { node, id, name } => self.service("delete", node, json!({"ID": id, "Service": name})),
            TxnOp::ServiceDeleteCas { node, id, name, index } => {
                self.service("delete-cas", node, json!({"ID": id, "Service": name, "ModifyIndex": index}))
            }
        }
    }

    fn kv(&self, verb: &str, key: &str, mut rest: Value) -> Value {
        rest["Verb"] = json!(verb);
        rest["Key"] = json!(key);
        self.put_in_scope(&mut rest);
        json!({"KV": rest})
    }

    fn service(&self, verb: &str, node: &str, mut service: Value) -> Value {
        self.put_in_scope(&mut service);
        json!({"Service": {"Verb": verb, "Node": node, "Service": service}})
    }

    /// Adds the namespace and partition, which each operation needs.
    fn put_in_scope(&self, object: &mut Value) {
        for (name, field) in [("ns", "Namespace"), ("partition", "Partition")] {
            if let Some(value) = self.scope(name) {
                object[field] = json!(value);
            }
        }
    }
}

impl From<RawError> for OpError {
    fn from(raw: RawError) -> Self {
        Self { index: raw.op_index, what: raw.what }
    }
}

/// Returns the purpose of a transaction, by its first operation that writes.
fn purpose(operations: &[TxnOp]) -> Purpose {
    let key_rule = |key: &str| format!("key_prefix \"{key}\" {{ policy = \"write\" }}");
    let service_rule = |node: &str, name: &str| {
        format!("node \"{node}\" {{ policy = \"write\" }} and service \"{name}\" {{ policy = \"write\" }}")
    };
    let named = operations.iter().find_map(|operation| match operation {
        TxnOp::KvCheckIndex { .. } | TxnOp::KvCheckNotExists { .. } => None,
        TxnOp::KvLock { key, session, .. } | TxnOp::KvUnlock { key, session, .. } => {
            let verb = if matches!(operation, TxnOp::KvLock { .. }) { "lock" } else { "unlock" };
            Some(Purpose::new(format!("{verb} the key {key} with session {session}"), key_rule(key)))
        }
        TxnOp::KvSet { key, .. } => Some(Purpose::new(format!("write the key {key}"), key_rule(key))),
        TxnOp::KvDeleteCas { key, .. } => Some(Purpose::new(format!("delete the key {key}"), key_rule(key))),
        TxnOp::ServiceSet { node, service } => Some(Purpose::new(
            format!("write the service {} of node {node}", service.id),
            service_rule(node, &service.name),
        )),
        TxnOp::ServiceDelete { node, id, name } | TxnOp::ServiceDeleteCas { node, id, name, .. } => {
            Some(Purpose::new(format!("delete the service {id} of node {node}"), service_rule(node, name)))
        }
    });
    named.unwrap_or_else(|| Purpose::new("check keys", "key_prefix \"\" { policy = \"read\" }"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(what: &str) -> OpError {
        OpError { index: 0, what: what.into() }
    }

    #[test]
    fn reasons_are_told_apart() {
        assert!(error("failed to lock key \"a\" due to lock delay").is_lock_delay());
        assert!(error("failed to lock key \"a\", lock is already held").is_held());
        assert!(error("failed to unlock key \"a\", lock isn't held, or is held by another session").is_not_held());
        assert!(error("invalid session \"x\"").is_session());
        for what in [
            "failed index check for key \"a\", current modify index 2 != 1",
            "failed to check index, key \"a\" doesn't exist",
            "failed to delete key \"a\", index is stale",
            "key \"a\" exists",
        ] {
            assert!(error(what).is_index(), "{what}");
            assert!(!error(what).is_held() && !error(what).is_lock_delay(), "{what}");
        }
        assert!(!error("failed to lock key \"a\", lock is already held").is_index());
    }

    #[test]
    fn a_transaction_is_named_by_what_it_writes() {
        let operations = [
            TxnOp::KvCheckIndex { key: "a".into(), index: 3 },
            TxnOp::KvLock { key: "a".into(), value: vec![], flags: 0, session: "s".into() },
        ];
        let purpose = purpose(&operations);
        assert_eq!(purpose.what, "lock the key a with session s");
        assert_eq!(purpose.rule, "key_prefix \"a\" { policy = \"write\" }");
    }

    #[test]
    fn answers_are_read() {
        let json = r#"{"Results":[{"KV":{"LockIndex":1,"Key":"a","Flags":0,"Value":null,"Session":"s","CreateIndex":1,
            "ModifyIndex":7}}],"Errors":null,"Index":0,"LastContact":0}"#;
        let raw: RawAnswer = serde_json::from_str(json).unwrap();
        assert_eq!(raw.results.unwrap().len(), 1);
        let raw: RawAnswer = serde_json::from_str(r#"{"Results":null,"Errors":[{"OpIndex":1,"What":"no"}]}"#).unwrap();
        assert_eq!(OpError::from(raw.errors.unwrap().pop().unwrap()), OpError { index: 1, what: "no".into() });
    }
}

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

/// One operation. At most 128 make a transaction, 64 before Consul 1.14.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOp {
    /// The key has this ModifyIndex, or all fails.
    KvCheckIndex {
        /// Which.
        key: String,
        /// The ModifyIndex.
        index: u64,
    },
    /// There is no such key, or all fails.
    KvCheckNotExists {
        /// Which.
        key: String,
    },
    /// Lock and write. The holder itself may do it again; with an identical value that changes nothing, not even the
    /// ModifyIndex.
    KvLock {
        /// Which.
        key: String,
        /// What to write.
        value: Vec<u8>,
        /// See [`LOCK_FLAGS`](super::LOCK_FLAGS).
        flags: u64,
        /// For whom.
        session: String,
    },
    /// Release and write.
    KvUnlock {
        /// Which.
        key: String,
        /// What to write.
        value: Vec<u8>,
        /// See [`LOCK_FLAGS`](super::LOCK_FLAGS).
        flags: u64,
        /// The holder.
        session: String,
    },
    /// Write; takes the lock from nobody.
    KvSet {
        /// Which.
        key: String,
        /// What to write.
        value: Vec<u8>,
        /// For the writers' own use.
        flags: u64,
    },
    /// Delete the key if it has this ModifyIndex, or all fails. A missing key counts as deleted.
    KvDeleteCas {
        /// Which.
        key: String,
        /// The ModifyIndex.
        index: u64,
    },
    /// Write a service of a node. The node must be registered.
    ServiceSet {
        /// The node's name.
        node: String,
        /// What to write; its index is of no account.
        service: Service,
    },
    /// Delete a service of a node, if it is there.
    ServiceDelete {
        /// The node's name.
        node: String,
        /// The service's ID.
        id: String,
        /// The service's name: Consul wants it even where the ID says all.
        name: String,
    },
    /// Delete a service of a node if it has this ModifyIndex, or all fails.
    ServiceDeleteCas {
        /// The node's name.
        node: String,
        /// The service's ID.
        id: String,
        /// The service's name: Consul wants it even where the ID says all.
        name: String,
        /// The ModifyIndex.
        index: u64,
    },
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// All of it is done.
    Applied(Applied),
    /// Nothing is done, because these operations failed.
    RolledBack(Vec<OpError>),
    /// No answer of this kind.
    Failed(Error),
}

/// What a transaction left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The keys, without values, in the order of the operations; deletions and `KvCheckNotExists` give none, `KvCheckIndex` gives
    /// one.
    pub entries: Vec<Entry>,
    /// The services that were written.
    pub services: Vec<Service>,
}

impl Applied {
    /// A key as the transaction left it.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.key == key)
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpError {
    /// Its place in the transaction.
    pub index: usize,
    /// In Consul's words, which is all that tells one reason from another.
    pub what: String,
}

impl OpError {
    /// A session that held the key was invalidated a short time ago. No watch tells when that is over.
    pub fn is_lock_delay(&self) -> bool {
        self.what.contains("due to lock delay")
    }

    /// Somebody else holds the lock.
    pub fn is_held(&self) -> bool {
        self.what.contains("lock is already held")
    }

    /// The key is not held by this session.
    pub fn is_not_held(&self) -> bool {
        self.what.contains("lock isn't held")
    }

    /// The session does not exist (any more).
    pub fn is_session(&self) -> bool {
        self.what.contains("invalid session")
    }

    /// What was expected of a key or service is not so: it has another index, is missing, or exists.
    pub fn is_index(&self) -> bool {
        ["failed index check", "failed to check index", "index is stale"].iter().any(|text| self.what.contains(text))
            || self.what.ends_with("exists")
    }

    /// The node of a service is not registered.
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

    /// Each operation has a namespace of its own.
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

/// What a transaction is for, by its first operation that writes.
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

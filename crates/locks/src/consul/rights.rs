//! C15: whether a key may be written.

use lictor_consul::{Client, Transaction, TxnOp};
use lictor_core::Failure;

use super::failure::failure;
use crate::Refused;

/// Asks for a write that changes nothing. Consul checks the rights before it checks the conditions, and these exclude each other.
pub(super) async fn try_write(client: Client, Refused { key, beside, .. }: Refused) -> Result<(), Failure> {
    let writes = [Some(&key), beside.as_ref()].into_iter().flatten();
    let writes = writes.map(|key| TxnOp::KvSet { key: key.clone(), value: Vec::new(), flags: 0 });
    let never = [TxnOp::KvCheckNotExists { key: key.clone() }, TxnOp::KvCheckIndex { key: key.clone(), index: 1 }];
    match client.transact(&never.into_iter().chain(writes).collect::<Vec<_>>()).await {
        Transaction::RolledBack(_) | Transaction::Applied(_) => Ok(()),
        Transaction::Failed(error) => Err(failure(error)),
    }
}

//! A client of Consul's HTTP API: what a lock needs of it, typed, and no more. The rules of locks are not in here.
//!
//! Every answer comes from the Consul leader; nothing is ever asked with `?stale`. Where a token lacks the right to read, Consul
//! does not say so: lists are empty, and keys are absent. So an empty list proves something only to a token that may read it.

mod access;
mod catalog;
mod client;
mod error;
mod go_duration;
mod keys;
mod sessions;
mod settings;
mod transaction;
mod transport;

pub use access::Login;
pub use catalog::{Agent, CatalogNode, Service};
pub use client::{Client, Connect};
pub use error::Error;
pub use keys::{Entry, LOCK_FLAGS};
pub use sessions::{Bound, NewSession, Renewal, Session};
pub use settings::{Settings, SettingsError};
pub use transaction::{Applied, OpError, Transaction, TxnOp};
pub use transport::{Broken, Received, Sent, Transport};

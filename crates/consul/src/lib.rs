#![doc = include_str!("../README.md")]

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

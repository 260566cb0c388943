//! What only the stores in Consul need.

mod registration;
mod stores;

pub(super) use registration::{Registered, deregister};
pub(super) use stores::{ConsulStores, World};

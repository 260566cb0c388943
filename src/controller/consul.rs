//! The parts that only the stores in Consul need.

mod condition;
mod duty;
mod login;
mod registration;
mod runner;
mod settings;
mod store;
mod stores;

pub(super) use self::registration::{Registered, deregister};
pub(super) use self::store::Context;
pub(super) use self::stores::ConsulStores;

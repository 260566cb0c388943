//! Locks in Consul.

mod sessions;

pub use sessions::{Home, Role, SessionKeeper, SessionSettings, Sessions};

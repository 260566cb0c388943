//! A key in Consul as a lock. [`ConsulLock`] is the whole of it; [`SessionKeeper`] keeps the sessions that hold keys.

mod failure;
mod lock;
mod rights;
mod sessions;

pub use failure::{failure, refused};
pub use lock::{ConsulLock, ConsulLockSettings};
pub use sessions::{Home, SessionKeeper, SessionSettings};

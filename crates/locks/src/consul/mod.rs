//! A key in Consul as a lock. [`ConsulLock`] is the whole of it; [`SessionKeeper`] keeps the sessions that hold keys.

mod failure;
mod lock;
mod rights;
mod sessions;

pub use failure::{failure, refused};
pub use lock::{ConsulLock, ConsulLockSettings};
pub use rights::{Refusals, Refused};
pub(crate) use rights::{Rights, Tried, try_writes};
pub use sessions::{Home, Role, SessionKeeper, SessionSettings, Sessions};

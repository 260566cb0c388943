//! A Lease as a lock. [`LeaseLock`] is the whole of it; [`LeaseClaim`] is the claim alone.

mod claim;
mod lock;

pub use crate::claim::{ClaimUpdate, Holder};
pub use claim::LeaseClaim;
pub use lock::{LeaseLock, LeaseLockSettings};

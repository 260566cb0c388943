//! A Lease as a lock. [`LeaseLock`] is the whole of it; [`LeaseClaim`] is the claim alone.

mod claim;
mod lock;

pub use claim::{ClaimUpdate, Holder, LeaseClaim};
pub use lock::{LeaseLock, LeaseLockSettings};

#![doc = include_str!("../README.md")]

pub mod consul;
pub mod lease;
mod lock;

pub use lictor_core::{HeldLock, Instant, Term};
pub use lictor_process::monotonic;
pub use lock::{Lock, LockUpdate, Other, Problem, Released};

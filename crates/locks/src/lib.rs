#![doc = include_str!("../README.md")]

mod claim;
pub mod consul;
mod content;
mod elector;
mod hub;
pub mod lease;
mod lock;
pub mod objects;
mod rights;
mod sessions;

pub use content::{Content, Entry, Layout, bid_key, bid_of, find};
pub use elector::{Elector, Ended, InvalidDuration, Leader, Leadership};
pub use hub::Hub;
pub use lictor_core::{HeldLock, Instant, Term};
pub use lictor_process::monotonic;
pub use lock::{Lock, LockUpdate, Other, Problem, Released};
pub use rights::{Refusals, Refused};
pub use sessions::{Role, Sessions};

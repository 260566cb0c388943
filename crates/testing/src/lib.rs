//! What lictor's tests and benchmarks share: real control planes and real servers of Consul, who spoils the way to them, recorders that
//! judge what they saw, the contract of lock stores, recorded exchanges, and how tests wait.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "as above; an error is what the last look saw"
)]
#![allow(clippy::must_use_candidate, reason = "what is held is dropped at the end of a test")]
#![allow(missing_docs, reason = "most names say it")]

pub mod consul;
pub mod contract;
mod exchanges;
pub mod kubernetes;
mod prng;
mod skip;
mod wait;

use std::path::PathBuf;

pub use exchanges::{Answer, Request, Server, play};
pub use prng::Prng;
pub use skip::skip;
pub use wait::{PATIENCE, eventually};

/// A file of this repository.
pub fn file(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// The program, as Cargo built it beside the tests and the benchmarks of its package.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let directory = test.parent().and_then(|deps| deps.parent()).expect("it is in deps/");
    directory.join("lictor")
}

//! The shared parts of lictor's tests and benchmarks: real control planes, Consul servers and buckets, proxies that disturb the
//! connections to them, recorders that check what they saw, the contract of lock stores, recorded exchanges, a browser, and waiting.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "as above; an error is what the last look saw"
)]
#![allow(clippy::must_use_candidate, reason = "what is held is dropped at the end of a test")]
#![allow(missing_docs, reason = "most names say it")]

pub mod acts;
mod browser;
pub mod buckets;
pub mod consul;
pub mod contract;
mod events;
mod exchanges;
pub mod kubernetes;
mod link;
mod ports;
mod prng;
mod programs;
mod skip;
mod volume;
mod wait;

use std::path::PathBuf;

pub use browser::Browser;
pub use events::{Event, Events, client};
pub use exchanges::{Answer, Request, Server, play};
pub use link::{Disturbance, Link, Stream};
pub use ports::free_address;
pub use prng::Prng;
pub use programs::{Candidate, ended, kill_together, signal, tool};
pub use skip::skip;
pub use volume::Volume;
pub use wait::{PATIENCE, eventually};

/// Returns the path of a file in this repository.
pub fn file(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// Returns the path of the program that Cargo built beside the tests and benchmarks.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let directory = test.parent().and_then(|deps| deps.parent()).expect("it is in deps/");
    directory.join("lictor")
}

//! `lictor observe`: what it tells over HTTP, in its file and by its hooks, with files that are replaced as kubelet does it, a real API server
//! with a real operator, and a real Consul.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod cluster;
mod consul;
mod files;
mod hooks;
mod http;

use bench::{Bench, Observer};

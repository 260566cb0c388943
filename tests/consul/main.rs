//! The client of Consul, and what stands on it, against real servers.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod answers;
mod client;
mod support;

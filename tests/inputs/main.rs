//! Whatever others write into a cluster or a Consul, and whatever answers in their place: lictor reads it or refuses it with a
//! reason, and nobody else is harmed.
//!
//! The inputs are random, and the same every time. `PROPTEST_CASES=10000 PROPTEST_RNG_SEED=7 cargo test --test inputs` tries
//! more, and others. The core's own tests with such inputs are in `crates/core/src/properties` and
//! `crates/core/src/election/tests/odd_input.rs`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod config;
mod consul;
mod json;
mod leases;
mod objects;
mod server;
mod specs;
mod watches;

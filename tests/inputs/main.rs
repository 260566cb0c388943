//! Whatever others write into a cluster or a Consul, and whatever answers in their place: it is read or refused with a reason, and
//! harms nobody else.
//!
//! The inputs are made at random, the same ones every time; `PROPTEST_CASES=10000 PROPTEST_RNG_SEED=7 cargo test --test inputs`
//! tries more, and others. What the core makes of such inputs is tested beside it, in `crates/core/src/properties` and
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

//! The real core, in all orders in which things can happen, within stated bounds; and without each of its rules, to see that it
//! is needed.
//!
//!     make prove                                                  the long bounds
//!     cargo test --profile prove --package lictor-core --test model -- --nocapture      the short ones
//!
//! What the models leave out is said at the head of each.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod clusters;
mod explore;
mod identity;
mod member;
mod one_cluster;
mod operator;
mod rules;
mod sessions;
mod two_clusters;
mod world;

//! The simulated servers. `tests/simulation/contract.rs` and the recorded exchanges hold them against the real ones.

pub mod api;
pub mod bucket;
pub mod client;
pub mod consul;
pub mod link;

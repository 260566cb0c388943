//! Elections in Consul, on real servers.

mod across;
mod alone;
mod contract;
pub mod failures;
mod login;
pub mod member;
mod several;
mod variants;

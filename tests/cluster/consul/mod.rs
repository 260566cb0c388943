//! Elections in Consul, on real servers.

mod alone;
mod contract;
mod failures;
mod login;
pub mod member;
mod several;
mod variants;

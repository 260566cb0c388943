//! Elections in Consul, on real servers.

mod alone;
mod contract;
mod failures;
mod login;
mod member;
mod several;
mod variants;

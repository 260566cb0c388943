//! Elections in Consul, on real servers.

mod alone;
mod contract;
mod member;
mod several;

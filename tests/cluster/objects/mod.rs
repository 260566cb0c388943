//! Elections whose locks are objects: in buckets on real servers, and in a hub.

pub mod across;
mod beside;
mod contract;
mod hub;

//! Elections whose locks are objects: in buckets on real servers, and in a hub.

mod across;
mod beside;
mod contract;
mod hub;

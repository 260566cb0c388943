//! Elections in a bucket, on real servers.

mod across;
mod contract;

//! `lictor agent` with a real Consul, a real API server and real servers of buckets. The commands hold a lock on a file, which shows that two never run at once, and
//! write down what they live through.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod blob_leases;
mod buckets;
mod ending;
mod examples;
mod faults;
mod leases;
mod listening;
mod locks;
mod round_trips;
mod silent;
mod stalled;
mod stopped;
mod telling;
mod torture;

use bench::{Bench, Running};

//! Everything that users meet, in a real control plane. The API server, etcd, the scheduler and the controllers are real; kwok
//! simulates the nodes. One control plane serves all tests of this binary, each in its own namespace with its own operators.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "a test is as long as its story")]

use tokio::sync::{Mutex, MutexGuard};

mod api_servers;
mod bad_days;
mod bad_input;
mod busy;
mod candidates;
mod classes;
mod commands;
mod consul;
mod elections;
mod examples;
mod exchanges;
mod fair;
mod health;
mod installation;
mod kept;
mod large;
mod late_writer;
mod manifests;
mod many;
mod objects;
mod operator;
mod pods;
mod policies;
mod remains;
mod restored;
mod routing;
mod service;
mod store;
mod switchover;
mod told;
mod visible;
mod workloads;

/// Waits until no other test runs that loads the machine for a minute. Beside two of these, tests that judge how long something took fail.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

//! The chart: what Helm makes of it, and what that is worth on a real control plane, with exactly the rights and the policies that it
//! gives. Nodes are simulated, so the operator's pods are not run: the real program is, beside them, with the service account's token
//! and the arguments from the chart.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "a test is as long as its story")]

mod account;
mod helm;
mod installed;
mod queries;
mod rendered;
mod rights;

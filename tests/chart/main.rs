//! The chart: what Helm renders, and how it works in a real control plane with exactly the rights and policies that it creates.
//! The nodes are simulated and can't run the operator's pods. So the real program runs beside them, with the service account's
//! token and the chart's arguments.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "a test is as long as its story")]

mod account;
mod documented;
mod flux;
mod gitops;
mod helm;
mod installed;
mod platforms;
mod queries;
mod released;
mod rendered;
mod rights;

//! lictor elects one leader among the pods of a group, on Kubernetes, with no change to their code.
//!
//! The layers, and who may import whom (`tests/architecture.rs` holds the code to it):
//!
//! | layer | what it is | imports |
//! |---|---|---|
//! | [`core`] | what decides: pure, no I/O, no clock | nothing |
//! | [`process`] | the process that a task belongs to: its clocks and its tasks | `core` |
//! | [`api`] | the Kubernetes kinds that this project defines, and their reading | `core` |
//! | [`consul`] | a typed client of Consul's HTTP API | `core` |
//! | [`kubernetes`] | what is read and written in the cluster | `core`, `process`, `api` |
//! | [`store`] | where the locks are kept: the port and its adapters | `core`, `process`, `api`, `consul`, `kubernetes` |
//! | [`telemetry`] | logs, metrics, health | `core` |
//! | [`controller`] | the loop: observations in, commands out | all above |
//! | [`cli`] | the command line | all |
//!
//! Without the feature `operator` the library is `core` alone.

#[cfg(feature = "operator")]
pub mod api;
#[cfg(feature = "operator")]
pub mod cli;
#[cfg(feature = "operator")]
pub mod consul;
#[cfg(feature = "operator")]
pub mod controller;
pub mod core;
#[cfg(feature = "operator")]
pub mod kubernetes;
#[cfg(feature = "operator")]
pub mod process;
#[cfg(feature = "operator")]
pub mod store;
#[cfg(feature = "operator")]
pub mod telemetry;

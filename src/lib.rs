//! lictor elects one leader among the pods of a group, on Kubernetes, with no change to their code.
//!
//! The layers, and who may import whom (`tests/architecture.rs` holds the code to it):
//!
//! | layer | what it is | imports |
//! |---|---|---|
//! | [`process`] | the process that a task belongs to: its clocks and its tasks | nothing |
//! | [`api`] | the Kubernetes kinds that this project defines, and their reading | nothing |
//! | [`kubernetes`] | what is read and written in the cluster | `process`, `api` |
//! | [`store`] | where the locks are kept: the port and its adapters | `process`, `api`, `kubernetes` |
//! | [`telemetry`] | logs, metrics, health | nothing |
//! | [`controller`] | the loop: observations in, commands out | all above |
//! | [`cli`] | the command line | all |
//!
//! Two crates stand below all of them: [`lictor_core`] decides, and is pure: no I/O, no clock. [`lictor_consul`] is a typed client of
//! Consul's HTTP API.

pub mod api;
pub mod cli;
pub mod controller;
pub mod kubernetes;
pub mod process;
pub mod store;
pub mod telemetry;

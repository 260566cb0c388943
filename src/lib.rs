//! lictor elects one leader among the pods of a group, on Kubernetes, with no change to their code.
//!
//! The layers, and what each may import (`tests/architecture.rs` checks it):
//!
//! | layer | content | imports |
//! |---|---|---|
//! | [`process`] | the process of a task: its clocks and its tasks | nothing |
//! | [`api`] | the Kubernetes kinds of this project, and the reading of their specs | nothing |
//! | [`kubernetes`] | everything that is read and written in the cluster | `process`, `api` |
//! | [`store`] | where the locks are kept: the port and its adapters | `process`, `api`, `kubernetes` |
//! | [`telemetry`] | logs, metrics, health | `process` |
//! | [`peers`] | the connections between replicas of the operator | `process` |
//! | [`controller`] | the loop: observations in, commands out | all above |
//! | [`cli`] | the command line | all |
//!
//! Below them are two crates. [`lictor_core`] makes the decisions. It is pure: it does no I/O and reads no clock.
//! [`lictor_consul`] is a typed client of Consul's HTTP API.

pub mod api;
pub mod cli;
pub mod controller;
pub mod kubernetes;
pub mod peers;
pub mod process;
pub mod store;
pub mod telemetry;

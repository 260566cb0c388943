//! lictor elects one leader among the pods of a group, on Kubernetes, with no change to their code.
//!
//! The layers, and what each may import (`tests/architecture.rs` checks it):
//!
//! | layer | content | imports |
//! |---|---|---|
//! | [`process`] | the process of a task: its clocks and its tasks | nothing |
//! | [`api`] | the Kubernetes kinds of this project, and the reading of their specs | nothing |
//! | [`wording`] | the words for what the core decides | nothing |
//! | [`kubernetes`] | everything that is read and written in the cluster | `process`, `api` |
//! | [`store`] | where the locks are kept: the port and its adapters | `process`, `api`, `kubernetes` |
//! | [`telemetry`] | logs, metrics, health | `process` |
//! | [`peers`] | the connections between replicas of the operator | `process` |
//! | [`agent`] | `lictor agent`: a command that runs only while its lock is held | `process`, `kubernetes`, `store` |
//! | [`observe`] | `lictor observe`: tells a program who leads | `process`, `api`, `kubernetes`, `store`, `agent` |
//! | [`controller`] | the loop: observations in, commands out | all above |
//! | [`cli`] | the command line | all |
//!
//! The operator runs on Linux only. The layers that it alone needs are left out on other systems, and so is what it alone needs of the
//! others: `store::consul` and `cli::operator::linux`. What is left is `kubectl lictor`, which runs everywhere.
//!
//! Below them are two crates. [`lictor_core`] makes the decisions. It is pure: it does no I/O and reads no clock.
//! [`lictor_consul`] is a typed client of Consul's HTTP API.

#[cfg(target_os = "linux")]
pub mod agent;
pub mod api;
pub mod cli;
#[cfg(target_os = "linux")]
pub mod controller;
pub mod kubernetes;
#[cfg(target_os = "linux")]
pub mod observe;
#[cfg(target_os = "linux")]
pub mod peers;
pub mod process;
pub mod store;
#[cfg(target_os = "linux")]
pub mod telemetry;
pub mod wording;

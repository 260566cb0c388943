//! lictor elects one leader among the pods of a group, on Kubernetes, with no change to their code.
//!
//! The layers, and what each may import (`tests/architecture.rs` checks it):
//!
//! | layer | content | imports |
//! |---|---|---|
//! | [`wording`] | the words for what the core decides | nothing |
//! | [`kubernetes`] | everything that is read and written in the cluster | nothing |
//! | [`store`] | where the locks are kept: the port and its adapters | `kubernetes` |
//! | [`telemetry`] | logs, metrics, health | nothing |
//! | [`peers`] | the connections between replicas of the operator | nothing |
//! | [`controller`] | the loop: observations in, commands out | all above |
//! | [`cli`] | the command line | all |
//!
//! The operator runs on Linux only. The layers that it alone needs are left out on other systems, and so is what it alone needs of the
//! others: `store::consul` and `cli::operator::linux`. What is left is `kubectl lictor`, which runs everywhere.
//!
//! Below them are crates, which Cargo keeps apart: ARCHITECTURE.md has them all.

pub mod cli;
#[cfg(target_os = "linux")]
pub mod controller;
pub mod kubernetes;
#[cfg(target_os = "linux")]
pub mod peers;
pub mod store;
#[cfg(target_os = "linux")]
pub mod telemetry;
pub mod wording;

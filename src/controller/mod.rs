//! The loop of the operator: observations in, commands out.
//!
//! One task owns everything that is known ([`index`]) and every election's decision ([`lictor_core::Election`]); it never waits for
//! a request. What is to be done in the world is done by tasks of their own ([`execute`]), and the outcomes come back as inputs.

mod announce;
mod classes;
mod entry;
mod events;
mod execute;
mod index;
mod input;
mod lanes;
mod names;
mod naming;
mod permit;
mod probe;
mod registration;
mod requests;
mod run;
mod status;
mod timers;
mod wording;
mod workloads;

pub use input::Input;
pub use run::{Controller, Parameters, Purpose};

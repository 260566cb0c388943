//! The loop of the operator: observations in, commands out.
//!
//! One task owns everything that is known ([`index`]) and every election's decision ([`lictor_core::Election`]); it never waits for
//! a request. What is to be done in the world is done by tasks of their own ([`executor`]), and the outcomes come back as inputs.

mod announce;
mod class_status;
mod consul;
mod entry;
mod executor;
mod index;
mod input;
mod names;
mod object;
mod on_demand;
mod parameters;
mod permit;
mod run;
mod status;
mod steps;
mod sync;
mod timers;
mod wording;

pub use input::Input;
pub use parameters::{Parameters, Purpose};
pub use run::Controller;

//! The loop of the operator: observations in, commands out.
//!
//! One task owns all knowledge ([`index`]) and every election's decision ([`lictor_core::Election`]), and it never waits for a request.
//! Requests run in tasks of their own ([`executor`]), and their outcomes come back as inputs.

mod announce;
mod class_status;
mod dial;
mod entry;
mod executor;
mod followed;
mod index;
mod input;
mod lookup;
mod names;
mod object;
mod on_demand;
mod parameters;
mod permit;
mod run;
mod status;
mod steps;
mod stores;
mod switchover;
mod sync;
mod timers;

pub use dial::{Connection, Dial, dialer};
pub use input::Input;
pub use parameters::{Parameters, Purpose};
pub use run::Controller;
pub use stores::{Clients, Open, Site};

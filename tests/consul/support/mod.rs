//! Consul's servers, and what spoils the way to them. Whoever includes this also has a module `wait`, `tests/support/wait.rs`.

#![allow(dead_code, unused_imports, reason = "each program that includes this needs something else of it")]

mod api;
mod held;
mod servers;
mod toxiproxy;

pub use api::{Answer, Api};
pub use held::Held;
pub use servers::{Consul, Kind, Server};
pub use toxiproxy::{ToxicProxy, Toxiproxy};

pub use crate::wait::eventually;

//! Consul servers, and proxies that disturb the connections to them.

mod api;
mod held;
mod servers;

pub use api::{Answer, Api};
pub use held::Held;
pub use servers::{Consul, Kind, Server};

pub use crate::wait::eventually;

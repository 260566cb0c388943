//! `lictor observe`: tells a program which pod leads, without taking part in the election. `lictor agent` tells the same about its own
//! lock.
//!
//! ```text
//! source ─► Knowledge ─► HTTP server, log of events
//! (files,   who leads,    └─► state file
//!  cluster, how old       └─► hooks, one at a time
//!  consul,  that is
//!  agent)
//! ```
//!
//! News reaches an observer late, and later when the observer is cut off. So each answer says how old it is, and [`Knowledge`] stops
//! saying that this pod leads after too long a silence. No rule of docs/protocol.md rests on this layer, because it writes nothing that an
//! election reads.

mod about;
mod agent;
mod answers;
mod beside;
mod cluster;
mod consul;
mod events;
mod files;
mod heard;
mod hooks;
mod knowledge;
mod metrics;
mod run;
mod server;
mod shared;
mod state_file;

pub use about::{About, Own};
pub use agent::{hear_agent, with_agent};
pub use beside::run_hooks;
pub use cluster::hear_election;
pub use consul::hear_key;
pub use files::hear_files;
pub use heard::{Fact, Heard, Leader, Role};
pub use hooks::Hooks;
pub use run::{HooksAt, Settings, Telling, once, run};

//! `lictor agent`: takes part in an election, and runs a command only while it holds the lock.
//!
//! The agent is a chain of processes, so that nothing outlives the lock, whichever one or two of the first three are killed or stopped:
//!
//! ```text
//! watchdog       the process that the user started. Forwards signals, passes on the exit code, reaps
//! └─ guard       the same again, with another name and its own session, so a signal to all processes named lictor misses it
//!    ├─ agent    keeps the lock. lictor_core::Agent decides
//!    │  └─ command, and all its descendants
//!    └─ hooks    only if there are hooks: tell others who leads (`observe`)
//! ```
//!
//! The agent tells the watchdog and the guard until when the command may live, before it starts the command and with each renewal. All
//! three kill the command and its descendants in time, each by its own clock: the agent a little before the end, the others at the end.
//! All are subreapers, so a process that becomes a daemon stays below them, even when two of them are gone.

mod beside;
mod command;
mod gate;
mod http;
mod life;
mod link;
pub mod observe;
mod place;
mod processes;
mod requests;
mod run;
mod signals;
mod watchdog;

pub use beside::{HOOKS, accept, connect};
pub use command::{CommandLine, TERM_VARIABLE};
pub use gate::pass;
pub use http::{is_loopback, with_requests};
pub use life::{Processes, live};
pub use place::{Held, Name, Place};
pub use processes::{reap, signal_below};
pub use requests::{Condition, Handle, Requests, Yielded, requests};
pub use run::run;
pub use signals::children;
pub use watchdog::{GUARD_VARIABLE, Guarded, Part, guard, watch};

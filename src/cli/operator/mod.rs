//! The operator's subcommands. The operator runs on Linux only; on other systems its subcommands say so.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{Commands, EXAMPLE};
#[cfg(target_os = "linux")]
pub(super) use linux::{Commands, EXAMPLE};

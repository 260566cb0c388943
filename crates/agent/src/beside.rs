//! The link between an agent and the process beside it that runs its hooks. `observe` defines the messages.
//!
//! Hooks can't run in the agent itself, because all processes below the agent belong to its command and are killed with it.

use std::io;
use std::os::unix::net::UnixStream as Std;
use std::time::Duration;

use anyhow::Context;
use lictor_process::nap;
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::place::Name;

/// The part of a name under which the process beside an agent waits for it.
pub const HOOKS: &str = "hooks";

/// How long an agent waits until that process listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects to the process beside this agent.
///
/// # Errors
/// If the process does not listen in time.
pub async fn connect(name: &Name) -> anyhow::Result<UnixStream> {
    let listens = async {
        loop {
            match Std::connect_addr(&name.address(HOOKS)?) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => nap(Duration::from_millis(5)).await,
                connected => return connected,
            }
        }
    };
    let stream = timeout(PATIENCE, listens).await.map_err(io::Error::from).flatten();
    let stream = stream.context("can't reach the process that runs the hooks")?;
    stream.set_nonblocking(true)?;
    Ok(UnixStream::from_std(stream)?)
}

/// Waits for the agent with this id. After that, the name is free for a later one.
///
/// # Errors
/// If the name can't be taken, or the listener fails.
pub async fn accept(name: &Name, agent: Pid) -> anyhow::Result<UnixStream> {
    // Until then, only the watchdog's end shows that no further agent will come.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let held = name.take(HOOKS).await?;
    loop {
        let (stream, _) = held.listener().accept().await?;
        // Any process in this network namespace can connect.
        if stream.peer_cred().ok().and_then(|peer| peer.pid()) == Some(agent.as_raw_nonzero().get()) {
            set_parent_process_death_signal(None)?;
            return Ok(stream);
        }
    }
}

//! The place of an agent. The kernel ensures that only one agent of a name runs in a place at a time.
//!
//! A5: an agent reuses the session and the name of an earlier process only if that process is surely gone. The kernel gives a name in the
//! abstract namespace to one socket of a network namespace, and takes it back when the last process with that socket ends. The agent
//! passes its socket down to its command and all descendants. The names of a session and a holder include the place, too, so an agent of
//! the same name in another place never has them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use anyhow::{Context, bail};
use lictor_core::seed_of;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// How long to wait for an earlier process of the same name that is about to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lowest number of the socket that a command inherits. Scripts use small numbers for their own files (`exec 9>lock`).
const OUT_OF_THE_WAY: i32 = 500;

/// A network namespace of one start of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(String);

impl Place {
    /// Returns the place of this process.
    ///
    /// # Errors
    /// If /proc can't be read.
    pub fn here() -> anyhow::Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let namespace = std::fs::read_link("/proc/self/ns/net");
        let (boot, namespace) = boot
            .and_then(|boot| Ok((boot, namespace?)))
            .context("can't read where this process is from /proc, which the agent needs: mount it")?;
        Ok(Self(format!("{:016x}", seed_of(&format!("{} {}", boot.trim(), namespace.display())))))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of an agent for one lock. Two agents with the same name must not run in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The lock.
    pub key: String,
    /// The agent.
    pub identity: String,
}

impl Name {
    /// Takes the name for a part of the chain, `watchdog` or `agent`. The name is given back when the result is dropped, or the process
    /// ends.
    ///
    /// # Errors
    /// If another process still has the name after the time that it needs to end.
    pub async fn take(&self, part: &str) -> anyhow::Result<Held> {
        let begun = std::time::Instant::now();
        let mut told = false;
        loop {
            match UnixListener::bind_addr(&self.address(part)?) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    let listener = tokio::net::UnixListener::from_std(listener)?;
                    return Ok(Held { name: self.clone(), listener });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::info!(
                            part,
                            "waiting for processes that an earlier agent of this name has left behind"
                        );
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
                    "an agent of the name {} for the lock {} already runs here, or has left processes behind: give \
                     this one another --identity, or end the other one",
                    self.identity,
                    self.key
                ),
                Err(error) => return Err(error).context("can't take the agent's name"),
            }
        }
    }

    pub(super) fn address(&self, part: &str) -> io::Result<SocketAddr> {
        // Such an address has at most 107 bytes.
        let sum = seed_of(&format!("{}\n{}", self.key, self.identity));
        SocketAddr::from_abstract_name(format!("lictor-agent/{sum:016x}/{part}"))
    }
}

/// A name that this process holds.
#[derive(Debug)]
pub struct Held {
    name: Name,
    listener: tokio::net::UnixListener,
}

impl Held {
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Lets each process that is started from now on hold the name, too, while the returned value exists. The name is given back when the
    /// last of them ends, even if both the agent and its watchdog are killed at the same moment.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub(super) fn hand_down(&self) -> io::Result<OwnedFd> {
        let inherited = fcntl_dupfd_cloexec(&self.listener, OUT_OF_THE_WAY)?;
        fcntl_setfd(&inherited, FdFlags::empty())?;
        Ok(inherited)
    }

    pub(super) fn listener(&self) -> &tokio::net::UnixListener {
        &self.listener
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(identity: &str) -> Name {
        Name { key: format!("a test of {}", std::process::id()), identity: identity.into() }
    }

    /// Shows A5.
    #[tokio::test]
    async fn one_process_at_a_time_has_a_name() {
        let held = name("one").take("agent").await.expect("nobody has it");
        name("two").take("agent").await.expect("another name is another one's");
        let again = tokio::time::timeout(Duration::from_millis(100), name("one").take("agent")).await;
        again.expect_err("it waits");
        drop(held);
        name("one").take("agent").await.expect("it was given back");
    }
}

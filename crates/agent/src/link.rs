//! The messages of the agent to its watchdog and its guard: until when the command may live. Each has eight bytes: nanoseconds since the
//! machine's start, or zero for "there is none".

use std::io;
use std::os::unix::net::UnixStream as Std;

use lictor_core::{Instant, Watchdog};
use lictor_process::{boot_nanoseconds, from_boot_nanoseconds};
use rustix::process::Pid;
use tokio::net::UnixStream;

use super::place::{Held, Name};
use super::processes::parent_of;

/// The part of the name under which a watchdog waits for its agent.
pub(super) const WATCHDOG: &str = "watchdog";
/// The same for the guard.
pub(super) const GUARD: &str = "guard";

/// The agent's end.
pub(super) struct ToWatchdog {
    stream: UnixStream,
    /// The last message.
    until: Option<Instant>,
}

impl ToWatchdog {
    /// Connects to the watchdog, or the guard, of this name.
    pub(super) fn connect(name: &Name, part: &str) -> io::Result<Self> {
        let stream = Std::connect_addr(&name.address(part)?)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream: UnixStream::from_std(stream)?, until: None })
    }

    /// Repeats the last message, which shows that this process is alive.
    pub(super) fn tell_again(&mut self) {
        self.tell(self.until);
    }

    /// Tells until when the command may live. A watchdog that no longer reads keeps the last message, which is earlier.
    pub(super) fn tell(&mut self, until: Option<Instant>) {
        self.until = until;
        let nanoseconds = until.map_or(0, |until| boot_nanoseconds(until).max(1));
        if let Err(error) = self.stream.try_write(&nanoseconds.to_le_bytes()) {
            tracing::debug!(%error, "the watchdog could not be told");
        }
    }

    /// Waits until the watchdog has ended.
    pub(super) async fn closed(&self) {
        let mut nothing = [0; 8];
        while self.stream.readable().await.is_ok() {
            match self.stream.try_read(&mut nothing) {
                Ok(read) if read > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// The watchdog's end.
pub(super) struct FromAgent {
    listener: Held,
    child: Pid,
    /// Whether the child is the guard, and the agent is the guard's child.
    is_above: bool,
    agent: Option<Pid>,
    stream: Option<UnixStream>,
    /// The received part of a message.
    part: Vec<u8>,
    /// Whether the agent has closed its end, as it does when it ends.
    closed: bool,
}

impl FromAgent {
    /// Listens to the agent, which is this process's child.
    pub(super) fn of(agent: Pid, listener: Held) -> Self {
        Self { listener, child: agent, is_above: false, agent: None, stream: None, part: vec![], closed: false }
    }

    /// Listens to the agent, which is a child of the guard.
    pub(super) fn below(guard: Pid, listener: Held) -> Self {
        Self { is_above: true, ..Self::of(guard, listener) }
    }

    /// The agent, while it exists.
    pub(super) fn agent(&self) -> Option<Pid> {
        self.agent.filter(|_| !self.closed)
    }

    /// Waits until there may be something to read.
    pub(super) async fn ready(&mut self) {
        loop {
            if let Some(stream) = self.stream.as_ref().filter(|_| !self.closed)
                && stream.readable().await.is_ok()
            {
                return;
            }
            if self.stream.is_some() {
                return std::future::pending().await;
            }
            let Ok((stream, _)) = self.listener.listener().accept().await else { continue };
            // Any process in this network namespace can connect.
            let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
            let Some(peer) = peer.and_then(Pid::from_raw) else { continue };
            let shown = if self.is_above { parent_of(peer) } else { Some(peer) };
            if shown == Some(self.child) {
                (self.stream, self.agent) = (Some(stream), Some(peer));
            }
        }
    }

    /// Passes on the agent's last message. Returns whether a message came since the last call. This never waits.
    pub(super) fn tell(&mut self, watchdog: &mut Watchdog) -> bool {
        let Some(stream) = &self.stream else { return false };
        let mut buffer = [0; 512];
        loop {
            // The runtime reads only after the system reported readable data. After this process was stopped, the runtime has not yet seen
            // newer messages, and the command would be killed at a time that the agent has since put off.
            let read = match stream.try_read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    rustix::io::read(stream, &mut buffer).map_err(io::Error::from)
                }
                read => read,
            };
            match read {
                Ok(0) => {
                    self.closed = true;
                    break;
                }
                Err(_) => break,
                Ok(read) => self.part.extend_from_slice(&buffer[..read]),
            }
        }
        let whole = self.part.len() / 8 * 8;
        let last = self.part[..whole].rchunks_exact(8).next().and_then(|message| message.try_into().ok());
        self.part.drain(..whole);
        if let Some(message) = last {
            let nanoseconds = u64::from_le_bytes(message);
            watchdog.told((nanoseconds != 0).then(|| from_boot_nanoseconds(nanoseconds)));
        }
        last.is_some()
    }
}

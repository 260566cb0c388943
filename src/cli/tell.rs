//! How `lictor observe` and `lictor agent` report the leader: where they listen, the state file, and hooks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Command};
use tokio::net::TcpListener;

use lictor_agent::observe::Hooks;

/// The hooks' shortest and longest time.
const HOOK_TIMES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// The variables that a program does not inherit from the `lictor agent` that started it, because each needs its own.
const OF_EACH: [&str; 4] = ["listen", "state_file", "on_leader", "on_follower"];

/// The recipients of news about the leader, besides HTTP clients.
#[derive(Debug, Args)]
pub(super) struct Tell {
    /// A file with the answer to GET /election. lictor replaces it atomically, and deletes it at the end.
    #[arg(long, env = "LICTOR_STATE_FILE", value_name = "FILE")]
    pub(super) state_file: Option<PathBuf>,

    /// The command to run by `sh -c` when this pod or agent begins to lead. LICTOR_ROLE, LICTOR_TERM, LICTOR_LEADER and
    /// LICTOR_ELECTION are in its environment.
    #[arg(long, env = "LICTOR_ON_LEADER", value_name = "COMMAND")]
    on_leader: Option<String>,

    /// The command to run when this pod or agent does not lead: at the start, when it stops leading, when it can no
    /// longer tell whether it leads, and at the end if it led.
    #[arg(long, env = "LICTOR_ON_FOLLOWER", value_name = "COMMAND")]
    on_follower: Option<String>,

    /// How long a hook may run before it gets SIGTERM, and 2s later SIGKILL. When a hook ends, lictor kills the
    /// processes that it leaves behind.
    #[arg(long, env = "LICTOR_HOOK_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = hook_timeout)]
    hook_timeout: Duration,
}

impl Tell {
    /// Returns the hooks, if there are any.
    pub(super) fn hooks(&self) -> anyhow::Result<Option<Hooks>> {
        let (on_leader, on_follower) = (self.on_leader.clone(), self.on_follower.clone());
        if on_leader.is_none() && on_follower.is_none() {
            return Ok(None);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|directory| directory.join("sh").is_file()) {
            bail!(
                "--on-leader and --on-follower need a shell, and there is no sh on the PATH. The image of lictor has \
                 none: copy its program into your own image"
            );
        }
        Ok(Some(Hooks { on_leader, on_follower, timeout: self.hook_timeout }))
    }
}

/// Returns a subcommand for a program that `lictor agent` has started: the agent's own settings in the environment do
/// not apply to that program.
pub(super) fn nested(command: Command) -> Command {
    OF_EACH.into_iter().fold(command, |command, name| command.mut_arg(name, |argument| argument.env(None::<&str>)))
}

/// Where to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listen {
    /// At both addresses of the loopback interface, one of which a pod may lack.
    Localhost(u16),
    At(SocketAddr),
}

impl Listen {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("localhost:").map(str::parse) {
            Some(Ok(port)) => Ok(Self::Localhost(port)),
            Some(Err(_)) => Err("write a port after the colon, for example localhost:4040".into()),
            None => text
                .parse()
                .map(Self::At)
                .map_err(|_| "write ADDRESS:PORT, for example localhost:4040 or 127.0.0.1:4040".into()),
        }
    }

    /// Returns the address, unless it means both addresses of localhost.
    pub(super) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Localhost(_) => None,
            Self::At(address) => Some(address.ip()),
        }
    }

    pub(super) async fn bind(self) -> anyhow::Result<Vec<TcpListener>> {
        let bind = async |address: SocketAddr| {
            let bound = TcpListener::bind(address).await;
            bound.with_context(|| format!("can't listen at {address}: give --listen another address or port"))
        };
        match self {
            Self::At(address) => Ok(vec![bind(address).await?]),
            Self::Localhost(port) => {
                let first = bind((Ipv4Addr::LOCALHOST, port).into()).await?;
                let port = first.local_addr()?.port();
                let second = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await;
                Ok([Some(first), second.ok()].into_iter().flatten().collect())
            }
        }
    }
}

/// Reads a duration, which has a unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and ms, s, m or h, for example 15s".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(wrong)
}

fn hook_timeout(text: &str) -> Result<Duration, String> {
    let (time, (shortest, longest)) = (duration(text)?, HOOK_TIMES);
    if (shortest..=longest).contains(&time) {
        Ok(time)
    } else {
        Err(format!("it must be from {shortest:?} to {longest:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, milliseconds) in [("15s", 15_000), ("250ms", 250), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "15", "s", "-1s", "1.5s", "1d", "99999999999999999999s", "9999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_can_not_be_is_refused() {
        assert_eq!(Listen::parse("localhost:0"), Ok(Listen::Localhost(0)));
        assert!(matches!(Listen::parse("[::]:80"), Ok(Listen::At(_))));
        for text in ["", "4040", "localhost", "localhost:", "localhost:70000", "example.com:80"] {
            assert!(Listen::parse(text).is_err(), "{text}");
        }
        assert!(hook_timeout("10s").is_ok() && hook_timeout("0s").is_err() && hook_timeout("2h").is_err());
    }
}

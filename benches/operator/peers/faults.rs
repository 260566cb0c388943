//! What is done to the leader, and what becomes of it.

use std::time::Duration;

use lictor_testing::acts::{both, longest_without, moment, seconds};
use tokio::time::{Instant, sleep};

use super::contender::{Contender, LOOK};
use super::kind::Kind;
use super::processes::signal;

/// How long the next leader is waited for. Consul takes twice the TTL and the lock delay: 45 s for `consul lock`.
pub const PATIENCE: Duration = Duration::from_secs(75);
/// How long it is waited for when the leader's work hangs: whoever notices that does within seconds.
pub const HANGING: Duration = Duration::from_secs(25);
/// How long the server is away for both.
pub const AWAY: Duration = Duration::from_secs(20);
/// How long the old leader is watched after the next one began: longer than client-go's renew deadline.
pub const AFTERWARDS: Duration = Duration::from_secs(15);
/// How long after the next one began the old one goes on, if it was stopped.
pub const RESUMED: Duration = Duration::from_secs(3);
/// The least of that, for what comes late.
const LATE: Duration = Duration::from_secs(1);

/// Something that happens to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGTERM to its program. In a pod of the operator's the pod is deleted, too.
    Asked,
    /// SIGKILL to the process that holds the lock.
    Killed,
    /// SIGSTOP to that process, and SIGCONT some seconds after another one began to lead.
    Stopped,
    /// The same to all processes: as when a container or a machine is frozen.
    Frozen,
    /// Its work hangs, and only that: it does nothing, and answers nothing.
    Hung,
    /// Its own way to the server is cut, until another one leads.
    CutOff,
    /// The server is away for both.
    Away,
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// From the fault to the first act of the next leader, or to its label, in seconds. `None`: there was none in time, or none is wanted.
    pub next: Option<f64>,
    /// For how many seconds both acted. `None`: that can't be seen.
    pub both: Option<f64>,
    /// The old one still acted when nobody looked any more.
    pub goes_on: bool,
    /// The longest time in which nobody acted, in seconds.
    pub nobody: f64,
}

impl Fault {
    pub const ALL: [Self; 7] =
        [Self::Asked, Self::Killed, Self::Stopped, Self::Frozen, Self::Hung, Self::CutOff, Self::Away];

    /// Its name in figures.
    pub fn id(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Frozen => "frozen",
            Self::Hung => "hung",
            Self::CutOff => "cutOff",
            Self::Away => "away",
        }
    }

    /// Whether it is something of its own for this kind.
    pub fn is_of(self, kind: Kind) -> bool {
        match self {
            // One process is all of it.
            Self::Frozen => kind.has_command(),
            // Nothing makes its work hang from outside.
            Self::Hung => kind != Kind::Scheduler,
            // A pod that lictor elects talks to no server.
            Self::CutOff => kind != Kind::Operator,
            _ => true,
        }
    }

    /// Does it to the leader of a settled group.
    pub async fn run(self, group: &mut Contender<'_>, settled: Duration) -> anyhow::Result<Outcome> {
        let old = group.settle(settled).await?;
        group.members.iter_mut().for_each(|member| member.trace.begin());
        let tree = group.tree(old)?;
        let (started, holder) = (Contender::started(&tree), group.holder(&tree));
        let start = moment();
        match self {
            Self::Asked => {
                signal("TERM", &started)?;
                if group.kind == Kind::Operator {
                    group.delete_pod(old).await?;
                }
            }
            Self::Killed => signal("KILL", &holder)?,
            Self::Stopped => signal("STOP", &holder)?,
            Self::Frozen => signal("STOP", &tree.all)?,
            Self::Hung => signal("USR1", &Contender::worker(&tree))?,
            Self::CutOff => group.links[old].disable().await,
            Self::Away => {
                for link in &group.links {
                    link.disable().await;
                }
            }
        }
        // What was ended stays so, until it is all over.
        group.members[old].down = matches!(self, Self::Asked | Self::Killed | Self::Hung);
        let next = if self == Self::Away {
            self.outlast(group).await?;
            None
        } else {
            self.next(group, 1 - old, start).await?
        };
        if matches!(self, Self::Stopped | Self::Frozen) {
            sleep(RESUMED).await;
            signal("CONT", &tree.all)?;
        }
        let since = Instant::now();
        while since.elapsed() < LATE
            || (self != Self::Away && group.members[old].trace.acts() && since.elapsed() < AFTERWARDS)
        {
            group.restart_ended()?;
            sleep(LOOK * 5).await;
            if next.is_none() && since.elapsed() >= LATE {
                break;
            }
        }
        let end = moment();
        let goes_on = next.is_some() && group.members[old].trace.acts();
        let spans = [group.members[0].trace.spans(), group.members[1].trace.spans()];
        let seen = Outcome {
            next: next.map(|at| seconds(start, at)),
            // A scheduler says when it leads, and not what it does.
            both: (group.kind != Kind::Scheduler).then(|| both(&spans[0], &spans[1])),
            goes_on,
            nobody: longest_without(&[&spans[0], &spans[1]], start, end),
        };
        for link in &group.links {
            link.enable().await;
        }
        if group.members[old].down {
            group.kill(old, &tree.all)?;
        }
        Ok(seen)
    }

    async fn next(self, group: &mut Contender<'_>, other: usize, start: u64) -> anyhow::Result<Option<u64>> {
        let end = Instant::now() + if self == Self::Hung { HANGING } else { PATIENCE };
        while Instant::now() < end {
            if let Some(at) = group.members[other].trace.begins_after(start) {
                return Ok(Some(at));
            }
            group.restart_ended()?;
            sleep(LOOK).await;
        }
        Ok(None)
    }

    /// Waits until the server has been away for its time, and somebody acts afterwards.
    async fn outlast(self, group: &mut Contender<'_>) -> anyhow::Result<()> {
        let back = Instant::now() + AWAY;
        let mut mended = false;
        loop {
            group.restart_ended()?;
            if !mended && Instant::now() >= back {
                mended = true;
                for link in &group.links {
                    link.enable().await;
                }
            }
            let acts = group.members.iter().any(|member| member.trace.acts());
            if (mended && acts) || Instant::now() > back + PATIENCE {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }
}

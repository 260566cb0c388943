//! Hooks of an agent. They run in a process beside the agent, because all processes below an agent are killed with its command. The agent
//! sends each change as a line of JSON, and that process reports each hook that has ended.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::Role;
use super::hooks::{Done, GRACE, Hooks, Runner, kill_the_rest};
use super::knowledge::State;
use crate::signals::endings;

/// How much longer than two hooks the agent waits for the end of this process.
const SLACK: Duration = Duration::from_secs(12);

/// Runs the hooks of the agent at the other end, until the agent says that it ends, or is gone.
///
/// # Errors
/// If the process can't begin.
pub async fn run_hooks(hooks: Hooks, election: String, agent: UnixStream) -> anyhow::Result<()> {
    // A service manager that ends all processes of a service at once signals this one, too, but the agent decides when it ends.
    let _signals = endings().context("can't wait for signals")?;
    let (read, mut write) = agent.into_split();
    let (states, told) = watch::channel(State::default());
    let (done, mut ended) = mpsc::unbounded_channel();
    let runner = Runner::new(hooks, election, done).context("can't begin to run hooks")?;
    let listens = async {
        let mut lines = BufReader::new(read).lines();
        while let Some(state) = next(&mut lines).await {
            states.send_replace(state);
        }
        states.send_modify(|state: &mut State| (state.role, state.ended) = (Role::Unknown, true));
        std::future::pending::<()>().await;
    };
    let tells = async {
        while let Some(done) = ended.recv().await {
            let _: std::io::Result<()> = send::<Done>(&mut write, &done).await;
        }
    };
    tokio::select! {
        ((), ()) = futures::future::join(runner.run(told), tells) => {}
        () = listens => {}
    }
    kill_the_rest().await;
    Ok(())
}

/// Sends each state to that process, and passes its finished hooks to `done`, until both have ended.
pub(super) async fn hand_on(
    beside: UnixStream,
    longest: Duration,
    mut states: watch::Receiver<State>,
    done: mpsc::UnboundedSender<Done>,
) {
    let (read, mut write) = beside.into_split();
    let mut lines = BufReader::new(read).lines();
    let listens = async {
        while let Some(ended) = next(&mut lines).await {
            let _ = done.send(ended);
        }
    };
    let tells = async {
        loop {
            let state = states.borrow_and_update().clone();
            if send(&mut write, &state).await.is_err() {
                return tracing::error!("the process that runs the hooks is gone: no more hooks run");
            }
            if state.ended || states.changed().await.is_err() {
                return;
            }
        }
    };
    let mut listens = std::pin::pin!(listens);
    tokio::select! {
        biased;
        () = &mut listens => return tracing::error!("the process that runs the hooks has ended: no more hooks run"),
        () = tells => {}
    }
    if timeout((longest + GRACE) * 2 + SLACK, listens).await.is_err() {
        tracing::warn!("no longer waiting for hooks");
    }
}

async fn send<T: Serialize + Sync>(stream: &mut OwnedWriteHalf, message: &T) -> std::io::Result<()> {
    let line = serde_json::to_string(message)? + "\n";
    stream.write_all(line.as_bytes()).await
}

/// Returns the next message, or `None` if the other process is gone.
async fn next<T: DeserializeOwned>(lines: &mut Lines<BufReader<OwnedReadHalf>>) -> Option<T> {
    let line = lines.next_line().await.ok()??;
    serde_json::from_str(&line).ok()
}

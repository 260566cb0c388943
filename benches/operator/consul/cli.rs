//! `consul lock`: the same by Consul's own program, with two contenders, each of which runs a child that notes when it starts.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use serde_json::Value;

use super::Consul;

const PREFIX: &str = "bench-consul-lock";
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);
/// The time after which a contender with a session certainly waits for the lock.
const WAITS: Duration = Duration::from_secs(1);

/// The holder, and the contender that waits.
pub struct Contenders<'a> {
    consul: &'a Consul,
    started: u32,
    holder: Contender,
    waiting: Contender,
    /// The directory of the notes. It is deleted after the contenders, which find their children by the notes.
    directory: Directory,
    /// One of their sessions, as Consul has it, which tells them apart from the operator's.
    pub session: Value,
}

struct Directory(PathBuf);

struct Contender {
    program: Child,
    note: PathBuf,
}

impl<'a> Contenders<'a> {
    pub async fn start(consul: &'a Consul) -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("lictor-bench-lock-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let directory = Directory(directory);
        let holder = Contender::start(consul, directory.0.join("0"))?;
        holder.leads().await?;
        let waiting = Contender::start(consul, directory.0.join("1"))?;
        let session = waits(consul, 2).await?;
        Ok(Self { consul, started: 2, holder, waiting, directory, session })
    }

    /// Ends the holder's program by a signal. Returns how long after it the other's child started. There are two contenders again
    /// afterwards.
    pub async fn end(&mut self, signal: &str) -> anyhow::Result<Duration> {
        let start = SystemTime::now();
        let pid = self.holder.program.id().to_string();
        anyhow::ensure!(Command::new("kill").args([&format!("-{signal}"), &pid]).status()?.success(), "kill {pid}");
        let leads = self.waiting.leads().await?;
        let next = Contender::start(self.consul, self.directory.0.join(self.started.to_string()))?;
        self.started += 1;
        // What is left of the former holder ends with it.
        self.holder = std::mem::replace(&mut self.waiting, next);
        waits(self.consul, 2).await?;
        Ok(leads.duration_since(start).unwrap_or_default())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Contender {
    fn start(consul: &Consul, note: PathBuf) -> anyhow::Result<Self> {
        let path = note.display();
        // The file is moved into place when it is complete.
        let child = format!("echo $$ $(date +%s%N) >{path}.new; mv {path}.new {path}; exec sleep 86400");
        let mut command = consul.command();
        command.args(["lock", PREFIX, &child]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { program: command.spawn().context("consul lock starts")?, note })
    }

    fn noted(&self) -> Option<(u32, SystemTime)> {
        let text = std::fs::read_to_string(&self.note).ok()?;
        let (pid, nanoseconds) = text.trim().split_once(' ')?;
        Some((pid.parse().ok()?, SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds.parse().ok()?)))
    }

    /// Waits until its child has started. Returns the time of that.
    async fn leads(&self) -> anyhow::Result<SystemTime> {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some((_, at)) = self.noted() {
                    return at;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        found.await.context("consul lock has not got the lock")
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        if let Some((pid, _)) = self.noted() {
            // After SIGTERM it is gone already.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

/// Waits until there are this many sessions of `consul lock`, and a contender waits. Returns one of the sessions.
async fn waits(consul: &Consul, many: usize) -> anyhow::Result<Value> {
    let api = consul.api();
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            let all = api.get("/v1/session/list").await.map_err(anyhow::Error::msg)?.ok();
            let is_one = |session: &&Value| session["Name"].as_str().is_some_and(|name| name.contains(PREFIX));
            let own: Vec<_> = all.as_array().into_iter().flatten().filter(is_one).collect();
            if own.len() >= many {
                return anyhow::Ok(own[0].clone());
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    let session = found.await.context("consul lock has no session")??;
    tokio::time::sleep(WAITS).await;
    Ok(session)
}

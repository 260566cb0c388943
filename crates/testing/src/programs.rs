//! Programs on this machine: those that the tests pin, signals to them, and candidates of an election.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::{PATIENCE, eventually, file};

/// Returns a program or a directory that hack/tools.sh makes, unless it exists already.
pub fn tool(name: &str) -> PathBuf {
    let output =
        Command::new(file("hack/tools.sh")).arg(name).stderr(Stdio::inherit()).output().expect("hack/tools.sh runs");
    assert!(output.status.success(), "hack/tools.sh {name} failed");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path is text").trim())
}

/// Sends a signal, for example "STOP", to processes as simultaneously as possible. When this returns, stopped processes do nothing more.
pub fn signal(name: &str, pids: &[impl ToString]) {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let sent = Command::new("kill").arg(format!("-{name}")).args(&pids).status();
    assert!(sent.expect("kill runs").success(), "{name} to {pids:?}");
    // The system stops a process once one of its threads gets a turn. On a busy machine, the other threads run on until then.
    let end = Instant::now() + PATIENCE;
    while name == "STOP" && pids.iter().any(|pid| runs(pid)) {
        assert!(Instant::now() < end, "not stopped within {PATIENCE:?}: {pids:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends processes together, so that none sees the end of another, as when their container ends. A child comes before its parent, because
/// the system may let a stopped child continue when its parent ends.
pub fn kill_together(pids: &[impl ToString]) {
    signal("STOP", pids);
    signal("KILL", pids);
}

/// Returns whether a thread of this process is not stopped.
fn runs(pid: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    states.into_iter().any(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['R', 'S', 'D'])))
}

/// Waits until a program has ended.
pub async fn ended(child: &mut Child) -> ExitStatus {
    eventually("it ends", || {
        let ended = child.try_wait().expect("it can be waited for");
        async move { ended.ok_or_else(|| "it runs".to_owned()) }
    })
    .await
}

/// A program that takes part in an election, and reports each change on a line. Dropping this kills it.
pub struct Candidate {
    child: Child,
    lines: Receiver<String>,
}

impl Candidate {
    /// Starts the program.
    pub fn start(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = piped.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// Waits until the program prints this.
    pub fn says(&self, expected: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let line = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())).expect(expected);
            assert_ne!(line, "TWO LEAD");
            if line == expected {
                return;
            }
        }
    }

    /// Waits until the program prints this, and nothing else before.
    pub fn says_next(&self, expected: &str) {
        assert_eq!(self.lines.recv_timeout(PATIENCE).expect(expected), expected);
    }

    /// Sends the program a signal.
    pub fn signal(&self, name: &str) {
        signal(name, &[self.child.id()]);
    }

    /// Lets the program release the lock. A program that reads its input ends when the input does, all others by SIGTERM.
    pub async fn end(&mut self) {
        drop(self.child.stdin.take());
        if self.child.try_wait().expect("it can be waited for").is_none() {
            self.signal("TERM");
        }
        ended(&mut self.child).await;
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

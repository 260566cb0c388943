//! A directory for one test, in which agents run commands.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use lictor_testing::consul::{Consul, eventually};
use lictor_testing::{ended, file, program, signal};

/// The shortest TTL that Consul accepts.
pub const TTL: &str = "10s";

/// Where the commands of one test work. Their log is a file with a line for each thing that happened, in order.
pub struct Bench {
    pub directory: PathBuf,
    /// The key of the lock in Consul.
    pub key: String,
}

/// A running agent. Dropping this kills it with all that comes from it.
pub struct Running {
    child: Child,
    errors: PathBuf,
}

impl Bench {
    pub fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("lictor-agent-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        let key = format!("agents/{test}-{}/leader", std::process::id());
        Self { directory, key }
    }

    /// Returns a script that holds the lock file, logs "begin TERM", does `rest`, and then lives for ever.
    pub fn worker(rest: &str) -> String {
        format!(
            "exec 9>lock; flock -n 9 || {{ echo TWO >>log; exit 9; }}; echo \"begin $LICTOR_TERM $$\" >>log; {rest}\n\
             while :; do sleep 0.02; done"
        )
    }

    /// Starts an agent with its lock in Consul, which runs a script of the shell.
    pub fn agent(&self, consul: &Consul, identity: &str, more: &[&str], script: &str) -> Running {
        self.agent_of(consul.address(), identity, more, &["sh", "-c", script])
    }

    pub fn agent_of(&self, address: &str, identity: &str, more: &[&str], command: &[&str]) -> Running {
        let lock = ["--consul", address, "--key", &self.key, "--ttl", TTL];
        self.start(&[lock.as_slice(), &["--identity", identity], more].concat(), command, &[])
    }

    /// Starts an agent with these arguments.
    pub fn start(&self, arguments: &[&str], command: &[&str], environment: &[(&str, &str)]) -> Running {
        let mut agent = Command::new(program());
        agent.arg("agent").args(arguments).arg("--").args(command);
        self.run(agent, environment)
    }

    /// Starts a command line that runs an agent.
    pub fn run(&self, command: Command, environment: &[(&str, &str)]) -> Running {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let errors = self.directory.join(format!("errors-{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        let stderr = File::create(&errors).expect("a file can be made").into();
        Running { child: self.spawn(command, environment, stderr), errors }
    }

    /// The same with this for its standard error: what it logs can't be asked for.
    pub fn run_into(&self, stderr: Stdio, command: Command, environment: &[(&str, &str)]) -> Running {
        Running { child: self.spawn(command, environment, stderr), errors: PathBuf::new() }
    }

    fn spawn(&self, mut command: Command, environment: &[(&str, &str)], stderr: Stdio) -> Child {
        command
            .current_dir(&self.directory)
            .env_remove("RUST_LOG")
            .env_remove("CONSUL_HTTP_TOKEN")
            .env_remove("CONSUL_HTTP_ADDR")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("it starts")
    }

    /// Returns the lines of a file that commands wrote.
    pub fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns what happened so far. Two commands must not have run at once.
    pub fn log(&self) -> Vec<String> {
        let log = self.lines("log");
        assert!(!log.iter().any(|line| line == "TWO"), "two ran at once: {log:?}");
        log
    }

    /// Returns the terms and process ids of the commands that began.
    pub fn begun(&self) -> Vec<(u64, i32)> {
        let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        let begun = |line: &String| {
            let mut words = line.strip_prefix("begin ")?.split(' ');
            Some((number(words.next())?, i32::try_from(number(words.next())?).ok()?))
        };
        self.log().iter().filter_map(begun).collect()
    }

    /// Waits until so many commands have begun. Returns the last one's term and process id.
    pub async fn begins(&self, times: usize) -> (u64, i32) {
        eventually(&format!("{times} commands have begun"), || async {
            let begun = self.begun();
            assert!(begun.len() <= times, "{begun:?}");
            begun.get(times - 1).copied().ok_or_else(|| format!("{:?}", self.log()))
        })
        .await
    }

    /// Waits until the log has a line.
    pub async fn logs(&self, line: &str) {
        eventually(&format!("the log has {line:?}"), || async {
            let log = self.log();
            if log.iter().any(|logged| logged == line) { Ok(()) } else { Err(format!("{log:?}")) }
        })
        .await;
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
                let name = entry.file_name().into_string().unwrap_or_default();
                if name == "log" || name.starts_with("errors") {
                    eprintln!("--- {name} ---\n{}", std::fs::read_to_string(entry.path()).unwrap_or_default());
                }
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Running {
    /// Returns the watchdog's process id: that of the program that was started.
    pub fn watchdog(&self) -> i32 {
        i32::try_from(self.child.id()).expect("an id is small")
    }

    /// Returns the guard's process id.
    pub async fn guard(&self) -> i32 {
        eventually("the watchdog has a guard", || async {
            children(self.watchdog()).first().copied().ok_or_else(|| "it has none".to_owned())
        })
        .await
    }

    /// Returns the agent's process id.
    pub async fn agent(&self) -> i32 {
        let guard = self.guard().await;
        eventually("the guard has an agent", || async {
            children(guard).first().copied().ok_or_else(|| "it has none".to_owned())
        })
        .await
    }

    /// Returns what it has logged so far.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Waits until it logs this text.
    pub async fn says(&self, text: &str) {
        eventually(&format!("it says {text:?}"), || async {
            if self.errors().contains(text) { Ok(()) } else { Err(self.errors()) }
        })
        .await;
    }

    /// Returns whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_some()
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child).await
    }

    /// Ends it by SIGTERM, and returns its exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        signal("TERM", &[self.watchdog()]);
        self.ended().await.code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut below = children(self.watchdog());
        for at in 0.. {
            let Some(pid) = below.get(at).copied() else { break };
            below.extend(children(pid));
        }
        // The agent then ends all else, unless a test has stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in below.into_iter().filter(|pid| state(*pid).is_some_and(|(state, _)| state == 'T')) {
            let _ = Command::new("kill").args(["-CONT", &pid.to_string()]).status();
        }
    }
}

/// Returns the block of docs/agent.md in this language that has this text.
pub fn documented(language: &str, text: &str) -> String {
    let page = std::fs::read_to_string(file("docs/agent.md")).expect("the page can be read");
    let begin = format!("```{language}\n");
    let blocks = page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.map(str::to_owned).find(|block| block.contains(text)).expect("the page has it")
}

/// Returns the state of a process, for example 'S', and its parent. `None`: it is gone.
pub fn state(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Returns the children of a process.
pub fn children(of: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| state(*pid).is_some_and(|(_, parent)| parent == of)).collect()
}

/// Waits until a process is gone.
pub async fn gone(pid: i32) {
    eventually(&format!("{pid} is gone"), || async {
        match state(pid) {
            None | Some(('Z', _)) => Ok(()),
            Some(state) => Err(format!("{state:?}")),
        }
    })
    .await;
}

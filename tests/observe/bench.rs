//! A directory for one test, in which an observer runs.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lictor_testing::{Events, Volume, client, ended, eventually, program, signal};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method};
use serde_json::Value;

/// Where an observer and its hooks work.
pub struct Bench {
    pub directory: PathBuf,
    /// The files of the pod.
    pub files: Volume,
}

/// A running observer. Dropping this kills it.
pub struct Observer {
    child: Child,
    errors: PathBuf,
    http: Client,
}

/// An answer.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Bench {
    pub fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("lictor-observe-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        Self { directory, files: Volume::new(&format!("observe-{test}")) }
    }

    /// Starts an observer of the files, as the pod `web-1`.
    pub fn of_files(&self, more: &[&str]) -> Observer {
        let files = self.files.path.to_str().expect("a path is text");
        self.start(&[["--files", files, "--pod", "web-1"].as_slice(), more].concat(), &[])
    }

    /// Starts an observer with these arguments.
    pub fn start(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Observer {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let errors = self.directory.join(format!("errors-{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        let child = self
            .command(arguments)
            .args(["--listen", "localhost:0"])
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(File::create(&errors).expect("a file can be made"))
            .spawn()
            .expect("it starts");
        Observer { child, errors, http: client() }
    }

    /// Returns a command line of `lictor observe`.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("observe").args(arguments).current_dir(&self.directory).stdin(Stdio::null()).env_remove("RUST_LOG");
        command
    }

    /// Returns the lines of a file that hooks wrote.
    pub fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until such a file has exactly these lines.
    pub async fn has(&self, file: &str, lines: &[&str]) {
        eventually(&format!("{file} has {lines:?}"), || async {
            let now = self.lines(file);
            if now == lines { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
                let name = entry.file_name().into_string().unwrap_or_default();
                eprintln!("--- {name} ---\n{}", std::fs::read_to_string(entry.path()).unwrap_or_default());
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Observer {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("an id is small")
    }

    /// Returns what it has logged so far.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Returns the address that it listens at.
    pub async fn address(&self) -> String {
        eventually("it listens", || async {
            let log = self.errors();
            let address = log.lines().find_map(|line| line.split_once(" address=")?.1.split_whitespace().next());
            address.map(str::to_owned).ok_or(log)
        })
        .await
    }

    pub async fn ask(&self, method: Method, path: &str) -> Answer {
        let request = self.http.request(method, format!("http://{}{path}", self.address().await));
        let answer = request.timeout(Duration::from_secs(10)).send().await.expect("it answers");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Answer { status, headers, text: answer.text().await.expect("the answer is text") }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).await
    }

    /// Returns what it knows.
    pub async fn election(&self) -> Value {
        self.get("/election").await.json()
    }

    /// Waits until what it knows is so. Returns it then.
    pub async fn knows(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("it knows: {what}"), || async {
            let known = self.election().await;
            if holds(&known) { Ok(known) } else { Err(format!("{known}\n{}", self.errors())) }
        })
        .await
    }

    /// Waits until it knows this role, and this leader ("" for none).
    pub async fn sees(&self, role: &str, leader: &str) -> Value {
        let is_leader = |known: &Value| known["leader"]["name"].as_str().unwrap_or_default() == leader;
        self.knows(&format!("{role}, {leader}"), |known| known["role"] == role && is_leader(known)).await
    }

    /// Opens a stream of events. `last` is what was heard last.
    pub async fn events(&self, path: &str, last: Option<&str>) -> Events {
        Events::open(&self.http, &format!("http://{}{path}", self.address().await), last).await
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child).await
    }

    /// Ends it by SIGTERM, and returns its exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        signal("TERM", &[self.pid()]);
        self.ended().await.code()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    /// Returns the body, which must be JSON.
    pub fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_str(&self.text).expect("it is JSON")
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().expect("it is text")
    }
}

//! An operator: the real program in its own process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use k8s_openapi::jiff::Timestamp;

use super::eventually;
use crate::{ended, program, signal};

/// A running operator. Dropping this kills it, and shows its log if the test has failed.
pub struct Operator {
    child: Child,
    log: PathBuf,
}

impl Operator {
    /// Starts `lictor run` with these arguments and environment variables. Its log goes to a file.
    pub fn start(kubeconfig: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!("lictor-test-{}-{number}.log", std::process::id()));
        let output = File::create(&log).expect("a log file can be made");
        let child = Command::new(program())
            .arg("run")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(arguments)
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdout(output.try_clone().expect("the log file can be shared"))
            .stderr(output)
            .spawn()
            .expect("lictor starts");
        Self { child, log }
    }

    /// Returns the operator's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log contains this text.
    pub async fn logs(&self, text: &str) {
        eventually(&format!("the operator logs {text:?}"), || async {
            if self.log().contains(text) { Ok(()) } else { Err(self.log()) }
        })
        .await;
    }

    /// Returns when the log first had this text, by the operator's own clock.
    pub async fn logged_at(&self, text: &str) -> Timestamp {
        self.logs(text).await;
        let log = self.log();
        let line = log.lines().find(|line| line.contains(text)).expect("it is logged");
        let line: serde_json::Value = serde_json::from_str(line).expect("the log is JSON");
        line["timestamp"].as_str().and_then(|time| time.parse().ok()).expect("a line has a time")
    }

    /// Returns the name of this start of this replica, as the operator's Lease has it.
    pub async fn identity(&self) -> String {
        self.start_line().await["identity"].as_str().expect("it tells its name").to_owned()
    }

    /// Returns the value of a metric with its labels, or the sum of all metrics with this prefix; `None` if there is none.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await;
        let values = text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit_once(' '));
        values.map(|(_, value)| value.parse::<f64>().expect("a value is a number")).reduce(|one, other| one + other)
    }

    /// Waits until the operator sees this pod lead this election. From then on it acts, and has decided about the election.
    pub async fn sees_leader(&self, namespace: &str, election: &str, pod: &str) {
        let name = format!("lictor_leader{{namespace=\"{namespace}\",election=\"{election}\",pod=\"{pod}\"}}");
        eventually(&name, || async {
            if self.metric(&name).await == Some(1.0) { Ok(()) } else { Err(self.get("/metrics").await.1) }
        })
        .await;
    }

    /// Waits until this replica acts.
    pub async fn acts(&self) {
        self.logs("this replica acts").await;
    }

    /// Returns the address of /metrics, /healthz and /readyz.
    pub async fn address(&self) -> String {
        self.start_line().await["listen"].as_str().expect("it tells its address").to_owned()
    }

    async fn start_line(&self) -> serde_json::Value {
        eventually("the operator tells that it starts", || async {
            let log = self.log();
            let start = log.lines().find(|line| line.contains("lictor starts")).ok_or_else(|| log.clone())?;
            serde_json::from_str(start).map_err(|error| error.to_string())
        })
        .await
    }

    /// Sends a GET for one of its paths. Returns the status and the body.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().expect("a client can be made");
        let answer = client.get(format!("http://{}{path}", self.address().await)).send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    }

    /// Returns the process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, for example "TERM", "STOP" or "KILL".
    pub fn signal(&self, name: &str) {
        signal(name, &[self.pid()]);
    }

    /// Ends the operator by SIGTERM, and waits until it has ended.
    pub async fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }

    /// Waits until the operator has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child).await
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the log of an operator ---\n{}", self.log());
        }
        let _ = std::fs::remove_file(&self.log);
    }
}

//! A replica of the operator: the real program, started again and again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use lictor_testing::eventually;

use super::windows::LEASE;

/// One replica.
pub struct Replica {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Replica {
    /// Creates a replica that serves the namespace of a cluster with this kubeconfig. It does not run yet.
    /// It answers its peer at `port`, and reaches it by `peer`.
    pub fn new(cluster: &str, number: usize, kubeconfig: &Path, (port, peer): (u16, &str), directory: &Path) -> Self {
        // It is a copy, because the program may be built again meanwhile.
        let program = directory.join("lictor");
        if !program.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_lictor"), &program).expect("the program can be copied");
        }
        let controller = format!("torture/{cluster}");
        let identity = format!("{cluster}-{number}");
        let (lease, port) = (format!("{}s", LEASE / 1_000), port.to_string());
        let arguments = [
            ["--kubeconfig", kubeconfig.to_str().expect("a path in UTF-8")],
            ["--namespaces", cluster],
            ["--lease-namespace", cluster],
            ["--lease-duration", &lease],
            ["--controller", &controller],
            ["--identity", &identity],
            ["--listen", "127.0.0.1:0"],
            ["--peer-address", "127.0.0.1"],
            ["--peer-port", &port],
            ["--peers-by", peer],
            ["--pod-uid", &identity],
            ["--log-format", "json"],
        ];
        let arguments = arguments.concat().into_iter().map(str::to_owned).collect();
        Self { program, arguments, log: directory.join(format!("operator-{identity}.log")), child: Mutex::default() }
    }

    /// Starts it. It ends with this process.
    pub fn start(&self) {
        let log = File::options().create(true).append(true).open(&self.log).expect("a log can be made");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&self.program)
            .arg("run")
            .args(&self.arguments)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log can be shared"))
            .stderr(log)
            .spawn()
            .expect("lictor starts");
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    /// Sends it a signal, for example "STOP".
    pub fn signal(&self, name: &str) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        lictor_testing::signal(name, &[child.as_ref().expect("it runs").id()]);
    }

    /// Kills it by SIGKILL.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).take() {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        }
    }

    /// Ends it by SIGTERM, and waits until it has ended.
    pub async fn end(&self) {
        self.signal("TERM");
        eventually("the operator ends", || async { if self.ended() { Ok(()) } else { Err("it runs".to_owned()) } })
            .await;
    }

    /// Returns whether it has ended although nobody killed it.
    pub fn ended(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.as_mut().is_some_and(|child| child.try_wait().expect("it is ours").is_some())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

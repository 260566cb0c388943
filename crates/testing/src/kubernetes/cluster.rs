//! A control plane that is removed when this process ends in any way.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::{file, program, tool};

/// A control plane. Its keeper deletes it when the pipe to the keeper's standard input closes, which also happens when this
/// process ends.
pub struct Cluster {
    kubeconfig: PathBuf,
    answers: Mutex<BufReader<ChildStdout>>,
    keeper: Mutex<Child>,
}

impl Cluster {
    /// Returns the control plane that all tests share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            // A node takes 110 pods, and tests leave their pods behind.
            let cluster = Self::start(&format!("test-{}", std::process::id()), 12);
            cluster.install_crds();
            cluster
        })
    }

    /// Returns another control plane that tests share: for a second cluster, for policies that may change objects, and for a
    /// server that hangs. A test stays in its own namespaces here.
    pub fn second() -> &'static Self {
        static SECOND: OnceLock<Cluster> = OnceLock::new();
        SECOND.get_or_init(|| {
            let settings = file("hack/kwok/mutating.yaml");
            let name = format!("second-{}", std::process::id());
            let cluster = Self::hold(&[&name, "4", settings.to_str().expect("a path is text")]);
            cluster.install_crds();
            cluster
        })
    }

    /// Starts a control plane for one test, without the CRDs, at the cost of ten seconds of a core and half a GiB. So it is only for tests
    /// that affect a whole cluster.
    pub fn start(name: &str, nodes: usize) -> Self {
        Self::hold(&[name, &nodes.to_string()])
    }

    /// Starts a control plane whose parts the test stops and kills by [`Cluster::order`].
    pub fn start_for_orders(name: &str) -> Self {
        let cluster = Self::hold(&[name, "1", "torture"]);
        let _etcd = cluster.answer();
        cluster.install_crds();
        cluster
    }

    fn hold(arguments: &[&str]) -> Self {
        let script = file("hack/cluster.sh");
        let mut keeper = Command::new(script)
            .arg("hold")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("hack/cluster.sh starts");
        let output = keeper.stdout.take().expect("its output is piped");
        let answers = Mutex::new(BufReader::new(output));
        let mut cluster = Self { kubeconfig: PathBuf::new(), answers, keeper: Mutex::new(keeper) };
        let line = cluster.answer();
        cluster.kubeconfig = line.strip_prefix("KUBECONFIG=").expect("hack/cluster.sh makes a control plane").into();
        cluster
    }

    fn answer(&self) -> String {
        let mut line = String::new();
        self.answers.lock().expect("nobody panics with it").read_line(&mut line).expect("it can be read");
        line.trim().to_owned()
    }

    /// Sends "kill", "start", "pause" or "resume" to "etcd" or "kube-apiserver". Returns the component's process id if the component then
    /// runs.
    pub fn order(&self, order: &str, component: &str) -> Option<u32> {
        let mut keeper = self.keeper.lock().expect("nobody panics with it");
        let orders = keeper.stdin.as_mut().expect("its input is piped");
        writeln!(orders, "{order} {component}").expect("hack/cluster.sh reads");
        self.answer().strip_prefix("PID=").expect("it answers an order").parse().ok()
    }

    /// Returns the command line of a running component, and its working directory.
    pub fn command(&self, component: &str) -> (Vec<String>, PathBuf) {
        let pid = self.order("resume", component).expect("it runs");
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it can be read");
        let words = line.split_terminator('\0').map(str::to_owned).collect();
        (words, std::fs::read_link(format!("/proc/{pid}/cwd")).expect("it can be read"))
    }

    /// Returns the path of its kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a client for the present test's runtime, with all rights.
    pub async fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("the kubeconfig can be read");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("the kubeconfig can be used")).expect("a client can be made")
    }

    /// Runs kubectl. Returns what it printed, or its error text.
    pub fn try_kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
        static KUBECTL: OnceLock<PathBuf> = OnceLock::new();
        let kubectl = KUBECTL.get_or_init(|| tool("kubectl"));
        let mut child = Command::new(kubectl)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            stdin.write_all(input.as_bytes()).expect("kubectl reads");
        }
        let output = child.wait_with_output().expect("kubectl ends");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Installs the CRDs, and waits until the API server serves them.
    pub fn install_crds(&self) {
        let mut lictor = Command::new(program());
        let output =
            lictor.args(["crd", "--apply", "--kubeconfig"]).arg(&self.kubeconfig).output().expect("lictor starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs kubectl, which must succeed. Returns what it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments, None).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }
}

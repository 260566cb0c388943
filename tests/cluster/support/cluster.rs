//! A control plane of one's own, which goes when this process goes, whatever ends it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A control plane. Its keeper deletes it when the pipe to its standard input is closed, as it is when this process ends.
pub struct Cluster {
    kubeconfig: PathBuf,
    _keeper: Child,
}

impl Cluster {
    /// The control plane that all tests share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            // A node takes 110 pods, and tests leave theirs behind.
            let cluster = Self::start(&format!("test-{}", std::process::id()), 12);
            cluster.install_definitions();
            cluster
        })
    }

    /// A control plane for one test alone, without the definitions.
    pub fn start(name: &str, nodes: usize) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/cluster.sh");
        let mut keeper = Command::new(script)
            .args(["hold", name, &nodes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("hack/cluster.sh starts");
        let mut line = String::new();
        let output = keeper.stdout.take().expect("its output is piped");
        BufReader::new(output).read_line(&mut line).expect("it can be read");
        let kubeconfig = line.trim().strip_prefix("KUBECONFIG=").expect("hack/cluster.sh makes a control plane").into();
        Self { kubeconfig, _keeper: keeper }
    }

    /// Where its kubeconfig is.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client for the present test's runtime, with all rights.
    pub async fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("the kubeconfig can be read");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("the kubeconfig can be used")).expect("a client can be made")
    }

    /// Runs kubectl; returns what it printed, or its error text.
    pub fn try_kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
        use std::io::Write;
        static KUBECTL: OnceLock<String> = OnceLock::new();
        let kubectl = KUBECTL.get_or_init(|| {
            let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/tools.sh");
            let output = Command::new(tools).arg("kubectl").output().expect("hack/tools.sh runs");
            String::from_utf8(output.stdout).expect("a path").trim().to_owned()
        });
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

    /// Installs the definitions, and waits until they are served.
    pub fn install_definitions(&self) {
        let mut lictor = Command::new(env!("CARGO_BIN_EXE_lictor"));
        let output =
            lictor.args(["crd", "--apply", "--kubeconfig"]).arg(&self.kubeconfig).output().expect("lictor starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs kubectl, which must succeed; returns what it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments, None).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }
}

//! A service account with its own token: what it may do, and programs that run as it.

use std::path::{Path, PathBuf};

use kube::config::Kubeconfig;
use lictor_testing::kubernetes::{Cluster, Operator};
use serde_json::json;

/// A service account in the cluster.
pub struct Account {
    cluster: &'static Cluster,
    kubeconfig: PathBuf,
}

impl Account {
    /// Takes an existing account.
    pub fn of(cluster: &'static Cluster, namespace: &str, name: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static MADE: AtomicU32 = AtomicU32::new(0);
        let token = cluster.kubectl(&["-n", namespace, "create", "token", name, "--duration=1h"]);
        let admin = Kubeconfig::read_from(cluster.kubeconfig()).expect("the kubeconfig can be read");
        let server = admin.clusters.iter().find_map(|named| named.cluster.as_ref()).expect("it has a cluster");
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "user",
            "clusters": [{"name": "user", "cluster": server}],
            "users": [{"name": "user", "user": {"token": token.trim()}}],
            "contexts": [{"name": "user", "context": {"cluster": "user", "user": "user"}}],
        });
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = std::env::temp_dir().join(format!("lictor-chart-account-{}-{number}", std::process::id()));
        std::fs::write(&kubeconfig, content.to_string()).expect("a file can be written");
        Self { cluster, kubeconfig }
    }

    /// Creates an account with these roles: (namespace, ClusterRole).
    pub fn new(cluster: &'static Cluster, namespace: &str, name: &str, roles: &[(&str, &str)]) -> Self {
        cluster.kubectl(&["-n", namespace, "create", "serviceaccount", name]);
        for (place, role) in roles {
            let (bound, account) = (format!("--clusterrole={role}"), format!("--serviceaccount={namespace}:{name}"));
            cluster.kubectl(&["-n", place, "create", "rolebinding", &format!("{name}-{role}"), &bound, &account]);
        }
        Self::of(cluster, namespace, name)
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl with the account's token.
    pub fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
        let own = ["--kubeconfig", self.kubeconfig.to_str().expect("the path is text")];
        let all: Vec<&str> = own.into_iter().chain(arguments.iter().copied()).collect();
        self.cluster.try_kubectl(&all, input)
    }

    /// Panics unless this is refused, with these words.
    pub fn refused(&self, arguments: &[&str], input: Option<&str>, says: &str) {
        match self.kubectl(arguments, input) {
            Ok(answer) => panic!("kubectl {arguments:?} should be refused: {says}; it answers {answer}"),
            Err(error) => assert!(error.contains(says), "kubectl {arguments:?} should say: {says}\nit says: {error}"),
        }
    }

    /// Panics unless this succeeds. Returns what it printed.
    pub fn allowed(&self, arguments: &[&str], input: Option<&str>) -> String {
        self.kubectl(arguments, input).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// Starts `lictor run` with the account's token and these arguments, the first of which is `run`.
    pub fn operator(&self, arguments: &[String]) -> Operator {
        assert_eq!(arguments.first().map(String::as_str), Some("run"));
        // The arguments that the harness sets.
        let given =
            arguments.iter().skip(1).map(String::as_str).filter(|argument| !argument.starts_with("--log-format="));
        Operator::start(&self.kubeconfig, &given.collect::<Vec<_>>(), &[])
    }

    /// Runs lictor with the account's token and these arguments until it ends. Returns what it printed, or its error text.
    pub async fn lictor(&self, arguments: &[String]) -> Result<String, String> {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_lictor"));
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig).env_remove("RUST_LOG").kill_on_drop(true);
        let output = command.output().await.expect("lictor runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!("{}{}", text(&output.stdout), text(&output.stderr)))
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

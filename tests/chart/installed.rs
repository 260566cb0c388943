//! `helm install`, `upgrade` and `uninstall`, on a control plane for each test.

mod cluster_wide;
mod drain;
mod namespaced;
mod people;
mod restricted;

use lictor_testing::kubernetes::{Cluster, Operator};
use serde_json::Value;

use crate::account::Account;
use crate::helm::{CHART, Values, arguments, find, helm, objects};

/// A release of the chart.
pub struct Release {
    cluster: &'static Cluster,
    name: &'static str,
    namespace: &'static str,
}

impl Release {
    pub fn new(cluster: &'static Cluster, name: &'static str, namespace: &'static str) -> Self {
        Self { cluster, name, namespace }
    }

    /// Runs a command of helm for it, as an administrator. The values come last.
    pub fn helm(&self, command: &[&str], values: &str) -> Result<String, String> {
        self.helm_as(self.cluster.kubeconfig(), command, values)
    }

    /// Runs a command of helm for it with another kubeconfig.
    pub fn helm_as(&self, kubeconfig: &std::path::Path, command: &[&str], values: &str) -> Result<String, String> {
        let file = Values::new(values);
        let place = [self.name, CHART, "--namespace", self.namespace, "--timeout", "90s", "--values", file.path()];
        let all: Vec<&str> = command[..1].iter().chain(&place).chain(&command[1..]).copied().collect();
        helm(Some(kubeconfig), &all)
    }

    /// Returns its objects, or its hooks.
    pub fn get(&self, what: &str) -> Vec<Value> {
        let text = helm(Some(self.cluster.kubeconfig()), &["get", what, self.name, "--namespace", self.namespace]);
        objects(&text.unwrap_or_else(|error| panic!("{error}")))
    }

    /// Returns the operator's account.
    pub fn account(&self) -> Account {
        let manifest = self.get("manifest");
        let account = &find(&manifest, "Deployment", "")["spec"]["template"]["spec"]["serviceAccountName"];
        Account::of(self.cluster, self.namespace, account.as_str().expect("it has an account"))
    }

    /// Starts what would run in a pod of the Deployment: the program, with its arguments and its account.
    pub fn operator(&self, account: &Account) -> Operator {
        account.operator(&arguments(find(&self.get("manifest"), "Deployment", "")))
    }

    /// Creates a hook's account and rights, which Helm removes after the hook has run. Returns the arguments of the hook's
    /// program.
    pub fn hook(&self, hook: &str) -> Vec<String> {
        let (runs, rights) = self.parts(hook);
        self.kubectl("apply", &rights);
        let [run] = runs.as_slice() else { panic!("{} programs in {hook}", runs.len()) };
        arguments(run)
    }

    /// Removes a hook's account and rights.
    pub fn unhook(&self, hook: &str) {
        self.kubectl("delete", &self.parts(hook).1);
    }

    /// Returns what runs in a hook, and what that needs.
    fn parts(&self, hook: &str) -> (Vec<Value>, Vec<Value>) {
        let all = self.get("hooks").into_iter();
        let mine = all.filter(|object| object["metadata"]["annotations"]["helm.sh/hook"] == hook);
        mine.partition(|object| ["Job", "Pod"].iter().any(|kind| object["kind"] == *kind))
    }

    fn kubectl(&self, verb: &str, objects: &[Value]) {
        for object in objects {
            let done = self.cluster.try_kubectl(&[verb, "-f", "-"], Some(&object.to_string()));
            done.unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// Starts a control plane that lives as long as the tests.
pub fn cluster(name: &str) -> &'static Cluster {
    Box::leak(Box::new(Cluster::start(&format!("{name}-{}", std::process::id()), 3)))
}

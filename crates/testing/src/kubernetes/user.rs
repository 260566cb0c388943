//! A user of the cluster with few rights.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::{Lab, Operator};

/// A user who has only the rights that a test grants.
pub struct User<'a> {
    lab: &'a Lab,
    kubeconfig: PathBuf,
}

/// All rights that an operator needs in a namespace: verbs by API group and resource. The groups apps and batch are about
/// workloads.
const RIGHTS: [(&str, &str, &[&str]); 16] = [
    ("", "pods", &["get", "list", "watch", "patch"]),
    ("", "replicationcontrollers", &["get"]),
    ("apps", "daemonsets", &["get"]),
    ("apps", "replicasets", &["get"]),
    ("lictor.dev", "leaderelections", &["get", "list", "watch", "patch"]),
    ("lictor.dev", "leaderelections/status", &["patch"]),
    ("lictor.dev", "switchovers", &["list", "watch", "delete"]),
    ("lictor.dev", "switchovers/status", &["patch"]),
    ("coordination.k8s.io", "leases", &["get", "list", "watch", "create", "patch", "delete"]),
    ("events.k8s.io", "events", &["create", "patch"]),
    ("", "events", &["create", "patch"]),
    ("apps", "deployments", &["get", "list", "watch", "patch"]),
    ("apps", "statefulsets", &["get", "list", "watch", "patch"]),
    ("batch", "cronjobs", &["get", "list", "watch", "patch"]),
    ("batch", "cronjobs/status", &["patch"]),
    ("batch", "jobs", &["get", "list", "watch", "create", "patch", "delete"]),
];

impl<'a> User<'a> {
    /// Creates a service account in the lab's namespace.
    pub async fn new(lab: &'a Lab) -> Self {
        let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), &lab.namespace);
        let account = serde_json::from_value(json!({"metadata": {"name": "lictor"}})).expect("an account");
        accounts.create(&PostParams::default(), &account).await.expect("an account can be made");
        let token = lab.try_kubectl(&["create", "token", "lictor"], None).expect("a token can be made");
        let admin = Kubeconfig::read_from(lab.cluster.kubeconfig()).expect("the kubeconfig can be read");
        let cluster = admin.clusters.iter().find_map(|named| named.cluster.as_ref()).expect("it has a cluster");
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "user",
            "clusters": [{"name": "user", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token.trim()}}],
            "contexts": [{"name": "user", "context": {"cluster": "user", "user": "user"}}],
        });
        let kubeconfig = std::env::temp_dir().join(format!("lictor-test-user-{}", lab.namespace));
        std::fs::write(&kubeconfig, content.to_string()).expect("a file can be written");
        Self { lab, kubeconfig }
    }

    /// Grants these rights in the lab's namespace, in place of those before.
    pub async fn may(&self, rights: impl Fn(&str, &str) -> bool) {
        let (client, namespace) = (self.lab.client.clone(), &self.lab.namespace);
        let rules: Vec<Value> = RIGHTS
            .iter()
            .map(|(group, resource, verbs)| {
                let verbs: Vec<_> = verbs.iter().filter(|verb| rights(verb, resource)).collect();
                json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
            })
            .filter(|rule| rule["verbs"] != json!([]))
            .collect();
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "lictor"}, "rules": rules,
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "lictor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lictor"},
            "subjects": [{"kind": "ServiceAccount", "name": "lictor", "namespace": namespace}],
        });
        let parameters = PatchParams::apply("test").force();
        let api: Api<Role> = Api::namespaced(client.clone(), namespace);
        api.patch("lictor", &parameters, &Patch::Apply(role)).await.expect("a role can be applied");
        let api: Api<RoleBinding> = Api::namespaced(client, namespace);
        api.patch("lictor", &parameters, &Patch::Apply(binding)).await.expect("a binding can be applied");
    }

    /// Returns a client with the user's rights, which never repeats a request by itself.
    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("the kubeconfig can be read");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("the kubeconfig can be used");
        config.default_retry = false;
        Client::try_from(config).expect("a client can be made")
    }

    /// Returns the path of the user's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn operator(&self, arguments: &[&str]) -> Operator {
        self.lab.operator_at(&self.kubeconfig, arguments)
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

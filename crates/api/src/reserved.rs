//! Names of labels and annotations that no election may write on pods, because another program owns them.
//!
//! A controller that selects its pods by such a label loses each pod whose value changes, and replaces it, without end.
//! The schema refuses these names when an election is applied, and the operator refuses names that an older schema has
//! let in. Both use the lists in this file.

/// Names without a prefix by which controllers of Kubernetes select and order their pods: Deployments, `StatefulSets`
/// and `DaemonSets`, Jobs.
const NAMES: [&str; 5] =
    ["controller-revision-hash", "controller-uid", "job-name", "pod-template-generation", "pod-template-hash"];

/// Kubernetes reserves these domains, and all domains below them, for itself and its controllers. A list of their
/// labels would never stay complete.
const DOMAINS: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// The one prefix below these domains that Kubernetes leaves to its users.
const OF_USERS: &str = "app.kubernetes.io/";

/// Nothing selects pods by annotations, and users need some of Kubernetes' own, such as a pod's deletion cost. Only
/// those annotations are refused that a controller or the kubelet both writes and reads.
const ANNOTATIONS: [&str; 4] =
    ["apps.kubernetes.io/", "batch.kubernetes.io/", "kubernetes.io/", "statefulset.kubernetes.io/"];

/// What lictor writes itself.
const OF_LICTOR: &str = "lictor.dev/";

/// Returns whether a label belongs to another program.
pub(super) fn is_label(name: &str) -> bool {
    let below = |domain: &str| {
        let (prefix, _) = name.split_once('/').unwrap_or_default();
        prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let of_kubernetes = DOMAINS.iter().any(|domain| below(domain)) && !name.starts_with(OF_USERS);
    NAMES.contains(&name) || of_kubernetes || name.starts_with(OF_LICTOR)
}

/// Returns whether an annotation belongs to another program.
pub(super) fn is_annotation(name: &str) -> bool {
    let owned = |prefix: &&str| name.starts_with(*prefix);
    NAMES.contains(&name) || ANNOTATIONS.iter().any(owned) || name.starts_with(OF_LICTOR)
}

/// A CEL rule of a marking: none of its labels is one of Kubernetes' own.
pub(super) fn labels_rule() -> String {
    let below = DOMAINS.map(|domain| format!("k.startsWith('{domain}/') || k.contains('.{domain}/')")).join(" || ");
    let names = names();
    format!("!has(self.labels) || self.labels.all(k, k.startsWith('{OF_USERS}') || !(k in [{names}] || {below}))")
}

/// A CEL rule of a marking: none of its annotations is one of Kubernetes' own.
pub(super) fn annotations_rule() -> String {
    let below = ANNOTATIONS.map(|prefix| format!("k.startsWith('{prefix}')")).join(" || ");
    let names = names();
    format!("!has(self.annotations) || self.annotations.all(k, !(k in [{names}] || {below}))")
}

fn names() -> String {
    NAMES.map(|name| format!("'{name}'")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_controller_owns_is_told_from_one_of_a_users() {
        let both = [
            "pod-template-hash",
            "controller-revision-hash",
            "pod-template-generation",
            "job-name",
            "controller-uid",
            "batch.kubernetes.io/job-name",
            "apps.kubernetes.io/pod-index",
            "statefulset.kubernetes.io/pod-name",
            "kubernetes.io/config.hash",
            "lictor.dev/term",
        ];
        for name in both {
            assert!(is_label(name) && is_annotation(name), "{name}");
        }
        for label in
            ["topology.kubernetes.io/zone", "k8s.io/x", "endpointslice.kubernetes.io/skip", "jobset.sigs.k8s.io/name"]
        {
            assert!(is_label(label) && !is_annotation(label), "{label}");
        }
        for name in [
            "role",
            "app.kubernetes.io/component",
            "example.com/role",
            "notkubernetes.io/role",
            "kubernetes.io.example.com/role",
            "k8s.io",
            "example.com/kubernetes.io",
        ] {
            assert!(!is_label(name) && !is_annotation(name), "{name}");
        }
        assert!(!is_annotation("controller.kubernetes.io/pod-deletion-cost"));
    }
}

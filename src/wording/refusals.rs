//! Why the operator refuses an election, or can't use its Service: the words of conditions, and of `check`, which foretells them.

use lictor_core::{Controller, InUse, Owner};

/// The key that is in use on a pod, and what to do.
pub fn in_use_on(pod: &str, InUse { key, is_label, by }: &InUse) -> String {
    let (kind, kinds) = if *is_label { ("label", "labels") } else { ("annotation", "annotations") };
    match by {
        Owner::Controller(Controller { kind, name, .. }) => format!(
            "the {kind:?} {name} selects the pod {pod} by the label {key}, which this election writes or has written, \
             so it would replace the pod: write other labels into spec.leader and spec.follower"
        ),
        Owner::Template(value) => format!(
            "the pod {pod} has the {kind} {key}={value} from its controller's template, so a Service or another \
             controller may select by it: remove it from the template, write other {kinds} into spec.leader and \
             spec.follower, or set spec.whenLabelInUse to Replace"
        ),
        Owner::Election(other) => format!(
            "the pod {pod} still carries the labels of the election {other}, which takes them off unless it is \
             refused or paused: see `kubectl lictor explain {other}`"
        ),
        Owner::Somebody(value) => format!(
            "the pod {pod} has the {kind} {key}={value}, which this election did not write: write other {kinds} into \
             spec.leader and spec.follower, remove it from the pod and from its controller's template, or set \
             spec.whenLabelInUse to Replace"
        ),
    }
}

/// The lock of an election belongs to another one, such as "older election shop/web".
pub fn key_taken(key: &str, other: &str) -> String {
    format!("the lock {key:?} belongs to the {other}: give this one another spec.key, or delete the other")
}

/// An entry in Consul's catalog is another election's.
pub fn catalog_service_taken(name: &str, other: &str) -> String {
    format!(
        "spec.sharedStore.consulService.name is {name:?}, which the {other} already registers its leader as: write another name, or \
         delete the other"
    )
}

/// A pod is another election's.
pub fn pod_taken(pod: &str, labelled: bool, other: &str) -> String {
    format!(
        "the pod {pod:?} is already {} by the {other}: give this one a selector for pods of its own, or delete the other",
        if labelled { "labelled" } else { "selected" }
    )
}

/// A workload is another election's.
pub fn workload_taken(workload: &str, other: &str) -> String {
    format!(
        "{workload} is already in spec.workloads of the {other}: take it out of one of the two, or delete the other"
    )
}

/// A workload of an election makes the election's own candidates.
pub fn makes_own_candidates(workload: &str) -> String {
    format!(
        "{workload} in spec.workloads makes candidates of this same election: without a leader, lictor would disable it, and no \
         candidate would be left to elect. Take it out of spec.workloads, or select other pods"
    )
}

/// A Service is another election's.
pub fn service_taken(service: &str, older: &str) -> String {
    format!(
        "the Service {service} belongs to the older election {older}: name another one in spec.service.name, or delete \
         the other"
    )
}

/// A Service does not exist.
pub fn service_missing(namespace: &str, service: &str) -> String {
    format!(
        "there is no Service {service} in the namespace {namespace}: write spec.service.ports, so that lictor creates it, or \
         create one without spec.selector"
    )
}

/// A Service would have to be changed that lictor did not create.
pub fn service_not_own(namespace: &str, service: &str) -> String {
    format!(
        "the Service {service} exists, lictor did not create it for this election, and it has other ports or another type than \
         spec.service: write another spec.service.name; or remove spec.service.ports, so that lictor uses the Service as it is; \
         or, if no program needs it, delete it with `kubectl -n {namespace} delete service {service}`"
    )
}

/// A Service has a selector.
pub fn service_has_selector(namespace: &str, service: &str) -> String {
    format!(
        "the Service {service} has a selector, so Kubernetes itself writes its endpoints: once these are only the leader \
         (docs/routing.md), remove the selector with `kubectl -n {namespace} patch service {service} --type=json -p \
         '[{{\"op\":\"remove\",\"path\":\"/spec/selector\"}}]'`"
    )
}

/// A Service is only another name of something outside.
pub fn service_is_external(service: &str) -> String {
    format!(
        "the Service {service} has the type ExternalName, which reaches no pods: name another one in spec.service.name"
    )
}

//! A pod, as an election knows it.

use std::sync::Arc;

use super::{Instant, NamedPort, Pairs, ReadinessProbe, TargetPort, Timestamp, Uid, Version};

/// Annotation by which users order pods: an integer, the highest is elected first. Default 0.
pub const PRIORITY_ANNOTATION: &str = "lictor.dev/priority";

/// Annotation by which users keep a pod from ever being elected: `true`.
pub const NEVER_LEADER_ANNOTATION: &str = "lictor.dev/never-leader";

/// The conditions that Kubernetes itself maintains on pods. lictor looks at some of them by other means, and an election can't require
/// them by name.
pub const KUBERNETES_CONDITIONS: [&str; 6] =
    ["ContainersReady", "DisruptionTarget", "Initialized", "PodReadyToStartContainers", "PodScheduled", "Ready"];

/// A pod, as last observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, as the API server tells them")]
pub struct Pod {
    /// The name; a pod of the same name with another uid is another pod.
    pub name: String,
    /// The uid.
    pub uid: Uid,
    /// The version that was observed.
    pub version: Version,
    /// All labels.
    pub labels: Pairs,
    /// The annotations, except those that are too long to be of use here.
    pub annotations: Pairs,
    /// The finalizers, which keep the pod's object in the API server.
    pub finalizers: Box<[String]>,
    /// The owner that created the pod from one of its templates: all pods of a Deployment have the same one.
    pub owner: Option<String>,
    /// Whether a controller counts the pod among its own.
    pub control: Control,
    /// When the pod was created, by the API server's clock. It shows which template is newer, and nothing else.
    pub created: Timestamp,
    /// The node that the pod is bound to.
    pub node: Option<String>,
    /// The pod's address.
    pub ip: Option<String>,
    /// The pod's address of the other family.
    pub other_ip: Option<String>,
    /// The ports of its containers that have a name.
    pub ports: Vec<NamedPort>,
    /// What the readiness probes of its containers ask. All of them succeed while the pod is ready.
    pub readiness_probes: Box<[ReadinessProbe]>,
    /// Whether the condition Ready is true.
    pub ready: bool,
    /// When the pod became ready, by its node's clock. It orders candidates, and nothing else.
    pub ready_since: Option<Timestamp>,
    /// When this operator first saw the pod ready. Waits are measured from this moment.
    pub ready_observed: Option<Instant>,
    /// The types of its true conditions, apart from [Kubernetes' own](KUBERNETES_CONDITIONS).
    pub conditions: Box<[Arc<str>]>,
    /// Whether the pod is being deleted.
    pub deleting: bool,
    /// Whether all containers of the pod have ended and will not be started again. An evicted pod is finished, too.
    pub finished: bool,
    /// Whether no container of the pod runs any more, and none will: its kubelet has reported so, or Kubernetes has removed the pod's node.
    /// A pod that is only marked as failed may still run, on a node that is silent.
    pub ended: bool,
    /// Whether the pod is about to be deleted by an eviction, a preemption or a taint.
    pub disrupted: bool,
}

/// Whether a controller, such as a `ReplicaSet`, counts a pod among its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// No controller ever did: a person or program created the pod by itself.
    #[default]
    None,
    /// This controller does.
    By(Box<Controller>),
    /// A controller made the pod and has let go of it, because its selector no longer matches.
    Released,
}

impl Control {
    /// The controller that counts the pod among its own now.
    pub fn controller(&self) -> Option<&Controller> {
        match self {
            Self::By(controller) => Some(controller),
            Self::None | Self::Released => None,
        }
    }

    /// Whether a controller has let go of the pod.
    pub fn was_released(&self) -> bool {
        *self == Self::Released
    }
}

/// The controller of a pod, as the pod's owner reference names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// The controller's kind.
    pub kind: ControllerKind,
    /// The controller's name; a controller of the same name with another uid is another one.
    pub name: String,
    /// The controller's uid.
    pub uid: Uid,
}

/// The kinds of controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// `apps/v1`.
    ReplicaSet,
    /// `apps/v1`.
    StatefulSet,
    /// `apps/v1`.
    DaemonSet,
    /// `batch/v1`.
    Job,
    /// `v1`.
    ReplicationController,
    /// A kind of another API, whose way of selecting pods is unknown.
    Other,
}

impl Pod {
    /// The pod's addresses, at most one of each family.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.ip.iter().chain(&self.other_ip).map(String::as_str)
    }

    /// The number of a port; `None` if no container has a port of this name and protocol.
    pub fn port(&self, target: &TargetPort, protocol: &str) -> Option<u16> {
        match target {
            TargetPort::Number(number) => Some(*number),
            TargetPort::Name(name) => {
                let named = |port: &&NamedPort| port.name == *name && port.protocol == protocol;
                self.ports.iter().find(named).map(|port| port.number)
            }
        }
    }
}

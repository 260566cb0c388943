//! The Kubernetes kinds of the group `lictor.dev`: their types, defaults and rules, and the reading of a spec into the
//! valid values that the rest of the program uses.

mod bucket;
mod class;
mod conditions;
mod consul;
mod crds;
mod election;
mod followed_lock;
mod hold;
mod hub;
mod lenient;
mod objects;
mod probe;
mod reserved;
mod resolve;
mod selector;
mod service;
mod shared;
mod switchover;
mod workload;

pub use bucket::BucketStore;
pub use class::{
    AllowedNamespaces, AllowedWorkloads, BUILT_IN_CLASS, DEFAULT_CLASS_ANNOTATION, DEFAULT_CONTROLLER, ElectionClass,
    ElectionClassSpec, ElectionClassStatus, LeaseStore,
};
pub use conditions::{
    ACCEPTED, COMPLETE, DOCUMENTS, ELECTED, FAILED, PAUSED, PENDING, READY, ROUTED, STALLED, STORE_REACHABLE,
    WORKLOADS_FOLLOW, condition, is_unknown, page, unknown, with_page, with_transition_times,
};
pub use consul::{ConsulLogin, ConsulNode, ConsulRecord, ConsulSessions, ConsulStatus, ConsulStore, ConsulTls};
pub use crds::{VERSION_ANNOTATION, as_yaml, crds, crds_as_yaml};
pub use election::{
    CandidateCount, ConsulService, Eligibility, FirstTerm, FormerLeader, Handover, HandoverOrder, HistoryEntry, Leader,
    LeaderElection, LeaderElectionSpec, LeaderElectionStatus, Marking, NumberOrder, Preemption, Preference,
    SharedStore, Spread, WhenLabelInUse, WhenLost,
};
pub use followed_lock::{ElectedBy, FollowedLease, FollowedLock, FollowedLockStatus, Identity, IdentityFrom};
pub use hold::{ended, held_until, hold, left, says};
pub use hub::HubStore;
pub use objects::{ObjectSessions, ObjectsCluster, ObjectsStatus};
pub use probe::{Grpc, HeldConnection, HttpGet, HttpHeader, HttpScheme, LikeReadiness, Probe, TcpSocket};
pub use resolve::{
    Asked, BucketPlace, Classes, ClusterRule, ConsulClass, Credentials, Followed, Held, HubPlace, NamespaceLabels,
    ObjectClass, ObjectPlace, Probe as ResolvedProbe, Refusal, Resolved, SecretId, SecretKey, SessionNode, Shared,
    SharedClass, TlsSources, WorkloadRule, has_default, markings, resolve, shared_class, with_selected,
};
pub use selector::{LabelOperator, LabelRequirement, LabelSelector};
pub use service::{IpFamily, IpFamilyPolicy, LeaderService, LeaderServicePort, LeaderServiceType, Protocol};
pub use shared::{LockPolicy, LostCluster, SecretKeyRef, SecretRef};
pub use switchover::{Switchover, SwitchoverPod, SwitchoverSpec, SwitchoverStatus};
pub use workload::{
    Claims, JobTemplate, Kept, WORKLOADS_ANNOTATION, WhenDisabled, WhenReleased, Workload, WorkloadKind, WorkloadState,
    WorkloadStatus, WorkloadsStatus,
};

/// The API group of all kinds, and the prefix of all annotations, labels and finalizers that this project writes.
pub const GROUP: &str = "lictor.dev";

/// The finalizer that an election has until its labels and its lock are removed.
pub const FINALIZER: &str = "lictor.dev/cleanup";

/// The most characters that an election may write into the value of an annotation.
pub const LONGEST_VALUE: usize = 1024;

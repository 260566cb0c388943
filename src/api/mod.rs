//! The Kubernetes kinds that this project defines, group `lictor.dev`: their types, defaults and rules, and the reading of
//! an election's spec into the valid values that the rest of the program works with.

mod class;
mod conditions;
mod consul;
mod crd;
mod election;
mod lenient;
mod resolve;
mod workload;

pub use class::{
    BUILT_IN_CLASS, DEFAULT_CLASS_ANNOTATION, DEFAULT_CONTROLLER, ElectionClass, ElectionClassSpec,
    ElectionClassStatus, LeaseStore,
};
pub use conditions::{
    ACCEPTED, ELECTED, PAUSED, READY, STORE_REACHABLE, WORKLOADS_FOLLOW, condition, is_unknown, unknown,
    with_transition_times,
};
pub use consul::{
    ConsulLogin, ConsulNode, ConsulRecord, ConsulSessions, ConsulStatus, ConsulStore, ConsulTls, LockPolicy,
    LostCluster, SecretKeyRef, SecretRef,
};
pub use crd::{VERSION_ANNOTATION, definitions, definitions_as_yaml};
pub use election::{
    CandidateCount, ConsulService, Eligibility, Handover, HandoverOrder, HistoryEntry, HttpGet, Leader, LeaderElection,
    LeaderElectionSpec, LeaderElectionStatus, Marking, PodSelector, PodSelectorOperator, PodSelectorRequirement,
    Preemption, Preference, Probe, TcpSocket, WhenStoreIsLost,
};
pub use resolve::{
    Classes, ClusterRule, ConsulClass, Credentials, Probe as ResolvedProbe, ProbeTarget, Refusal, Resolved, SecretId,
    SecretKey, SessionNode, TlsSources, WorkloadRule, consul_class, resolve,
};
pub use workload::{
    Claims, JobTemplate, OnDisable, OnRelease, WORKLOADS_ANNOTATION, Workload, WorkloadKind, WorkloadState,
    WorkloadStatus, WorkloadsStatus,
};

/// The API group of every kind here, and the prefix of every annotation, label and finalizer that this project writes.
pub const GROUP: &str = "lictor.dev";

/// Held on an election until its labels and its lock are cleaned up.
pub const FINALIZER: &str = "lictor.dev/cleanup";

/// The most characters that the value of an annotation may have that an election writes.
pub const LONGEST_VALUE: usize = 1024;

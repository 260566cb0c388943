//! What decides an election. Pure: no I/O, no clock, no randomness, no async, no Kubernetes client. Time and observations come
//! in as arguments, effects go out as values ([`Output`]).

mod backoff;
mod claim;
mod command;
mod deletions;
mod election;
mod eligibility;
mod handover;
mod identity;
mod ids;
pub mod invariants;
mod lock_validity;
mod locks;
mod marking;
mod members;
mod node;
mod pod;
mod probe;
#[cfg(test)]
mod properties;
mod record;
mod replica;
mod selector;
mod session;
mod shared_stores;
mod slice;
mod step;
mod time;
mod timers;
mod view;
mod words;
mod workload;

pub use claim::{Claim, ClaimCommand, ClaimParameters, ClaimState};
pub use command::{
    Announcement, Command, ElectionRead, Failure, Outcome, PodChange, PodOutcome, Reason, RecordOutcome, SliceOutcome,
    Transition, WorkloadChange, WorkloadOutcome, WritePod, WriteSlice,
};
pub use deletions::Deletions;
pub use election::Election;
pub use eligibility::{NotEligible, Preference, Rules, annotation_defect, eligible, standing};
pub use ids::{Key, OpId, StoreId, Term, Uid, Version};
pub use lock_validity::LockValidity;
pub use locks::Locks;
pub use marking::{ELECTION_ANNOTATION, Marking, Markings, PodPatch, TERM_ANNOTATION};
pub use members::{Concern, Members, Membership, PodCache};
pub use node::{Node, ZONE_LABEL};
pub use pod::{NEVER_LEADER_ANNOTATION, NamedPort, PRIORITY_ANNOTATION, Pod};
pub use probe::{ProbeRules, ProbeState};
pub use record::{Holder, Record, Rival, Scope, Stored};
pub use replica::{Known, Output, Replica, Request, Spec};
pub use selector::{Operator, Requirement, Selector};
pub use session::{FoundSession, SessionCommand, SessionLife, SessionParameters};
pub use shared_stores::{Knowledge, SharedStores};
pub use slice::{
    Endpoint, Family, Routing, Service, ServicePort, Slice, SliceContent, SlicePort, TargetPort, slice_name,
};
pub use time::{Instant, Timestamp};
pub use view::{Desired, HandoverOrder, Situation, WhenLost};
pub use workload::{
    Claim as WorkloadClaim, DrainObligation, ENABLED_ANNOTATION, JobPlan, KEPT_ANNOTATION, Setting,
    TEMPLATE_ANNOTATION, WRITTEN_ANNOTATION, Wish, Workload, WorkloadId, WorkloadKind, WriteWorkload,
};

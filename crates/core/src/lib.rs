//! The decisions of an election. This crate is pure: no I/O, no clock, no randomness, no async, no Kubernetes client. The caller passes in
//! time and observations, and gets effects back as values ([`Output`]).

mod agent;
mod backoff;
mod bid;
mod cas;
mod claim;
mod command;
mod connection;
mod contest;
mod deletions;
mod election;
mod eligibility;
mod flapping;
mod followed;
mod handover;
mod identity;
mod ids;
pub mod invariants;
mod key_lock;
mod lock_validity;
mod locks;
mod marking;
mod members;
mod node;
mod overtaken;
mod ownership;
mod pairs;
mod pod;
mod port;
mod presence;
mod probe;
#[cfg(test)]
mod properties;
mod record;
mod replaced;
mod replica;
mod selector;
mod session;
mod shared_stores;
mod slice;
mod small_set;
mod step;
pub mod switchover;
mod templates;
mod time;
mod timers;
mod view;
mod watchdog;
mod words;
mod workload;
mod write;

pub use agent::{Agent, AgentAction, AgentEvent, AgentState, AgentTiming, HeldLock};
pub use backoff::seed_of;
pub use bid::{Bid, PlacedBid};
pub use cas::{CasCommand, CasSession, LockSession, ObjectTag, SessionEnd, SessionObject, SessionWatch, SessionWrite};
pub use claim::{Claim, ClaimCommand, ClaimParameters, ClaimState};
pub use command::{
    Announcement, Command, ElectionRead, Failure, Outcome, PodChange, PodOutcome, Reason, RecordOutcome, SliceOutcome,
    Transition, WorkloadChange, WorkloadOutcome, WriteOutcome, WritePod, WriteSlice,
};
pub use connection::{ConnectionEvent, ConnectionState};
pub use contest::{Contest, Marks};
pub use deletions::Deletions;
pub use election::{Contender, Election, Forecast, Stays, Verdict, forecast};
pub use eligibility::{
    Advantage, Best, NotEligible, OtherLeader, Preference, Rank, Rules, Unavailable, annotation_defect,
    differ_only_in_numbers, eligible, standing,
};
pub use flapping::Flapping;
pub use followed::{
    FollowedLock, Following, IdentityPattern, IdentityRule, IdentitySource, LONGEST_IDENTITY, LockHolder, NotHeld,
    Unmapped, fits,
};
pub use ids::{Key, OpId, StoreId, Term, Uid, Version};
pub use key_lock::{KeyCommand, KeyLock, SeenKey};
pub use lock_validity::LockValidity;
pub use locks::Locks;
pub use marking::{
    Changes, DELETION_COST_ANNOTATION, ELECTION_ANNOTATION, LEADER_FINALIZER, Marking, Markings, PodPatch,
    TERM_ANNOTATION, WRITTEN_COST_ANNOTATION,
};
pub use members::{Concern, Members, Membership, PodCache};
pub use node::{Node, ZONE_LABEL};
pub use overtaken::HeldElsewhere;
pub use ownership::{
    InUse, Judgement, Multiplying, Owner, Ownership, Provenance, Provenances, Selection, Selections, Title, TitleRead,
    Unread,
};
pub use pairs::Pairs;
pub use pod::{
    Control, Controller, ControllerKind, KUBERNETES_CONDITIONS, NEVER_LEADER_ANNOTATION, PRIORITY_ANNOTATION, Pod,
};
pub use port::{NamedPort, TargetPort};
pub use presence::{Absence, AbsentLeader, absence};
pub use probe::{
    HttpProbe, OnlyByKubelet, ProbeFailure, ProbeRequest, ProbeRules, ProbeState, ProbeTarget, ReadinessProbe,
};
pub use record::{Holder, Offer, Record, Rival, Scope, Stored, SwitchoverMark};
pub use replaced::REPLACED_ANNOTATION;
pub use replica::{Output, Replica, Request};
pub use selector::{Operator, Requirement, Selector};
pub use session::{FoundSession, Namesakes, SessionCommand, SessionLife, SessionParameters};
pub use shared_stores::{Knowledge, SharedStores};
pub use slice::{Endpoint, Family, Routing, Service, ServicePort, Slice, SliceContent, SlicePort, slice_name};
pub use small_set::{Names, SmallSet, give_back};
pub use templates::TEMPLATE_LABELS;
pub use time::{Instant, Timestamp};
pub use view::{Desired, FormerLeader, HandoverOrder, Known, Situation, Spec, WhenLost};
pub use watchdog::{Watchdog, WatchdogCommand};
pub use workload::{
    Claim as WorkloadClaim, DrainObligation, ENABLED_ANNOTATION, JobPlan, KEPT_ANNOTATION, Setting,
    TEMPLATE_ANNOTATION, WRITTEN_ANNOTATION, Wish, Workload, WorkloadId, WorkloadKind, WriteWorkload,
};

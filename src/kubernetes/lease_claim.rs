//! The operator's own Lease, which decides which replica acts. [`lictor_core::Claim`] has the rules.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lictor_core::{Claim, ClaimCommand, ClaimParameters, ClaimState, Failure, Instant, Uid, Version};
use serde_json::json;
use tokio::sync::watch;

use super::{Change, changes, failure, version_of, within};
use crate::process::{nap, wall};

/// Whether this replica acts, and what keeps it from finding out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUpdate {
    /// Whether this replica acts.
    pub state: ClaimState,
    /// What went wrong last.
    pub failure: Option<Failure>,
    /// Whether this replica saw another one act last.
    pub others: bool,
    /// The Lease's uid, which identifies this installation.
    pub installation: Option<Uid>,
    /// How many times the API server's store was seen to go back to an earlier state.
    pub rewound: u64,
}

impl Default for ClaimUpdate {
    fn default() -> Self {
        Self { state: ClaimState::Standby, failure: None, others: false, installation: None, rewound: 0 }
    }
}

/// Keeps one replica's claim on the operator's Lease.
pub struct LeaseClaim {
    api: Api<Lease>,
    name: String,
    identity: String,
    parameters: ClaimParameters,
    clock: fn() -> Instant,
    updates: watch::Sender<ClaimUpdate>,
}

impl LeaseClaim {
    /// Creates a claim on the Lease `namespace`/`name`, and the receiver that follows it. `identity` must be unique for each
    /// start of a process.
    pub fn new(
        client: Client,
        namespace: &str,
        name: String,
        identity: String,
        parameters: ClaimParameters,
        clock: fn() -> Instant,
    ) -> (Self, watch::Receiver<ClaimUpdate>) {
        let (updates, receiver) = watch::channel(ClaimUpdate::default());
        let api = Api::namespaced(client, namespace);
        (Self { api, name, identity, parameters, clock, updates }, receiver)
    }

    /// Claims and renews the Lease until `stop` is set. Then gives it back at once, so that a standby does not have to wait.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut claim = Claim::new(self.identity.clone(), self.parameters);
        let mut watch = self.watch();
        let (mut rewound, mut watch_at): (u64, Option<Instant>) = (0, None);
        let mut known = false;
        while !*stop.borrow() {
            if std::mem::replace(&mut rewound, self.updates.borrow().rewound) != self.updates.borrow().rewound {
                // The watch still shows the past. An API server that was not restarted for the restore lists the past, too. So
                // the claim works without a watch for a while.
                watch = futures::stream::pending().boxed();
                watch_at = Some((self.clock)() + self.parameters.duration);
            }
            if watch_at.is_some_and(|at| (self.clock)() >= at) {
                (watch, watch_at) = (self.watch(), None);
            }
            let now = (self.clock)();
            let wait = match claim.next(now) {
                ClaimCommand::Write { expected, takes_over } if known => {
                    self.write(&mut claim, expected, takes_over).await;
                    self.publish(&claim, None);
                    continue;
                }
                ClaimCommand::Write { .. } => Duration::from_secs(1),
                ClaimCommand::Wait(until) => until.since(now),
            };
            // A claim that is not renewed ends by itself.
            let wait = match claim.state(now) {
                ClaimState::Acting(deadline) => wait.min(deadline.since(now)),
                ClaimState::Standby => wait,
            };
            let wait = watch_at.map_or(wait, |at| wait.min(at.since(now)));
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = nap(wait) => {}
                change = watch.next() => match change {
                    Some(Change::All(_, _, leases)) => {
                        known = true;
                        self.see(&mut claim, leases.first());
                    }
                    Some(Change::Applied(lease)) => {
                        known = true;
                        self.see(&mut claim, Some(&lease));
                    }
                    Some(Change::Deleted(_)) => self.see(&mut claim, None),
                    Some(Change::Rewound(_)) => self.look(&mut claim).await,
                    Some(Change::Broken(_, failure)) => {
                        let failure = Failure::from(failure);
                        tracing::warn!(reason = ?failure, "the operator's own lease can't be watched");
                        self.publish(&claim, Some(failure));
                        continue;
                    }
                    None => return,
                }
            }
            self.publish(&claim, None);
        }
        self.updates.send_modify(|update| update.state = ClaimState::Standby);
        if let Some(version) = claim.held() {
            self.release(version).await;
        }
    }

    fn watch(&self) -> BoxStream<'static, Change<Lease>> {
        let own = ListParams::default().fields(&format!("metadata.name={}", self.name));
        changes("leases", None, self.api.clone(), own, |lease| lease)
    }

    fn see(&self, claim: &mut Claim, lease: Option<&Lease>) {
        if let Some(lease) = lease {
            self.identify(lease);
        }
        claim.observe(lease.map(seen), (self.clock)());
    }

    /// Compares the version in an answer with `known`, the highest version when the request was sent.
    fn compare(&self, claim: &mut Claim, lease: &Lease, known: Version) {
        if claim.goes_back(version_of(lease), known) {
            self.updates.send_modify(|update| update.rewound += 1);
        }
    }

    /// Notes the uid of the Lease. The first one that is seen identifies the installation for as long as this process lives.
    fn identify(&self, lease: &Lease) {
        self.updates.send_if_modified(|update| {
            let known = update.installation.is_some();
            update.installation = update.installation.take().or_else(|| lease.metadata.uid.clone().map(Uid));
            !known && update.installation.is_some()
        });
    }

    fn publish(&self, claim: &Claim, failure: Option<Failure>) {
        let (state, others) = (claim.state((self.clock)()), claim.is_others());
        self.updates.send_if_modified(|update| {
            let new = ClaimUpdate { state, failure, others, ..update.clone() };
            let differs = *update != new;
            *update = new;
            differs
        });
    }

    async fn write(&self, claim: &mut Claim, expected: Option<Version>, takes_over: bool) {
        let (sent, known) = ((self.clock)(), claim.known());
        let wall = MicroTime(Timestamp::from_millisecond(wall().0).unwrap_or_default());
        let limit = self.parameters.margin();
        let written = match expected {
            None => {
                let lease = Lease {
                    metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                    spec: Some(LeaseSpec {
                        holder_identity: Some(self.identity.clone()),
                        lease_duration_seconds: i32::try_from(self.parameters.duration.as_secs().max(1)).ok(),
                        acquire_time: Some(wall.clone()),
                        renew_time: Some(wall),
                        lease_transitions: Some(0),
                        ..LeaseSpec::default()
                    }),
                };
                within(limit, self.api.create(&PostParams::default(), &lease)).await
            }
            Some(version) => {
                let mut spec = json!({
                    "holderIdentity": self.identity,
                    "leaseDurationSeconds": self.parameters.duration.as_secs().max(1),
                    "renewTime": wall,
                });
                if takes_over {
                    spec["acquireTime"] = json!(wall);
                }
                let patch = json!({"metadata": {"resourceVersion": version.to_string()}, "spec": spec});
                within(limit, self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))).await
            }
        };
        let now = (self.clock)();
        match written {
            Ok(lease) => {
                self.identify(&lease);
                self.compare(claim, &lease, known);
                claim.written(version_of(&lease), sent, now);
            }
            Err(error) => {
                claim.failed(now);
                let conflict = matches!(&error, kube::Error::Api(s) if s.is_conflict() || s.is_already_exists());
                if !conflict {
                    let failure = failure("write", "leases", &error);
                    tracing::warn!(reason = ?failure, "the operator's own lease can't be written");
                    self.publish(claim, Some(failure));
                }
                self.look(claim).await;
            }
        }
    }

    /// Reads the Lease after a failed write.
    async fn look(&self, claim: &mut Claim) {
        let known = claim.known();
        if let Ok(lease) = within(self.parameters.margin(), self.api.get_opt(&self.name)).await {
            if let Some(lease) = &lease {
                self.compare(claim, lease, known);
            }
            claim.observe(lease.as_ref().map(seen), (self.clock)());
        }
    }

    async fn release(&self, version: Version) {
        let patch = json!({
            "metadata": {"resourceVersion": version.to_string()},
            "spec": {"holderIdentity": null, "renewTime": null, "leaseDurationSeconds": 1},
        });
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let released = self.api.patch(&self.name, &parameters, &patch);
        if let Err(error) = within(self.parameters.margin(), released).await {
            tracing::warn!(%error, "the operator's own lease could not be given back: a standby has to wait until the lease ends");
        }
    }
}

fn seen(lease: &Lease) -> (Version, Option<String>, Duration) {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(15);
    (version_of(lease), spec.holder_identity.filter(|holder| !holder.is_empty()), Duration::from_secs(seconds))
}

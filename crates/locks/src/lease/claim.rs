//! The claim on a Lease that one process holds at a time. One replica of the operator acts by it, and one `lictor agent` runs its command
//! by it. [`lictor_core::Claim`] has the rules.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lictor_core::{Claim, ClaimCommand, ClaimParameters, ClaimState, Failure, Instant, Uid, Version};
use lictor_kubernetes::{Change, GRANT_TO_OPERATOR, changes, failure, granting, version_of, within};
use lictor_process::{nap, wall};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Notify, mpsc, watch};

/// The annotation that describes the holder beyond `holderIdentity`: a [`Holder`] in JSON.
const HOLDER_ANNOTATION: &str = "lictor.dev/holder";

/// L1: the shortest time between two reads of the Lease that come because another replica seems to act.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// L2: how long the write of a Lease may take whose duration a person has shortened. Kubernetes knows no duration below a second.
const SHORTENED: Duration = Duration::from_millis(200);

/// A replica, as it writes itself into the operator's Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The replica's name, unique for each start of a process. This annotation counts only together with the same `holderIdentity`, because
    /// a replica of an earlier version leaves the annotation of its predecessor.
    pub identity: String,
    /// The address at which the replica answers its peers. It listens there for as long as its process lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The uid of the replica's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
}

impl Holder {
    /// L5: whether `self` was an earlier process where this replica is now. One address has one listener at a time, and a container in
    /// another pod has another uid.
    fn was_before(&self, present: &Self) -> bool {
        self.identity != present.identity
            && self.address.is_some()
            && self.pod_uid.is_some()
            && (self.address, &self.pod_uid) == (present.address, &present.pod_uid)
    }
}

/// Whether this replica acts, and the failure that keeps it from finding out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUpdate {
    /// Whether this replica acts.
    pub state: ClaimState,
    /// The last failure.
    pub failure: Option<Failure>,
    /// Whether another replica acted when this one last looked.
    pub others: bool,
    /// The holder's own description.
    pub holder: Option<Holder>,
    /// L6: the moment from which no other replica can act.
    pub alone_from: Instant,
    /// The Lease's uid, which identifies this installation.
    pub installation: Option<Uid>,
    /// How many times the API server's store was seen to go back to an earlier state.
    pub rewound: u64,
    /// A6: the version of the write by which this replica began to act. It rises from one replica that acts to the next.
    pub since: Option<Version>,
    /// The version under which this replica holds the Lease. It changes with each renewal.
    pub held: Option<Version>,
    /// The last holder that was seen.
    pub leader: Option<String>,
    /// The owner of the Lease, if it is one that this process must not write.
    pub owner: Option<String>,
}

impl Default for ClaimUpdate {
    fn default() -> Self {
        Self {
            state: ClaimState::Standby,
            failure: None,
            others: false,
            holder: None,
            alone_from: Instant::default(),
            installation: None,
            rewound: 0,
            since: None,
            held: None,
            leader: None,
            owner: None,
        }
    }
}

/// Keeps one replica's claim on the operator's Lease.
pub struct LeaseClaim {
    api: Api<Lease>,
    name: String,
    own: Holder,
    parameters: ClaimParameters,
    clock: fn() -> Instant,
    updates: watch::Sender<ClaimUpdate>,
    /// The names of holders whose processes are gone.
    gone: mpsc::UnboundedReceiver<String>,
    doubt: Arc<Notify>,
    /// Whether the Lease is read before its watch begins.
    reads_first: bool,
    /// Returns the owner of a Lease that must not be written, or `None` if any process may hold it.
    owner: fn(&Lease) -> Option<String>,
    /// The end of messages about a missing right.
    grant: &'static str,
    /// The number of times that the Lease has changed hands, by its own count.
    transitions: AtomicI32,
}

impl LeaseClaim {
    /// Creates a claim on the Lease `namespace`/`name`, the receiver that follows it, and the sender for the names of holders whose
    /// processes are gone.
    pub fn new(
        client: Client,
        namespace: &str,
        name: String,
        own: Holder,
        parameters: ClaimParameters,
        clock: fn() -> Instant,
    ) -> (Self, watch::Receiver<ClaimUpdate>, mpsc::UnboundedSender<String>) {
        let (updates, receiver) = watch::channel(ClaimUpdate::default());
        let (sender, gone) = mpsc::unbounded_channel();
        let api = Api::namespaced(client, namespace);
        let doubt = Arc::default();
        (
            Self {
                api,
                name,
                own,
                parameters,
                clock,
                updates,
                gone,
                doubt,
                reads_first: false,
                owner: |_| None,
                grant: GRANT_TO_OPERATOR,
                transitions: AtomicI32::new(0),
            },
            receiver,
            sender,
        )
    }

    /// Returns the notifier for signs that another replica acts. The claim then reads the Lease, at most once in [`BETWEEN_LOOKS`], because
    /// its watch may be late, and the next renewal some seconds away.
    pub fn doubt(&self) -> Arc<Notify> {
        self.doubt.clone()
    }

    /// Reads the Lease before its watch begins. A watch begins with a list, which the API server may answer 100 ms later than a read.
    #[must_use]
    pub fn reading_first(mut self) -> Self {
        self.reads_first = true;
        self
    }

    /// Never writes a Lease for which `owner` returns an owner, and counts that owner as its holder.
    #[must_use]
    pub fn sparing(mut self, owner: fn(&Lease) -> Option<String>) -> Self {
        self.owner = owner;
        self
    }

    /// Sets the account to which a missing right must be granted, in place of the operator's.
    #[must_use]
    pub fn granting(mut self, grant: &'static str) -> Self {
        self.grant = grant;
        self
    }

    /// Claims and renews the Lease until `stop` is set. Then releases it at once, so that a standby does not have to wait. Returns whether
    /// the API server has confirmed that.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> bool {
        let mut claim = Claim::new(self.own.identity.clone(), self.parameters);
        let mut watch = self.watch();
        let (mut rewound, mut watch_at): (u64, Option<Instant>) = (0, None);
        let mut known = self.reads_first && self.look(&mut claim).await;
        let mut looked: Option<Instant> = None;
        // The failure of the last write, until a write succeeds or another replica holds the Lease.
        let mut failed: Option<Failure> = None;
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
                ClaimCommand::Write { .. } if self.updates.borrow().owner.is_some() => Duration::MAX,
                ClaimCommand::Write { expected, takes_over } if known => {
                    failed = self.write(&mut claim, expected, takes_over).await;
                    self.publish(&claim, failed.clone());
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
            let again = looked.map(|at| at + BETWEEN_LOOKS).filter(|again| now < *again);
            let wait = again.map_or(wait, |again| wait.min(again.since(now)));
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = nap(wait) => {}
                Some(holder) = self.gone.recv() => claim.gone(&holder),
                () = self.doubt.notified(), if again.is_none() => {
                    looked = Some(now);
                    if claim.held().is_some() {
                        self.look(&mut claim).await;
                    }
                }
                change = watch.next() => match change {
                    Some(Change::All(_, at, leases)) => {
                        known = true;
                        self.see(&mut claim, at, leases.first());
                    }
                    Some(Change::Applied(lease)) => {
                        known = true;
                        self.see(&mut claim, version_of(&lease), Some(&lease));
                    }
                    Some(Change::Deleted(lease)) => self.see(&mut claim, version_of(&lease), None),
                    Some(Change::Rewound(_) | Change::Resumed(_)) => _ = self.look(&mut claim).await,
                    Some(Change::Broken(_, failure)) => {
                        let failure = self.told(failure.into());
                        tracing::warn!(lease = self.name, problem = failure.text(), "the Lease can't be watched");
                        self.publish(&claim, Some(failure));
                        continue;
                    }
                    None => return false,
                }
            }
            failed = failed.filter(|_| !claim.is_others());
            if known && claim.is_shortened() && matches!(claim.next((self.clock)()), ClaimCommand::Write { .. }) {
                // L2: this write ends the shortening. If it fails, the published state says so.
                tracing::warn!(lease = self.name, "the Lease's duration was shortened: this replica restores it");
                continue;
            }
            self.publish(&claim, failed.clone());
        }
        self.updates.send_modify(|update| update.state = ClaimState::Standby);
        match claim.held() {
            Some(version) => self.release(version, claim.released((self.clock)())).await,
            None => false,
        }
    }

    fn watch(&self) -> BoxStream<'static, Change<Lease>> {
        let own = ListParams::default().fields(&format!("metadata.name={}", self.name));
        changes("leases", None, self.api.clone(), own, |lease| lease)
    }

    /// Takes the Lease as the watch shows it as of a version.
    fn see(&self, claim: &mut Claim, at: Version, lease: Option<&Lease>) {
        if claim.knows_later(at) {
            return;
        }
        if let Some(lease) = lease {
            self.identify(lease);
        }
        self.observe(claim, lease);
    }

    fn observe(&self, claim: &mut Claim, lease: Option<&Lease>) {
        let spared = self.spare(lease);
        let lease = spared.as_ref().or(lease);
        if let Some(lease) = lease.filter(|lease| version_of(*lease) >= claim.known()) {
            let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
            self.transitions.store(transitions.unwrap_or_default(), Ordering::Relaxed);
        }
        let (before, published) = (claim.holder().cloned(), lease.map(seen));
        let holder = lease.and_then(holder);
        claim.observe(published.clone(), (self.clock)());
        if let Some((_, Some(other), duration)) = published
            && duration > self.parameters.patience
            && claim.is_others()
            && claim.holder() == Some(&other)
            && before.as_ref() != Some(&other)
        {
            // L3.
            let (published, own) = (duration.as_secs(), self.parameters.patience.as_secs());
            tracing::warn!(
                lease = self.name,
                holder = other,
                "the Lease says that its holder keeps it for {published} s: this replica takes it over after {own} s \
                 without a renewal"
            );
        }
        if let Some(holder) = holder.as_ref().filter(|holder| holder.was_before(&self.own)) {
            claim.gone(&holder.identity);
        }
        let holder = holder.filter(|holder| claim.is_others() && claim.holder() == Some(&holder.identity));
        self.updates.send_if_modified(|update| {
            let differs = update.holder != holder;
            update.holder = holder;
            differs
        });
    }

    /// Notes the owner of a Lease that must not be written. Then returns the Lease as held by that owner.
    fn spare(&self, lease: Option<&Lease>) -> Option<Lease> {
        let owner = lease.and_then(self.owner);
        self.updates.send_if_modified(|update| {
            let differs = update.owner != owner;
            update.owner.clone_from(&owner);
            differs
        });
        let mut lease = lease.cloned()?;
        lease.spec.get_or_insert_default().holder_identity = Some(owner?);
        Some(lease)
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
        let (state, others, alone_from) = (claim.state((self.clock)()), claim.is_others(), claim.alone_from());
        self.updates.send_if_modified(|update| {
            let holder = update.holder.clone().filter(|_| others);
            let leader = claim.holder().cloned();
            let acts = matches!(state, ClaimState::Acting(_));
            let held = claim.held().filter(|_| acts);
            let since = update.since.or(held).filter(|_| acts);
            let new = ClaimUpdate { state, failure, others, holder, alone_from, since, held, leader, ..update.clone() };
            let differs = *update != new;
            *update = new;
            differs
        });
    }

    /// Writes the Lease. Returns the failure, unless another replica was faster.
    async fn write(&self, claim: &mut Claim, expected: Option<Version>, takes_over: bool) -> Option<Failure> {
        let (sent, known) = ((self.clock)(), claim.known());
        let wall = MicroTime(Timestamp::from_millisecond(wall().0).unwrap_or_default());
        // L2: other replicas wait for at least a second.
        let limit =
            if claim.is_shortened() { SHORTENED.min(self.parameters.margin()) } else { self.parameters.margin() };
        let annotations = BTreeMap::from([(HOLDER_ANNOTATION.to_owned(), json!(self.own).to_string())]);
        let written = match expected {
            None => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        annotations: Some(annotations),
                        ..ObjectMeta::default()
                    },
                    spec: Some(LeaseSpec {
                        holder_identity: Some(self.own.identity.clone()),
                        lease_duration_seconds: i32::try_from(self.parameters.published().as_secs()).ok(),
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
                    "holderIdentity": self.own.identity,
                    "leaseDurationSeconds": self.parameters.published().as_secs(),
                    "renewTime": wall,
                });
                if takes_over {
                    spec["acquireTime"] = json!(wall);
                    spec["leaseTransitions"] = json!(self.transitions.load(Ordering::Relaxed).max(0).saturating_add(1));
                }
                let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
                let patch = json!({"metadata": metadata, "spec": spec});
                within(limit, self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))).await
            }
        };
        let now = (self.clock)();
        match written {
            Ok(lease) => {
                self.identify(&lease);
                self.compare(claim, &lease, known);
                claim.written(version_of(&lease), sent, now);
                None
            }
            Err(error) => {
                claim.failed(now);
                let conflict = matches!(&error, kube::Error::Api(s) if s.is_conflict() || s.is_already_exists());
                let failed = (!conflict).then(|| self.told(failure("write", "leases", &error)));
                if let Some(failure) = &failed {
                    tracing::warn!(lease = self.name, problem = failure.text(), "the Lease can't be written");
                    self.publish(claim, Some(failure.clone()));
                }
                self.look(claim).await;
                failed
            }
        }
    }

    /// Returns a failure that names the account to which a missing right must be granted.
    fn told(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Forbidden(text) => Failure::Forbidden(granting(&text, self.grant)),
            other => other,
        }
    }

    /// Reads the Lease. Returns whether there was an answer.
    async fn look(&self, claim: &mut Claim) -> bool {
        let known = claim.known();
        let read = within(self.parameters.margin(), self.api.get_opt(&self.name)).await;
        if let Ok(lease) = &read {
            if let Some(lease) = lease {
                self.compare(claim, lease, known);
            }
            self.observe(claim, lease.as_ref());
        }
        read.is_ok()
    }

    async fn release(&self, version: Version, lasts: Duration) -> bool {
        let patch = json!({
            "metadata": {"resourceVersion": version.to_string(), "annotations": {HOLDER_ANNOTATION: null}},
            "spec": {"holderIdentity": null, "renewTime": null, "leaseDurationSeconds": lasts.as_secs()},
        });
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let released = self.api.patch(&self.name, &parameters, &patch);
        let released = within(self.parameters.margin(), released).await;
        if let Err(error) = &released {
            tracing::warn!(lease = self.name, %error, "could not release the Lease: others have to wait until it expires");
        }
        released.is_ok()
    }
}

/// The holder's own description.
fn holder(lease: &Lease) -> Option<Holder> {
    let said = lease.metadata.annotations.as_ref()?.get(HOLDER_ANNOTATION)?;
    let identity = lease.spec.as_ref()?.holder_identity.as_ref()?;
    serde_json::from_str(said).ok().filter(|holder: &Holder| holder.identity == *identity)
}

fn seen(lease: &Lease) -> (Version, Option<String>, Duration) {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(15);
    (version_of(lease), spec.holder_identity.filter(|holder| !holder.is_empty()), Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use http::{Method, Request, Response};
    use kube::client::Body;

    use super::*;
    use lictor_process::{monotonic, spawn_in, virtual_process};

    fn lease(identity: &str, said: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"annotations": {HOLDER_ANNOTATION: said}}, "spec": {"holderIdentity": identity},
        }))
        .expect("a Lease")
    }

    #[test]
    fn what_the_annotation_says_counts_for_the_holder_that_wrote_it() {
        let said = r#"{"identity":"a","address":"[fd00::7]:8081","podUid":"u"}"#;
        let found = holder(&lease("a", said)).expect("it is the holder's");
        let address = found.address.expect("it says one");
        assert_eq!((address.to_string().as_str(), found.pod_uid.as_deref()), ("[fd00::7]:8081", Some("u")));
        assert_eq!(holder(&lease("a", &json!(found).to_string())), Some(found));
        for odd in ["", "{}", "[]", r#"{"identity":"a","address":"everywhere"}"#, r#"{"identity":1}"#] {
            assert_eq!(holder(&lease("a", odd)), None, "{odd}");
        }
        assert_eq!(holder(&lease("b", said)), None, "a replica of an earlier version left it");
        assert_eq!(holder(&Lease::default()), None);
    }

    /// Shows L5.
    #[test]
    fn only_an_earlier_process_at_the_same_address_in_the_same_pod_was_before() {
        let at = |identity: &str, address: Option<&str>, uid: Option<&str>| Holder {
            identity: identity.into(),
            address: address.map(|address| address.parse().expect("an address")),
            pod_uid: uid.map(Into::into),
        };
        let (own, other) = (Some("10.0.0.7:8081"), Some("10.0.0.8:8081"));
        let present = at("b", own, Some("u"));
        assert!(at("a", own, Some("u")).was_before(&present));
        for not in [at("b", own, Some("u")), at("a", other, Some("u")), at("a", own, Some("v")), at("a", own, None)] {
            assert!(!not.was_before(&present), "{not:?}");
        }
        // Nothing is known of where they are.
        assert!(!at("a", None, None).was_before(&at("b", None, None)));
        assert!(!at("a", own, None).was_before(&at("b", own, None)));
        assert!(!at("a", None, Some("u")).was_before(&at("b", None, Some("u"))));
    }

    /// Shows L4.
    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_the_watch_tells_late_ends_no_claim_on_the_lease_that_was_made_anew() {
        const LIST: &str = r#"{"metadata": {"resourceVersion": "4"}, "items": []}"#;
        let begun = tokio::time::Instant::now();
        let seen = Arc::new(Mutex::new((0, true)));
        let mine = |version: &str| {
            let spec = json!({"holderIdentity": "a", "leaseDurationSeconds": 15});
            json!({"metadata": {"name": "l", "uid": version, "resourceVersion": version}, "spec": spec})
        };
        let service = tower::service_fn(move |request: Request<Body>| {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
            let mut seen = seen.lock().expect("no test has failed");
            let (made, late) = &mut *seen;
            *made += u32::from(request.method() == Method::POST);
            let (after, code, body) = match (request.method().as_str(), *made) {
                ("GET", 0) if !watches => (0, 200, LIST.to_owned()),
                ("GET", _) if watches && std::mem::take(late) => {
                    (7, 200, json!({"type": "DELETED", "object": mine("7")}).to_string() + "\n")
                }
                ("GET", _) if watches => (60, 200, String::new()),
                ("POST", 1) => (0, 201, mine("5").to_string()),
                ("POST", 2) => (0, 201, mine("9").to_string()),
                ("PATCH", 2) => (0, 200, mine("10").to_string()),
                // Somebody has deleted the first one.
                _ => (
                    0,
                    404,
                    json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}).to_string(),
                ),
            };
            async move {
                tokio::time::sleep_until(begun + Duration::from_secs(after)).await;
                let answer = Response::builder().status(code).body(Body::from(body.into_bytes()));
                Ok::<_, Infallible>(answer.expect("an answer"))
            }
        });
        let own = Holder { identity: "a".into(), ..Holder::default() };
        let parameters = ClaimParameters::of_replica(Duration::from_secs(15));
        let client = Client::new(service, "shop");
        let (claim, mut updates, _gone) = LeaseClaim::new(client, "shop", "l".into(), own, parameters, monotonic);
        let (_stop, stopping) = watch::channel(false);
        let claiming = spawn_in(&virtual_process(), claim.run(stopping));
        let mut acts = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(9), async {
            while updates.changed().await.is_ok() {
                let acting = matches!(updates.borrow_and_update().state, ClaimState::Acting(_));
                if acts.last() != Some(&acting) {
                    acts.push(acting);
                }
            }
        })
        .await;
        claiming.abort();
        assert_eq!(acts, [true, false, true], "until it was deleted, and from when it was made anew");
    }
}

//! The claim on a Lease that one process holds at a time. One replica of the operator acts by it, and one `lictor agent` runs its command
//! by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lictor_core::{ClaimParameters, Failure, Instant, Uid, Version};
use lictor_kubernetes::{Change, GRANT_TO_OPERATOR, changes, failure, granting, version_of, within};
use lictor_process::wall;
use serde_json::json;
use tokio::sync::{Notify, mpsc, watch};

use crate::claim::{ClaimKeeper, ClaimStore, ClaimUpdate, Claimed, Holder, News, Unwritten, Write};
use crate::lock::Other;

/// The annotation that describes the holder beyond `holderIdentity`: a [`Holder`] in JSON.
const HOLDER_ANNOTATION: &str = "lictor.dev/holder";

/// Keeps one process's claim on a Lease.
pub struct LeaseClaim {
    keeper: ClaimKeeper,
    store: LeaseStore,
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
        let store = LeaseStore {
            api: Api::namespaced(client, namespace),
            name,
            own: own.clone(),
            published: parameters.published(),
            owner: |_| None,
            grant: GRANT_TO_OPERATOR,
            transitions: Mutex::default(),
        };
        let (keeper, updates, gone) = ClaimKeeper::new(own, parameters, clock);
        (Self { keeper, store }, updates, gone)
    }

    /// Returns the notifier for signs that another replica acts. The claim then reads the Lease, at most once a second, because its watch
    /// may be late, and the next renewal some seconds away.
    pub fn doubt(&self) -> Arc<Notify> {
        self.keeper.doubt()
    }

    /// Reads the Lease before its watch begins. A watch begins with a list, which the API server may answer 100 ms later than a read.
    #[must_use]
    pub fn reading_first(mut self) -> Self {
        self.keeper = self.keeper.reading_first();
        self
    }

    /// Never writes a Lease for which `owner` returns an owner, and counts that owner as its holder.
    #[must_use]
    pub fn sparing(mut self, owner: fn(&Lease) -> Option<String>) -> Self {
        self.store.owner = owner;
        self
    }

    /// Sets the account to which a missing right must be granted, in place of the operator's.
    #[must_use]
    pub fn granting(mut self, grant: &'static str) -> Self {
        self.store.grant = grant;
        self
    }

    /// Claims and renews the Lease until `stop` is set. Then releases it at once, so that a standby does not have to wait. Returns whether
    /// the API server has confirmed that.
    pub async fn run(self, stop: watch::Receiver<bool>) -> bool {
        self.keeper.run(&self.store, stop).await
    }
}

/// A Lease.
struct LeaseStore {
    api: Api<Lease>,
    name: String,
    own: Holder,
    published: Duration,
    /// Returns the owner of a Lease that must not be written, or `None` if any process may hold it.
    owner: fn(&Lease) -> Option<String>,
    /// The end of messages about a missing right.
    grant: &'static str,
    /// The number of times that the Lease has changed hands, by its own count, as of the version that was seen last.
    transitions: Mutex<(Version, i32)>,
}

impl LeaseStore {
    fn claimed(&self, lease: &Lease) -> Claimed {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(15);
        let owner = (self.owner)(lease);
        let held = spec.holder_identity.filter(|holder| !holder.is_empty());
        let holder = owner.clone().or(held);
        let replica = described(lease).filter(|replica| Some(&replica.identity) == holder.as_ref());
        let address = replica.as_ref().and_then(|replica| replica.address).map(|address| address.to_string());
        Claimed {
            version: version_of(lease),
            told: holder.clone().map(|name| Other { address, ..Other::named(name) }),
            replica,
            holder,
            duration: Duration::from_secs(seconds),
            owner,
            installation: lease.metadata.uid.clone().map(Uid),
        }
    }

    /// The same of a Lease that the watch shows, perhaps late.
    fn watched(&self, lease: &Lease) -> Claimed {
        if version_of(lease) >= self.transitions().0 {
            self.count(lease);
        }
        self.claimed(lease)
    }

    fn count(&self, lease: &Lease) {
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        *self.transitions() = (version_of(lease), transitions.unwrap_or_default());
    }

    fn transitions(&self) -> MutexGuard<'_, (Version, i32)> {
        self.transitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self, wall: MicroTime, annotations: BTreeMap<String, String>) -> Lease {
        let metadata =
            ObjectMeta { name: Some(self.name.clone()), annotations: Some(annotations), ..ObjectMeta::default() };
        let spec = LeaseSpec {
            holder_identity: Some(self.own.identity.clone()),
            lease_duration_seconds: i32::try_from(self.published.as_secs()).ok(),
            acquire_time: Some(wall.clone()),
            renew_time: Some(wall),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    /// Returns a failure that names the account to which a missing right must be granted.
    fn told(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Forbidden(text) => Failure::Forbidden(granting(&text, self.grant)),
            other => other,
        }
    }
}

impl ClaimStore for LeaseStore {
    const KIND: &'static str = "Lease";

    fn name(&self) -> &str {
        &self.name
    }

    fn news(&self) -> BoxStream<'_, News> {
        let own = ListParams::default().fields(&format!("metadata.name={}", self.name));
        changes("leases", None, self.api.clone(), own, |lease| lease)
            .map(|change| match change {
                Change::All(_, at, leases) => News::Seen(at, leases.first().map(|lease| self.watched(lease))),
                Change::Applied(lease) => News::Seen(version_of(&lease), Some(self.watched(&lease))),
                Change::Deleted(lease) => News::Seen(version_of(&lease), None),
                Change::Rewound(_) | Change::Resumed(_) => News::Uncertain,
                Change::Broken(_, failure) => News::Broken(self.told(failure.into())),
            })
            .boxed()
    }

    async fn read(&self, limit: Duration) -> Result<Option<Claimed>, Failure> {
        let lease = within(limit, self.api.get_opt(&self.name)).await;
        let lease = lease.map_err(|error| self.told(failure("get", "leases", &error)))?;
        if let Some(lease) = &lease {
            self.count(lease);
        }
        Ok(lease.map(|lease| self.claimed(&lease)))
    }

    async fn write(&self, write: Write) -> Result<Claimed, Unwritten> {
        let wall = MicroTime(Timestamp::from_millisecond(wall().0).unwrap_or_default());
        let annotations = BTreeMap::from([(HOLDER_ANNOTATION.to_owned(), json!(self.own).to_string())]);
        let written = match write.expected {
            None => {
                let lease = self.first(wall, annotations);
                within(write.limit, self.api.create(&PostParams::default(), &lease)).await
            }
            Some(version) => {
                let mut spec = json!({
                    "holderIdentity": self.own.identity,
                    "leaseDurationSeconds": self.published.as_secs(),
                    "renewTime": wall,
                });
                if write.takes_over {
                    spec["acquireTime"] = json!(wall);
                    spec["leaseTransitions"] = json!(self.transitions().1.max(0).saturating_add(1));
                }
                let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
                let patch = json!({"metadata": metadata, "spec": spec});
                within(write.limit, self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))).await
            }
        };
        match written {
            Ok(lease) => Ok(self.claimed(&lease)),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Err(Unwritten::Conflict)
            }
            Err(error) => Err(Unwritten::Failed(self.told(failure("write", "leases", &error)))),
        }
    }

    async fn release(&self, version: Version, lasts: Duration, limit: Duration) -> Result<(), Failure> {
        let patch = json!({
            "metadata": {"resourceVersion": version.to_string(), "annotations": {HOLDER_ANNOTATION: null}},
            "spec": {"holderIdentity": null, "renewTime": null, "leaseDurationSeconds": lasts.as_secs()},
        });
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let released = within(limit, self.api.patch(&self.name, &parameters, &patch)).await;
        released.map(drop).map_err(|error| self.told(failure("write", "leases", &error)))
    }
}

/// The holder's own description.
fn described(lease: &Lease) -> Option<Holder> {
    let said = lease.metadata.annotations.as_ref()?.get(HOLDER_ANNOTATION)?;
    let identity = lease.spec.as_ref()?.holder_identity.as_ref()?;
    serde_json::from_str(said).ok().filter(|holder: &Holder| holder.identity == *identity)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use kube::client::Body;

    use super::*;
    use lictor_core::ClaimState;
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
        let found = described(&lease("a", said)).expect("it is the holder's");
        let address = found.address.expect("it says one");
        assert_eq!((address.to_string().as_str(), found.pod_uid.as_deref()), ("[fd00::7]:8081", Some("u")));
        assert_eq!(described(&lease("a", &json!(found).to_string())), Some(found));
        for odd in ["", "{}", "[]", r#"{"identity":"a","address":"everywhere"}"#, r#"{"identity":1}"#] {
            assert_eq!(described(&lease("a", odd)), None, "{odd}");
        }
        assert_eq!(described(&lease("b", said)), None, "a replica of an earlier version left it");
        assert_eq!(described(&Lease::default()), None);
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

//! Objects that are Leases in a namespace of a cluster, the hub.
//!
//! A Lease has the object's name and content in annotations, and names in `holderIdentity` the cluster that holds a lock, for people. The API
//! server replaces a Lease only if it has the expected version, so that version is the object's tag.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fnv::FnvHasher;
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use lictor_core::Failure;
use lictor_kubernetes::{Change, WatchFailure, changes, failure, granting, within};
use lictor_objects::{Listed, Object, Objects, Put, Tag};
use serde_json::{Value, json};

/// The annotation with the object's name.
const NAME: &str = "lictor.dev/object";
/// The annotation with the object's content.
const CONTENT: &str = "lictor.dev/content";
/// The end of a message about a missing right.
const GRANT: &str = "; grant it in the hub to the account of the kubeconfig: docs/hub.md has the Role";
/// The longest readable part of a Lease's name, in characters. A name may have 253.
const READABLE: usize = 200;

/// The objects in a namespace of the hub.
pub struct Hub {
    api: Api<Lease>,
    namespace: String,
    /// How long a request may take.
    timeout: Duration,
    /// The names of the objects that this process has asked for, by those of their Leases. A person may have taken the annotation off.
    names: Mutex<BTreeMap<String, String>>,
    /// Why the watch is refused.
    unwatched: Arc<Mutex<Option<Failure>>>,
}

impl Hub {
    /// Returns the objects in a namespace. `client` reaches the hub, and repeats no request by itself.
    pub fn new(client: Client, namespace: &str, timeout: Duration) -> Self {
        let (names, unwatched) = Default::default();
        Self { api: Api::namespaced(client, namespace), namespace: namespace.into(), timeout, names, unwatched }
    }

    /// Returns the name of the Lease of an object.
    fn lease_of(&self, name: &str) -> String {
        let lease = lease_name(name);
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(lease.clone(), name.to_owned());
        lease
    }

    /// Returns the name of the object that a Lease is.
    fn object_of(&self, lease: &Lease) -> Option<String> {
        let own = lease.name_any();
        let said = name_of(lease).filter(|name| lease_name(name) == own).map(str::to_owned);
        said.or_else(|| self.names.lock().unwrap_or_else(PoisonError::into_inner).get(&own).cloned())
    }

    fn failed(&self, verb: &str, error: &kube::Error) -> Failure {
        let told = failure(verb, &format!("leases in the hub's namespace {}", self.namespace), error);
        let status = if let kube::Error::Api(status) = error { status.code } else { 0 };
        match (told, status) {
            (Failure::Forbidden(text), _) => Failure::Forbidden(granting(&text, GRANT)),
            (Failure::Refused(text), 401) => {
                Failure::Refused(format!("{text}; put a kubeconfig with a valid token into the Secret"))
            }
            (Failure::Refused(text), 404) => {
                Failure::Refused(format!("{text}; create the namespace {} in the hub: docs/hub.md", self.namespace))
            }
            (told, _) => told,
        }
    }

    async fn create(&self, name: &str, content: &str) -> kube::Result<Lease> {
        let mut lease = Lease::default();
        lease.metadata.name = Some(self.lease_of(name));
        lease.annotations_mut().extend(annotations(name, content).map(|(key, value)| (key.into(), value.into())));
        lease.spec.get_or_insert_default().holder_identity = holder(content);
        within(self.timeout, self.api.create(&PostParams::default(), &lease)).await
    }

    /// Labels and annotations of others stay.
    async fn replace(&self, name: &str, version: &str, content: &str) -> kube::Result<Lease> {
        let annotations: serde_json::Map<_, _> =
            annotations(name, content).map(|(key, value)| (key.into(), value.into())).into_iter().collect();
        let patch = json!({
            "metadata": {"resourceVersion": version, "annotations": annotations},
            "spec": {"holderIdentity": holder(content)},
        });
        let name = self.lease_of(name);
        within(self.timeout, self.api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await
    }

    async fn write(&self, name: &str, expected: Option<&Tag>, content: Vec<u8>) -> Put {
        let Ok(content) = String::from_utf8(content) else {
            return Put::Failed(Failure::Refused(format!("{name} is no text, so no Lease can have it")));
        };
        let (verb, written) = match expected.map(version_in) {
            Some("") => return Put::Conflict,
            None => ("create", self.create(name, &content).await),
            Some(version) => ("patch", self.replace(name, version, &content).await),
        };
        match written {
            Ok(lease) if content_of(&lease) == content => Put::Done(tag_of(&lease)),
            Ok(_) => Put::Failed(Failure::Rewritten(format!(
                "something in the hub has changed what lictor wrote into the Lease {}/{}",
                self.namespace,
                lease_name(name)
            ))),
            Err(kube::Error::Api(status))
                if status.is_already_exists() || status.is_conflict() || (verb == "patch" && status.is_not_found()) =>
            {
                Put::Conflict
            }
            Err(error) => Put::Failed(self.failed(verb, &error)),
        }
    }
}

impl Objects for Hub {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Object>, Failure>> {
        async move {
            let lease = within(self.timeout, self.api.get_opt(&self.lease_of(name))).await;
            let lease = lease.map_err(|error| self.failed("get", &error))?;
            Ok(lease.map(|lease| {
                // A Lease of another object has no content that belongs to this one.
                let content = if name_of(&lease) == Some(name) { content_of(&lease) } else { "" };
                Object { tag: tag_of(&lease), content: content.into() }
            }))
        }
        .boxed()
    }

    fn put<'a>(&'a self, name: &'a str, expected: Option<&'a Tag>, content: Vec<u8>) -> BoxFuture<'a, Put> {
        self.write(name, expected, content).boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Failure>> {
        async move {
            let leases = within(self.timeout, self.api.list(&ListParams::default())).await;
            let leases = leases.map_err(|error| self.failed("list", &error))?;
            let listed =
                leases.iter().filter_map(|lease| Some(Listed { name: self.object_of(lease)?, tag: tag_of(lease) }));
            let mut listed: Vec<_> = listed.collect();
            listed.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(listed)
        }
        .boxed()
    }

    fn changes(&self) -> Option<BoxStream<'static, String>> {
        let names = |lease: Lease| name_of(&lease).map(str::to_owned);
        let changes = changes("leases", Some(self.namespace.clone()), self.api.clone(), ListParams::default(), names);
        let unwatched = self.unwatched.clone();
        let told = changes.filter_map(move |change| {
            let (name, refused) = match change {
                Change::Applied(name) | Change::Deleted(name) => (name, None),
                Change::All(..) | Change::Rewound(_) | Change::Resumed(_) => (Some(String::new()), None),
                // Any other failure shows in the next look.
                Change::Broken(_, WatchFailure::Forbidden(failure)) => {
                    (None, Some(Failure::Forbidden(granting(failure.text(), GRANT))))
                }
                Change::Broken(..) => (None, None),
            };
            *unwatched.lock().unwrap_or_else(PoisonError::into_inner) = refused;
            ready(name)
        });
        Some(told.boxed())
    }

    fn check<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            let unwatched = self.unwatched.lock().unwrap_or_else(PoisonError::into_inner).clone();
            unwatched.map_or(Ok(()), Err)?;
            self.get(name).await.map(drop)
        }
        .boxed()
    }

    fn deletion(&self, name: &str) -> String {
        format!("run `kubectl -n {} delete lease {}` in the hub", self.namespace, lease_name(name))
    }
}

/// Returns the name of the Lease of an object: letters, digits and hyphens, and a number that tells it from others that read the same.
fn lease_name(name: &str) -> String {
    let mut hasher = FnvHasher::default();
    hasher.write(name.as_bytes());
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let readable: String = name.trim_end_matches(".json").chars().map(plain).take(READABLE).collect();
    format!("{}-{:016x}", readable.trim_start_matches('-'), hasher.finish())
}

fn annotations<'a>(name: &'a str, content: &'a str) -> [(&'static str, &'a str); 2] {
    [(NAME, name), (CONTENT, content)]
}

fn name_of(lease: &Lease) -> Option<&str> {
    lease.annotations().get(NAME).map(String::as_str)
}

fn content_of(lease: &Lease) -> &str {
    lease.annotations().get(CONTENT).map_or("", String::as_str)
}

/// Returns the cluster whose session holds a lock.
fn holder(content: &str) -> Option<String> {
    let content: Value = serde_json::from_str(content).ok()?;
    content.pointer("/session/cluster")?.as_str().map(str::to_owned)
}

/// The version comes first. The rest tells a Lease that was made anew, or whose etcd was put back, from the one that had the version before.
fn tag_of(lease: &Lease) -> Tag {
    let mut hasher = DefaultHasher::new();
    (lease.uid(), name_of(lease), content_of(lease)).hash(&mut hasher);
    Tag(format!("{}/{:x}", lease.resource_version().unwrap_or_default(), hasher.finish()))
}

fn version_in(Tag(tag): &Tag) -> &str {
    tag.split_once('/').map_or(tag, |(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_has_a_lease_of_its_own() {
        assert_eq!(lease_name("sessions/west.json"), "sessions-west-d58f0e4d70ad8f9e");
        let names = ["locks/services/a-b/c.json", "locks/services/a/b-c.json", "locks/services/a_b/c.json"];
        let leases: std::collections::BTreeSet<_> = names.map(lease_name).into();
        assert_eq!(leases.len(), 3, "{leases:?}");
        let long = lease_name(&format!("locks/{}.json", "x".repeat(512)));
        assert_eq!(long.len(), READABLE + 17);
        let valid = |name: &str| name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
        assert!(leases.iter().all(|name| valid(name)) && valid(&lease_name("trial")), "{leases:?}");
    }

    #[test]
    fn a_lease_whose_content_differs_has_another_tag_at_the_same_version() {
        let lease = |content: &str| {
            let mut lease = Lease::default();
            lease.metadata.resource_version = Some("7".into());
            lease
                .annotations_mut()
                .extend(annotations("trial", content).map(|(key, value)| (key.into(), value.into())));
            lease
        };
        let (one, other) = (tag_of(&lease("a")), tag_of(&lease("b")));
        assert_ne!(one, other);
        assert_eq!((version_in(&one), version_in(&other)), ("7", "7"));
    }
}

//! Reads spec.followedLock: the lock that lictor follows, and how its holder maps to a pod.

use lictor_core::{IdentityPattern, IdentityRule, IdentitySource, Key, fits};

use super::{Class, Refusal, SharedClass, kind, refused_key};
use crate as api;

/// The lock that the candidates hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The lock's store and key. The store is that of Leases, or that of the election's class.
    pub key: Key,
    /// How the lock's holder maps to a pod.
    pub rule: IdentityRule,
}

impl Followed {
    /// Reads which lock an election follows, if any. `own` is the lock in which lictor keeps its record.
    pub(super) fn resolve(
        spec: &api::LeaderElectionSpec,
        class: &Class,
        shared: Option<&SharedClass>,
        own: &Key,
        expand: impl Fn(&str) -> String,
        namespace: &str,
    ) -> Result<Option<Self>, Refusal> {
        if spec.elected_by != api::ElectedBy::Candidates {
            return Ok(None);
        }
        // The CRD's rules require it. A spec that an older CRD let in may lack it, and lictor must not elect in the candidates' place.
        let lock = spec.followed_lock.as_ref().ok_or_else(|| {
            unclear("spec.electedBy is Candidates, and spec.followedLock is missing: name the lock that the candidates hold")
        })?;
        let api::FollowedLock { lease, key, identity } = lock;
        let is_key = key.is_some();
        let key = match (lease, key, shared.filter(|shared| shared.has_followed_keys())) {
            (Some(lease), None, _) => Key::lease(namespace, &*lease.name),
            (None, Some(key), Some(shared)) => {
                check_key(key, class, expand)?;
                Key { store: shared.store(), namespace: String::new(), name: key.clone() }
            }
            (None, Some(key), None) => {
                return Err(Refusal {
                    reason: "NoSuchStore",
                    message: format!(
                        "spec.followedLock.key is {key:?}, and the class {:?} keeps its locks in {}, where candidates hold \
                         no keys: name a class with spec.consul or spec.bucket in spec.className",
                        class.name,
                        kind(shared)
                    ),
                });
            }
            _ => return Err(unclear("spec.followedLock needs exactly one of lease and key")),
        };
        let beside = key.store == own.store && key.name.starts_with(&format!("{}/", own.name)) && is_key;
        if key == *own || beside {
            return Err(Refusal {
                reason: "FollowsItself",
                message: format!(
                    "spec.followedLock names {:?}, where lictor keeps its own record of this election: name the lock \
                     that the candidates hold, or give the record another name with spec.key",
                    key.name
                ),
            });
        }
        let source = match (identity.from, &identity.annotation) {
            (api::IdentityFrom::PodName, _) => IdentitySource::PodName,
            (api::IdentityFrom::PodIP, _) => IdentitySource::PodIp,
            (api::IdentityFrom::Annotation, Some(annotation)) => IdentitySource::Annotation(annotation.clone()),
            (api::IdentityFrom::Annotation, None) => {
                return Err(unclear("spec.followedLock.identity.from is Annotation, and annotation is missing"));
            }
        };
        let pattern = match &identity.pattern {
            None => None,
            Some(text) => Some(IdentityPattern::parse(text).ok_or_else(|| {
                unclear("spec.followedLock.identity.pattern must contain {identity} exactly once, for example \"{identity}_*\"")
            })?),
        };
        Ok(Some(Self { key, rule: IdentityRule { source, pattern } }))
    }

    /// Names the lock in messages.
    pub fn told(&self) -> String {
        let Key { namespace, name, .. } = &self.key;
        if namespace.is_empty() { format!("the key {name}") } else { format!("the Lease {namespace}/{name}") }
    }
}

/// A tenant can read the state of a key that it follows, so the class says which keys may be followed.
fn check_key(key: &str, class: &Class, expand: impl Fn(&str) -> String) -> Result<(), Refusal> {
    let name = &class.name;
    let valid = key.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        && key.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !valid {
        return Err(refused_key(format!(
            "spec.followedLock.key is {key:?}, which lictor can't follow: a key may have letters, digits, '/', \
             '_', '-' and '.', and no '//', no '..' and no '/' at either end, for example report/.lock"
        )));
    }
    match class.follow_pattern.map(expand) {
        Some(pattern) if fits(&pattern, key) => Ok(()),
        Some(pattern) => Err(refused_key(format!(
            "spec.followedLock.key is {key:?}, and the class {name:?} lets elections follow only {pattern:?} here: \
             write such a key"
        ))),
        None => Err(refused_key(format!(
            "spec.followedLock.key is {key:?}, and the class {name:?} lets elections follow no key: let an \
             administrator set its spec.followPattern, for example to \"services/{{namespace}}/*\""
        ))),
    }
}

fn unclear(what: &str) -> Refusal {
    Refusal { reason: "InvalidCandidates", message: what.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Classes, DEFAULT_CONTROLLER, resolve};

    fn read(lock: &Value, class: &Value) -> Result<Followed, Refusal> {
        let class = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": "a"}, "spec": class,
        });
        let classes = Classes::from([("a".to_owned(), serde_json::from_value(class).unwrap())]);
        let election = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {
                "className": "a", "selector": {"matchLabels": {"app": "web"}},
                "electedBy": "Candidates", "followedLock": lock,
            },
        });
        let resolved = resolve(&serde_json::from_value(election).unwrap(), &classes, DEFAULT_CONTROLLER).unwrap()?;
        Ok(resolved.followed.unwrap())
    }

    fn consul(pattern: Option<&str>) -> Value {
        json!({
            "consul": {"address": "http://consul.example:8500", "clusterName": "west"}, "followPattern": pattern,
        })
    }

    #[test]
    fn a_lease_of_the_namespace_can_be_followed_but_not_the_record_itself() {
        let lease = |name: &str, class: &Value| read(&json!({"lease": {"name": name}}), class);
        let own = json!({"lease": {}});
        let followed = lease("web-lock", &own).unwrap();
        assert_eq!(followed.key, Key::lease("shop", "web-lock"));
        assert_eq!(followed.rule, IdentityRule { source: IdentitySource::PodName, pattern: None });
        assert_eq!(followed.told(), "the Lease shop/web-lock");
        assert_eq!(read(&Value::Null, &own).unwrap_err().reason, "InvalidCandidates", "an older CRD lets it in");
        let refusal = lease("web", &own).unwrap_err();
        assert_eq!(refusal.reason, "FollowsItself");
        assert!(refusal.message.contains("spec.key"), "{refusal:?}");
        assert!(lease("web", &consul(None)).is_ok(), "the record is in Consul");
    }

    #[test]
    fn a_key_in_consul_can_be_followed_if_the_class_allows_it() {
        let key = |key: &str, class: &Value| read(&json!({"key": key}), class);
        let refused = |name: &str, class: &Value| key(name, class).unwrap_err().reason;
        let tenants = consul(Some("services/{namespace}/*"));
        let followed = key("services/shop/web/.lock", &tenants).unwrap();
        assert_eq!((followed.key.namespace.as_str(), followed.key.name.as_str()), ("", "services/shop/web/.lock"));
        assert_eq!(followed.told(), "the key services/shop/web/.lock");
        assert_eq!(refused("services/bank/web/.lock", &tenants), "KeyNotAllowed");
        assert_eq!(refused("services/shop/../bank/x", &tenants), "KeyNotAllowed");
        assert_eq!(refused("services/shop//x", &tenants), "KeyNotAllowed");
        assert_eq!(refused("services/shop/x", &consul(None)), "KeyNotAllowed");
        assert_eq!(refused("services/shop/x", &json!({"lease": {}})), "NoSuchStore");
        for own in ["services/shop/web/leader", "services/shop/web/leader/record", "services/shop/web/leader/.bid/west"]
        {
            assert_eq!(refused(own, &tenants), "FollowsItself", "{own}");
        }
        assert!(key("services/shop/web/leader2", &tenants).is_ok());
    }

    #[test]
    fn the_holder_is_found_as_the_spec_says() {
        let rule = |identity: Value| {
            read(&json!({"lease": {"name": "l"}, "identity": identity}), &json!({"lease": {}})).map(|read| read.rule)
        };
        let annotation = rule(json!({"from": "Annotation", "annotation": "a/b", "pattern": "{identity}/*"})).unwrap();
        assert_eq!(annotation.source, IdentitySource::Annotation("a/b".into()));
        assert_eq!(annotation.pattern, IdentityPattern::parse("{identity}/*"));
        assert_eq!(rule(json!({"from": "PodIP"})).unwrap().source, IdentitySource::PodIp);
        // The schema refuses these before.
        assert_eq!(rule(json!({"from": "Annotation"})).unwrap_err().reason, "InvalidCandidates");
        assert_eq!(rule(json!({"pattern": "{name}"})).unwrap_err().reason, "InvalidCandidates");
    }
}

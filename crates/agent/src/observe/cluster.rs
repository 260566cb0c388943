//! The status of a LeaderElection, at the API server.

use std::future::ready;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select, unfold};
use kube::api::ListParams;
use kube::{Api, Client};
use lictor_api::LeaderElection;
use lictor_core::{Failure, Timestamp, Version};
use lictor_kubernetes::{Change, WatchFailure, changes, granting, list_at, version_of, watch_failure};
use lictor_process::{monotonic, nap_until};

use super::heard::{Fact, Heard, Leader};
use super::{Own, Role};

/// The end of each message about a missing right.
const GRANT: &str = "; grant it to this pod's service account: docs/know-that-you-lead.md has the Role";

/// Follows an election by a watch, which is quick, and by reading it every `every`, which shows how old the knowledge is. `limit` bounds
/// each read.
pub fn hear_election(
    client: &Client,
    namespace: &str,
    name: &str,
    own: &Own,
    every: Duration,
    limit: Duration,
) -> BoxStream<'static, Heard> {
    let api: Api<LeaderElection> = Api::namespaced(client.clone(), namespace);
    // A Role that names the object allows this selection, and no other.
    let one = ListParams::default().fields(&format!("metadata.name={name}"));
    let absent = Fact {
        role: Role::Follower,
        note: Some(format!("there is no LeaderElection {namespace}/{name}: create it, or correct --election")),
        missing: true,
        ..Fact::default()
    };
    let watched = watch(api.clone(), namespace, one.clone(), own.clone(), absent.clone());
    select(watched, ask(api, one, own.clone(), absent, every, limit)).boxed()
}

fn watch(
    api: Api<LeaderElection>,
    namespace: &str,
    one: ListParams,
    own: Own,
    absent: Fact,
) -> BoxStream<'static, Heard> {
    let read = move |election: LeaderElection| (version_of(&election), fact(&election, &own));
    let heard = move |change| {
        ready(match change {
            Change::All(_, version, mut all) => Some(Heard::Changed {
                version,
                fact: all.pop().map_or_else(|| absent.clone(), |(_, fact): (Version, Fact)| fact),
            }),
            Change::Applied((version, fact)) => Some(Heard::Changed { version, fact }),
            Change::Deleted((version, _)) => Some(Heard::Changed { version, fact: absent.clone() }),
            Change::Rewound(_) => Some(Heard::Rewound),
            Change::Broken(_, failure) => Some(failed(failure)),
            // The next answer to a read confirms the knowledge.
            Change::Resumed(_) => None,
        })
    };
    changes("leaderelections", Some(namespace.to_owned()), api, one, read).filter_map(heard).boxed()
}

/// Reads the election now and then every `every`; sooner after a failure.
fn ask(
    api: Api<LeaderElection>,
    one: ListParams,
    own: Own,
    absent: Fact,
    every: Duration,
    limit: Duration,
) -> BoxStream<'static, Heard> {
    let asked = unfold(monotonic(), move |next| {
        let (api, one, own, absent) = (api.clone(), one.clone(), own.clone(), absent.clone());
        async move {
            nap_until(next).await;
            let sent = monotonic();
            let heard = match list_at(limit, &api, &one).await {
                Ok((version, all)) => {
                    let fact = all.first().map_or(absent, |election| fact(election, &own));
                    Heard::Confirmed { sent, version, fact }
                }
                Err(error) => failed(watch_failure("list", "leaderelections", &error)),
            };
            let pause = if matches!(heard, Heard::Failed(_)) { every.min(Duration::from_secs(1)) } else { every };
            Some((heard, sent + pause))
        }
    });
    asked.boxed()
}

fn failed(failure: WatchFailure) -> Heard {
    Heard::Failed(granting(Failure::from(failure).text(), GRANT))
}

/// Returns the content of an election's status.
fn fact(election: &LeaderElection, own: &Own) -> Fact {
    let Some(status) = &election.status else { return Fact { role: Role::Follower, ..Fact::default() } };
    let leader = status.leader.clone().map(|leader| Leader {
        name: leader.name.or(leader.session).unwrap_or_default(),
        pod: leader.pod_name,
        uid: leader.pod_uid,
        cluster: leader.cluster_name,
        node: leader.node_name,
        address: leader.pod_ip,
    });
    let since = status.leader.as_ref().and_then(|leader| leader.acquire_time.as_ref());
    Fact {
        role: own.role(leader.as_ref()),
        leader,
        term: status.term,
        since: since.map(|time| Timestamp(time.0.as_millisecond())),
        ..Fact::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use lictor_kubernetes::GRANT_TO_OPERATOR;

    fn election(status: &serde_json::Value) -> LeaderElection {
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {}, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_status_says_who_leads() {
        let own = Own { pod: "web-1".into(), uid: Some("u1".into()), cluster: None };
        let leader = json!({
            "name": "web-1", "podName": "web-1", "podUID": "u1", "nodeName": "n", "podIP": "10.0.0.1",
            "acquireTime": "2026-01-01T00:00:00Z",
        });
        let told = fact(&election(&json!({"term": 7, "leader": leader})), &own);
        assert_eq!((told.role, told.term, told.since), (Role::Leader, Some(7), Some(Timestamp(1_767_225_600_000))));
        let leader = told.leader.unwrap();
        assert_eq!((leader.name.as_str(), leader.address.as_deref()), ("web-1", Some("10.0.0.1")));
        // An earlier pod with this name.
        let other = Own { uid: Some("u2".into()), ..own.clone() };
        let status = json!({"term": 7, "leader": {"name": "web-1", "podName": "web-1", "podUID": "u1"}});
        assert_eq!(fact(&election(&status), &other).role, Role::Follower);
        for nobody in [json!({}), json!({"term": 7}), json!({"leader": "garbage"})] {
            let told = fact(&election(&nobody), &own);
            assert_eq!((told.role, told.leader), (Role::Follower, None), "{nobody}");
        }
        let other = json!({"leader": {"session": "the session 1234"}});
        assert_eq!(fact(&election(&other), &own).leader.map(|leader| leader.name).as_deref(), Some("the session 1234"));
    }

    #[test]
    fn a_missing_right_is_to_be_granted_to_the_pod() {
        let refused = Failure::Forbidden(format!("not allowed to list leaderelections: no{GRANT_TO_OPERATOR}"));
        let Heard::Failed(text) = failed(WatchFailure::Forbidden(refused)) else { panic!("it failed") };
        assert!(text.ends_with(GRANT) && !text.contains("operator"), "{text}");
    }
}

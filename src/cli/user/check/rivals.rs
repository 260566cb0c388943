//! The other elections that have what a planned one wants. An election that is not applied yet goes after all that are.

use std::collections::BTreeMap;

use lictor_api::{ACCEPTED, Classes, LeaderElection, Refusal, Resolved};
use lictor_core::{ELECTION_ANNOTATION, Pod, TERM_ANNOTATION};

use crate::cli::user::outlook::read;
use crate::cli::user::reading::{condition, full_name};
use crate::wording::refusals;

/// Another election.
pub(super) struct Rival {
    name: String,
    namespace: String,
    spec: Resolved,
    /// The election in a sentence.
    told: String,
}

impl Rival {
    /// Returns another election than `own`, if it keeps what it has. `applied`: whether it is not only in the same file.
    pub(super) fn of(
        election: &LeaderElection,
        own: &LeaderElection,
        classes: &Classes,
        applied: bool,
    ) -> Option<Self> {
        let spec = read(election, classes).0.ok()?;
        let is_refused = condition(election, ACCEPTED).is_some_and(|accepted| accepted.status == "False");
        let name = election.metadata.name.clone().unwrap_or_default();
        let namespace = election.metadata.namespace.clone().unwrap_or_default();
        let age = |election: &LeaderElection| election.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let told = match (applied, age(election), age(own)) {
            (false, ..) => "election of the same file,",
            (true, Some(other), Some(own)) if other > own => "election",
            (true, ..) => "older election",
        };
        let told = format!("{told} {}", full_name(election));
        (!is_refused).then_some(Self { name, namespace, spec, told })
    }

    /// Whether it names the same Service.
    pub(super) fn has_service(&self, namespace: &str, service: &str) -> bool {
        self.namespace == namespace && self.spec.service_name() == Some(service)
    }

    /// Returns its namespace and name.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Why an election would have to give way to another one. `pods`: its candidates.
pub(super) fn refusal(own: &LeaderElection, spec: &Resolved, pods: &[Pod], rivals: &[Rival]) -> Option<Refusal> {
    let namespace = own.metadata.namespace.as_deref().unwrap_or_default();
    let refusal = |reason, message| Some(Refusal { reason, message });
    if let Some(other) = rivals.iter().find(|other| other.spec.key == spec.key) {
        return refusal("KeyTaken", refusals::key_taken(&spec.key.name, &other.told));
    }
    let registers = |spec: &Resolved| spec.consul_service.as_ref().map(|service| service.name.clone());
    if let Some(name) = registers(spec)
        && let Some(other) = rivals.iter().find(|other| {
            other.spec.key.store == spec.key.store && registers(&other.spec).as_deref() == Some(name.as_str())
        })
    {
        return refusal("ServiceTaken", refusals::catalog_service_taken(&name, &other.told));
    }
    let neighbours = || rivals.iter().filter(|other| other.namespace == namespace);
    let selects =
        |other: &Rival, pod: &Pod| other.spec.cluster.is_none() && other.spec.scope.selector.matches(&pod.labels);
    let taken = pods.iter().find_map(|pod| Some((pod, neighbours().find(|other| selects(other, pod))?)));
    if let Some((pod, other)) = taken {
        let labelled = marker(pod) == Some(&other.name);
        return refusal("PodsTaken", refusals::pod_taken(&pod.name, labelled, &other.told));
    }
    let shared = |other: &Rival| {
        let workload = spec.workloads.keys().find(|id| other.spec.workloads.contains_key(id)).map(ToString::to_string);
        let job = || spec.jobs.keys().find(|name| other.spec.jobs.contains_key(*name));
        workload.or_else(|| job().map(|name| format!("Job/{name} (a jobTemplate)")))
    };
    let (other, workload) = neighbours().find_map(|other| Some((other, shared(other)?)))?;
    refusal("WorkloadTaken", refusals::workload_taken(&workload, &other.told))
}

/// The pods with the mark and a term of another election that exists, and that election.
pub(super) fn marked_by_others(own: &str, pods: &[Pod], elections: &[LeaderElection]) -> BTreeMap<String, String> {
    let exists = |name: &str| elections.iter().any(|other| other.metadata.name.as_deref() == Some(name));
    let other = |pod: &Pod| {
        let marker = marker(pod).filter(|marker| *marker != own && exists(marker))?;
        let is_written = pod.annotations.contains_key(TERM_ANNOTATION);
        is_written.then(|| (pod.name.clone(), marker.to_owned()))
    };
    pods.iter().filter_map(other).collect()
}

fn marker(pod: &Pod) -> Option<&str> {
    pod.annotations.get(ELECTION_ANNOTATION)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn election(name: &str, spec: &Value, accepted: Option<&str>) -> LeaderElection {
        let condition = accepted.map(|status| {
            json!({"type": "Accepted", "status": status, "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        });
        let mut election = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": name, "namespace": "shop"}, "spec": spec,
        });
        if let Some(condition) = condition {
            election["status"] = json!({"conditions": [condition]});
        }
        serde_json::from_value(election).unwrap()
    }

    fn refused(own: &Value, other: &Value, accepted: Option<&str>) -> Option<(&'static str, String)> {
        let (own, classes) = (election("new", own, None), Classes::new());
        let pod = Pod { name: "web-0".into(), labels: [("app", "web")].into_iter().collect(), ..Pod::default() };
        let spec = read(&own, &classes).0.unwrap();
        let pods = if spec.scope.selector.matches(&pod.labels) { vec![pod] } else { Vec::new() };
        let rivals: Vec<Rival> =
            Rival::of(&election("web", other, accepted), &own, &classes, true).into_iter().collect();
        refusal(&own, &spec, &pods, &rivals).map(|refusal| (refusal.reason, refusal.message))
    }

    #[test]
    fn what_another_election_has_is_refused_unless_that_one_is_refused_itself() {
        let of = |app: &str| json!({"selector": {"matchLabels": {"app": app}}});
        assert_eq!(refused(&of("web"), &of("other"), None), None);
        assert_eq!(refused(&of("web"), &of("web"), Some("False")), None);
        let (reason, message) = refused(&of("web"), &of("web"), Some("True")).unwrap();
        assert_eq!(reason, "PodsTaken");
        assert!(
            message.starts_with("the pod \"web-0\" is already selected by the older election shop/web: give"),
            "{message}"
        );
        let with = |app: &str, more: (&str, Value)| {
            let mut spec = of(app);
            spec[more.0] = more.1;
            spec
        };
        let key = |app: &str| with(app, ("key", json!("same")));
        assert_eq!(refused(&key("a"), &key("b"), None).unwrap().0, "KeyTaken");
        let workloads = |app: &str| with(app, ("workloads", json!([{"kind": "CronJob", "name": "report"}])));
        let (reason, message) = refused(&workloads("a"), &workloads("b"), None).unwrap();
        assert_eq!(reason, "WorkloadTaken");
        assert!(
            message.starts_with("CronJob/report is already in spec.workloads of the older election shop/web"),
            "{message}"
        );
    }

    #[test]
    fn only_what_another_election_has_written_is_its_own() {
        let pod = |name: &str, annotations: &[(&'static str, &'static str)]| Pod {
            name: name.into(),
            annotations: annotations.iter().copied().collect(),
            ..Pod::default()
        };
        let pods = [
            pod("a", &[(ELECTION_ANNOTATION, "web"), (TERM_ANNOTATION, "1")]),
            pod("b", &[(ELECTION_ANNOTATION, "web")]),
            pod("c", &[(ELECTION_ANNOTATION, "gone"), (TERM_ANNOTATION, "1")]),
            pod("d", &[(ELECTION_ANNOTATION, "new"), (TERM_ANNOTATION, "1")]),
        ];
        let others = [election("web", &json!({}), None), election("new", &json!({}), None)];
        assert_eq!(marked_by_others("new", &pods, &others), [("a".to_owned(), "web".to_owned())].into());
    }
}

//! Checks elections: those with a problem, and those in conflict with each other.

use std::collections::BTreeSet;

use lictor_api::{ACCEPTED, LeaderElection, READY, ROUTED};

use super::finding::Finding;
use crate::cli::user::list::{Health, health};
use crate::cli::user::reading::{Reader, condition, full_name};
use crate::kubernetes::Namespaces;

/// How many elections are named.
const MOST: usize = 20;
/// The refusals that are caused by another election.
const CONFLICTS: [&str; 5] = ["CircularWorkloads", "KeyTaken", "PodsTaken", "ServiceTaken", "WorkloadTaken"];

/// Lists all elections.
///
/// # Errors
/// Returns the finding to report if they can't be listed.
pub(super) async fn list(reader: &Reader, namespaces: &Namespaces) -> Result<Vec<LeaderElection>, Finding> {
    let mut elections = Vec::new();
    for scope in namespaces.scopes() {
        let found = reader.elections(scope.as_deref()).await;
        let unseen = |why| Finding::unseen(format!("the elections were not checked: {why}"));
        elections.extend(found.map_err(unseen)?);
    }
    Ok(elections)
}

/// Checks elections. For the `explained` ones, another finding says what to do. `silent`: no operator acts, so a status
/// may be out of date.
pub(super) fn check(elections: &[LeaderElection], explained: &BTreeSet<String>, silent: bool) -> Vec<Finding> {
    let unwell: Vec<&LeaderElection> = elections.iter().filter(|one| health(one) < Health::Paused).collect();
    let told = unwell.iter().copied().filter(|one| !is_told(one, explained));
    let (conflicts, troubles): (Vec<&LeaderElection>, Vec<&LeaderElection>) = told.partition(|one| is_in_conflict(one));
    let mut findings = Vec::new();
    findings.extend(conflicts.iter().chain(&troubles).take(MOST).map(|one| trouble(one)));
    let all = conflicts.len() + troubles.len();
    if all > MOST {
        let left = all - MOST;
        findings
            .push(Finding::wrong(format!("{left} more elections have a problem: `kubectl lictor list -A --problems`")));
    }
    let paused = elections.iter().filter(|one| health(one) == Health::Paused);
    let paused: Vec<String> = paused.map(full_name).collect();
    if !paused.is_empty() {
        findings.push(Finding::note(format!("paused, so lictor promotes and demotes no pod: {}", paused.join(", "))));
    }
    let well = elections.len() - unwell.len() - paused.len();
    findings.extend(match (elections.len(), well) {
        (0, _) => Some(Finding::ok("there are no elections")),
        (_, 0) => None,
        (all, _) if silent => Some(Finding::unseen(format!(
            "not checked whether {well} of {all} elections are well: their status says so, but no operator acts, so it \
             may be out of date"
        ))),
        (all, _) => Some(Finding::ok(format!("{well} of {all} elections are well"))),
    });
    findings
}

/// Whether the election's only problem is its Service, which another finding reports.
fn is_told(election: &LeaderElection, explained: &BTreeSet<String>) -> bool {
    let routed = condition(election, ROUTED).map(|routed| &routed.reason);
    explained.contains(&full_name(election)) && condition(election, READY).map(|ready| &ready.reason) == routed
}

fn is_in_conflict(election: &LeaderElection) -> bool {
    condition(election, ACCEPTED).is_some_and(|accepted| CONFLICTS.contains(&accepted.reason.as_str()))
}

fn trouble(election: &LeaderElection) -> Finding {
    let name = full_name(election);
    match condition(election, READY) {
        Some(ready) if ready.reason != "Pending" => {
            Finding::wrong(format!("the election {name}: {}: {}", ready.reason, ready.message))
        }
        _ => Finding::wrong(format!(
            "the election {name}: no operator has looked at it: does one serve its class and its namespace?"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn election(name: &str, ready: &str, reason: &str) -> LeaderElection {
        let condition = json!({
            "type": "Ready", "status": ready, "reason": reason, "message": "so it is", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": name, "namespace": "shop"}, "spec": {},
            "status": {"conditions": [condition]},
        }))
        .unwrap()
    }

    fn told(elections: &[LeaderElection], silent: bool) -> String {
        json!(check(elections, &BTreeSet::new(), silent)).to_string()
    }

    #[test]
    fn elections_are_called_well_only_if_one_is_and_an_operator_says_so() {
        let (well, unwell) = (election("web", "True", "Led"), election("db", "False", "NoEligiblePod"));
        assert!(told(&[], false).contains("there are no elections"));
        assert!(told(&[well.clone(), unwell.clone()], false).contains("1 of 2 elections are well\",\"result\":\"ok\""));
        let none = told(std::slice::from_ref(&unwell), false);
        assert!(none.contains("the election shop/db: NoEligiblePod") && !none.contains("\"ok\""), "{none}");
        let silent = told(&[well, unwell], true);
        assert!(silent.contains("not checked whether 1 of 2 elections are well"), "{silent}");
        assert!(!silent.contains("\"ok\""), "{silent}");
    }
}

//! The pods that a group has to consider (H4): those that its selectors match, and those that show a leader's label, even if they have
//! left the group.

use std::time::Duration;

use lictor_core::{Failure, Pod, Selector};

use crate::controller::names::ElectionName;
use crate::kubernetes::{MarkedPods, MatchingPods, Pods};

/// Lists these pods. Groups that ask at the same time share the lists. The leaders are listed last, because a leader may have left the
/// group meanwhile.
pub(super) async fn list_pods(
    election: &ElectionName,
    selectors: &[Selector],
    leaders: &[Selector],
    matching: &MatchingPods,
    marked: &MarkedPods,
    pods: &Pods,
    patience: Option<Duration>,
) -> Result<Vec<Pod>, Failure> {
    let mut listed = matching.list(&election.namespace, selectors, patience).await?;
    for leader in leaders {
        let marked = marked.ask(&election.namespace, leader, patience).await?;
        for name in marked.get(&election.name).into_iter().flatten() {
            if !listed.iter().any(|pod| pod.name == *name) {
                listed.extend(pods.read(&election.namespace, name).await?);
            }
        }
    }
    Ok(listed)
}

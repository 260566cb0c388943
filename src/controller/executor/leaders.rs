//! The pods of a group that show a leader's label, wherever they are by now (H4).

use std::sync::Arc;

use lictor_core::{Command, Failure, Outcome, Pod, Request};

use super::requests::Gate;
use super::{Executor, Requester};
use crate::controller::input::Input;
use crate::kubernetes::MarkedListing;

impl Executor {
    /// Goes on from the pods that a group's selectors match: looks for its leaders. That comes afterwards, because a leader may have
    /// been taken out of the group meanwhile. It takes no turn, so that all groups that get to this share a listing.
    pub(super) fn look_for_leaders(
        &self,
        requester: Requester,
        request: &Arc<Request>,
        gate: Gate,
        pods: Vec<Pod>,
    ) -> Option<Input> {
        let leaders = match &request.command {
            Command::ListPods { leaders, .. } if !leaders.is_empty() => leaders,
            _ => return Some(self.outcome(requester.id, request, Outcome::PodsListed(Ok(pods)))),
        };
        let asked: Vec<MarkedListing> =
            leaders.iter().map(|selector| self.marked.ask(&requester.id.election.namespace, selector)).collect();
        let (this, of, failed) = (self.clone(), request.clone(), self.failed(&requester.id, request));
        self.requests.join(gate, failed, move |_| async move {
            let listed = this.with_leaders(&requester, asked, pods).await;
            Some(this.outcome(requester.id, &of, Outcome::PodsListed(listed)))
        });
        None
    }

    /// Adds to pods those leaders of the group that are not among them.
    async fn with_leaders(
        &self,
        of: &Requester,
        asked: Vec<MarkedListing>,
        mut pods: Vec<Pod>,
    ) -> Result<Vec<Pod>, Failure> {
        let election = &of.id.election;
        for listing in asked {
            let marked = listing.await?;
            for name in marked.get(&election.name).into_iter().flatten() {
                if !pods.iter().any(|pod| pod.name == *name) {
                    pods.extend(self.pods.read(&election.namespace, name).await?);
                }
            }
        }
        Ok(pods)
    }
}

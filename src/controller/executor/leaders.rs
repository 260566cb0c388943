//! The pods that a group has to consider (H4): those that its selectors match, and those that show a leader's label, even if they have
//! left the group.

use std::time::Duration;

use lictor_core::{Failure, Pod, Selector};

use super::{Executor, Requester};

impl Executor {
    /// Lists these pods. Groups that ask at the same time share the lists. The leaders are listed last, because a leader may have left the
    /// group meanwhile.
    pub(super) async fn list_pods(
        &self,
        of: &Requester,
        selectors: &[Selector],
        leaders: &[Selector],
        patience: Option<Duration>,
    ) -> Result<Vec<Pod>, Failure> {
        let election = &of.id.election;
        let mut pods = self.matching.list(&election.namespace, selectors, patience).await?;
        for leader in leaders {
            let marked = self.marked.ask(&election.namespace, leader, patience).await?;
            for name in marked.get(&election.name).into_iter().flatten() {
                if !pods.iter().any(|pod| pod.name == *name) {
                    pods.extend(self.pods.read(&election.namespace, name).await?);
                }
            }
        }
        Ok(pods)
    }
}

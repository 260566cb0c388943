//! The observed election, and the observer.

use super::{Leader, Role};

/// The observation of one election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The election: NAMESPACE/NAME, the key, or the directory of the files.
    pub election: String,
    /// The source of the news: `files`, `kubernetes`, `consul`, or `agent`.
    pub source: &'static str,
    /// The observer, as people call it.
    pub observer: &'static str,
    /// Whether the source says how old its knowledge is. Kubelet's files don't, because they look the same when kubelet is cut off.
    pub tells_age: bool,
}

/// The pod or cluster that observes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The pod's name, or the agent's for the key of an agent.
    pub pod: String,
    /// The pod's uid. Without it, an earlier pod with the same name counts as this one.
    pub uid: Option<String>,
    /// The cluster, if several share the lock.
    pub cluster: Option<String>,
}

impl Own {
    /// Returns the role of this pod or cluster under that leader.
    pub fn role(&self, leader: Option<&Leader>) -> Role {
        let Some(leader) = leader else { return Role::Follower };
        let leads = match (&leader.pod, &leader.cluster, &self.cluster) {
            (_, Some(theirs), Some(own)) if theirs != own => false,
            (None, Some(_), Some(_)) => true,
            // The cluster itself leads, and this cluster's name is unknown.
            (None, Some(_), None) => return Role::Unknown,
            (Some(pod), ..) => match (&leader.uid, &self.uid) {
                (Some(theirs), Some(own)) => theirs == own,
                _ => *pod == self.pod,
            },
            (None, None, _) => leader.name == self.pod,
        };
        if leads { Role::Leader } else { Role::Follower }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_known_by_its_uid_and_a_cluster_by_its_name() {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        for (leader, own, role) in [
            // The leader's pod, uid and cluster; then this observer's pod, uid and cluster.
            (["web-1", "a", ""], ["web-1", "a", ""], Role::Leader),
            (["web-1", "a", ""], ["web-1", "b", ""], Role::Follower),
            (["web-1", "a", ""], ["web-1", "", ""], Role::Leader),
            (["web-2", "a", ""], ["web-1", "", ""], Role::Follower),
            (["web-1", "a", "east"], ["web-1", "a", "west"], Role::Follower),
            (["web-1", "a", "west"], ["web-1", "a", "west"], Role::Leader),
            (["web-1", "", "west"], ["web-1", "", ""], Role::Leader),
            (["", "", "west"], ["web-1", "a", "west"], Role::Leader),
            (["", "", "east"], ["web-1", "a", "west"], Role::Follower),
            (["", "", "east"], ["web-1", "a", ""], Role::Unknown),
            (["", "", ""], ["other", "", ""], Role::Leader),
            (["", "", ""], ["web-1", "", ""], Role::Follower),
        ] {
            let [pod, uid, cluster] = leader.map(text);
            let leader = Leader { name: "other".into(), pod, uid, cluster, ..Leader::default() };
            let [pod, uid, cluster] = own.map(text);
            let own = Own { pod: pod.unwrap_or_default(), uid, cluster };
            assert_eq!(own.role(Some(&leader)), role, "{leader:?} {own:?}");
        }
        assert_eq!(Own::default().role(None), Role::Follower);
    }
}

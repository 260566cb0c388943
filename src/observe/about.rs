//! Which election is observed, and for whom.

use super::{Leader, Role};

/// What is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The election: NAMESPACE/NAME, the key, or the directory of the files.
    pub election: String,
    /// Where it is heard of: `files`, `kubernetes`, `consul`, or `agent`.
    pub source: &'static str,
    /// For whom, as people call it.
    pub observer: &'static str,
    /// Whether the source says how old its knowledge is. Kubelet's files don't: they look the same when kubelet is cut off.
    pub tells_age: bool,
}

/// For whom it is observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The pod's name; for the key of an agent, the agent's.
    pub pod: String,
    /// The pod's uid. Without it, another pod that had the same name before counts as this one.
    pub uid: Option<String>,
    /// The cluster, where several share the lock.
    pub cluster: Option<String>,
}

impl Own {
    /// Returns what this pod is while that one leads.
    pub fn role(&self, leader: Option<&Leader>) -> Role {
        let Some(leader) = leader else { return Role::Follower };
        let leads = match (&leader.pod, &leader.cluster, &self.cluster) {
            (_, Some(theirs), Some(own)) if theirs != own => false,
            (None, Some(_), Some(_)) => true,
            // The cluster itself leads, and nobody said which one this is.
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
            // Of the leader: pod, uid, cluster; of this one: pod, uid, cluster.
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

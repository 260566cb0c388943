//! Finds the pods that were created from an older template than others of the same owner, as far as pods alone tell.
//!
//! While a Deployment, StatefulSet or DaemonSet is updated, it has pods of two templates, and those of the older one are about to be
//! replaced. The newest template is that of the pod that was created last. So a rollback counts as well, because it creates new pods from
//! an old template. If a pod of the old template is recreated in the middle of an update, the old one is the newest until the update
//! continues. Only the order of candidates depends on it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Pod, Timestamp};

/// The labels by which Kubernetes distinguishes templates: of Deployments; of StatefulSets and DaemonSets.
pub const TEMPLATE_LABELS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// The newest templates by owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates<'a>(BTreeSet<(&'a str, &'a str)>);

impl<'a> Templates<'a> {
    /// The newest templates of these pods. A pod that ends, or has ended, does not count.
    pub(crate) fn newest(pods: &(impl Iterator<Item = &'a Pod> + Clone)) -> Self {
        let living =
            || pods.clone().filter(|pod| !pod.deleting && !pod.finished).filter_map(|pod| Some((pod, of(pod)?)));
        let mut last: BTreeMap<&str, Timestamp> = BTreeMap::new();
        for (pod, (owner, _)) in living() {
            let last = last.entry(owner).or_insert(pod.created);
            *last = pod.created.max(*last);
        }
        let newest = living().filter(|(pod, (owner, _))| last.get(owner) == Some(&pod.created));
        Self(newest.map(|(_, template)| template).collect())
    }

    /// Whether there is a pod of the same owner with a newer template. Nothing is known about a pod that ends.
    pub(crate) fn is_outdated(&self, pod: &Pod) -> bool {
        of(pod).is_some_and(|template| !self.0.contains(&template))
    }
}

/// The owner of a pod, and the template that it was created from.
fn of(pod: &Pod) -> Option<(&str, &str)> {
    let template = TEMPLATE_LABELS.iter().find_map(|label| pod.labels.get(label))?;
    Some((pod.owner.as_deref()?, template))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pairs;

    fn pod(owner: &str, template: &str, created: i64) -> Pod {
        Pod {
            owner: Some(owner.into()),
            labels: Pairs::from([("pod-template-hash".into(), template.into())]),
            created: Timestamp(created),
            ..Pod::default()
        }
    }

    fn outdated(pods: &[Pod]) -> Vec<bool> {
        let templates = Templates::newest(&pods.iter());
        pods.iter().map(|pod| templates.is_outdated(pod)).collect()
    }

    #[test]
    fn the_template_of_the_pod_that_was_created_last_is_the_newest() {
        let update = [pod("web", "a", 1), pod("web", "a", 2), pod("web", "b", 5)];
        assert_eq!(outdated(&update), [true, true, false]);
        // A rollback makes new pods of the old template.
        let rollback = [pod("web", "b", 5), pod("web", "a", 1), pod("web", "a", 9)];
        assert_eq!(outdated(&rollback), [true, false, false]);
        assert_eq!(outdated(&[pod("web", "a", 5), pod("web", "b", 5)]), [false, false], "in the same second");
    }

    #[test]
    fn a_pod_that_ends_says_nothing_of_others() {
        let ended = |pod: Pod| [Pod { deleting: true, ..pod.clone() }, Pod { finished: true, ..pod }];
        for last in ended(pod("web", "b", 9)) {
            assert!(!outdated(&[pod("web", "a", 1), last])[0]);
        }
    }

    #[test]
    fn owners_are_not_compared_with_each_other() {
        assert_eq!(outdated(&[pod("web", "a", 1), pod("canary", "b", 9)]), [false, false]);
        let plain = Pod { created: Timestamp(9), ..Pod::default() };
        let labelled = Pod { owner: None, ..pod("", "b", 9) };
        let unlabelled = Pod { labels: Pairs::default(), ..pod("web", "b", 9) };
        assert_eq!(outdated(&[pod("web", "a", 1), plain, labelled, unlabelled]), [false; 4]);
        let revision = |hash: &str, created| Pod {
            labels: Pairs::from([("controller-revision-hash".into(), hash.into())]),
            ..pod("StatefulSet/web", "", created)
        };
        assert_eq!(outdated(&[revision("web-1", 1), revision("web-2", 2)]), [true, false]);
    }
}

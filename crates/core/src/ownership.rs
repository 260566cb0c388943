//! O1: lictor writes a label or an annotation on a pod only where nobody else owns that key.
//!
//! A pod that carries none of an election's keys is free. One that the election has marked carries the election's own values, or
//! values that somebody changed since, which are corrected. Everything else may belong to somebody: to a `ReplicaSet` that selects by
//! it, to a Service, to a person.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ELECTION_ANNOTATION, Markings, Pod, Uid};

/// Which keys of a pod came with it from the template of its controller, as the API server tells (`metadata.managedFields`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The labels and annotations that whoever created the pod wrote; `None`: the API server does not tell.
    pub created_with: Option<BTreeSet<String>>,
}

/// The provenance of pods, as far as it was read. A pod's never changes.
pub type Provenances = BTreeMap<Uid, Provenance>;

/// A key that somebody else owns on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The label or annotation.
    pub key: String,
    /// The value that the pod carries.
    pub value: String,
    /// Whether it is a label.
    pub is_label: bool,
    /// Whether the value came with the pod, and is one that the election writes, too.
    pub from_template: bool,
}

/// Whether an election may write on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Title {
    /// The election may write: nobody else owns one of its keys there.
    Free,
    /// The election may not write, because somebody else owns this key.
    InUse(InUse),
    /// The pod's provenance has to be read first.
    Unread,
}

/// An election's keys and their values, which decide together with a pod's own whose a key is.
#[derive(Clone, Copy, Debug)]
pub struct Ownership<'a> {
    /// The election's name, with which it marks pods.
    pub election: &'a str,
    /// The labels and annotations of its present spec.
    pub markings: &'a Markings,
    /// The labels and annotations of its former specs, which pods may still carry.
    pub former: &'a [&'a Markings],
    /// The provenance of the pods that were read.
    pub provenances: &'a Provenances,
}

impl Ownership<'_> {
    /// O1: what may be written on a pod.
    pub fn of(&self, pod: &Pod) -> Title {
        if self.markings.replaces {
            return Title::Free;
        }
        let labels = self.markings.label_keys().map(|key| (true, key, pod.labels.get(key)));
        let annotations = self.markings.annotation_keys().map(|key| (false, key, pod.annotations.get(key)));
        let mut title = Title::Free;
        for (is_label, key, value) in labels.chain(annotations) {
            let Some(value) = value else { continue };
            match self.of_key(pod, is_label, key, value) {
                Some(false) => {}
                Some(true) => {
                    let from_template = self.markings.write(is_label, key, value);
                    return Title::InUse(InUse { key: key.into(), value: value.into(), is_label, from_template });
                }
                None => title = Title::Unread,
            }
        }
        title
    }

    /// Whether somebody else owns a key with this value; `None`: that can't be said before the pod's provenance is read.
    fn of_key(&self, pod: &Pod, is_label: bool, key: &str, value: &str) -> Option<bool> {
        let marked = pod.annotations.get(ELECTION_ANNOTATION) == Some(self.election);
        let present = self.markings.write(is_label, key, value);
        let own = present || self.former.iter().any(|markings| markings.write(is_label, key, value));
        if marked && own {
            return Some(false);
        }
        if !marked && !present {
            return Some(true);
        }
        if !marked && !pod.control.is_controlled() {
            return Some(false);
        }
        let provenance = self.provenances.get(&pod.uid)?;
        // The keys that lictor or a person wrote later are not in the list. Without a list, only a marked pod counts as the election's own.
        Some(provenance.created_with.as_ref().map_or(!marked, |created| created.contains(key)))
    }
}

/// O2: whether a group's pods leave their controller because of what is written on them, so that the controller makes new ones without end.
///
/// A controller lets go of a pod that its selector does not match any more. Two of them that the election has marked, and another one in
/// the place of each, are no accident.
pub fn multiply<'a>(election: &str, pods: impl Iterator<Item = &'a Pod> + Clone) -> Option<&'a Pod> {
    let stem = |pod: &'a Pod| pod.name.rsplit_once('-').map_or(pod.name.as_str(), |(stem, _)| stem);
    let alive = pods.filter(|pod| !pod.finished && !pod.deleting);
    let released = alive
        .clone()
        .filter(|pod| pod.control.was_released() && pod.annotations.get(ELECTION_ANNOTATION) == Some(election));
    let mut replaced = released.filter(|left| {
        let mut others = alive.clone().filter(|pod| pod.control.is_controlled());
        others.any(|other| stem(other) == stem(left) && other.created >= left.created)
    });
    replaced.next().filter(|_| replaced.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Control, Marking, Pairs, Timestamp};

    fn markings() -> Markings {
        let marking =
            |role: &str| Marking { labels: [("role", role)].into_iter().collect(), annotations: Pairs::default() };
        Markings { leader: marking("leader"), follower: marking("follower"), replaces: false }
    }

    fn pod(role: Option<&str>, marked: Option<&str>, control: Control) -> Pod {
        Pod {
            name: "web-5d8f-a".into(),
            uid: Uid("a".into()),
            labels: role.map(|role| ("role", role)).into_iter().collect(),
            annotations: marked.map(|election| (ELECTION_ANNOTATION, election)).into_iter().collect(),
            control,
            ..Pod::default()
        }
    }

    /// What is said of a pod; `created`: what was read of it.
    fn title(pod: &Pod, created: Option<&[&str]>) -> Title {
        let read = created.map(|keys| {
            let created_with = Some(keys.iter().copied().map(str::to_owned).collect());
            (pod.uid.clone(), Provenance { created_with })
        });
        let provenances = read.into_iter().collect();
        let former = Marking { labels: [("role", "primary")].into_iter().collect(), annotations: Pairs::default() };
        let former = Markings { leader: former, ..Markings::default() };
        Ownership { election: "web", markings: &markings(), former: &[&former], provenances: &provenances }.of(pod)
    }

    fn is_in_use(title: &Title) -> bool {
        matches!(title, Title::InUse(_))
    }

    #[test]
    fn a_pod_without_the_key_is_free() {
        for control in [Control::None, Control::Controlled, Control::Released] {
            assert_eq!(title(&pod(None, None, control), None), Title::Free);
            assert_eq!(title(&pod(None, Some("web"), control), None), Title::Free);
        }
    }

    #[test]
    fn a_value_that_the_election_does_not_write_belongs_to_somebody() {
        let InUse { key, value, is_label, from_template } =
            match title(&pod(Some("backend"), None, Control::Controlled), None) {
                Title::InUse(in_use) => in_use,
                other => panic!("{other:?}"),
            };
        assert_eq!((key.as_str(), value.as_str(), is_label, from_template), ("role", "backend", true, false));
        // Whoever wrote it, and whether or not a controller made the pod.
        assert!(is_in_use(&title(&pod(Some("backend"), None, Control::None), Some(&[]))));
        // Also what a former spec of this election wrote, on a pod that it has not marked.
        assert!(is_in_use(&title(&pod(Some("primary"), None, Control::None), None)));
        assert!(is_in_use(&title(&pod(Some("backend"), Some("other"), Control::None), None)));
    }

    #[test]
    fn what_a_person_wrote_is_taken_over_and_what_came_from_a_template_is_not() {
        for role in ["leader", "follower"] {
            assert_eq!(title(&pod(Some(role), None, Control::None), None), Title::Free, "nothing selects by it");
            let made = pod(Some(role), None, Control::Controlled);
            assert_eq!(title(&made, None), Title::Unread);
            assert_eq!(title(&made, Some(&["app"])), Title::Free);
            match title(&made, Some(&["app", "role"])) {
                Title::InUse(in_use) => assert!(in_use.from_template),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_the_election_wrote_is_its_own_and_what_was_changed_since_is_corrected() {
        for role in ["leader", "follower", "primary"] {
            assert_eq!(title(&pod(Some(role), Some("web"), Control::Controlled), None), Title::Free);
        }
        let changed = pod(Some("custom"), Some("web"), Control::Controlled);
        assert_eq!(title(&changed, None), Title::Unread);
        assert_eq!(title(&changed, Some(&["app"])), Title::Free, "somebody changed it by hand");
        assert!(is_in_use(&title(&changed, Some(&["role"]))), "it came with a template that has the mark, too");
    }

    #[test]
    fn where_the_api_server_does_not_tell_only_what_is_marked_is_its_own() {
        let unknown = |pod: &Pod| {
            let provenances = [(pod.uid.clone(), Provenance::default())].into();
            Ownership { election: "web", markings: &markings(), former: &[], provenances: &provenances }.of(pod)
        };
        assert!(is_in_use(&unknown(&pod(Some("leader"), None, Control::Controlled))));
        assert_eq!(unknown(&pod(Some("custom"), Some("web"), Control::Controlled)), Title::Free);
    }

    #[test]
    fn annotations_are_owned_as_labels_are() {
        let mut markings = markings();
        markings.leader.annotations = [("since", "election")].into_iter().collect();
        let mut pod = pod(None, None, Control::None);
        pod.annotations = [("since", "1999")].into_iter().collect();
        let provenances = Provenances::new();
        let mut asked = Ownership { election: "web", markings: &markings, former: &[], provenances: &provenances };
        match asked.of(&pod) {
            Title::InUse(in_use) => assert!(!in_use.is_label && in_use.key == "since"),
            other => panic!("{other:?}"),
        }
        let insists = Markings { replaces: true, ..markings.clone() };
        asked.markings = &insists;
        assert_eq!(asked.of(&pod), Title::Free);
    }

    #[test]
    fn pods_that_leave_their_controller_and_are_replaced_multiply() {
        let of = |name: &str, control, marked: bool, created| Pod {
            name: name.into(),
            created: Timestamp(created),
            ..pod(None, marked.then_some("web"), control)
        };
        let left = |name: &str| of(name, Control::Released, true, 1);
        let made = |name: &str| of(name, Control::Controlled, false, 2);
        let found = |pods: &[Pod]| multiply("web", pods.iter()).is_some();
        assert!(found(&[left("web-5d8f-a"), left("web-5d8f-b"), made("web-5d8f-c")]));
        assert!(!found(&[left("web-5d8f-a"), made("web-5d8f-c")]), "one may have been taken out by hand");
        assert!(!found(&[left("web-5d8f-a"), left("web-5d8f-b")]), "nobody makes others in their place");
        assert!(!found(&[left("web-5d8f-a"), left("web-5d8f-b"), made("other-5d8f-c")]));
        let unmarked = of("web-5d8f-b", Control::Released, false, 1);
        assert!(!found(&[left("web-5d8f-a"), unmarked, made("web-5d8f-c")]), "not by what this election wrote");
        let elder = of("web-5d8f-c", Control::Controlled, true, 0);
        assert!(!found(&[left("web-5d8f-a"), left("web-5d8f-b"), elder]));
    }
}

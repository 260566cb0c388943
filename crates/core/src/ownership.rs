//! O1: lictor writes a label or an annotation on a pod only if no other owner has that key.
//!
//! The labels that a pod's controller selects by are the controller's, whatever the pod carries: a `ReplicaSet` lets go of a pod that it no
//! longer selects, and creates another one. Apart from these, a pod that carries none of an election's keys is free. A pod that the
//! election has marked carries the election's own values, or values that another program changed since, which the operator corrects.
//! Everything else may belong to a Service or to a person.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Controller, ControllerKind, ELECTION_ANNOTATION, Markings, Pod, TERM_ANNOTATION, Uid};

/// The keys that came with a pod from the template of its controller, as the API server reports (`metadata.managedFields`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The labels and annotations that the creator of the pod wrote, or `None` if the API server does not report them.
    pub created_with: Option<BTreeSet<String>>,
}

/// The provenance of pods, as far as it was read. A pod's provenance never changes.
pub type Provenances = BTreeMap<Uid, Provenance>;

/// The labels that controllers select their pods by, as far as the controllers were read, by their uids. A group has few controllers, and
/// the selector of one in `apps/v1` or `batch/v1` never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selections(Vec<(Uid, Selection)>);

/// The labels that one controller selects its pods by, or `None` if lictor is not allowed to read it.
pub type Selection = Option<Box<[String]>>;

impl Selections {
    /// Keeps the labels that were read of a controller.
    pub fn insert(&mut self, controller: Uid, selection: Selection) {
        self.0.push((controller, selection));
    }

    /// Forgets the controllers that none of these pods has.
    pub fn retain(&mut self, pods: &[&Pod]) {
        let has = |pod: &Pod, uid: &Uid| pod.control.controller().is_some_and(|controller| controller.uid == *uid);
        self.0.retain(|(uid, _)| pods.iter().any(|pod| has(pod, uid)));
    }

    /// The labels that a controller selects by, as far as they are known.
    fn of(&self, controller: &Controller) -> Selects<'_> {
        if controller.kind == ControllerKind::Other {
            return Selects::Untold;
        }
        match self.0.iter().find(|(uid, _)| *uid == controller.uid) {
            Some((_, Some(keys))) => Selects::By(keys),
            Some((_, None)) => Selects::Untold,
            None => Selects::Unread,
        }
    }
}

/// The operator's knowledge of how a controller selects its pods.
enum Selects<'a> {
    /// The controller selects by these labels.
    By(&'a [String]),
    /// The operator can't find out.
    Untold,
    /// The controller has to be read first.
    Unread,
}

/// A key on a pod that another owner has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The label or annotation.
    pub key: String,
    /// Whether the key is a label.
    pub is_label: bool,
    /// The key's owner.
    pub by: Owner,
}

/// The owner of a key on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The pod's controller, which selects by it.
    Controller(Controller),
    /// The template of the pod's controller, with this value, which the election writes, too.
    Template(String),
    /// A person or program that wrote this value.
    Somebody(String),
}

/// Whether an election may write on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Title {
    /// The election may write, because no other owner has one of its keys there.
    Free,
    /// The election may not write, because another owner has this key.
    InUse(InUse),
    /// The pod's controller has to be read first, or else the pod's provenance.
    Unread,
}

/// Whether a group's pods multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplying<'a> {
    /// The pods multiply. This is one of those that have left their controller.
    Yes(&'a Pod),
    /// The operator has to read the controllers of the other pods first.
    Unread,
}

/// An object that has to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// A candidate of this name, to find out which of its labels came with it.
    Pod(String),
    /// A candidate's controller, to find out which labels it selects by.
    Controller(Controller),
}

/// The result of reading an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TitleRead {
    /// The provenance of a pod with its uid, or `None` if there is no pod of that name.
    Pod(Option<(Uid, Provenance)>),
    /// The labels that a controller selects by.
    Controller(Selection),
}

/// An election's keys and their values, which decide, together with a pod's own, who owns a key.
#[derive(Clone, Copy, Debug)]
pub struct Ownership<'a> {
    /// The election's name, with which it marks pods.
    pub election: &'a str,
    /// The labels and annotations of its present spec.
    pub markings: &'a Markings,
    /// The labels and annotations of its former specs, which pods may still carry.
    pub former: &'a [&'a Markings],
    /// Whether the election's record has the present spec, so that the operator has looked at the candidates with these labels in mind. Until
    /// then, a value that the spec would write may be the user's, also on a pod that the election has marked.
    pub settled: bool,
    /// The provenance of the pods that were read.
    pub provenances: &'a Provenances,
    /// The labels that the controllers select by, as far as they were read.
    pub selections: &'a Selections,
}

impl Ownership<'_> {
    /// O1: whether the election may write on a pod.
    pub fn of(&self, pod: &Pod) -> Title {
        // No user can override this: a key that the controller selects by has no former value that could be restored.
        match pod.control.controller().map(|controller| (controller, self.selections.of(controller))) {
            Some((controller, Selects::By(keys))) => {
                if let Some(key) = self.shared(keys).or_else(|| self.taken_off(pod, keys)) {
                    let by = Owner::Controller(controller.clone());
                    return Title::InUse(InUse { key: key.into(), is_label: true, by });
                }
            }
            Some((_, Selects::Unread)) if !self.is_settled(pod) => return Title::Unread,
            Some((_, Selects::Untold | Selects::Unread)) | None => {}
        }
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
                    let is_written = self.markings.write(is_label, key, value);
                    let by = if is_written { Owner::Template } else { Owner::Somebody }(value.into());
                    return Title::InUse(InUse { key: key.into(), is_label, by });
                }
                None => title = Title::Unread,
            }
        }
        title
    }

    /// The controllers of these pods that have to be read.
    pub fn unread<'b>(&self, pods: &[&'b Pod]) -> impl Iterator<Item = &'b Controller> {
        let controllers = pods.iter().filter_map(|pod| pod.control.controller());
        controllers.filter(|controller| self.is_unread(controller))
    }

    /// Whether a controller has to be read.
    pub fn is_unread(&self, controller: &Controller) -> bool {
        matches!(self.selections.of(controller), Selects::Unread)
    }

    /// O2: whether a group's pods leave their controller because of the labels that the election writes, so that the controller creates new
    /// ones without end.
    ///
    /// A controller lets go of a pod that its selector no longer matches. If the election has marked two such pods, and each has a
    /// replacement, this is no accident, unless the controller selects by other labels than the election writes.
    pub fn multiply<'b>(&self, pods: &[&'b Pod]) -> Option<Multiplying<'b>> {
        let stem = |pod: &'b Pod| pod.name.rsplit_once('-').map_or(pod.name.as_str(), |(stem, _)| stem);
        let alive = || pods.iter().copied().filter(|pod| !pod.finished && !pod.deleting);
        let left = || alive().filter(|pod| pod.control.was_released() && self.has_marked(pod));
        // Whether the controllers of a pod's replacements let go of pods, or `None` for a controller that has to be read.
        let judged = |left: &'b Pod| {
            let others = alive().filter(move |pod| stem(pod) == stem(left) && pod.created >= left.created);
            others.filter_map(|pod| Some(self.lets_go(pod, pod.control.controller()?)))
        };
        let mut certain = left().filter(|left| judged(left).any(|lets_go| lets_go == Some(true)));
        if let (Some(pod), Some(_)) = (certain.next(), certain.next()) {
            return Some(Multiplying::Yes(pod));
        }
        let mut perhaps = left().filter(|left| judged(left).any(|lets_go| lets_go != Some(false)));
        perhaps.next().and(perhaps.next()).map(|_| Multiplying::Unread)
    }

    /// Whether a controller may let go of such a pod because of the election's labels, or `None` if the controller has to be read first.
    fn lets_go(&self, pod: &Pod, controller: &Controller) -> Option<bool> {
        match self.selections.of(controller) {
            Selects::By(keys) => Some(self.shared(keys).is_some() || self.taken_off(pod, keys).is_some()),
            Selects::Untold => Some(true),
            Selects::Unread => None,
        }
    }

    /// The first label that the election writes and a controller selects by.
    fn shared(&self, keys: &[String]) -> Option<&str> {
        self.markings.label_keys().find(|key| keys.iter().any(|selected| selected == key))
    }

    /// The first label that a controller selects by, and that the pod has with the value of a former spec, which the operator takes off.
    fn taken_off(&self, pod: &Pod, keys: &[String]) -> Option<&str> {
        let written = self.former.iter().flat_map(|markings| markings.label_keys().map(move |key| (markings, key)));
        let mut on_it =
            written.filter(|(markings, key)| pod.labels.get(key).is_some_and(|value| markings.write(true, key, value)));
        on_it.find(|(_, key)| keys.iter().any(|selected| selected == key)).map(|(_, key)| key)
    }

    fn has_marked(&self, pod: &Pod) -> bool {
        pod.annotations.get(ELECTION_ANNOTATION) == Some(self.election)
    }

    /// Whether the controller was read before, because the election has written all of its labels on the pod. If a person copies all of
    /// that into a template of a settled election, the operator finds out a moment later, because it reads the controller all the same.
    fn is_settled(&self, pod: &Pod) -> bool {
        let is_written = |key| pod.labels.get(key).is_some_and(|value| self.markings.write(true, key, value));
        self.settled
            && self.has_marked(pod)
            && pod.annotations.contains_key(TERM_ANNOTATION)
            && self.markings.label_keys().all(is_written)
    }

    /// Whether a pod carries one of the election's keys, whoever wrote it.
    pub fn carries(&self, pod: &Pod) -> bool {
        self.markings.label_keys().any(|key| pod.labels.contains_key(key))
            || self.markings.annotation_keys().any(|key| pod.annotations.contains_key(key))
    }

    /// Whether another owner has a key with this value, or `None` if the operator has to read the pod's provenance first.
    fn of_key(&self, pod: &Pod, is_label: bool, key: &str, value: &str) -> Option<bool> {
        let marked = self.has_marked(pod);
        let present = self.markings.write(is_label, key, value);
        let own = present && self.settled || self.former.iter().any(|markings| markings.write(is_label, key, value));
        if marked && own {
            return Some(false);
        }
        if !marked && !present {
            return Some(true);
        }
        if !marked && pod.control.controller().is_none() {
            return Some(false);
        }
        let provenance = self.provenances.get(&pod.uid)?;
        // The keys that lictor or a person wrote later are not in the list. Without a list, only a marked pod counts as the election's own.
        Some(provenance.created_with.as_ref().map_or(!marked, |created| created.contains(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Control, Marking, Pairs, Timestamp};

    /// Of a controller with this uid.
    fn controlled(uid: &str) -> Control {
        controlled_by(ControllerKind::ReplicaSet, uid)
    }

    fn controlled_by(kind: ControllerKind, uid: &str) -> Control {
        Control::By(Box::new(Controller { kind, name: "web-5d8f".into(), uid: Uid(uid.into()) }))
    }

    fn selections(keys: &[&str]) -> Selections {
        let mut read = Selections::default();
        read.insert(Uid("rs".into()), Some(keys.iter().copied().map(str::to_owned).collect()));
        read
    }

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
        let selections = &selections(&["app", "pod-template-hash"]);
        let former = Marking { labels: [("role", "primary")].into_iter().collect(), annotations: Pairs::default() };
        let former = Markings { leader: former, ..Markings::default() };
        Ownership {
            election: "web",
            markings: &markings(),
            former: &[&former],
            settled: true,
            provenances: &provenances,
            selections,
        }
        .of(pod)
    }

    fn is_in_use(title: &Title) -> bool {
        matches!(title, Title::InUse(_))
    }

    #[test]
    fn a_pod_without_the_key_is_free() {
        for control in [Control::None, controlled("rs"), Control::Released] {
            assert_eq!(title(&pod(None, None, control.clone()), None), Title::Free);
            assert_eq!(title(&pod(None, Some("web"), control), None), Title::Free);
        }
    }

    #[test]
    fn a_value_that_the_election_does_not_write_belongs_to_somebody() {
        let by = Owner::Somebody("backend".into());
        let in_use = Title::InUse(InUse { key: "role".into(), is_label: true, by });
        assert_eq!(title(&pod(Some("backend"), None, controlled("rs")), None), in_use);
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
            let made = pod(Some(role), None, controlled("rs"));
            assert_eq!(title(&made, None), Title::Unread);
            assert_eq!(title(&made, Some(&["app"])), Title::Free);
            let by = Owner::Template(role.into());
            let in_use = Title::InUse(InUse { key: "role".into(), is_label: true, by });
            assert_eq!(title(&made, Some(&["app", "role"])), in_use);
        }
    }

    #[test]
    fn what_the_election_wrote_is_its_own_and_what_was_changed_since_is_corrected() {
        for role in ["leader", "follower", "primary"] {
            assert_eq!(title(&pod(Some(role), Some("web"), controlled("rs")), None), Title::Free);
        }
        let changed = pod(Some("custom"), Some("web"), controlled("rs"));
        assert_eq!(title(&changed, None), Title::Unread);
        assert_eq!(title(&changed, Some(&["app"])), Title::Free, "somebody changed it by hand");
        assert!(is_in_use(&title(&changed, Some(&["role"]))), "it came with a template that has the mark, too");
    }

    /// O1: an election that wrote other labels before marked pods whose template has the labels that it is to write now.
    #[test]
    fn what_a_marked_pod_carries_is_the_elections_only_if_the_election_wrote_that_before() {
        let former = Marking { labels: [("tier", "leader")].into_iter().collect(), annotations: Pairs::default() };
        let former = Markings { leader: former, ..Markings::default() };
        let mut pod = pod(Some("leader"), Some("web"), controlled("rs"));
        pod.annotations.extend([(TERM_ANNOTATION, "2")]);
        let of = |settled: bool, selections: &Selections, created: Option<&[&str]>| {
            let provenances = created.map(|keys| {
                let created_with = Some(keys.iter().copied().map(str::to_owned).collect());
                (pod.uid.clone(), Provenance { created_with })
            });
            let (provenances, markings) = (&provenances.into_iter().collect(), &markings());
            Ownership { election: "web", markings, former: &[&former], settled, provenances, selections }.of(&pod)
        };
        let read = selections(&["app"]);
        assert_eq!(
            of(false, &Selections::default(), None),
            Title::Unread,
            "its controller was not looked at for this label"
        );
        assert_eq!(of(false, &read, None), Title::Unread);
        assert!(is_in_use(&of(false, &read, Some(&["role"]))), "the label came from the template");
        assert_eq!(of(false, &read, Some(&["app"])), Title::Free, "a person wrote it");
        assert_eq!(of(true, &Selections::default(), None), Title::Free);
    }

    #[test]
    fn where_the_api_server_does_not_tell_only_what_is_marked_is_its_own() {
        let unknown = |pod: &Pod| {
            let provenances = [(pod.uid.clone(), Provenance::default())].into();
            let selections = &selections(&["app"]);
            Ownership {
                election: "web",
                markings: &markings(),
                former: &[],
                settled: true,
                provenances: &provenances,
                selections,
            }
            .of(pod)
        };
        assert!(is_in_use(&unknown(&pod(Some("leader"), None, controlled("rs")))));
        assert_eq!(unknown(&pod(Some("custom"), Some("web"), controlled("rs"))), Title::Free);
    }

    #[test]
    fn annotations_are_owned_as_labels_are() {
        let mut markings = markings();
        markings.leader.annotations = [("since", "election")].into_iter().collect();
        let mut pod = pod(None, None, Control::None);
        pod.annotations = [("since", "1999")].into_iter().collect();
        let provenances = Provenances::new();
        let selections = &Selections::default();
        let mut asked = Ownership {
            election: "web",
            markings: &markings,
            former: &[],
            settled: true,
            provenances: &provenances,
            selections,
        };
        match asked.of(&pod) {
            Title::InUse(in_use) => assert!(!in_use.is_label && in_use.key == "since"),
            other => panic!("{other:?}"),
        }
        let insists = Markings { replaces: true, ..markings.clone() };
        asked.markings = &insists;
        assert_eq!(asked.of(&pod), Title::Free);
    }

    /// What is asked of a group whose controllers select by what was read.
    fn with<T>(markings: &Markings, selections: &Selections, ask: impl FnOnce(Ownership<'_>) -> T) -> T {
        let provenances = &Provenances::new();
        ask(Ownership { election: "web", markings, former: &[], settled: true, provenances, selections })
    }

    #[test]
    fn what_the_controller_selects_by_is_its_own_whatever_the_pod_carries() {
        let insists = Markings { replaces: true, ..markings() };
        for markings in [markings(), insists] {
            let of = |pod: &Pod, selections: &Selections| with(&markings, selections, |asked| asked.of(pod));
            for (role, marked) in [(None, None), (None, Some("web")), (Some("follower"), Some("web"))] {
                let mut pod = pod(role, marked, controlled("rs"));
                pod.annotations.extend(marked.map(|_| (TERM_ANNOTATION, "1")));
                match of(&pod, &selections(&["app", "role"])) {
                    Title::InUse(InUse { by: Owner::Controller(by), .. }) => assert_eq!(by.name, "web-5d8f"),
                    other => panic!("{other:?}"),
                }
                assert_eq!(of(&pod, &selections(&["app"])), Title::Free);
                let unread = if role.is_some() { Title::Free } else { Title::Unread };
                assert_eq!(of(&pod, &Selections::default()), unread, "a label that is there was looked at before");
            }
            let unreadable = pod(None, None, controlled_by(ControllerKind::Other, "x"));
            assert_eq!(of(&unreadable, &Selections::default()), Title::Free, "O2 looks after it");
            let mut refused = Selections::default();
            refused.insert(Uid("rs".into()), None);
            assert_eq!(of(&pod(None, None, controlled("rs")), &refused), Title::Free, "O2 looks after it");
        }
    }

    #[test]
    fn what_a_former_spec_wrote_is_not_taken_off_where_the_controller_selects_by_it() {
        let (provenances, markings) = (&Provenances::new(), Markings::default());
        let former = Marking { labels: [("role", "primary")].into_iter().collect(), annotations: Pairs::default() };
        let former = [&Markings { leader: former, ..Markings::default() }];
        let selections = &selections(&["app", "role"]);
        let asked =
            Ownership { election: "web", markings: &markings, former: &former, settled: true, provenances, selections };
        assert!(is_in_use(&asked.of(&pod(Some("primary"), None, controlled("rs")))));
        assert_eq!(asked.of(&pod(Some("other"), None, controlled("rs"))), Title::Free, "nothing is written there");
    }

    #[test]
    fn pods_that_leave_their_controller_and_are_replaced_multiply() {
        let of = |name: &str, control, marked: bool, created| Pod {
            name: name.into(),
            created: Timestamp(created),
            ..pod(None, marked.then_some("web"), control)
        };
        let left = |name: &str| of(name, Control::Released, true, 1);
        let made = |name: &str| of(name, controlled("rs"), false, 2);
        let asked = |selections: &Selections, pods: &[Pod]| {
            let pods: Vec<&Pod> = pods.iter().collect();
            with(&markings(), selections, |asked| match asked.multiply(&pods) {
                Some(Multiplying::Yes(_)) => Some(true),
                Some(Multiplying::Unread) => None,
                None => Some(false),
            })
        };
        let mut untold = Selections::default();
        untold.insert(Uid("rs".into()), None);
        let found = |pods: &[Pod]| {
            // The controller selects by the label, or nobody can tell what it selects by.
            let [by_key, untold] = [&selections(&["role"]), &untold].map(|read| asked(read, pods).unwrap());
            assert_eq!(by_key, untold);
            by_key
        };
        let both = [left("web-5d8f-a"), left("web-5d8f-b"), made("web-5d8f-c")];
        assert!(found(&both));
        assert!(!found(&[left("web-5d8f-a"), made("web-5d8f-c")]), "one may have been taken out by hand");
        assert!(!found(&[left("web-5d8f-a"), left("web-5d8f-b")]), "nobody makes others in their place");
        assert!(!found(&[left("web-5d8f-a"), left("web-5d8f-b"), made("other-5d8f-c")]));
        let unmarked = of("web-5d8f-b", Control::Released, false, 1);
        assert!(!found(&[left("web-5d8f-a"), unmarked, made("web-5d8f-c")]), "not by what this election wrote");
        let elder = of("web-5d8f-c", controlled("rs"), true, 0);
        assert!(!found(&[left("web-5d8f-a"), left("web-5d8f-b"), elder]));

        assert_eq!(asked(&selections(&["app"]), &both), Some(false), "somebody took both out by another label");
        assert_eq!(asked(&Selections::default(), &both), None, "that can't be said yet");
    }
}

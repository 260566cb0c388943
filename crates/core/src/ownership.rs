//! O1: lictor writes a label or an annotation on a pod only if no other owner has that key.
//!
//! The labels that a pod's controller selects by are the controller's, whatever the pod carries: a `ReplicaSet` lets go of a pod that it no
//! longer selects, and creates another one. Apart from these, a pod that carries none of an election's keys is free. A pod that the
//! election has marked carries the election's own values, or values that another program changed since, which the operator corrects.
//! Everything else may belong to a Service or to a person.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Controller, ControllerKind, ELECTION_ANNOTATION, Markings, Pod, Scope, Selector, TERM_ANNOTATION, Uid};

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

impl InUse {
    /// The mark of another election.
    pub fn by_election(other: &str) -> Self {
        Self { key: ELECTION_ANNOTATION.into(), is_label: false, by: Owner::Election(other.into()) }
    }
}

/// The owner of a key on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The pod's controller, which selects by it.
    Controller(Controller),
    /// The template of the pod's controller, with this value, which the election writes, too.
    Template(String),
    /// Another election of this name, which has marked the pod.
    Election(String),
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

/// The candidates that an election may write to, and those that it may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Whether the election may write to a candidate that has not finished.
    pub free: bool,
    /// Whether the election has to wait for a read, because a candidate carries one of its keys.
    pub waits: bool,
    /// The candidates that the election may not write to, or not yet.
    pub foreign: BTreeSet<Uid>,
    /// The candidates that have to be read.
    pub unread: BTreeMap<Uid, Unread>,
    /// The first key of another owner on a pod that can't be left out of the group, because it leads, or shows the leader's label
    /// permanently, with the pod's name.
    pub in_the_way: Option<(String, InUse)>,
    /// The first key of another owner on a candidate that has not finished, with the pod's name.
    pub in_use: Option<(String, InUse)>,
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
        let written = keys_on(self.markings, pod).map(|found| self.of_key(pod, found));
        // The operator takes off the value of a former spec, except from a pod that has it from its template.
        let former =
            self.former.iter().flat_map(|markings| keys_on(markings, pod).filter(|found| found.is_of(markings)));
        let former = former.filter(|_| !self.has_marked(pod) && pod.control.controller().is_some());
        let present = |found: &PodKey| keys_on(self.markings, pod).any(|present| present.key == found.key);
        title(written.chain(former.filter(|found| !present(found)).map(|found| self.of_template(pod, found))))
    }

    /// O1: which candidates the election may write to. `marked_by_others`: those that carry the mark of another election, by name, and that
    /// election.
    pub fn judge(&self, candidates: &[&Pod], marked_by_others: &BTreeMap<String, String>) -> Judgement {
        let mut found = Judgement::default();
        for pod in candidates.iter().copied() {
            let title = match marked_by_others.get(&pod.name) {
                Some(other) => Title::InUse(InUse::by_election(other)),
                None => self.of(pod),
            };
            match title {
                Title::Free => found.free |= !pod.finished,
                Title::Unread => {
                    if pod.control.controller().is_none_or(|controller| !self.is_unread(controller)) {
                        found.unread.insert(pod.uid.clone(), Unread::Pod(pod.name.clone()));
                    }
                    // A pod that shows nothing yet is left out of the group until its read is complete.
                    found.waits |= self.carries(pod);
                    found.foreign.insert(pod.uid.clone());
                }
                Title::InUse(in_use) => {
                    found.foreign.insert(pod.uid.clone());
                    if found.in_the_way.is_none() && (self.has_marked(pod) || self.markings.shows_leader(pod)) {
                        found.in_the_way = Some((pod.name.clone(), in_use.clone()));
                    }
                    if found.in_use.is_none() && !pod.finished {
                        found.in_use = Some((pod.name.clone(), in_use));
                    }
                }
            }
        }
        found
    }

    /// O1: whether a pod that the election has marked under a former spec, and no longer selects, has a value of the present spec from its
    /// template. The operator would take it off together with the former spec's.
    pub fn of_left(&self, pod: &Pod) -> Title {
        let former = |found: &PodKey| self.former.iter().any(|markings| found.is_of(markings));
        let present = keys_on(self.markings, pod).filter(|found| found.is_of(self.markings) && !former(found));
        let present = present.filter(|_| !self.settled && self.has_marked(pod) && pod.control.controller().is_some());
        title(present.map(|found| self.of_template(pod, found)))
    }

    /// Whether a key is that of the template with which the pod was made.
    fn of_template(&self, pod: &Pod, found: PodKey<'_>) -> Title {
        let Some(provenance) = self.provenances.get(&pod.uid) else { return Title::Unread };
        let came = provenance.created_with.as_ref().is_some_and(|created| created.contains(found.key));
        if came { found.in_use(Owner::Template) } else { Title::Free }
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

    /// Whether another owner has a key.
    fn of_key(&self, pod: &Pod, found: PodKey<'_>) -> Title {
        let marked = self.has_marked(pod);
        let present = found.is_of(self.markings);
        let own = present && self.settled || self.former.iter().any(|markings| found.is_of(markings));
        if marked && own {
            return Title::Free;
        }
        let others = || found.in_use(if present { Owner::Template } else { Owner::Somebody });
        if !marked && !present {
            return others();
        }
        if !marked && pod.control.controller().is_none() {
            return Title::Free;
        }
        let Some(provenance) = self.provenances.get(&pod.uid) else { return Title::Unread };
        // The keys that lictor or a person wrote later are not in the list. Without a list, only a marked pod counts as the election's own.
        if provenance.created_with.as_ref().map_or(!marked, |created| created.contains(found.key)) {
            others()
        } else {
            Title::Free
        }
    }
}

/// O1: the markings that the operator takes off a pod which is no candidate any more. The operator writes a scope's markings only on pods
/// that the scope selects, so on such a pod, another scope's values come from somebody else. If no scope selects the pod any more, its
/// labels have changed, and any of the scopes may have been written there.
pub(crate) fn written_on<'a>(scopes: &[&'a Scope], pod: &Pod) -> Vec<&'a Markings> {
    let selects = |scope: &&&Scope| scope.selector != Selector::default() && scope.selector.matches(&pod.labels);
    let any = scopes.iter().any(|scope| selects(&scope));
    scopes.iter().filter(|scope| !any || selects(scope)).map(|scope| &scope.markings).collect()
}

/// A key on a pod that an election writes, and its value there.
#[derive(Clone, Copy)]
struct PodKey<'a> {
    is_label: bool,
    key: &'a str,
    value: &'a str,
}

impl PodKey<'_> {
    /// Whether these markings write the value.
    fn is_of(&self, markings: &Markings) -> bool {
        markings.write(self.is_label, self.key, self.value)
    }

    fn in_use(&self, by: impl Fn(String) -> Owner) -> Title {
        Title::InUse(InUse { key: self.key.into(), is_label: self.is_label, by: by(self.value.into()) })
    }
}

/// The keys of these markings that a pod has.
fn keys_on<'a>(markings: &'a Markings, pod: &'a Pod) -> impl Iterator<Item = PodKey<'a>> {
    let labels = markings.label_keys().map(|key| (true, key, pod.labels.get(key)));
    let annotations = markings.annotation_keys().map(|key| (false, key, pod.annotations.get(key)));
    labels.chain(annotations).filter_map(|(is_label, key, value)| Some(PodKey { is_label, key, value: value? }))
}

/// What is known of several keys together: one that another owner has decides, and then one whose pod has to be read.
fn title(keys: impl Iterator<Item = Title>) -> Title {
    let mut all = Title::Free;
    for key in keys {
        match key {
            Title::Free => {}
            Title::InUse(_) => return key,
            Title::Unread => all = key,
        }
    }
    all
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
        Markings { holds: false, leader: marking("leader"), follower: marking("follower"), replaces: false }
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

    fn in_use(key: &str, by: Owner) -> Title {
        Title::InUse(InUse { key: key.into(), is_label: true, by })
    }

    /// The provenance of a pod that came with these keys, if it was read.
    fn read(pod: &Pod, created: Option<&[&str]>) -> Provenances {
        let created = created.map(|keys| keys.iter().copied().map(str::to_owned).collect());
        created.map(|keys| (pod.uid.clone(), Provenance { created_with: Some(keys) })).into_iter().collect()
    }

    /// What is said of a pod, as a candidate and as one that is left, when the spec has just been edited, and the former one wrote this
    /// label.
    fn edited(pod: &Pod, created: Option<&[&str]>, former: (&str, &str)) -> (Title, Title) {
        let former = Marking { labels: [former].into_iter().collect(), annotations: Pairs::default() };
        let former = Markings { leader: former, ..Markings::default() };
        let asked = Ownership {
            election: "web",
            markings: &markings(),
            former: &[&former],
            settled: false,
            provenances: &read(pod, created),
            selections: &selections(&["app"]),
        };
        (asked.of(pod), asked.of_left(pod))
    }

    #[test]
    fn a_value_of_the_present_spec_that_a_pod_of_the_former_one_has_from_its_template_is_the_templates() {
        let left = pod(Some("leader"), Some("web"), controlled("rs"));
        let of = |pod: &Pod, created: Option<&[&str]>, former| edited(pod, created, former).1;
        let (tier, template) = (("tier", "leader"), in_use("role", Owner::Template("leader".into())));
        let all = [None, Some(&["app"][..]), Some(&["role"])].map(|created| of(&left, created, tier));
        assert_eq!(all, [Title::Unread, Title::Free, template]);
        // The former spec wrote it, too; or another election has marked the pod; or no template has made it.
        assert_eq!(of(&left, None, ("role", "leader")), Title::Free);
        for other in
            [pod(Some("leader"), Some("db"), controlled("rs")), pod(Some("leader"), Some("web"), Control::None)]
        {
            assert_eq!(of(&other, None, tier), Title::Free);
        }
    }

    #[test]
    fn a_value_of_a_former_spec_that_a_new_candidate_has_from_its_template_is_the_templates() {
        let new =
            |marked| Pod { labels: [("tier", "gold")].into_iter().collect(), ..pod(None, marked, controlled("rs")) };
        let of = |pod: &Pod, created: Option<&[&str]>| edited(pod, created, ("tier", "gold")).0;
        let all = [None, Some(&["app"][..]), Some(&["tier"])].map(|created| of(&new(None), created));
        assert_eq!(all, [Title::Unread, Title::Free, in_use("tier", Owner::Template("gold".into()))]);
        assert_eq!(of(&new(Some("web")), None), Title::Free, "the election wrote it there");
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

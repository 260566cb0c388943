//! The labels and annotations that pods get for their roles, and the patches that write them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::replaced::{REPLACED_ANNOTATION, Replaced};
use super::{Pairs, Pod, Term, Uid};

/// The annotation, on every pod that lictor has labelled, with the term under which it was last written. For the leader, this is the
/// fencing token.
pub const TERM_ANNOTATION: &str = "lictor.dev/term";

/// The annotation, on every pod that lictor has labelled, with the election's name, by which the labels are found again and taken off.
pub const ELECTION_ANNOTATION: &str = "lictor.dev/election";

/// The finalizer, on a leader whose end must be known before another pod leads (E1), so that its object stays until lictor has seen the end.
/// The annotation of the same name has the pod's uid, so that a pod with copies of both, for example from a template, has not led.
pub const LEADER_FINALIZER: &str = "lictor.dev/leader";

/// Kubernetes' own annotation. When a ReplicaSet gets fewer replicas, it first deletes the pods with the lowest value. Without it: 0.
pub const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The annotation, on a leader, with the cost that lictor has written. Any other cost belongs to another program, and stays.
pub const WRITTEN_COST_ANNOTATION: &str = "lictor.dev/pod-deletion-cost";

/// A leader's deletion cost: above that of pods without a cost, and too low to keep an autoscaler of nodes from its work.
const LEADERS_COST: &str = "1000";

/// The state of a pod at the version for which a role is written on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    cost: DeletionCost,
    labels: Pairs,
    annotations: Pairs,
    finalizers: Box<[String]>,
    uid: Uid,
    held: bool,
}

impl Before {
    /// The state of a pod as it was seen.
    pub(crate) fn of(pod: &Pod) -> Self {
        Self {
            cost: DeletionCost::of(pod),
            labels: pod.labels.clone(),
            annotations: pod.annotations.clone(),
            finalizers: pod.finalizers.clone(),
            uid: pod.uid.clone(),
            held: is_held(pod),
        }
    }
}

/// The owner of the deletion cost on a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DeletionCost {
    /// Whether another program wrote the cost.
    foreign: bool,
    /// Whether the pod says that lictor wrote a cost.
    written: bool,
}

impl DeletionCost {
    fn of(pod: &Pod) -> Self {
        let (cost, written) =
            (pod.annotations.get(DELETION_COST_ANNOTATION), pod.annotations.get(WRITTEN_COST_ANNOTATION));
        Self { foreign: cost.is_some() && cost != written, written: written.is_some() }
    }

    /// Takes off the cost that lictor wrote.
    fn take_off(self, patch: &mut PodPatch) {
        if self.written {
            patch.annotations.insert(WRITTEN_COST_ANNOTATION.into(), None);
            if !self.foreign {
                patch.annotations.insert(DELETION_COST_ANNOTATION.into(), None);
            }
        }
    }
}

/// Labels and annotations of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marking {
    /// The labels.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub labels: Pairs,
    /// The annotations.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub annotations: Pairs,
}

impl Marking {
    /// Whether a pod carries every label and annotation.
    fn is_on(&self, pod: &Pod) -> bool {
        let contains = |have: &Pairs, want: &Pairs| want.iter().all(|(key, value)| have.get(key) == Some(value));
        contains(&pod.labels, &self.labels) && contains(&pod.annotations, &self.annotations)
    }
}

/// The markings of both roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Markings {
    /// The marking of the leader.
    pub leader: Marking,
    /// The marking of the other candidates.
    pub follower: Marking,
    /// Whether lictor replaces the values of other owners, and restores them afterwards (O1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaces: bool,
    /// Whether the leader has a finalizer, which stays until its end is known (E1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds: bool,
}

/// A merge patch of a [`Pairs`]: each name gets a value, or is removed.
pub type Changes = BTreeMap<String, Option<String>>;

/// Labels and annotations to set and to take off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPatch {
    /// The labels.
    pub labels: Changes,
    /// The annotations.
    pub annotations: Changes,
    /// All finalizers of the pod from then on, or `None` if they stay.
    pub finalizers: Option<Vec<String>>,
}

impl Markings {
    /// Whether a pod shows itself as the leader: it carries a leader label whose value a follower does not have. One of several is enough,
    /// so that a half-removed marking still counts.
    pub fn shows_leader(&self, pod: &Pod) -> bool {
        self.leader
            .labels
            .iter()
            .any(|(key, value)| self.follower.labels.get(key) != Some(value) && pod.labels.get(key) == Some(value))
    }

    /// Whether a pod is completely marked as the leader of this term.
    pub fn is_leader(&self, pod: &Pod, term: Term) -> bool {
        self.leader.is_on(pod)
            && term_of(pod) == Some(term)
            && if self.holds { is_held(pod) } else { !has_finalizer(&pod.finalizers) }
            && superfluous(&self.follower, &self.leader).all(|key| key.is_off(pod))
    }

    /// Whether a pod is completely marked as a follower.
    pub fn is_follower(&self, pod: &Pod) -> bool {
        self.follower.is_on(pod)
            && !self.shows_leader(pod)
            && superfluous(&self.leader, &self.follower).all(|key| key.is_off(pod))
            && !DeletionCost::of(pod).written
            && (!has_finalizer(&pod.finalizers) || (self.holds && is_held(pod)))
    }

    /// Marks a pod as the leader. `former` are the markings of earlier specs, whose leftovers the patch removes. `before` is the pod's
    /// state at the version for which the patch is written.
    pub(crate) fn promotion(&self, election: &str, term: Term, former: &[Self], before: &Before) -> PodPatch {
        let mut patch = self.patch((&self.leader, &self.follower), election, term, former, before);
        patch.finalizers = with_finalizer(&before.finalizers, self.holds);
        if self.holds {
            patch.annotations.insert(LEADER_FINALIZER.into(), Some(before.uid.0.clone()));
        } else if before.annotations.contains_key(LEADER_FINALIZER) {
            patch.annotations.insert(LEADER_FINALIZER.into(), None);
        }
        let kept = before.cost.foreign && !patch.annotations.contains_key(DELETION_COST_ANNOTATION);
        if !kept && !self.annotation_keys().any(|key| key == DELETION_COST_ANNOTATION) {
            for key in [DELETION_COST_ANNOTATION, WRITTEN_COST_ANNOTATION] {
                patch.annotations.insert(key.into(), Some(LEADERS_COST.into()));
            }
        }
        patch
    }

    /// Marks a pod as a follower. The term changes the pod's version even if everything else is there already.
    pub(crate) fn demotion(&self, election: &str, term: Term, former: &[Self], before: &Before) -> PodPatch {
        let mut patch = self.patch((&self.follower, &self.leader), election, term, former, before);
        // E1: the finalizer stays until the end of a former leader is known.
        if !(self.holds && before.held) {
            patch.finalizers = with_finalizer(&before.finalizers, false);
            if before.annotations.contains_key(LEADER_FINALIZER) {
                patch.annotations.insert(LEADER_FINALIZER.into(), None);
            }
        }
        patch
    }

    /// Takes off what these markings may have written on a pod, and no key that has another value.
    pub fn removal(all: &[&Self], pod: &Pod) -> PodPatch {
        let mut patch = PodPatch::default();
        for marking in all.iter().flat_map(|markings| [&markings.leader, &markings.follower]) {
            for (changes, have, written) in [
                (&mut patch.labels, &pod.labels, &marking.labels),
                (&mut patch.annotations, &pod.annotations, &marking.annotations),
            ] {
                let ours = written.iter().filter(|(name, value)| have.get(name) == Some(*value));
                changes.extend(ours.map(|(name, _)| (name.into(), None)));
            }
        }
        for key in [TERM_ANNOTATION, ELECTION_ANNOTATION, LEADER_FINALIZER] {
            if pod.annotations.contains_key(key) {
                patch.annotations.insert(key.into(), None);
            }
        }
        DeletionCost::of(pod).take_off(&mut patch);
        patch.finalizers = with_finalizer(&pod.finalizers, false);
        if pod.annotations.contains_key(REPLACED_ANNOTATION) {
            let Replaced { labels, annotations } = Replaced::on(pod);
            let restore =
                |changes: &mut Changes, have: &Pairs, replaced: &BTreeMap<String, String>, own: &BTreeSet<&str>| {
                    // A value that another program has written over lictor's own since then stays. And lictor restores no key that it did
                    // not write, whatever a template has copied into the annotation.
                    let free = |key: &str, changes: &Changes| changes.contains_key(key) || !have.contains_key(key);
                    for (key, value) in replaced.iter().filter(|(key, _)| own.contains(key.as_str())) {
                        if free(key, changes) {
                            changes.insert(key.clone(), Some(value.clone()));
                        }
                    }
                };
            let own = all.iter().flat_map(|markings| markings.label_keys()).collect();
            restore(&mut patch.labels, &pod.labels, &labels, &own);
            let own = all.iter().flat_map(|markings| markings.annotation_keys()).collect();
            restore(&mut patch.annotations, &pod.annotations, &annotations, &own);
            patch.annotations.insert(REPLACED_ANNOTATION.into(), None);
        }
        patch
    }

    /// Whether one of the roles has this label, or this annotation.
    pub(crate) fn write(&self, is_label: bool, key: &str, value: &str) -> bool {
        [&self.leader, &self.follower].iter().any(|role| {
            let written = if is_label { &role.labels } else { &role.annotations };
            written.get(key) == Some(value)
        })
    }

    /// Whether a pod still carries a part of these markings that `present` would not write.
    pub fn has_leftover(&self, pod: &Pod, present: &Self) -> bool {
        let stale = |have: &Pairs, written: &Pairs, kept: BTreeSet<&str>| {
            written.iter().any(|(key, value)| !kept.contains(key) && have.get(key) == Some(value))
        };
        [&self.leader, &self.follower].iter().any(|marking| {
            stale(&pod.labels, &marking.labels, present.label_keys().collect())
                || stale(&pod.annotations, &marking.annotations, present.annotation_keys().collect())
        })
    }

    /// The names of all labels written here.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.leader.labels.keys().chain(self.follower.labels.keys())
    }

    /// The names of all annotations written here.
    pub(crate) fn annotation_keys(&self) -> impl Iterator<Item = &str> {
        self.leader.annotations.keys().chain(self.follower.annotations.keys())
    }

    fn patch(
        &self,
        (role, other): (&Marking, &Marking),
        election: &str,
        term: Term,
        former: &[Self],
        before: &Before,
    ) -> PodPatch {
        let mut patch = PodPatch::default();
        before.cost.take_off(&mut patch);
        // O1: a value that no earlier spec wrote stays, such as one that came with a new pod from its template.
        let own = |is_label, key: &str, have: &Pairs| {
            have.get(key).is_none_or(|value| former.iter().any(|markings| markings.write(is_label, key, value)))
        };
        for marking in former.iter().flat_map(|markings| [&markings.leader, &markings.follower]) {
            let labels = marking.labels.keys().filter(|key| own(true, key, &before.labels));
            patch.labels.extend(labels.map(|key| (key.into(), None)));
            let annotations = marking.annotations.keys().filter(|key| own(false, key, &before.annotations));
            patch.annotations.extend(annotations.map(|key| (key.into(), None)));
        }
        patch.labels.extend(other.labels.keys().map(|key| (key.into(), None)));
        patch.annotations.extend(other.annotations.keys().map(|key| (key.into(), None)));
        self.keep_replaced(&mut patch, former, before);
        patch.labels.extend(role.labels.iter().map(|(key, value)| (key.into(), Some(value.into()))));
        patch.annotations.extend(role.annotations.iter().map(|(key, value)| (key.into(), Some(value.into()))));
        patch.stamp(election, term);
        patch
    }

    /// O1: notes the values that are about to be replaced, and restores those whose keys no role of this spec has any more.
    fn keep_replaced(&self, patch: &mut PodPatch, former: &[Self], before: &Before) {
        let known = before.annotations.get(REPLACED_ANNOTATION);
        if !self.replaces && known.is_none() {
            return;
        }
        let mut replaced = known.map(Replaced::read).unwrap_or_default();
        // On a pod without the mark, an own value may be one that a person wrote by hand, and it would not be restored either.
        let own = |is_label, key: &str, value: &str| {
            [self].into_iter().chain(former).any(|markings| markings.write(is_label, key, value))
        };
        let labels: BTreeSet<&str> = self.label_keys().collect();
        let annotations: BTreeSet<&str> = self.annotation_keys().collect();
        let former_labels: BTreeSet<&str> = former.iter().flat_map(Self::label_keys).collect();
        let former_annotations: BTreeSet<&str> = former.iter().flat_map(Self::annotation_keys).collect();
        for (is_label, present, earlier, have, kept, changes) in [
            (true, &labels, &former_labels, &before.labels, &mut replaced.labels, &mut patch.labels),
            (
                false,
                &annotations,
                &former_annotations,
                &before.annotations,
                &mut replaced.annotations,
                &mut patch.annotations,
            ),
        ] {
            if self.replaces {
                let foreign = have.iter().filter(|(key, value)| present.contains(key) && !own(is_label, key, value));
                for (key, value) in foreign {
                    kept.entry(key.to_owned()).or_insert_with(|| value.to_owned());
                }
            }
            let gone: Vec<String> = kept.keys().filter(|key| !present.contains(key.as_str())).cloned().collect();
            for (key, value) in gone.into_iter().filter_map(|key| kept.remove_entry(&key)) {
                // Another key was never lictor's, because a template has copied the annotation.
                if earlier.contains(key.as_str()) {
                    changes.insert(key, Some(value));
                }
            }
        }
        if replaced.is_empty() {
            patch.annotations.insert(REPLACED_ANNOTATION.into(), None);
        } else {
            patch.annotations.insert(REPLACED_ANNOTATION.into(), Some(replaced.text()));
        }
    }
}

impl PodPatch {
    /// Whether the patch would change nothing.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty() && self.finalizers.is_none()
    }

    /// Takes the leader's finalizer off a pod, if it has it.
    pub(super) fn release(pod: &Pod) -> Option<Self> {
        let mut patch = Self { finalizers: Some(with_finalizer(&pod.finalizers, false)?), ..Self::default() };
        if pod.annotations.contains_key(LEADER_FINALIZER) {
            patch.annotations.insert(LEADER_FINALIZER.into(), None);
        }
        Some(patch)
    }

    /// Leaves the leader's finalizer where it is.
    pub(super) fn keep_finalizer(&mut self) {
        self.finalizers = None;
        self.annotations.remove(LEADER_FINALIZER);
    }

    /// Changes a pod.
    pub fn apply(&self, to: &mut Pod) {
        for (changes, pairs) in [(&self.labels, &mut to.labels), (&self.annotations, &mut to.annotations)] {
            let kept = pairs.iter().filter(|(name, _)| !changes.contains_key(*name));
            *pairs =
                kept.chain(changes.iter().filter_map(|(name, value)| Some((&**name, value.as_deref()?)))).collect();
        }
        if let Some(finalizers) = &self.finalizers {
            to.finalizers = finalizers.clone().into();
        }
    }

    /// Notes the election that writes, and its term.
    pub(super) fn stamp(&mut self, election: &str, term: Term) {
        self.note_term(term);
        self.annotations.insert(ELECTION_ANNOTATION.into(), Some(election.into()));
    }

    /// Notes the term alone, on a pod that is not the election's, to change the pod's version.
    pub(super) fn note_term(&mut self, term: Term) {
        self.annotations.insert(TERM_ANNOTATION.into(), Some(term.to_string()));
    }

    /// The first thing of this patch that a pod lacks, as a sentence, or `None` if the pod lacks nothing.
    pub(super) fn lacks(&self, pod: &Pod) -> Option<String> {
        let lacking = |have: &Pairs, wanted: &Changes, what: &str| {
            let (key, wanted) = wanted.iter().find(|(key, value)| have.get(key) != value.as_deref())?;
            let have = have.get(key).map_or("none".into(), |value| format!("{value:?}"));
            let wanted = wanted.as_ref().map_or("none".into(), |value| format!("{value:?}"));
            Some(format!(
                "the {what} {key} of pod {} was written as {wanted}, and the API server keeps {have}",
                pod.name
            ))
        };
        lacking(&pod.labels, &self.labels, "label")
            .or_else(|| lacking(&pod.annotations, &self.annotations, "annotation"))
            .or_else(|| {
                let kept = self
                    .finalizers
                    .as_ref()
                    .is_none_or(|wanted| has_finalizer(wanted) == has_finalizer(&pod.finalizers));
                (!kept)
                    .then(|| format!("the finalizer {LEADER_FINALIZER} of pod {} is not as it was written", pod.name))
            })
            .map(|what| format!("{what}: look for an admission policy or a webhook that changes it"))
    }
}

/// E1: whether a pod has led and has the leader's finalizer.
pub(super) fn is_held(pod: &Pod) -> bool {
    has_finalizer(&pod.finalizers) && pod.annotations.get(LEADER_FINALIZER) == Some(&*pod.uid.0)
}

/// Whether the leader's finalizer is among these.
pub(super) fn has_finalizer(finalizers: &[String]) -> bool {
    finalizers.iter().any(|finalizer| finalizer == LEADER_FINALIZER)
}

/// The finalizers of a pod with the leader's, or without it, or `None` if they are as they should be.
fn with_finalizer(present: &[String], held: bool) -> Option<Vec<String>> {
    if has_finalizer(present) == held {
        return None;
    }
    let others = present.iter().filter(|finalizer| *finalizer != LEADER_FINALIZER).cloned();
    Some(others.chain(held.then(|| LEADER_FINALIZER.to_owned())).collect())
}

/// The term that a pod was written under.
pub(super) fn term_of(pod: &Pod) -> Option<Term> {
    pod.annotations.get(TERM_ANNOTATION)?.parse().ok().map(Term)
}

enum Name<'a> {
    Label(&'a str),
    Annotation(&'a str),
}

impl Name<'_> {
    fn is_off(&self, pod: &Pod) -> bool {
        match self {
            Self::Label(key) => !pod.labels.contains_key(key),
            Self::Annotation(key) => !pod.annotations.contains_key(key),
        }
    }
}

/// The labels and annotations that one role has and the other has not.
fn superfluous<'a>(of: &'a Marking, than: &'a Marking) -> impl Iterator<Item = Name<'a>> {
    let labels = of.labels.keys().filter(|key| !than.labels.contains_key(key)).map(Name::Label);
    labels.chain(of.annotations.keys().filter(|key| !than.annotations.contains_key(key)).map(Name::Annotation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markings(leader: &[(&str, &str)], follower: &[(&str, &str)]) -> Markings {
        let marking = |pairs: &[(&str, &str)]| Marking { labels: map(pairs), annotations: Pairs::default() };
        Markings { holds: false, leader: marking(leader), follower: marking(follower), replaces: false }
    }

    fn map(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().copied().collect()
    }

    fn pod(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Pod {
        Pod { labels: map(labels), annotations: map(annotations), ..Pod::default() }
    }

    #[test]
    fn what_an_earlier_spec_did_not_write_stays() {
        let present = markings(&[("role", "leader")], &[("role", "follower")]);
        let former = [markings(&[("tier", "leader")], &[("tier", "follower")])];
        for (value, goes) in [("backend", false), ("leader", true), ("follower", true)] {
            let before = Before::of(&pod(&[("tier", value)], &[]));
            for patch in [
                present.promotion("web", Term(1), &former, &before),
                present.demotion("web", Term(1), &former, &before),
            ] {
                assert_eq!(patch.labels.contains_key("tier"), goes, "{value}");
            }
        }
    }

    #[test]
    fn a_label_that_both_roles_share_shows_nothing() {
        let markings = markings(&[("role", "leader"), ("by", "lictor")], &[("role", "follower"), ("by", "lictor")]);
        assert!(!markings.shows_leader(&pod(&[("by", "lictor")], &[])));
        assert!(markings.shows_leader(&pod(&[("role", "leader")], &[])));
    }

    #[test]
    fn a_promotion_takes_off_what_only_followers_and_earlier_specs_have() {
        let patch = markings(&[("role", "leader")], &[("standby", "yes")]).promotion(
            "web",
            Term(7),
            &[markings(&[("tier", "primary")], &[])],
            &Before::default(),
        );
        let labels = [("role".into(), Some("leader".into())), ("standby".into(), None), ("tier".into(), None)];
        assert_eq!(patch.labels, labels.into());
        assert_eq!(patch.annotations[TERM_ANNOTATION].as_deref(), Some("7"));
        assert_eq!(patch.annotations[ELECTION_ANNOTATION].as_deref(), Some("web"));
    }

    #[test]
    fn a_removal_leaves_other_values_alone() {
        let markings = markings(&[("role", "leader")], &[("role", "follower")]);
        let patch = Markings::removal(&[&markings], &pod(&[("role", "custom")], &[(TERM_ANNOTATION, "3")]));
        assert_eq!(patch.labels, Changes::default());
        assert_eq!(patch.annotations, [(TERM_ANNOTATION.into(), None)].into());
    }

    #[test]
    fn who_carries_what_only_the_other_role_has_is_not_wholly_marked() {
        let mut markings = markings(&[("role", "leader"), ("hot", "")], &[("role", "follower"), ("cold", "")]);
        markings.leader.annotations = map(&[("since", "election")]);
        markings.follower.annotations = map(&[("waits", "yes")]);
        let follower = pod(&[("role", "follower"), ("cold", "")], &[("waits", "yes")]);
        assert!(markings.is_follower(&follower));
        let leader = pod(&[("role", "leader"), ("hot", "")], &[("since", "election"), (TERM_ANNOTATION, "3")]);
        assert!(markings.is_leader(&leader, Term(3)));
        let with = |pod: &Pod, label: Option<&str>, annotation: Option<&str>| {
            let mut pod = pod.clone();
            pod.labels.extend(label.map(|key| (key.to_owned(), String::new())));
            pod.annotations.extend(annotation.map(|key| (key.to_owned(), "yes".to_owned())));
            pod
        };
        assert!(!markings.is_follower(&with(&follower, Some("hot"), None)));
        assert!(!markings.is_follower(&with(&follower, None, Some("since"))));
        assert!(!markings.is_leader(&with(&leader, Some("cold"), None), Term(3)));
        assert!(!markings.is_leader(&with(&leader, None, Some("waits")), Term(3)));
        assert!(markings.is_leader(&with(&leader, Some("tier"), Some("own")), Term(3)), "what is the pod's own");
    }

    #[test]
    fn a_leftover_is_what_the_present_markings_do_not_write_themselves() {
        let earlier = Markings {
            holds: false,
            leader: Marking { labels: map(&[("role", "leader")]), annotations: map(&[("a", "1")]) },
            follower: Marking { labels: map(&[("role", "follower")]), annotations: map(&[("b", "1")]) },
            replaces: false,
        };
        let other = markings(&[("active", "yes")], &[]);
        for (labels, annotations) in [
            (&[("role", "leader")][..], &[][..]),
            (&[("role", "follower")], &[]),
            (&[], &[("a", "1")]),
            (&[], &[("b", "1")]),
        ] {
            let pod = pod(labels, annotations);
            assert!(earlier.has_leftover(&pod, &other), "{pod:?}");
            assert!(!earlier.has_leftover(&pod, &earlier), "{pod:?}");
        }
        assert!(!earlier.has_leftover(&pod(&[("role", "own")], &[("a", "2")]), &other), "it has another value");
        assert_eq!(earlier.label_keys().collect::<Vec<_>>(), ["role", "role"]);
    }

    #[test]
    fn a_patch_is_empty_if_it_says_nothing_of_either() {
        let one: Changes = [("a".into(), None)].into();
        assert!(PodPatch::default().is_empty());
        assert!(!PodPatch { labels: one.clone(), ..PodPatch::default() }.is_empty());
        assert!(!PodPatch { annotations: one, ..PodPatch::default() }.is_empty());
    }

    #[test]
    fn a_leader_without_its_term_is_not_wholly_marked() {
        let markings = markings(&[("role", "leader")], &[("role", "follower")]);
        assert!(markings.is_leader(&pod(&[("role", "leader")], &[(TERM_ANNOTATION, "3")]), Term(3)));
        assert!(!markings.is_leader(&pod(&[("role", "leader")], &[(TERM_ANNOTATION, "2")]), Term(3)));
        assert!(!markings.is_leader(&pod(&[("role", "leader")], &[]), Term(3)));
    }
    const COST: &str = DELETION_COST_ANNOTATION;
    const WRITTEN: &str = WRITTEN_COST_ANNOTATION;

    /// What is on a pod after a patch.
    fn patched(pod: &Pod, patch: &PodPatch) -> Pod {
        let mut pod = pod.clone();
        patch.apply(&mut pod);
        pod
    }

    fn costs(pod: &Pod) -> [Option<&str>; 2] {
        [COST, WRITTEN].map(|key| pod.annotations.get(key))
    }

    #[test]
    fn a_leader_has_a_deletion_cost_and_a_cost_that_somebody_else_wrote_stays() {
        let markings = markings(&[("role", "leader")], &[("role", "follower")]);
        let up = |pod: &Pod| patched(pod, &markings.promotion("web", Term(3), &[], &Before::of(pod)));
        let down = |pod: &Pod| patched(pod, &markings.demotion("web", Term(4), &[], &Before::of(pod)));
        let removed = |pod: &Pod| patched(pod, &Markings::removal(&[&markings], pod));
        let with = |pod: &Pod, cost: Option<&str>| {
            let mut pod = pod.clone();
            pod.annotations.remove(COST);
            pod.annotations.extend(cost.map(|cost| (COST.to_owned(), cost.to_owned())));
            pod
        };
        let leader = up(&pod(&[], &[]));
        assert_eq!(costs(&leader), [Some("1000"), Some("1000")]);
        assert_eq!(up(&leader).annotations, leader.annotations);
        for off in [&down, &removed] as [&dyn Fn(&Pod) -> Pod; 2] {
            assert_eq!(costs(&off(&leader)), [None, None]);
            // Somebody changes it, or takes it off, while the pod leads.
            assert_eq!(costs(&off(&with(&leader, Some("7")))), [Some("7"), None]);
            assert_eq!(costs(&off(&with(&leader, None))), [None, None]);
            // It was there before: the same value, too.
            for value in ["-5", "0", "1000"] {
                let kept = up(&pod(&[], &[(COST, value)]));
                assert_eq!(costs(&kept), [Some(value), None]);
                assert_eq!(costs(&off(&kept)), [Some(value), None]);
            }
        }
        assert_eq!(costs(&up(&with(&leader, Some("7")))), [Some("7"), None]);
        // Neither keeps a pod from counting as the leader, and only lictor's own from counting as a follower.
        assert!(
            markings.is_leader(&with(&leader, Some("7")), Term(3)) && markings.is_leader(&with(&leader, None), Term(3))
        );
        assert!(markings.is_follower(&with(&down(&leader), Some("7"))));
        let mut left = down(&leader);
        left.annotations.insert(WRITTEN.into(), "1000".into());
        assert!(!markings.is_follower(&left));
    }

    #[test]
    fn a_deletion_cost_that_the_spec_writes_is_the_specs() {
        let plain = markings(&[("role", "leader")], &[("role", "follower")]);
        let mut own = plain.clone();
        own.leader.annotations = map(&[(COST, "5")]);
        let led = |markings: &Markings, pod: &Pod, former: &[Markings]| {
            patched(pod, &markings.promotion("web", Term(3), former, &Before::of(pod)))
        };
        let leader = led(&own, &pod(&[], &[]), &[]);
        assert_eq!(costs(&leader), [Some("5"), None]);
        let demoted = patched(&leader, &own.demotion("web", Term(4), &[], &Before::of(&leader)));
        assert_eq!(costs(&demoted), [None, None]);
        // From one spec to the other, and back.
        let after = led(&plain, &leader, std::slice::from_ref(&own));
        assert_eq!(costs(&after), [Some("1000"), Some("1000")]);
        assert_eq!(costs(&led(&own, &after, &[plain])), [Some("5"), None]);
        own.follower.annotations = map(&[(COST, "-5")]);
        let follower = patched(&after, &own.demotion("web", Term(5), &[], &Before::of(&after)));
        assert_eq!(costs(&follower), [Some("-5"), None]);
    }
}

//! O1: on which of its candidates an election may write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lictor_core::{
    ELECTION_ANNOTATION, Failure, InUse, Instant, Locks, Markings, Members, Ownership, Pod, PodCache, Provenance,
    Provenances, Record, Title, Uid, multiply,
};

use crate::api::Refusal;
use crate::controller::object::ElectionObject;

/// How long it takes until a pod is read again of which the API server did not tell who labelled it.
const PAUSE: Duration = Duration::from_secs(10);

/// What is known of whose the keys on the candidates are.
#[derive(Default)]
pub(crate) struct Titles {
    provenances: Provenances,
    /// The candidates that are being read; those that could not be, until when they are not read again.
    reading: BTreeMap<Uid, Option<Instant>>,
    /// The candidates that have to be read, by their names.
    unread: BTreeMap<String, Uid>,
    /// The candidates on which nothing may be written, or nothing yet.
    foreign: BTreeSet<Uid>,
    /// The first of them on which somebody else owns a key, by its name.
    in_use: Option<(String, InUse)>,
}

impl Titles {
    /// The candidates on which nothing may be written, or nothing yet.
    pub(crate) fn foreign(&self) -> &BTreeSet<Uid> {
        &self.foreign
    }

    /// Whether the election has to wait until candidates are read.
    pub(crate) fn are_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// What keeps a candidate from taking part, as a sentence.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.in_use.as_ref().map(|(pod, in_use)| told(pod, in_use))
    }

    /// Looks at the candidates as they are now. Returns why nothing may be written on any of them, if that is so.
    pub(crate) fn look(
        &mut self,
        object: &ElectionObject,
        members: &Members,
        pods: &PodCache,
        locks: &Locks,
    ) -> Option<Refusal> {
        (self.unread, self.foreign, self.in_use) = Default::default();
        let spec = object.spec().filter(|spec| spec.cluster.is_none() && !object.is_deleted())?;
        let markings = &spec.scope.markings;
        let candidates: Vec<&Pod> = members.candidates().filter_map(|pod| pods.get(pod)).collect();
        if !self.provenances.is_empty() || !self.reading.is_empty() {
            let present: BTreeSet<&Uid> = candidates.iter().map(|pod| &pod.uid).collect();
            self.provenances.retain(|uid, _| present.contains(uid));
            self.reading.retain(|uid, _| present.contains(uid));
        }
        let scopes = object.record(locks).into_iter().flat_map(Record::scopes);
        let former: Vec<&Markings> = scopes.map(|scope| &scope.markings).collect();
        let asked = Ownership { election: object.name(), markings, former: &former, provenances: &self.provenances };
        let (mut free, mut stands_in_the_way) = (false, None);
        for pod in candidates.iter().copied() {
            match asked.of(pod) {
                Title::Free => free |= !pod.finished,
                Title::Unread => {
                    self.unread.insert(pod.name.clone(), pod.uid.clone());
                    self.foreign.insert(pod.uid.clone());
                }
                Title::InUse(in_use) => {
                    self.foreign.insert(pod.uid.clone());
                    if stands_in_the_way.is_none() && (is_marked(pod, object.name()) || markings.shows_leader(pod)) {
                        stands_in_the_way = Some(told(&pod.name, &in_use));
                    }
                    if self.in_use.is_none() && !pod.finished {
                        self.in_use = Some((pod.name.clone(), in_use));
                    }
                }
            }
        }
        if let Some(pod) = multiply(object.name(), candidates.iter().copied()) {
            return Some(Refusal { reason: "PodsMultiply", message: multiplies(&pod.name, object.name()) });
        }
        // A pod that shows the leader's label for good, or that leads, can't be left out of the group.
        let alone = || self.trouble().filter(|_| !free && self.unread.is_empty());
        let message = stands_in_the_way.or_else(alone)?;
        Some(Refusal { reason: "LabelInUse", message })
    }

    /// The candidates that are to be read now, each with its uid.
    pub(crate) fn begin_reads(&mut self, now: Instant) -> Vec<(String, Uid)> {
        let waits = |uid: &Uid| self.reading.get(uid).is_some_and(|until| until.is_none_or(|until| until > now));
        let due: Vec<(String, Uid)> =
            self.unread.iter().filter(|(_, uid)| !waits(uid)).map(|(name, uid)| (name.clone(), uid.clone())).collect();
        self.reading.extend(due.iter().map(|(_, uid)| (uid.clone(), None)));
        due
    }

    /// Takes what was read of a pod, with the uid that it has. `None`: there is none of that name.
    pub(crate) fn take(&mut self, asked: &Uid, read: Result<Option<(Uid, Provenance)>, Failure>, now: Instant) {
        let Some(awaited) = self.reading.get_mut(asked) else { return };
        match read {
            Ok(Some((uid, provenance))) if uid == *asked => {
                self.reading.remove(asked);
                self.provenances.insert(uid, provenance);
            }
            // Another pod has the name by now, or none has: the watch tells that soon.
            Ok(_) | Err(_) => *awaited = Some(now + PAUSE),
        }
    }

    /// When pods are to be read again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.reading.values().flatten().min().copied()
    }

    /// Forgets what only a replica that acts has to know.
    pub(crate) fn forget(&mut self) {
        self.reading.clear();
    }
}

fn is_marked(pod: &Pod, election: &str) -> bool {
    pod.annotations.get(ELECTION_ANNOTATION) == Some(election)
}

/// What is in use on a pod, and what to do.
fn told(pod: &str, InUse { key, value, is_label, from_template }: &InUse) -> String {
    let kind = if *is_label { "label" } else { "annotation" };
    let kinds = if *is_label { "labels" } else { "annotations" };
    if *from_template {
        return format!(
            "the pod {pod} has the {kind} {key}={value} from its controller's template, so a controller or a Service may select by it: \
             take it out of the template, write other {kinds} into spec.leader and spec.follower, or set spec.whenLabelInUse to Replace"
        );
    }
    format!(
        "the pod {pod} has the {kind} {key}={value}, which this election did not write: write other {kinds} into spec.leader and \
         spec.follower, take it off the pod and out of its controller's template, or set spec.whenLabelInUse to Replace"
    )
}

fn multiplies(pod: &str, election: &str) -> String {
    format!(
        "the pod {pod} and others have left their controller since this election labelled them, and the controller makes new ones in \
         their place: its selector does not match what spec.leader and spec.follower write, so write other labels there, and delete the \
         pods that have the annotation {ELECTION_ANNOTATION}={election} and no owner"
    )
}

//! O1: the candidates that an election may write to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lictor_api::Refusal;
use lictor_core::{
    ELECTION_ANNOTATION, Failure, InUse, Instant, Judgement, Locks, Markings, Members, Multiplying, Ownership, Pod,
    PodCache, Provenances, Record, Scope, Selections, Title, TitleRead, Uid, Unread,
};

use crate::controller::object::ElectionObject;
use crate::wording::refusals::in_use_on;

/// How long to wait before reading an object again that could not be read, or that turned out to be another object.
const PAUSE: Duration = Duration::from_secs(10);

/// The known owners of the keys on the candidates.
#[derive(Default)]
pub(crate) struct Titles {
    provenances: Provenances,
    selections: Selections,
    /// The objects that are being read, and when to read again those that could not be read.
    reading: BTreeMap<Uid, Option<Instant>>,
    /// The objects that still have to be read.
    unread: BTreeMap<Uid, Unread>,
    /// Whether the election has to wait for those reads.
    waits: bool,
    /// The candidates that the election may not write to, or not yet.
    foreign: BTreeSet<Uid>,
    /// The first of these with a key of another owner, by its name.
    in_use: Option<(String, InUse)>,
}

/// The pods of an election.
pub(crate) struct Group<'a> {
    pub(crate) members: &'a Members,
    pub(crate) pods: &'a PodCache,
    /// The candidates that carry the mark of another election, by name, and that election.
    pub(crate) marked_by_others: BTreeMap<String, String>,
}

impl Titles {
    /// The candidates that the election may not write to, or not yet.
    pub(crate) fn foreign(&self) -> &BTreeSet<Uid> {
        &self.foreign
    }

    /// Whether the election has to wait until candidates or their controllers are read.
    pub(crate) fn wait(&self) -> bool {
        self.waits
    }

    /// The obstacle that keeps a candidate from taking part, as a sentence.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.in_use.as_ref().map(|(pod, in_use)| in_use_on(pod, in_use))
    }

    /// Looks at the current candidates. Returns why the election may write to none of them, if that is so.
    pub(crate) fn look(
        &mut self,
        object: &ElectionObject,
        group: &Group<'_>,
        locks: &Locks,
        noted: &[Scope],
    ) -> Option<Refusal> {
        (self.unread, self.waits, self.foreign, self.in_use) = Default::default();
        let spec = object.spec().filter(|spec| spec.cluster.is_none() && !object.is_deleted())?;
        let Group { members, pods, marked_by_others } = group;
        let markings = &spec.scope.markings;
        let candidates: Vec<&Pod> = members.candidates().filter_map(|pod| pods.get(pod)).collect();
        let all: Vec<&Pod> = members.all().filter_map(|pod| pods.get(pod)).collect();
        self.retain(&all);
        let recorded = object.record(locks).filter(|_| !object.shares_lock());
        let scopes = recorded.into_iter().flat_map(Record::scopes);
        let former: Vec<&Markings> = scopes.chain(noted).map(|scope| &scope.markings).collect();
        let asked = Ownership {
            election: object.name(),
            markings,
            former: &former,
            settled: object.record(locks).is_some_and(|record| record.scope == spec.scope),
            provenances: &self.provenances,
            selections: &self.selections,
        };
        let Judgement { free, waits, foreign, unread, in_the_way, in_use } = asked.judge(&candidates, marked_by_others);
        (self.waits, self.foreign, self.unread, self.in_use) = (waits, foreign, unread, in_use);
        let mut stands_in_the_way = in_the_way.map(|(pod, in_use)| in_use_on(&pod, &in_use));
        // A pod that an edit of the spec has left still has the former spec's marks, which the operator takes off.
        for pod in all.into_iter().filter(|pod| !spec.scope.selector.matches(&pod.labels)) {
            match asked.of_left(pod) {
                Title::Free => {}
                Title::Unread => {
                    self.unread.insert(pod.uid.clone(), Unread::Pod(pod.name.clone()));
                    self.waits = true;
                }
                Title::InUse(in_use) => stands_in_the_way = stands_in_the_way.or(Some(in_use_on(&pod.name, &in_use))),
            }
        }
        let controllers = asked.unread(&candidates);
        self.unread.extend(controllers.map(|found| (found.uid.clone(), Unread::Controller(found.clone()))));
        self.waits |= !free && !self.unread.is_empty();
        match asked.multiply(&candidates) {
            Some(Multiplying::Yes(pod)) => {
                return Some(Refusal { reason: "PodsMultiply", message: multiplies(&pod.name, object.name()) });
            }
            Some(Multiplying::Unread) => self.waits = true,
            None => {}
        }
        // A pod that leads, or shows the leader's label permanently, can't be left out of the group.
        let alone = || self.trouble().filter(|_| !free && self.unread.is_empty());
        let message = stands_in_the_way.or_else(alone)?;
        Some(Refusal { reason: "LabelInUse", message })
    }

    /// Forgets the pods and controllers that are gone.
    fn retain(&mut self, pods: &[&Pod]) {
        self.selections.retain(pods);
        if self.provenances.is_empty() && self.reading.is_empty() {
            return;
        }
        let controllers = pods.iter().filter_map(|pod| pod.control.controller());
        let controllers = controllers.map(|controller| &controller.uid);
        let present: BTreeSet<&Uid> = pods.iter().map(|pod| &pod.uid).chain(controllers).collect();
        self.provenances.retain(|uid, _| present.contains(uid));
        self.reading.retain(|uid, _| present.contains(uid));
    }

    /// The objects to read now.
    pub(crate) fn begin_reads(&mut self, now: Instant) -> Vec<(Uid, Unread)> {
        let waits = |uid: &Uid| self.reading.get(uid).is_some_and(|until| until.is_none_or(|until| until > now));
        let due: Vec<(Uid, Unread)> =
            self.unread.iter().filter(|(uid, _)| !waits(uid)).map(|(uid, what)| (uid.clone(), what.clone())).collect();
        self.reading.extend(due.iter().map(|(uid, _)| (uid.clone(), None)));
        due
    }

    /// Takes the result of reading an object.
    pub(crate) fn take(&mut self, asked: Uid, read: Result<TitleRead, Failure>, now: Instant) {
        let Some(awaited) = self.reading.get_mut(&asked) else { return };
        match read {
            Ok(TitleRead::Pod(Some((uid, provenance)))) if uid == asked => {
                self.reading.remove(&asked);
                self.provenances.insert(uid, provenance);
            }
            Ok(TitleRead::Controller(selection)) => {
                self.reading.remove(&asked);
                self.selections.insert(asked, selection);
            }
            // The name belongs to another pod or to none by now, and the watch will show that soon.
            Ok(TitleRead::Pod(_)) | Err(_) => *awaited = Some(now + PAUSE),
        }
    }

    /// When to read objects again, if any still have to be read.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.unread.keys().filter_map(|uid| self.reading.get(uid)?.as_ref()).min().copied()
    }

    /// Forgets the state that only an acting replica needs.
    pub(crate) fn forget(&mut self) {
        self.reading.clear();
    }
}

fn multiplies(pod: &str, election: &str) -> String {
    format!(
        "the pod {pod} and others have left their controller since this election labelled them, and the controller \
         replaces them, because its selector does not match the labels of spec.leader and spec.follower: write other \
         labels there, and delete the pods that have the annotation {ELECTION_ANNOTATION}={election} and no owner"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_need_not_be_read_any_more_makes_nobody_look_again() {
        let at = |seconds| Instant::after_origin(Duration::from_secs(seconds));
        let uid = Uid("u1".into());
        let mut titles = Titles { unread: [(uid.clone(), Unread::Pod("web-1".into()))].into(), ..Titles::default() };
        assert_eq!(titles.begin_reads(at(0)).len(), 1);
        titles.take(uid, Err(Failure::Unknown("no answer".into())), at(1));
        assert_eq!((titles.due(), titles.begin_reads(at(5)).len()), (Some(at(11)), 0));
        // Another writer has removed the label in question. The pod stays a candidate.
        titles.unread.clear();
        assert_eq!((titles.begin_reads(at(12)).len(), titles.due()), (0, None), "a moment that is past is due at once");
    }
}

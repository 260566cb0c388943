//! R1 to R4: the slices through which a Service reaches the leader.
//!
//! A slice names the leader alone, so one compare-and-swap takes the old leader out and puts the next one in. No pod has to be demoted or
//! stamped before that, because the requests that an earlier operator still has on their way are for a version that the switch itself has
//! replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::backoff::Backoff;
use crate::identity::Identity;
use crate::slice::SliceVersions;
use crate::step::Step;
use crate::timers::Timer;
use crate::view::View;
use crate::write::{Late, Shown, Versioned, not_a_conflict};
use crate::{
    Command, Failure, Family, Instant, OpId, Outcome, Record, Routing, Service, Slice, SliceContent, SliceOutcome,
    Term, Uid, Version, WriteSlice,
};

/// How long the operator waits before it reads a pod again that a slice names and the cache does not show.
const SOUGHT_AGAIN: Duration = Duration::from_secs(1);

/// The operator's knowledge of an election's slices beyond the cache, and the requests for them that are under way.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    /// R1: for which version of the record this operator may write, and which slices it had read before that record was confirmed.
    confirmed: Option<(Version, SliceVersions)>,
    confirming: Option<(OpId, Version, SliceVersions)>,
    /// By the slice's name.
    awaited: BTreeMap<String, Awaited>,
    /// Writes that show a leader and may still be carried out, by the slice.
    outstanding: BTreeMap<Uid, Late>,
    /// C4: slices that this operator has written since it replaced another writer's record, so that requests of others for them fail.
    fenced: BTreeSet<Uid>,
    /// Slices that are gone, though the cache may still show them.
    gone: BTreeSet<Uid>,
    aim: Aim,
    backoff: Backoff,
    failure: Option<Failure>,
    /// Slices whose writes with the leader the API server acknowledged, and the leader's term.
    shown: BTreeMap<String, Term>,
    /// The term whose leader another program has taken out again.
    undone: Option<Term>,
    /// T1: the read of a pod that a slice names and the cache does not show.
    sought: Option<Sought>,
    /// T1: pods that the API server has reported as gone.
    departed: BTreeSet<Uid>,
}

#[derive(Clone, Debug)]
struct Awaited {
    state: Versioned,
    /// The write, while its answer is awaited.
    write: Option<WriteSlice>,
    /// R3: the slice of another writer that is read again, because the watch may not show its end.
    foreign: Option<Uid>,
}

#[derive(Clone, Debug)]
enum Sought {
    Reading(OpId, Uid),
    /// The pod is there, or the operator does not know: it reads the pod again from this moment on.
    NotBefore(Instant),
}

/// The state that the operator brings the slices to.
pub(super) enum Goal<'a> {
    /// Slices follow a record that this operator wrote itself, and that has this version.
    Follow(Version, &'a Record),
    /// T1: slices keep naming the pod that they name, as long as that pod is there. The operator need not read the record, because no other
    /// pod is named.
    Present,
    /// Slices name no pod, because another cluster may lead. The operator need not read the record.
    NobodyHere,
    /// No slice is left.
    Gone,
}

/// A kind of goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// Writes that show a pod may be sent only with this aim, and, for present pods, with the next one.
    Follow,
    Present,
    NobodyHere,
    Gone,
}

impl Goal<'_> {
    fn aim(&self) -> Aim {
        match self {
            Self::Follow(..) => Aim::Follow,
            Self::Present => Aim::Present,
            Self::NobodyHere => Aim::NobodyHere,
            Self::Gone => Aim::Gone,
        }
    }
}

/// The part that an outcome belongs to.
pub(super) enum Taken {
    Mine,
    /// The outcome belongs to the slices, and tells that another writer has changed the record.
    RecordChanged,
    Others,
}

/// A slice that is not as it should be.
enum Wrong<'a> {
    Missing(String, SliceContent),
    Differs(&'a Slice, SliceContent),
    Unwanted(&'a Slice),
    /// R3.
    Foreign(&'a Slice),
}

impl Routes {
    pub(super) fn new(seed: &str) -> Self {
        Self {
            confirmed: None,
            confirming: None,
            awaited: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            fenced: BTreeSet::new(),
            gone: BTreeSet::new(),
            aim: Aim::NobodyHere,
            backoff: Backoff::new(seed),
            failure: None,
            shown: BTreeMap::new(),
            undone: None,
            sought: None,
            departed: BTreeSet::new(),
        }
    }

    /// Forgets slices, pods and writes that, by what the cache shows, can have no effect any more.
    pub(super) fn retain(&mut self, view: &View) {
        self.gone.retain(|uid| view.slices.iter().any(|slice| slice.uid == *uid));
        self.fenced.retain(|uid| view.slices.iter().any(|slice| slice.uid == *uid));
        self.shown.retain(|name, _| view.slices.iter().any(|slice| slice.name == *name));
        self.departed.retain(|uid| view.slices.iter().any(|slice| slice.content.names(uid)));
        let gone = &self.gone;
        self.outstanding.retain(|uid, late| {
            let Some(found) = view.slices.iter().find(|slice| slice.uid == *uid) else { return false };
            late.reach(found.version);
            !late.is_empty() && !gone.contains(uid)
        });
    }

    /// The slices' versions, before a record is written or read.
    pub(super) fn seen(&self, view: &View) -> SliceVersions {
        self.present(view).map(|slice| (slice.name.clone(), (slice.uid.clone(), slice.version))).collect()
    }

    /// Notes that the record was written or read with this version. A read of an earlier version tells nothing any more.
    pub(super) fn confirm(&mut self, record: Version, seen: SliceVersions) {
        (self.confirmed, self.confirming) = (Some((record, seen)), None);
    }

    /// C4: notes that another writer's record was replaced, so requests of that writer may still arrive.
    pub(super) fn distrust(&mut self) {
        self.fenced.clear();
    }

    /// C3, C5: whether a slice here shows a leader, or may soon.
    pub(super) fn may_show(&self, id: &Identity, view: &View) -> bool {
        // The lock does not wait for a slice that shows no leader and that the API server refuses to write.
        let refused = self.failure.as_ref().is_some_and(Failure::is_refused);
        let may_show = |slice: &Slice| slice.content.shows() || !refused && self.may_soon_show(slice, view);
        !self.outstanding.is_empty() || self.own(id, view).any(may_show)
    }

    /// C4: whether a slice shows a leader, or may soon because an earlier operator or this one has sent such a write. If no other cluster
    /// can lead, the next write of the slice is early enough to stop that request (R1).
    fn may_soon_show(&self, slice: &Slice, view: &View) -> bool {
        let fenced = !view.policy.shared || self.fenced.contains(&slice.uid);
        slice.content.shows() || !fenced || self.outstanding.contains_key(&slice.uid)
    }

    /// Whether no slice is left of an election that is deleted. A slice that can't be deleted is deleted with the election, which owns it.
    /// But if clusters share the lock, C5 holds: another cluster's leader would be reached beside one that this slice shows.
    pub(super) fn is_gone(&self, id: &Identity, view: &View) -> bool {
        let leaves = self.failure.is_some() && !(view.policy.shared && self.may_show(id, view));
        leaves || self.own(id, view).next().is_none()
    }

    /// Whether the slices match the record, or the operator has reported the failure that prevents it and retries later.
    pub(super) fn is_settled(&self, record: &Record, id: &Identity, view: &View) -> bool {
        self.backoff.waits(view.now).is_some() || self.wrong(Some(record), id, view).is_empty()
    }

    /// The last failure, which the operator is retrying.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.awaited.values().any(|awaited| !awaited.state.is_unread())
    }

    /// Whether a write that shows a leader is still wanted.
    pub(super) fn wants(&self, op: OpId) -> bool {
        matches!(self.aim, Aim::Follow | Aim::Present)
            && self.awaited.values().any(|awaited| awaited.write.is_some() && awaited.state.awaits(op))
    }

    fn present<'v>(&self, view: &View<'v>) -> impl Iterator<Item = &'v Slice> {
        view.slices.iter().copied().filter(|slice| !self.gone.contains(&slice.uid))
    }

    fn own<'v>(&self, id: &Identity, view: &View<'v>) -> impl Iterator<Item = &'v Slice> {
        self.present(view).filter(|slice| slice.is_of(&id.uid, &id.name))
    }

    /// The slices that do not match the record. Without a record they are to show no leader.
    fn wrong<'v>(&self, record: Option<&Record>, id: &Identity, view: &View<'v>) -> Vec<Wrong<'v>> {
        let mut wrong = Vec::new();
        let mut wanted = BTreeSet::new();
        if let Routing::By(service) = view.routing {
            for family in service.families.iter().copied() {
                let name = service.slice(family);
                let content = content(service, family, record, id, view);
                match self.present(view).find(|slice| slice.name == name) {
                    None => wrong.push(Wrong::Missing(name.clone(), content)),
                    Some(slice) if !slice.is_of(&id.uid, &id.name) => wrong.push(Wrong::Foreign(slice)),
                    // R4.
                    Some(slice) if service.contradicts(&content) => wrong.extend(astray(slice, record, id)),
                    Some(slice) if says(&slice.content, &content) => {}
                    Some(slice) => wrong.push(Wrong::Differs(slice, content)),
                }
                wanted.insert(name);
            }
        }
        for slice in self.own(id, view).filter(|slice| !wanted.contains(&slice.name)) {
            match view.routing {
                Routing::Unusable => wrong.extend(astray(slice, record, id)),
                Routing::Off | Routing::By(_) => wrong.push(Wrong::Unwanted(slice)),
            }
        }
        wrong
    }

    /// Brings the slices to a goal, as far as that is possible now.
    pub(super) fn advance(&mut self, goal: &Goal, step: &mut Step) {
        let Step { id, view, .. } = *step;
        let aim = goal.aim();
        let term = if let Goal::Follow(_, record) = goal { Some(record.term) } else { None };
        self.shown.retain(|_, shown| Some(*shown) == term);
        self.undone = self.undone.filter(|undone| Some(*undone) == term);
        let before = std::mem::replace(&mut self.aim, aim);
        if before != aim && ![before, aim].contains(&Aim::Present) {
            // The removal of an address does not wait for the retry of an earlier failure.
            self.backoff.reset();
            self.failure = None;
        }
        let wrong: Vec<Wrong> = match goal {
            Goal::Follow(_, record) => self.wrong(Some(record), id, view),
            Goal::Present => {
                self.seek(step);
                self.own(id, view)
                    .filter_map(|slice| Some(Wrong::Differs(slice, self.present_content(slice, id, view)?)))
                    .collect()
            }
            Goal::NobodyHere => {
                let shows = self.own(id, view).filter(|slice| self.may_soon_show(slice, view));
                shows.map(|slice| Wrong::Differs(slice, emptied(slice, None, id))).collect()
            }
            Goal::Gone => self.own(id, view).map(Wrong::Unwanted).collect(),
        };
        if wrong.is_empty() {
            self.awaited.retain(|_, awaited| !awaited.state.is_unread());
            if self.awaited.is_empty() {
                self.failure = None;
                self.backoff.reset();
            }
            return;
        }
        if let Some(until) = self.backoff.waits(view.now) {
            step.wake_at(Timer::SliceRetry, until);
            return;
        }
        let confirmed = |routes: &Self, slice: &Slice| match goal {
            Goal::Follow(version, _) => routes.confirmed.as_ref().is_some_and(|(of, seen)| {
                of == version && seen.get(&slice.name) == Some(&(slice.uid.clone(), slice.version))
            }),
            Goal::Present | Goal::NobodyHere | Goal::Gone => true,
        };
        let mut unconfirmed = false;
        // Unwanted slices go last, so that clients of the former Service are served until then.
        let complete = wrong.iter().all(|wrong| matches!(wrong, Wrong::Unwanted(_)));
        for wrong in wrong {
            match wrong {
                // R2.
                Wrong::Missing(name, content) => {
                    let SliceContent { election, service, family, term, .. } = content;
                    let content = SliceContent::empty(&election, &service, family, term);
                    self.write(WriteSlice::Create { name, content }, step);
                }
                Wrong::Differs(slice, _) if !confirmed(self, slice) => unconfirmed = true,
                Wrong::Differs(slice, content) if self.is_contested(slice, &content, goal, step) => {}
                Wrong::Differs(slice, content) => {
                    let (name, uid, version) = (slice.name.clone(), slice.uid.clone(), slice.version);
                    let stamp = (id.operator_id.clone(), OpId(0));
                    self.write(WriteSlice::Replace { name, uid, version, content, stamp }, step);
                }
                Wrong::Unwanted(slice) if complete => {
                    let (name, uid, version) = (slice.name.clone(), slice.uid.clone(), slice.version);
                    self.write(WriteSlice::Delete { name, uid, version }, step);
                }
                Wrong::Unwanted(_) => {}
                Wrong::Foreign(slice) => {
                    let why = format!(
                        "the EndpointSlice {0} belongs to another election, or to none. If no election uses it, delete it with `kubectl delete \
                         endpointslice {0}`",
                        slice.name
                    );
                    self.fail(Failure::Refused(why), view.now);
                    let (state, foreign) = (Versioned::Unread(None), Some(slice.uid.clone()));
                    self.awaited.entry(slice.name.clone()).or_insert(Awaited { state, write: None, foreign });
                }
            }
        }
        if let (true, None, Goal::Follow(version, _)) = (unconfirmed, &self.confirming, goal)
            && self.awaited.is_empty()
        {
            let seen = self.seen(view);
            let op = step.request(Command::ReadRecord { key: view.key.clone() });
            self.confirming = Some((op, *version, seen));
        }
        self.read(step);
    }

    /// T1: the content that a slice should have for the pod that it names, or `None` if it has that already, or is left to others.
    fn present_content(&self, slice: &Slice, id: &Identity, view: &View) -> Option<SliceContent> {
        let [endpoint] = slice.content.endpoints.as_slice() else { return None };
        if self.departed.contains(&endpoint.uid) {
            return Some(emptied(slice, None, id));
        }
        let Routing::By(service) = view.routing else { return None };
        let pod = view.pods.iter().find(|pod| pod.uid == endpoint.uid)?;
        let SliceContent { family, term, .. } = &slice.content;
        let node = pod.node.as_deref().and_then(|name| view.nodes.get(name));
        let present = SliceContent::of(&id.uid, service, *family, *term, pod, node);
        (service.name == slice.content.service && present != slice.content && !service.contradicts(&present))
            .then_some(present)
    }

    /// T1: reads the first pod that a slice names and the cache does not show, because the cache of pods may be behind that of slices.
    fn seek(&mut self, step: &mut Step) {
        let Step { id, view, .. } = *step;
        let is_unseen = |uid: &Uid| !self.departed.contains(uid) && !view.pods.iter().any(|pod| pod.uid == *uid);
        let unseen =
            self.own(id, view).flat_map(|slice| &slice.content.endpoints).find(|endpoint| is_unseen(&endpoint.uid));
        let Some(unseen) = unseen else { return };
        match self.sought {
            Some(Sought::Reading(..)) => {}
            Some(Sought::NotBefore(again)) if view.now < again => step.wake_at(Timer::SliceRetry, again),
            _ => {
                let op = step.request(Command::ReadPod { name: unseen.pod.clone() });
                self.sought = Some(Sought::Reading(op, unseen.uid.clone()));
            }
        }
    }

    /// Whether the leader has to wait because another program takes it out of a slice again. A leader of a new term does not wait.
    fn is_contested(&mut self, slice: &Slice, content: &SliceContent, goal: &Goal, step: &mut Step) -> bool {
        if !matches!(goal, Goal::Follow(..)) || !content.shows() || self.awaited.contains_key(&slice.name) {
            return false;
        }
        let uids = |content: &SliceContent| {
            content.endpoints.iter().map(|endpoint| endpoint.uid.clone()).collect::<Vec<Uid>>()
        };
        let undone = uids(&slice.content) != uids(content);
        if undone && self.shown.remove(&slice.name) == Some(content.term) {
            self.undone = Some(content.term);
            step.contest();
        }
        let waits = undone && self.undone == Some(content.term) && step.view.now < step.view.restores_from;
        if waits {
            step.wake_at(Timer::SliceRetry, step.view.restores_from);
        }
        waits
    }

    /// Sends a write, unless an earlier and equally good write of that slice is awaited.
    fn write(&mut self, mut write: WriteSlice, step: &mut Step) {
        match self.awaited.get(write.name()) {
            None => {}
            // When no leader is to be reached, this write does not wait for an earlier one that shows a leader.
            Some(Awaited { write: Some(sent), .. }) if self.aim != Aim::Follow && sent.shows() => {}
            Some(_) => return,
        }
        let op = step.next_op();
        if let WriteSlice::Replace { stamp, .. } = &mut write {
            stamp.1 = op;
        }
        step.request_as(op, Command::WriteSlice(write.clone()));
        let mut replaced = None;
        if let WriteSlice::Replace { uid, version, content, .. } = &write {
            replaced = Some(*version);
            if content.shows() {
                self.outstanding.entry(uid.clone()).or_default().send(op, *version);
            }
        }
        let name = write.name().to_owned();
        self.awaited.insert(name, Awaited { state: Versioned::Sent(op, replaced), write: Some(write), foreign: None });
    }

    fn read(&mut self, step: &mut Step) {
        for (name, awaited) in &mut self.awaited {
            awaited.state.read(|| step.request(Command::ReadSlice { name: name.clone() }));
        }
    }

    /// Takes an outcome, if it belongs to a slice or to a record that was read for slices.
    pub(super) fn take(&mut self, op: OpId, outcome: &Outcome, now: Instant) -> Taken {
        match outcome {
            Outcome::RecordRead(read) if self.confirming.as_ref().is_some_and(|(of, ..)| *of == op) => {
                let Some((_, version, seen)) = self.confirming.take() else { return Taken::Mine };
                match read {
                    Ok(stored) if stored.version() == Some(version) => self.confirm(version, seen),
                    Ok(_) => return Taken::RecordChanged,
                    Err(failure) => self.fail(failure.clone(), now),
                }
                Taken::Mine
            }
            Outcome::PodRead(read) if matches!(&self.sought, Some(Sought::Reading(of, _)) if *of == op) => {
                let Some(Sought::Reading(_, uid)) = self.sought.take() else { return Taken::Mine };
                let is_gone = read.as_ref().is_ok_and(|pod| pod.as_ref().is_none_or(|pod| pod.uid != uid));
                if is_gone {
                    self.departed.insert(uid);
                } else {
                    self.sought = Some(Sought::NotBefore(now + SOUGHT_AGAIN));
                }
                Taken::Mine
            }
            Outcome::SliceWritten(written) => {
                self.forget_outstanding(op, written);
                self.take_answer(op, now, |state| state.take_written(written.clone()));
                Taken::Mine
            }
            Outcome::SliceRead(read) => {
                self.take_answer(op, now, |state| state.take_read(read.clone()));
                Taken::Mine
            }
            _ => Taken::Others,
        }
    }

    /// A write that was sent and shows a leader may be carried out until another write was, or until the operator knows that it was not.
    fn forget_outstanding(&mut self, op: OpId, written: &SliceOutcome) {
        self.outstanding.retain(|uid, late| {
            late.take(op, written);
            if let SliceOutcome::Written(slice) = written
                && slice.uid == *uid
            {
                late.reach(slice.version);
            }
            !late.is_empty()
        });
    }

    /// Takes the answer to the request with this number, if a slice awaits it.
    fn take_answer(
        &mut self,
        op: OpId,
        now: Instant,
        take: impl FnOnce(&mut Versioned) -> Result<Shown<Slice>, Failure>,
    ) {
        let found = self.awaited.iter().find(|(_, awaited)| awaited.state.awaits(op)).map(|(name, _)| name.clone());
        let Some((name, Awaited { mut state, write, foreign })) =
            found.and_then(|name| self.awaited.remove_entry(&name))
        else {
            return;
        };
        let shown = take(&mut state);
        if state.is_unread() {
            self.awaited.insert(name.clone(), Awaited { state, write: None, foreign: foreign.clone() });
        }
        match shown {
            Ok(Shown::Written(slice)) => self.take_written(name, *slice, write, now),
            Ok(Shown::Gone) => {
                if let Some(WriteSlice::Replace { uid, .. } | WriteSlice::Delete { uid, .. }) = write {
                    self.gone.insert(uid);
                }
                self.gone.extend(foreign);
            }
            Ok(Shown::Unchanged(slice)) => self.fail(not_a_conflict(&*slice), now),
            Ok(Shown::Read(_) | Shown::Nothing) => {}
            Err(failure) => self.fail(failure, now),
        }
    }

    fn take_written(&mut self, name: String, slice: Slice, write: Option<WriteSlice>, now: Instant) {
        self.fenced.insert(slice.uid.clone());
        let (before, content) = match write {
            Some(WriteSlice::Create { content, .. }) => (None, content),
            Some(WriteSlice::Replace { version, content, .. }) => (Some(version), content),
            Some(WriteSlice::Delete { .. }) | None => {
                self.gone.insert(slice.uid);
                return;
            }
        };
        if slice.content != content || before.is_some_and(|before| slice.version <= before) {
            let what = format!("EndpointSlice {name} says {}, not {content}", slice.content);
            self.fail(Failure::Rewritten(what), now);
            return;
        }
        self.failure = None;
        self.backoff.reset();
        if content.shows() {
            self.shown.insert(name, content.term);
        }
    }

    fn fail(&mut self, failure: Failure, now: Instant) {
        self.failure = Some(failure);
        match self.aim {
            Aim::NobodyHere => self.backoff.delay_shortly(now),
            Aim::Follow | Aim::Present | Aim::Gone => self.backoff.delay(now),
        }
    }
}

/// The content that a slice should have.
fn content(service: &Service, family: Family, record: Option<&Record>, id: &Identity, view: &View) -> SliceContent {
    let term = record.map(|record| record.term).unwrap_or_default();
    let holder = record.and_then(|record| record.holder.as_ref());
    let pod = holder.and_then(|holder| view.pods.iter().find(|pod| pod.uid == holder.uid));
    match pod {
        Some(pod) => {
            let node = pod.node.as_deref().and_then(|name| view.nodes.get(name));
            SliceContent::of(&id.uid, service, family, term, pod, node)
        }
        None => SliceContent::empty(&id.uid, &service.name, family, term),
    }
}

/// The defect of a slice that may keep the leader if it names it, but must not name another pod.
fn astray<'a>(slice: &'a Slice, record: Option<&Record>, id: &Identity) -> Option<Wrong<'a>> {
    let holder = record.and_then(|record| record.holder.as_ref());
    let leads = |uid: &Uid| holder.is_some_and(|holder| holder.uid == *uid);
    let astray = slice.content.endpoints.iter().any(|endpoint| !leads(&endpoint.uid));
    astray.then(|| Wrong::Differs(slice, emptied(slice, record, id)))
}

/// The content of a slice that no longer names a pod. The election owns it from then on, even if an earlier election left it.
fn emptied(slice: &Slice, record: Option<&Record>, id: &Identity) -> SliceContent {
    let SliceContent { service, family, term, .. } = &slice.content;
    let term = record.map_or(*term, |record| record.term.max(*term));
    SliceContent::empty(&id.uid, service, *family, term)
}

/// Whether a slice has the content that it should. A slice that names no pod is right in any term.
fn says(content: &SliceContent, wanted: &SliceContent) -> bool {
    let nobody = !content.shows() && !wanted.shows();
    content == wanted || (nobody && content.service == wanted.service && content.election == wanted.election)
}

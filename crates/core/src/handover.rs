//! The handover protocol: the steps from a written record to a labelled leader.
//!
//! The code below cites the rules H1 to H9 of docs/protocol.md.

mod fence;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::fence::Fence;
use super::marking::{Before, term_of};
use super::ownership::written_on;
use super::step::Step;
use super::view::View;
use super::write::{Shown, Versioned, not_a_conflict};
use super::{
    Command, Desired, ELECTION_ANNOTATION, Failure, HandoverOrder, Holder, Key, Markings, OpId, Outcome, Ownership,
    Pod, PodChange, PodOutcome, PodPatch, Provenances, Reason, Record, Scope, Selections, Selector, Stored, Term,
    Title, Uid, Version, WritePod,
};

/// The purpose of a handover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Carry out a record that names a leader, or none.
    Elect(Reason),
    /// Correct the leader's labels under the record that it has.
    Restore,
    /// Remove from the record what is cleaned up. No pod is written to.
    Tidy,
    /// Remove all labels.
    Withdraw,
}

/// How far a handover has come.
pub(super) enum Progress {
    /// The operator awaits outcomes.
    Waiting,
    /// The handover is complete.
    Done,
    /// The handover can't be completed; the operator has to read and decide everything again.
    Abandoned,
}

/// A handover under way.
#[derive(Clone, Debug)]
pub(super) struct Handover {
    /// The election's name, which the marks on pods carry.
    election: String,
    /// The record's version. If the store has another one, the handover is over.
    pub(super) version: Version,
    pub(super) record: Record,
    /// The holder that the replaced record named.
    pub(super) previous: Option<Holder>,
    pub(super) purpose: Purpose,
    /// Whether no late write can be on its way once this handover is complete.
    pub(super) fenced: bool,
    listing: Listing,
    locks: Locks,
    fences: Option<BTreeMap<Uid, Fence>>,
    /// O1: those of them on which another owner has a key.
    foreign: BTreeSet<Uid>,
    target: Option<Target>,
    /// Whether H4, H5 and H6 apply, because another operator's writes may be on their way.
    pub(super) after_others: bool,
    abandoned: bool,
    replaced_by: Author,
    /// Facts from the answers, for later decisions.
    pub(super) findings: Findings,
}

/// Whose record a handover's record has replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chain {
    /// This operator's own record: no other writer's request can arrive late any more.
    Own,
    /// Another writer's record.
    Others,
    /// The record of another replica, which wrote it while this one acted, so that replica may still act.
    Rivals,
}

/// Facts from the answers of a handover that matter beyond it.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Pods that are gone, whatever the cache shows.
    pub(super) gone: Vec<Uid>,
    /// The highest term on the pods or in the status.
    pub(super) term: Term,
    /// Locks of this election under other keys that are not emptied.
    pub(super) locks: Vec<(Key, Stored)>,
    /// The generation of the election that exists now, or `i64::MAX` if there is none by that name, or another one.
    pub(super) generation: Option<i64>,
    /// The API server acknowledged the promotion, and the pod shows it.
    pub(super) promoted: bool,
    /// The promotion was refused, or had no effect.
    pub(super) refused: Option<Failure>,
    /// A pod that kept the marks of an election that is being withdrawn, and why the operator could not remove them.
    pub(super) unwritten: Option<(Holder, Failure)>,
}

#[derive(Clone, Debug)]
enum Listing {
    Due,
    Sent(OpId),
    Done(Vec<Pod>),
}

/// H16: who can have written the replaced record, and so can have invented its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    Cluster,
    Anybody,
}

/// Whether the operator knows the election's locks under other keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Locks {
    Due,
    Sent(OpId),
    Known,
}

/// The facts that a promotion relies on. The promotion is for this version of the pod alone, so these facts still hold when the API server
/// carries it out.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    version: Version,
    before: Before,
}

impl Seen {
    pub(super) fn of(pod: &Pod) -> Self {
        Self { version: pod.version, before: Before::of(pod) }
    }
}

/// The pod that becomes the leader, or the cluster itself, which has no version.
#[derive(Clone, Debug)]
struct Target {
    holder: Holder,
    seen: Seen,
    /// The API server refused the last attempt, or it had no effect.
    refused: bool,
    state: TargetState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetState {
    /// H5.
    ElectionUnread,
    ReadingElection(OpId),
    /// The promotion. After a conflict the operator reads the pod again (H3).
    Promoting(Versioned),
    /// The pod was read after a conflict, and the record is to be read (H3).
    Unconfirmed,
    Confirming(OpId),
    Done,
}

/// The promotion can be sent.
const DUE: TargetState = TargetState::Promoting(Versioned::Due);

impl Handover {
    /// The handover that follows a record that was just written.
    pub(super) fn new(
        election: &str,
        version: Version,
        record: Record,
        previous: Option<Holder>,
        chain: Chain,
        purpose: Purpose,
        target: Option<(Holder, Seen)>,
    ) -> Self {
        let fenced = chain == Chain::Own;
        let first = if fenced { DUE } else { TargetState::ElectionUnread };
        let target = target.map(|(holder, seen)| Target { holder, seen, refused: false, state: first });
        // If no pod is to be promoted, the writes of others matter only if they are still being sent.
        let lists = purpose == Purpose::Withdraw || chain == Chain::Rivals || (target.is_some() && !fenced);
        Self {
            election: election.into(),
            version,
            record,
            previous,
            fenced: fenced || lists,
            listing: if lists { Listing::Due } else { Listing::Done(Vec::new()) },
            locks: if target.is_some() && !fenced { Locks::Due } else { Locks::Known },
            purpose,
            fences: None,
            foreign: BTreeSet::new(),
            target,
            after_others: !fenced,
            abandoned: false,
            replaced_by: Author::Cluster,
            findings: Findings::default(),
        }
    }

    /// Corrects the leader's labels under its own, fenced record. The caller has read `pod` before the record is confirmed.
    pub(super) fn restore(election: &str, version: Version, record: Record, pod: &Pod) -> Self {
        let holder = record.holder.clone();
        let mut handover = Self::new(election, version, record, holder.clone(), Chain::Own, Purpose::Restore, None);
        let state = TargetState::Unconfirmed;
        handover.target = holder.map(|holder| Target { holder, seen: Seen::of(pod), refused: false, state });
        handover
    }

    /// H12: takes all labels off, under a record that no longer names a leader.
    pub(super) fn withdraw(election: &str, version: Version, record: Record, chain: Chain) -> Self {
        let holder = record.holder.clone();
        Self::new(election, version, record, holder, chain, Purpose::Withdraw, None)
    }

    /// Sends the requests that can be sent now. `promoting`: whether a promotion of a pod by this process may still be on its way. `left`:
    /// pods that can't be written to, and keep the marks of an election that is being withdrawn.
    pub(super) fn advance(
        &mut self,
        promoting: &dyn Fn(&Pod) -> bool,
        left: &dyn Fn(&Pod) -> bool,
        step: &mut Step,
    ) -> Progress {
        let view = step.view;
        if view.policy.shared && view.noted.is_some() {
            self.replaced_by = Author::Anybody;
        }
        let refused = self.is_refused() || self.is_fence_refused();
        if self.abandoned || (refused && self.is_overtaken(view)) {
            return Progress::Abandoned;
        }
        if let Listing::Due = self.listing {
            // The selectors include the leaders' labels: a pod may lead although it left the group, and a record that was vacated since
            // does not name it.
            let selectors = self.record.scope.selectors_with(Some(&self.record));
            let leaders: Vec<Selector> = self.leaders().filter(|leader| !leader.match_labels.is_empty()).collect();
            if selectors.is_empty() && leaders.is_empty() {
                self.listing = Listing::Done(Vec::new());
            } else {
                let op = step.request(Command::ListPods { selectors, leaders });
                self.listing = Listing::Sent(op);
            }
        }
        if self.locks == Locks::Due {
            let op = step.request(Command::ListLocks);
            self.locks = Locks::Sent(op);
        }
        if let Some(target) = &mut self.target {
            if let TargetState::ElectionUnread = target.state {
                let op = step.request(Command::ReadElection);
                target.state = TargetState::ReadingElection(op);
            }
            if let TargetState::ReadingElection(_) = target.state {
                return Progress::Waiting;
            }
        }
        if self.locks != Locks::Known {
            return Progress::Waiting;
        }
        let Listing::Done(listed) = &mut self.listing else { return Progress::Waiting };
        if self.fences.is_none() {
            let listed = std::mem::take(listed);
            self.foreign = self.find_foreign(&listed, view);
            self.fences = Some(self.collect_fences(&listed, view));
        }
        let spares = if self.purpose == Purpose::Withdraw { left } else { &|pod: &Pod| !promoting(pod) };
        let mut done = true;
        if view.order == HandoverOrder::PromoteFirst {
            done &= self.promote(step);
            // H2 turned round on purpose: the user prefers two leaders for a moment to a moment without one.
            done = done && self.fence(spares, step);
        } else {
            done &= self.fence(spares, step);
            done = done && self.promote(step);
        }
        if done { Progress::Done } else { Progress::Waiting }
    }

    /// Takes the outcome of a request.
    pub(super) fn take(&mut self, op: OpId, outcome: Outcome) -> Result<(), Failure> {
        match &self.listing {
            Listing::Sent(expected) if *expected == op => {
                if let Outcome::PodsListed(listed) = outcome {
                    self.listing = Listing::Due;
                    let mut listed = listed?;
                    let group = self.record.scope.selectors_with(Some(&self.record));
                    listed.retain(|pod| wrote(&self.election, pod) || group.iter().any(|s| s.matches(&pod.labels)));
                    self.learn_terms(&listed);
                    self.listing = Listing::Done(listed);
                }
                return Ok(());
            }
            _ => {}
        }
        if self.locks == Locks::Sent(op) {
            if let Outcome::LocksListed(listed) = outcome {
                self.locks = Locks::Due;
                let others = listed?.into_iter().filter(|(_, lock)| self.is_rival(lock)).collect();
                self.findings.locks = others;
                self.abandoned |= !self.findings.locks.is_empty();
                self.locks = Locks::Known;
            }
            return Ok(());
        }
        let fence = self.fences.iter().flatten().find(|(_, fence)| fence.awaits(op)).map(|(uid, _)| uid.clone());
        if let Some(uid) = fence {
            return self.take_for_fence(uid, outcome);
        }
        self.take_for_target(op, outcome)
    }

    fn take_for_fence(&mut self, uid: Uid, outcome: Outcome) -> Result<(), Failure> {
        let Some(fence) = self.fences.as_mut().and_then(|fences| fences.remove(&uid)) else { return Ok(()) };
        let lacks = self.fence_lacks(&fence, &outcome);
        let written = matches!(outcome, Outcome::PodWritten(PodOutcome::Written(_)));
        let (fence, result) = fence.take(&uid, lacks, outcome);
        if let (Some(fence), Err(failure), Purpose::Withdraw) = (&fence, &result, &self.purpose) {
            let pod = Holder { pod: Some(fence.pod_name().to_owned()), uid: uid.clone(), node: None, ip: None };
            self.findings.unwritten = Some((pod, failure.clone()));
        }
        match fence {
            Some(fence) => drop(self.fences.get_or_insert_default().insert(uid, fence)),
            None if written => {}
            None => self.findings.gone.push(uid),
        }
        result
    }

    /// The promotion that is under way.
    pub(super) fn promotion(&self) -> Option<OpId> {
        match self.target.as_ref()?.state {
            TargetState::Promoting(Versioned::Sent(op, _)) => Some(op),
            _ => None,
        }
    }

    /// H5, H6: whether the operator knows the election and its other locks, if it has to. Then the slices may follow before any pod is
    /// demoted or stamped.
    pub(super) fn is_cleared(&self) -> bool {
        let unread =
            |target: &Target| matches!(target.state, TargetState::ElectionUnread | TargetState::ReadingElection(_));
        !self.abandoned && self.locks == Locks::Known && !self.target.as_ref().is_some_and(unread)
    }

    /// H7: why an acknowledged write does not count.
    fn fence_lacks(&self, fence: &Fence, outcome: &Outcome) -> Option<String> {
        let seen = fence.sent_for()?;
        let Outcome::PodWritten(PodOutcome::Written(pod)) = outcome else { return None };
        let lacks = self.fence_patch(seen).1.lacks(pod);
        let suffices = self.purpose != Purpose::Withdraw && pod.version > seen.version && !self.shows_leader(pod);
        lacks.filter(|_| !suffices)
    }

    /// Whether the promotion was refused, or had no effect, and no further attempt is under way.
    pub(super) fn is_refused(&self) -> bool {
        let idle = [DUE, TargetState::Unconfirmed];
        self.target.as_ref().is_some_and(|target| target.refused && idle.contains(&target.state))
    }

    /// Whether a pod can't be demoted.
    fn is_fence_refused(&self) -> bool {
        self.fences.iter().flatten().any(|(_, fence)| fence.is_refused())
    }

    /// The pod that is to be promoted.
    pub(super) fn target(&self) -> Option<&Holder> {
        self.target.as_ref().map(|target| &target.holder)
    }

    /// Whether no other writer's request can be on its way, although no pod was promoted: the chain was unbroken before, and the operator
    /// has written to every other pod that needs it. After another writer's record this does not hold, because the operator did not write
    /// to the pod that was to lead.
    pub(super) fn has_fenced(&self) -> bool {
        !self.after_others && self.fences.as_ref().is_some_and(BTreeMap::is_empty)
    }

    /// Whether the user now wants something else than this handover was begun for. The API server may have refused the content of a write
    /// itself, in which case retrying can't help.
    fn is_overtaken(&self, view: &View) -> bool {
        let leaves = matches!(view.desired, Desired::Withdraw | Desired::Leave) && self.purpose != Purpose::Withdraw;
        leaves || view.generation > self.record.generation
    }

    /// H6: whether this is another lock under which an operator may still promote.
    fn is_rival(&self, lock: &Stored) -> bool {
        lock.version() != Some(self.version) && !is_emptied(lock, self.record.generation)
    }

    /// H9: after a record was lost, the pods may carry a higher term than the operator knew that made the new record.
    fn learn_terms(&mut self, listed: &[Pod]) {
        if self.target.is_none() {
            return;
        }
        let terms = listed.iter().filter(|pod| wrote(&self.election, pod)).filter_map(term_of);
        let credible = terms.filter(|term| self.record.term.raised_by_hint(*term) == *term);
        if let Some(term) = credible.max() {
            self.findings.term = term;
            self.abandoned = true;
        }
    }

    /// Whether a pod shows a leader label of this record, or of an earlier spec that the record names.
    fn shows_leader(&self, pod: &Pod) -> bool {
        let shows = |scope: &Scope| scope.markings.shows_leader(pod);
        shows(&self.record.scope) || self.record.former.iter().any(shows)
    }

    /// The selectors of the leaders in this record's scopes.
    fn leaders(&self) -> impl Iterator<Item = Selector> {
        let scopes = [&self.record.scope].into_iter().chain(&self.record.former);
        scopes.map(|scope| Selector { match_labels: scope.markings.leader.labels.clone(), ..Selector::default() })
    }

    /// O1: the pods on which another owner has a key. The operator has read nothing about a pod that the cache does not show yet, and
    /// nothing about any pod when it withdraws an election of which it may know only the record.
    fn find_foreign(&self, listed: &[Pod], view: &View) -> BTreeSet<Uid> {
        let markings = &self.record.scope.markings;
        let former: Vec<&Markings> = self.record.former.iter().map(|scope| &scope.markings).collect();
        let asked = Ownership {
            election: &self.election,
            markings,
            former: &former,
            settled: true,
            provenances: &Provenances::new(),
            selections: &Selections::default(),
        };
        let known =
            |pod: &&Pod| self.purpose != Purpose::Withdraw && view.pods.iter().any(|other| other.uid == pod.uid);
        let all = listed.iter().chain(view.pods.iter().copied());
        let new = all.filter(|pod| !known(pod) && asked.of(pod) != Title::Free);
        new.map(|pod| pod.uid.clone()).chain(view.foreign.iter().cloned()).collect()
    }

    /// H2 and H4: the pods that the operator must write to before it promotes one.
    fn collect_fences(&self, listed: &[Pod], view: &View) -> BTreeMap<Uid, Fence> {
        let mut pods: BTreeMap<&Uid, &Pod> = listed.iter().map(|pod| (&pod.uid, pod)).collect();
        for pod in view.pods.iter().copied() {
            let withdrawn = self.purpose == Purpose::Withdraw && wrote(&self.election, pod);
            let known = pods.get(&pod.uid).is_some_and(|known| known.version >= pod.version);
            if !known && (self.shows_leader(pod) || withdrawn || pods.contains_key(&pod.uid)) {
                pods.insert(&pod.uid, pod);
            }
        }
        if let Some(previous) = &self.previous
            && let Some(pod) = view.pods.iter().find(|pod| pod.uid == previous.uid)
        {
            pods.entry(&pod.uid).or_insert(pod);
        }
        let mut fences: BTreeMap<Uid, Fence> =
            pods.into_values().map(|pod| (pod.uid.clone(), Fence::due(pod.clone()))).collect();
        if let Some(previous) = &self.previous
            && let Some(name) = &previous.pod
        {
            fences.entry(previous.uid.clone()).or_insert_with(|| Fence::unread(name.clone()));
        }
        if let Some(target) = &self.target {
            fences.remove(&target.holder.uid);
        }
        fences
    }

    /// Sends the writes that must be acknowledged. Returns whether all of them are.
    fn fence(&mut self, spares: &dyn Fn(&Pod) -> bool, step: &mut Step) -> bool {
        let mut fences = self.fences.take().unwrap_or_default();
        let withdraws = self.purpose == Purpose::Withdraw;
        fences.retain(|_, fence| {
            // H8; or the election is withdrawn without this pod.
            let needless = |pod: &Pod| withdraws || (!self.after_others && !self.shows_leader(pod));
            let skipped = fence.due_again().is_some_and(|pod| needless(pod) && spares(pod));
            !skipped && fence.advance(|pod| self.fence_patch(pod), step)
        });
        let all = fences.is_empty();
        self.fences = Some(fences);
        all
    }

    fn fence_patch(&self, pod: &Pod) -> (PodChange, PodPatch) {
        if self.foreign.contains(&pod.uid) {
            let mut patch = PodPatch::default();
            if self.after_others && self.purpose != Purpose::Withdraw {
                patch.note_term(self.record.term);
            }
            return (PodChange::Remove, patch);
        }
        // A pod that no scope selects any more has changed since it was a candidate, so a late promotion of it fails.
        let selected = |scope: &Scope| scope.selector.matches(&pod.labels);
        if self.replaced_by == Author::Anybody && !wrote(&self.election, pod) && !self.record.scopes().any(selected) {
            return (PodChange::Remove, PodPatch::default());
        }
        let others = is_of_another(&self.election, pod);
        if self.purpose == Purpose::Withdraw && (others || (!wrote(&self.election, pod) && !self.after_others)) {
            return (PodChange::Remove, PodPatch::default());
        }
        let former = self.record.former_markings();
        let markings = &self.record.scope.markings;
        // E1: a former leader keeps its mark and its finalizer until it has ended, also if it is no candidate any more.
        let leaves = markings.holds && self.record.leaving.iter().any(|holder| holder.uid == pod.uid);
        if self.purpose != Purpose::Withdraw && (leaves || self.record.scope.selector.matches(&pod.labels)) {
            return (PodChange::Demote, markings.demotion(&self.election, self.record.term, &former, &Before::of(pod)));
        }
        // O1: a pod of an earlier spec without a mark has nothing of lictor's, unless it led. A late promotion would add the mark.
        let led = self.previous.as_ref().is_some_and(|previous| previous.uid == pod.uid);
        if self.purpose != Purpose::Withdraw && !led && !wrote(&self.election, pod) {
            let mut patch = PodPatch::default();
            if self.after_others {
                patch.note_term(self.record.term);
            }
            return (PodChange::Remove, patch);
        }
        let scopes: Vec<&Scope> = self.record.scopes().collect();
        let mut patch = Markings::removal(&written_on(&scopes, pod), pod);
        if self.purpose != Purpose::Withdraw || !wrote(&self.election, pod) {
            // The pod is no candidate any more, but its version has to change. The operator takes the stamp off again afterwards.
            patch.stamp(&self.election, self.record.term);
        }
        (PodChange::Remove, patch)
    }

    /// Sends the promotion, after the reads that it needs. Returns whether it is acknowledged.
    fn promote(&mut self, step: &mut Step) -> bool {
        let former = self.record.former_markings();
        let Some(target) = &mut self.target else { return true };
        match &mut target.state {
            TargetState::Done => return true,
            TargetState::Promoting(promotion) => {
                // The cluster itself is the leader, so there is no pod to label.
                let Some(name) = &target.holder.pod else { return true };
                if *promotion == Versioned::Due {
                    target.refused = false;
                    let (uid, Seen { version, before }) = (target.holder.uid.clone(), &target.seen);
                    let markings = &self.record.scope.markings;
                    let patch = markings.promotion(&self.election, self.record.term, &former, before);
                    let (change, name, version) = (PodChange::Promote, name.clone(), *version);
                    let op = step.request(Command::WritePod(WritePod { change, name, uid, version, patch }));
                    *promotion = Versioned::Sent(op, Some(version));
                }
                promotion.read(|| step.request(Command::ReadPod { name: name.clone() }));
            }
            TargetState::Unconfirmed => {
                let op = step.request(Command::ReadRecord { key: step.view.key.clone() });
                target.state = TargetState::Confirming(op);
            }
            TargetState::ElectionUnread | TargetState::ReadingElection(_) | TargetState::Confirming(_) => {}
        }
        false
    }

    fn take_for_target(&mut self, op: OpId, outcome: Outcome) -> Result<(), Failure> {
        let Some(target) = &mut self.target else { return Ok(()) };
        match (&mut target.state, outcome) {
            (TargetState::ReadingElection(expected), Outcome::ElectionRead(read)) if *expected == op => {
                target.state = TargetState::ElectionUnread;
                let generation = read?.generation_of(&self.record.election);
                self.abandoned |= generation != self.record.generation;
                self.findings.generation = Some(generation);
                target.state = DUE;
            }
            (TargetState::Promoting(promotion), outcome) if promotion.awaits(op) => {
                let shown = promotion.take(&target.holder.uid, outcome);
                return self.take_promotion(shown);
            }
            (TargetState::Confirming(expected), Outcome::RecordRead(read)) if *expected == op => {
                target.state = TargetState::Unconfirmed;
                if read?.version() != Some(self.version) {
                    self.abandoned = true;
                } else if self.after_others {
                    target.state = TargetState::ElectionUnread;
                } else {
                    target.state = DUE;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_promotion(&mut self, shown: Result<Shown<Pod>, Failure>) -> Result<(), Failure> {
        let Some(target) = &mut self.target else { return Ok(()) };
        let markings = &self.record.scope.markings;
        let failure = match shown {
            Ok(Shown::Written(pod)) => {
                let former = self.record.former_markings();
                let asked = markings.promotion(&self.election, self.record.term, &former, &target.seen.before);
                let Some(what) = asked.lacks(&pod) else {
                    self.findings.promoted = true;
                    target.state = TargetState::Done;
                    return Ok(());
                };
                // The pod has the labels that Services select by, so it leads, and the operator retries the rest afterwards.
                let leads = markings.shows_leader(&pod) && self.purpose != Purpose::Restore;
                target.seen = Seen::of(&pod);
                target.refused = !leads;
                target.state = if leads { TargetState::Done } else { TargetState::Unconfirmed };
                Failure::Rewritten(what)
            }
            Ok(Shown::Read(pod)) => {
                self.abandoned |= is_of_another(&self.election, &pod);
                target.seen = Seen::of(&pod);
                self.findings.promoted = markings.is_leader(&pod, self.record.term);
                target.state = if self.findings.promoted { TargetState::Done } else { TargetState::Unconfirmed };
                return Ok(());
            }
            Ok(Shown::Unchanged(pod)) => {
                self.abandoned |= is_of_another(&self.election, &pod);
                (target.refused, target.state) = (true, TargetState::Unconfirmed);
                not_a_conflict(&*pod)
            }
            Ok(Shown::Gone) => {
                self.abandoned = true;
                self.findings.gone.push(target.holder.uid.clone());
                return Ok(());
            }
            Ok(Shown::Nothing) => return Ok(()),
            // H11, or the pod could not be read.
            Err(failure) if target.state != DUE => return Err(failure),
            Err(failure) => {
                target.refused = true;
                failure
            }
        };
        self.findings.refused = Some(failure.clone());
        Err(failure)
    }
}

/// Whether a lock names no leader, and was written for this generation of the election or a later one.
pub(super) fn is_emptied(lock: &Stored, generation: i64) -> bool {
    match lock {
        Stored::Absent | Stored::Foreign(_) | Stored::HeldByOther(..) | Stored::Free(_, None, _) => true,
        Stored::Damaged(..) => false,
        // The lock is free, and an operator with an older view of the election sees that the record is of a later one.
        Stored::Free(_, Some(record), _) => record.generation >= generation,
        Stored::Ours(_, record) => record.holder.is_none() && record.generation >= generation,
    }
}

fn wrote(election: &str, pod: &Pod) -> bool {
    pod.annotations.get(ELECTION_ANNOTATION).is_some_and(|name| name == election)
}

fn is_of_another(election: &str, pod: &Pod) -> bool {
    pod.annotations.get(ELECTION_ANNOTATION).is_some_and(|name| name != election)
}

//! Switchovers: a user asks for a leadership to move to another pod, once. The rules H14 and H15 of docs/protocol.md.

use crate::{Holder, Instant, NotEligible, Record, SwitchoverMark, Term, Uid};

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The uid of the Switchover.
    pub id: Uid,
    /// The term that is to end.
    pub from_term: Term,
    /// Who is to lead.
    pub to: Target,
    /// Whether it is not looked at whether the target is ready, and its node cordoned.
    pub force: bool,
}

/// Who is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Who would be elected if the leader were gone.
    Any,
    /// The pod of this name.
    Named(String),
    /// This pod, and no other one of its name.
    Pod(Uid),
    /// Whoever another cluster elects.
    Cluster(String),
}

/// What follows from a switchover that is over: until when the new leader is kept from being preempted, and the old one comes last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The old leader, if there was one.
    pub from: Option<Uid>,
    /// The new leader.
    pub to: Uid,
    /// Whether the new leader need not be ready.
    pub force: bool,
    /// The end.
    pub until: Instant,
}

/// What an election knows of its switchovers when it takes a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switchovers<'a> {
    /// The one that is to be carried out: its user was told that it is accepted.
    pub accepted: Option<&'a Asked>,
    /// Whether that one is given up instead (H15).
    pub gives_up: bool,
    /// Those that are over.
    pub holds: &'a [Hold],
}

/// What can be said of a switchover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is in its way. This pod would lead.
    Ready(Uid),
    /// Nothing is in its way here. The other cluster is asked when its user was told that it is accepted.
    ReadyElsewhere,
    /// Something is under way, or not known: nothing can be said of it now.
    Unsettled,
    /// It can't be carried out now.
    Blocked(Obstacle),
    /// It is being carried out: nobody leads, until the other cluster has the lock and elects.
    UnderWay,
    /// It was carried out, and its target leads, in this term.
    Done(Term),
    /// It was carried out, and the other cluster has elected this leader, in this term.
    DoneElsewhere(Term, Holder),
    /// It was carried out, and its target does not lead any more.
    Lost,
    /// It was given up, and nobody can carry it out any more (H15).
    GivenUp,
}

/// Why a switchover can't be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The term that was to end is over. This is the present one.
    Superseded(Term),
    /// The term that is to end has not begun. This is the present one.
    NotReached(Term),
    /// Another cluster leads, or a program that is no lictor.
    LedElsewhere,
    /// No other cluster can have the lock.
    NotShared,
    /// C12: the other cluster can't lead, or does not answer.
    NotReady {
        /// Whether it answers.
        answers: bool,
    },
    /// The cluster itself is the candidate.
    NoSelector,
    /// The candidates elect the leader themselves.
    ElectedByCandidates,
    /// The election is frozen.
    Frozen,
    /// The election is not accepted.
    Refused,
    /// The target leads already.
    Leads,
    /// The selector of the election matches no such pod.
    NoCandidate,
    /// The target can't be elected.
    NotEligible(NotEligible),
    /// No other pod can be elected.
    NobodyEligible,
}

impl<'a> Switchovers<'a> {
    /// What the record says of the accepted one.
    fn mark<'b>(&self, record: Option<&'b Record>) -> Option<&'b SwitchoverMark> {
        let mark = record?.switchover.as_ref()?;
        self.accepted.filter(|asked| asked.id == mark.id).map(|_| mark)
    }

    /// The holds that last: the old leader, the new one, and whether that one need not be ready. What was carried out and is not told
    /// yet lasts, too.
    fn lasting<'b>(
        &'b self,
        record: Option<&'b Record>,
        now: Instant,
    ) -> impl Iterator<Item = (Option<&'b Uid>, &'b Uid, bool)> + 'b {
        let told = self.holds.iter().filter(move |hold| hold.until > now);
        let told = told.map(|hold| (hold.from.as_ref(), &hold.to, hold.force));
        let untold = self.mark(record).and_then(|mark| Some((mark.from.as_ref(), mark.to.as_ref()?, mark.force)));
        told.chain(untold)
    }

    /// Whether a pod comes last among the eligible ones, because a switchover has just replaced it.
    pub(crate) fn holds_back(&self, pod: &Uid, record: Option<&Record>, now: Instant) -> bool {
        self.lasting(record, now).any(|(from, ..)| from == Some(pod))
    }

    /// Whether a leader is not preempted, because a switchover has just made it the leader.
    pub(crate) fn protects(&self, leader: &Uid, record: Option<&Record>, now: Instant) -> bool {
        self.lasting(record, now).any(|(_, to, _)| to == leader)
    }

    /// Whether a leader need not be ready, because a user has just made it the leader by force.
    pub(crate) fn excuses(&self, leader: &Uid, record: Option<&Record>, now: Instant) -> bool {
        self.lasting(record, now).any(|(_, to, force)| to == leader && force)
    }

    /// Until when a pod comes last, by a switchover that its user was told of.
    pub(crate) fn held_back_until(&self, pod: &Uid, now: Instant) -> Option<Instant> {
        self.last_end(now, |hold| hold.from.as_ref() == Some(pod))
    }

    /// Until when a leader is not preempted, by a switchover that its user was told of.
    pub(crate) fn protected_until(&self, leader: &Uid, now: Instant) -> Option<Instant> {
        self.last_end(now, |hold| hold.to == *leader)
    }

    fn last_end(&self, now: Instant, concerns: impl Fn(&Hold) -> bool) -> Option<Instant> {
        let concerned = self.holds.iter().filter(|hold| hold.until > now && concerns(hold));
        concerned.map(|hold| hold.until).max()
    }

    /// When the next hold ends.
    pub(crate) fn next_end(&self, now: Instant) -> Option<Instant> {
        self.holds.iter().map(|hold| hold.until).filter(|until| *until > now).min()
    }

    /// The one that is to be given up, and of which the record does not say so yet.
    pub(crate) fn unwanted(&self, record: &Record) -> Option<&'a Asked> {
        self.accepted.filter(|_| self.gives_up && self.mark(Some(record)).is_none())
    }

    /// The one that is to be carried out now.
    pub(crate) fn wanted(&self, record: &Record) -> Option<&'a Asked> {
        self.accepted.filter(|_| !self.gives_up && self.mark(Some(record)).is_none())
    }
}

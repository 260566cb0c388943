//! Switchovers: a user asks for a leadership to move to another pod, once. The rules H14 and H15 of docs/protocol.md.

use crate::{Holder, Instant, NotEligible, Record, SwitchoverMark, Term, Uid};

/// A user's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The uid of the Switchover.
    pub id: Uid,
    /// The term that is to end.
    pub from_term: Term,
    /// The new leader.
    pub to: Target,
    /// Whether the target need not be ready, and its node may be cordoned.
    pub force: bool,
}

/// The new leader of a switchover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The pod that would be elected if the leader were gone.
    Any,
    /// The pod of this name.
    Named(String),
    /// This pod, and no other one of its name.
    Pod(Uid),
    /// The pod that another cluster elects.
    Cluster(String),
}

/// The effect of a finished switchover: the moment until which the new leader is not preempted, and the old one comes last.
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

/// An election's switchovers when it takes a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switchovers<'a> {
    /// The switchover that is to be carried out, because its user was told that it is accepted.
    pub accepted: Option<&'a Asked>,
    /// Whether the accepted switchover is given up instead (H15).
    pub gives_up: bool,
    /// The effects of finished switchovers.
    pub holds: &'a [Hold],
}

/// The verdict on a switchover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No obstacle is in the way. This pod would lead.
    Ready(Uid),
    /// No obstacle is in the way here. The operator asks the other cluster when the user was told that the switchover is accepted.
    ReadyElsewhere,
    /// Something is under way, or unknown, so there is no verdict now.
    Unsettled,
    /// The switchover can't be carried out now.
    Blocked(Obstacle),
    /// The switchover is under way: there is no leader until the other cluster has the lock and elects.
    UnderWay,
    /// The switchover was carried out, and its target leads, in this term.
    Done(Term),
    /// The switchover was carried out, and the other cluster has elected this leader, in this term.
    DoneElsewhere(Term, Holder),
    /// The switchover was carried out, and its target no longer leads.
    Lost,
    /// The switchover was given up, and no operator can carry it out any more (H15).
    GivenUp,
}

/// Why a switchover can't be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The term that was to end is over. This is the present one.
    Superseded(Term),
    /// The term that is to end has not begun. This is the present one.
    NotReached(Term),
    /// Another cluster leads, or a program other than lictor.
    LedElsewhere,
    /// No other cluster can have the lock.
    NotShared,
    /// C12: the other cluster can't lead, or does not answer.
    NotReady {
        /// Whether the other cluster answers.
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
    /// The mark of the accepted switchover in the record.
    fn mark<'b>(&self, record: Option<&'b Record>) -> Option<&'b SwitchoverMark> {
        let mark = record?.switchover.as_ref()?;
        self.accepted.filter(|asked| asked.id == mark.id).map(|_| mark)
    }

    /// The holds that last: the old leader, the new one, and whether the new one need not be ready. A switchover that was carried out and
    /// not reported yet counts, too.
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

    /// The moment until which a pod comes last, by a switchover that its user was told about.
    pub(crate) fn held_back_until(&self, pod: &Uid, now: Instant) -> Option<Instant> {
        self.last_end(now, |hold| hold.from.as_ref() == Some(pod))
    }

    /// The moment until which a leader is not preempted, by a switchover that its user was told about.
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

    /// The switchover that is to be given up, if the record does not say so yet.
    pub(crate) fn unwanted(&self, record: &Record) -> Option<&'a Asked> {
        self.accepted.filter(|_| self.gives_up && self.mark(Some(record)).is_none())
    }

    /// The switchover that is to be carried out now.
    pub(crate) fn wanted(&self, record: &Record) -> Option<&'a Asked> {
        self.accepted.filter(|_| !self.gives_up && self.mark(Some(record)).is_none())
    }
}

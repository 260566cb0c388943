//! Counts how often the leader of a group changes in a row, and decides how long a change that can wait has to.

use std::time::Duration;

use crate::{Instant, ProbeFailure, Reason};

/// A leader that stays for this long ends a row of changes.
const CALM: Duration = Duration::from_secs(600);
/// From this many changes in a row on, the operator reports them.
const MANY: u32 = 5;
/// This many changes that can wait come in a row without a pause.
const FREE: u32 = 2;
/// The pause before the next change that can wait. It doubles with each further change in the row, up to the longest one.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// The changes of leader in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flapping {
    all: Row,
    /// The changes that could have waited. Only they delay the next one, because pods that were killed say nothing against a probe that
    /// fails now.
    optional: Row,
    last: Option<Reason>,
}

/// The number of changes in a row, and when the last one came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row(u32, Option<Instant>);

impl Row {
    fn note(&mut self, now: Instant) {
        *self = Self(self.count(now).saturating_add(1), Some(now));
    }

    fn count(&self, now: Instant) -> u32 {
        if self.1.is_some_and(|at| now < at + CALM) { self.0 } else { 0 }
    }
}

impl Flapping {
    /// Notes a change of leader. A change that a user or the lock has asked for does not count.
    pub fn note(&mut self, reason: &Reason, now: Instant) {
        if counts(reason) {
            self.all.note(now);
            self.last = Some(reason.clone());
        }
        if can_wait(reason) {
            self.optional.note(now);
        }
    }

    /// The number of changes in a row.
    pub fn in_row(&self, now: Instant) -> u32 {
        self.all.count(now)
    }

    /// The number of changes in a row, if there are many, and why the last one came.
    pub fn many(&self, now: Instant) -> Option<(u32, &Reason)> {
        Some((self.in_row(now), self.last.as_ref()?)).filter(|(changes, _)| *changes >= MANY)
    }

    /// The moment until which the next change has to wait, if it can. A leader that can't continue, or whose node is about to be drained,
    /// is replaced at once.
    pub fn waits(&self, now: Instant) -> Option<Instant> {
        let further = self.optional.count(now).checked_sub(FREE + 1)?;
        let pause = SHORTEST.saturating_mul(2_u32.saturating_pow(further)).min(LONGEST);
        self.optional.1.map(|at| at + pause).filter(|until| *until > now)
    }

    /// E2: the moment from which a former leader may be deleted, if the leader has changed many times in a row. Each deletion makes a
    /// controller create a pod, and the cause may be the same with that one.
    pub fn deletes_from(&self, now: Instant) -> Option<Instant> {
        let further = self.in_row(now).checked_sub(MANY)?;
        let pause = SHORTEST.saturating_mul(2_u32.saturating_pow(further)).min(LONGEST);
        self.all.1.map(|at| at + pause).filter(|from| *from > now)
    }

    /// When the row ends, if no further change comes.
    pub fn ends(&self, now: Instant) -> Option<Instant> {
        self.all.1.map(|at| at + CALM).filter(|end| *end > now)
    }
}

/// Whether a change for this reason waits while the leader has changed too often.
fn can_wait(reason: &Reason) -> bool {
    matches!(reason, Reason::ProbeFailed(ProbeFailure::NoAnswer) | Reason::Preempted)
}

fn counts(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::LeaderGone
            | Reason::LeaderUnfit(_)
            | Reason::ProbeFailed(_)
            | Reason::NotLabelled
            | Reason::Preempted
            | Reason::NodeCordoned
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn each_change_in_a_row_lets_the_next_one_wait_for_longer() {
        let (mut row, mut now, mut pauses) = (Flapping::default(), 0, Vec::new());
        for _ in 0..10 {
            row.note(&Reason::Preempted, at(now));
            let pause = row.waits(at(now)).map_or(0, |until| until.since(at(now)).as_secs());
            pauses.push(pause);
            now += pause.max(1);
        }
        assert_eq!(pauses, [0, 0, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(row.many(at(now)), Some((10, &Reason::Preempted)));
        let end = row.ends(at(now)).unwrap();
        assert_eq!((row.in_row(end), row.many(end), row.waits(end), row.ends(end)), (0, None, None, None));
        row.note(&Reason::LeaderGone, end);
        assert_eq!((row.in_row(end), row.waits(end)), (1, None), "the row begins anew");
    }

    #[test]
    fn changes_that_could_not_wait_let_no_other_one_wait() {
        let mut row = Flapping::default();
        for second in 0..10 {
            row.note(&Reason::LeaderGone, at(second));
            row.note(&Reason::ProbeFailed(ProbeFailure::ProcessGone(80)), at(second));
        }
        assert_eq!((row.in_row(at(10)), row.waits(at(10))), (20, None));
    }

    #[test]
    fn what_was_asked_for_does_not_count() {
        let mut row = Flapping::default();
        for reason in [Reason::SwitchedOver, Reason::Vacant, Reason::SpecChanged, Reason::Resumed, Reason::LockLost] {
            for second in 0..10 {
                row.note(&reason, at(second));
            }
        }
        assert_eq!(row, Flapping::default());
    }
}

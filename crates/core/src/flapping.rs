//! How often the leader of a group changes in a row, and how long a change that can wait has to.

use std::time::Duration;

use crate::{Instant, Reason};

/// A leader that stays for so long ends a row of changes.
const CALM: Duration = Duration::from_secs(600);
/// So many changes in a row are told.
const MANY: u32 = 5;
/// So many changes in a row wait for nothing: the next leader may be lost, too.
const FREE: u32 = 2;
/// The pause before the next change that can wait. It doubles with each further change in the row, up to the longest one.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// The changes of leader in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flapping {
    changes: u32,
    last: Option<(Instant, Reason)>,
}

impl Flapping {
    /// The leader has changed. What a user or the lock has asked for does not count.
    pub fn note(&mut self, reason: Reason, now: Instant) {
        if counts(reason) {
            self.changes = self.in_row(now).saturating_add(1);
            self.last = Some((now, reason));
        }
    }

    /// How many changes there were in a row.
    pub fn in_row(&self, now: Instant) -> u32 {
        if self.last.is_some_and(|(at, _)| now < at + CALM) { self.changes } else { 0 }
    }

    /// The number of changes in a row, if they are many, and why the last one came.
    pub fn many(&self, now: Instant) -> Option<(u32, Reason)> {
        let (_, reason) = self.last?;
        Some((self.in_row(now), reason)).filter(|(changes, _)| *changes >= MANY)
    }

    /// Until when the next change has to wait, if it can. A leader that can't go on, or whose node is about to be drained, is replaced at
    /// once.
    pub fn waits(&self, now: Instant) -> Option<Instant> {
        let further = self.in_row(now).checked_sub(FREE + 1)?;
        let pause = SHORTEST.saturating_mul(2_u32.saturating_pow(further)).min(LONGEST);
        self.last.map(|(at, _)| at + pause).filter(|until| *until > now)
    }

    /// When the row ends, if no further change comes.
    pub fn ends(&self, now: Instant) -> Option<Instant> {
        self.last.map(|(at, _)| at + CALM).filter(|end| *end > now)
    }
}

fn counts(reason: Reason) -> bool {
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
            row.note(Reason::Preempted, at(now));
            let pause = row.waits(at(now)).map_or(0, |until| until.since(at(now)).as_secs());
            pauses.push(pause);
            now += pause.max(1);
        }
        assert_eq!(pauses, [0, 0, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(row.many(at(now)), Some((10, Reason::Preempted)));
        let end = row.ends(at(now)).unwrap();
        assert_eq!((row.in_row(end), row.many(end), row.waits(end), row.ends(end)), (0, None, None, None));
        row.note(Reason::LeaderGone, end);
        assert_eq!((row.in_row(end), row.waits(end)), (1, None), "the row begins anew");
    }

    #[test]
    fn what_was_asked_for_does_not_count() {
        let mut row = Flapping::default();
        for reason in [Reason::SwitchedOver, Reason::Vacant, Reason::SpecChanged, Reason::Resumed, Reason::LockLost] {
            for second in 0..10 {
                row.note(reason, at(second));
            }
        }
        assert_eq!(row, Flapping::default());
    }
}

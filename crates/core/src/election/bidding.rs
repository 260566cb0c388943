//! C12: this cluster answers the one that leads and offers it the lock.
//!
//! The operator writes the answer when it is asked for, and again when the record or the answer changes, so elections that no user moves
//! between clusters have none. The cluster that holds the lock removes the answer when it no longer offers the lock.

use crate::backoff::Backoff;
use crate::step::Step;
use crate::timers::Timer;
use crate::{Bid, Command, Instant, OpId, PlacedBid, RecordOutcome, Version};

/// The answer that is being written, and the last one that was written.
#[derive(Clone, Debug)]
pub(super) struct Bidding {
    sent: Option<(OpId, Box<Bid>)>,
    /// The last answer that was written, until the store's watch shows it.
    written: Option<(Version, Box<Bid>)>,
    backoff: Backoff,
}

impl Bidding {
    pub(super) fn new(owner: &str) -> Self {
        Self { sent: None, written: None, backoff: Backoff::new(owner) }
    }

    /// Writes an answer, unless it is there already.
    pub(super) fn place(&mut self, bid: Bid, placed: Option<&PlacedBid>, step: &mut Step) {
        if self.sent.is_some() {
            return;
        }
        self.written.take_if(|(version, _)| placed.is_some_and(|placed| placed.version >= *version));
        let is_there = match &self.written {
            Some((_, written)) => **written == bid,
            None => placed.is_some_and(|placed| placed.session.is_some() && placed.bid == bid),
        };
        if is_there {
            return;
        }
        if let Some(until) = self.backoff.waits(step.view.now) {
            return step.wake_at(Timer::Bid, until);
        }
        let op = step.request(Command::WriteBid { key: step.view.key.clone(), bid: Box::new(bid.clone()) });
        self.sent = Some((op, Box::new(bid)));
    }

    /// Takes the outcome of an answer's write.
    pub(super) fn take(&mut self, op: OpId, outcome: &RecordOutcome, now: Instant) {
        let Some((_, bid)) = self.sent.take_if(|(sent, _)| *sent == op) else { return };
        self.written = None;
        match outcome {
            RecordOutcome::Written(version) => {
                self.backoff.reset();
                self.written = Some((*version, bid));
            }
            RecordOutcome::Delayed => self.backoff.delay_shortly(now),
            // The watch is about to show what the store has.
            RecordOutcome::Conflict | RecordOutcome::Failed(_) => self.backoff.delay(now),
        }
    }

    /// Notes that this cluster is offered nothing any more.
    pub(super) fn forget(&mut self) {
        (self.sent, self.written) = (None, None);
    }
}

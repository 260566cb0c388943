//! A step of an election: its input, and its effects.

use super::identity::Identity;
use super::timers::{Timer, Timers};
use super::view::View;
use crate::{Announcement, Command, Instant, OpId};

/// The effects of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// The commands to carry out, each with the number under which its outcome comes back.
    pub requests: Vec<(OpId, Command)>,
    /// The news for the user, off the critical path.
    pub announcements: Vec<Announcement>,
    /// Whether another program undoes what this operator writes.
    pub contested: bool,
}

/// The number of the last request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ops(OpId);

/// A step that is being taken.
pub(crate) struct Step<'a> {
    pub(crate) id: &'a Identity,
    pub(crate) view: &'a View<'a>,
    ops: &'a mut Ops,
    timers: Timers,
    effects: Effects,
}

impl Ops {
    /// The numbers after this one.
    pub(crate) fn after(before: OpId) -> Self {
        Self(before)
    }
}

impl<'a> Step<'a> {
    pub(crate) fn new(id: &'a Identity, view: &'a View<'a>, ops: &'a mut Ops) -> Self {
        Self { id, view, ops, timers: Timers::default(), effects: Effects::default() }
    }

    /// Requests a command. Returns the number under which its outcome comes back.
    pub(crate) fn request(&mut self, command: Command) -> OpId {
        let op = self.next_op();
        self.request_as(op, command);
        op
    }

    /// Requests a command under a number that the command itself has to carry.
    pub(crate) fn request_as(&mut self, op: OpId, command: Command) {
        self.effects.requests.push((op, command));
    }

    /// Takes the next number for a request.
    pub(crate) fn next_op(&mut self) -> OpId {
        self.ops.0.0 += 1;
        self.ops.0
    }

    /// Notes that another program undoes what this operator writes.
    pub(crate) fn contest(&mut self) {
        self.effects.contested = true;
    }

    pub(crate) fn announce(&mut self, announcement: Announcement) {
        self.effects.announcements.push(announcement);
    }

    /// Asks for another step at this moment at the latest.
    pub(crate) fn wake_at(&mut self, timer: Timer, at: Instant) {
        self.timers.set(timer, at);
    }

    /// When the next step is due, and the effects of this one.
    pub(crate) fn end(self) -> (Timers, Effects) {
        (self.timers, self.effects)
    }
}

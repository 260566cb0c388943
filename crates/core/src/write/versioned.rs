//! A write for one version of one object, until it is known what has become of it.
//!
//! The server carries out such a write only while the object has that version. After a conflict, and if there is no answer, only a read
//! shows the object as it is, so the operator reads it before it decides about another write.

use super::Object;
use crate::{Failure, OpId, Outcome, Pod, Uid, Version, WriteOutcome};

/// How far a write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versioned {
    /// The object is known, so the write can be sent.
    Due,
    /// The write is sent. A conflict counts only if the object no longer has this version; a creation has none.
    Sent(OpId, Option<Version>),
    /// The object has to be read. If it still has this version, the reported conflict was none.
    Unread(Option<Version>),
    Reading(OpId, Option<Version>),
}

/// What an answer shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown<T> {
    /// The server has carried out the write, and the object is now this.
    Written(Box<T>),
    /// The object as it was read after an unclear answer.
    Read(Box<T>),
    /// The object has not changed, although the write was answered with a conflict: the server refuses the write.
    Unchanged(Box<T>),
    /// There is no such object any more.
    Gone,
    /// The answer shows nothing yet.
    Nothing,
}

impl Versioned {
    /// Sends the read that is due, if one is.
    pub(crate) fn read(&mut self, send: impl FnOnce() -> OpId) {
        if let Self::Unread(conflict) = *self {
            *self = Self::Reading(send(), conflict);
        }
    }

    pub(crate) fn awaits(&self, op: OpId) -> bool {
        matches!(self, Self::Sent(of, _) | Self::Reading(of, _) if *of == op)
    }

    pub(crate) fn is_unread(&self) -> bool {
        matches!(self, Self::Unread(_))
    }

    /// Takes the answer to the write.
    ///
    /// # Errors
    /// If the server refused, and then the write is due, or if it may have carried out the write, and then the object is unread.
    pub(crate) fn take_written<T>(&mut self, outcome: WriteOutcome<T>) -> Result<Shown<T>, Failure> {
        let Self::Sent(_, version) = *self else { return Ok(Shown::Nothing) };
        let shown;
        (*self, shown) = match outcome {
            WriteOutcome::Written(object) => (Self::Due, Ok(Shown::Written(object))),
            WriteOutcome::Conflict => (Self::Unread(version), Ok(Shown::Nothing)),
            WriteOutcome::Gone => (Self::Due, Ok(Shown::Gone)),
            WriteOutcome::Failed(failure @ Failure::Unknown(_)) => (Self::Unread(None), Err(failure)),
            WriteOutcome::Failed(failure) => (Self::Due, Err(failure)),
        };
        shown
    }

    /// Takes the answer to the read.
    ///
    /// # Errors
    /// If the read failed, and then the object is still unread.
    pub(crate) fn take_read<T: Object>(&mut self, read: Result<Option<T>, Failure>) -> Result<Shown<T>, Failure> {
        let Self::Reading(_, conflict) = *self else { return Ok(Shown::Nothing) };
        *self = if read.is_err() { Self::Unread(conflict) } else { Self::Due };
        Ok(match read? {
            None => Shown::Gone,
            Some(object) if conflict.is_some_and(|version| object.version() <= version) => {
                Shown::Unchanged(Box::new(object))
            }
            Some(object) => Shown::Read(Box::new(object)),
        })
    }

    /// Takes an answer about the pod of this uid.
    ///
    /// # Errors
    /// As [`take_written`](Self::take_written) and [`take_read`](Self::take_read).
    pub(crate) fn take(&mut self, uid: &Uid, outcome: Outcome) -> Result<Shown<Pod>, Failure> {
        match outcome {
            Outcome::PodWritten(written) => self.take_written(written),
            Outcome::PodRead(read) => self.take_read(read.map(|pod| pod.filter(|pod| pod.uid == *uid))),
            _ => Ok(Shown::Nothing),
        }
    }
}

/// The failure for a conflict after which the object is found unchanged: a webhook may refuse with any code.
pub(crate) fn not_a_conflict(object: &impl Object) -> Failure {
    Failure::Refused(format!(
        "a write to {} is answered with a conflict, though it has not changed: look for a webhook that refuses with the code 409",
        object.described()
    ))
}

//! The finding of a check.

use serde::Serialize;

use crate::cli::user::paint::{Tone, paint};

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(super) result: Verdict,
    /// The finding, and what to do.
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verdict {
    Ok,
    Wrong,
    /// This may be intended.
    Note,
    /// The check was not possible.
    Unseen,
}

impl Finding {
    pub(super) fn ok(message: impl Into<String>) -> Self {
        Self { result: Verdict::Ok, message: message.into() }
    }

    pub(super) fn wrong(message: impl Into<String>) -> Self {
        Self { result: Verdict::Wrong, message: message.into() }
    }

    pub(super) fn note(message: impl Into<String>) -> Self {
        Self { result: Verdict::Note, message: message.into() }
    }

    pub(super) fn unseen(message: impl Into<String>) -> Self {
        Self { result: Verdict::Unseen, message: message.into() }
    }

    pub(super) fn line(&self) -> String {
        let (word, tone) = match self.result {
            Verdict::Ok => ("ok", Tone::Good),
            Verdict::Wrong => ("wrong", Tone::Bad),
            Verdict::Note => ("note", Tone::Doubtful),
            Verdict::Unseen => ("unseen", Tone::Doubtful),
        };
        format!("{}{:blanks$} {}\n", paint(tone, word), "", self.message, blanks = 6 - word.len())
    }
}

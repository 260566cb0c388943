//! What is known of when one member of a group acted.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use lictor_testing::acts::{Moment, Span, moment, seconds, spans};

/// Who acts notes it each few milliseconds. After so long without a note it does not, in seconds.
const ACTS: f64 = 0.4;

/// A trace of one member.
#[derive(Clone, Debug)]
pub enum Trace {
    /// A file with a line for each few milliseconds in which it acted. Only what is after the offset counts.
    Notes { path: PathBuf, offset: u64 },
    /// What was seen from outside: when it began, and when it stopped.
    Told(Told),
}

/// When somebody began (true) and stopped.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<Vec<(Moment, bool)>>>);

impl Told {
    /// Notes that it begins or stops now.
    pub fn tell(&self, leads: bool) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.last().is_some_and(|(_, led)| *led) != leads {
            told.push((moment(), leads));
        }
    }
}

impl Trace {
    /// From now on, nothing counts that was before, but for whether it acts.
    pub fn begin(&mut self) {
        match self {
            Self::Notes { path, offset } => *offset = fs::metadata(path).map_or(0, |file| file.len()),
            Self::Told(Told(told)) => {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                let last = told.last().copied();
                told.clear();
                told.extend(last);
            }
        }
    }

    /// Returns whether it acts now.
    pub fn acts(&self) -> bool {
        match self {
            Self::Notes { path, .. } => {
                let length = fs::metadata(path).map_or(0, |file| file.len());
                let last = notes(path, length.saturating_sub(64)).last().copied();
                last.is_some_and(|last| seconds(last, moment()) < ACTS)
            }
            Self::Told(Told(told)) => {
                told.lock().unwrap_or_else(PoisonError::into_inner).last().is_some_and(|(_, leads)| *leads)
            }
        }
    }

    /// Returns when it acted.
    pub fn spans(&self) -> Vec<Span> {
        match self {
            Self::Notes { path, offset } => spans(notes(path, *offset)),
            Self::Told(Told(told)) => {
                let (mut spans, mut began) = (vec![], None);
                for (at, leads) in told.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    match (began, *leads) {
                        (None, true) => began = Some(*at),
                        (Some(from), false) => {
                            spans.push(Span { from, to: *at });
                            began = None;
                        }
                        _ => {}
                    }
                }
                spans.extend(began.map(|from| Span { from, to: moment() }));
                spans
            }
        }
    }

    /// Returns when it began to act, after this moment.
    pub fn begins_after(&self, after: Moment) -> Option<Moment> {
        self.spans().into_iter().map(|span| span.from).find(|from| *from > after)
    }
}

/// Reads the complete lines after an offset. The first one is left out if it is incomplete.
fn notes(path: &PathBuf, offset: u64) -> Vec<Moment> {
    let mut text = String::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(offset))?;
        file.read_to_string(&mut text)
    });
    if read.is_err() {
        return vec![];
    }
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    // A moment of these years has 19 digits.
    complete.lines().filter(|line| line.len() == 19).filter_map(|line| line.parse().ok()).collect()
}

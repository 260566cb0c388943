//! When two states are the same: they differ in nothing but in how far their counters have run.
//!
//! Versions, numbers of requests and moments grow for ever. The core only compares versions and numbers with each other, or takes the
//! next one after all that it knows: so each is replaced by its rank among those of its kind that occur in the state. Versions of one
//! object are a kind, since the core never compares those of two objects; so are the requests of one operator. Of a moment only
//! counts how long ago it was, or how soon it comes. Terms of a Lease are counted on from, so they stay as they are; those of a store
//! with versions are versions.
//!
//! Three things are left out beyond that: how many failures in a row there were, once the longest wait is reached; how many renewals,
//! which give nothing but the jitter; and the changes of leader in a row, which let only a fourth change wait, and no history here has one.
//!
//! All this is read off the `Debug` text of the parts, which is complete where `Debug` is derived.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use lictor_core::Instant;

/// The names of operators end in their number and their start: see [`operator_id`].
const ELECTOR: &str = "\"op";

/// The term that a pod was written under.
const TERM: &str = "\"lictor.dev/term\": ";

/// Of more failures in a row than this one tells no more: the next attempt is as late as it may be.
const FAILURES: u64 = 7;

/// Moments that are longer ago than this do not matter any more: no length of time is as long.
const LONG_AGO: u64 = 90_000_000_000;

/// The changes of leader in a row, up to the next `}`.
const FLAPPING: &str = "flapping: Flapping {";

/// How an operator calls itself in records.
pub fn operator_id(operator: usize, start: u32) -> String {
    format!("op{operator}#{start}")
}

/// The range of versions that an object counts in.
pub const RANGE: u64 = 1_000_000;

/// The same text with versions counted from the beginning of their ranges.
pub fn readable(text: &str) -> String {
    let mut words = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        match digits.parse::<u64>() {
            Ok(number) if number >= RANGE => words.extend([&(number % RANGE).to_string(), &word[digits.len()..]]),
            _ => words += word,
        }
    }
    words
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Version(u64),
    Op,
    Moment,
    Elector,
    Failures,
}

/// Of some part of a state: its text without its numbers, and those.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    text: u64,
    /// Of the text as it is.
    exact: u64,
    numbers: Vec<(Kind, u64)>,
}

/// Something with its shape.
#[derive(Clone)]
pub struct Known<T> {
    pub value: T,
    shape: Shape,
}

impl<T: Debug> Known<T> {
    pub fn new(value: T) -> Self {
        let shape = Shape::of(&format!("{value:?}"));
        Self { value, shape }
    }
}

impl<T> std::ops::Deref for Known<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Debug> Debug for Known<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Known<T> {
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The same for what is the same in all, counters included.
    pub fn exact(&self) -> u64 {
        self.shape.exact
    }
}

impl Shape {
    pub fn of(text: &str) -> Self {
        let text = match text.split_once(FLAPPING) {
            Some((before, after)) => &[before, after.split_once('}').map_or("", |(_, after)| after)].concat(),
            None => text,
        };
        let mut hasher = DefaultHasher::new();
        let mut numbers = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['(', '"', ':']) {
            let (before, after) = rest.split_at(at);
            let found = match after.as_bytes()[0] {
                b'(' if before.ends_with("Version") => number(&after[1..]).map(|n| (Kind::Version(n.0 / RANGE), n)),
                b'(' if before.ends_with("OpId") => number(&after[1..]).map(|n| (Kind::Op, n)),
                b'(' if before.ends_with("Instant") => moment(&after[1..]).map(|n| (Kind::Moment, n)),
                b'(' if before.ends_with("Term") => {
                    number(&after[1..]).filter(|n| n.0 >= RANGE).map(|n| (Kind::Version(n.0 / RANGE), n))
                }
                b'"' if after.starts_with(TERM) => term(after).map(|n| (Kind::Version(n.0 / RANGE), n)),
                b':' if before.ends_with(" failures") => number(&after[2..]).map(|n| (Kind::Failures, n)),
                b':' if before.ends_with(" renewals") => number(&after[2..]).map(|n| (Kind::Op, n)),
                b':' if before.ends_with(" ops") => number(&after[2..]).map(|n| (Kind::Op, n)),
                b'"' if after.starts_with(ELECTOR) => named(&after[ELECTOR.len()..]).map(|n| (Kind::Elector, n)),
                _ => None,
            };
            before.hash(&mut hasher);
            rest = &after[1..];
            if let Some((kind, (value, end))) = found {
                // The next operation is after all others, so that which one it is tells nothing.
                match kind {
                    _ if before.ends_with(" ops") || before.ends_with(" renewals") => {}
                    Kind::Failures => value.min(FAILURES).hash(&mut hasher),
                    _ => numbers.push((kind, value)),
                }
                let skipped = match after.as_bytes()[0] {
                    b'"' if kind == Kind::Elector => ELECTOR.len() - 1,
                    b':' => 1,
                    _ => 0,
                };
                rest = &rest[skipped + end..];
            } else {
                after.as_bytes()[0].hash(&mut hasher);
            }
        }
        rest.hash(&mut hasher);
        let mut exact = DefaultHasher::new();
        text.hash(&mut exact);
        Self { text: hasher.finish(), exact: exact.finish(), numbers }
    }

    /// What orders parts that have no order: not by how far their counters have run.
    pub fn order(&self) -> (u64, &impl Ord) {
        (self.text, &self.numbers)
    }
}

fn number(text: &str) -> Option<(u64, usize)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, end))
}

/// A term of another range than that of small numbers, in an annotation or a patch.
fn term(text: &str) -> Option<(u64, usize)> {
    let rest = &text[TERM.len()..];
    let digits = rest.trim_start_matches("Some(").strip_prefix('"')?;
    let (value, end) = number(digits)?;
    (value >= RANGE).then_some((value, text.len() - digits.len() + end - 1))
}

/// A length of time, as `Debug` shows it.
fn moment(text: &str) -> Option<(u64, usize)> {
    let end = text.find(')')?;
    let split = text[..end].find(|c: char| c.is_alphabetic() || c == 'µ')?;
    let scale = match &text[split..end] {
        "s" => 1e9,
        "ms" => 1e6,
        "µs" => 1e3,
        _ => 1.0,
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a number of nanoseconds")]
    let nanoseconds = (text[..split].parse::<f64>().ok()? * scale).round() as u64;
    Some((nanoseconds, end))
}

/// Operator and start, as one number.
fn named(text: &str) -> Option<(u64, usize)> {
    let (operator, end) = number(text)?;
    let (start, length) = number(text[end..].strip_prefix('#')?)?;
    Some((operator * RANGE + start, end + 1 + length))
}

/// The parts of a state, in an order that is part of it.
pub struct Parts<'a> {
    /// Each with the operator that it is a part of, if it is one's.
    shapes: Vec<(u8, &'a Shape)>,
    /// Whether the order of the operators is turned round.
    turned: bool,
    /// What the clocks show by which moments are told.
    clocks: [Option<u64>; 2],
}

/// No operator's.
pub const NOBODY: u8 = u8::MAX;

impl<'a> Parts<'a> {
    pub fn new(turned: bool) -> Self {
        Self { shapes: Vec::with_capacity(24), turned, clocks: [None, None] }
    }

    pub fn push(&mut self, operator: u8, shape: &'a Shape) {
        self.shapes.push((operator, shape));
    }

    /// Moments of this operator are told by this clock: how long ago, or how soon.
    pub fn set_clock(&mut self, operator: usize, now: Option<Instant>) {
        let nanoseconds = now.map(|now| now.since(Instant::default()).as_nanos());
        self.clocks[operator] = nanoseconds.and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    }

    /// The same for all states that are the same.
    pub fn identity(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let place = |operator: u8, (kind, value): (Kind, u64)| {
            let owner = match kind {
                Kind::Version(_) | Kind::Elector => NOBODY,
                Kind::Op | Kind::Moment | Kind::Failures => operator,
            };
            (owner, kind, value)
        };
        let all = self.shapes.iter().flat_map(|(operator, shape)| shape.numbers.iter().map(|n| place(*operator, *n)));
        let mut ranks: Vec<(u8, Kind, u64)> = all.filter(|(owner, kind, _)| !self.stays(*owner, *kind)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        for (operator, shape) in &self.shapes {
            shape.text.hash(&mut hasher);
            for number in &shape.numbers {
                let (owner, kind, value) = place(*operator, *number);
                if kind == Kind::Elector && self.turned {
                    ((1 - value / RANGE) * RANGE + value % RANGE).hash(&mut hasher);
                } else if let (Kind::Moment, Some(now)) = (kind, self.clock(owner)) {
                    (value + LONG_AGO).saturating_sub(now).hash(&mut hasher);
                } else if kind == Kind::Elector {
                    value.hash(&mut hasher);
                } else {
                    let first = ranks.partition_point(|rank| (rank.0, rank.1) < (owner, kind));
                    let at = ranks.partition_point(|rank| *rank < (owner, kind, value));
                    (at - first).hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    fn stays(&self, owner: u8, kind: Kind) -> bool {
        kind == Kind::Elector || (kind == Kind::Moment && self.clock(owner).is_some())
    }

    fn clock(&self, owner: u8) -> Option<u64> {
        self.clocks.get(usize::from(owner)).copied().flatten()
    }
}

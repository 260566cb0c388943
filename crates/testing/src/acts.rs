//! The times in which programs acted: the moments that they note every few milliseconds, and the spans that follow.

use std::time::{Duration, SystemTime};

/// A moment of this machine's wall clock, in nanoseconds since 1970. Only for programs on one machine, in runs of minutes.
pub type Moment = u64;

/// A longer silence than this ends a span. On a busy machine an acting program may be silent for some time.
const SILENCE: Duration = Duration::from_millis(250);

/// A time in which a program acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Moment,
    pub to: Moment,
}

/// Returns the present moment.
pub fn moment() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set");
    u64::try_from(since.as_nanos()).expect("it is before the year 2500")
}

/// Returns how many seconds `to` is after `from`, or 0.
pub fn seconds(from: Moment, to: Moment) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

/// Returns the spans of these moments, which are in order.
pub fn spans(moments: impl IntoIterator<Item = Moment>) -> Vec<Span> {
    let mut spans: Vec<Span> = vec![];
    for moment in moments {
        match spans.last_mut() {
            Some(last) if Duration::from_nanos(moment.saturating_sub(last.to)) <= SILENCE => last.to = moment,
            _ => spans.push(Span { from: moment, to: moment }),
        }
    }
    spans
}

/// Returns for how many seconds both acted. The spans of each are in order.
pub fn both(one: &[Span], other: &[Span]) -> f64 {
    let common = |a: &Span, b: &Span| seconds(a.from.max(b.from), a.to.min(b.to));
    one.iter().flat_map(|a| other.iter().map(move |b| common(a, b))).fold(0.0, |sum, seconds| sum + seconds)
}

/// Returns the longest time in seconds, from `from` to `to`, in which no program acted.
pub fn longest_without(all: &[&[Span]], from: Moment, to: Moment) -> f64 {
    let mut spans: Vec<Span> = all.iter().copied().flatten().copied().collect();
    spans.sort_by_key(|span| span.from);
    let (mut until, mut longest) = (from, 0.0_f64);
    for span in spans.iter().filter(|span| span.to > from && span.from < to) {
        longest = longest.max(seconds(until, span.from));
        until = until.max(span.to);
    }
    longest.max(seconds(until, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        milliseconds * 1_000_000
    }

    fn span(from: u64, to: u64) -> Span {
        Span { from: at(from), to: at(to) }
    }

    fn is(found: f64, milliseconds: f64) -> bool {
        (found * 1000.0 - milliseconds).abs() < 1e-6
    }

    #[test]
    fn a_silence_ends_a_span() {
        assert_eq!(spans([at(0), at(5), at(250), at(600), at(605)]), [span(0, 250), span(600, 605)]);
        assert_eq!(spans([]), []);
    }

    #[test]
    fn both_is_what_spans_have_in_common() {
        assert!(is(both(&[span(0, 100), span(200, 300)], &[span(50, 250)]), 100.0));
        assert!(is(both(&[span(0, 100)], &[span(100, 200)]), 0.0));
        // A single act of the other program, in the middle, is one moment.
        assert!(is(both(&[span(0, 100)], &[span(50, 50)]), 0.0));
    }

    #[test]
    fn nobody_acts_from_the_last_act_of_one_to_the_first_of_another() {
        let (one, other) = ([span(0, 100), span(900, 1000)], [span(400, 600)]);
        assert!(is(longest_without(&[&one, &other], at(50), at(950)), 300.0));
        assert!(is(longest_without(&[&one, &other], at(50), at(2000)), 1000.0));
        assert!(is(longest_without(&[&one], at(200), at(300)), 100.0));
        assert!(is(longest_without(&[], at(200), at(300)), 100.0));
    }
}

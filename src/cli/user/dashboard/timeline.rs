//! The terms of an election over time, with the gaps without a leader, from `status.history`.

use lictor_api::HistoryEntry;
use serde::Serialize;

use crate::wording::described;

/// A span of time with one leader, or with none. Times are in milliseconds since 1970, by the operator's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Span {
    /// The leader. `None`: there is none, or the leader is changing.
    pub(super) leader: Option<String>,
    /// The leader's term. For a gap, the term of the change that ends it, or else that began it.
    pub(super) term: i64,
    pub(super) from: i64,
    /// `None`: the span has not ended.
    pub(super) until: Option<i64>,
    /// How long a change of leader took, in milliseconds, because completion times are in whole seconds.
    pub(super) took: Option<i64>,
}

/// A change of leader.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    term: i64,
    /// The new leader. `None`: no candidate could be elected.
    leader: Option<String>,
    previous: Option<String>,
    /// The reason, in one word.
    reason: String,
    /// The reason as half a sentence. `None`: this version does not know the word.
    why: Option<&'static str>,
    /// When the change was complete.
    at: Option<i64>,
    /// The milliseconds from when the operator saw the cause.
    took: i64,
}

/// Returns all changes, newest first as in the status.
pub(super) fn changes(history: &[HistoryEntry]) -> Vec<Change> {
    let change = |entry: &HistoryEntry| Change {
        term: entry.term,
        leader: entry.leader_name.clone(),
        previous: entry.previous_leader_name.clone(),
        reason: entry.reason.clone(),
        why: described(&entry.reason),
        at: completed(entry),
        took: entry.duration_milliseconds,
    };
    history.iter().map(change).collect()
}

/// How many changes a status lists.
const KEPT: usize = 10;

/// Returns when each change to another leader was complete, newest first. The first election of all is none.
pub(super) fn handovers(history: &[HistoryEntry]) -> Vec<i64> {
    let is_first = |place: usize| place + 1 == history.len() && known_since(history).is_none();
    let entries = history.iter().enumerate().filter(|(place, entry)| {
        entry.leader_name.is_some() && entry.leader_name != entry.previous_leader_name && !is_first(*place)
    });
    entries.filter_map(|(_, entry)| completed(entry)).collect()
}

/// Returns since when all changes are known. `None`: since the election was created.
pub(super) fn known_since(history: &[HistoryEntry]) -> Option<i64> {
    let oldest = history.last()?;
    if history.len() < KEPT && oldest.previous_leader_name.is_none() && oldest.leader_name.is_some() {
        return None;
    }
    Some(completed(oldest)? - oldest.duration_milliseconds.max(0))
}

/// Returns the spans from the oldest known change until now, without holes.
///
/// A gap begins when the operator saw the cause, so a leader that was lost earlier, unseen, counts as leading until
/// then. A healthy leader that is moved still leads for part of that gap.
pub(super) fn spans(history: &[HistoryEntry]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for entry in history.iter().rev() {
        let Some(done) = completed(entry) else { continue };
        let took = entry.duration_milliseconds.max(0);
        // The same leader continues in a higher term.
        let stays = entry.reason == "LockRestored" && entry.leader_name == entry.previous_leader_name;
        let began = if stays { done } else { done - took };
        let first = spans.is_empty();
        if let Some(last) = spans.last_mut() {
            let end = if last.leader.is_none() { done } else { began };
            last.until = Some(end.max(last.from));
        }
        let before = spans.last().and_then(|last| last.until);
        let after_gap = spans.last().is_some_and(|last| last.leader.is_none());
        let known = !first || entry.previous_leader_name.is_some();
        if !stays && !after_gap && known {
            let from = before.unwrap_or(began);
            let until = Some(done.max(from));
            spans.push(Span { leader: None, term: entry.term, from, until, took: Some(took) });
        }
        match (&entry.leader_name, spans.last_mut()) {
            (Some(leader), last) => {
                let from = last.and_then(|last| last.until).unwrap_or(done);
                let leader = Some(leader.clone());
                spans.push(Span { leader, term: entry.term, from, until: None, took: None });
            }
            (None, Some(gap)) => (gap.until, gap.took) = (None, None),
            (None, None) => spans.push(Span { leader: None, term: entry.term, from: done, until: None, took: None }),
        }
    }
    spans
}

/// Returns when a change was complete.
fn completed(entry: &HistoryEntry) -> Option<i64> {
    entry.completion_time.as_ref().map(|time| time.0.as_millisecond())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    /// A change at a second: term, leader, previous leader, reason, milliseconds.
    fn entry(second: i64, term: i64, leader: &str, previous: &str, reason: &str, took: i64) -> HistoryEntry {
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        HistoryEntry {
            term,
            leader_name: name(leader),
            previous_leader_name: name(previous),
            reason: reason.into(),
            completion_time: Some(Time(Timestamp::from_second(second).unwrap())),
            duration_milliseconds: took,
        }
    }

    /// The spans as text, from the oldest.
    fn drawn(mut history: Vec<HistoryEntry>) -> Vec<String> {
        history.reverse();
        let spans = spans(&history);
        for pair in spans.windows(2) {
            assert_eq!(pair[0].until, Some(pair[1].from), "there is no hole: {spans:?}");
        }
        let line = |span: &Span| {
            let until = span.until.map_or_else(|| "now".into(), |until| until.to_string());
            let took = span.took.map(|took| format!(" ({took} ms)")).unwrap_or_default();
            format!("{} {}..{until}{took}", span.leader.as_deref().unwrap_or("-"), span.from)
        };
        spans.iter().map(line).collect()
    }

    #[test]
    fn a_failover_has_a_gap_from_its_cause_to_the_new_label() {
        let history = vec![entry(10, 1, "a", "", "Vacant", 31), entry(60, 2, "b", "a", "LeaderDeleted", 72)];
        assert_eq!(drawn(history), ["a 10000..59928", "- 59928..60000 (72 ms)", "b 60000..now"]);
    }

    #[test]
    fn a_group_without_a_candidate_has_no_leader_until_the_next_one() {
        let lost = entry(60, 1, "", "a", "LeaderNotReady", 5000);
        let history = vec![entry(10, 1, "a", "", "Vacant", 0), lost.clone()];
        assert_eq!(drawn(history.clone()), ["a 10000..55000", "- 55000..now"]);
        let back = entry(90, 2, "a", "", "Vacant", 20);
        assert_eq!(drawn([history, vec![back]].concat()), ["a 10000..55000", "- 55000..90000", "a 90000..now"]);
        assert_eq!(drawn(vec![lost]), ["- 55000..now"]);
    }

    #[test]
    fn who_goes_on_in_a_higher_term_leaves_no_gap_and_who_came_back_by_the_same_name_does() {
        let first = entry(10, 1, "web-0", "", "Vacant", 0);
        let restored = vec![first.clone(), entry(20, 2, "web-0", "web-0", "LockRestored", 900)];
        assert_eq!(drawn(restored), ["web-0 10000..20000", "web-0 20000..now"]);
        let replaced = vec![first, entry(20, 2, "web-0", "web-0", "LeaderGone", 900)];
        assert_eq!(drawn(replaced), ["web-0 10000..19100", "- 19100..20000 (900 ms)", "web-0 20000..now"]);
    }

    /// Whole seconds, and clocks of two operators.
    #[test]
    fn times_never_go_back() {
        let history = vec![
            entry(10, 1, "a", "", "Vacant", 0),
            entry(10, 2, "b", "a", "SwitchedOver", 30),
            entry(8, 3, "c", "b", "LeaderGone", 40),
            entry(12, 4, "d", "c", "LeaderGone", 9000),
        ];
        assert_eq!(
            drawn(history),
            [
                "a 10000..10000",
                "- 10000..10000 (30 ms)",
                "b 10000..10000",
                "- 10000..10000 (40 ms)",
                "c 10000..10000",
                "- 10000..12000 (9000 ms)",
                "d 12000..now"
            ]
        );
    }

    #[test]
    fn what_was_before_the_kept_changes_is_unknown() {
        let first = entry(10, 1, "a", "", "Vacant", 31);
        let moved = |second| entry(second, second, "b", "a", "SwitchedOver", 100);
        let known = |history: &[HistoryEntry]| (handovers(history), known_since(history));
        assert_eq!(known(&[]), (vec![], None));
        assert_eq!(known(&[moved(20), first.clone()]), (vec![20_000], None));
        assert_eq!(known(&[moved(20)]), (vec![20_000], Some(19_900)), "an earlier change is missing");
        let restored = entry(30, 3, "b", "b", "LockRestored", 5);
        assert_eq!(known(&[restored, moved(20), first.clone()]), (vec![20_000], None), "the leader stays");
        let full: Vec<HistoryEntry> = (12..21).rev().map(moved).chain([first]).collect();
        let (found, since) = known(&full);
        assert_eq!((full.len(), found.len(), since), (10, 10, Some(9969)), "the oldest may not be the first");
    }

    #[test]
    fn what_has_no_time_is_listed_and_not_drawn() {
        let untimed = HistoryEntry { completion_time: None, ..entry(0, 3, "x", "", "Whatever", 5) };
        assert!(spans(std::slice::from_ref(&untimed)).is_empty() && spans(&[]).is_empty());
        let listed = changes(&[untimed, entry(1, 2, "y", "z", "Preempted", 7)]);
        assert_eq!((listed[0].at, listed[0].why), (None, None));
        assert_eq!((listed[1].at, listed[1].why), (Some(1000), Some("it has a higher priority")));
    }
}

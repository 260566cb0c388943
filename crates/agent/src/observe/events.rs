//! The latest changes, for listeners, including those that come back after a break.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// How many changes are kept. A listener that missed more gets the newest.
const KEPT: usize = 256;

/// The latest changes.
#[derive(Debug)]
pub(super) struct Events {
    /// A name for this start of this process, because numbers of another start mean nothing here.
    start: String,
    kept: Mutex<VecDeque<(u64, String)>>,
    newest: watch::Sender<u64>,
}

impl Events {
    pub(super) fn new(start: String) -> Self {
        Self { start, kept: Mutex::default(), newest: watch::Sender::new(0) }
    }

    /// Adds a change. The first number is 1.
    pub(super) fn push(&self, content: String) {
        let mut kept = self.kept();
        let number = kept.back().map_or(0, |(number, _)| *number) + 1;
        kept.push_back((number, content));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        self.newest.send_replace(number);
    }

    /// Returns the number of the newest change, and follows it.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns the id of a change, for `Last-Event-ID`.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.start)
    }

    /// Returns the number after which a listener continues that last received this id. For an unknown id, this is the number before the
    /// newest change.
    pub(super) fn position(&self, last: Option<&str>) -> u64 {
        let kept = self.kept();
        let newest = kept.back().map_or(0, |(number, _)| *number);
        let named = last.and_then(|id| id.strip_prefix(&self.start)?.strip_prefix('-')?.parse::<u64>().ok());
        let resumes = |number: &u64| *number <= newest && kept.front().is_none_or(|(first, _)| number + 1 >= *first);
        named.filter(resumes).unwrap_or_else(|| newest.saturating_sub(1))
    }

    /// Returns the first change after this number. A slow listener whose next change is no longer kept gets the newest.
    pub(super) fn after(&self, position: u64) -> Option<(u64, String)> {
        let kept = self.kept();
        let (first, newest) = (kept.front()?, kept.back()?);
        if position + 1 < first.0 {
            return Some(newest.clone());
        }
        kept.iter().find(|(number, _)| *number > position).cloned()
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(u64, String)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: &Events, last: Option<&str>) -> Vec<u64> {
        let mut position = events.position(last);
        let next = || {
            let (number, _) = events.after(position)?;
            position = number;
            Some(number)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn who_comes_back_hears_what_was_missed_and_who_is_new_the_newest() {
        let events = Events::new("a".into());
        assert_eq!((events.position(None), after(&events, None)), (0, vec![]));
        for number in 1..=5 {
            events.push(number.to_string());
        }
        assert_eq!(after(&events, None), [5]);
        assert_eq!(after(&events, Some(&events.id(3))), [4, 5]);
        assert_eq!(after(&events, Some("a-0")), [1, 2, 3, 4, 5]);
        assert_eq!(after(&events, Some("a-5")), [] as [u64; 0], "nothing was missed");
        for odd in ["b-3", "a-6", "a-", "a", "", "a--1", "a-99999999999999999999", "a-18446744073709551615"] {
            assert_eq!(after(&events, Some(odd)), [5], "{odd}");
        }
    }

    #[test]
    fn who_missed_too_much_hears_the_newest() {
        let events = Events::new("a".into());
        let many = KEPT as u64 + 10;
        for number in 1..=many {
            events.push(number.to_string());
        }
        assert_eq!(after(&events, Some("a-3")), [many]);
        assert_eq!(after(&events, Some("a-10")).len(), KEPT);
        assert_eq!(events.after(3), Some((many, many.to_string())), "a slow listener");
    }
}

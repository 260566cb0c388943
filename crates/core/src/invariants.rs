//! The promises as predicates, one for each promise. The model checker, the simulations, and the checker of recordings of a real cluster
//! all use them.

use std::time::Duration;

use super::{Instant, Markings, Pod, Term};

/// Never two: at most one of a group's pods shows a leader label, at every revision of the API server.
pub fn at_most_one_leader<'a>(pods: impl IntoIterator<Item = &'a Pod>, markings: &Markings) -> bool {
    at_most_one(pods.into_iter().map(|pod| markings.shows_leader(pod)))
}

/// Never two, between the holders that share a lock: at most one of them shows, at any moment, that it leads.
pub fn at_most_one(leads: impl IntoIterator<Item = bool>) -> bool {
    leads.into_iter().filter(|leads| *leads).count() <= 1
}

/// The fencing token only rises: each new leader has a higher term than every leader before.
pub fn term_rises(before: Option<Term>, now: Term) -> bool {
    before.is_none_or(|before| before < now)
}

/// A holder stops before another one may start: its reliance on the lock ends no later than the moment from which its store gives the lock
/// to others. Both moments are by one clock, which only an observer of all has.
pub fn stops_in_time(relies_until: Instant, granted_from: Instant) -> bool {
    relies_until <= granted_from
}

/// Never none for long: a group that has had an eligible pod and no leader since a moment has a leader again within the bound.
pub fn led_in_time(vacant_since: Option<Instant>, now: Instant, bound: Duration) -> bool {
    vacant_since.is_none_or(|since| now.since(since) <= bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Marking;

    fn pod(role: &str) -> Pod {
        Pod { labels: [("role".to_owned(), role.to_owned())].into(), ..Pod::default() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn two_leaders_are_too_many() {
        let marking = |role: &str| Marking { labels: pod(role).labels, ..Marking::default() };
        let markings = Markings { leader: marking("leader"), follower: marking("follower"), ..Markings::default() };
        let (leader, follower) = (pod("leader"), pod("follower"));
        assert!(at_most_one_leader([], &markings));
        assert!(at_most_one_leader([&leader, &follower], &markings));
        assert!(!at_most_one_leader([&leader, &follower, &leader], &markings));
    }

    #[test]
    fn a_term_that_is_not_higher_does_not_rise() {
        assert!(term_rises(None, Term(0)) && term_rises(Some(Term(1)), Term(2)));
        assert!(!term_rises(Some(Term(2)), Term(2)) && !term_rises(Some(Term(2)), Term(1)));
    }

    #[test]
    fn a_holder_may_stop_at_the_very_moment() {
        assert!(stops_in_time(at(3), at(3)) && !stops_in_time(at(4), at(3)));
    }

    #[test]
    fn a_vacancy_may_last_as_long_as_its_bound() {
        let bound = Duration::from_secs(5);
        assert!(led_in_time(None, at(100), bound) && led_in_time(Some(at(1)), at(6), bound));
        assert!(!led_in_time(Some(at(1)), at(7), bound));
    }
}

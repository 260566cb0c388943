//! How the leader of one election is reached: the Service that it names, and what keeps that from being used.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::{Failure, Family, Instant, Service, Slice, Uid, Version, slice_name};

use super::workloads::Surroundings;
use crate::controller::names::{ElectionId, ElectionName};
use crate::controller::object::ElectionObject;
use crate::controller::on_demand::{OnDemandWatches, Watched};
use crate::kubernetes::{Leftovers, ServiceDefect, ServiceObject};

/// What has to be known of a namespace.
pub(crate) const WATCHED: [Watched; 2] = [Watched::Services, Watched::Slices];

/// The first pause before a Service is searched again for leftovers, and the longest one.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// A controller that was about to write slices when the Service lost its selector, has written them after this time.
const SETTLED: Duration = Duration::from_secs(10);

/// How the leader of an election is reached.
#[derive(Default)]
pub(crate) struct Routing {
    route: Route,
    search: Search,
    /// An older election that names the same Service.
    older: Option<ElectionName>,
    /// Whether it is known which slices there are.
    read: bool,
}

/// How the leader is reached, as far as it is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// By its label alone.
    #[default]
    Off,
    /// It is not known yet. Whether it is about to be.
    Unknown { soon: bool },
    /// The Service can't be used.
    Unusable(Obstacle),
    /// Through this Service.
    By(Service),
    /// Through this Service, as far as what others have left in it names nobody else (R4).
    Beside(Service, Leftovers),
}

/// Why a Service can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// This operator has no right to something.
    Forbidden(Failure),
    /// An older election names the same Service.
    Taken(ElectionName),
    /// There is none.
    Missing,
    /// It is of a kind through which nobody can be reached.
    Defect(ServiceDefect),
}

/// The search for what else the Service reaches somebody by.
#[derive(Default)]
struct Search {
    /// The Service as of which it was begun last, and when.
    begun: Option<(Uid, Version, Instant)>,
    /// How often it was begun: an answer to an earlier one does not count.
    number: u64,
    under_way: bool,
    /// What was found last since the Service can be used.
    found: Option<Result<Leftovers, Failure>>,
    /// When to search again.
    due: Option<Instant>,
    pause: Duration,
}

impl Routing {
    /// How the leader is reached.
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// Why it is not known yet how.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.search.found.as_ref().and_then(|found| found.as_ref().err())
    }

    /// The Services, among these, of which the election surely has no slices.
    pub(crate) fn unrouted<'s>(
        &self,
        services: impl IntoIterator<Item = &'s str>,
        election: &ElectionId,
        known: &BTreeMap<String, Slice>,
    ) -> Vec<String> {
        let has_none = |service: &&str| {
            slices([*service], known).all(|slice| !slice.is_of(&election.uid, &election.election.name))
        };
        services.into_iter().filter(has_none).filter(|_| self.read).map(str::to_owned).collect()
    }

    /// Takes which older election names the same Service.
    pub(crate) fn give_way(&mut self, older: Option<ElectionName>) {
        self.older = older;
    }

    /// Looks at the Service as it is now. `leader`: who leads here. Returns the number of the search that is to begin, if one is.
    pub(crate) fn look(
        &mut self,
        object: &ElectionObject,
        leader: Option<&Uid>,
        around: Surroundings<'_>,
        watches: &OnDemandWatches,
        now: Instant,
    ) -> Option<u64> {
        let namespace = &object.election().namespace;
        let kind = Watched::Slices;
        self.read = watches.knows(kind, namespace) && watches.forbidden(kind, namespace).is_none();
        let name = object.spec().map(|spec| spec.service.as_ref());
        let forbidden = WATCHED.iter().find_map(|watched| watches.forbidden(*watched, namespace));
        let known = WATCHED.iter().all(|watched| watches.knows(*watched, namespace));
        let route = match (name, forbidden, &self.older) {
            (None, ..) => Route::Unknown { soon: false },
            (Some(None), ..) => Route::Off,
            (Some(Some(_)), Some(failure), _) => Route::Unusable(Obstacle::Forbidden(failure.clone())),
            (Some(Some(_)), None, _) if !known => {
                Route::Unknown { soon: WATCHED.iter().all(|watched| !watches.is_broken(*watched, namespace)) }
            }
            (Some(Some(_)), None, Some(older)) => Route::Unusable(Obstacle::Taken(older.clone())),
            (Some(Some(name)), None, None) => match around.services.get(name) {
                None => Route::Unusable(Obstacle::Missing),
                Some(ServiceObject { usable: Err(defect), .. }) => Route::Unusable(Obstacle::Defect(*defect)),
                Some(ServiceObject { usable: Ok(service), uid, version, .. }) => {
                    let named = slices([name.as_str()], around.slices).any(|slice| leads(slice, leader));
                    let begins = self.search.look(uid, *version, leader.is_some() && !named, now);
                    self.route = self.search.route(service);
                    return begins;
                }
            },
        };
        // What is found then, may be there no more.
        self.search.forget();
        self.route = route;
        None
    }

    /// Takes what a search has found. Returns whether that is news.
    pub(crate) fn take(&mut self, number: u64, found: Result<Leftovers, Failure>, now: Instant) -> bool {
        self.search.take(number, found, now)
    }

    /// When to look again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.search.due
    }

    /// Forgets what only a replica that acts has to know.
    pub(crate) fn forget(&mut self) {
        self.search.forget();
    }
}

impl Search {
    /// Returns the number of the search that is to begin now, if one is. `unreached`: a leader is reached by no slice of lictor's. If that
    /// is because of leftovers (R4), they may be gone by now.
    fn look(&mut self, uid: &Uid, version: Version, unreached: bool, now: Instant) -> Option<u64> {
        if self.begun.as_ref().is_some_and(|(of, ..)| of != uid) {
            self.forget();
        }
        let changed = self.begun.as_ref().is_none_or(|(_, of, _)| *of != version);
        let blocked = unreached && self.found.as_ref().is_some_and(|found| found.is_ok() && !is_clean(found));
        let hurries = blocked && self.begun.as_ref().is_some_and(|(.., at)| *at + PAUSES[0] <= now);
        let due = hurries || self.due.is_some_and(|due| due <= now);
        if !(changed || due) || self.under_way {
            return None;
        }
        self.begun = Some((uid.clone(), version, now));
        self.number += 1;
        (self.under_way, self.due) = (true, None);
        Some(self.number)
    }

    fn route(&self, service: &Service) -> Route {
        match &self.found {
            None => Route::Unknown { soon: true },
            Some(Ok(found)) if *found == Leftovers::default() => Route::By(service.clone()),
            Some(Ok(found)) => {
                let others = found.addresses.clone();
                Route::Beside(Service { others, ..service.clone() }, found.clone())
            }
            Some(Err(failure)) if failure.is_forbidden() => Route::Unusable(Obstacle::Forbidden(failure.clone())),
            Some(Err(_)) => Route::Unknown { soon: false },
        }
    }

    fn take(&mut self, number: u64, found: Result<Leftovers, Failure>, now: Instant) -> bool {
        if number != self.number || !self.under_way {
            return false;
        }
        self.under_way = false;
        if is_clean(&found) {
            let again = self.found.as_ref().is_some_and(is_clean);
            self.due = (!again).then(|| now + SETTLED);
            self.pause = Duration::ZERO;
        } else {
            self.pause = (self.pause * 2).clamp(PAUSES[0], PAUSES[1]);
            self.due = Some(now + self.pause);
        }
        // That it can't be looked again for a while, does not make a Service unusable that was found to be clean.
        if found.is_ok() || !self.found.as_ref().is_some_and(is_clean) {
            self.found = Some(found);
        }
        true
    }

    fn forget(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }
}

/// Whether nothing is left in a Service.
fn is_clean(found: &Result<Leftovers, Failure>) -> bool {
    *found == Ok(Leftovers::default())
}

/// Whether a slice names this leader.
pub(crate) fn leads(slice: &Slice, leader: Option<&Uid>) -> bool {
    slice.content.endpoints.iter().any(|endpoint| Some(&endpoint.uid) == leader)
}

/// The slices that an election may have, by the Services that it names or has named.
pub(crate) fn slices<'a, 'b>(
    services: impl IntoIterator<Item = &'b str>,
    slices: &'a BTreeMap<String, Slice>,
) -> impl Iterator<Item = &'a Slice> {
    let names =
        services.into_iter().flat_map(|service| [Family::V4, Family::V6].map(|family| slice_name(service, family)));
    names.filter_map(|name| slices.get(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn uid(uid: &str) -> Uid {
        Uid(uid.into())
    }

    fn service() -> Service {
        Service { name: "web-leader".into(), ..Service::default() }
    }

    fn dirty() -> Leftovers {
        Leftovers { slices: vec!["x".into()], endpoints: false, addresses: ["10.0.0.1".to_owned()].into() }
    }

    fn beside() -> Route {
        let others = dirty().addresses;
        Route::Beside(Service { others, ..service() }, dirty())
    }

    #[test]
    fn a_service_is_used_when_nothing_was_found_and_searched_once_more_after_a_while() {
        let mut search = Search::default();
        assert_eq!(search.look(&uid("u"), Version(1), false, at(0)), Some(1));
        assert_eq!(search.look(&uid("u"), Version(1), false, at(0)), None, "one at a time");
        assert_eq!(search.route(&service()), Route::Unknown { soon: true });
        assert!(search.take(1, Ok(Leftovers::default()), at(1)));
        assert_eq!(search.route(&service()), Route::By(service()));
        assert_eq!(search.due, Some(at(11)));
        assert_eq!(search.look(&uid("u"), Version(1), false, at(10)), None);
        assert_eq!(search.look(&uid("u"), Version(1), false, at(11)), Some(2));
        assert_eq!(search.route(&service()), Route::By(service()), "it is used meanwhile");
        assert!(search.take(2, Ok(Leftovers::default()), at(11)));
        assert_eq!((search.due, search.look(&uid("u"), Version(1), false, at(99))), (None, None));
        // It has changed, and was made anew.
        assert_eq!(search.look(&uid("u"), Version(2), false, at(99)), Some(3));
        assert!(search.take(3, Ok(dirty()), at(99)));
        assert_eq!(search.route(&service()), beside());
        assert_eq!(search.look(&uid("v"), Version(3), false, at(99)), Some(4));
        assert_eq!(search.route(&service()), Route::Unknown { soon: true });
    }

    #[test]
    fn what_is_in_the_way_is_looked_for_again_and_again() {
        let mut search = Search::default();
        let (mut now, mut pauses) = (at(0), Vec::new());
        for number in 1..=6 {
            assert_eq!(search.look(&uid("u"), Version(1), false, now), Some(number));
            assert!(search.take(number, Ok(dirty()), now));
            let due = search.due.unwrap();
            pauses.push(due.since(now).as_secs());
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
    }

    /// The leader has changed, and what is in the way of its slice may have been deleted.
    #[test]
    fn what_keeps_a_leader_from_being_reached_is_looked_for_sooner() {
        let mut search = Search::default();
        search.look(&uid("u"), Version(1), true, at(0));
        search.take(1, Ok(dirty()), at(0));
        search.pause = PAUSES[1];
        search.due = Some(at(10));
        assert_eq!(search.look(&uid("u"), Version(1), false, at(5)), None, "it is reached");
        assert_eq!(search.look(&uid("u"), Version(1), true, at(5)), Some(2));
        assert!(search.take(2, Ok(dirty()), at(5)));
        assert_eq!(search.look(&uid("u"), Version(1), true, at(5)), None, "once in a second");
        assert_eq!(search.look(&uid("u"), Version(1), true, at(6)), Some(3));
        // Where nothing is in the way, the slice is about to be written.
        search.take(3, Ok(Leftovers::default()), at(6));
        assert_eq!(search.look(&uid("u"), Version(1), true, at(9)), None);
        assert_eq!(search.look(&uid("u"), Version(1), true, at(16)), Some(4));
        search.take(4, Ok(Leftovers::default()), at(16));
        assert_eq!(search.look(&uid("u"), Version(1), true, at(99)), None);
    }

    #[test]
    fn a_search_that_fails_makes_nothing_unusable_that_was_clean() {
        let unknown = || Err(Failure::Unknown("no answer".into()));
        let mut search = Search::default();
        search.look(&uid("u"), Version(1), false, at(0));
        search.take(1, unknown(), at(0));
        assert_eq!(search.route(&service()), Route::Unknown { soon: false }, "the election does not wait for it");
        assert_eq!(search.look(&uid("u"), Version(1), false, at(1)), Some(2));
        search.take(2, Ok(Leftovers::default()), at(1));
        search.look(&uid("u"), Version(2), false, at(2));
        search.take(3, unknown(), at(2));
        assert_eq!((search.route(&service()), search.due), (Route::By(service()), Some(at(3))));
        search.found = Some(Err(Failure::Forbidden("it may not get endpoints".into())));
        assert!(matches!(search.route(&service()), Route::Unusable(Obstacle::Forbidden(_))));
        search.found = Some(Err(Failure::Refused("not allowed while this replica does not act".into())));
        assert_eq!(
            search.route(&service()),
            Route::Unknown { soon: false },
            "no right is missing, whatever the text says"
        );
        // An answer to a search of before does not count.
        search.look(&uid("u"), Version(2), false, at(3));
        search.forget();
        assert!(!search.take(4, Ok(Leftovers::default()), at(4)));
        assert_eq!(search.look(&uid("u"), Version(2), false, at(4)), Some(5));
    }
}

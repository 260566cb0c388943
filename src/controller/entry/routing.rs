//! How clients reach the leader of one election: the Service that it names, and what keeps that Service from being used.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::{Failure, Family, Instant, Service, Slice, Uid, Version, slice_name};

use super::service::CreatedService;
use super::workloads::Surroundings;
use crate::controller::names::{ElectionId, ElectionName};
use crate::controller::object::ElectionObject;
use crate::controller::on_demand::{OnDemandWatches, Watched};
use crate::kubernetes::{Leftovers, ServiceDefect, ServiceObject};

/// The kinds that the operator has to know in a namespace.
pub(crate) const WATCHED: [Watched; 2] = [Watched::Services, Watched::Slices];

/// The first pause before a Service is searched again for leftovers, and the longest one.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// By this time, a controller that was about to write slices when the Service lost its selector has written them.
const SETTLED: Duration = Duration::from_secs(10);

/// How clients reach the leader of an election.
#[derive(Default)]
pub(crate) struct Routing {
    route: Route,
    search: Search,
    /// An older election that names the same Service.
    older: Option<ElectionName>,
    /// Whether the existing slices are known.
    read: bool,
}

/// How clients reach the leader, as far as the operator knows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// By its label alone.
    #[default]
    Off,
    /// The route is not known yet. `soon`: whether it is about to be.
    Unknown { soon: bool },
    /// The Service can't be used.
    Unusable(Obstacle),
    /// Through this Service.
    By(Service),
    /// Through this Service, if what other writers left in it names no other pod (R4).
    Beside(Service, Leftovers),
}

/// Why a Service can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// This operator has no right to something.
    Forbidden(Failure),
    /// An older election names the same Service.
    Taken(ElectionName),
    /// The Service does not exist.
    Missing,
    /// The operator can't create the Service.
    NotCreated(Failure),
    /// The operator would have to change a Service that it did not create.
    NotOwn,
    /// The Service is of a kind that can't lead to the leader.
    Defect(ServiceDefect),
}

/// The search for leftovers through which the Service reaches other pods.
#[derive(Default)]
struct Search {
    /// The version of the Service at which the last search began, and when.
    begun: Option<(Uid, Version, Instant)>,
    /// How often a search was begun. An answer to an earlier search does not count.
    number: u64,
    under_way: bool,
    /// The last result since the Service became usable.
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

    /// Why the route is not known yet.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.search.found.as_ref().and_then(|found| found.as_ref().err())
    }

    /// The Services, among these, for which the election surely has no slices.
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

    /// Whether the existing slices are known.
    pub(crate) fn is_read(&self) -> bool {
        self.read
    }

    /// Takes the older election that names the same Service.
    pub(crate) fn give_way(&mut self, older: Option<ElectionName>) {
        self.older = older;
    }

    /// Looks at the current Service. `leader`: the leader here. Returns the number of the search that is to begin, if any.
    pub(crate) fn look(
        &mut self,
        object: &ElectionObject,
        leader: Option<&Uid>,
        created: &CreatedService,
        around: Surroundings<'_>,
        watches: &OnDemandWatches,
        now: Instant,
    ) -> Option<u64> {
        let namespace = &object.election().namespace;
        let kind = Watched::Slices;
        self.read = watches.knows(kind, namespace) && watches.forbidden(kind, namespace).is_none();
        let name = object.spec().map(|spec| spec.service.as_deref());
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
            (Some(Some(service)), None, None) => match around.services.get(&service.name) {
                None if !service.is_created() => Route::Unusable(Obstacle::Missing),
                None => match created.failure() {
                    Some(failure) if failure.is_forbidden() => Route::Unusable(Obstacle::Forbidden(failure.clone())),
                    Some(failure) => Route::Unusable(Obstacle::NotCreated(failure.clone())),
                    None => Route::Unknown { soon: false },
                },
                Some(ServiceObject { usable: Err(defect), .. }) => Route::Unusable(Obstacle::Defect(*defect)),
                Some(found)
                    if service.is_created()
                        && !found.is_of(&object.id().uid, object.name())
                        && !found.fits(service) =>
                {
                    Route::Unusable(Obstacle::NotOwn)
                }
                Some(ServiceObject { usable: Ok(usable), uid, version, .. }) => {
                    let named = slices([service.name.as_str()], around.slices).any(|slice| leads(slice, leader));
                    let begins = self.search.look(uid, *version, leader.is_some() && !named, now);
                    self.route = self.search.route(usable);
                    return begins;
                }
            },
        };
        // By the next search, a leftover that was found may have been deleted.
        self.search.forget();
        self.route = route;
        None
    }

    /// Takes the result of a search. Returns whether it is news.
    pub(crate) fn take(&mut self, number: u64, found: Result<Leftovers, Failure>, now: Instant) -> bool {
        self.search.take(number, found, now)
    }

    /// When to look again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.search.due
    }

    /// Forgets the state that only an acting replica needs.
    pub(crate) fn forget(&mut self) {
        self.search.forget();
    }
}

impl Search {
    /// Returns the number of the search that is to begin now, if any. `unreached`: none of lictor's slices reaches the leader. If
    /// leftovers are the reason (R4), they may be gone by now.
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
        // A search that fails for a while does not make a Service unusable that was found to be clean.
        if found.is_ok() || !self.found.as_ref().is_some_and(is_clean) {
            self.found = Some(found);
        }
        true
    }

    fn forget(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }
}

/// Whether a search found no leftovers.
fn is_clean(found: &Result<Leftovers, Failure>) -> bool {
    *found == Ok(Leftovers::default())
}

/// Whether a slice names this leader.
pub(crate) fn leads(slice: &Slice, leader: Option<&Uid>) -> bool {
    slice.content.endpoints.iter().any(|endpoint| Some(&endpoint.uid) == leader)
}

/// The slices that an election may have, grouped by the Services that it names or has named.
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
        // The Service was deleted and created again.
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

    /// The leader has changed, and the obstacle to its slice may have been deleted.
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
        // If there is no obstacle, the slice is about to be written.
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
        // An answer to an earlier search does not count.
        search.look(&uid("u"), Version(2), false, at(3));
        search.forget();
        assert!(!search.take(4, Ok(Leftovers::default()), at(4)));
        assert_eq!(search.look(&uid("u"), Version(2), false, at(4)), Some(5));
    }
}

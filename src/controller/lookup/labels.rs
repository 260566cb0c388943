//! Pods by selector, and elections by the labels of a pod.
//!
//! Each selector is kept under one of its requirements: a label with a value, or else a label that must exist. Pods are kept under the
//! same labels, and no others. A lookup returns a superset, so the caller checks whether the selector matches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lictor_core::{Names, Operator, Pod, PodCache, Selector};

/// The pods of a namespace by label, and the elections whose selectors may match a pod.
#[derive(Default)]
pub(crate) struct Labels {
    keys: BTreeMap<String, OfKey>,
    /// Elections with a selector that requires no label: they may select any pod.
    anywhere: Elections,
    /// The places of each election's selectors.
    places: HashMap<String, Vec<Place>>,
}

/// The place of a selector.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Under each of these values of a label.
    Values(String, Vec<String>),
    /// Under a label that must exist.
    Key(String),
    /// The selector requires no label.
    Anywhere,
}

#[derive(Default)]
struct OfKey {
    /// How many selectors are kept under this label. The label is forgotten when there are none.
    selectors: usize,
    values: HashMap<String, OfValue>,
    /// Elections that only require the label to exist.
    elections: Elections,
}

#[derive(Default)]
struct OfValue {
    pods: Names,
    elections: Elections,
}

/// Elections, and how many selectors of each are kept here.
type Elections = BTreeMap<String, usize>;

impl Labels {
    /// Gives an election exactly these selectors from now on.
    pub(crate) fn follow<'a>(
        &mut self,
        election: &str,
        selectors: impl Iterator<Item = &'a Selector>,
        pods: &PodCache,
    ) {
        let before = self.places.remove(election).unwrap_or_default();
        let mut places = Vec::new();
        for selector in selectors {
            let place = self.hold(selector, pods);
            self.elections_at(&place, |elections| *elections.entry(election.into()).or_default() += 1);
            places.push(place);
        }
        for place in before {
            self.elections_at(&place, |elections| {
                if let Some(count) = elections.get_mut(election) {
                    *count -= 1;
                    if *count == 0 {
                        elections.remove(election);
                    }
                }
            });
            self.release(&place);
        }
        if !places.is_empty() {
            self.places.insert(election.into(), places);
        }
    }

    /// Makes the pods of a selector easy to find, until the selector is released.
    pub(crate) fn hold(&mut self, selector: &Selector, pods: &PodCache) -> Place {
        let place = self.place_for(selector);
        if let Place::Values(key, _) | Place::Key(key) = &place {
            if !self.keys.contains_key(key) {
                self.keys.insert(key.clone(), OfKey::new(key, pods));
            }
            if let Some(of_key) = self.keys.get_mut(key) {
                of_key.selectors += 1;
            }
        }
        place
    }

    /// Releases the selector that was kept at this place.
    pub(crate) fn release(&mut self, place: &Place) {
        let (Place::Values(key, _) | Place::Key(key)) = place else { return };
        if let Some(of_key) = self.keys.get_mut(key) {
            of_key.selectors = of_key.selectors.saturating_sub(1);
            if of_key.selectors == 0 {
                self.keys.remove(key);
            } else if let Place::Values(_, values) = place {
                for value in values {
                    of_key.tidy(value);
                }
            }
        }
    }

    /// Takes a pod that is new, has changed, or is gone.
    pub(crate) fn replace(&mut self, before: Option<&Pod>, now: Option<&Pod>) {
        let value = |pod: Option<&Pod>, key: &str| pod.and_then(|pod| pod.labels.get(key)).map(str::to_owned);
        let keys = before.into_iter().chain(now).flat_map(|pod| pod.labels.keys()).collect::<BTreeSet<&str>>();
        for key in keys {
            let Some(of_key) = self.keys.get_mut(key) else { continue };
            let (was, is) = (value(before, key), value(now, key));
            if was == is && before.map(|pod| &pod.name) == now.map(|pod| &pod.name) {
                continue;
            }
            if let (Some(was), Some(pod)) = (was, before) {
                if let Some(of_value) = of_key.values.get_mut(&was) {
                    of_value.pods.remove(&pod.name);
                }
                of_key.tidy(&was);
            }
            if let (Some(is), Some(pod)) = (is, now) {
                of_key.values.entry(is).or_default().pods.insert(pod.name.clone(), ());
            }
        }
    }

    /// Forgets all pods, but no selector.
    pub(crate) fn forget_pods(&mut self) {
        for of_key in self.keys.values_mut() {
            of_key.values.retain(|_, of_value| {
                of_value.pods.clear();
                !of_value.elections.is_empty()
            });
        }
    }

    /// The elections whose selectors may match a pod.
    pub(crate) fn elections_of(&self, pod: &Pod) -> impl Iterator<Item = &String> {
        let of_label = pod.labels.iter().filter_map(|(key, value)| {
            let of_key = self.keys.get(key)?;
            let of_value = of_key.values.get(value).into_iter().flat_map(|of_value| of_value.elections.keys());
            Some(of_value.chain(of_key.elections.keys()))
        });
        of_label.flatten().chain(self.anywhere.keys())
    }

    /// The pods that a selector may match.
    pub(crate) fn pods_of<'a>(&self, selector: &Selector, pods: &'a PodCache) -> Vec<&'a Pod> {
        let found = requirements(selector).filter_map(|(key, values)| {
            let of_key = self.keys.get(key)?;
            let of_values: Vec<&OfValue> = match values {
                Some(values) => values.into_iter().filter_map(|value| of_key.values.get(value)).collect(),
                None => of_key.values.values().collect(),
            };
            Some(of_values)
        });
        // A selector that requires nothing matches nothing here.
        if *selector == Selector::default() {
            return Vec::new();
        }
        let fewest = found.min_by_key(|values| values.iter().map(|of_value| of_value.pods.len()).sum::<usize>());
        match fewest {
            Some(values) => {
                values.into_iter().flat_map(|of_value| of_value.pods.keys()).filter_map(|name| pods.get(name)).collect()
            }
            None => pods.iter().collect(),
        }
    }

    fn elections_at(&mut self, place: &Place, change: impl Fn(&mut Elections)) {
        match place {
            Place::Values(key, values) => {
                let Some(of_key) = self.keys.get_mut(key) else { return };
                for value in values {
                    change(&mut of_key.values.entry(value.clone()).or_default().elections);
                }
            }
            Place::Key(key) => {
                if let Some(of_key) = self.keys.get_mut(key) {
                    change(&mut of_key.elections);
                }
            }
            Place::Anywhere => change(&mut self.anywhere),
        }
    }

    /// The most selective requirement: the one under which the fewest other elections are kept. A label under which nothing is kept yet
    /// comes after a label whose value no other election requires, because adding a label means looking through all pods.
    fn place_for(&self, selector: &Selector) -> Place {
        let crowd = |(key, values): &(&str, Option<Vec<&str>>)| match (self.keys.get(*key), values) {
            (None, Some(_)) => (1, 0),
            (None, None) => (3, 0),
            (Some(of_key), Some(values)) => {
                let others = values.iter().filter_map(|value| of_key.values.get(*value));
                let others: usize = others.map(|of_value| of_value.elections.len()).sum();
                (if others == 0 { 0 } else { 2 }, others)
            }
            (Some(of_key), None) => (3, of_key.elections.len()),
        };
        match requirements(selector).min_by_key(crowd) {
            Some((key, Some(values))) => Place::Values(key.into(), values.into_iter().map(Into::into).collect()),
            Some((key, None)) => Place::Key(key.into()),
            None => Place::Anywhere,
        }
    }
}

impl OfKey {
    fn new(key: &str, pods: &PodCache) -> Self {
        let mut of_key = Self::default();
        for pod in pods.iter() {
            if let Some(value) = pod.labels.get(key) {
                of_key.values.entry(value.into()).or_default().pods.insert(pod.name.clone(), ());
            }
        }
        of_key
    }

    fn tidy(&mut self, value: &str) {
        let is_empty = |of_value: &OfValue| of_value.pods.is_empty() && of_value.elections.is_empty();
        if self.values.get(value).is_some_and(is_empty) {
            self.values.remove(value);
        }
    }
}

/// The requirements on each label: one of these values, or only that the label exists.
fn requirements(selector: &Selector) -> impl Iterator<Item = (&str, Option<Vec<&str>>)> {
    let equal = selector.match_labels.iter().map(|(key, value)| (key, Some(vec![value])));
    let others = selector.match_expressions.iter().filter_map(|requirement| match requirement.operator {
        Operator::In => {
            let values: BTreeSet<&str> = requirement.values.iter().map(String::as_str).collect();
            Some((requirement.key.as_str(), Some(values.into_iter().collect())))
        }
        Operator::Exists => Some((requirement.key.as_str(), None)),
        Operator::NotIn | Operator::DoesNotExist => None,
    });
    equal.chain(others)
}

#[cfg(test)]
mod tests {
    use lictor_core::{Deletions, Instant, Requirement, Uid, Version};
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = String> {
        "[ab]"
    }

    fn selector() -> impl Strategy<Value = Selector> {
        let operator = prop_oneof![
            Just(Operator::In),
            Just(Operator::NotIn),
            Just(Operator::Exists),
            Just(Operator::DoesNotExist)
        ];
        let requirement = (key(), operator, vec("[xyz]", 0..3)).prop_map(|(key, operator, values)| Requirement {
            key,
            operator,
            values,
        });
        (btree_map(key(), "[xyz]", 0..2), vec(requirement, 0..2))
            .prop_map(|(labels, match_expressions)| Selector { match_labels: labels.into(), match_expressions })
    }

    #[derive(Clone, Debug)]
    enum Change {
        Pod(String, Option<BTreeMap<String, String>>),
        Election(String, Vec<Selector>),
        Hold(Selector),
        Release,
        ForgetPods,
    }

    fn change() -> impl Strategy<Value = Change> {
        let labels = prop_oneof![Just(None), btree_map(key(), "[xyz]", 0..3).prop_map(Some)];
        prop_oneof![
            6 => ("[1-5]", labels).prop_map(|(name, labels)| Change::Pod(name, labels)),
            4 => ("[A-D]", vec(selector(), 0..3)).prop_map(|(name, selectors)| Change::Election(name, selectors)),
            1 => selector().prop_map(Change::Hold),
            1 => Just(Change::Release),
            1 => Just(Change::ForgetPods),
        ]
    }

    proptest! {
        #[test]
        fn nothing_is_missed_that_a_walk_over_all_would_find(changes in vec(change(), 1..60)) {
            let (mut labels, mut pods, mut deletions) = (Labels::default(), PodCache::default(), Deletions::default());
            let mut elections: BTreeMap<String, Vec<Selector>> = BTreeMap::new();
            let mut held = Vec::new();
            for (change, version) in changes.into_iter().zip(1..) {
                match change {
                    Change::Pod(name, Some(labelled)) => {
                        let (version, uid) = (Version(version), Uid(name.clone()));
                        let pod = Pod { name, uid, version, labels: labelled.into(), ..Pod::default() };
                        let (before, now) = pods.put(pod, &mut deletions, Instant::default()).unwrap();
                        labels.replace(before.as_ref(), Some(now));
                    }
                    Change::Pod(name, None) => labels.replace(pods.remove(&name, &Uid(name.clone())).as_ref(), None),
                    Change::Election(name, selectors) => {
                        labels.follow(&name, selectors.iter(), &pods);
                        elections.insert(name, selectors);
                    }
                    Change::Hold(selector) => held.push(labels.hold(&selector, &pods)),
                    Change::Release => if let Some(place) = held.pop() { labels.release(&place) },
                    Change::ForgetPods => {
                        pods.clear();
                        labels.forget_pods();
                    }
                }
                for (election, selector) in elections.iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one))) {
                    let found = labels.pods_of(selector, &pods);
                    let names: BTreeSet<&String> = found.iter().map(|pod| &pod.name).collect();
                    prop_assert_eq!(names.len(), found.len(), "each is found once");
                    for pod in pods.iter().filter(|pod| selector.matches(&pod.labels)) {
                        prop_assert!(names.contains(&pod.name), "{} for {:?}", pod.name, selector);
                        prop_assert!(labels.elections_of(pod).any(|name| name == election), "{} of {}", election, pod.name);
                    }
                }
            }
            // Nothing is left behind.
            for election in elections.keys() {
                labels.follow(election, std::iter::empty(), &pods);
            }
            for place in &held {
                labels.release(place);
            }
            prop_assert!(labels.keys.is_empty() && labels.anywhere.is_empty() && labels.places.is_empty());
        }
    }

    fn selects(pairs: &[(&str, &str)]) -> Selector {
        let match_labels = pairs.iter().copied().collect();
        Selector { match_labels, ..Selector::default() }
    }

    #[test]
    fn a_selector_is_kept_under_the_label_that_tells_it_apart() {
        let (mut labels, pods) = (Labels::default(), PodCache::default());
        for number in 0..100 {
            let app = number.to_string();
            labels.follow(&app, [selects(&[("a-tier", "web"), ("app", &app)])].iter(), &pods);
        }
        let labelled = selects(&[("a-tier", "web"), ("app", "7")]).match_labels;
        let pod = Pod { labels: labelled, ..Pod::default() };
        let found: Vec<&String> = labels.elections_of(&pod).collect();
        assert_eq!(found, ["0", "7"], "the first one did not know which label is rare");
    }
}

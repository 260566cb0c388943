//! The pods that a group has to do with, and their last observed state.
//!
//! A group's candidates are the pods that its selector matches. The operator may have to write to more pods: those of its earlier
//! selectors, those that carry its annotation, and the leader that the lock's record names.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::{Deletions, ELECTION_ANNOTATION, Instant, Names, Pod, Record, Scope, Selector, Uid};

/// The pods of a namespace by name, as last seen.
#[derive(Clone, Debug, Default)]
pub struct PodCache(HashMap<String, Box<Pod>>);

impl PodCache {
    /// The pod of a name.
    pub fn get(&self, name: &str) -> Option<&Pod> {
        self.0.get(name).map(AsRef::as_ref)
    }

    /// All pods, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Pod> + Clone {
        let mut all: Vec<&Pod> = self.0.values().map(AsRef::as_ref).collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all.into_iter()
    }

    /// Whether there are no pods.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a pod as a watch or an answer shows it, unless a newer one of that name is known. If it is news, returns the former pod of
    /// that name and the present one.
    pub fn put(&mut self, mut pod: Pod, deletions: &mut Deletions, now: Instant) -> Option<(Option<Pod>, &Pod)> {
        let known = self.0.get(&pod.name);
        if deletions.cover(&pod.uid, pod.version) || known.is_some_and(|known| known.version >= pod.version) {
            return None;
        }
        if let Some(replaced) = known.filter(|known| known.uid != pod.uid) {
            deletions.note(&replaced.uid, pod.version);
        }
        let known = known.filter(|known| known.uid == pod.uid);
        pod.ready_observed = pod.ready.then(|| known.and_then(|known| known.ready_observed).unwrap_or(now));
        Some(match self.0.entry(pod.name.clone()) {
            Entry::Vacant(vacant) => (None, vacant.insert(Box::new(pod))),
            Entry::Occupied(occupied) => {
                let known = occupied.into_mut();
                (Some(std::mem::replace(&mut **known, pod)), known)
            }
        })
    }

    /// Forgets a pod. Returns the pod if it was there: the name may belong to another one.
    pub fn remove(&mut self, name: &str, uid: &Uid) -> Option<Pod> {
        if self.0.get(name)?.uid == *uid { self.0.remove(name).map(|pod| *pod) } else { None }
    }

    /// Forgets all pods.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The facts that decide which pods a group has to do with.
#[derive(Clone, Copy, Debug)]
pub struct Concern<'a> {
    /// The election's name.
    pub election: &'a str,
    /// The selector that the user wants, or `None` if there is no valid one.
    pub selector: Option<&'a Selector>,
    /// The record of the group's lock.
    pub record: Option<&'a Record>,
    /// H16: the scopes that were noted as written on pods, if others can write that record. `None` if the record counts.
    pub noted: Option<&'a [Scope]>,
}

impl Concern<'_> {
    fn selects(&self, pod: &Pod) -> bool {
        self.selector.is_some_and(|selector| selector.matches(&pod.labels))
    }

    fn includes(&self, pod: &Pod, earlier: &[Selector]) -> bool {
        // H16: a leader has the mark, or it is no leader yet and is among the selected pods.
        let record = self.record.filter(|_| self.noted.is_none());
        let leads = || record.and_then(|record| record.holder.as_ref()).is_some_and(|holder| holder.uid == pod.uid);
        self.selects(pod)
            || pod.annotations.get(ELECTION_ANNOTATION).is_some_and(|election| election == self.election)
            || earlier.iter().any(|selector| selector.matches(&pod.labels))
            || leads()
    }
}

/// The names of the pods that a group has to do with.
#[derive(Clone, Debug, Default)]
pub struct Members {
    all: Names,
    candidates: Names,
    /// The selectors of records, under which the operator may have written to pods.
    earlier: Vec<Selector>,
}

/// The relation of a pod to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Whether the group has, or had, to do with the pod.
    pub concerned: bool,
    /// Whether the pod has become a candidate, or is no longer one.
    pub switched: Option<bool>,
}

impl Members {
    /// The pods that the operator may have to write to, including the candidates.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.all.keys()
    }

    /// The pods that the group's selector matches.
    pub fn candidates(&self) -> impl Iterator<Item = &String> {
        self.candidates.keys()
    }

    /// Whether the operator may have to write to a pod.
    pub fn include(&self, pod: &str) -> bool {
        self.all.contains_key(pod)
    }

    /// Whether the group's selector matches a pod.
    pub fn select(&self, pod: &str) -> bool {
        self.candidates.contains_key(pod)
    }

    /// Takes a pod that is new or has changed.
    pub fn put(&mut self, pod: &Pod, concern: &Concern<'_>) -> Membership {
        let is = concern.includes(pod, &self.earlier);
        let was = enter(&mut self.all, &pod.name, is);
        let selected = concern.selects(pod);
        let before = enter(&mut self.candidates, &pod.name, selected);
        Membership { concerned: is || was, switched: (selected != before).then_some(selected) }
    }

    /// Takes out a pod that is gone. Returns whether the group had to do with it.
    pub fn remove(&mut self, pod: &str) -> bool {
        self.candidates.remove(pod);
        self.all.remove(pod).is_some()
    }

    /// Takes the selectors under which the operator may have written to pods. `records`: those of all locks that were written for the
    /// group, and that only this cluster can write.
    pub fn learn<'a>(&mut self, concern: &Concern<'a>, records: impl Iterator<Item = &'a Record>) {
        self.earlier.clear();
        let noted = concern.noted.into_iter().flatten();
        let recorded = concern.record.filter(|_| concern.noted.is_none()).into_iter().chain(records);
        for selector in recorded.flat_map(Record::scopes).chain(noted).map(|scope| &scope.selector) {
            if !self.earlier.contains(selector) {
                self.earlier.push(selector.clone());
            }
        }
    }

    /// The selectors of records, without the present one.
    pub fn earlier(&self) -> &[Selector] {
        &self.earlier
    }

    /// Looks through pods after a selector has changed. `pods`: all that the group may have to do with, and perhaps others. Returns the
    /// pods that have become candidates, or are no longer ones.
    pub fn gather<'p>(
        &mut self,
        pods: impl Iterator<Item = &'p Pod> + Clone,
        concern: &Concern<'_>,
    ) -> Vec<(String, bool)> {
        let names = |pods: &mut dyn Iterator<Item = &Pod>| pods.map(|pod| (pod.name.clone(), ())).collect();
        self.all = names(&mut pods.clone().filter(|pod| concern.includes(pod, &self.earlier)));
        let candidates = names(&mut pods.filter(|pod| concern.selects(pod)));
        let before = std::mem::replace(&mut self.candidates, candidates);
        let left = before.keys().filter(|pod| !self.candidates.contains_key(*pod)).map(|pod| (pod.clone(), false));
        let joined = self.candidates.keys().filter(|pod| !before.contains_key(*pod)).map(|pod| (pod.clone(), true));
        left.chain(joined).collect()
    }

    /// Whether all selectors of a record are taken into account.
    pub fn heeds(&self, record: Option<&Record>) -> bool {
        let mut selectors = record.into_iter().flat_map(Record::scopes).map(|scope| &scope.selector);
        selectors.all(|selector| self.earlier.contains(selector))
    }

    /// Forgets the pods, and not the selectors.
    pub fn clear(&mut self) {
        self.all.clear();
        self.candidates.clear();
    }
}

/// Puts a name into a set or takes it out. Returns whether it was in the set.
fn enter(names: &mut Names, name: &str, is: bool) -> bool {
    if is { names.insert(name.into(), ()).is_some() } else { names.remove(name).is_some() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Pairs;
    use crate::{Holder, Scope, Term, Timestamp, Version};

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn pod(name: &str, uid: &str, version: u64, labels: &[(&str, &str)]) -> Pod {
        let labels = labels.iter().copied().collect();
        Pod {
            name: name.into(),
            uid: Uid(uid.into()),
            version: Version(version),
            labels,
            ready: true,
            ..Pod::default()
        }
    }

    fn selector(app: &str) -> Selector {
        Selector { match_labels: Pairs::from([("app".into(), app.into())]), ..Selector::default() }
    }

    fn record(holder: &str, app: &str, former: &[&str]) -> Record {
        let scope = |app: &str| Scope { selector: selector(app), ..Scope::default() };
        Record {
            leaving: Vec::new(),
            term: Term(1),
            term_by_version: false,
            holder: Some(Holder { pod: Some("p".into()), uid: Uid(holder.into()), node: None, ip: None }),
            operator_id: "lictor#a".into(),
            since: Timestamp(0),
            election: Uid("e".into()),
            election_name: "web".into(),
            generation: 1,
            scope: scope(app),
            former: former.iter().map(|app| scope(app)).collect(),
            drain_obligation: None,
            switchover: None,
            offer: None,
        }
    }

    fn names<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
        names.map(String::as_str).collect()
    }

    #[test]
    fn the_newer_pod_counts_and_has_been_ready_since_it_was_first_seen_so() {
        let (mut pods, mut deletions) = (PodCache::default(), Deletions::default());
        let mut put = |pod: Pod, now| pods.put(pod, &mut deletions, at(now)).map(|(_, pod)| pod.ready_observed);
        assert_eq!(put(pod("a", "1", 5, &[]), 1), Some(Some(at(1))));
        assert_eq!(put(pod("a", "1", 5, &[]), 2), None, "it is known");
        assert_eq!(put(pod("a", "1", 6, &[]), 3), Some(Some(at(1))));
        assert_eq!(put(Pod { ready: false, ..pod("a", "1", 7, &[]) }, 4), Some(None));
        assert_eq!(put(pod("a", "1", 8, &[]), 5), Some(Some(at(5))));
        assert_eq!(put(pod("a", "2", 9, &[]), 6), Some(Some(at(6))), "another pod of the same name");
        assert_eq!(put(pod("b", "1", 9, &[]), 7), None, "the one before is gone as of that version");
        assert!(pods.remove("a", &Uid("1".into())).is_none());
        assert!(pods.remove("a", &Uid("2".into())).is_some() && pods.is_empty());
    }

    #[test]
    fn a_group_has_to_do_with_whom_it_may_have_written_to() {
        let (present, record) = (selector("web"), record("leader", "old", &["older"]));
        let concern = Concern { election: "web", selector: Some(&present), record: Some(&record), noted: None };
        let mut annotated = pod("annotated", "1", 1, &[]);
        annotated.annotations.insert(ELECTION_ANNOTATION.into(), "web".into());
        let mut of_another = pod("another", "2", 1, &[("app", "other")]);
        of_another.annotations.insert(ELECTION_ANNOTATION.into(), "other".into());
        let all = [
            annotated,
            of_another,
            pod("candidate", "3", 1, &[("app", "web")]),
            pod("leads", "leader", 1, &[]),
            pod("old", "4", 1, &[("app", "old")]),
            pod("older", "5", 1, &[("app", "older")]),
            pod("stray", "6", 1, &[("app", "stray")]),
        ];
        let (mut pods, mut deletions, mut members) = (PodCache::default(), Deletions::default(), Members::default());
        for pod in &all {
            pods.put(pod.clone(), &mut deletions, at(0));
        }
        let stray = self::record("nobody", "stray", &[]);
        assert!(!members.heeds(Some(&record)) && members.heeds(None));
        members.learn(&concern, [&stray].into_iter());
        assert_eq!(members.gather(pods.iter(), &concern), [("candidate".to_owned(), true)]);
        assert!(members.heeds(Some(&record)) && members.heeds(Some(&stray)));
        let concerned = ["annotated", "candidate", "leads", "old", "older", "stray"];
        assert_eq!((names(members.all()), names(members.candidates())), (concerned.to_vec(), vec!["candidate"]));

        // One by one, it is the same.
        members.clear();
        let memberships: Vec<bool> = all.iter().map(|pod| members.put(pod, &concern).concerned).collect();
        assert_eq!(memberships, [true, false, true, true, true, true, true]);
        assert_eq!((names(members.all()), names(members.candidates())), (concerned.to_vec(), vec!["candidate"]));

        // H16: where others can write the record, what was noted counts in its place.
        let noted = [Scope { selector: selector("stray"), ..Scope::default() }];
        let advised = Concern { noted: Some(&noted), ..concern };
        let mut of_noted = Members::default();
        of_noted.learn(&advised, [].into_iter());
        of_noted.gather(pods.iter(), &advised);
        assert_eq!(names(of_noted.all()), ["annotated", "candidate", "stray"]);

        // Without a valid spec, nobody is a candidate.
        let refused = Concern { selector: None, ..concern };
        assert_eq!(members.gather(pods.iter(), &refused), [("candidate".to_owned(), false)]);
        assert!(members.include("leads") && members.include("old") && !members.select("candidate"));
        assert_eq!(names(members.all()), ["annotated", "leads", "old", "older", "stray"]);
    }

    #[test]
    fn a_pod_that_leaves_a_group_concerns_it_once_more() {
        let present = selector("web");
        let concern = Concern { election: "web", selector: Some(&present), record: None, noted: None };
        let mut members = Members::default();
        let mut put = |labels: &[(&str, &str)]| {
            let Membership { concerned, switched } = members.put(&pod("a", "1", 1, labels), &concern);
            (concerned, switched)
        };
        assert_eq!(put(&[]), (false, None));
        assert_eq!(put(&[("app", "web")]), (true, Some(true)));
        assert_eq!(put(&[("app", "web"), ("role", "leader")]), (true, None));
        assert_eq!(put(&[]), (true, Some(false)));
        assert_eq!(put(&[]), (false, None));
        put(&[("app", "web")]);
        assert!(members.remove("a") && !members.remove("a"));
        assert_eq!(members.candidates().count(), 0);
    }
}

//! Whom Services reach: one address at most at each revision, in terms that do not fall, in one cluster; and never nobody while a leader is
//! moved that is well.

use std::collections::{BTreeMap, BTreeSet};

use super::super::picture::Picture;
use super::super::record::{Group, Line, SliceSeen, What};
use super::super::windows::Reliable;

/// What was seen of the slices of all groups.
#[derive(Default)]
pub struct Reached {
    /// By cluster and Service: the highest term, and whom it reached then.
    terms: BTreeMap<(String, String), (i64, Vec<String>)>,
    /// The groups whose leader is being moved, and whether it has been.
    planned: BTreeMap<String, bool>,
    /// Groups whose Services reach somebody in both clusters, and whether that was excused when it was told.
    told: BTreeMap<String, bool>,
    pub switches: usize,
    pub planned_switches: usize,
}

/// What is wrong: a violation, or what the documents except.
pub struct Wrong {
    pub text: String,
    pub excused: bool,
}

impl Reached {
    /// Judges a line about a group. `picture` is the state after it.
    pub fn step(&mut self, line: &Line, group: &Group, reliable: &Reliable, picture: &Picture) -> Vec<Wrong> {
        let Some(service) = &group.service else { return Vec::new() };
        let wrong = |text: String| Wrong { text, excused: false };
        match &line.what {
            What::Planned { group: name, begins: true } if *name == group.name => {
                self.planned.insert(name.clone(), false);
                Vec::new()
            }
            What::Planned { group: name, begins: false } if *name == group.name => {
                if self.planned.remove(name) == Some(false) {
                    return vec![wrong(format!("{service} still reaches the leader that was taken out of service"))];
                }
                self.planned_switches += 1;
                Vec::new()
            }
            What::Calm { begins: false } if !picture.is_routed(group) => {
                vec![wrong(format!("{service} does not reach the leader, although nothing is disturbed"))]
            }
            What::Slice(slice) if slice.service == *service => {
                let mut all: Vec<Wrong> = self.slice(slice, group, picture).into_iter().map(wrong).collect();
                all.extend(self.both(line, group, reliable, picture));
                all
            }
            // An excuse may end while both are still reached.
            _ if self.told.contains_key(&group.name) => self.both(line, group, reliable, picture).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn slice(&mut self, slice: &SliceSeen, group: &Group, picture: &Picture) -> Vec<String> {
        let SliceSeen { cluster, service, term, .. } = slice;
        let mut wrong = Vec::new();
        let here = || picture.slices_of(group).filter(|other| other.cluster == *cluster);
        let families: BTreeSet<&String> = here().map(|slice| &slice.family).collect();
        for family in families {
            let reached: Vec<&String> = here()
                .filter(|slice| slice.family == *family)
                .flat_map(|slice| slice.addresses.iter().map(|(a, _)| a))
                .collect();
            if reached.len() > 1 {
                wrong.push(format!("{service} reaches {reached:?} in {cluster}"));
            }
        }
        let pods: Vec<String> = slice.addresses.iter().map(|(_, pod)| pod.clone()).collect();
        let planned = self.planned.get_mut(&group.name);
        if pods.is_empty() || slice.deleted {
            if planned.is_some() {
                wrong.push(format!("{service} reaches nobody while a leader is moved that is well"));
            }
            return wrong;
        }
        let Some(term) = *term else {
            wrong.push(format!("{service} reaches {pods:?} in no term"));
            return wrong;
        };
        let key = (cluster.clone(), service.clone());
        match self.terms.get(&key) {
            Some((known, _)) if *known > term => {
                wrong.push(format!("{service} reaches {pods:?} in term {term}, and before it was {known}"));
            }
            Some((known, before)) if *known == term && *before != pods => {
                wrong.push(format!("{service} reaches {before:?} and {pods:?} in one term, {term}"));
            }
            Some((_, before)) if *before == pods => drop(self.terms.insert(key, (term, pods))),
            _ => {
                self.switches += 1;
                if let Some(moved) = planned {
                    *moved = true;
                }
                self.terms.insert(key, (term, pods));
            }
        }
        wrong
    }

    /// Both clusters' Services reach somebody. All but that of the newest term have to be excused.
    fn both(&mut self, line: &Line, group: &Group, reliable: &Reliable, picture: &Picture) -> Option<Wrong> {
        let showing: Vec<&SliceSeen> = picture.slices_of(group).filter(|slice| !slice.addresses.is_empty()).collect();
        let clusters: BTreeSet<&String> = showing.iter().map(|slice| &slice.cluster).collect();
        if clusters.len() < 2 {
            self.told.remove(&group.name);
            return None;
        }
        let newest = showing.iter().map(|slice| slice.term).max();
        let is_excused =
            |cluster: &String| reliable.excused.get(cluster).is_some_and(|spans| spans.at(line.at).is_some());
        let mut older = showing.iter().filter(|slice| Some(slice.term) != newest);
        let excused = older.all(|slice| is_excused(&slice.cluster));
        let told = self.told.insert(group.name.clone(), excused);
        told.is_none_or(|told| told && !excused)
            .then(|| Wrong { text: format!("Services in {clusters:?} reach somebody"), excused })
    }
}

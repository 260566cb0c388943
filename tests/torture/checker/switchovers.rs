//! Switchovers: each moves a leader at most once, only from the term that it names, and what is told of it is what the pods show.

use std::collections::{BTreeMap, BTreeSet};

use super::super::faults::Kind as Harm;
use super::super::picture::Picture;
use super::super::record::{COMPLETE, Line, Millis, SwitchoverSeen, What};

/// What may be told of one that was carried out, though not as complete.
const GONE: [&str; 2] = ["TargetLost", "ElectionNotFound"];

/// What was seen of the Switchovers.
#[derive(Default)]
pub struct Switchovers {
    /// By uid.
    asked: BTreeMap<String, Asked>,
    /// The last record of each Lease: its term, and the Switchover that it carries out.
    records: BTreeMap<String, (Option<i64>, Option<String>)>,
    /// Who has led, as pods showed it: group, term, uid.
    led: BTreeSet<(String, i64, String)>,
    /// Which Switchover has begun a term of a group.
    began: BTreeMap<(String, i64), String>,
    /// The groups whose Lease a person has edited or deleted, and when they did so last.
    spoilt: BTreeMap<String, Millis>,
    calm_since: Option<Millis>,
    pub complete: usize,
    pub failed: usize,
    /// Those that are complete and went to another cluster.
    pub across: usize,
}

struct Asked {
    at: Millis,
    last: SwitchoverSeen,
    /// How often a record of a Lease began to carry it out.
    times: u32,
}

impl Switchovers {
    /// Judges a line. `picture` is the state after it. Returns what is wrong, by group.
    pub fn step(&mut self, line: &Line, picture: &Picture) -> Vec<(String, String)> {
        match &line.what {
            What::Pod(pod) => {
                let leads =
                    picture.groups.get(pod.group()).is_some_and(|group| group.markings.shows_leader(&pod.to_core()));
                if let (true, false, Some(term)) = (leads, pod.deleted, pod.term()) {
                    self.led.insert((pod.group().to_owned(), term, pod.uid.clone()));
                }
                Vec::new()
            }
            What::Fault { fault, begins: true, detail, .. } => {
                if matches!(fault.kind, Harm::LeaseEdited | Harm::LeaseDeleted) {
                    self.spoilt.insert(detail.clone(), line.at);
                }
                Vec::new()
            }
            What::Lock { key, cluster, term, switchover, .. } if key.starts_with("leases/") => {
                let group = key.rsplit('/').next().unwrap_or_default().to_owned();
                let wrong = self.record(&group, cluster.is_some().then(|| (*term, switchover.clone())));
                wrong.into_iter().map(|text| (group.clone(), text)).collect()
            }
            What::Switchover(seen) => {
                let wrong = self.told(seen, line.at);
                wrong.into_iter().map(|text| (seen.group.clone(), text)).collect()
            }
            What::Calm { begins } => {
                let since = self.calm_since.take();
                self.calm_since = begins.then_some(line.at);
                since.filter(|_| !begins).map(|since| self.open(since)).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// A record was written, or deleted.
    fn record(&mut self, group: &str, now: Option<(Option<i64>, Option<String>)>) -> Option<String> {
        let before = match &now {
            Some(now) => self.records.insert(group.to_owned(), now.clone()),
            None => self.records.remove(group),
        };
        // After a record that a person deleted, what was known of it goes on.
        let ((ended, known), (_, mark)) = (before?, now?);
        let uid = mark.filter(|mark| known.as_ref() != Some(mark))?;
        let asked = self.asked.get_mut(&uid)?;
        asked.times += 1;
        let SwitchoverSeen { name, from_term, result, .. } = &asked.last;
        if asked.times > 1 {
            return Some(format!("{name} moves the leader {} times", asked.times));
        }
        if ended != Some(*from_term) {
            return Some(format!("{name} is for term {from_term}, and ends term {ended:?}"));
        }
        let failed = result.as_ref().filter(|result| *result != COMPLETE)?;
        Some(format!("{name} is carried out, and it was told before that it failed: {failed}"))
    }

    /// A Switchover was made, or something is told of it.
    fn told(&mut self, seen: &SwitchoverSeen, at: Millis) -> Vec<String> {
        let new =
            || Asked { at, last: SwitchoverSeen { result: None, term: None, to: None, ..seen.clone() }, times: 0 };
        let asked = self.asked.entry(seen.uid.clone()).or_insert_with(new);
        let before = std::mem::replace(&mut asked.last, seen.clone());
        let SwitchoverSeen { name, group, from_term, to_cluster, result, term, to, .. } = seen;
        if before.result.is_some() {
            let same = (&before.result, before.term, &before.to) == (result, *term, to);
            return if same {
                Vec::new()
            } else {
                vec![format!("{name} has ended as {before:?}, and then as {seen:?}")]
            };
        }
        let Some(result) = result else { return Vec::new() };
        let mut wrong = Vec::new();
        if result != COMPLETE {
            self.failed += 1;
            let spoilt = self.spoilt.get(group).is_some_and(|spoilt| *spoilt >= asked.at);
            if asked.times > 0 && !GONE.contains(&result.as_str()) && !spoilt {
                wrong.push(format!("{name} was carried out, and it is told that it failed: {result}"));
            }
            return wrong;
        }
        self.complete += 1;
        self.across += usize::from(to_cluster.is_some());
        let Some(term) = term.filter(|term| term > from_term) else {
            return vec![format!("{name} is complete in term {term:?}, and was to end term {from_term}")];
        };
        if let Some(other) = self.began.insert((group.clone(), term), name.clone()) {
            wrong.push(format!("{other} and {name} both say that they began term {term}"));
        }
        // Another cluster's leader may have its label a moment later.
        let shown = |pod: &String| self.led.contains(&(group.clone(), term, pod.clone()));
        if to_cluster.is_none() && !to.as_ref().is_some_and(shown) {
            wrong.push(format!("{name} is complete in term {term}, in which {to:?} has not led"));
        }
        wrong
    }

    /// Those that nothing comes of, although all works since a calm began.
    fn open(&self, since: Millis) -> Vec<(String, String)> {
        let open = self.asked.values().filter(|asked| asked.at < since && asked.last.result.is_none());
        open.map(|asked| (asked.last.group.clone(), format!("nothing comes of {}", asked.last.name))).collect()
    }
}

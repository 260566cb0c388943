//! The lock record of a group: the single truth about who leads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DrainObligation, Markings, Selector, Term, Timestamp, Uid, Version};

/// The record, as it is kept in the store. It is only ever written by compare-and-swap on the version last read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The present term, or the last one while there is no holder.
    pub term: Term,
    /// Whether the term is the version under which this record was written, and `term` only the least that it is: see
    /// [`Record::at`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub term_by_version: bool,
    /// The leader; none while nobody could be elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The operator replica that wrote it, unique for each start of a process.
    pub operator_id: String,
    /// Since when the holder leads, by the operator_id's clock: for people.
    pub since: Timestamp,
    /// The uid of the election that it was written for.
    pub election: Uid,
    /// The election's name, which is on its pods: by it their marks are found when there is no such election any more. Empty: it was
    /// written before 0.1.0.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub election_name: String,
    /// The `metadata.generation` of the election that it was written for: an operator that sees an older one does not write.
    pub generation: i64,
    /// What was written on which pods under this record.
    pub scope: Scope,
    /// What was written under earlier records and is not cleaned up yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Scope>,
    /// What workloads that run only where the leader is, need of whoever comes next; none: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_obligation: Option<DrainObligation>,
    /// The last switchover that was carried out (H14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switchover: Option<SwitchoverMark>,
    /// The cluster that is asked for a bid, because a user wants it to lead (C12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
}

impl Record {
    /// The record as it is under the version at which it was written. In a store whose versions are a fencing token that others
    /// can check, the term is that version; it is higher only if the store was put back to an earlier state.
    #[must_use]
    pub fn at(mut self, version: Version) -> Self {
        if self.term_by_version {
            self.term = self.term.max(Term(i64::try_from(version.0).unwrap_or(i64::MAX)));
        }
        self
    }

    /// What was written on which pods: under earlier records, then under this one.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.former.iter().chain([&self.scope])
    }

    /// H16: the same record, in a store that others write to. Of what it claims to be on pods, only what this cluster has noted itself
    /// counts, and all of that does.
    pub(super) fn believed(&self, noted: &[Scope], present: &Scope) -> Self {
        let scope =
            if self.scope == *present || noted.contains(&self.scope) { self.scope.clone() } else { Scope::default() };
        let former = noted.iter().filter(|noted| **noted != scope).cloned().collect();
        Self { scope, former, ..self.clone() }
    }

    /// H16: whether it claims something else to be on pods than what is wanted now, or was noted.
    pub(super) fn claims_beyond(&self, noted: &[Scope], present: &Scope) -> bool {
        self.scopes().any(|scope| scope != present && !noted.contains(scope))
    }

    /// Adds what was written before, and may still be on pods.
    pub(super) fn add_former<'a>(&mut self, scopes: impl IntoIterator<Item = &'a Scope>) {
        for scope in scopes {
            if *scope != self.scope && !self.former.contains(scope) {
                self.former.push(scope.clone());
            }
        }
    }

    /// The markings of earlier specs that are not cleaned up yet.
    pub(super) fn former_markings(&self) -> Vec<Markings> {
        self.former.iter().map(|scope| scope.markings.clone()).collect()
    }
}

/// Who holds the lock: a pod, or the cluster itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The pod's name; none: it is the cluster itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The pod's uid; that of the election, where it is the cluster itself.
    pub uid: Uid,
    /// Its node, when it was elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its address, when it was elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// What the record says of the last switchover of its election: that it was carried out, in the record that began its term (H14), or
/// that it was given up (H15). Whoever reads the record knows what has become of it, and both are decided by compare-and-swap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchoverMark {
    /// The uid of the Switchover.
    pub id: Uid,
    /// The leader that was replaced, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Uid>,
    /// The leader of the term that began; none: another cluster was given the lock, or the switchover was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Uid>,
    /// The cluster that was given the lock (C11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Whether that one need not be ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// W12: it was given up because so many pods or Jobs of these workloads had not ended in time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remains: BTreeMap<String, u32>,
}

impl SwitchoverMark {
    /// H15: of a switchover that is given up.
    pub(super) fn given_up(id: Uid) -> Self {
        Self { id, ..Self::default() }
    }
}

/// That a cluster wants another one to lead. It is in the record of the cluster that leads, and asks for a bid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The uid of the Switchover by which a user asks for it.
    pub switchover: Uid,
    /// The cluster that is to lead.
    pub cluster: String,
}

/// Which pods a spec concerns, and what it writes on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The candidates.
    pub selector: Selector,
    /// What is written on them.
    #[serde(flatten)]
    pub markings: Markings,
}

impl Scope {
    /// This selector and those of a record, each once.
    pub(super) fn selectors_with(&self, record: Option<&Record>) -> Vec<Selector> {
        let mut selectors = Vec::new();
        let recorded = record.into_iter().flat_map(|record| [&record.scope].into_iter().chain(&record.former));
        for Self { selector, .. } in [self].into_iter().chain(recorded) {
            // Where the cluster itself is the candidate, it selects no pod.
            if *selector != Selector::default() && !selectors.contains(selector) {
                selectors.push(selector.clone());
            }
        }
        selectors
    }
}

/// Who holds a lock that this cluster does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rival {
    /// The cluster; none: it is no lictor.
    pub cluster: Option<String>,
    /// The leader there.
    pub holder: Option<Holder>,
    /// Its term.
    pub term: Term,
    /// Since when it leads, by the clock of whoever elected it: for people.
    pub since: Option<Timestamp>,
    /// The id of the session by which it holds the lock.
    pub session: String,
    /// Of one that is no lictor: whose session that is, for people.
    pub described: Option<String>,
    /// What its workloads need of whoever comes next.
    pub drain_obligation: Option<DrainObligation>,
    /// The last switchover that its record knows of.
    pub switchover: Option<SwitchoverMark>,
    /// That it asks this cluster for a bid.
    pub offer: Option<Offer>,
    /// The namespace and the name of its election. Empty: it has none.
    pub election: (String, String),
    /// Its record is laid out in another way than those of this cluster.
    pub other_layout: bool,
}

impl Rival {
    /// How it holds the lock, for people: whose session it is, or its id alone.
    pub fn whose_session(&self) -> &str {
        self.described.as_deref().unwrap_or(&self.session)
    }

    /// Whether it is the same holder in the same term: what it says of switchovers is no news for people.
    pub(super) fn leads_as(&self, other: &Self) -> bool {
        let led = |rival: &Self| Self { switchover: None, offer: None, ..rival.clone() };
        led(self) == led(other)
    }
}

/// What the store has under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Nothing.
    Absent,
    /// This cluster holds it, by this record.
    Ours(Version, Record),
    /// A lock that nobody holds, and everybody may take at this version; what this cluster wrote there last, if it is still there;
    /// and what the workloads of another cluster that held it last, need of whoever comes next.
    Free(Version, Option<Record>, Option<DrainObligation>),
    /// Somebody else holds it, and has it until they let go.
    HeldByOther(Version, Rival),
    /// A record of this project that somebody edited: it names no holder that could be trusted. The term is a hint.
    Damaged(Version, Term),
    /// C16: something that this project did not write and must not touch; the text says what.
    Foreign(String),
}

impl Stored {
    /// The version, where there is one that can be replaced.
    pub fn version(&self) -> Option<Version> {
        match self {
            Self::Absent | Self::Foreign(_) | Self::HeldByOther(..) => None,
            Self::Ours(version, _) | Self::Free(version, ..) | Self::Damaged(version, _) => Some(*version),
        }
    }

    /// The holder, where that is another one.
    pub fn rival(&self) -> Option<&Rival> {
        match self {
            Self::HeldByOther(_, rival) => Some(rival),
            _ => None,
        }
    }

    /// The record, where there is a sound one that this cluster holds.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Ours(_, record) => Some(record),
            Self::Absent | Self::Free(..) | Self::HeldByOther(..) | Self::Damaged(..) | Self::Foreign(_) => None,
        }
    }

    /// The same with what counts of this cluster's record.
    pub(super) fn with_written(self, sound: Record) -> Self {
        match self {
            Self::Ours(version, _) => Self::Ours(version, sound),
            Self::Free(version, Some(_), obligation) => Self::Free(version, Some(sound), obligation),
            other => other,
        }
    }

    /// The same without this cluster's record, which can't be true.
    pub(super) fn disbelieved(self) -> Self {
        match self {
            Self::Ours(version, record) => Self::Damaged(version, record.term),
            Self::Free(version, Some(record), obligation) => {
                Self::Free(version, None, record.drain_obligation.or(obligation))
            }
            other => other,
        }
    }

    /// What this cluster wrote last, whether or not it still holds the lock.
    pub fn written(&self) -> Option<&Record> {
        match self {
            Self::Ours(_, record) | Self::Free(_, Some(record), _) => Some(record),
            Self::Absent | Self::Free(_, None, _) | Self::HeldByOther(..) | Self::Damaged(..) | Self::Foreign(_) => {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pairs;

    fn scope(app: &str) -> Scope {
        let match_labels = Pairs::from([("app".to_owned(), app.to_owned())]);
        Scope { selector: Selector { match_labels, ..Selector::default() }, ..Scope::default() }
    }

    fn record(scope: Scope, former: Vec<Scope>) -> Record {
        Record {
            term: Term(7),
            term_by_version: true,
            holder: None,
            operator_id: String::new(),
            since: Timestamp(0),
            election: Uid::default(),
            election_name: String::new(),
            generation: 1,
            scope,
            former,
            drain_obligation: None,
            switchover: None,
            offer: None,
        }
    }

    #[test]
    fn selectors_are_named_once_and_never_one_for_all_pods() {
        let record = record(scope("b"), vec![scope("a"), Scope::default(), scope("c")]);
        let selectors = scope("a").selectors_with(Some(&record));
        assert_eq!(selectors, [scope("a").selector, scope("b").selector, scope("c").selector]);
        assert_eq!(Scope::default().selectors_with(None), []);
    }

    #[test]
    fn a_term_by_version_is_the_version_unless_the_store_was_put_back() {
        let term = |version| record(scope("a"), Vec::new()).at(Version(version)).term;
        assert_eq!((term(9), term(3), term(u64::MAX)), (Term(9), Term(7), Term(i64::MAX)));
        let counted = Record { term_by_version: false, ..record(scope("a"), Vec::new()) };
        assert_eq!(counted.at(Version(9)).term, Term(7));
    }
}

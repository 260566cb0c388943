//! The lock record of a group: the single truth about who leads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DrainObligation, Markings, Selector, Term, Timestamp, Uid, Version};

/// The record, as the store keeps it. Operators write it only by compare-and-swap on the version that they last read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The present term, or the last one while there is no holder.
    pub term: Term,
    /// Whether the term is the version under which this record was written, so that `term` is only its minimum: see [`Record::at`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub term_by_version: bool,
    /// The leader, or `None` while no candidate could be elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The operator replica that wrote the record, unique for each start of a process.
    pub operator_id: String,
    /// When the holder began to lead, by the clock of the replica `operator_id`: for people.
    pub since: Timestamp,
    /// The uid of the election that the record was written for.
    pub election: Uid,
    /// The election's name, which the marks on its pods carry, so that an operator finds them after the election is gone. It is empty in
    /// the record of an agent, which has no election.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub election_name: String,
    /// The `metadata.generation` of the election that the record was written for. An operator that sees an older one does not write.
    pub generation: i64,
    /// The scope of the spec that this record was written for.
    pub scope: Scope,
    /// E1, E2: former leaders that are to be deleted, or whose end is not known yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Holder>,
    /// The scopes of earlier records that are not cleaned up yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Scope>,
    /// The obligation to the next holder from workloads that run only where the leader is, or `None` if there are none.
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
    /// The record as it is under the version at which it was written. In a store whose versions are a fencing token that others can check,
    /// the term is that version; it is higher only if the store was put back to an earlier state.
    #[must_use]
    pub fn at(mut self, version: Version) -> Self {
        if self.term_by_version {
            self.term = self.term.max(Term(i64::try_from(version.0).unwrap_or(i64::MAX)));
        }
        self
    }

    /// The scopes of earlier records, then this one's.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.former.iter().chain([&self.scope])
    }

    /// H16: the same record, in a store that others write to. Of the scopes that the record claims to be on pods, only those count that
    /// this cluster has noted itself, and all noted ones count.
    pub(super) fn believed(&self, noted: &[Scope], present: &Scope) -> Self {
        let scope =
            if self.scope == *present || noted.contains(&self.scope) { self.scope.clone() } else { Scope::default() };
        let former = noted.iter().filter(|noted| **noted != scope).cloned().collect();
        Self { scope, former, ..self.clone() }
    }

    /// H16: whether the record claims a scope that is neither wanted now nor noted.
    pub(super) fn claims_beyond(&self, noted: &[Scope], present: &Scope) -> bool {
        self.scopes().any(|scope| scope != present && !noted.contains(scope))
    }

    /// Adds earlier scopes that may still be on pods.
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

/// The holder of the lock: a pod, or the cluster itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The pod's name, or `None` if the holder is the cluster itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The pod's uid, or that of the election if the holder is the cluster itself.
    pub uid: Uid,
    /// The pod's node, when the pod was elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The pod's address, when the pod was elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// The last switchover of the election, as the record has it: carried out, in the record that began its term (H14), or given up (H15).
/// Every reader of the record knows what became of it, and compare-and-swap decides both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchoverMark {
    /// The uid of the Switchover.
    pub id: Uid,
    /// The leader that was replaced, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Uid>,
    /// The leader of the term that began, or `None` if another cluster was given the lock or the switchover was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Uid>,
    /// The cluster that was given the lock (C11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Whether the new leader need not be ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// W12: how many pods or Jobs of each workload had not ended in time, so that the switchover was given up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remains: BTreeMap<String, u32>,
}

impl SwitchoverMark {
    /// H15: the mark of a switchover that is given up.
    pub(super) fn given_up(id: Uid) -> Self {
        Self { id, ..Self::default() }
    }
}

/// The wish that another cluster leads. The leading cluster writes it into its record, and so asks for a bid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The uid of the Switchover by which a user asks for it.
    pub switchover: Uid,
    /// The cluster that is to lead.
    pub cluster: String,
}

/// The pods that a spec concerns, and the labels and annotations that it writes on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The candidates.
    pub selector: Selector,
    /// The labels and annotations that are written on them.
    #[serde(flatten)]
    pub markings: Markings,
}

impl Scope {
    /// The selectors of this scope and of a record, each once.
    pub(super) fn selectors_with(&self, record: Option<&Record>) -> Vec<Selector> {
        let mut selectors = Vec::new();
        let recorded = record.into_iter().flat_map(|record| [&record.scope].into_iter().chain(&record.former));
        for Self { selector, .. } in [self].into_iter().chain(recorded) {
            // A scope whose candidate is the cluster itself selects no pod.
            if *selector != Selector::default() && !selectors.contains(selector) {
                selectors.push(selector.clone());
            }
        }
        selectors
    }
}

/// The holder of a lock that this cluster does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rival {
    /// The cluster, or `None` if the holder is another program than lictor.
    pub cluster: Option<String>,
    /// The leader there.
    pub holder: Option<Holder>,
    /// Its term.
    pub term: Term,
    /// When the holder began to lead, by the clock of the operator that elected it: for people.
    pub since: Option<Timestamp>,
    /// The id of the session by which the rival holds the lock.
    pub session: String,
    /// The owner of the session of another program, for people.
    pub described: Option<String>,
    /// The obligation that the rival's workloads leave to the next holder.
    pub drain_obligation: Option<DrainObligation>,
    /// The last switchover that the rival's record knows of.
    pub switchover: Option<SwitchoverMark>,
    /// The offer by which the rival asks this cluster for a bid.
    pub offer: Option<Offer>,
    /// The namespace and the name of the rival's election, empty if it has none.
    pub election: (String, String),
    /// Whether the rival's record has another layout than those of this cluster.
    pub other_layout: bool,
    /// C11: whether a cluster has handed the lock to the rival, which has not written a record of its own yet.
    pub given: bool,
}

impl Rival {
    /// C6: whether a pod may lead there before the rival's next record is seen.
    pub fn may_lead(&self) -> bool {
        self.holder.is_some() || self.given
    }

    /// The owner of the session by which the rival holds the lock, for people, or only the session's id.
    pub fn whose_session(&self) -> &str {
        self.described.as_deref().unwrap_or(&self.session)
    }

    /// Whether it is the same holder in the same term. A change of its switchover or offer is no news for people.
    pub(super) fn leads_as(&self, other: &Self) -> bool {
        let led = |rival: &Self| Self { switchover: None, offer: None, ..rival.clone() };
        led(self) == led(other)
    }
}

/// The content of the store under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Nothing.
    Absent,
    /// This cluster holds the lock, by this record.
    Ours(Version, Record),
    /// A lock without a holder, which any cluster may take at this version. It has the record that this cluster wrote there last, if that
    /// is still there, and the drain obligation of another cluster that held the lock last.
    Free(Version, Option<Record>, Option<DrainObligation>),
    /// Another holder has the lock, and keeps it until it lets go.
    HeldByOther(Version, Rival),
    /// A record of lictor's that a person has edited, so no holder in it can be trusted. The term is a hint.
    Damaged(Version, Term),
    /// C16: content that lictor did not write and must not touch; the text describes it.
    Foreign(String),
}

impl Stored {
    /// The version, if there is one that can be replaced.
    pub fn version(&self) -> Option<Version> {
        match self {
            Self::Absent | Self::Foreign(_) | Self::HeldByOther(..) => None,
            Self::Ours(version, _) | Self::Free(version, ..) | Self::Damaged(version, _) => Some(*version),
        }
    }

    /// The holder, if it is another one.
    pub fn rival(&self) -> Option<&Rival> {
        match self {
            Self::HeldByOther(_, rival) => Some(rival),
            _ => None,
        }
    }

    /// The record, if it is sound and this cluster holds the lock.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Ours(_, record) => Some(record),
            Self::Absent | Self::Free(..) | Self::HeldByOther(..) | Self::Damaged(..) | Self::Foreign(_) => None,
        }
    }

    /// The same, with the part of this cluster's record that counts.
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

    /// The record that this cluster wrote last, whether or not it still holds the lock.
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
            leaving: Vec::new(),
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

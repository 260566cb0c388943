//! The text form of commands and outcomes in logs, histories and scenarios: one line each.

use std::fmt::{self, Display, Formatter};

use super::{
    Announcement, Command, ElectionRead, Failure, Holder, Offer, Outcome, Pod, PodChange, PodOutcome, Record,
    RecordOutcome, Rival, Setting, SliceOutcome, Stored, SwitchoverMark, TERM_ANNOTATION, Version, WorkloadOutcome,
    WritePod, WriteSlice, WriteWorkload,
};

impl Display for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadRecord { key, .. } => write!(f, "read record {key}"),
            Self::WriteRecord { key, expected, record, .. } => match expected {
                Some(version) => write!(f, "write record {key} at {version}: {record}"),
                None => write!(f, "create record {key}: {record}"),
            },
            Self::ReleaseRecord { key, version, .. } => write!(f, "release record {key} at {version}"),
            Self::GiveRecord { key, version, to, .. } => write!(f, "give record {key} at {version} to {}", to.cluster),
            Self::WriteBid { key, bid, .. } => {
                let able = if bid.eligible { "can" } else { "can't" };
                write!(f, "bid for {key} at {}: {able} lead", bid.saw)
            }
            Self::RemoveBid { key, cluster, version } => write!(f, "remove bid of {cluster} for {key} at {version}"),
            Self::DeleteRecord { key, version, .. } => write!(f, "delete record {key} at {version}"),
            Self::ReadElection => f.write_str("read election"),
            Self::ListLocks => f.write_str("list locks"),
            Self::ListPods { .. } => f.write_str("list pods"),
            Self::ReadPod { name, .. } => write!(f, "read pod {name}"),
            Self::WritePod(write) => write.fmt(f),
            Self::ReadSlice { name } => write!(f, "read slice {name}"),
            Self::WriteSlice(write) => write.fmt(f),
            Self::WriteWorkload(write) => write.fmt(f),
            Self::ReadWorkloads { workloads, .. } => {
                f.write_str("read ")?;
                list(f, workloads.iter().map(ToString::to_string), "no workloads")
            }
            Self::DeleteRunning { id, .. } => write!(f, "delete running Jobs of {id}"),
            Self::DeleteJob { id, .. } => write!(f, "delete {id}"),
            Self::CreateJob { id, plan, .. } => write!(f, "create {id} from {plan}"),
            Self::NoteJob { plan, term, .. } => write!(f, "note Job of {plan} in term {term}"),
        }
    }
}

impl Display for WritePod {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verb = match self.change {
            PodChange::Promote => "promote",
            PodChange::Demote => "demote",
            PodChange::Remove => "unmark",
            PodChange::Release => "release",
            PodChange::Delete => "delete",
            PodChange::Evict => "evict",
        };
        write!(f, "{verb} {} at {}:", self.uid, self.version)?;
        for (key, value) in &self.patch.labels {
            write!(f, " {key}={}", value.as_deref().unwrap_or("-"))?;
        }
        match self.patch.annotations.get(TERM_ANNOTATION) {
            Some(Some(term)) => write!(f, " term {term}"),
            Some(None) => f.write_str(" no term"),
            None => Ok(()),
        }
    }
}

impl Display for WriteSlice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { name, content } => write!(f, "create slice {name}: {content}"),
            Self::Replace { name, version, content, .. } => write!(f, "write slice {name} at {version}: {content}"),
            Self::Delete { name, version, .. } => write!(f, "delete slice {name} at {version}"),
        }
    }
}

impl Display for WriteWorkload {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verb = match &self.claim {
            None => "give back",
            Some(claim) if claim.enabled => "enable",
            Some(_) => "disable",
        };
        write!(f, "{verb} {} at {}:", self.id, self.version)?;
        match self.setting {
            Setting::Suspend(suspend) => write!(f, " suspend {suspend}")?,
            Setting::Replicas(replicas) => write!(f, " replicas {replicas}")?,
        }
        if let Some(claim) = &self.claim {
            write!(f, " term {}", claim.term)?;
        }
        if let Some(tick) = self.after_tick {
            write!(f, " after tick {}", tick.0)?;
        }
        Ok(())
    }
}

impl Display for Announcement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transition(transition) => {
                write!(f, "{} leads in term {}", name(transition.leader.as_ref()), transition.term)?;
                write!(f, " ({})", transition.reason.word())
            }
            Self::LabelDrift { uid, .. } => write!(f, "changed labels on {uid}"),
            Self::LabelsRefused { uid, why, .. } => write!(f, "refused labels on {uid}: {why}"),
            Self::LabelsLeft { uid, why, .. } => write!(f, "labels left on {uid}: {why}"),
            Self::LedElsewhere(rival) => write!(f, "led elsewhere, {rival}"),
            Self::NotHandedOver { cluster, remains } => write!(f, "not handed over by {cluster}: {remains:?} run"),
            Self::Workload(id, change) => write!(f, "{id} {change:?}"),
            Self::FormerLeaderDeleted { uid, .. } => write!(f, "former leader {uid} is deleted"),
            Self::FormerLeaderStays { uid, why, .. } => write!(f, "former leader {uid} can't be deleted: {why}"),
            Self::LockChanged { what } => write!(f, "lock changed: {what}"),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordRead(Ok(stored)) => stored.fmt(f),
            Self::RecordWritten(RecordOutcome::Written(version))
            | Self::BidWritten(RecordOutcome::Written(version)) => write!(f, "written at {version}"),
            Self::RecordWritten(RecordOutcome::Conflict)
            | Self::BidWritten(RecordOutcome::Conflict)
            | Self::PodWritten(PodOutcome::Conflict)
            | Self::SliceWritten(SliceOutcome::Conflict)
            | Self::WorkloadWritten(WorkloadOutcome::Conflict) => f.write_str("conflict"),
            Self::RecordWritten(RecordOutcome::Delayed) | Self::BidWritten(RecordOutcome::Delayed) => {
                f.write_str("delayed")
            }
            Self::ElectionRead(Ok(ElectionRead::Gone)) | Self::PodRead(Ok(None)) | Self::SliceRead(Ok(None)) => {
                f.write_str("there is none")
            }
            Self::PodWritten(PodOutcome::Gone)
            | Self::SliceWritten(SliceOutcome::Gone)
            | Self::WorkloadWritten(WorkloadOutcome::Gone) => f.write_str("gone"),
            Self::ElectionRead(Ok(ElectionRead::Present { uid, generation })) => {
                write!(f, "{uid} generation {generation}")
            }
            Self::LocksListed(Ok(locks)) => {
                list(f, locks.iter().map(|(key, stored)| format!("{key}: {stored}")), "no locks")
            }
            Self::PodsListed(Ok(pods)) | Self::WorkloadsRead(Ok(pods)) => list(f, pods.iter().map(shown), "no pods"),
            Self::PodRead(Ok(Some(pod))) => f.write_str(&shown(pod)),
            Self::PodWritten(PodOutcome::Written(pod)) => f.write_str(&shown(pod)),
            Self::SliceRead(Ok(Some(slice))) => write!(f, "{} at {}", slice.content, slice.version),
            Self::SliceWritten(SliceOutcome::Written(slice)) => write!(f, "{} at {}", slice.content, slice.version),
            Self::WorkloadWritten(WorkloadOutcome::Done) => f.write_str("done"),
            Self::RecordRead(Err(failure))
            | Self::RecordWritten(RecordOutcome::Failed(failure))
            | Self::BidWritten(RecordOutcome::Failed(failure))
            | Self::ElectionRead(Err(failure))
            | Self::LocksListed(Err(failure))
            | Self::PodsListed(Err(failure))
            | Self::PodRead(Err(failure))
            | Self::PodWritten(PodOutcome::Failed(failure))
            | Self::SliceRead(Err(failure))
            | Self::SliceWritten(SliceOutcome::Failed(failure))
            | Self::WorkloadsRead(Err(failure))
            | Self::WorkloadWritten(WorkloadOutcome::Failed(failure)) => failure.fmt(f),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) | Self::Forbidden(text) => write!(f, "refused: {text}"),
            Self::Unknown(text) => write!(f, "unknown outcome: {text}"),
            Self::Rewritten(text) => write!(f, "without effect: {text}"),
        }
    }
}

impl Display for Record {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} in term {}", name(self.holder.as_ref()), self.term)?;
        if self.term_by_version {
            f.write_str(" or its version")?;
        }
        write!(f, ", for {} generation {}", self.election, self.generation)?;
        if !self.former.is_empty() {
            write!(f, ", {} former", self.former.len())?;
        }
        if let Some(obligation) = &self.drain_obligation {
            write!(f, ", {} s to wind down", obligation.wind_down_seconds)?;
            if obligation.ended {
                f.write_str(" and ended")?;
            }
            if obligation.waits_seconds > 0 {
                write!(f, ", waits {} s", obligation.waits_seconds)?;
            }
            for (name, tick) in &obligation.ticks {
                write!(f, ", {name} up to tick {}", tick.0)?;
            }
        }
        if let Some(SwitchoverMark { id, to, cluster, remains, .. }) = &self.switchover {
            match (to, cluster) {
                (Some(to), _) => write!(f, ", switchover {id} to {to}")?,
                (None, Some(cluster)) => write!(f, ", switchover {id} to the cluster {cluster}")?,
                (None, None) => write!(f, ", switchover {id} given up")?,
            }
            for (workload, number) in remains {
                write!(f, ", {number} of {workload} run")?;
            }
        }
        if let Some(Offer { switchover, cluster }) = &self.offer {
            write!(f, ", offered to {cluster} by switchover {switchover}")?;
        }
        Ok(())
    }
}

impl Display for Rival {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let cluster = self.cluster.as_deref().unwrap_or("no lictor");
        write!(f, "{} in term {}, by {cluster}", name(self.holder.as_ref()), self.term)
    }
}

impl Display for Stored {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let at = |f: &mut Formatter<'_>, what: &str, version: Version| write!(f, "{what} at {version}");
        match self {
            Self::Absent => f.write_str("no record"),
            Self::Ours(version, record) => write!(f, "record at {version}: {record}"),
            Self::Free(version, ..) => at(f, "free", *version),
            Self::HeldByOther(version, rival) => write!(f, "held at {version}: {rival}"),
            Self::Damaged(version, _) => at(f, "damaged", *version),
            Self::Foreign(what) => write!(f, "foreign: {what}"),
        }
    }
}

fn name(holder: Option<&Holder>) -> &str {
    holder.map_or("nobody", |holder| &holder.uid.0)
}

fn shown(pod: &Pod) -> String {
    let mut text = format!("{} at {}:", pod.uid, pod.version);
    for (key, value) in &pod.labels {
        text.extend([" ", key, "=", value]);
    }
    text
}

fn list(f: &mut Formatter<'_>, items: impl Iterator<Item = String>, none: &str) -> fmt::Result {
    let items = items.collect::<Vec<_>>();
    f.write_str(if items.is_empty() { none.to_owned() } else { items.join("; ") }.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pairs;
    use crate::{
        DrainObligation, Key, OpId, PodPatch, Reason, Scope, Term, Timestamp, Transition, Uid, WorkloadClaim,
        WorkloadId, WorkloadKind,
    };

    fn record() -> Record {
        Record {
            leaving: Vec::new(),
            term: Term(7),
            term_by_version: false,
            holder: Some(holder()),
            operator_id: "me".into(),
            since: Timestamp(0),
            election: Uid("e".into()),
            election_name: "web".into(),
            generation: 3,
            scope: Scope::default(),
            former: Vec::new(),
            drain_obligation: None,
            switchover: None,
            offer: None,
        }
    }

    fn holder() -> Holder {
        Holder { pod: Some("a".into()), uid: Uid("uid-a".into()), node: None, ip: None }
    }

    fn pod() -> Pod {
        let labels = Pairs::from([("app".into(), "web".into()), ("role".into(), "leader".into())]);
        Pod { uid: Uid("uid-a".into()), version: Version(5), labels, ..Pod::default() }
    }

    #[test]
    fn records() {
        assert_eq!(record().to_string(), "uid-a in term 7, for e generation 3");
        let obligation =
            DrainObligation { wind_down_seconds: 30, ended: true, waits_seconds: 5, ..DrainObligation::default() };
        let all = Record {
            holder: None,
            term_by_version: true,
            former: vec![Scope::default()],
            drain_obligation: Some(obligation.clone()),
            ..record()
        };
        let words =
            "nobody in term 7 or its version, for e generation 3, 1 former, 30 s to wind down and ended, waits 5 s";
        assert_eq!(all.to_string(), words);
        let runs = Record {
            drain_obligation: Some(DrainObligation { ended: false, waits_seconds: 0, ..obligation }),
            ..record()
        };
        assert_eq!(runs.to_string(), "uid-a in term 7, for e generation 3, 30 s to wind down");
        let switched = |to| Record {
            switchover: Some(SwitchoverMark { id: Uid("s".into()), from: None, to, ..SwitchoverMark::default() }),
            ..record()
        };
        assert!(switched(Some(Uid("uid-a".into()))).to_string().ends_with(", switchover s to uid-a"));
        assert!(switched(None).to_string().ends_with(", switchover s given up"));
        let mut remains = switched(None);
        remains.switchover.as_mut().unwrap().remains.insert("Deployment/a".into(), 2);
        assert!(remains.to_string().ends_with(", switchover s given up, 2 of Deployment/a run"));
        let mut given = switched(None);
        given.switchover.as_mut().unwrap().cluster = Some("east".into());
        assert!(given.to_string().ends_with(", switchover s to the cluster east"));
        let offer = Some(Offer { switchover: Uid("s".into()), cluster: "east".into() });
        let offered = Record { offer, ..record() };
        assert!(offered.to_string().ends_with(", offered to east by switchover s"));
    }

    #[test]
    fn what_is_stored() {
        let rival =
            |cluster: Option<&str>| Rival { cluster: cluster.map(Into::into), term: Term(9), ..Rival::default() };
        for (stored, words) in [
            (Stored::Absent, "no record"),
            (Stored::Ours(Version(4), record()), "record at 4: uid-a in term 7, for e generation 3"),
            (Stored::Free(Version(4), None, None), "free at 4"),
            (Stored::HeldByOther(Version(4), rival(Some("east"))), "held at 4: nobody in term 9, by east"),
            (Stored::HeldByOther(Version(4), rival(None)), "held at 4: nobody in term 9, by no lictor"),
            (Stored::Damaged(Version(4), Term(1)), "damaged at 4"),
            (Stored::Foreign("theirs".into()), "foreign: theirs"),
        ] {
            assert_eq!(stored.to_string(), words);
        }
    }

    #[test]
    fn commands() {
        let key = Key::lease("n", "k");
        let id = WorkloadId { kind: WorkloadKind::CronJob, name: "report".into() };
        let written = |term: Option<&str>| PodPatch {
            finalizers: None,
            labels: [("cold".into(), None), ("role".into(), Some("leader".into()))].into(),
            annotations: [(TERM_ANNOTATION.into(), term.map(Into::into))].into(),
        };
        let write_pod = |change, patch| Command::WritePod(WritePod::new(change, &pod(), patch));
        let claim = |enabled| WorkloadClaim {
            election: "web".into(),
            enabled,
            term: Term(7),
            writer: "me".into(),
            write: OpId(1),
            kept: Setting::Replicas(2),
        };
        let write_workload = |setting, claim, tick: Option<i64>| {
            Command::WriteWorkload(WriteWorkload {
                id: id.clone(),
                uid: Uid("w".into()),
                version: Version(8),
                setting,
                claim,
                after_tick: tick.map(Timestamp),
            })
        };
        let transition = Transition {
            term: Term(7),
            leader: Some(holder()),
            previous: None,
            reason: Reason::Vacant,
            took: std::time::Duration::ZERO,
        };
        for (command, words) in [
            (Command::ReadRecord { key: key.clone() }, "read record k"),
            (
                Command::WriteRecord { key: key.clone(), expected: None, record: Box::new(record()) },
                "create record k: uid-a in term 7, for e generation 3",
            ),
            (
                Command::WriteRecord { key, expected: Some(Version(4)), record: Box::new(record()) },
                "write record k at 4: uid-a in term 7, for e generation 3",
            ),
            (write_pod(PodChange::Promote, written(Some("7"))), "promote uid-a at 5: cold=- role=leader term 7"),
            (write_pod(PodChange::Remove, written(None)), "unmark uid-a at 5: cold=- role=leader no term"),
            (write_pod(PodChange::Demote, PodPatch::default()), "demote uid-a at 5:"),
            (
                write_workload(Setting::Suspend(false), Some(claim(true)), Some(60)),
                "enable CronJob/report at 8: suspend false term 7 after tick 60",
            ),
            (
                write_workload(Setting::Replicas(0), Some(claim(false)), None),
                "disable CronJob/report at 8: replicas 0 term 7",
            ),
            (write_workload(Setting::Replicas(2), None, None), "give back CronJob/report at 8: replicas 2"),
        ] {
            assert_eq!(command.to_string(), words);
        }
        for (announcement, words) in [
            (Announcement::Transition(transition), "uid-a leads in term 7 (Vacant)"),
            (Announcement::LockChanged { what: "deleted" }, "lock changed: deleted"),
            (
                Announcement::NotHandedOver { cluster: "west".into(), remains: [("Deployment/a".into(), 2)].into() },
                "not handed over by west: {\"Deployment/a\": 2} run",
            ),
        ] {
            assert_eq!(announcement.to_string(), words);
        }
    }

    #[test]
    fn outcomes() {
        let (refused, unknown) = (Failure::Refused("no".into()), Failure::Unknown("late".into()));
        let present = ElectionRead::Present { uid: Uid("e".into()), generation: 3 };
        for (outcome, words) in [
            (Outcome::RecordRead(Ok(Stored::Absent)), "no record"),
            (Outcome::RecordWritten(RecordOutcome::Written(Version(4))), "written at 4"),
            (Outcome::RecordWritten(RecordOutcome::Conflict), "conflict"),
            (Outcome::RecordWritten(RecordOutcome::Failed(unknown)), "unknown outcome: late"),
            (Outcome::ElectionRead(Ok(present)), "e generation 3"),
            (Outcome::LocksListed(Ok(Vec::new())), "no locks"),
            (Outcome::LocksListed(Ok(vec![(Key::lease("n", "k"), Stored::Absent)])), "k: no record"),
            (
                Outcome::PodsListed(Ok(vec![pod(), pod()])),
                "uid-a at 5: app=web role=leader; uid-a at 5: app=web role=leader",
            ),
            (Outcome::PodRead(Ok(None)), "there is none"),
            (Outcome::PodWritten(PodOutcome::Written(Box::new(pod()))), "uid-a at 5: app=web role=leader"),
            (Outcome::PodWritten(PodOutcome::Failed(refused)), "refused: no"),
        ] {
            assert_eq!(outcome.to_string(), words);
        }
    }
}

//! A workload that runs only where the leader is, as the API server has it, and the claim that is written on it.
//!
//! One field of its spec enables or disables a workload. Beside that, the workload carries a claim, in annotations: the election that it
//! belongs to, whether it is enabled, which replica wrote that, and its former setting. Each write has a number of its own, so that it
//! always changes the workload's version, and a late request of an earlier operator is for a version that is gone.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ELECTION_ANNOTATION, OpId, TERM_ANNOTATION, Term, Timestamp, Uid, Version};

/// The annotation, on every workload of an election, with `true` while the workload is enabled, else `false`.
pub const ENABLED_ANNOTATION: &str = "lictor.dev/enabled";

/// The annotation, on every workload of an election, with its former replicas or `spec.suspend`, before it was disabled.
pub const KEPT_ANNOTATION: &str = "lictor.dev/kept";

/// The annotation, on every workload of an election, with the operator replica that wrote it last, and the number of that write.
pub const WRITTEN_ANNOTATION: &str = "lictor.dev/written-by";

/// The annotation, on a Job from a template, with the template's name in the election.
pub const TEMPLATE_ANNOTATION: &str = "lictor.dev/template";

/// The kind of a workload; the names are Kubernetes' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum WorkloadKind {
    CronJob,
    Deployment,
    Job,
    StatefulSet,
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A workload of the election's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadId {
    /// The workload's kind.
    pub kind: WorkloadKind,
    /// The workload's name.
    pub name: String,
}

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// The field by which a workload is enabled and disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// The field of a CronJob or a Job.
    Suspend(bool),
    /// The field of a Deployment or a StatefulSet.
    Replicas(i32),
}

impl Setting {
    /// Whether the setting lets the workload run.
    pub fn runs(self) -> bool {
        match self {
            Self::Suspend(suspend) => !suspend,
            Self::Replicas(replicas) => replicas > 0,
        }
    }

    /// The setting that keeps the workload from running.
    #[must_use]
    pub fn off(self) -> Self {
        match self {
            Self::Suspend(_) => Self::Suspend(true),
            Self::Replicas(_) => Self::Replicas(0),
        }
    }
}

/// The claim that an election has written on a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The election's name.
    pub election: String,
    /// Whether the workload is enabled.
    pub enabled: bool,
    /// The term in which the claim was written.
    pub term: Term,
    /// The operator replica that wrote the claim, unique for each start of a process.
    pub writer: String,
    /// The number of that write, so that no two are the same.
    pub write: OpId,
    /// The workload's setting before it was disabled.
    pub kept: Setting,
}

impl Claim {
    /// The claim in these annotations. `now` is the workload's present setting; the kept one is of the same kind.
    pub fn read(annotations: &BTreeMap<String, String>, now: Setting) -> Option<Self> {
        let written = annotations.get(WRITTEN_ANNOTATION).and_then(|text| text.rsplit_once('/'));
        let (writer, write) = written.unwrap_or_default();
        let kept = annotations.get(KEPT_ANNOTATION);
        Some(Self {
            election: annotations.get(ELECTION_ANNOTATION)?.clone(),
            enabled: annotations.get(ENABLED_ANNOTATION).is_some_and(|value| value == "true"),
            term: Term(annotations.get(TERM_ANNOTATION).and_then(|term| term.parse().ok()).unwrap_or_default()),
            writer: writer.into(),
            write: OpId(write.parse().unwrap_or_default()),
            kept: match now {
                Setting::Suspend(now) => Setting::Suspend(kept.and_then(|kept| kept.parse().ok()).unwrap_or(now)),
                Setting::Replicas(now) => Setting::Replicas(kept.and_then(|kept| kept.parse().ok()).unwrap_or(now)),
            },
        })
    }

    /// The annotations that contain the claim.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let kept = match self.kept {
            Setting::Suspend(suspend) => suspend.to_string(),
            Setting::Replicas(replicas) => replicas.to_string(),
        };
        BTreeMap::from([
            (ELECTION_ANNOTATION.into(), self.election.clone()),
            (ENABLED_ANNOTATION.into(), self.enabled.to_string()),
            (TERM_ANNOTATION.into(), self.term.to_string()),
            (WRITTEN_ANNOTATION.into(), format!("{}/{}", self.writer, self.write.0)),
            (KEPT_ANNOTATION.into(), kept),
        ])
    }
}

/// A workload, as last observed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, as the API server tells them")]
pub struct Workload {
    /// The workload's kind and name.
    pub id: WorkloadId,
    /// The workload's uid: the same name with another uid is another workload.
    pub uid: Uid,
    /// The version that was observed.
    pub version: Version,
    /// Whether the workload may run.
    pub setting: Setting,
    /// The claim of the election that the workload belongs to.
    pub claim: Option<Claim>,
    /// W9: the setting before the workload was disabled, as the election's own object has it.
    pub noted: Option<Setting>,
    /// Whether the workload is being deleted.
    pub deleting: bool,
    /// Whether this is a Job that has ended, so that none of its pods will run, whatever its setting.
    pub finished: bool,
    /// Whether a pod or Job of the workload still runs, or may be about to.
    pub remains: bool,
    /// The number of its pods or Jobs that are seen to run.
    pub running: u32,
    /// Whether Jobs of the workload run that are to be deleted when it is disabled, and are not yet.
    pub deletable: bool,
    /// The last scheduled time at which a CronJob started a Job, as its own schedule names it.
    pub last_tick: Option<Timestamp>,
    /// The election's wish for the workload.
    pub wish: Wish,
}

impl Workload {
    /// Whether the workload can run, as far as its spec tells.
    pub fn runs(&self) -> bool {
        self.setting.runs() && !self.finished
    }

    /// W9: the setting before the workload was disabled. If a person has removed the claim, or a part of it, the claim has no setting, or
    /// only the present one. In that case the election's own object counts.
    pub fn kept(&self) -> Option<Setting> {
        let claimed = self.claim.as_ref().map(|claim| claim.kept);
        match (claimed, self.noted) {
            (Some(claimed @ Setting::Replicas(_)), _) if claimed.runs() => Some(claimed),
            (_, Some(noted)) => Some(noted),
            (claimed, None) => claimed,
        }
    }
}

/// An election's wish for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The workload follows the leadership. `replicas`: the number that it gets when it is enabled, unless it gets its former number.
    Follow {
        /// The replicas of a Deployment or StatefulSet.
        replicas: Option<i32>,
    },
    /// W10: the workload stays as it is, because no pod may lead: the election's selector has never matched any.
    Stay,
    /// The workload follows the leadership of this term alone, because it is a Job that was created from a template.
    FollowTerm(Term),
    /// The workload is disabled and then deleted, because it is a Job of an election that is being deleted, or that an earlier election of
    /// this name has left.
    Delete,
    /// The election no longer has anything to do with the workload. `restore`: it gets its former setting.
    Release {
        /// Otherwise the workload stays as it is.
        restore: bool,
    },
}

/// A Job that is to be created once for each term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// The beginning of the Job's name.
    pub name: String,
    /// The last term for which a Job was created, as far as it is noted.
    pub started: Option<Term>,
}

impl JobPlan {
    /// The Job of a term.
    pub fn job(&self, term: Term) -> WorkloadId {
        WorkloadId { kind: WorkloadKind::Job, name: format!("{}-{term}", self.name) }
    }

    /// The term that a Job was made for, if its name is one that this plan gives.
    pub fn term_of(&self, id: &WorkloadId) -> Option<Term> {
        let number = id.name.strip_prefix(&self.name)?.strip_prefix('-')?;
        number.parse().ok().map(Term).filter(|term| self.job(*term) == *id)
    }
}

/// A write of a workload, valid for this uid and this version only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteWorkload {
    /// The workload's kind and name.
    pub id: WorkloadId,
    /// A precondition.
    pub uid: Uid,
    /// A precondition.
    pub version: Version,
    /// The new value of the workload's field.
    pub setting: Setting,
    /// The claim that is written on the workload, or `None` if nothing of it is left.
    pub claim: Option<Claim>,
    /// The last tick of a CronJob's schedule that must not be started again.
    pub after_tick: Option<Timestamp>,
}

impl WriteWorkload {
    /// Whether the write lets the workload run in this cluster because it leads.
    pub fn enables(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.enabled)
    }
}

/// The obligation that a holder's workloads leave to the next holder, as part of the lock's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainObligation {
    /// How long workloads under the record may take to end after their holder's deadline, in seconds.
    pub wind_down_seconds: u32,
    /// Whether all workloads have ended, because the lock was released in order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// How long this holder itself has to wait for its predecessors' workloads, in seconds. While the record has this, the holder has
    /// enabled nothing. In a record of a holder that released the lock: how long its successor still has to wait for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waits_seconds: u32,
    /// By CronJob: the last tick of its schedule that others have started.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ticks: BTreeMap<String, Timestamp>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(enabled: bool, kept: Setting) -> Claim {
        let (election, writer) = ("web".into(), "lictor.dev/operator#me/1".into());
        Claim { election, enabled, term: Term(7), writer, write: OpId(4), kept }
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        for (kept, now) in [
            (Setting::Suspend(true), Setting::Suspend(false)),
            (Setting::Suspend(false), Setting::Suspend(true)),
            (Setting::Replicas(3), Setting::Replicas(0)),
        ] {
            for enabled in [true, false] {
                let claim = claim(enabled, kept);
                assert_eq!(Claim::read(&claim.annotations(), now), Some(claim));
            }
        }
    }

    #[test]
    fn what_somebody_wrote_into_a_claim_counts_for_nothing() {
        let mut annotations = claim(true, Setting::Replicas(3)).annotations();
        for key in [ENABLED_ANNOTATION, TERM_ANNOTATION, WRITTEN_ANNOTATION, KEPT_ANNOTATION] {
            annotations.insert(key.into(), "🦀".into());
        }
        let read = Claim::read(&annotations, Setting::Replicas(2)).unwrap();
        assert_eq!((read.enabled, read.term, read.write, read.kept), (false, Term(0), OpId(0), Setting::Replicas(2)));
        annotations.remove(ELECTION_ANNOTATION);
        assert_eq!(Claim::read(&annotations, Setting::Replicas(2)), None);
    }

    #[test]
    fn a_job_tells_its_term_to_the_plan_that_names_it_so() {
        let plan = JobPlan { name: "settle".into(), started: None };
        let term = |name: &str| plan.term_of(&WorkloadId { kind: WorkloadKind::Job, name: name.into() });
        assert_eq!((plan.term_of(&plan.job(Term(7))), term("settle-12")), (Some(Term(7)), Some(Term(12))));
        for other in ["settle", "settle-", "settle-a", "settle-1-2", "settle-07", "settles-1", "resettle-1"] {
            assert_eq!(term(other), None, "{other}");
        }
    }

    #[test]
    fn a_finished_job_does_not_run_whatever_its_setting() {
        let workload = |setting, finished| Workload {
            id: WorkloadId { kind: WorkloadKind::Job, name: "a".into() },
            uid: Uid::default(),
            version: Version(1),
            setting,
            claim: None,
            noted: None,
            deleting: false,
            finished,
            remains: false,
            running: 0,
            deletable: false,
            last_tick: None,
            wish: Wish::Follow { replicas: None },
        };
        assert!(workload(Setting::Suspend(false), false).runs());
        assert!(!workload(Setting::Suspend(false), true).runs());
        assert!(!workload(Setting::Suspend(true), false).runs());
    }

    /// Shows W9.
    #[test]
    fn what_a_workload_had_is_known_without_its_claim() {
        let workload = |setting, kept: Option<Setting>, noted| Workload {
            id: WorkloadId { kind: WorkloadKind::Deployment, name: "a".into() },
            uid: Uid::default(),
            version: Version(1),
            setting,
            claim: kept.map(|kept| claim(false, kept)),
            noted,
            deleting: false,
            finished: false,
            remains: false,
            running: 0,
            deletable: false,
            last_tick: None,
            wish: Wish::Follow { replicas: None },
        };
        let (none, four, six) = (Setting::Replicas(0), Setting::Replicas(4), Setting::Replicas(6));
        for (kept, noted, known) in [
            (None, None, None),
            (None, Some(four), Some(four)),
            // It counts what was disabled last.
            (Some(six), Some(four), Some(six)),
            // Without its annotation, a claim tells of what is there now.
            (Some(none), Some(four), Some(four)),
            (Some(none), None, Some(none)),
        ] {
            assert_eq!(workload(none, kept, noted).kept(), known, "{kept:?} {noted:?}");
        }
        let (runs, rests) = (Setting::Suspend(false), Setting::Suspend(true));
        for (kept, noted, known) in [(Some(rests), Some(runs), runs), (Some(runs), None, runs)] {
            assert_eq!(workload(rests, kept, noted).kept(), Some(known));
        }
    }

    #[test]
    fn only_a_claim_that_says_so_enables() {
        let write = |claim| WriteWorkload {
            id: WorkloadId { kind: WorkloadKind::Job, name: "a".into() },
            uid: Uid::default(),
            version: Version(1),
            setting: Setting::Suspend(false),
            claim,
            after_tick: None,
        };
        assert!(write(Some(claim(true, Setting::Suspend(true)))).enables());
        assert!(!write(Some(claim(false, Setting::Suspend(true)))).enables());
        assert!(!write(None).enables());
    }

    #[test]
    fn a_legacy_without_a_wait_does_not_mention_one() {
        let text = |waits_seconds| {
            serde_json::to_string(&DrainObligation { waits_seconds, ..DrainObligation::default() }).unwrap()
        };
        assert_eq!(text(0), r#"{"windDownSeconds":0}"#);
        assert_eq!(text(5), r#"{"windDownSeconds":0,"waitsSeconds":5}"#);
    }
}

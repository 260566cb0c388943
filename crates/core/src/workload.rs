//! What runs only where the leader is: a workload as the API server has it, and what is written on it.
//!
//! A workload is enabled or disabled by one field of its spec. Beside that it carries a claim, in annotations: whose it is, whether
//! it is enabled, by whom that was written, and what it had before. Each write has a number of its own, so that it always changes the
//! workload's version, and whatever an earlier operator may still have on its way is for a version that is gone.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ELECTION_ANNOTATION, OpId, TERM_ANNOTATION, Term, Timestamp, Uid, Version};

/// On every workload that an election has: `true` while it is enabled, else `false`.
pub const ENABLED_ANNOTATION: &str = "lictor.dev/enabled";

/// On every workload that an election has: what it had before it was disabled, its replicas or its `spec.suspend`.
pub const KEPT_ANNOTATION: &str = "lictor.dev/kept";

/// On every workload that an election has: which replica of the operator wrote it last, and the number of that write.
pub const WRITTEN_ANNOTATION: &str = "lictor.dev/written-by";

/// On a Job that was made from a template: the name that the template has in the election.
pub const TEMPLATE_ANNOTATION: &str = "lictor.dev/template";

/// What kind of workload; the names are Kubernetes' own.
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
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
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
    /// Of a CronJob or a Job.
    Suspend(bool),
    /// Of a Deployment or a StatefulSet.
    Replicas(i32),
}

impl Setting {
    /// Whether it lets the workload run.
    pub fn runs(self) -> bool {
        match self {
            Self::Suspend(suspend) => !suspend,
            Self::Replicas(replicas) => replicas > 0,
        }
    }

    /// The setting that keeps it from running.
    #[must_use]
    pub fn off(self) -> Self {
        match self {
            Self::Suspend(_) => Self::Suspend(true),
            Self::Replicas(_) => Self::Replicas(0),
        }
    }
}

/// What an election has written on a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The election's name.
    pub election: String,
    /// Whether it is enabled.
    pub enabled: bool,
    /// The term in which that was written.
    pub term: Term,
    /// The operator replica that wrote it, unique for each start of a process.
    pub writer: String,
    /// The number of that write, so that no two are the same.
    pub write: OpId,
    /// What it had before it was disabled.
    pub kept: Setting,
}

impl Claim {
    /// The claim that annotations tell of. `now`: the workload's present setting, whose kind that which is kept has.
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

    /// The annotations that tell of it.
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
    /// Which.
    pub id: WorkloadId,
    /// Its uid: the same name with another uid is another workload.
    pub uid: Uid,
    /// The version that was observed.
    pub version: Version,
    /// Whether it may run.
    pub setting: Setting,
    /// Whose it is.
    pub claim: Option<Claim>,
    /// W9: what it had before it was disabled, as the election's own object says.
    pub noted: Option<Setting>,
    /// Its deletion has been asked for.
    pub deleting: bool,
    /// A Job that has ended: whatever its setting, nothing of it will run.
    pub finished: bool,
    /// Something of it still runs, or may be about to.
    pub remains: bool,
    /// The number of pods or Jobs of it that are seen to run.
    pub running: u32,
    /// Jobs of it run that are to be deleted when it is disabled, and are not yet.
    pub deletable: bool,
    /// The last scheduled time at which a CronJob started a Job, as its own schedule names it.
    pub last_tick: Option<Timestamp>,
    /// What the election wants of it.
    pub wish: Wish,
}

impl Workload {
    /// Whether it can run, as far as its spec tells.
    pub fn runs(&self) -> bool {
        self.setting.runs() && !self.finished
    }

    /// W9: what it had before it was disabled. A claim that somebody has removed, or removed a part of, tells nothing, or what the workload
    /// has now; then the election's own object is believed.
    pub fn kept(&self) -> Option<Setting> {
        let claimed = self.claim.as_ref().map(|claim| claim.kept);
        match (claimed, self.noted) {
            (Some(claimed @ Setting::Replicas(_)), _) if claimed.runs() => Some(claimed),
            (_, Some(noted)) => Some(noted),
            (claimed, None) => claimed,
        }
    }
}

/// What an election wants of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// That it follows the leadership. `replicas`: how many it gets when it is enabled, if not as many as it had.
    Follow {
        /// For a Deployment or StatefulSet.
        replicas: Option<i32>,
    },
    /// W10: that it stays as it is: no pod may lead, because the election's selector has never matched any.
    Stay,
    /// That it follows the leadership of this term alone: a Job that was made from a template.
    FollowTerm(Term),
    /// That it is disabled and then deleted: a Job of an election that is being deleted, or that an earlier election of this name has left.
    Delete,
    /// That the election has nothing to do with it any more. `restore`: with what it had before.
    Release {
        /// Otherwise it stays as it is.
        restore: bool,
    },
}

/// A Job that is to be made once for each term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// What its name begins with.
    pub name: String,
    /// The last term for which one was made, as far as it is noted.
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
    /// Which.
    pub id: WorkloadId,
    /// Precondition.
    pub uid: Uid,
    /// Precondition.
    pub version: Version,
    /// What its field becomes.
    pub setting: Setting,
    /// What is written on it; none: nothing of it is left.
    pub claim: Option<Claim>,
    /// Ticks of a CronJob's schedule up to this one are not to be started again.
    pub after_tick: Option<Timestamp>,
}

impl WriteWorkload {
    /// Whether it lets the workload run in this cluster because it leads.
    pub fn enables(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.enabled)
    }
}

/// What a holder's workloads need of whoever comes after it: part of the lock's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainObligation {
    /// How long what runs under the record may take to end after its holder's deadline, in seconds.
    pub wind_down_seconds: u32,
    /// All of it has ended: the lock was let go of in order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// How long this holder itself has to wait for what its predecessors left, in seconds: as long as that is told, it has enabled
    /// nothing. In a record of a holder that let go of the lock: how long its successor still has to wait for that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waits_seconds: u32,
    /// By CronJob: ticks of its schedule up to this one were started by others.
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

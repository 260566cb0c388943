//! Workloads that follow the leader.

use super::*;
use crate::{DrainObligation, Setting, Wish, WorkloadClaim, WorkloadId, WorkloadKind, WriteWorkload};

impl Lab {
    pub(super) fn write_workload(&mut self, write: &WriteWorkload) -> WorkloadOutcome {
        let (version, strips, keeps) = (self.next_version(), self.strips, self.keeps);
        let found = self.workloads.iter_mut().flatten().find(|workload| workload.id == write.id);
        let Some(workload) = found else { return WorkloadOutcome::Gone };
        if workload.uid == uid("mute") {
            return WorkloadOutcome::Failed(Failure::Unknown("no answer".into()));
        }
        if workload.uid == uid("forbidden") {
            return WorkloadOutcome::Failed(Failure::Refused("not allowed".into()));
        }
        if workload.version != write.version {
            return WorkloadOutcome::Conflict;
        }
        workload.version = version;
        workload.setting = write.setting;
        let ineffective = strips || (keeps && write.claim.is_none());
        if !ineffective {
            workload.claim.clone_from(&write.claim);
        }
        workload.last_tick = workload.last_tick.max(write.after_tick);
        WorkloadOutcome::Done
    }

    pub(super) fn end_workload(&mut self, id: &WorkloadId) -> WorkloadOutcome {
        if self.lags {
            return WorkloadOutcome::Done;
        }
        let workloads = self.workloads.as_mut().expect("they are known");
        if id.kind == WorkloadKind::Job {
            workloads.retain(|workload| workload.id != *id);
        } else {
            self.workload(&id.name).deletable = false;
        }
        WorkloadOutcome::Done
    }

    pub(super) fn create_job(&mut self, id: &WorkloadId, claim: &WorkloadClaim) -> WorkloadOutcome {
        if self.lags {
            return WorkloadOutcome::Conflict;
        }
        let wish = Wish::FollowTerm(Term(id.name.rsplit('-').next().unwrap().parse().unwrap()));
        let job = Workload { id: id.clone(), claim: Some(claim.clone()), wish, ..self.made("") };
        self.workloads.as_mut().expect("they are known").push(Workload { setting: Setting::Suspend(true), ..job });
        WorkloadOutcome::Done
    }

    fn made(&mut self, name: &str) -> Workload {
        let version = self.next_version();
        Workload {
            id: WorkloadId { kind: WorkloadKind::CronJob, name: name.into() },
            uid: uid(name),
            version,
            setting: Setting::Suspend(false),
            claim: None,
            noted: None,
            deleting: false,
            finished: false,
            remains: false,
            running: 0,
            deletable: false,
            last_tick: None,
            wish: Wish::Follow { replicas: None },
        }
    }

    pub(super) fn workload(&mut self, name: &str) -> &mut Workload {
        let found = self.workloads.iter_mut().flatten().find(|workload| workload.id.name == name);
        found.expect("there is such a workload")
    }

    fn settings(&self) -> Vec<Setting> {
        self.workloads.iter().flatten().map(|workload| workload.setting).collect()
    }

    pub(super) fn later(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }
}

fn shared() -> LockPolicy {
    LockPolicy { shared: true, silence: Duration::from_secs(40), ..LockPolicy::ALONE }
}

/// A cluster that is the candidate itself, with a CronJob and a Deployment, before anything was decided.
pub(super) fn cluster() -> Lab {
    let mut lab = Lab::new(0);
    lab.scope = Scope::default();
    lab.cluster = Some(Ok(()));
    lab.policy = shared();
    lab.wind_down = 35;
    let nightly = lab.made("nightly");
    let worker = lab.made("worker");
    let id = WorkloadId { kind: WorkloadKind::Deployment, name: "worker".into() };
    lab.workloads = Some(vec![nightly, Workload { id, setting: Setting::Replicas(3), ..worker }]);
    lab
}

pub(super) fn leading() -> Lab {
    let mut lab = cluster();
    lab.run();
    assert_eq!(lab.settings(), [Setting::Suspend(false), Setting::Replicas(3)]);
    // Its controllers have seen that.
    lab.later(3);
    lab.run();
    lab
}

pub(super) fn rival(obligation: Option<DrainObligation>) -> Rival {
    let holder = Some(Holder { pod: None, uid: uid("far"), node: None, ip: None });
    Rival { cluster: Some("east".into()), holder, drain_obligation: obligation, ..Rival::default() }
}

pub(super) fn obligation(ended: bool, ticks: &[(&str, i64)]) -> DrainObligation {
    let ticks = ticks.iter().map(|(name, at)| ((*name).to_owned(), Timestamp(*at))).collect();
    DrainObligation { wind_down_seconds: 20, ended, waits_seconds: 0, ticks }
}

#[test]
fn what_runs_already_runs_on_where_the_lock_is_taken() {
    let mut lab = cluster();
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Disable")), "{all:#?}");
    let at = |words: &str| all.iter().position(|found| found.starts_with(words)).unwrap_or_else(|| panic!("{all:#?}"));
    assert!(at("WriteRecord 1 cluster") < at("Enable CronJob/nightly"), "{all:#?}");
    let obligation = lab.record().drain_obligation.unwrap();
    assert_eq!((obligation.wind_down_seconds, obligation.ended), (35, false));
    // Where somebody else has the lock, or nobody may lead, it is disabled.
    let mut lab = cluster();
    lab.cluster = Some(Err(Unavailable));
    assert_eq!(lab.run()[..2], ["Disable CronJob/nightly Suspend(true)", "Disable Deployment/worker Replicas(0)"]);
}

#[test]
fn what_was_enabled_is_disabled_before_a_lost_lock_is_taken_again() {
    let mut lab = leading();
    lab.store(|_| Stored::Absent);
    let all = lab.run();
    let at = |words: &str| all.iter().position(|found| found.starts_with(words)).unwrap_or_else(|| panic!("{all:#?}"));
    assert!(at("Disable CronJob/nightly") < at("WriteRecord"), "{all:#?}");
    assert!(at("WriteRecord") < at("Enable CronJob/nightly"), "{all:#?}");
    assert!(all.contains(&"Enable Deployment/worker Replicas(3)".into()), "{all:#?}");
}

#[test]
fn while_another_cluster_leads_everything_is_off_and_stamped_by_this_process() {
    let mut lab = leading();
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    let all = lab.run();
    assert!(all.contains(&"Disable Deployment/worker Replicas(0)".into()), "{all:#?}");
    assert_eq!(lab.settings(), [Setting::Suspend(true), Setting::Replicas(0)]);
    assert_eq!(lab.workload("worker").claim.as_ref().unwrap().kept, Setting::Replicas(3));
    // Another process can't know what its predecessor may still send.
    let mut lab = lab.restarted();
    let version = lab.workload("nightly").version;
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    let all = lab.run();
    assert!(all.contains(&"Disable CronJob/nightly Suspend(true)".into()), "{all:#?}");
    assert!(lab.workload("nightly").version > version);
    assert_eq!(lab.run(), [] as [&str; 0]);
}

#[test]
fn the_lock_is_let_go_of_when_all_has_ended_and_the_record_says_so() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    lab.workload("worker").remains = true;
    lab.workload("nightly").last_tick = Some(Timestamp(60_000));
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("WriteRecord 1") && words.contains("nobody")), "{all:#?}");
    assert!(all.contains(&"Disable Deployment/worker Replicas(0)".into()), "{all:#?}");
    assert!(!all.contains(&"ReleaseRecord".into()), "its pods still run: {all:#?}");
    assert_eq!(lab.election.winding_down(), Some(lab.now + Duration::from_secs(35)));
    lab.later(10);
    assert_eq!(lab.run(), [] as [&str; 0]);
    lab.workload("worker").remains = false;
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "ReleaseRecord", "{all:#?}");
    let Stored::Free(_, Some(record), _) = &lab.stored else { panic!("{:?}", lab.stored) };
    let obligation = record.drain_obligation.clone().unwrap();
    assert!(obligation.ended);
    assert_eq!(obligation.ticks["nightly"], Timestamp(60_000));
}

#[test]
fn what_the_caches_do_not_show_yet_is_looked_at_before_the_record_says_that_all_has_ended() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    // Started by its controller a moment before it was disabled.
    let mut there = lab.workloads.clone();
    for workload in there.iter_mut().flatten().filter(|workload| workload.id.name == "nightly") {
        (workload.remains, workload.last_tick) = (true, Some(Timestamp(120_000)));
    }
    lab.unseen_workloads = there;
    let all = lab.run();
    assert!(!all.contains(&"ReleaseRecord".into()), "a Job of it runs: {all:#?}");
    assert_eq!(lab.election.winding_down(), Some(lab.now + Duration::from_secs(35)));
    lab.workload("nightly").remains = false;
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "ReleaseRecord", "{all:#?}");
    let Stored::Free(_, Some(record), _) = &lab.stored else { panic!("{:?}", lab.stored) };
    assert_eq!(record.drain_obligation.as_ref().unwrap().ticks["nightly"], Timestamp(120_000));
}

#[test]
fn what_can_not_be_read_has_the_time_that_it_may_take_to_end() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    for _ in 0..100 {
        lab.instead("ReadWorkloads", Outcome::WorkloadsRead(Err(Failure::Refused("not allowed".into()))));
    }
    let from = lab.now;
    while matches!(lab.stored, Stored::Ours(..)) && lab.now < from + Duration::from_secs(60) {
        lab.run();
        lab.later(1);
    }
    let took = lab.now.since(from).as_secs();
    assert!((35..50).contains(&took), "{took} s");
}

/// Shows W4.
#[test]
fn what_was_let_run_a_moment_ago_keeps_the_lock_for_some_seconds() {
    let mut lab = cluster();
    lab.run();
    let enabled = lab.now;
    lab.later(1);
    lab.cluster = Some(Err(Unavailable));
    lab.run();
    assert!(matches!(lab.stored, Stored::Ours(..)), "its controller may not have seen yet that it is disabled");
    assert_eq!(lab.election.wake(), Some(enabled + Duration::from_secs(3)));
    lab.later(2);
    assert_eq!(lab.run().last().unwrap(), "ReleaseRecord");
}

#[test]
fn what_does_not_end_keeps_the_lock_for_as_long_as_was_announced() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    lab.workload("worker").remains = true;
    lab.run();
    lab.later(35);
    assert_eq!(lab.run().last().unwrap(), "ReleaseRecord");
}

#[test]
fn a_workload_that_can_not_be_disabled_keeps_the_lock() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    lab.workload("worker").uid = uid("mute");
    for _ in 0..10 {
        let all = lab.run();
        assert!(!all.contains(&"ReleaseRecord".into()), "{all:#?}");
        lab.later(5);
    }
    assert_eq!(lab.election.workload_failures().len(), 1);
    lab.workload("worker").uid = uid("worker");
    assert_eq!(lab.run().last().unwrap(), "ReleaseRecord");
    assert_eq!(lab.election.workload_failures().len(), 0);
}

#[test]
fn after_a_lock_that_was_not_let_go_of_the_old_sides_time_is_waited_for() {
    let mut lab = cluster();
    lab.store(|version| Stored::HeldByOther(version, rival(Some(obligation(false, &[])))));
    lab.run();
    lab.store(|version| Stored::Free(version, None, Some(obligation(false, &[]))));
    let all = lab.run();
    assert!(all.iter().any(|words| words.ends_with("cluster")), "the lock is taken at once: {all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Enable")), "{all:#?}");
    assert_eq!(lab.election.workloads_wait(lab.now), Some(lab.now + Duration::from_secs(20)));
    assert_eq!(lab.record().drain_obligation.unwrap().waits_seconds, 20);
    // A process that starts now knows from the record that it has to wait, too.
    let mut lab = lab.restarted();
    assert!(!lab.run().iter().any(|words| words.starts_with("Enable")));
    lab.later(20);
    let all = lab.run();
    let at = |words: &str| all.iter().position(|found| found.starts_with(words)).unwrap_or_else(|| panic!("{all:#?}"));
    assert!(at("WriteRecord") < at("Enable CronJob/nightly"), "who waits no more, says so first: {all:#?}");
    assert!(all.contains(&"Enable Deployment/worker Replicas(3)".into()), "{all:#?}");
    assert_eq!(lab.record().drain_obligation.unwrap().waits_seconds, 0);
}

#[test]
fn who_comes_after_a_holder_that_still_waits_waits_too_and_leaves_no_tick_out() {
    let mut lab = cluster();
    lab.store(|version| Stored::HeldByOther(version, rival(Some(obligation(false, &[("nightly", 60_000)])))));
    lab.run();
    lab.store(|version| Stored::Free(version, None, Some(obligation(false, &[("nightly", 60_000)]))));
    lab.run();
    // It lets go of the lock after five of the twenty seconds.
    lab.later(5);
    lab.cluster = Some(Err(Unavailable));
    let all = lab.run();
    assert!(all.contains(&"ReleaseRecord".into()), "{all:#?}");
    let Stored::Free(_, Some(record), _) = &lab.stored else { panic!("{:?}", lab.stored) };
    let left = record.drain_obligation.clone().unwrap();
    assert_eq!((left.ended, left.waits_seconds), (true, 15));

    // And whoever comes next, in order or after a lock that expired meanwhile.
    for ended in [true, false] {
        let left = DrainObligation { ended, waits_seconds: 15, ..obligation(ended, &[("nightly", 60_000)]) };
        let mut lab = cluster();
        lab.store(|version| Stored::HeldByOther(version, rival(Some(left.clone()))));
        lab.run();
        lab.store(|version| Stored::Free(version, None, Some(left.clone())));
        let all = lab.run();
        assert!(!all.iter().any(|words| words.starts_with("Enable")), "{all:#?}");
        assert_eq!(lab.election.workloads_wait(lab.now), Some(lab.now + Duration::from_secs(15)));
        assert_eq!(
            lab.record().drain_obligation.unwrap().ticks["nightly"],
            Timestamp(60_000),
            "nobody has run another"
        );
    }
}

#[test]
fn after_a_lock_that_was_let_go_of_nothing_is_waited_for_and_no_tick_is_run_again() {
    let mut lab = cluster();
    lab.store(|version| Stored::HeldByOther(version, rival(Some(obligation(false, &[])))));
    lab.run();
    lab.store(|version| Stored::Free(version, None, Some(obligation(true, &[("nightly", 60_000)]))));
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Enable CronJob/nightly")), "{all:#?}");
    assert_eq!(lab.workload("nightly").last_tick, Some(Timestamp(60_000)));
}

#[test]
fn an_enabling_write_whose_outcome_is_not_known_is_never_taken_for_done_or_undone() {
    let mut lab = leading();
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    lab.store(|version| Stored::Free(version, None, None));
    let failed = WorkloadOutcome::Failed(Failure::Unknown("no answer".into()));
    lab.instead("Enable CronJob", Outcome::WorkloadWritten(failed));
    lab.run();
    let version = lab.workload("nightly").version;
    assert_eq!(lab.workload("nightly").setting, Setting::Suspend(false), "it was carried out after all");
    lab.workload("nightly").setting = Setting::Suspend(true);
    let claim = lab.workload("worker").claim.clone();
    lab.workload("nightly").claim = claim.map(|claim| WorkloadClaim { enabled: false, ..claim });
    // It looks disabled, and the write may still arrive: only a write of its own settles that.
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    let all = lab.run();
    assert!(all.contains(&"Disable CronJob/nightly Suspend(true)".into()), "{all:#?}");
    assert!(lab.workload("nightly").version > version);
}

#[test]
fn the_number_that_others_want_is_respected_while_enabled_and_kept() {
    let mut lab = leading();
    lab.workload("worker").setting = Setting::Replicas(5);
    assert_eq!(lab.run(), [] as [&str; 0]);
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    assert_eq!(lab.workload("worker").claim.as_ref().unwrap().kept, Setting::Replicas(5));
    // While disabled, it is put back, and what was wanted is kept.
    lab.workload("worker").setting = Setting::Replicas(7);
    let all = lab.run();
    assert!(all.contains(&"Contested Deployment/worker".into()), "{all:#?}");
    assert_eq!(lab.settings()[1], Setting::Replicas(0));
    assert_eq!(lab.workload("worker").claim.as_ref().unwrap().kept, Setting::Replicas(7));
}

#[test]
fn what_is_given_back_has_what_it_had() {
    let mut lab = leading();
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    for name in ["nightly", "worker"] {
        lab.workload(name).wish = Wish::Release { restore: true };
    }
    let all = lab.run();
    assert_eq!(
        all[..2],
        ["Release CronJob/nightly Suspend(false)", "Release Deployment/worker Replicas(3)"],
        "{all:#?}"
    );
    assert_eq!(lab.run(), [] as [&str; 0]);
}

/// Shows W7.
#[test]
fn one_job_for_each_term_and_the_one_before_goes_first() {
    let mut lab = Lab::new(2);
    lab.jobs = vec![JobPlan { name: "migrate".into(), started: None }];
    let all = lab.run();
    let jobs: Vec<&String> = all.iter().filter(|words| words.contains("Job")).collect();
    let expected = ["CreateJob Job/migrate-1", "NoteJob migrate 1", "Created Job/migrate-1", "Noted Job/migrate-1"];
    assert_eq!(jobs[..2], [expected[0], expected[2]], "{all:#?}");
    assert!(all.contains(&"Enable Job/migrate-1 Suspend(false)".into()), "{all:#?}");
    lab.unready("p0");
    let all = lab.run();
    let at = |words: &str| all.iter().position(|found| found == words).unwrap_or_else(|| panic!("{words}: {all:#?}"));
    assert!(at("DeleteJob Job/migrate-1") < at("CreateJob Job/migrate-2"), "{all:#?}");
    assert!(at("NoteJob migrate 2") < at("Enable Job/migrate-2 Suspend(false)"), "{all:#?}");
    // One that vanished is not made again, not by another process either.
    lab.workloads = Some(Vec::new());
    assert_eq!(lab.run(), [] as [&str; 0]);
    assert_eq!(lab.restarted().run(), [] as [&str; 0]);
}

/// Shows W7: the election was deleted, its Job was kept, and it is applied again.
#[test]
fn the_job_that_an_earlier_election_left_is_off_and_gone_before_another_is_made() {
    let claim = WorkloadClaim {
        election: "web".into(),
        enabled: true,
        term: Term(26),
        writer: "another".into(),
        write: OpId(1),
        kept: Setting::Suspend(true),
    };
    // The Job of the very term that begins, and one of another.
    for name in ["migrate-1", "migrate-26"] {
        let mut lab = Lab::new(2);
        lab.jobs = vec![JobPlan { name: "migrate".into(), started: None }];
        let id = WorkloadId { kind: WorkloadKind::Job, name: name.into() };
        let left = Workload { id, claim: Some(claim.clone()), wish: Wish::Delete, ..lab.made(name) };
        lab.workloads = Some(vec![left.clone()]);
        let mut all = lab.run();
        lab.later(3);
        all.extend(lab.run());
        let at =
            |words: &str| all.iter().position(|found| found == words).unwrap_or_else(|| panic!("{words}: {all:#?}"));
        let deleted = at(&format!("DeleteJob Job/{name}"));
        assert!(at(&format!("Disable Job/{name} Suspend(true)")) < deleted, "{all:#?}");
        assert!(deleted < at("CreateJob Job/migrate-1") && at("CreateJob Job/migrate-1") < at("NoteJob migrate 1"));
        assert!(all.contains(&"Enable Job/migrate-1 Suspend(false)".into()), "{all:#?}");

        // Nobody leads, and it has ended: it goes all the same.
        let mut lab = Lab::new(2);
        lab.unready("p0");
        lab.unready("p1");
        lab.workloads = Some(vec![Workload { finished: true, ..left }]);
        let all = lab.run();
        assert!(all.contains(&format!("DeleteJob Job/{name}")), "{all:#?}");
    }
}

/// Whoever deletes the election may have said that what it owns is to be kept.
#[test]
fn the_job_of_an_election_that_goes_is_disabled_and_deleted() {
    let mut lab = Lab::new(2);
    lab.jobs = vec![JobPlan { name: "migrate".into(), started: None }];
    lab.run();
    lab.workload("migrate-1").wish = Wish::Delete;
    lab.desired = Desired::Withdraw;
    let mut all = lab.run();
    lab.later(3);
    all.extend(lab.run());
    let at = |words: &str| all.iter().position(|found| found == words).unwrap_or_else(|| panic!("{words}: {all:#?}"));
    assert!(at("Disable Job/migrate-1 Suspend(true)") < at("DeleteJob Job/migrate-1"), "{all:#?}");
    assert!(at("DeleteJob Job/migrate-1") < at("DeleteRecord"), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

/// Shows W8.
#[test]
fn what_there_is_no_right_to_holds_nothing_up() {
    let mut lab = cluster();
    for workload in lab.workloads.iter_mut().flatten() {
        workload.uid = uid("forbidden");
    }
    let all = lab.run();
    assert_eq!(*lab.election.situation(), Situation::Led, "{all:#?}");
    lab.cluster = Some(Err(Unavailable));
    let all = lab.run();
    assert!(all.contains(&"ReleaseRecord".into()), "{all:#?}");
}

#[test]
fn nothing_is_taken_or_let_go_of_before_the_workloads_are_known() {
    let mut lab = cluster();
    lab.workloads = None;
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("WriteRecord")), "{all:#?}");
}

#[test]
fn a_frozen_election_disables_what_it_enabled_when_the_lock_is_lost_and_touches_nothing_else() {
    let mut lab = cluster();
    lab.desired = Desired::Freeze;
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    assert_eq!(lab.run(), ["LedElsewhere east"]);
    let mut lab = leading();
    lab.desired = Desired::Freeze;
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    assert_eq!(lab.settings(), [Setting::Suspend(true), Setting::Replicas(0)]);
}

#[test]
fn after_the_store_was_put_back_whoever_leads_goes_on_and_nobody_else_begins() {
    let mut lab = leading();
    lab.policy.not_before = lab.now + Duration::from_secs(30);
    let mut lab = lab.restarted();
    assert_eq!(lab.run(), [] as [&str; 0]);
    assert_eq!(lab.settings(), [Setting::Suspend(false), Setting::Replicas(3)]);
    let mut lab = cluster();
    lab.policy.not_before = lab.now + Duration::from_secs(30);
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("WriteRecord")), "{all:#?}");
}

#[test]
fn a_lock_that_was_held_and_left_again_unseen_has_the_ticks_of_the_last_time() {
    let mut lab = cluster();
    lab.cluster = Some(Err(Unavailable));
    for tick in [60_000, 120_000] {
        lab.store(|version| Stored::Free(version, None, Some(obligation(true, &[("nightly", tick)]))));
        lab.run();
    }
    lab.cluster = Some(Ok(()));
    lab.run();
    assert_eq!(lab.workload("nightly").last_tick, Some(Timestamp(120_000)));
}

/// The operator's process begins to decide anew: its lock has another key, or it did not act for a while. What it sent before may
/// still be on its way.
fn begun_anew(mut lab: Lab, first: OpId) -> Lab {
    let stored = (lab.stored.version().unwrap_or_default(), lab.stored.clone().into());
    lab.election = Election::new("web".into(), uid("e"), "me".into(), Some(stored), first);
    lab.last_op = first;
    lab
}

#[test]
fn what_this_process_wrote_before_it_began_anew_does_not_count_as_its_stamp() {
    for far in [0, 1 << 32] {
        let mut lab = leading();
        lab.store(|version| Stored::HeldByOther(version, rival(None)));
        lab.run();
        let written = lab.workload("nightly").claim.as_ref().unwrap().write;
        let mut lab = begun_anew(lab, OpId(written.0 + far));
        lab.store(|version| Stored::HeldByOther(version, rival(None)));
        let all = lab.run();
        assert!(all.contains(&"Disable CronJob/nightly Suspend(true)".into()), "{all:#?}");
    }
}

#[test]
fn what_another_cluster_left_is_looked_at_anew_each_time_the_lock_is_free() {
    let mut lab = cluster();
    lab.cluster = Some(Err(Unavailable));
    lab.store(|version| Stored::Free(version, None, Some(obligation(true, &[("nightly", 60_000)]))));
    lab.run();
    // It is taken, and its session ends, while this cluster does not see Consul.
    lab.store(|version| Stored::Free(version, None, Some(obligation(false, &[]))));
    lab.cluster = Some(Ok(()));
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Enable")), "{all:#?}");
    assert_eq!(lab.election.workloads_wait(lab.now), Some(lab.now + Duration::from_secs(20)));
}

#[test]
fn a_record_that_is_written_before_the_workloads_are_known_keeps_what_it_says_of_them() {
    let mut lab = leading();
    lab.workloads = None;
    lab.cluster = Some(Err(Unavailable));
    lab.run();
    assert_eq!(lab.record().drain_obligation.unwrap().wind_down_seconds, 35);
}

#[test]
fn an_enabling_write_that_may_be_on_its_way_is_not_forgotten_for_a_later_one() {
    for later in [WorkloadOutcome::Failed(Failure::Refused("not any more".into())), WorkloadOutcome::Conflict] {
        let mut lab = leading();
        lab.store(|version| Stored::HeldByOther(version, rival(None)));
        lab.run();
        lab.store(|version| Stored::Free(version, None, None));
        let before = lab.workload("nightly").clone();
        lab.instead("Enable CronJob", Outcome::WorkloadWritten(WorkloadOutcome::Failed(Failure::Unknown("?".into()))));
        lab.run();
        *lab.workload("nightly") = before.clone();
        lab.later(1);
        lab.instead("Enable CronJob", Outcome::WorkloadWritten(later));
        lab.instead("Enable CronJob", Outcome::WorkloadWritten(WorkloadOutcome::Failed(Failure::Refused("no".into()))));
        lab.run();
        *lab.workload("nightly") = before;
        lab.store(|version| Stored::HeldByOther(version, rival(None)));
        let all = lab.run();
        assert!(all.contains(&"Disable CronJob/nightly Suspend(true)".into()), "{all:#?}");
    }
}

#[test]
fn who_lets_go_before_it_has_waited_leaves_the_waiting_to_the_next() {
    let mut lab = cluster();
    lab.store(|version| Stored::HeldByOther(version, rival(Some(obligation(false, &[])))));
    lab.run();
    lab.store(|version| Stored::Free(version, None, Some(obligation(false, &[]))));
    lab.run();
    lab.later(5);
    lab.cluster = Some(Err(Unavailable));
    assert_eq!(lab.run().last().unwrap(), "ReleaseRecord");
    let Stored::Free(_, Some(record), _) = lab.stored.clone() else { panic!("{:?}", lab.stored) };
    let left = record.drain_obligation.unwrap();
    assert!(left.ended);
    // A third cluster.
    let mut lab = cluster();
    lab.store(|version| Stored::Free(version, None, Some(left)));
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Enable")), "{all:#?}");
    lab.later(20);
    assert!(lab.run().iter().any(|words| words.starts_with("Enable")));
}

#[test]
fn what_was_waited_for_once_is_not_waited_for_again() {
    let mut lab = cluster();
    lab.store(|version| Stored::HeldByOther(version, rival(Some(obligation(false, &[])))));
    lab.run();
    lab.store(|version| Stored::Free(version, None, Some(obligation(false, &[]))));
    lab.run();
    lab.later(20);
    lab.run();
    assert_eq!(lab.record().drain_obligation.unwrap().waits_seconds, 0);
    let version = lab.next_version();
    let mut lab = lab.restarted();
    lab.workload("nightly").claim = None;
    lab.workload("nightly").version = version;
    assert!(lab.run().contains(&"Enable CronJob/nightly Suspend(false)".into()));
}

#[test]
fn a_lock_that_vanished_is_known_to_be_lost_elsewhere_only_later() {
    let mut lab = cluster();
    lab.policy.grace = Duration::from_secs(15);
    lab.store(|version| Stored::HeldByOther(version, rival(Some(obligation(false, &[])))));
    lab.run();
    lab.store(|_| Stored::Absent);
    lab.run();
    assert_eq!(lab.election.workloads_wait(lab.now), Some(lab.now + Duration::from_secs(35)));
}

#[test]
fn after_the_store_was_put_back_what_it_says_of_the_past_is_not_relied_on() {
    let mut lab = cluster();
    lab.policy.not_before = lab.now + Duration::from_secs(15);
    lab.store(|version| Stored::Free(version, None, Some(obligation(true, &[]))));
    lab.run();
    lab.later(15);
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Enable")), "{all:#?}");
    assert_eq!(lab.election.workloads_wait(lab.now), Some(lab.now + Duration::from_secs(35)));
}

#[test]
fn what_is_done_and_has_no_effect_is_not_done_again_and_again() {
    // Something strips the annotations.
    let mut lab = cluster();
    lab.strips = true;
    let all = lab.run();
    assert_eq!(all.iter().filter(|words| words.starts_with("Enable CronJob")).count(), 1, "{all:#?}");
    assert!(lab.election.wake().is_some());
    lab.cluster = Some(Err(Unavailable));
    lab.run();
    // Somebody else applies the annotations, too.
    let mut lab = leading();
    lab.strips = false;
    lab.keeps = true;
    for name in ["nightly", "worker"] {
        lab.workload(name).wish = Wish::Release { restore: true };
    }
    let all = lab.run();
    assert_eq!(all.iter().filter(|words| words.starts_with("Release CronJob")).count(), 1, "{all:#?}");
    assert!(lab.election.wake().is_some());
    // The watch of the Jobs does not work.
    let mut lab = leading();
    lab.lags = true;
    lab.workload("nightly").deletable = true;
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    let all = lab.run();
    assert_eq!(all.iter().filter(|words| words.starts_with("DeleteRunning")).count(), 1, "{all:#?}");
    // A Job by that name is another election's.
    let mut lab = Lab::new(1);
    lab.jobs = vec![JobPlan { name: "migrate".into(), started: None }];
    lab.lags = true;
    let all = lab.run();
    assert_eq!(all.iter().filter(|words| words.starts_with("CreateJob")).count(), 1, "{all:#?}");
}

#[test]
fn a_workload_that_can_not_be_written_does_not_delay_another() {
    let mut lab = leading();
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    lab.store(|version| Stored::Free(version, None, None));
    lab.cluster = Some(Err(Unavailable));
    lab.run();
    lab.cluster = Some(Ok(()));
    lab.workload("worker").uid = uid("forbidden");
    let nightly = lab.workloads.as_mut().unwrap().remove(0);
    for _ in 0..5 {
        lab.run();
        lab.later(20);
    }
    lab.run();
    lab.workloads.as_mut().unwrap().insert(0, nightly);
    assert!(lab.run().contains(&"Enable CronJob/nightly Suspend(false)".into()));
}

#[test]
fn what_could_not_be_enabled_is_disabled_before_the_lock_is_let_go_of() {
    let mut lab = cluster();
    lab.workloads.as_mut().unwrap().truncate(1);
    // Its own spec lets it run, and nobody has claimed it. To patch cronjobs.batch/status is not allowed, or there was no time left.
    lab.workload("nightly").uid = uid("forbidden");
    lab.run();
    lab.later(3);
    lab.workload("nightly").uid = uid("nightly");
    lab.cluster = Some(Err(Unavailable));
    for _ in 0..20 {
        let commands = lab.step();
        let words: Vec<String> = commands.iter().map(in_words).collect();
        let lets_go = |command: &Effect| match command {
            Effect::Request(_, Command::WriteRecord { record, .. }) => {
                record.drain_obligation.as_ref().is_some_and(|obligation| obligation.ended)
            }
            effect => matches!(effect, Effect::Request(_, Command::ReleaseRecord { .. })),
        };
        assert!(!commands.iter().any(lets_go) || !lab.workload("nightly").runs(), "{words:#?}");
        for (command, words) in commands.iter().zip(words) {
            if let Some((op, outcome)) = lab.answer(command, &words) {
                lab.election.take(op, outcome, lab.now);
            }
        }
    }
    assert!(matches!(lab.stored, Stored::Free(..)));
}

#[test]
fn what_there_is_no_right_to_does_not_keep_the_lock_while_it_runs() {
    let mut lab = cluster();
    for workload in lab.workloads.iter_mut().flatten() {
        (workload.uid, workload.remains) = (uid("forbidden"), true);
    }
    lab.run();
    lab.cluster = Some(Err(Unavailable));
    assert!(lab.run().contains(&"ReleaseRecord".into()));
}

#[test]
fn what_ends_is_looked_at_again_long_before_its_time_is_over() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    // A full minute: nobody tells when it is over.
    lab.workload("nightly").remains = true;
    lab.run();
    assert!(lab.election.winding_down().is_some());
    assert!(lab.election.wake().unwrap() <= lab.now + Duration::from_secs(1), "{:?}", lab.election.wake());
}

#[test]
fn an_operator_that_stops_does_not_leave_while_something_is_enabled() {
    let mut lab = leading();
    lab.desired = Desired::Leave;
    lab.workload("nightly").uid = uid("mute");
    lab.run();
    assert!(lab.election.is_unfinished());
    lab.workload("nightly").uid = uid("nightly");
    lab.later(1);
    assert_eq!(lab.run().last().unwrap(), "ReleaseRecord");
    assert!(!lab.election.is_unfinished());
}

/// Shows L6: what another replica enables until then is disabled again, and whether all has ended is asked after that.
#[test]
fn while_another_replica_may_act_it_is_not_said_that_all_has_ended() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    lab.alone_from = lab.now + Duration::from_secs(9);
    let all = lab.run();
    assert!(all.contains(&"Disable Deployment/worker Replicas(0)".into()), "{all:#?}");
    lab.later(8);
    lab.workload("worker").setting = Setting::Replicas(3);
    lab.workload("worker").version = Version(lab.workload("worker").version.0 + 1);
    let all = lab.run();
    assert!(all.contains(&"Disable Deployment/worker Replicas(0)".into()), "{all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("ReadWorkloads") || words == "ReleaseRecord"), "{all:#?}");
    lab.later(4);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("ReadWorkloads")), "{all:#?}");
    assert_eq!(all.last().unwrap(), "ReleaseRecord", "{all:#?}");
}

/// Shows L6.
#[test]
fn while_another_replica_may_act_nothing_is_enabled() {
    let mut lab = cluster();
    lab.alone_from = lab.now + Duration::from_secs(9);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("WriteRecord")), "it leads at once: {all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Enable")), "{all:#?}");
    assert_eq!(lab.election.wake(), Some(lab.alone_from));
    lab.later(9);
    assert!(lab.run().iter().any(|words| words.starts_with("Enable")));
}

#[test]
fn the_job_of_a_deleted_election_is_suspended_when_the_store_is_lost() {
    let mut lab = cluster();
    lab.workloads = Some(Vec::new());
    lab.jobs = vec![JobPlan { name: "migrate".into(), started: None }];
    lab.run();
    assert_eq!(lab.settings(), [Setting::Suspend(false)]);
    lab.desired = Desired::Withdraw;
    lab.jobs = Vec::new();
    lab.policy.validity = LockValidity::Lapsed;
    lab.instead("ReadElection", Outcome::ElectionRead(Ok(lab.present.clone())));
    lab.instead("ReadRecord", Outcome::RecordRead(Err(Failure::Unknown("no answer".into()))));
    lab.run();
    assert_eq!(lab.settings(), [Setting::Suspend(true)]);
}

#[test]
fn what_is_contested_is_told_for_half_a_minute_after_it_was_put_right() {
    let mut lab = leading();
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    assert_eq!(lab.election.contested_workloads(lab.now).count(), 0);
    let began = lab.now;
    lab.workload("worker").setting = Setting::Replicas(7);
    lab.run();
    let contested: Vec<String> = lab.election.contested_workloads(lab.now).map(ToString::to_string).collect();
    assert_eq!(contested, ["Deployment/worker"]);
    assert_eq!(lab.election.wake(), Some(began + Duration::from_secs(30)));
    lab.later(29);
    assert_eq!(lab.election.contested_workloads(lab.now).count(), 1);
    lab.later(1);
    assert_eq!(lab.election.contested_workloads(lab.now).count(), 0);
    lab.run();
    assert_eq!(lab.election.wake(), None);
    // From then on it is told anew.
    lab.workload("worker").setting = Setting::Replicas(7);
    assert!(lab.run().contains(&"Contested Deployment/worker".into()));
}

#[test]
fn it_is_unfinished_while_workloads_are_written_or_end() {
    let mut lab = leading();
    assert!(!lab.election.is_unfinished());
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    let sent = lab.step();
    assert!(!lab.election.is_busy() && lab.election.is_unfinished(), "they are written");
    for command in sent {
        if let Some((op, outcome)) = lab.answer(&command, &in_words(&command)) {
            lab.election.take(op, outcome, lab.now);
        }
    }
    lab.run();
    assert!(!lab.election.is_unfinished());

    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    lab.workload("worker").remains = true;
    lab.run();
    assert!(!lab.election.is_busy() && lab.election.is_unfinished(), "they end");
    lab.workload("worker").remains = false;
    lab.run();
    assert!(!lab.election.is_unfinished());
}

#[test]
fn what_still_runs_although_it_is_disabled_is_looked_at_again() {
    let mut lab = leading();
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.workload("worker").remains = true;
    lab.run();
    assert!(lab.election.wake().is_some_and(|wake| wake > lab.now && wake.since(lab.now) < Duration::from_secs(30)));
    lab.workload("worker").remains = false;
    lab.run();
    assert_eq!(lab.election.wake(), None);
}

#[test]
fn a_failure_is_told_for_as_long_as_the_workload_is_known() {
    let mut lab = leading();
    lab.workload("worker").uid = uid("mute");
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    assert_eq!(lab.election.workload_failures().len(), 1);
    lab.workloads.as_mut().unwrap().retain(|workload| workload.id.name != "worker");
    lab.run();
    assert_eq!(lab.election.workload_failures().len(), 0);
}

#[test]
fn what_is_amended_of_the_workloads_in_a_record_begins_no_term() {
    let mut lab = leading().restarted();
    let before = lab.record();
    lab.wind_down = 50;
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("WriteRecord")), "{all:#?}");
    let record = lab.record();
    assert_eq!((record.term, record.term_by_version, record.holder.clone()), (before.term, false, before.holder));
    assert_eq!((record.operator_id.as_str(), record.drain_obligation.unwrap().wind_down_seconds), ("other", 50));
}

#[test]
fn an_election_that_is_deleted_keeps_its_record_until_what_it_let_run_has_ended() {
    let mut lab = leading();
    lab.desired = Desired::Withdraw;
    lab.workload("nightly").wish = Wish::FollowTerm(Term(1));
    lab.workload("nightly").remains = true;
    let all = lab.run();
    assert!(!all.contains(&"DeleteRecord".to_owned()), "{all:#?}");
    assert_eq!(lab.election.winding_down(), Some(lab.now + Duration::from_secs(35)));
    lab.workload("nightly").remains = false;
    for _ in 0..3 {
        lab.workload("worker").wish = Wish::Release { restore: true };
        lab.run();
    }
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

#[test]
fn a_cluster_that_leads_has_the_failover_delay_to_recover() {
    let mut lab = leading();
    lab.failover_delay = Duration::from_secs(5);
    lab.cluster = Some(Err(Unavailable));
    assert_eq!(lab.run(), [] as [&str; 0]);
    let until = lab.now + Duration::from_secs(5);
    assert_eq!(*lab.election.situation(), Situation::Recovering(NotEligible::Unavailable, until));
    lab.later(5);
    assert!(lab.run().contains(&"Transition nobody Unavailable".to_owned()));
}

#[test]
fn while_the_workloads_are_not_known_a_record_does_not_say_that_they_have_ended() {
    let mut lab = super::shared(2);
    let ended = Record { drain_obligation: Some(obligation(true, &[("nightly", 60_000)])), ..lab.record() };
    lab.store(|version| Stored::Ours(version, ended));
    lab.workloads = None;
    lab.unready("p0");
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    assert_eq!(lab.record().drain_obligation, Some(obligation(false, &[("nightly", 60_000)])));
}

#[test]
fn what_is_given_back_as_it_is_stays_as_it_is() {
    let mut lab = leading();
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    for name in ["nightly", "worker"] {
        lab.workload(name).wish = Wish::Release { restore: false };
    }
    let all = lab.run();
    assert_eq!(
        all[..2],
        ["Release CronJob/nightly Suspend(true)", "Release Deployment/worker Replicas(0)"],
        "{all:#?}"
    );
}

#[test]
fn what_had_no_replicas_gets_one() {
    let mut lab = cluster();
    lab.workload("worker").setting = Setting::Replicas(0);
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    assert_eq!(lab.workload("worker").claim.as_ref().unwrap().kept, Setting::Replicas(0));
    lab.store(|version| Stored::Free(version, None, None));
    assert!(lab.run().contains(&"Enable Deployment/worker Replicas(1)".to_owned()));
}

#[test]
fn what_an_earlier_operator_may_just_have_let_run_is_waited_for_before_the_lock_is_let_go_of() {
    let mut lab = leading().restarted();
    lab.cluster = Some(Err(Unavailable));
    let all = lab.run();
    assert!(all.contains(&"Disable CronJob/nightly Suspend(true)".into()), "{all:#?}");
    assert!(!all.contains(&"ReleaseRecord".into()), "its controller may not have seen that: {all:#?}");
    lab.later(3);
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "ReleaseRecord", "{all:#?}");
}

#[test]
fn a_workload_that_is_made_again_by_the_same_name_may_just_have_been_let_run() {
    let mut lab = leading();
    let nightly = lab.workloads.as_mut().unwrap().remove(0);
    lab.run();
    let version = lab.next_version();
    lab.workloads.as_mut().unwrap().insert(0, Workload { uid: uid("another"), version, claim: None, ..nightly });
    lab.cluster = Some(Err(Unavailable));
    let all = lab.run();
    assert!(all.contains(&"Disable CronJob/nightly Suspend(true)".into()), "{all:#?}");
    assert!(!all.contains(&"ReleaseRecord".into()), "its controller may not have seen that: {all:#?}");
    lab.later(3);
    assert_eq!(lab.run().last().unwrap(), "ReleaseRecord");
}

/// Shows W9.
#[test]
fn a_workload_whose_annotations_were_removed_comes_back_as_it_was() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    lab.run();
    assert_eq!(lab.settings(), [Setting::Suspend(true), Setting::Replicas(0)]);
    let version = lab.next_version();
    for (name, noted) in [("nightly", Setting::Suspend(false)), ("worker", Setting::Replicas(3))] {
        let workload = lab.workload(name);
        (workload.claim, workload.noted, workload.version) = (None, Some(noted), version);
    }
    lab.later(3);
    lab.run();
    let kept = |workload: &Workload| workload.claim.as_ref().map(|claim| claim.kept);
    let kept: Vec<_> = lab.workloads.iter().flatten().map(kept).collect();
    assert_eq!(kept, [Some(Setting::Suspend(false)), Some(Setting::Replicas(3))]);
    lab.cluster = Some(Ok(()));
    lab.later(3);
    lab.run();
    assert_eq!(lab.settings(), [Setting::Suspend(false), Setting::Replicas(3)]);
}

/// Shows W10.
#[test]
fn a_workload_that_is_to_stay_as_it_is_is_not_written() {
    for (setting, claimed) in [(3, false), (3, true), (0, true)] {
        let mut lab = Lab::new(0);
        let (id, worker) = (WorkloadId { kind: WorkloadKind::Deployment, name: "worker".into() }, lab.made("worker"));
        let setting = Setting::Replicas(setting);
        let claim = WorkloadClaim {
            election: "web".into(),
            enabled: true,
            term: Term(1),
            writer: "before".into(),
            write: OpId(1),
            kept: Setting::Replicas(3),
        };
        let claim = Some(claim).filter(|_| claimed);
        lab.workloads = Some(vec![Workload { id, setting, claim, wish: Wish::Stay, ..worker }]);
        assert!(!lab.run().iter().any(|words| words.contains("worker")));
        // Once there is a candidate, it follows.
        lab.workload("worker").wish = Wish::Follow { replicas: None };
        assert!(lab.run().iter().any(|words| words.starts_with("Disable Deployment/worker")));
    }
}

#[test]
fn one_that_is_refused_gives_back_what_it_is_to_have_nothing_to_do_with_and_nothing_else() {
    let mut lab = leading();
    lab.cluster = Some(Err(Unavailable));
    lab.run();
    lab.desired = Desired::Refuse;
    lab.later(3);
    lab.run();
    assert_eq!(lab.settings(), [Setting::Suspend(true), Setting::Replicas(0)]);
    lab.workload("worker").wish = Wish::Release { restore: true };
    lab.later(3);
    lab.run();
    assert_eq!(lab.settings(), [Setting::Suspend(true), Setting::Replicas(3)]);
    assert!(lab.workload("worker").claim.is_none() && lab.workload("nightly").claim.is_some());
}

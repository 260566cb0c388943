//! How workloads are written: in which order, how often, and with what.

use super::workloads::{cluster, leading, obligation, rival};
use super::*;
use crate::{Setting, Wish, WorkloadId, WorkloadKind};

/// Goes on until one is asked for that begins with these words; returns all of that moment, and answers nothing of it.
fn until(lab: &mut Lab, begin: &str) -> Vec<Effect> {
    for _ in 0..20 {
        let commands = lab.step();
        if commands.iter().any(|command| in_words(command).starts_with(begin)) {
            return commands;
        }
        for command in &commands {
            if let Some((op, outcome)) = lab.answer(command, &in_words(command)) {
                lab.election.take(op, outcome, lab.now);
            }
        }
    }
    panic!("nobody asks for {begin}")
}

fn words(commands: &[Effect]) -> Vec<String> {
    commands.iter().map(in_words).collect()
}

#[test]
fn disabling_does_not_wait_for_what_becomes_of_an_enabling_write() {
    let mut lab = cluster();
    until(&mut lab, "Enable CronJob/nightly");
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    let sent = words(&lab.step());
    assert!(sent.contains(&"Disable CronJob/nightly Suspend(true)".to_owned()), "{sent:#?}");
    assert!(lab.step().is_empty(), "and is sent once");
}

#[test]
fn a_tick_is_handed_on_to_a_cronjob_alone_and_never_back() {
    for (last, expected) in [(None, true), (Some(30_000), true), (Some(60_000), false), (Some(90_000), false)] {
        let mut lab = cluster();
        let of_that_name = WorkloadId { kind: WorkloadKind::Deployment, name: "nightly".into() };
        lab.workloads.as_mut().unwrap()[1].id = of_that_name;
        lab.store(|version| Stored::HeldByOther(version, rival(None)));
        lab.run();
        lab.workload("nightly").last_tick = last.map(Timestamp);
        lab.store(|version| Stored::Free(version, None, Some(obligation(true, &[("nightly", 60_000)]))));
        let enabling = until(&mut lab, "Enable");
        let ticks = enabling.iter().filter_map(|command| match command {
            Effect::Request(_, Command::WriteWorkload(write)) => Some((write.id.kind, write.after_tick)),
            _ => None,
        });
        let tick = expected.then_some(Timestamp(60_000));
        let expected = [(WorkloadKind::CronJob, tick), (WorkloadKind::Deployment, None)];
        assert_eq!(ticks.collect::<Vec<_>>(), expected, "after {last:?}");
    }
}

#[test]
fn a_job_is_made_only_when_the_one_of_the_term_before_is_gone() {
    let mut lab = Lab::new(2);
    let plan = |name: &str| JobPlan { name: name.into(), started: None };
    lab.jobs = vec![plan("migrate"), plan("import")];
    lab.run();
    lab.workloads.as_mut().unwrap().retain(|job| job.id.name == "migrate-1");
    // Its deletion was asked for, and its pods still end.
    lab.workload("migrate-1").deleting = true;
    lab.unready("p0");
    let all = lab.run();
    assert!(all.contains(&"CreateJob Job/import-2".to_owned()), "{all:#?}");
    assert!(!all.contains(&"CreateJob Job/migrate-2".to_owned()), "{all:#?}");
    lab.workloads.as_mut().unwrap().retain(|job| job.id.name != "migrate-1");
    let all = lab.run();
    assert!(all.contains(&"CreateJob Job/migrate-2".to_owned()), "{all:#?}");
}

#[test]
fn a_job_is_asked_for_once() {
    let mut lab = Lab::new(1);
    lab.jobs = vec![JobPlan { name: "migrate".into(), started: None }];
    until(&mut lab, "CreateJob Job/migrate-1");
    assert_eq!(words(&lab.step()), NOTHING, "the answer is awaited");
}

#[test]
fn a_failure_is_not_told_any_more_when_there_is_nothing_left_to_do() {
    let mut lab = leading();
    lab.workload("worker").uid = uid("mute");
    lab.workload("worker").wish = Wish::Release { restore: true };
    lab.run();
    assert_eq!(lab.election.workload_failures().len(), 1);
    // Somebody takes the annotations off.
    lab.workload("worker").claim = None;
    lab.run();
    assert_eq!(lab.election.workload_failures().len(), 0);
}

/// An election that leads and is deleted.
fn deleted() -> Lab {
    let mut lab = leading();
    lab.desired = Desired::Withdraw;
    for name in ["nightly", "worker"] {
        lab.workload(name).wish = Wish::Release { restore: true };
    }
    lab
}

#[test]
fn an_election_that_is_deleted_keeps_its_lock_until_its_workloads_are_given_back() {
    let mut lab = deleted();
    lab.workload("worker").uid = uid("mute");
    let all = lab.run();
    assert!(!all.iter().any(|words| words.contains("Record") && words != "ReadRecord"), "{all:#?}");
    lab.workload("worker").uid = uid("worker");
    lab.later(1);
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "DeleteRecord", "{all:#?}");
    assert!(lab.workloads.iter().flatten().all(|workload| workload.claim.is_none()));
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

#[test]
fn what_may_not_be_given_back_does_not_keep_an_election_from_being_deleted() {
    let mut lab = deleted();
    lab.workload("worker").uid = uid("forbidden");
    let all = lab.run();
    assert!(all.contains(&"Release CronJob/nightly Suspend(false)".to_owned()), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::Withdrawn, "{all:#?}");
}

#[test]
fn a_number_that_is_kept_survives_a_restart() {
    let mut lab = leading();
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.run();
    let version = lab.workload("worker").version;
    let mut lab = lab.restarted();
    lab.run();
    assert!(lab.workload("worker").version > version, "it is stamped anew");
    assert_eq!(lab.workload("worker").claim.as_ref().unwrap().kept, Setting::Replicas(3));
}

#[test]
fn what_lets_a_workload_run_is_wanted_only_while_this_cluster_leads() {
    let mut lab = cluster();
    let commands = until(&mut lab, "Enable CronJob/nightly");
    let enabling = commands.iter().find(|command| in_words(command).starts_with("Enable CronJob/nightly"));
    let op = enabling.and_then(Effect::op).unwrap();
    assert!(lab.election.wants(op));
    // Also if what disables it has to wait.
    let id = WorkloadId { kind: WorkloadKind::CronJob, name: "nightly".into() };
    let (owner, now) = (Backoff::new("e"), lab.now);
    lab.election.workloads.down.entry(id).or_insert(owner).delay(now);
    lab.store(|version| Stored::HeldByOther(version, rival(None)));
    lab.step();
    assert!(!lab.election.wants(op));
}

#[test]
fn what_lets_a_workload_run_is_not_wanted_when_the_lock_of_a_deleted_election_is_lost() {
    let mut lab = cluster();
    let commands = until(&mut lab, "Enable CronJob/nightly");
    let op = commands.iter().find(|command| in_words(command).starts_with("Enable")).and_then(Effect::op).unwrap();
    lab.desired = Desired::Withdraw;
    lab.policy.validity = LockValidity::Lapsed;
    lab.step();
    assert!(!lab.election.wants(op));
}

#[test]
fn of_what_is_under_way_with_workloads_only_what_lets_one_run_has_to_be_wanted() {
    let mut lab = leading();
    lab.workload("nightly").claim = None;
    lab.workload("worker").wish = Wish::Release { restore: false };
    let commands = until(&mut lab, "Enable CronJob/nightly");
    let op = |begin: &str| {
        let found = commands.iter().find(|command| in_words(command).starts_with(begin));
        found.and_then(Effect::op).unwrap_or_else(|| panic!("{:?}", words(&commands)))
    };
    assert!(lab.election.wants(op("Enable CronJob/nightly")));
    assert!(!lab.election.wants(op("Release Deployment/worker")), "it lets nothing run");
    // With one under way, no other is taken for it.
    let (mut lab, id) = (cluster(), WorkloadId { kind: WorkloadKind::CronJob, name: "nightly".into() });
    lab.workloads.as_mut().unwrap().retain(|workload| workload.id == id);
    let commands = until(&mut lab, "Enable CronJob/nightly");
    let op = commands.iter().filter_map(Effect::op).max().unwrap();
    assert!(lab.election.wants(op) && !lab.election.wants(OpId(op.0 + 1)));
}

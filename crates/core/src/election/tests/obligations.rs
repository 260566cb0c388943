//! What is left with a lock for whoever has it next.

use super::workloads::{cluster, leading, obligation, rival};
use super::*;
use crate::DrainObligation;

fn enables(all: &[String]) -> bool {
    all.iter().any(|words| words.starts_with("Enable"))
}

#[test]
fn after_the_store_was_put_back_a_lock_that_vanishes_does_not_take_along_what_it_said() {
    let mut lab = cluster();
    lab.policy.not_before = lab.now + Duration::from_secs(15);
    let left = DrainObligation { wind_down_seconds: 50, ..obligation(false, &[("nightly", 60_000)]) };
    lab.store(|version| Stored::Free(version, None, Some(left)));
    lab.run();
    lab.store(|_| Stored::Absent);
    lab.run();
    lab.later(15);
    assert!(!enables(&lab.run()));
    assert_eq!(lab.election.workloads_wait(lab.now), Some(lab.now + Duration::from_secs(50)));
    assert!(lab.record().drain_obligation.unwrap().ticks["nightly"] >= Timestamp(60_000));
}

#[test]
fn after_the_store_was_put_back_others_are_waited_for_even_where_the_lock_was_its_own() {
    let mut lab = leading();
    let record = lab.record();
    lab.policy.not_before = lab.now + Duration::from_secs(15);
    let mut lab = lab.restarted();
    lab.store(|version| Stored::Free(version, Some(record), None));
    lab.run();
    lab.later(15);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("WriteRecord")) && !enables(&all), "{all:#?}");
    assert_eq!(lab.election.workloads_wait(lab.now), Some(lab.now + Duration::from_secs(35)));
    lab.later(35);
    assert!(enables(&lab.run()));
}

/// Shows W6.
#[test]
fn a_tick_that_was_run_is_in_the_record_before_the_lock_is_lost() {
    let mut lab = leading();
    lab.workload("nightly").last_tick = Some(Timestamp(60_000));
    let term = lab.record().term;
    assert_eq!(lab.run(), [format!("WriteRecord {term} cluster")]);
    assert_eq!(lab.record().drain_obligation.unwrap().ticks["nightly"], Timestamp(60_000));
    assert_eq!(lab.record().term, term);
    assert_eq!(lab.run(), [""; 0]);
    lab.workload("worker").last_tick = None;
    assert_eq!(lab.run(), [""; 0]);
}

#[test]
fn a_cluster_that_let_all_end_before_its_lock_vanished_is_not_waited_for() {
    let mut lab = cluster();
    lab.policy.grace = Duration::from_secs(15);
    let nobody = Rival { holder: None, ..rival(Some(obligation(true, &[]))) };
    lab.store(|version| Stored::HeldByOther(version, nobody));
    lab.run();
    lab.store(|_| Stored::Absent);
    assert!(enables(&lab.run()));
}

#[test]
fn when_others_must_have_seen_that_the_store_was_put_back_nobody_is_waited_for() {
    let mut lab = cluster();
    lab.policy.not_before = lab.now;
    assert!(enables(&lab.run()));
}

/// Shows W5: whoever may write the lock's key can write any number there.
#[test]
fn a_record_keeps_workloads_off_for_an_hour_at_most_and_cron_jobs_too() {
    let forged = |wind_down_seconds, waits_seconds| DrainObligation {
        wind_down_seconds,
        waits_seconds,
        ..obligation(false, &[("nightly", i64::MAX)])
    };
    for left in [forged(u32::MAX, 0), forged(20, u32::MAX)] {
        let mut lab = cluster();
        lab.store(|version| Stored::Free(version, None, Some(left)));
        assert!(!enables(&lab.run()));
        assert_eq!(lab.election.workloads_wait(lab.now), Some(lab.now + Duration::from_secs(3_600)));
        let written = lab.record().drain_obligation.unwrap();
        assert_eq!(written.waits_seconds, 3_600);
        assert!(written.ticks["nightly"] <= Timestamp(3_600_007), "{written:?}");
        lab.later(3_600);
        assert!(enables(&lab.run()));
    }
}

/// The same of what somebody writes into the record that this cluster holds.
#[test]
fn the_own_record_keeps_workloads_off_for_an_hour_at_most() {
    let lab = leading();
    let mut record = lab.record();
    record.drain_obligation = Some(DrainObligation { waits_seconds: u32::MAX, ..obligation(false, &[]) });
    let mut lab = lab.restarted();
    lab.store(|version| Stored::Ours(version, record));
    lab.run();
    assert!(lab.record().drain_obligation.is_some_and(|written| written.waits_seconds <= 3_600));
    lab.later(3_600);
    lab.run();
    assert_eq!(lab.election.workloads_wait(lab.now), None);
}

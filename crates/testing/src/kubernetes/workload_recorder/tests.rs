//! Tests that break each promise once, in small records made by hand, and tests of allowed records.

use super::*;

const WEST: usize = 0;
const EAST: usize = 1;

/// A sequence of revisions.
#[derive(Default)]
struct Story(Vec<(usize, Seen)>);

impl Story {
    fn see(&mut self, side: usize, key: &str, mut object: Value, deleted: bool) -> &mut Self {
        let (kind, _) = key.split_once('/').expect("kind and name");
        object["kind"] = json!(kind);
        object["metadata"]["uid"] = json!(format!("{side} {key}"));
        let version = u64::try_from(self.0.len()).expect("a short story") + 1;
        self.0.push((side, Seen { version, key: key.into(), object, deleted, at: Instant::now() }));
        self
    }

    /// Adds a Deployment that an election claims.
    fn deployment(&mut self, side: usize, replicas: u32, term: &str) -> &mut Self {
        let annotations = json!({ENABLED: (replicas > 0).to_string(), "lictor.dev/term": term});
        let object = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}});
        self.see(side, "Deployment/live", object, false)
    }

    /// Adds one of its pods.
    fn pod(&mut self, side: usize, phase: &str, deleted: bool) -> &mut Self {
        let object = json!({"metadata": {"ownerReferences": [{"name": "live"}]}, "status": {"phase": phase}});
        self.see(side, "Pod/live-0", object, deleted)
    }

    fn enabled(&self) -> Result<(), String> {
        never_both_enabled(&self.0, &(0..0))
    }

    fn broken(&self) -> String {
        self.enabled().expect_err("a breach")
    }
}

#[test]
fn a_handover_in_order_breaks_nothing() {
    let mut story = Story::default();
    story.deployment(WEST, 2, "1").pod(WEST, "Running", false).deployment(WEST, 0, "1").pod(WEST, "Running", true);
    story.deployment(EAST, 2, "2").pod(EAST, "Running", false).deployment(EAST, 3, "2");
    assert_eq!((story.enabled(), never_both_run(&story.0, 0)), (Ok(()), Ok(())));
}

#[test]
fn what_is_enabled_in_both_is_a_breach() {
    let mut story = Story::default();
    story.deployment(WEST, 2, "1").deployment(EAST, 2, "2").deployment(WEST, 0, "1");
    assert!(story.broken().starts_with("enabled in several clusters at 2"));
    assert_eq!(never_both_enabled(&story.0, &(2..3)), Ok(()), "at this version it was excepted");
    never_both_enabled(&story.0, &(3..9)).expect_err("at another one");
    // Another kind of workload counts, too, and ending it does not disable the first one.
    let mut story = Story::default();
    let claimed = json!({"annotations": {ENABLED: "true", "lictor.dev/term": "2"}});
    story.deployment(WEST, 2, "1");
    story.see(EAST, "CronJob/report", json!({"metadata": claimed, "spec": {"suspend": false}}), false);
    assert!(story.broken().starts_with("enabled in several clusters at 2"));
}

#[test]
fn what_no_election_has_or_what_has_ended_is_not_enabled() {
    let mut story = Story::default();
    story.see(WEST, "Deployment/other", json!({"metadata": {}, "spec": {"replicas": 1}}), false);
    let claimed = json!({"annotations": {ENABLED: "true", "lictor.dev/term": "1"}});
    let ended = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    story.see(WEST, "Job/once", json!({"metadata": claimed, "spec": {"suspend": false}, "status": ended}), false);
    story.deployment(EAST, 2, "2");
    assert_eq!(story.enabled(), Ok(()));
}

#[test]
fn the_term_rises_from_one_cluster_to_the_other() {
    for term in ["1", "2"] {
        let mut story = Story::default();
        story.deployment(WEST, 2, "2").deployment(WEST, 0, "2").deployment(EAST, 2, term);
        assert!(story.broken().starts_with("the term does not rise"), "{term}");
    }
    let mut story = Story::default();
    story.deployment(WEST, 2, "");
    assert!(story.broken().starts_with("enabled without a term"));
}

#[test]
fn pods_that_run_in_both_are_a_breach_from_a_version_on() {
    let mut story = Story::default();
    story.pod(WEST, "Running", false).pod(EAST, "Pending", false);
    assert!(never_both_run(&story.0, 2).expect_err("a breach").starts_with("pods in several clusters at 2"));
    assert_eq!(never_both_run(&story.0, 3), Ok(()));
    // A pod that has ended does not run.
    for (phase, deleted) in [("Succeeded", false), ("Failed", false), ("Running", true)] {
        let mut story = Story::default();
        story.pod(WEST, "Running", false).pod(WEST, phase, deleted).pod(EAST, "Running", false);
        assert_eq!(never_both_run(&story.0, 0), Ok(()));
    }
}

//! The output of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::checker::{Verdict, Violation, check, led_within};
use super::record::{Kind, Line, read};
use super::recorder::Book;
use super::world::World;

/// A run, for its reports.
#[derive(Clone)]
pub struct Report {
    pub minutes: f64,
    pub seed: u64,
    pub directory: PathBuf,
}

impl Report {
    /// Returns the path of the record.
    pub fn record(&self) -> PathBuf {
        self.directory.join("record.jsonl")
    }

    pub fn begins(&self) {
        eprintln!(
            "torture: {} minutes, SEED={}, record and logs in {}",
            self.minutes,
            self.seed,
            self.directory.display()
        );
    }

    /// Prints a line every ten seconds, until it is cancelled.
    pub async fn progress(self, world: Arc<World>, carried_out: Arc<AtomicUsize>, began: Instant) {
        loop {
            tokio::time::sleep(Duration::from_secs(10)).await;
            world.book.flush();
            let unsettled = world.unsettled();
            let (seconds, faults) = (began.elapsed().as_secs(), carried_out.load(Ordering::Relaxed));
            eprintln!(
                "torture: {:2}:{:02}  {faults} faults, {} groups are not settled",
                seconds / 60,
                seconds % 60,
                unsettled.len()
            );
        }
    }

    /// Judges the record so far, and shows the violations that were not shown before.
    pub fn judge(&self, book: &Book, shown: usize) -> Verdict {
        book.flush();
        let lines = read(&self.record());
        let verdict = check(&lines);
        eprintln!("torture: so far {}", summary(&verdict));
        self.show(&lines, verdict.violations.get(shown..).unwrap_or_default());
        verdict
    }

    /// Judges an existing record. Panics if a promise was broken.
    pub fn judges_again(&self, record: &Path) {
        let lines = read(record);
        let verdict = check(&lines);
        self.show(&lines, &verdict.violations);
        counts(&verdict);
        assert_eq!(verdict.violations, []);
    }

    /// Shows the violations, each with the last lines about its group and about faults.
    fn show(&self, lines: &[Line], violations: &[Violation]) {
        if violations.is_empty() {
            return;
        }
        for violation in violations.iter().take(5) {
            eprintln!("\n--- at {} ms, {}: {}", violation.at, violation.group, violation.text);
            let before = lines.iter().take_while(|line| line.at <= violation.at);
            let texts: Vec<String> = before.map(|line| serde_json::to_string(line).expect("JSON")).collect();
            for of in [format!("\"{}", violation.group), format!("/{}", violation.group), "\"fault\"".to_owned()] {
                let own: Vec<&String> = texts.iter().filter(|text| text.contains(&of)).collect();
                own.iter().skip(own.len().saturating_sub(25)).for_each(|text| eprintln!("{text}"));
            }
        }
        eprintln!("\nSEED={}; the record and the operators' logs: {}", self.seed, self.directory.display());
    }

    /// Prints the counts of the whole run.
    pub fn ends(&self, began: Instant, verdict: &Verdict) {
        eprintln!("torture: SEED={}, {:.1} minutes", self.seed, began.elapsed().as_secs_f64() / 60.0);
        counts(verdict);
    }
}

/// Prints all counts.
fn counts(verdict: &Verdict) {
    eprintln!("torture: {}", summary(verdict));
    eprintln!(
        "judged between clusters for {:.0} s of {:.0} s; in the others the documents except one of them",
        seconds(verdict.judged),
        seconds(verdict.lasted)
    );
    for (kind, count) in &verdict.faults {
        eprintln!("  {count:5}  {kind}");
    }
    eprintln!(
        "longest time without a leader although somebody could lead, by group: at all; while all works (at most {:.0} s with a Lease, \
         {:.0} s with Consul)",
        seconds(led_within(Kind::Leases)),
        seconds(led_within(Kind::Consul)),
    );
    for (group, (longest, judged)) in &verdict.vacancies {
        eprintln!("  {:6.1} s {:6.1} s  {group}", seconds(*longest), seconds(*judged));
    }
    for excuse in verdict.excuses.iter().take(10) {
        eprintln!("excused at {} ms, {}: {}", excuse.at, excuse.group, excuse.text);
    }
}

fn summary(verdict: &Verdict) -> String {
    let Verdict { groups, leaderships, pod_revisions, lock_versions, slice_revisions, calms, .. } = verdict;
    let Verdict { switches, planned_switches, failovers, sessions_made, sessions_lost, .. } = verdict;
    let Verdict { switchovers, switchovers_across, switchovers_failed, .. } = verdict;
    let faults: usize = verdict.faults.values().sum();
    format!(
        "{faults} faults, {calms} calms, {groups} groups, {leaderships} leaderships, {pod_revisions} pod revisions, {lock_versions} lock versions, \
         {slice_revisions} revisions of slices, {switches} switches of a Service, {planned_switches} of them planned, {failovers} failovers of \
         an operator, {switchovers} Switchovers complete, {switchovers_across} of them to another cluster, and {switchovers_failed} failed, \
         {sessions_made} sessions made and {sessions_lost} ended, {} excuses, {} violations",
        verdict.excuses.len(),
        verdict.violations.len()
    )
}

#[allow(clippy::cast_precision_loss, reason = "short times")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

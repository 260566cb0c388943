//! Runs what is simulated, seed by seed. A failure is shown with as few faults as it takes.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// How many seeds there are, where nobody says so.
const SEEDS: u64 = 2_000;
/// How often a failure is run again with fewer faults.
const ATTEMPTS: usize = 200;

/// What came of a seed.
pub trait Outcome {
    /// What went wrong.
    fn failure(&self) -> Option<&str>;
    /// What happened, in order.
    fn history(&self) -> &[String];
}

/// Something that is simulated.
pub struct Simulation<F, R> {
    /// Draws the faults of a seed.
    pub faults_of: fn(u64) -> Vec<F>,
    /// Runs a seed with these faults, and keeps its history if it is to.
    pub run: fn(u64, &[F], bool) -> R,
}

/// How many seeds there are.
pub fn seeds() -> u64 {
    number("LICTOR_SEEDS").unwrap_or(SEEDS)
}

/// A number in an environment variable.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// What kind of failure it is, whatever the numbers.
pub fn kind(failure: &str) -> String {
    failure.chars().filter(|c| !c.is_ascii_digit()).take(24).collect()
}

impl<F: Clone + Display + Sync, R: Outcome> Simulation<F, R> {
    /// Runs all seeds, or the one that `LICTOR_SEED` names, which is shown. Returns how many there were, and how many seconds they took.
    /// Panics with the first failure.
    pub fn check(&self, take: impl Fn(&R) + Sync) -> Option<(u64, f64)> {
        if let Some(seed) = number("LICTOR_SEED") {
            self.show(seed);
            return None;
        }
        let (seeds, failed, begun) = (seeds(), AtomicU64::new(u64::MAX), Instant::now());
        self.all(seeds, |seed, report| {
            if let Some(failure) = report.failure() {
                eprintln!("LICTOR_SEED={seed}: {failure}");
            }
            let failure = report.failure().is_some();
            if failure {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
            take(report);
            !failure
        });
        let failed = failed.into_inner();
        if failed != u64::MAX {
            self.show(failed);
            panic!("LICTOR_SEED={failed} failed, and does not when it is run again");
        }
        Some((seeds, begun.elapsed().as_secs_f64()))
    }

    /// Runs all seeds up to this one, for as long as `take` says so.
    pub fn all(&self, seeds: u64, take: impl Fn(u64, &R) -> bool + Sync) {
        let (next, goes_on) = (AtomicU64::new(0), AtomicBool::new(true));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
                scope.spawn(|| {
                    while goes_on.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds {
                            return;
                        }
                        if !take(seed, &(self.run)(seed, &(self.faults_of)(seed), false)) {
                            goes_on.store(false, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
    }

    /// Runs a seed, and shows its failure with as few faults as it takes.
    fn show(&self, seed: u64) {
        let all = (self.faults_of)(seed);
        let report = (self.run)(seed, &all, true);
        let Some(failure) = report.failure().map(str::to_owned) else {
            println!("LICTOR_SEED={seed}: nothing wrong\n{}", report.history().join("\n"));
            return;
        };
        let (faults, report) = self.shrink(seed, all, report, &failure);
        let listed: Vec<String> = faults.iter().map(ToString::to_string).collect();
        panic!(
            "LICTOR_SEED={seed}: {failure}\n\n{}\n\nThe faults that it takes:\n{}\nLICTOR_SEED={seed}: {}",
            report.history().join("\n"),
            listed.join("\n"),
            report.failure().unwrap_or_default(),
        );
    }

    /// Leaves out faults for as long as it still fails (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
    /// 2002).
    fn shrink(&self, seed: u64, mut faults: Vec<F>, mut report: R, failure: &str) -> (Vec<F>, R) {
        let (mut chunk, mut attempts) = (faults.len().div_ceil(2), 0);
        while chunk > 0 && attempts < ATTEMPTS {
            let mut start = 0;
            while start < faults.len() && attempts < ATTEMPTS {
                let fewer: Vec<F> = faults
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| !(start..start + chunk).contains(at))
                    .map(|(_, f)| f.clone())
                    .collect();
                let again = (self.run)(seed, &fewer, true);
                attempts += 1;
                if again.failure().is_some_and(|again| kind(again) == kind(failure)) {
                    (faults, report) = (fewer, again);
                } else {
                    start += chunk;
                }
            }
            chunk /= 2;
        }
        (faults, report)
    }
}

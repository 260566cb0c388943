//! The operator's real loop, with kube's real client, over simulated API servers, a simulated Consul and simulated clocks, in
//! virtual time. A seed decides everything, so a failure can be run again; it is shown with as few faults as it takes.
//!
//!     make simulate SEEDS=100000
//!     LICTOR_SEED=17 cargo test --test simulation     one seed

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod contracts;
mod controllers;
mod exchanges;
mod excuse;
mod faults;
mod judge;
mod log;
mod process;
mod run;
mod servers;
mod totals;
mod users;
mod words;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use faults::Fault;
use run::{Report, faults_of, run};
use totals::Totals;

const SEEDS: u64 = 2_000;
/// How often a failure is run again with fewer faults.
const ATTEMPTS: usize = 200;

#[test]
fn whatever_goes_wrong_no_group_has_two_leaders_and_each_has_one_in_the_end() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(seed) = number("LICTOR_SEED") {
        return show(seed);
    }
    let seeds = number("LICTOR_SEEDS").unwrap_or(SEEDS);
    let (failed, totals, begun) = (AtomicU64::new(u64::MAX), Mutex::new(Totals::default()), Instant::now());
    all(seeds, |seed, report| {
        if report.failure.is_some() {
            failed.fetch_min(seed, Ordering::Relaxed);
        }
        totals.lock().unwrap().add(report);
        report.failure.is_none()
    });
    let failed = failed.into_inner();
    if failed != u64::MAX {
        return show(failed);
    }
    let totals = totals.into_inner().unwrap();
    println!("{seeds} seeds in {:.1} s: {totals}", begun.elapsed().as_secs_f64());
    totals.assert_enough(seeds);
}

#[test]
#[ignore = "a survey of all failures, for whoever works on it"]
fn survey() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let seeds = number("LICTOR_SEEDS").unwrap_or(SEEDS);
    let found = Mutex::new(BTreeMap::<String, Vec<u64>>::new());
    all(seeds, |seed, report| {
        if let Some(failure) = &report.failure {
            found.lock().unwrap().entry(kind(failure)).or_default().push(seed);
        }
        true
    });
    for (failure, seeds) in found.into_inner().unwrap() {
        println!("{} × {failure}: {seeds:?}", seeds.len());
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs all seeds up to this one, for as long as `take` says so.
fn all(seeds: u64, take: impl Fn(u64, &Report) -> bool + Sync) {
    let (next, goes_on) = (AtomicU64::new(0), AtomicBool::new(true));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while goes_on.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    if !take(seed, &run(seed, &faults_of(seed), false)) {
                        goes_on.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// What kind of failure it is, whatever the numbers.
fn kind(failure: &str) -> String {
    failure.chars().filter(|c| !c.is_ascii_digit()).take(24).collect()
}

/// Runs a seed, and shows its failure with as few faults as it takes.
fn show(seed: u64) {
    let all = faults_of(seed);
    let report = run(seed, &all, true);
    let Some(failure) = report.failure.clone() else {
        println!("LICTOR_SEED={seed}: nothing wrong\n{}", report.history.join("\n"));
        return;
    };
    let (faults, report) = shrink(seed, all, report, &failure);
    let listed: Vec<String> = faults.iter().map(ToString::to_string).collect();
    panic!(
        "LICTOR_SEED={seed}: {failure}\n\n{}\n\nThe faults that it takes:\n{}\nLICTOR_SEED={seed}: {}",
        report.history.join("\n"),
        listed.join("\n"),
        report.failure.as_deref().unwrap_or_default(),
    );
}

/// Leaves out faults for as long as it still fails (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
/// 2002).
fn shrink(seed: u64, mut faults: Vec<Fault>, mut report: Report, failure: &str) -> (Vec<Fault>, Report) {
    let (mut chunk, mut attempts) = (faults.len().div_ceil(2), 0);
    while chunk > 0 && attempts < ATTEMPTS {
        let mut start = 0;
        while start < faults.len() && attempts < ATTEMPTS {
            let fewer: Vec<Fault> = faults
                .iter()
                .enumerate()
                .filter(|(at, _)| !(start..start + chunk).contains(at))
                .map(|(_, f)| f.clone())
                .collect();
            let again = run(seed, &fewer, true);
            attempts += 1;
            if again.failure.as_deref().is_some_and(|again| kind(again) == kind(failure)) {
                (faults, report) = (fewer, again);
            } else {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    (faults, report)
}

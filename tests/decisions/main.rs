//! The real core in a world that goes wrong: operators with stale caches, late writers, lost answers, crashes, and people who
//! edit what they should not. A seed decides everything, so a failure can be run again.
//!
//!     LICTOR_SEEDS=100000 cargo test --test decisions      that many seeds
//!     LICTOR_SEED=17 cargo test --test decisions           one seed

#![allow(clippy::panic, reason = "a test fails by panicking")]

mod clusters;
mod operator;
#[path = "../support/prng.rs"]
mod prng;
mod run;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

/// How much of a failed run is printed.
const SHOWN: usize = 400;

/// Runs a seed: what went wrong, and what happened until then.
type Run = fn(seed: u64, keep: bool) -> Result<(), (String, Vec<String>)>;

#[test]
fn no_fault_makes_two_leaders_and_calm_makes_one() {
    all(run::run, 2_000);
}

#[test]
fn no_fault_lets_a_workload_run_in_two_clusters_and_calm_lets_it_run_in_one() {
    all(clusters::run, 300);
}

fn all(run: Run, seeds: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("LICTOR_SEED") {
        return fail_with_history(run, seed);
    }
    let seeds = number("LICTOR_SEEDS").unwrap_or(seeds);
    let next = AtomicU64::new(0);
    let failed = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while failed.load(Ordering::Relaxed) == u64::MAX {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    if !matches!(std::panic::catch_unwind(|| run(seed, false)), Ok(Ok(()))) {
                        failed.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    if failed != u64::MAX {
        fail_with_history(run, failed);
    }
}

fn fail_with_history(run: Run, seed: u64) {
    if let Err((failure, history)) = run(seed, true) {
        let shown = history.iter().enumerate().skip(history.len().saturating_sub(SHOWN));
        let shown = shown.map(|(at, line)| format!("{at:5} {line}")).collect::<Vec<_>>().join("\n");
        panic!("LICTOR_SEED={seed}: {failure}\n{shown}\nLICTOR_SEED={seed}: {failure}");
    }
}

#[test]
#[ignore = "a survey of all failures, for whoever works on the core"]
fn survey() {
    let seeds = std::env::var("LICTOR_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let next = AtomicU64::new(0);
    let found = std::sync::Mutex::new(std::collections::BTreeMap::<String, Vec<u64>>::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let failure = match std::panic::catch_unwind(|| run::run(seed, false)) {
                        Ok(Ok(())) => continue,
                        Ok(Err((failure, _))) => failure,
                        Err(_) => "panic".into(),
                    };
                    let key: String = failure.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
                    found.lock().unwrap().entry(key).or_default().push(seed);
                }
            });
        }
    });
    for (failure, seeds) in found.into_inner().unwrap() {
        println!("{} × {failure}: {:?}", seeds.len(), &seeds[..seeds.len().min(6)]);
    }
}

//! The operator's real loop, with kube's real client, over simulated API servers, a simulated Consul or bucket and simulated
//! clocks, in virtual time; and the real loops of agents and their watchdogs, over the same servers (`agents/`). A seed decides everything, so a
//! failure can be run again; it is shown with as few faults as it takes.
//!
//!     make simulate SEEDS=100000
//!     LICTOR_SEED=17 cargo test --test simulation     one seed

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod adversities;
mod agents;
mod contracts;
mod controllers;
mod exchanges;
mod excuse;
mod faults;
mod judge;
mod log;
mod mill;
mod operator;
mod process;
mod programs;
mod run;
mod scale;
mod seeds;
mod servers;
mod shared;
mod totals;
mod users;
mod words;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;

use run::{Report, faults_of, run};
use seeds::{Simulation, seeds};
use totals::Totals;

const OPERATOR: Simulation<faults::Fault, Report> = Simulation { faults_of, run };

#[test]
fn whatever_goes_wrong_no_group_has_two_leaders_and_each_has_one_in_the_end() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let totals = Mutex::new(Totals::default());
    if let Some((seeds, time)) = OPERATOR.check(|report| totals.lock().unwrap().add(report)) {
        let totals = totals.into_inner().unwrap();
        println!("{seeds} seeds in {time:.1} s: {totals}");
        totals.assert_enough(seeds);
    }
}

#[test]
#[ignore = "a survey of all failures, for whoever works on it"]
fn survey() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let found = Mutex::new(BTreeMap::<String, Vec<u64>>::new());
    OPERATOR.all(seeds(), |seed, report| {
        if let Some(failure) = &report.failure {
            found.lock().unwrap().entry(seeds::kind(failure)).or_default().push(seed);
        }
        true
    });
    for (failure, seeds) in found.into_inner().unwrap() {
        println!("{} × {failure}: {seeds:?}", seeds.len());
    }
}

//! What all seeds together have done and looked at, and how much that has to be at least.

use std::fmt;

use super::judge::Figures;
use super::run::Report;

/// What a seed must show on average. A third less than what they do has another cause than chance.
const FAULTS: u64 = 20;
const BEGUN: u64 = 6;
/// The averages of fewer seeds are left to chance.
const ENOUGH: u64 = 100;

/// What was done and looked at in all seeds together.
#[derive(Default)]
pub struct Totals {
    seeds: u64,
    consul: u64,
    faults: u64,
    figures: Figures,
    recovery: u64,
}

impl Totals {
    /// One more.
    pub fn add(&mut self, report: &Report) {
        let Figures { begun, frozen, by_watchdogs, yields } = report.figures;
        self.seeds += 1;
        self.consul += u64::from(report.consul);
        self.faults += report.faults;
        self.figures.begun += begun;
        self.figures.frozen += frozen;
        self.figures.by_watchdogs += by_watchdogs;
        self.figures.yields += yields;
        self.recovery = self.recovery.max(report.recovery);
    }

    /// Panics where the run shows too little.
    pub fn assert_enough(&self) {
        if self.seeds < ENOUGH {
            return;
        }
        let Figures { begun, frozen, by_watchdogs, yields } = self.figures;
        for (count, least, what) in [
            (self.faults, FAULTS * self.seeds, "faults"),
            (begun, BEGUN * self.seeds, "commands that began"),
            (frozen, self.seeds / 2, "commands that were frozen"),
            (by_watchdogs, self.seeds / 5, "commands that a watchdog had to end at the deadline"),
            (yields, self.seeds / 2, "yields"),
            (self.consul, self.seeds / 3, "seeds with Consul"),
            (self.seeds - self.consul, self.seeds / 3, "seeds with a Lease"),
        ] {
            assert!(count >= least, "{count} {what}, and at least {least} are needed: {self}");
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { begun, frozen, by_watchdogs, yields } = self.figures;
        write!(
            f,
            "{} faults, {begun} commands began, {} seeds with Consul; {frozen} commands were frozen, {by_watchdogs} ended by a watchdog at the \
             deadline, {yields} yields; longest recovery {}.{} s",
            self.faults,
            self.consul,
            self.recovery / 1000,
            self.recovery % 1000 / 100,
        )
    }
}

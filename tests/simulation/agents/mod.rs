//! Agents that hold an election themselves, in virtual time: the real loops of agent and watchdog and the real clients, over simulated
//! servers, links, clocks and processes.

mod faults;
mod judge;
mod place;
mod run;
mod totals;
mod world;

use std::sync::Mutex;

use faults::Fault;
use run::{Report, faults_of, run};
use totals::Totals;

use crate::seeds::Simulation;

const AGENTS: Simulation<Fault, Report> = Simulation { faults_of, run };

#[test]
fn whatever_goes_wrong_no_two_commands_live_at_once_and_one_does_in_the_end() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let totals = Mutex::new(Totals::default());
    if let Some((seeds, time)) = AGENTS.check(|report| totals.lock().unwrap().add(report)) {
        let totals = totals.into_inner().unwrap();
        println!("{seeds} seeds in {time:.1} s, of agents: {totals}");
        totals.assert_enough();
    }
}

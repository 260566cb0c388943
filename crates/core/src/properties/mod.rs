//! What holds for any input, on inputs made at random.
//!
//! The same ones every time; `PROPTEST_CASES=100000 PROPTEST_RNG_SEED=7 cargo test properties` tries more, and others.

mod agents;
mod backoffs;
mod claims;
mod connections;
mod flapping;
mod late;
mod order;
mod overtaken;
mod sessions;
mod shared_session;
mod versioned;

use proptest::test_runner::{Config, RngSeed};

use super::Instant;

/// So many cases, and the same ones every time, unless the environment says otherwise.
pub(super) fn config(cases: u32) -> Config {
    let given = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { cases };
    let rng_seed = if given.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { given.rng_seed };
    Config { cases, rng_seed, failure_persistence: None, ..given }
}

fn at(milliseconds: u64) -> Instant {
    Instant::after_origin(std::time::Duration::from_millis(milliseconds))
}

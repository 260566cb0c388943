//! The number of random inputs, and their seed.

use proptest::test_runner::{Config, RngSeed};

/// Returns a configuration with this many cases, which are the same every time, unless the environment says otherwise.
pub fn config(cases: u32) -> Config {
    let given = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { cases };
    let rng_seed = if given.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { given.rng_seed };
    Config { cases, rng_seed, failure_persistence: None, ..given }
}

//! What holds for any input, on inputs made at random.
//!
//! The same ones every time; `PROPTEST_CASES=100000 PROPTEST_RNG_SEED=7 cargo test properties` tries more, and others.

mod backoffs;
mod claims;
// It asks the environment, which nothing does that is in the core itself.
#[path = "../../../tests/inputs/config.rs"]
mod config;
mod order;
mod sessions;
mod shared_session;

pub(super) use self::config::config;
use super::Instant;

fn at(milliseconds: u64) -> Instant {
    Instant::after_origin(std::time::Duration::from_millis(milliseconds))
}

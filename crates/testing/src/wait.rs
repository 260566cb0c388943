//! Waiting in tests and benchmarks: always for conditions, never for a fixed time.

use std::time::Duration;

/// The longest time to wait for a condition on a busy machine, which makes no test slower.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `look` returns a value. After [`PATIENCE`], panics with `what` and the last error of `look`.
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(why) if tokio::time::Instant::now() >= end => panic!("not within {PATIENCE:?}: {what}: {why}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

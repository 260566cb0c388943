//! How tests and benchmarks wait: for conditions, never for luck.

use std::time::Duration;

/// How long a condition may take on a busy machine. Tests wait for conditions; no test is slower because this is long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `look` returns something; panics with `what` and the last words of `look` otherwise.
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

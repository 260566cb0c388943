//! Health: whether the operator works, and whether it knows enough to act.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the loop may be silent before it counts as hanging.
const SILENCE: Duration = Duration::from_secs(30);

/// The operator's health. The loop writes it, and the HTTP server reads it.
#[derive(Clone)]
pub struct Health(Arc<Mutex<State>>);

struct State {
    beat: Instant,
    waits: Vec<String>,
    claim_failure: Option<String>,
}

impl Default for Health {
    fn default() -> Self {
        let waits = vec!["waiting for the first look at the cluster".to_owned()];
        Self(Arc::new(Mutex::new(State { beat: Instant::now(), waits, claim_failure: None })))
    }
}

impl Health {
    /// Notes that the loop works.
    pub fn beat(&self) {
        self.lock().beat = Instant::now();
    }

    /// Notes what keeps the loop from acting, a sentence each.
    pub fn synced(&self, waits: Vec<String>) {
        self.lock().waits = waits;
    }

    /// Notes what keeps this replica from claiming to act.
    pub fn claim_failed(&self, failure: Option<&str>) {
        self.lock().claim_failure = failure.map(Into::into);
    }

    /// Checks that the process should continue.
    ///
    /// # Errors
    /// Returns why it should be restarted.
    pub fn live(&self) -> Result<(), String> {
        let silent = self.lock().beat.elapsed();
        if silent > SILENCE { Err(format!("the loop has been silent for {} s", silent.as_secs())) } else { Ok(()) }
    }

    /// Checks that this replica acts or could act.
    ///
    /// # Errors
    /// Returns what keeps it from that.
    pub fn ready(&self) -> Result<(), String> {
        let state = self.lock();
        if let Some(failure) = &state.claim_failure {
            return Err(format!("can't claim to act: {failure}"));
        }
        if state.waits.is_empty() { Ok(()) } else { Err(state.waits.join("; ")) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

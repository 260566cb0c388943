//! Whether the operator lives, and whether it knows enough to be of use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A loop that has not come round for this long hangs.
const SILENCE: Duration = Duration::from_secs(30);

/// Shared between the loop and the server that is asked.
#[derive(Clone)]
pub struct Health(Arc<Mutex<State>>);

struct State {
    beat: Instant,
    waits: Vec<String>,
    claim_failure: Option<String>,
}

impl Default for Health {
    fn default() -> Self {
        let waits = vec!["the first look at the cluster".to_owned()];
        Self(Arc::new(Mutex::new(State { beat: Instant::now(), waits, claim_failure: None })))
    }
}

impl Health {
    /// The loop has come round.
    pub fn beat(&self) {
        self.lock().beat = Instant::now();
    }

    /// What the loop still waits for before it can act.
    pub fn synced(&self, waits: Vec<String>) {
        self.lock().waits = waits;
    }

    /// What keeps this replica from claiming to act.
    pub fn claim_failed(&self, failure: Option<&str>) {
        self.lock().claim_failure = failure.map(Into::into);
    }

    /// Whether the process should go on; if not, why.
    ///
    /// # Errors
    /// Why it should be started anew.
    pub fn live(&self) -> Result<(), String> {
        let silent = self.lock().beat.elapsed();
        if silent > SILENCE { Err(format!("the loop has been silent for {} s", silent.as_secs())) } else { Ok(()) }
    }

    /// Whether this replica could act, or does.
    ///
    /// # Errors
    /// What it waits for.
    pub fn ready(&self) -> Result<(), String> {
        let state = self.lock();
        if let Some(failure) = &state.claim_failure {
            return Err(format!("can't claim to act: {failure}"));
        }
        if state.waits.is_empty() { Ok(()) } else { Err(format!("waiting for {}", state.waits.join("; "))) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The state that the loop and the HTTP server share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lictor_core::Instant;
use tokio::sync::watch;

use super::About;
use super::events::Events;
use super::knowledge::Knowledge;
use super::metrics::Metrics;

/// The state that the loop and the HTTP server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) about: About,
    known: Mutex<Knowledge>,
    pub(super) events: Events,
    pub(super) metrics: Metrics,
    /// Whether all connections have to end.
    pub(super) closing: watch::Sender<bool>,
}

impl Shared {
    /// Starts without any knowledge. `start` is a name for this start of this process.
    pub(super) fn new(about: About, stale_after: Option<Duration>, start: String) -> Self {
        Self {
            about,
            known: Mutex::new(Knowledge::new(stale_after)),
            events: Events::new(start),
            metrics: Metrics::default(),
            closing: watch::Sender::new(false),
        }
    }

    /// Reads or changes the knowledge.
    pub(super) fn known<T>(&self, look: impl FnOnce(&mut Knowledge) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the greatest possible age of the knowledge in seconds, or `None` if the age is unknown.
    pub(super) fn age(&self, now: Instant) -> Option<f64> {
        self.known(|known| super::answers::age(&self.about, known, now)).map(|age| age.as_secs_f64())
    }
}

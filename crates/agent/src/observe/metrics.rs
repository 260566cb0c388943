//! Metrics of an observer, by Prometheus' conventions: <https://prometheus.io/docs/practices/naming/>.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use serde::{Deserialize, Serialize};

use super::Role;
use super::knowledge::State;

/// All metrics. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    registry: Arc<Registry>,
    leader: Gauge,
    stale: Gauge,
    term: Gauge,
    age: Gauge<f64, AtomicU64>,
    changes: Counter,
    failures: Counter,
    hooks: Family<HookLabels, Counter>,
}

/// The end of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HookResult {
    /// The exit code was 0.
    Succeeded,
    /// The exit code was another one.
    Failed,
    /// The hook took too long.
    Late,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    hook: String,
    result: String,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("lictor_observer");
        let (leader, stale, term) = (Gauge::default(), Gauge::default(), Gauge::default());
        registry.register("leader", "1 if this pod or agent leads, according to the last answer", leader.clone());
        registry.register("stale", "1 if there was no answer for --stale-after, or never one", stale.clone());
        registry.register("term", "The last known term", term.clone());
        let age = Gauge::<f64, AtomicU64>::default();
        let help = "The greatest possible age of the last answer; NaN: there is none yet, or the files do not say it";
        registry.register_with_unit("age", help, Unit::Seconds, age.clone());
        let (changes, failures) = (Counter::default(), Counter::default());
        registry.register("changes", "Changes of the leader, and of whether it is known", changes.clone());
        registry.register("failures", "Failed requests to the source, and watches that broke", failures.clone());
        let hooks = Family::<HookLabels, Counter>::default();
        registry.register("hooks", "Hooks that have ended, by result: succeeded, failed, late", hooks.clone());
        Self { registry: Arc::new(registry), leader, stale, term, age, changes, failures, hooks }
    }
}

impl Metrics {
    /// Returns the text for Prometheus, with the present knowledge.
    ///
    /// # Errors
    /// If the text can't be written, which would be a defect.
    pub(super) fn encode(&self, state: &State, age: Option<f64>) -> Result<String, fmt::Error> {
        self.leader.set(i64::from(state.role == Role::Leader));
        self.stale.set(i64::from(state.stale));
        self.term.set(state.term.unwrap_or_default());
        self.age.set(age.unwrap_or(f64::NAN));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Counts a change.
    pub(super) fn count_change(&self) {
        self.changes.inc();
    }

    /// Counts that the source did not answer.
    pub(super) fn count_failure(&self) {
        self.failures.inc();
    }

    /// Counts a hook that has ended. `hook` is the role for which the hook ran.
    pub(super) fn count_hook(&self, hook: &str, result: HookResult) {
        let result = match result {
            HookResult::Succeeded => "succeeded",
            HookResult::Failed => "failed",
            HookResult::Late => "late",
        };
        self.hooks.get_or_create(&HookLabels { hook: hook.into(), result: result.into() }).inc();
    }
}

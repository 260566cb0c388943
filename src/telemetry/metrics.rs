//! Metrics, by Prometheus' conventions: <https://prometheus.io/docs/practices/naming/>.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lictor_core::{Failure, LockValidity, Outcome, PodOutcome, RecordOutcome, SliceOutcome, StoreId};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::process::Process;
use super::stores::Stores;

/// Bounds from milliseconds to minutes. Most failovers take some tens of milliseconds.
const FAILOVER_BUCKETS: [f64; 14] = [0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0];

/// All metrics. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    elections: Elections,
    /// One histogram for all elections, because with one for each, 10,000 elections had 170,000 series.
    /// `status.history` has the times of each election.
    failover: Histogram,
    api_errors: Family<ErrorLabels, Counter>,
    dropped_events: Family<DroppedLabels, Counter>,
    queue: Gauge,
    acting: Gauge,
    restores: Counter,
    switchovers: Family<SwitchoverLabels, Counter>,
    stores: Stores,
}

/// The figures of one election.
#[derive(Clone, Debug, Default)]
pub struct ElectionFigures {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The leader's pod.
    pub leader: Option<String>,
    /// The highest term.
    pub term: i64,
    /// The number of changes of leader that this replica made.
    pub transitions: u64,
    /// The number of labels that this replica corrected.
    pub label_drift: u64,
    /// Whether the group has any pod. A group without pods does not count as leaderless.
    pub has_candidate: bool,
    /// The number of candidates, and of those that could be elected.
    pub candidates: (u32, u32),
    /// Whether it is paused.
    pub paused: bool,
    /// Whether its condition Ready is True, and the condition's reason.
    pub ready: Option<(bool, String)>,
    /// The number of pods whose leader label is not as the lock has it.
    pub label_mismatch: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ElectionLabels {
    namespace: String,
    election: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaderLabels {
    namespace: String,
    election: String,
    pod: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReadyLabels {
    namespace: String,
    election: String,
    reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DroppedLabels {
    reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SwitchoverLabels {
    result: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    resource: String,
    outcome: String,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = Registry::default();
        all.register_collector(Box::new(Process));
        let registry = all.sub_registry_with_prefix("lictor");
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of this lictor", build);
        let elections = Elections::default();
        registry.register_collector(Box::new(elections.clone()));
        let failover = Histogram::new(FAILOVER_BUCKETS);
        registry.register(
            "failover_duration_seconds",
            "Time from when the operator saw the loss of a leader until the API server confirmed the next leader's \
             label",
            failover.clone(),
        );
        let api_errors = Family::<ErrorLabels, Counter>::default();
        registry.register(
            "api_errors",
            "Failed requests; unknown: the request may have been carried out",
            api_errors.clone(),
        );
        let dropped_events = Family::<DroppedLabels, Counter>::default();
        registry.register(
            "events_dropped",
            "Events that were not written; repeated: the same Event was written just before, full: too many Events \
             waited",
            dropped_events.clone(),
        );
        let queue = Gauge::default();
        registry.register("queue_depth", "Elections that wait for a decision, and requests in progress", queue.clone());
        let acting = Gauge::default();
        registry.register("acting", "1 if this replica acts", acting.clone());
        let restores = Counter::default();
        registry.register(
            "restores",
            "Times that the API server's store was restored to an earlier state",
            restores.clone(),
        );
        let switchovers = Family::<SwitchoverLabels, Counter>::default();
        registry.register(
            "switchovers",
            "Switchovers that have ended, by result: Complete, or the reason of the failure",
            switchovers.clone(),
        );
        let stores = Stores::default();
        registry.register_collector(Box::new(stores.clone()));
        Self {
            registry: Arc::new(all),
            elections,
            failover,
            api_errors,
            dropped_events,
            queue,
            acting,
            restores,
            switchovers,
            stores,
        }
    }
}

impl Metrics {
    /// Returns the text that Prometheus reads.
    ///
    /// # Errors
    /// If the text can't be written, which would be a defect.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Sets the figures of an election.
    pub fn record(&self, figures: ElectionFigures) {
        self.elections.record(figures);
    }

    /// Removes an election that no longer exists.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.elections.with(|all| all.remove(&(namespace.into(), name.into())));
    }

    /// Removes all elections, because this replica no longer acts and another one reports them.
    pub fn forget_all(&self) {
        self.elections.with(HashMap::clear);
    }

    /// Records a complete failover.
    pub fn observe_failover(&self, took: Duration) {
        self.failover.observe(took.as_secs_f64());
    }

    /// Sets the amount of work that waits.
    pub fn queue_depth(&self, depth: usize) {
        self.queue.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// Sets whether this replica acts.
    pub fn acting(&self, acting: bool) {
        self.acting.set(i64::from(acting));
    }

    /// Counts that the API server's store was restored to an earlier state.
    pub fn count_restore(&self) {
        self.restores.inc();
    }

    /// Counts a Switchover that has ended.
    pub fn count_switchover(&self, result: &str) {
        self.switchovers.get_or_create(&SwitchoverLabels { result: result.into() }).inc();
    }

    /// Sets until when this cluster's locks in a shared store are valid.
    pub fn store_held(&self, store: &StoreId, validity: LockValidity) {
        self.stores.hold(store, validity);
    }

    /// Counts an outcome, if it is a failure.
    pub fn count_failure(&self, outcome: &Outcome) {
        match outcome {
            Outcome::RecordRead(Err(failure))
            | Outcome::LocksListed(Err(failure))
            | Outcome::RecordWritten(RecordOutcome::Failed(failure))
            | Outcome::BidWritten(RecordOutcome::Failed(failure)) => {
                self.count_write_failure("locks", failure);
            }
            Outcome::ElectionRead(Err(failure)) => self.count_write_failure("leaderelections", failure),
            Outcome::WorkloadsRead(Err(failure)) => self.count_write_failure("workloads", failure),
            Outcome::PodsListed(Err(failure))
            | Outcome::PodRead(Err(failure))
            | Outcome::PodWritten(PodOutcome::Failed(failure)) => self.count_write_failure("pods", failure),
            Outcome::SliceRead(Err(failure)) | Outcome::SliceWritten(SliceOutcome::Failed(failure)) => {
                self.count_write_failure("endpointslices", failure);
            }
            _ => {}
        }
    }

    /// Counts a failed request.
    pub fn count_write_failure(&self, resource: &str, failure: &Failure) {
        let outcome = match failure {
            Failure::Refused(_) | Failure::Forbidden(_) => "refused",
            Failure::Unknown(_) => "unknown",
            Failure::Rewritten(_) => "rewritten",
        };
        self.api_errors.get_or_create(&ErrorLabels { resource: resource.into(), outcome: outcome.into() }).inc();
    }

    /// Counts a watch that broke.
    pub fn count_watch_failure(&self, resource: &str) {
        self.api_errors.get_or_create(&ErrorLabels { resource: resource.into(), outcome: "watch".into() }).inc();
    }

    /// Counts an Event that is not written.
    pub fn count_dropped_event(&self, reason: &str) {
        self.dropped_events.get_or_create(&DroppedLabels { reason: reason.into() }).inc();
    }

    /// Counts an Event that could not be written.
    pub fn count_event_failure(&self) {
        self.api_errors.get_or_create(&ErrorLabels { resource: "events".into(), outcome: "refused".into() }).inc();
    }
}

/// The elections' figures, which are collected when Prometheus reads them.
#[derive(Clone, Debug, Default)]
struct Elections(Arc<Mutex<HashMap<(String, String), Told>>>);

#[derive(Clone, Debug)]
struct Told {
    figures: ElectionFigures,
    /// The time without a leader, until there was one last.
    leaderless: Duration,
    leaderless_since: Option<Instant>,
}

impl Elections {
    fn record(&self, figures: ElectionFigures) {
        let now = Instant::now();
        let key = (figures.namespace.clone(), figures.name.clone());
        let lacks = figures.leader.is_none() && figures.has_candidate;
        self.with(|all| {
            let told = all.entry(key).or_insert_with(|| Told {
                figures: figures.clone(),
                leaderless: Duration::ZERO,
                leaderless_since: None,
            });
            told.figures = figures;
            match (lacks, told.leaderless_since) {
                (true, None) => told.leaderless_since = Some(now),
                (false, Some(since)) => {
                    told.leaderless += now.duration_since(since);
                    told.leaderless_since = None;
                }
                _ => {}
            }
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<(String, String), Told>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn name(figures: &ElectionFigures) -> (&str, &str) {
    (&figures.namespace, &figures.name)
}

impl Collector for Elections {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut all: Vec<Told> = self.with(|all| all.values().cloned().collect());
        all.sort_by(|one, other| name(&one.figures).cmp(&name(&other.figures)));
        let labels = |told: &Told| ElectionLabels {
            namespace: told.figures.namespace.clone(),
            election: told.figures.name.clone(),
        };
        let gauge = ConstGauge::<i64>::new(0).metric_type();
        let mut leaders = encoder.encode_descriptor("leader", "1 for the pod that is the leader", None, gauge)?;
        for told in &all {
            if let Some(pod) = &told.figures.leader {
                let ElectionLabels { namespace, election } = labels(told);
                let labels = LeaderLabels { namespace, election, pod: pod.clone() };
                ConstGauge::<i64>::new(1).encode(leaders.encode_family(&labels)?)?;
            }
        }
        let mut terms = encoder.encode_descriptor("term", "The current term", None, gauge)?;
        for told in &all {
            ConstGauge::new(told.figures.term).encode(terms.encode_family(&labels(told))?)?;
        }
        let counter = ConstCounter::<u64>::new(0).metric_type();
        let mut transitions = encoder.encode_descriptor("transitions", "Changes of leader", None, counter)?;
        for told in &all {
            ConstCounter::new(told.figures.transitions).encode(transitions.encode_family(&labels(told))?)?;
        }
        let help = "Pods whose labels another program changed and lictor corrected";
        let mut drift = encoder.encode_descriptor("label_drift", help, None, counter)?;
        for told in &all {
            ConstCounter::new(told.figures.label_drift).encode(drift.encode_family(&labels(told))?)?;
        }
        let help = "Time without a leader in a group that has pods";
        let unit = prometheus_client::registry::Unit::Seconds;
        let mut leaderless = encoder.encode_descriptor("without_leader", help, Some(&unit), counter)?;
        for told in &all {
            let total = told.leaderless + told.leaderless_since.map(|since| since.elapsed()).unwrap_or_default();
            ConstCounter::new(total.as_secs_f64()).encode(leaderless.encode_family(&labels(told))?)?;
        }
        let mut gauges = |name, help, value: fn(&ElectionFigures) -> Option<i64>| -> fmt::Result {
            let mut family = encoder.encode_descriptor(name, help, None, gauge)?;
            for told in &all {
                if let Some(value) = value(&told.figures) {
                    ConstGauge::new(value).encode(family.encode_family(&labels(told))?)?;
                }
            }
            Ok(())
        };
        gauges("candidates", "Candidates: pods that the selector matches, or 1 for the cluster itself", |figures| {
            Some(figures.candidates.0.into())
        })?;
        gauges("eligible", "Candidates that could be elected now", |figures| Some(figures.candidates.1.into()))?;
        let help = "Pods whose leader label differs from the lock; during a handover for some milliseconds";
        gauges("label_mismatch", help, |figures| Some(figures.label_mismatch.into()))?;
        gauges("paused", "1 for an election that is paused", |figures| figures.paused.then_some(1))?;
        let help = "1 if the condition Ready of the election is True, else 0; reason: the condition's reason";
        let mut ready = encoder.encode_descriptor("ready", help, None, gauge)?;
        for told in &all {
            if let Some((holds, reason)) = told.figures.ready.clone() {
                let ElectionLabels { namespace, election } = labels(told);
                let labels = ReadyLabels { namespace, election, reason };
                ConstGauge::new(i64::from(holds)).encode(ready.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

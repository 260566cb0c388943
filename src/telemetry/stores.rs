//! How long what is held in shared stores is this cluster's own. It is computed when Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lictor_core::{Instant, LockValidity, StoreId};
use lictor_process::monotonic;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The shared stores.
#[derive(Clone, Debug, Default)]
pub(super) struct Stores(Arc<Mutex<BTreeMap<StoreId, LockValidity>>>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    store: String,
}

impl Stores {
    /// Takes what is known of a store now.
    pub(super) fn hold(&self, store: &StoreId, validity: LockValidity) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A new client takes nothing away: what is sure until a moment, is sure until then.
        let still = all.get(store).filter(|known| validity == LockValidity::Unknown && known.lasts(monotonic()));
        if still.is_none() {
            all.insert(store.clone(), validity);
        }
    }
}

impl Collector for Stores {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let (all, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner).clone(), monotonic());
        let labels = |store: &StoreId| StoreLabels { store: store.0.clone() };
        let gauge = ConstGauge::<i64>::new(0).metric_type();
        let help = "1 if this cluster's locks in a shared store are valid";
        let mut valid = encoder.encode_descriptor("store_held", help, None, gauge)?;
        for (store, validity) in &all {
            ConstGauge::new(i64::from(validity.lasts(now))).encode(valid.encode_family(&labels(store))?)?;
        }
        let help = "Time until this cluster's locks in a shared store are no longer certainly its own, unless they are renewed";
        let mut left = encoder.encode_descriptor("store_left", help, Some(&Unit::Seconds), gauge)?;
        for (store, validity) in &all {
            if let Some(time) = time_left(*validity, now) {
                ConstGauge::new(time.as_secs_f64()).encode(left.encode_family(&labels(store))?)?;
            }
        }
        Ok(())
    }
}

/// Returns the time that is left by this process's monotonic clock; `None`: it does not end.
fn time_left(validity: LockValidity, now: Instant) -> Option<Duration> {
    match validity {
        LockValidity::Ended | LockValidity::Lapsed | LockValidity::Unknown => Some(Duration::ZERO),
        LockValidity::Until(end) => Some(end.since(now)),
        LockValidity::Unlimited => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_falls_to_nothing_and_not_below() {
        let at = |seconds| Instant::after_origin(Duration::from_secs(seconds));
        let until = LockValidity::Until(at(10));
        assert_eq!(time_left(until, at(4)), Some(Duration::from_secs(6)));
        assert_eq!(time_left(until, at(11)), Some(Duration::ZERO));
        assert_eq!(time_left(LockValidity::Lapsed, at(0)), Some(Duration::ZERO));
        assert_eq!(time_left(LockValidity::Unlimited, at(0)), None);
    }

    #[test]
    fn what_is_sure_stays_sure_while_nothing_is_known() {
        let (stores, id) = (Stores::default(), StoreId("consul/east".into()));
        let known = |stores: &Stores| stores.0.lock().unwrap()[&id];
        let sure = LockValidity::Until(monotonic() + Duration::from_secs(600));
        stores.hold(&id, sure);
        stores.hold(&id, LockValidity::Unknown);
        assert_eq!(known(&stores), sure);
        stores.hold(&id, LockValidity::Ended);
        stores.hold(&id, LockValidity::Unknown);
        assert_eq!(known(&stores), LockValidity::Unknown);
    }
}

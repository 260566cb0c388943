//! Whether an operator acts for elections. If none does, their statuses are as old as its last write.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lictor_api::{Classes, DEFAULT_CONTROLLER, LeaderElection, resolve};

use super::format::age;
use super::reading::{Reader, Seen};
use crate::cli::installation::lease_name;

/// The duration of an operator's Lease that names none, in seconds.
const USUAL_DURATION: i32 = 15;

/// Returns a sentence for each controller of these elections for which no operator acts. A controller whose Leases
/// can't be seen with the user's rights has none.
pub(super) async fn idle<'a>(
    reader: &Reader,
    elections: impl IntoIterator<Item = &'a LeaderElection>,
    classes: &Classes,
) -> Vec<String> {
    let controllers: BTreeSet<&str> = elections.into_iter().filter_map(|one| serving(one, classes)).collect();
    let idle = idle_controllers(reader, &controllers).await.unwrap_or_default();
    let told = idle.into_iter().map(|(controller, why)| {
        format!(
            "no operator of {controller} acts, so what the statuses say may be over: {why}; `kubectl lictor doctor` checks \
             the installation"
        )
    });
    told.collect()
}

/// Returns why no operator acts, and what to do, for each of these controllers of which that is so.
///
/// # Errors
/// Why that can't be seen of any of them.
pub(super) async fn idle_controllers(reader: &Reader, controllers: &BTreeSet<&str>) -> Seen<BTreeMap<String, String>> {
    if controllers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let leases = try_join_all(controllers.iter().map(|controller| async move {
        let leases = reader.leases(&lease_name(controller)).await?;
        Ok::<_, String>((*controller, leases))
    }));
    let (now, leases) = tokio::join!(reader.now(), leases);
    let now = now.ok_or("the API server does not say what time it is")?;
    let why = |(controller, leases): (&str, Vec<Lease>)| Some((controller.to_owned(), why(controller, &leases, now)?));
    Ok(leases?.into_iter().filter_map(why).collect())
}

/// Returns the controller that serves an election, or that would say what is wrong with it.
fn serving<'a>(election: &LeaderElection, classes: &'a Classes) -> Option<&'a str> {
    controllers(classes).find(|name| resolve(election, classes, name).is_some())
}

/// Returns the controllers that may serve elections.
pub(super) fn controllers(classes: &Classes) -> impl Iterator<Item = &str> {
    [DEFAULT_CONTROLLER].into_iter().chain(classes.values().map(|class| class.spec.controller.as_str()))
}

/// Why no operator of a controller acts, according to all its Leases, and what to do. `None`: one acts. `now`: by the
/// API server's clock.
fn why(controller: &str, leases: &[Lease], now: Timestamp) -> Option<String> {
    if leases.iter().any(|lease| is_held(lease, now)) {
        return None;
    }
    let name = lease_name(controller);
    let newest = leases.iter().max_by_key(|lease| written(lease));
    let (why, what) = match newest {
        None => (
            format!("there is no Lease {name} in any namespace"),
            "install lictor, or start it (docs/install.md)".to_owned(),
        ),
        Some(lease) => {
            let namespace = lease.namespace().unwrap_or_default();
            let ago = written(lease).map(|written| format!(" {} ago", age(written, now))).unwrap_or_default();
            let why = match holder(lease) {
                Some(holder) => format!("{holder} renewed the Lease {namespace}/{name} last{ago}"),
                None => format!("the Lease {namespace}/{name} was released{ago}"),
            };
            (why, format!("see `kubectl -n {namespace} get pods`, and the log of the operator"))
        }
    };
    Some(format!("{why}. Next: {what}"))
}

/// Whether an operator holds the Lease. A standby takes an expired one within its duration.
fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(USUAL_DURATION);
    let is_new = |written: Timestamp| now.as_second() - written.as_second() <= i64::from(seconds) * 2;
    holder(lease).is_some() && written(lease).is_some_and(is_new)
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Returns when the Lease was written last, by the API server's clock. `renewTime` comes from another machine's.
fn written(lease: &Lease) -> Option<Timestamp> {
    lease.managed_fields().iter().filter_map(|entry| entry.time.as_ref()).map(|time| time.0).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, written: i64) -> Lease {
        let written = Timestamp::from_second(written).unwrap().to_string();
        serde_json::from_value(json!({
            "metadata": {"name": "lictor.dev-operator", "namespace": "ops", "managedFields": [
                {"manager": "old", "time": "1970-01-01T00:00:00Z"}, {"manager": "lictor", "time": written}]},
            // By a clock that is wrong.
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:00.000000Z"},
        }))
        .unwrap()
    }

    #[test]
    fn an_operator_acts_while_one_of_its_leases_is_renewed() {
        let now = Timestamp::from_second(10_000).unwrap();
        let said = |leases: &[Lease]| why("lictor.dev/operator", leases, now);
        assert_eq!(said(&[lease("a", 9_000), lease("b", 9_970)]), None);
        for (leases, says) in [
            (&[][..], ["there is no Lease lictor.dev-operator in any namespace", "docs/install.md"]),
            (
                &[lease("a", 9_000), lease("b", 9_969)],
                ["b renewed the Lease ops/lictor.dev-operator last 31s ago", "-n ops"],
            ),
            (&[lease("", 9_999)], ["the Lease ops/lictor.dev-operator was released 1s ago", "-n ops"]),
        ] {
            let said = said(leases).unwrap();
            assert!(says.iter().all(|part| said.contains(part)) && !said.contains('\n'), "{said}");
        }
    }
}

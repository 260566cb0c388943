//! Groups whose pods hold a lock of their own, a Lease, which the operators follow. Nothing runs in the pods, so this holds it for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::picture::Picture;
use super::record::Group;
use super::world::World;

/// From one renewal to the next, and how long a lock is valid that nobody renews.
const RENEWS: Duration = Duration::from_secs(1);
const VALID_SECONDS: u64 = 15;
/// After so many renewals another pod takes the lock, although its holder is well.
const MOVES_AFTER: u64 = 10;

/// Returns the name of the Lease that the pods of a group hold.
fn lock(group: &Group) -> String {
    format!("{}-lock", group.name)
}

/// Returns the fields of an election that follows the lock of its pods.
pub fn spec(group: &Group) -> Value {
    json!({"electedBy": "Candidates", "followedLock": {"lease": {"name": lock(group)}}})
}

/// Returns who holds the lock next: who does, while it is well, and from time to time another one that is.
fn next(picture: &Picture, group: &Group, holder: Option<&String>, round: u64) -> Option<String> {
    let well: Vec<&str> = picture.eligible(group).map(|pod| pod.name.as_str()).collect();
    let at = holder.and_then(|holder| well.iter().position(|name| name == holder));
    let moves = usize::from(round.is_multiple_of(MOVES_AFTER));
    let at = at.map_or(0, |at| at + moves) % well.len().max(1);
    well.get(at).map(|name| (*name).to_owned())
}

impl World {
    /// Lets one pod of each such group hold its lock, and renews it, until it is cancelled.
    pub async fn hold_locks(self: Arc<Self>) {
        let mut holders: BTreeMap<String, String> = BTreeMap::new();
        for round in 1.. {
            tokio::time::sleep(RENEWS).await;
            let held: Vec<(Group, Option<String>)> = self.book.look(|picture| {
                let followed = picture.groups.values().filter(|group| group.followed);
                followed.map(|group| (group.clone(), next(picture, group, holders.get(&group.name), round))).collect()
            });
            for (group, holder) in held {
                // Who is gone no longer renews its lock.
                let Some(holder) = holder else { continue };
                let leases = self.api_of("Lease", Some(&group.clusters[0]));
                let now = format!("{:.6}", k8s_openapi::jiff::Timestamp::now());
                let lease = Patch::Apply(json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": lock(&group)},
                    "spec": {"holderIdentity": holder, "leaseDurationSeconds": VALID_SECONDS, "renewTime": now},
                }));
                let (name, parameters) = (lock(&group), PatchParams::apply("candidates").force());
                let written = leases.patch(&name, &parameters, &lease);
                // The API server may be away: the next round tries again.
                if matches!(tokio::time::timeout(RENEWS, written).await, Ok(Ok(_))) {
                    holders.insert(group.name, holder);
                }
            }
        }
    }
}

//! Judges F4 by what each replica has read: who did not hold the lock of the pods of "web" any more when it was read, is not made the leader
//! because of that lock.

use std::collections::BTreeMap;

use lictor_core::Record;
use serde_json::Value;

use crate::servers::api::Change;
use crate::servers::client::Passing;
use crate::users::{LEASES, followed_lease};

/// Within so many milliseconds a replica acts by what it was answered.
const SOON: u64 = 200;

/// What the lock said, and what was known of that.
#[derive(Default)]
pub struct Held {
    /// By cluster: which pod held it from which version on.
    said: BTreeMap<usize, Vec<(u64, Option<String>)>>,
    /// By replica: when it was answered as of which version.
    read: BTreeMap<String, Vec<(u64, u64)>>,
    /// By cluster, term and leader: as of which version its writer had read the lock.
    sent: BTreeMap<(usize, i64, String), u64>,
}

impl Held {
    /// A Lease is changed.
    pub fn see(&mut self, cluster: usize, change: &Change) {
        let object = change.after.as_ref().or(change.before.as_ref()).unwrap();
        if object["metadata"]["name"] == *followed_lease(LEASES[0]) {
            let holder = change.after.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            let pod = holder.map(|holder| holder.split('_').next().unwrap_or_default().to_owned());
            self.said.entry(cluster).or_default().push((change.version, pod));
        }
    }

    /// A replica sends something, or is answered.
    pub fn pass(&mut self, cluster: usize, replica: &str, passing: &Passing<'_>, now: u64) {
        match passing {
            Passing::Answered(request, answer) => {
                let only = request.query.get("fieldSelector").map(String::as_str);
                // A watch that begins again asks for a page of one object, and looks at its version alone.
                let looks = request.query.get("limit").is_none_or(|limit| limit != "1");
                if looks && only == Some(&format!("metadata.name={}", followed_lease(LEASES[0]))) {
                    let at = answer["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
                    self.read.entry(replica.into()).or_default().extend(at.map(|at| (now, at)));
                }
            }
            Passing::Sent(request) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let name = body["metadata"]["name"].as_str().or(request.path.rsplit('/').next()).unwrap_or_default();
                let record = body["metadata"]["annotations"]["lictor.dev/record"].as_str();
                let record = record.and_then(|text| serde_json::from_str::<Record>(text).ok());
                let Some(record) = record.filter(|_| LEASES.contains(&name)) else { return };
                let Some(pod) = record.holder.and_then(|holder| holder.pod) else { return };
                let read = self.read.get(replica).into_iter().flatten().filter(|(when, _)| when + SOON <= now);
                let read = read.map(|(_, at)| *at).max().unwrap_or_default();
                let known = self.sent.entry((cluster, record.term.0, pod)).or_insert(read);
                *known = read.min(*known);
            }
        }
    }

    /// An election tells of a change of leader. Returns what is wrong.
    pub fn judge(&self, cluster: usize, change: &Value) -> Option<String> {
        let pod = change["leaderName"].as_str()?;
        let read = *self.sent.get(&(cluster, change["term"].as_i64()?, pod.to_owned()))?;
        let said = self.said.get(&cluster)?;
        let known = said.iter().rposition(|(version, _)| *version <= read).unwrap_or_default();
        let held = said[known..].iter().any(|(_, holder)| holder.as_deref() == Some(pod));
        (!held && change["reason"] == "CandidatesElected").then(|| {
            format!(
                "{pod} leads by the pods' lock, and the operator had read as of version {read} that it did not hold it"
            )
        })
    }
}

//! Judges switchovers: each is carried out once at most, only from the term that it names, and what is told of it in the end is so and
//! stays so.

use std::collections::BTreeMap;

use lictor_core::Record;

use super::Figures;
use crate::servers::api::{Change, Object};
use crate::world::NAMESPACE;

/// What was seen of the switchovers, by their uids.
#[derive(Default)]
pub struct Switchovers(BTreeMap<String, Seen>);

#[derive(Default)]
struct Seen {
    from_term: i64,
    /// How it has ended: `Complete`, or the reason of the failure.
    result: Option<String>,
    /// How often a record was written that carries it out.
    times: u32,
}

impl Switchovers {
    /// A switchover is made or changed. Returns what is wrong. `forgotten`: a person did away with the record that knows of it.
    pub fn see(&mut self, change: &Change, forgotten: bool, figures: &mut Figures) -> Option<String> {
        let object = change.after.as_ref()?;
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        let seen = self.0.entry(uid.clone()).or_default();
        seen.from_term = object["spec"]["fromTerm"].as_i64()?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holds = |type_: &str| conditions.iter().find(|c| c["type"] == type_ && c["status"] == "True");
        let result = match (holds("Complete"), holds("Failed")) {
            (Some(_), Some(_)) => return Some(format!("{uid} is complete and has failed")),
            (Some(_), None) => Some("Complete".to_owned()),
            (None, failed) => failed.and_then(|failed| Some(failed["reason"].as_str()?.to_owned())),
        };
        if let Some(before) = &seen.result {
            let same = result.as_ref() == Some(before);
            return (!same).then(|| format!("{uid} has ended as {before}, and then as {result:?}"));
        }
        let result = result?;
        seen.result = Some(result.clone());
        if result == "Complete" {
            figures.switched_over += 1;
            figures.handed_over += u64::from(object["spec"]["toClusterName"].is_string());
            let term = object["status"]["term"].as_i64();
            term.is_none_or(|term| term <= seen.from_term).then(|| format!("{uid} is complete in term {term:?}"))
        } else {
            figures.not_switched_over += 1;
            // The one says so, and the other one did not live to see it.
            let told = ["TargetLost", "ElectionNotFound"].contains(&result.as_str()) || forgotten;
            (seen.times > 0 && !told).then(|| format!("{uid} was carried out, and it is told that it failed: {result}"))
        }
    }

    /// A record is written. Returns what is wrong.
    pub fn see_record(&mut self, change: &Change, forgotten: bool) -> Option<String> {
        let record = |lease: &Option<Object>| {
            let lease = lease.as_ref().filter(|lease| lease["metadata"]["namespace"] == NAMESPACE)?;
            let text = lease["metadata"]["annotations"]["lictor.dev/record"].as_str()?;
            serde_json::from_str::<Record>(text).ok()
        };
        // Under another name of the lock, what is known goes on.
        let (before, after) = (record(&change.before)?, record(&change.after)?);
        let mark = after.switchover.filter(|mark| mark.to.is_some() && before.switchover.as_ref() != Some(mark))?;
        let seen = self.0.get_mut(&mark.id.0).filter(|_| !change.by_hand && !forgotten)?;
        seen.times += 1;
        if seen.times > 1 {
            return Some(format!("{} is carried out {} times", mark.id, seen.times));
        }
        if before.term.0 != seen.from_term {
            return Some(format!("{} is for term {}, and ends term {}", mark.id, seen.from_term, before.term));
        }
        let failed = seen.result.as_ref().filter(|result| *result != "Complete");
        failed.map(|result| format!("{} is carried out, and it was told before that it failed: {result}", mark.id))
    }
}

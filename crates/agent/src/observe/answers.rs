//! The answers, as JSON.

use std::time::Duration;

use lictor_core::{Instant, Timestamp};
use serde_json::{Value, json};

use super::About;
use super::knowledge::{Knowledge, State};

/// Returns the parts that do not change by themselves: the content of an event.
pub(super) fn told(about: &About, state: &State) -> Value {
    json!({
        "election": about.election,
        "source": about.source,
        "role": state.role,
        "leader": state.leader,
        "term": state.term,
        "since": state.since.map(rfc3339),
        "stale": state.stale,
    })
}

/// Returns everything that is known, and its age.
pub(super) fn election(about: &About, known: &Knowledge, now: Instant) -> Value {
    let mut answer = told(about, &known.state(now));
    answer["ageSeconds"] = json!(age(about, known, now).map(|age| age.as_secs_f64()));
    answer["staleAfterSeconds"] = json!(known.stale_after().map(|time| time.as_secs_f64()));
    answer["lastHeard"] = json!(known.heard().map(rfc3339));
    answer["problem"] = json!(known.problem());
    answer
}

/// Returns the answer of the sidecars that this replaces, in the form of <https://github.com/nais/elector>: `result` in
/// `pkg/election/official/official.go`. The name is always present, because a client of the first of these sidecars expects it.
pub(super) fn elector(known: &Knowledge, now: Instant) -> Value {
    let state = known.state(now);
    let name = state.leader.filter(|_| !state.stale && !state.ended).map(|leader| leader.name).unwrap_or_default();
    let mut answer = json!({"name": name});
    if let Some(heard) = known.heard() {
        answer["last_update"] = json!(rfc3339(Timestamp(heard.0 / 1000 * 1000)));
    }
    answer
}

/// Returns the greatest possible age of the knowledge, or `None` if the age is unknown.
pub(super) fn age(about: &About, known: &Knowledge, now: Instant) -> Option<Duration> {
    known.age(now).filter(|_| about.tells_age)
}

/// Returns a time as text, or `None` for a time far outside any real use.
fn rfc3339(at: Timestamp) -> Option<String> {
    jiff::Timestamp::from_millisecond(at.0).ok().map(|at| at.to_string())
}

#[cfg(test)]
mod tests {
    use lictor_core::Version;

    use super::*;
    use crate::observe::{Fact, Heard, Leader, Role};

    #[test]
    fn what_is_too_old_names_nobody() {
        let about = About { election: "shop/web".into(), source: "kubernetes", observer: "this pod", tells_age: true };
        let at = |seconds| Instant::after_origin(Duration::from_secs(seconds));
        let mut known = Knowledge::new(Some(Duration::from_secs(30)));
        assert_eq!(elector(&known, at(0)), json!({"name": ""}));
        let leader = Leader { name: "web-1".into(), pod: Some("web-1".into()), ..Leader::default() };
        let fact = Fact { role: Role::Leader, leader: Some(leader), term: Some(7), ..Fact::default() };
        let wall = Timestamp(1_700_000_000_123);
        known.hear(Heard::Confirmed { sent: at(1), version: Version(1), fact }, at(2), wall);
        assert_eq!(elector(&known, at(3)), json!({"name": "web-1", "last_update": "2023-11-14T22:13:19Z"}));
        let all = election(&about, &known, at(3));
        assert_eq!((&all["role"], &all["ageSeconds"], &all["term"]), (&json!("leader"), &json!(2.0), &json!(7)));
        assert_eq!(elector(&known, at(31)), json!({"name": "", "last_update": "2023-11-14T22:13:19Z"}));
        let all = election(&about, &known, at(31));
        assert_eq!(
            (&all["role"], &all["stale"], &all["leader"]["name"]),
            (&json!("unknown"), &json!(true), &json!("web-1"))
        );
        let about = About { tells_age: false, ..about };
        assert_eq!(election(&about, &known, at(3))["ageSeconds"], Value::Null);
    }
}

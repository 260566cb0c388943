//! The conditions that a class's status reports about its store.

use lictor_api::{ElectionClass, ElectionClassStatus, READY, condition, unknown};
use lictor_core::Timestamp;

use super::class_store::Trouble;
use crate::controller::class_status::complete;

/// The last failure of each kind of a store's work.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) settings: Option<Trouble>,
    pub(crate) check: Option<Result<(), Trouble>>,
    pub(crate) sessions: Option<Trouble>,
    pub(crate) watch: Option<String>,
    /// The warning that renewals take almost as long as they may.
    pub(crate) slow: Option<String>,
}

impl Report {
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let check = self.check.as_ref().and_then(|answer| answer.as_ref().err());
        let watch = || Some(Trouble { reason: "WatchFails", message: self.watch.clone()? });
        self.settings.as_ref().or(check).or(self.sessions.as_ref()).cloned().or_else(watch)
    }
}

/// The new status of the class, if it differs from the present one. `kind`: what people call the store. `describe` adds what only this
/// kind of store has to say.
pub(crate) fn class_status(
    class: &ElectionClass,
    report: &Report,
    kind: &str,
    describe: impl FnOnce(&mut ElectionClassStatus),
    wall: Timestamp,
) -> Option<ElectionClassStatus> {
    let before = class.status.clone().unwrap_or_default();
    let asked = report.check.is_some() || report.settings.is_some();
    // The previous condition stays until the operator knows more.
    if !asked && before.conditions.iter().any(|old| old.type_ == READY) {
        return None;
    }
    let generation = class.metadata.generation.unwrap_or_default();
    let ready = match (report.trouble(), &report.slow) {
        (Some(Trouble { reason, message }), _) => condition(READY, false, reason, message, generation),
        (None, _) if !asked => unknown(READY, "NotAskedYet", format!("{kind} has not answered yet"), generation),
        (None, Some(slow)) => condition(READY, true, "Slow", slow, generation),
        (None, None) => {
            condition(READY, true, "Answers", format!("{kind} answers, and the sessions are renewed"), generation)
        }
    };
    let mut status = ElectionClassStatus {
        observed_generation: Some(generation),
        conditions: complete(ready, &before.conditions, wall),
        ..before.clone()
    };
    if matches!(report.check, Some(Ok(()))) {
        describe(&mut status);
    }
    (status != before).then_some(status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class() -> ElectionClass {
        let object = json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": "c"}, "spec": {}});
        serde_json::from_value(object).expect("a class")
    }

    #[test]
    fn of_all_that_is_wrong_the_cause_is_told() {
        let trouble = |reason| Trouble { reason, message: "as it is".into() };
        let mut report = Report::default();
        let told = |report: &Report| {
            let status = class_status(&class(), report, "Consul", |_| {}, Timestamp(0)).expect("it is new");
            let ready = status.conditions.into_iter().next().expect("there is one");
            (ready.status, ready.reason)
        };
        let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
        assert_eq!(told(&report), is("Unknown", "NotAskedYet"));
        report.check = Some(Ok(()));
        assert_eq!(told(&report), is("True", "Answers"));
        report.slow = Some("as it is".into());
        assert_eq!(told(&report), is("True", "Slow"));
        report.watch = Some("as it is".into());
        assert_eq!(told(&report), is("False", "WatchFails"));
        report.sessions = Some(trouble("SessionsFail"));
        assert_eq!(told(&report), is("False", "SessionsFail"));
        report.check = Some(Err(trouble("NoAnswer")));
        assert_eq!(told(&report), is("False", "NoAnswer"));
        report.settings = Some(trouble("SecretMissing"));
        assert_eq!(told(&report), is("False", "SecretMissing"));
    }

    #[test]
    fn only_a_store_that_answers_describes_itself() {
        let wrong = Trouble { reason: "NoAnswer", message: String::new() };
        for (check, describes) in [(None, false), (Some(Ok(())), true), (Some(Err(wrong)), false)] {
            let mut described = false;
            let report = Report { check, ..Report::default() };
            class_status(&class(), &report, "Consul", |_| described = true, Timestamp(0));
            assert_eq!(described, describes);
        }
    }
}

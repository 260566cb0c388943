//! One Switchover: its object as it was last seen, and this process's knowledge of it.
//!
//! Three of its times may have begun before this process did, on another machine: its due time, its deadline, and its effects
//! (`holdSeconds`, `ttlSecondsAfterFinished`). The operator reads the wall clock once for the rest of each, and only within the time
//! itself, so no clock makes one longer. No promise rests on any of them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp as Wall;
use lictor_api::{ACCEPTED, COMPLETE, FAILED, Switchover, SwitchoverStatus, ended, held_until, left, says};
use lictor_core::switchover::{Asked, Hold, Target};
use lictor_core::{Instant, Term, Uid, Version};

use super::entry::Retry;
use super::names::SwitchoverId;
use super::timers::Moment;

/// How often to read the wall clock for a due time, because an administrator may set the clock.
const LOOK: Duration = Duration::from_secs(30);

/// Why a Switchover fails or waits: a reason, and a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether the obstacle may pass by itself, or a user may remove it.
    pub(super) passes: bool,
}

/// A Switchover.
pub(super) struct KnownSwitchover {
    id: SwitchoverId,
    version: Version,
    seen: Arc<Switchover>,
    /// Since when it could not be judged.
    unsettled: Option<Instant>,
    /// When it was found to be due here, and until when it may wait.
    due: Option<(Instant, Option<Instant>)>,
    /// When this process accepted it.
    accepted: Option<Instant>,
    /// Why the operator is giving it up.
    giving_up: Option<Trouble>,
    expiry: Option<Expiry>,
    begun: u64,
    under_way: Option<Write>,
    retry: Retry,
}

/// When a finished switchover stops having an effect.
#[derive(Clone, Copy)]
struct Expiry {
    hold: Instant,
    delete: Option<Instant>,
}

struct Write {
    number: u64,
    what: Written,
}

/// The content of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The reason for which the Switchover waits.
    Waits,
    /// The acceptance.
    Accepts,
    /// The result.
    Ends,
    /// The deletion.
    Deletes,
}

/// Whether a Switchover is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    /// The operator looks again at this time.
    Later(Instant),
    /// The due time can't be read.
    Unreadable,
}

impl KnownSwitchover {
    pub(super) fn new(id: SwitchoverId, version: Version, seen: Switchover) -> Self {
        Self {
            id,
            version,
            seen: Arc::new(seen),
            unsettled: None,
            due: None,
            accepted: None,
            giving_up: None,
            expiry: None,
            begun: 0,
            under_way: None,
            retry: Retry::default(),
        }
    }

    pub(super) fn id(&self) -> &SwitchoverId {
        &self.id
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn seen(&self) -> &Arc<Switchover> {
        &self.seen
    }

    pub(super) fn renew(&mut self, version: Version, seen: Switchover) {
        (self.version, self.seen) = (version, Arc::new(seen));
    }

    /// The status of the object.
    pub(super) fn status(&self) -> SwitchoverStatus {
        self.seen.status.clone().unwrap_or_default()
    }

    fn holds(&self, type_: &str) -> bool {
        says(&self.seen, type_)
    }

    /// Whether its status told its user that it is accepted.
    pub(super) fn is_accepted(&self) -> bool {
        self.holds(ACCEPTED)
    }

    /// The result: `Complete`, or the reason of the failure; `None` while it has not ended.
    pub(super) fn result(&self) -> Option<String> {
        if self.holds(COMPLETE) {
            return Some(COMPLETE.into());
        }
        let conditions = self.seen.status.iter().flat_map(|status| &status.conditions);
        let failed = conditions.into_iter().find(|condition| condition.type_ == FAILED && condition.status == "True");
        failed.map(|condition| condition.reason.clone())
    }

    /// Whether it was deleted and a finalizer of another program keeps it.
    pub(super) fn is_deleted(&self) -> bool {
        self.seen.metadata.deletion_timestamp.is_some()
    }

    /// The order among several for one election: accepted ones first, then the oldest by the API server's clock, then by name.
    pub(super) fn order(&self) -> (bool, Option<Wall>, &str) {
        let created = self.seen.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!self.is_accepted(), created, &self.id.name)
    }

    /// The user's request.
    pub(super) fn asked(&self) -> Asked {
        let spec = &self.seen.spec;
        let uid = self.seen.status.as_ref().and_then(|status| status.to.as_ref()?.pod_uid.clone());
        let to = match (&spec.to_pod_name, uid.filter(|_| self.is_accepted())) {
            (None, _) => spec.to_cluster_name.clone().map_or(Target::Any, Target::Cluster),
            (Some(_), Some(uid)) => Target::Pod(Uid(uid)),
            (Some(name), None) => Target::Named(name.clone()),
        };
        Asked { id: self.id.uid.clone(), from_term: Term(spec.from_term), to, force: spec.force }
    }

    /// Whether it is due. A Switchover that was due once stays so, even if the clock changes.
    pub(super) fn due(&mut self, Moment { now, wall }: Moment) -> Due {
        if self.due.is_some() || self.is_accepted() {
            self.due.get_or_insert((now, None));
            return Due::Now;
        }
        let spec = &self.seen.spec;
        let created = self.seen.metadata.creation_timestamp.as_ref().map_or(wall.0, |time| time.0.as_millisecond());
        let mut begins = created;
        if let Some(text) = &spec.not_before_time {
            let Ok(time) = text.parse::<Wall>() else { return Due::Unreadable };
            let left = Duration::from_millis(u64::try_from(time.as_millisecond() - wall.0).unwrap_or(0));
            if !left.is_zero() {
                return Due::Later(now + left.min(LOOK));
            }
            begins = begins.max(time.as_millisecond());
        }
        let deadline = spec.deadline_seconds.map(|seconds| now + left(begins, seconds, wall));
        self.due = Some((now, deadline));
        Due::Now
    }

    /// The deadline for waiting. With `None` the Switchover may wait only while the operator can't say whether it has to.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.and_then(|(_, deadline)| deadline)
    }

    /// Notes whether it can be judged. Returns since when it could not be.
    pub(super) fn settle(&mut self, settled: bool, now: Instant) -> Option<Instant> {
        self.unsettled = if settled { None } else { Some(self.unsettled.unwrap_or(now)) };
        self.unsettled
    }

    /// How long ago this process accepted it.
    pub(super) fn took(&self, now: Instant) -> Option<Duration> {
        self.accepted.map(|accepted| now.since(accepted))
    }

    /// Why the operator is giving it up.
    pub(super) fn giving_up(&self) -> Option<&Trouble> {
        self.giving_up.as_ref()
    }

    /// Gives it up, unless the operator already does so for another reason.
    pub(super) fn give_up(&mut self, trouble: Trouble) {
        self.giving_up.get_or_insert(trouble);
    }

    /// The remaining effects of a finished Switchover: until when the order of the candidates heeds it, and when it is
    /// deleted.
    pub(super) fn expiry(&mut self, Moment { now, wall }: Moment) -> Option<(Option<Hold>, Option<Instant>)> {
        self.result()?;
        let spec = &self.seen.spec;
        let Expiry { hold, delete } = *self.expiry.get_or_insert_with(|| {
            let ended = ended(&self.seen, wall);
            let hold = now + left(ended, spec.hold_seconds, wall);
            let delete = spec.ttl_seconds_after_finished.map(|seconds| now + left(ended, seconds, wall));
            Expiry { hold, delete }
        });
        let complete = self.holds(COMPLETE);
        let delete = delete.map(|delete| if complete { delete.max(hold) } else { delete });
        Some((held_until(&self.seen, hold), delete))
    }

    /// Whether it may be written now; otherwise when to look again.
    pub(super) fn may_write(&self, now: Instant) -> Result<(), Option<Instant>> {
        if self.under_way.is_some() {
            return Err(None);
        }
        let due = self.retry.due();
        if due > now { Err(Some(due)) } else { Ok(()) }
    }

    /// Begins a write. Returns its number.
    pub(super) fn begin(&mut self, what: Written, now: Instant) -> u64 {
        self.begun += 1;
        if what == Written::Accepts {
            self.accepted = Some(now);
        }
        self.under_way = Some(Write { number: self.begun, what });
        self.begun
    }

    /// Ends a write. Returns its content and the retries of such writes, if it is the write that was begun last.
    pub(super) fn end(&mut self, number: u64) -> Option<(Written, &mut Retry)> {
        let write = self.under_way.take_if(|write| write.number == number)?;
        Some((write.what, &mut self.retry))
    }

    /// Prepares for another replica that may act from now on.
    pub(super) fn stand_by(&mut self) {
        self.giving_up = None;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use lictor_core::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::names::Namespace;

    fn at(seconds: i64) -> Moment {
        let since = Duration::from_secs(u64::try_from(seconds).unwrap());
        Moment { now: Instant::after_origin(since), wall: Timestamp(seconds * 1000) }
    }

    fn time(seconds: i64) -> String {
        Wall::from_second(seconds).unwrap().to_string()
    }

    fn known(spec: &Value, status: &Value) -> KnownSwitchover {
        let mut full = json!({"electionName": "web", "fromTerm": 3});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let seen = serde_json::from_value(json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "Switchover", "spec": full, "status": status,
            "metadata": {"name": "s", "namespace": "shop", "uid": "s", "creationTimestamp": time(1000)},
        }));
        let id =
            SwitchoverId { election: Namespace::from("shop").election("web"), name: "s".into(), uid: Uid("s".into()) };
        KnownSwitchover::new(id, Version(1), seen.unwrap())
    }

    fn condition(type_: &str) -> Value {
        json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time(0)})
    }

    #[test]
    fn what_is_due_once_stays_due_though_the_clock_goes_back() {
        let mut later = known(&json!({"notBeforeTime": time(1010)}), &json!({}));
        assert_eq!(later.due(at(1000)), Due::Later(at(1010).now));
        assert_eq!(later.due(at(1010)), Due::Now);
        assert_eq!(later.due(Moment { wall: Timestamp(0), ..at(1011) }), Due::Now);
        let mut far = known(&json!({"notBeforeTime": "2126-01-01T00:00:00+02:00"}), &json!({}));
        assert_eq!(far.due(at(1000)), Due::Later(at(1030).now), "somebody may set the clock");
        assert_eq!(known(&json!({"notBeforeTime": "soon"}), &json!({})).due(at(1000)), Due::Unreadable);
        assert_eq!(known(&json!({}), &json!({})).due(at(0)), Due::Now);
    }

    #[test]
    fn a_deadline_is_never_longer_than_it_was_asked_for() {
        let deadline = |spec: Value, moment| {
            let mut known = known(&spec, &json!({}));
            assert_eq!(known.due(moment), Due::Now);
            known.deadline()
        };
        assert_eq!(deadline(json!({}), at(1000)), None);
        let minute = json!({"deadlineSeconds": 60});
        assert_eq!(deadline(minute.clone(), at(1010)), Some(at(1060).now), "from its creation");
        assert_eq!(deadline(minute.clone(), at(5000)), Some(at(5000).now), "no operator was there");
        let back = Moment { wall: Timestamp(0), ..at(2000) };
        assert_eq!(deadline(minute, back), Some(at(2060).now), "the clock was set back");
        let later = json!({"deadlineSeconds": 60, "notBeforeTime": time(1100)});
        assert_eq!(deadline(later, at(1110)), Some(at(1160).now), "from when it was due");
    }

    #[test]
    fn what_follows_goes_on_over_a_restart_and_is_never_longer() {
        let status = json!({
            "completionTime": time(2000), "conditions": [condition(COMPLETE)],
            "from": {"podName": "a", "podUID": "a"}, "to": {"podName": "b", "podUID": "b"},
        });
        let expiry = |spec: &Value, moment| known(spec, &status).expiry(moment).unwrap();
        let hold = |until| Some(Hold { from: Some(Uid("a".into())), to: Uid("b".into()), force: false, until });
        assert_eq!(expiry(&json!({"holdSeconds": 300}), at(2100)), (hold(at(2300).now), None));
        assert_eq!(expiry(&json!({"holdSeconds": 300}), at(9000)), (hold(at(9000).now), None));
        let back = Moment { wall: Timestamp(0), ..at(9000) };
        assert_eq!(expiry(&json!({"holdSeconds": 300}), back), (hold(at(9300).now), None));
        let kept = json!({"holdSeconds": 300, "ttlSecondsAfterFinished": 10});
        assert_eq!(expiry(&kept, at(2000)), (hold(at(2300).now), Some(at(2300).now)), "its hold is not cut short");
        // The first moment counts, and later ones do not.
        let mut known = known(&kept, &status);
        known.expiry(at(2000));
        assert_eq!(known.expiry(at(2200)), Some((hold(at(2300).now), Some(at(2300).now))));
    }

    #[test]
    fn one_that_failed_holds_nobody_back() {
        let status = json!({
            "completionTime": time(2000), "conditions": [condition(FAILED), condition(ACCEPTED)],
            "from": {"podName": "a", "podUID": "a"}, "to": {"podName": "b", "podUID": "b"},
        });
        let mut failed = known(&json!({"ttlSecondsAfterFinished": 10}), &status);
        assert_eq!((failed.result(), failed.expiry(at(2000))), (Some("R".into()), Some((None, Some(at(2010).now)))));
        let mut open = known(&json!({}), &json!({}));
        assert_eq!((open.result(), open.expiry(at(2000))), (None, None));
    }

    #[test]
    fn the_one_that_is_accepted_comes_first_then_the_oldest_then_the_first_by_name() {
        let named = |name: &str, created: i64, conditions: Value| {
            let mut known = known(&json!({}), &json!({"conditions": conditions}));
            known.id.name = name.into();
            let mut seen = Switchover::clone(&known.seen);
            seen.metadata.creation_timestamp = Some(Time(Wall::from_second(created).unwrap()));
            known.renew(Version(2), seen);
            known
        };
        let all = [
            named("z", 9, json!([condition(ACCEPTED)])),
            named("y", 1, json!([])),
            named("a", 2, json!([])),
            named("b", 2, json!([])),
        ];
        assert!(all.iter().map(KnownSwitchover::order).is_sorted());
    }

    #[test]
    fn whoever_is_accepted_is_meant_by_its_uid() {
        let to = |spec: Value, conditions: Value| {
            known(&spec, &json!({"to": {"podName": "b", "podUID": "u"}, "conditions": conditions})).asked().to
        };
        assert_eq!(to(json!({"toPodName": "b"}), json!([])), Target::Named("b".into()));
        assert_eq!(to(json!({"toPodName": "b"}), json!([condition(ACCEPTED)])), Target::Pod(Uid("u".into())));
        assert_eq!(to(json!({}), json!([condition(ACCEPTED)])), Target::Any);
    }
}

//! What may answer in an API server's place: a proxy with its own page, a server of another version, a connection that breaks.

use lictor::kubernetes::{Elections, MatchingPods, Namespaces, Pods, Workloads};
use lictor::store::{LeaseStore, LockStore, Owner};
use lictor_core::{
    ElectionRead, Failure, Key, PodChange, PodOutcome, PodPatch, RecordOutcome, Setting, Uid, Version, WorkloadId,
    WorkloadKind, WorkloadOutcome, WritePod, WriteWorkload,
};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::json::spoilt;
use crate::objects;
use crate::server::{Answer, LIMIT, Lab};

const STATUSES: [u16; 16] = [200, 200, 200, 201, 204, 301, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503];

/// Makes an object, a list or a refusal, damaged, with any status.
fn answer() -> BoxedStrategy<Answer> {
    let refusal = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "m",
        "metadata": {}, "details": {"name": "web", "causes": []},
    });
    let record = objects::record().to_string();
    let documents = [
        objects::pod("a"),
        objects::election("web"),
        objects::lease("web", &record),
        objects::workload("CronJob", "report"),
        objects::list(&[objects::pod("a"), objects::pod("b")]),
        objects::list(&[objects::lease("web", &record)]),
        refusal,
        Value::Null,
    ];
    let bodies = prop::sample::select(documents.to_vec()).prop_flat_map(spoilt);
    let status = prop_oneof![4 => prop::sample::select(STATUSES.as_slice()), 1 => 200_u16..600];
    (status, bodies).prop_map(|(status, body)| Answer::json(status, body)).boxed()
}

fn says(failure: &Failure) -> bool {
    let text = failure.text();
    let reason = text.split_once(": ").map_or(text, |(_, reason)| reason);
    !reason.trim().is_empty() && !reason.starts_with(';') && text.len() < 8_000
}

/// Checks that a failed read says why, and that a refused one did not succeed.
fn read<T: std::fmt::Debug>(status: u16, read: Result<T, Failure>) -> Result<(), TestCaseError> {
    match read {
        Ok(found) => prop_assert!(matches!(status, 200..=399 | 404), "{status}: {found:?}"),
        Err(failure) => prop_assert!(says(&failure), "{failure:?}"),
    }
    Ok(())
}

/// Checks that a write that may have been carried out is not reported as certainly failed, nor the other way round.
fn written(status: u16, done: bool, failure: Option<&Failure>) -> Result<(), TestCaseError> {
    prop_assert!(!done || (200..400).contains(&status), "{status} is no success");
    if let Some(failure) = failure {
        prop_assert!(says(failure), "{failure:?}");
        let sure = failure.is_refused();
        prop_assert!(!sure || !(200..400).contains(&status), "{status} may be a success: {failure:?}");
    }
    Ok(())
}

#[test]
fn a_read_that_is_answered_with_nonsense_says_so() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let (pods, elections) = (Pods::new(client.clone(), LIMIT), Elections::new(client.clone(), LIMIT));
    let matching = MatchingPods::new(pods.clone());
    let leases = LeaseStore::new(client, Namespaces::default(), LIMIT);
    let selectors: Vec<_> = serde_json::from_value(json!([{"matchLabels": {"app": "web"}}])).expect("selectors");
    lab.check(256, &answer(), async |answer| {
        let status = answer.status;
        lab.server.always(answer);
        read(status, pods.read("shop", "a").await)?;
        read(status, matching.list("shop", &selectors, None).await)?;
        read(status, leases.read(&Key::lease("shop", "web")).await)?;
        read(status, leases.locks_of("shop", &Uid("u".into()), None).await)?;
        let election = elections.read("shop", "web").await;
        prop_assert!(status == 404 || election != Ok(ElectionRead::Gone), "{status}: nothing is gone");
        read(status, election)
    });
}

#[test]
fn a_write_that_is_answered_with_nonsense_is_not_taken_for_done_or_refused() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let (pods, workloads) = (Pods::new(client.clone(), LIMIT), Workloads::new(client.clone(), LIMIT));
    let leases = LeaseStore::new(client, Namespaces::default(), LIMIT);
    let patch = PodPatch { labels: [("role".into(), Some("leader".into()))].into(), ..PodPatch::default() };
    let (name, uid, version) = ("a".to_owned(), Uid("uid of a".into()), Version(12));
    let pod = WritePod { change: PodChange::Promote, name, uid: uid.clone(), version, patch };
    let id = WorkloadId { kind: WorkloadKind::CronJob, name: "report".into() };
    let (setting, after_tick) = (Setting::Suspend(false), None);
    let workload = WriteWorkload { id: id.clone(), uid: uid.clone(), version, setting, claim: None, after_tick };
    let record = serde_json::from_value(objects::record()).expect("a record");
    let owner = Owner { namespace: "shop".into(), name: "web".into(), uid: uid.clone() };
    let key = Key::lease("shop", "web");
    lab.check(256, &answer(), async |answer| {
        let status = answer.status;
        lab.server.always(answer);
        match pods.write("shop", &pod).await {
            PodOutcome::Failed(failure) => written(status, false, Some(&failure))?,
            outcome => written(status, matches!(outcome, PodOutcome::Written(_)), None)?,
        }
        for expected in [None, Some(version)] {
            match leases.write(&key, &owner, expected, &record).await {
                RecordOutcome::Failed(failure) => written(status, false, Some(&failure))?,
                outcome => written(status, matches!(outcome, RecordOutcome::Written(_)), None)?,
            }
        }
        match leases.delete(&key, version).await {
            RecordOutcome::Failed(failure) => written(status, false, Some(&failure))?,
            outcome => {
                prop_assert!(outcome == RecordOutcome::Conflict || matches!(status, 200..=399 | 404), "{status}");
            }
        }
        for outcome in [
            workloads.write("shop", &workload, || true).await.outcome,
            workloads.delete("shop", &id, &uid).await.outcome,
            workloads.delete_running("shop", &uid).await.outcome,
        ] {
            match outcome {
                WorkloadOutcome::Failed(failure) => prop_assert!(says(&failure), "{failure:?}"),
                outcome => written(status, outcome == WorkloadOutcome::Done, None)?,
            }
        }
        Ok(())
    });
}

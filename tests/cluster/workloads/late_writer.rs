//! Late writers: an operator was stopped just before it enabled a workload, and its write arrives after others of its cluster
//! have moved on.

use lictor_testing::kubernetes::workloads::{WRITTEN, annotation, idle_pod, job_spec, pod};
use lictor_testing::kubernetes::{Answered, Asked, Lab, Operator, Proxy, Seen, WorkloadRecorder, eventually};
use serde_json::json;

/// Starts an operator behind a proxy that holds back what enables a workload.
async fn late(lab: &Lab) -> (Proxy, Operator) {
    let proxy = Proxy::start(lab.cluster).await;
    let operator = lab.operator_at(proxy.kubeconfig(), &[]);
    operator.acts().await;
    (proxy, operator)
}

/// Waits until this many requests are held back, and stops their sender.
async fn stopped(proxy: &Proxy, sender: &Operator, count: usize) {
    eventually(&format!("{count} writes are held back"), || async {
        if proxy.holding() >= count { Ok(()) } else { Err(format!("{:#?}", proxy.asked())) }
    })
    .await;
    sender.signal("STOP");
}

/// Waits until an operator has written a workload.
async fn stamped(lab: &Lab, workload: &str, by: &Operator) {
    let identity = by.identity().await;
    lab.wait_workload(workload, "it is stamped", |found| {
        annotation(found, WRITTEN).is_some_and(|writer| writer.contains(&format!("#{identity}/")))
    })
    .await;
}

fn assert_all_refused(answers: &[Answered]) {
    assert!(!answers.is_empty());
    for answer in answers {
        assert_eq!((answer.status, answer.body["reason"].as_str()), (409, Some("Conflict")), "{answer:#?}");
    }
}

/// Lets the stopped operator continue: it stands by, and nothing was ever enabled since this version.
async fn in_vain(lab: &Lab, recorder: &WorkloadRecorder, sender: &Operator, since: u64) {
    sender.signal("CONT");
    sender.logs("this replica stands by").await;
    lab.wait_disabled("Deployment/live", json!(0)).await;
    recorder.catch_up().await;
    let seen = recorder.seen_of("Deployment/live");
    let ran: Vec<_> = seen.iter().filter(|seen| seen.version > since && seen.may_run()).collect();
    assert!(ran.is_empty(), "{ran:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_enabling_that_comes_late_is_refused() {
    let lab = Lab::new("wl-late-first").await;
    let recorder = lab.record_workloads().await;
    lab.deployment("live", 0, pod()).await;
    let (proxy, sender) = late(&lab).await;
    proxy.hold(Asked::enables);
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({"workloads": [{"kind": "Deployment", "name": "live", "replicas": 2}]})).await;
    stopped(&proxy, &sender, 1).await;
    lab.kill_pod("a").await;
    let second = lab.operator(&[]);
    stamped(&lab, "Deployment/live", &second).await;
    assert_all_refused(&proxy.deliver_late().await);
    in_vain(&lab, &recorder, &sender, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for requests that are held back"]
async fn a_job_of_an_earlier_term_that_is_made_late_does_not_run() {
    let lab = Lab::new("wl-late-job").await;
    let recorder = lab.record_workloads().await;
    let (proxy, sender) = late(&lab).await;
    proxy.hold(|asked| asked.method == "POST" && asked.path.contains("/jobs"));
    lab.ready_pods(&["a"]).await;
    let template = json!({"spec": job_spec(idle_pod())});
    lab.elect(json!({"workloads": [{"kind": "Job", "name": "migrate", "jobTemplate": template}]})).await;
    stopped(&proxy, &sender, 1).await;
    let first = format!("Job/migrate-{}", lab.term("web").await);
    lab.kill_pod("a").await;
    lab.ready_pods(&["b"]).await;
    let _second = lab.operator(&[]);
    lab.wait_leader("b").await;
    let second = format!("Job/migrate-{}", lab.term("web").await);
    assert_ne!(first, second);
    lab.wait_workload(&second, "it runs", |found| found["spec"]["suspend"] == false).await;
    let answers = proxy.deliver_late().await;
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:#?}");
    eventually("the late one is deleted", || async {
        match lab.find(&first).await {
            None => Ok(()),
            Some(found) => Err(found.to_string()),
        }
    })
    .await;
    recorder.catch_up().await;
    let ran: Vec<_> = recorder.seen_of(&first).into_iter().filter(Seen::may_run).collect();
    assert!(ran.is_empty(), "{ran:#?}");
    let found = lab.find(&second).await.expect("the present one is there");
    assert_eq!(found["spec"]["suspend"], false, "{found}");
    sender.signal("CONT");
    sender.logs("this replica stands by").await;
}

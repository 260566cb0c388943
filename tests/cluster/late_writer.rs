//! Late writers: an operator was stopped just before it promoted a pod, and its promotion arrives after others have moved on.

use lictor_testing::kubernetes::{Answered, Asked, Lab, Operator, Proxy, Recorder, eventually};
use serde_json::json;

/// A promotion that is on its way for a long time.
struct Late {
    proxy: Proxy,
    sender: Operator,
    /// The pod that it would make the leader.
    pod: String,
}

impl Late {
    /// Makes an operator's first promotion late, in a new group where no pod has a label yet.
    async fn first(lab: &Lab, pods: &[&str]) -> Self {
        let proxy = Proxy::start(lab.cluster).await;
        proxy.hold(Asked::promotes);
        let sender = lab.operator_at(proxy.kubeconfig(), &[]);
        sender.acts().await;
        lab.ready_pods(pods).await;
        lab.elect(json!({"preemption": "HigherPriority"})).await;
        Self::stopped(proxy, sender).await
    }

    /// Makes a later promotion late, in a group in which the operator has moved the leadership once.
    async fn later(lab: &Lab, pods: &[&str]) -> Self {
        let proxy = Proxy::start(lab.cluster).await;
        let sender = lab.operator_at(proxy.kubeconfig(), &[]);
        lab.ready_pods(pods).await;
        lab.elect(json!({"preemption": "HigherPriority"})).await;
        let leader = lab.wait_any_leader().await;
        proxy.hold(Asked::promotes);
        let next = pods.iter().find(|pod| **pod != leader).expect("there is another");
        prefer(lab, next, 1).await;
        Self::stopped(proxy, sender).await
    }

    async fn stopped(proxy: Proxy, sender: Operator) -> Self {
        let pod = proxy.held().await.name().to_owned();
        sender.signal("STOP");
        Self { proxy, sender, pod }
    }

    /// Lets the promotion through as soon as there is another leader. The API server has to refuse it. Then the operator that
    /// sent it wakes up, and stands by.
    async fn arrives_in_vain(self, lab: &Lab, recorder: &Recorder, leader: &str, by: &Successor) {
        eventually(&format!("{leader} is promoted instead of {}", self.pod), || async {
            let roles = lab.roles().await;
            if roles.contains(&(leader.to_owned(), "leader".to_owned())) { Ok(()) } else { Err(format!("{roles:?}")) }
        })
        .await;
        let answers = self.proxy.deliver_late().await;
        assert!(answers.iter().all(|answer| answer.asked.name() == self.pod), "{answers:#?}");
        assert_all_refused(&answers);
        by.proxy.hold(|_| false);
        self.sender.signal("CONT");
        self.sender.logs("this replica stands by").await;
        lab.wait_leader(leader).await;
        recorder.assert_promises().await;
    }
}

/// An operator that moves the leadership on. After its promotion, it writes to no pod: what makes the late promotion fail has to
/// be written before, and not by chance soon after.
struct Successor {
    proxy: Proxy,
    _operator: Operator,
}

impl Successor {
    async fn start(lab: &Lab) -> Self {
        let proxy = Proxy::start(lab.cluster).await;
        let mut promoted = false;
        proxy.hold(move |asked| {
            let holds = promoted && asked.writes_pod();
            promoted |= asked.promotes();
            holds
        });
        let operator = lab.operator_at(proxy.kubeconfig(), &[]);
        operator.acts().await;
        Self { proxy, _operator: operator }
    }
}

fn assert_all_refused(answers: &[Answered]) {
    assert!(!answers.is_empty());
    for answer in answers {
        assert_eq!((answer.status, answer.body["reason"].as_str()), (409, Some("Conflict")), "{answer:#?}");
    }
}

async fn prefer(lab: &Lab, pod: &str, priority: i32) {
    lab.patch_pod(pod, json!({"metadata": {"annotations": {"lictor.dev/priority": priority.to_string()}}})).await;
}

/// Returns the last of the pods that is not this one.
fn another(pods: &[&'static str], than: &str) -> &'static str {
    pods.iter().rev().find(|pod| **pod != than).expect("there is another")
}

/// Lets a second operator write the record for another pod, and kills it before any of its writes to pods arrives. The next
/// operator continues with a record that does not name the pod of the late promotion, and no pod shows the label. Only a stamp on
/// every candidate makes the promotion fail.
async fn overtaken_halfway(lab: &Lab) -> Proxy {
    let proxy = Proxy::start(lab.cluster).await;
    proxy.hold(Asked::writes_pod);
    let second = lab.operator_at(proxy.kubeconfig(), &[]);
    second.acts().await;
    let held = proxy.held().await;
    assert!(!held.promotes(), "others are written to before anybody is promoted: {held:?}");
    drop(second);
    proxy
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_promotion_that_comes_late_is_refused() {
    let lab = Lab::new("late-first").await;
    let recorder = lab.record().await;
    let late = Late::first(&lab, &["a", "b"]).await;
    let other = another(&["a", "b"], &late.pod);
    prefer(&lab, other, 10).await;
    let second = Successor::start(&lab).await;
    late.arrives_in_vain(&lab, &recorder, other, &second).await;
    assert_eq!(recorder.assert_promises().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_promotion_is_refused_after_an_operator_between_was_killed_halfway() {
    let lab = Lab::new("late-later-twice").await;
    let recorder = lab.record().await;
    let late = Late::later(&lab, &["a", "b", "c"]).await;
    let other = another(&["a", "b", "c"], &late.pod);
    prefer(&lab, other, 10).await;
    let between = overtaken_halfway(&lab).await;
    let third = Successor::start(&lab).await;
    late.arrives_in_vain(&lab, &recorder, other, &third).await;
    assert_all_refused(&between.deliver_late().await);
    assert_eq!(recorder.assert_promises().await, 2);
}

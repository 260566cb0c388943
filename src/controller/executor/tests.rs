//! The fate of requests that wait, hang or break off. The API server is a function.

use std::time::Duration;

use http::{Method, Response};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use lictor_api::{Classes, DEFAULT_CONTROLLER};
use lictor_core::{
    ClaimState, Instant, LockValidity, OpId, PodChange, PodOutcome, PodPatch, Setting, Term, Uid, WorkloadClaim,
    WorkloadKind, WritePod,
};
use tokio::sync::Semaphore;
use tower::service_fn;

use super::*;

struct Lab {
    executor: Executor,
    inputs: mpsc::UnboundedReceiver<Input>,
    _claim: watch::Sender<ClaimUpdate>,
    /// The requests that have reached the API server.
    asked: Arc<Mutex<Vec<(Method, String)>>>,
    /// A permit for each request that is to be answered.
    answers: Arc<Semaphore>,
}

fn request((op, command): (u64, Command), validity: LockValidity, class: Class) -> Request {
    Request { op: OpId(op), command, validity, urgent: class == Class::Urgent, unclaimed: false }
}

impl Lab {
    /// An API server that answers with an error when the test permits it, or that panics in its caller.
    fn new(breaks_off: bool) -> Self {
        let (asked, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let (seen, turns) = (asked.clone(), answers.clone());
        let server = service_fn(move |request: http::Request<Body>| {
            let (seen, turns) = (seen.clone(), turns.clone());
            async move {
                assert!(!breaks_off, "the test asks for this");
                seen.lock().unwrap().push((request.method().clone(), request.uri().path().to_owned()));
                turns.acquire().await.expect("it is never closed").forget();
                let text = r#"{"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500}"#;
                let answer = Response::builder().status(500).body(Body::from(text.as_bytes().to_vec()));
                Ok::<_, std::io::Error>(answer.expect("it is an answer"))
            }
        });
        let (sender, inputs) = mpsc::unbounded_channel();
        let acting = ClaimState::Acting(Instant::after_origin(Duration::from_secs(1_000_000)));
        let (claim, receiver) = watch::channel(ClaimUpdate { state: acting, ..ClaimUpdate::default() });
        let client = Client::new(server, "default");
        let timeout = Duration::from_secs(1000);
        let metrics = Metrics::default();
        let executor = Executor::new(Stores::default(), &client, timeout, "test", metrics, sender, receiver);
        Self { executor, inputs, _claim: claim, asked, answers }
    }

    fn perform(&self, namespace: &str, class: Class, command: (u64, Command)) -> Option<Grant> {
        self.executor.perform(requester(namespace), request(command, LockValidity::Unlimited, class))
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Waits until this many requests have reached the API server, and no more arrive.
    async fn reach(&self, requests: usize) {
        let waited = tokio::time::timeout(Duration::from_secs(10), async {
            while self.asked() < requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(waited.await.is_ok(), "{} instead of {requests}", self.asked());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(self.asked(), requests);
    }

    async fn told(&mut self) -> Input {
        let told = tokio::time::timeout(Duration::from_secs(10), self.inputs.recv()).await;
        told.expect("it is told").expect("the executor lives")
    }
}

fn id(namespace: &str) -> ElectionId {
    ElectionId { election: Namespace::from(namespace).election("web"), uid: Uid("e".into()) }
}

/// A requester with the template that `migrate` names.
fn requester(namespace: &str) -> Requester {
    let object = object(namespace);
    Requester {
        id: id(namespace),
        seen: object.seen().clone(),
        spec: object.spec().cloned(),
        claims: Arc::default(),
        stores: Arc::default(),
        is_new: false,
        begins: false,
    }
}

fn read(op: u64) -> (u64, Command) {
    (op, Command::ReadPod { name: "p0".into() })
}

fn promotion(op: u64) -> (u64, Command) {
    let write = Command::WritePod(WritePod {
        change: PodChange::Promote,
        name: "p0".into(),
        uid: Uid("u".into()),
        version: Version(1),
        patch: PodPatch { labels: [("role".into(), Some("leader".into()))].into(), ..PodPatch::default() },
    });
    (op, write)
}

fn object(namespace: &str) -> ElectionObject {
    let seen = serde_json::from_value(serde_json::json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
        "metadata": {"namespace": namespace, "name": "web", "uid": "e"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "workloads": [{"kind": "Job", "name": "migrate", "jobTemplate": {"spec": {"template": {}}}}],
        },
    }));
    let mut object = ElectionObject::new(id(namespace), Version(1), seen.unwrap());
    object.resolve(&Classes::new(), &Classes::new(), DEFAULT_CONTROLLER);
    object
}

fn event(note: String) -> Event {
    let regarding =
        ObjectReference { namespace: Some("a".into()), uid: Some("e".into()), ..ObjectReference::default() };
    Event { regarding, related: None, warning: false, reason: "Elected", action: "Promote", note }
}

#[tokio::test]
async fn a_request_that_breaks_off_is_told_whatever_it_was() {
    let mut lab = Lab::new(true);
    let job = WorkloadId { kind: WorkloadKind::Job, name: "migrate-1".into() };
    let kept = Setting::Suspend(true);
    let (election_name, writer) = ("web".to_owned(), "me".to_owned());
    let claim = WorkloadClaim { election: election_name, enabled: false, term: Term(1), writer, write: OpId(1), kept };
    // More requests than may be under way at a time, so each has to give its turn back.
    for number in 0..40 {
        let election = object("a");
        lab.perform("a", Class::Urgent, read(number));
        assert!(matches!(
            lab.told().await,
            Input::Outcome(_, op, Outcome::PodRead(Err(Failure::Unknown(_)))) if op == OpId(number)
        ));
        let (_grant, permit) = Grant::new();
        lab.executor.write_status(&election, number, permit, LeaderElectionStatus::default());
        assert!(matches!(lab.told().await, Input::Written(_, told, written)
            if told == number && matches!(*written, Err(Some(Failure::Unknown(_))))));
        lab.executor.write_metadata(&election, number, true, Claims::default());
        assert!(matches!(lab.told().await, Input::Written(_, told, written)
            if told == number && matches!(*written, Err(Some(Failure::Unknown(_))))));
        let create = Command::CreateJob { plan: "migrate".into(), id: job.clone(), claim: claim.clone() };
        let _grant = lab.perform("a", Class::Urgent, (number, create));
        let note = Command::NoteJob { plan: "migrate".into(), term: Term(1) };
        lab.perform("a", Class::Urgent, (number, note));
        for _ in 0..2 {
            assert!(matches!(
                lab.told().await,
                Input::Outcome(_, op, Outcome::WorkloadWritten(WorkloadOutcome::Failed(Failure::Unknown(_))))
                    if op == OpId(number)
            ));
        }
        lab.executor.tell(&id("a"), event(number.to_string()));
    }
    while lab.executor.pending() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_promotion_that_is_taken_back_while_it_waits_is_not_sent() {
    let mut lab = Lab::new(false);
    for number in 0..CLUSTER.member as u64 {
        lab.perform("a", Class::Urgent, read(number));
    }
    lab.reach(CLUSTER.member).await;
    let wanted = lab.perform("a", Class::Urgent, promotion(100));
    let taken_back = lab.perform("a", Class::Urgent, promotion(101));
    assert!(wanted.is_some());
    drop(taken_back);
    lab.answers.add_permits(100);
    let mut refused = None;
    for _ in 0..CLUSTER.member + 2 {
        if let Input::Outcome(_, OpId(101), outcome) = lab.told().await {
            refused = Some(outcome);
        }
    }
    let why = Failure::Refused("the request is no longer wanted".into());
    assert_eq!(refused, Some(Outcome::PodWritten(PodOutcome::Failed(why))));
    let patches = lab.asked.lock().unwrap().iter().filter(|(method, _)| *method == Method::PATCH).count();
    assert_eq!(patches, 1);
}

#[tokio::test]
async fn nobody_is_promoted_after_the_validity() {
    let mut lab = Lab::new(false);
    let grant = lab.executor.perform(requester("a"), request(promotion(1), LockValidity::Lapsed, Class::Urgent));
    assert!(matches!(
        lab.told().await,
        Input::Outcome(_, _, Outcome::PodWritten(PodOutcome::Failed(Failure::Refused(_))))
    ));
    assert!(grant.is_some() && lab.asked() == 0);
}

#[tokio::test]
async fn a_namespace_whose_requests_hang_leaves_room_for_the_others() {
    let lab = Lab::new(false);
    for number in 0..200 {
        lab.perform("hangs", Class::Wait, read(number));
        lab.perform("hangs", Class::Urgent, read(1000 + number));
    }
    lab.reach(CLUSTER.member).await;
    for number in 0..10 {
        lab.perform(&format!("other-{number}"), Class::Urgent, read(number));
    }
    lab.reach(CLUSTER.member + 10).await;
}

#[tokio::test(start_paused = true)]
async fn lists_take_no_turn_and_only_new_groups_wait_for_others() {
    let lab = Lab::new(false);
    for number in 0..100 {
        lab.perform("a", Class::Urgent, read(number));
    }
    let ask = |namespace, begins, command| {
        let of = Requester { is_new: begins, begins, ..requester(namespace) };
        lab.executor.perform(of, request(command, LockValidity::Unlimited, Class::Urgent));
    };
    for number in 0..50 {
        ask("a", true, (number, Command::ReadRecord { key: Key::lease("a", "web") }));
    }
    lab.reach(CLUSTER.member).await;
    let list_in = |namespace, op, begins| {
        let list = Command::ListPods { selectors: vec![Selector::default()], leaders: Vec::new() };
        ask(namespace, begins, (op, list));
    };
    let list = |op, begins| list_in("a", op, begins);
    list(1000, true);
    lab.reach(CLUSTER.member).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    lab.reach(CLUSTER.member + 1).await;
    // The next list waits for the end of that one.
    list(1001, true);
    list(1002, false);
    lab.reach(CLUSTER.member + 1).await;
    let before = tokio::time::Instant::now();
    list_in("b", 1003, false);
    lab.reach(CLUSTER.member + 2).await;
    assert!(before.elapsed() < Duration::from_millis(25), "{:?}", before.elapsed());
    lab.answers.add_permits(1000);
    // Each list that fails as protobuf is asked for as JSON.
    lab.reach(100 + 6).await;
}

#[tokio::test]
async fn events_hold_up_no_status_and_nobody_elses_events() {
    let lab = Lab::new(false);
    for number in 0..100 {
        lab.executor.tell(&id("a"), event(number.to_string()));
        lab.executor.tell(&id("a"), event("the same".into()));
    }
    let under_way = COURTEOUS.member * 3 / 4;
    lab.reach(under_way).await;
    assert_eq!(lab.executor.pending(), under_way + EVENTS_OF_ONE, "what waits is bounded");
    lab.executor.tell(&id("b"), event("of another".into()));
    lab.reach(under_way + 1).await;
    let (grant, permit) = Grant::new();
    lab.executor.write_status(&object("a"), 1, permit, LeaderElectionStatus::default());
    lab.reach(under_way + 2).await;
    assert!(!grant.take_back(), "it has begun");
    let metrics = lab.executor.metrics.encode().unwrap();
    for line in ["lictor_events_dropped_total{reason=\"repeated\"}", "lictor_events_dropped_total{reason=\"full\"}"] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

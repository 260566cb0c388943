//! Leaders that look ready and do not work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use lictor_testing::kubernetes::{Lab, eventually, is_ready};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::commands::{run, told};

/// A pod's answers: this HTTP status, or nothing if it is 0.
struct Answers {
    ip: String,
    port: u16,
    status: Arc<AtomicU16>,
    task: JoinHandle<()>,
}

impl Answers {
    /// Starts it at a loopback address that only this process and this test use. Port 0 picks a free port.
    async fn start(test: u32, number: u32, port: u16) -> Self {
        let process = std::process::id();
        let ip = format!("127.{}.{}.{}", 1 + process % 250, 1 + process / 250 % 250, 8 * test + number);
        let listener = TcpListener::bind((ip.as_str(), port)).await.expect("the address is free");
        let port = listener.local_addr().expect("it is bound").port();
        let status = Arc::new(AtomicU16::new(200));
        let given = status.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let status = given.load(Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request).await;
                    if status == 0 {
                        std::future::pending::<()>().await;
                    }
                    let answer = format!("HTTP/1.1 {status} Test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Self { ip, port, status, task }
    }

    /// Starts two at the same port.
    async fn pair() -> [Self; 2] {
        static TESTS: AtomicU32 = AtomicU32::new(1);
        let test = TESTS.fetch_add(1, Ordering::Relaxed);
        let first = Self::start(test, 1, 0).await;
        let second = Self::start(test, 2, first.port).await;
        [first, second]
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_leader_that_fails_its_http_probe_is_replaced() {
    let lab = Lab::new("probe-http").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let answers = Answers::pair().await;
    lab.ready_pod_at("a", &answers[0].ip).await;
    lab.ready_pod_at("b", &answers[1].ip).await;
    let http = json!({"path": "/leader", "port": answers[0].port});
    lab.elect(json!({"probe": {"httpGet": http, "periodSeconds": 1, "failureThreshold": 2}})).await;
    let mut leader = lab.wait_any_leader().await;
    // One pod that says that it fails, then one that does not answer.
    for status in [503, 0] {
        let (old, new) = if leader == "a" { (0, "b") } else { (1, "a") };
        answers[old].answer(status);
        lab.wait_leader(new).await;
        lab.wait_reason(new, "ProbeFailed").await;
        let note = lab.wait_event("Pod", &leader, "Demoted").await;
        let asked = format!("2 times in a row: http://{}:{}/leader", answers[old].ip, answers[old].port);
        assert!(note.contains(&format!("the leader failed its probe {asked}")), "{note}");
        assert!(is_ready(&lab.get_pod(&leader).await), "it looks ready still");
        answers[old].answer(200);
        leader = new.into();
    }
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_looked_up_by_its_name_in_the_leader() {
    let lab = Lab::new("probe-named-port").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let answers = Answers::pair().await;
    let ports = json!([{"name": "leader", "containerPort": answers[0].port}, {"name": "admin", "containerPort": 1}]);
    let containers = json!([{"name": "main", "image": "example/web", "ports": ports}]);
    lab.ready_pod_of("a", &answers[0].ip, containers.clone()).await;
    lab.ready_pod_of("b", &answers[1].ip, containers).await;
    let probe = |port: &str| json!({"httpGet": {"port": port}, "periodSeconds": 1, "failureThreshold": 2});
    lab.elect(json!({"probe": probe("leader")})).await;
    let old = lab.wait_any_leader().await;
    answers[usize::from(old == "b")].answer(503);
    let new = other_of(&old);
    lab.wait_leader(new).await;
    lab.wait_reason(new, "ProbeFailed").await;
    answers[usize::from(old == "b")].answer(200);

    lab.elect(json!({"probe": probe("web")})).await;
    let message = lab.wait_condition("web", "Elected", "True", "ProbeFails").await;
    let expected = "(no container of the pod has a TCP port named \"web\": there are leader, admin)";
    assert!(message.contains(expected) && message.contains("check spec.probe"), "{message}");
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_asked_what_its_readiness_probes_ask() {
    let lab = Lab::new("probe-readiness").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let answers = Answers::pair().await;
    let container = |name: &str, probe: Value| {
        let ports = json!([{"name": "web", "containerPort": answers[0].port}]);
        json!({"name": name, "image": "example/web", "ports": ports, "readinessProbe": probe})
    };
    // A kubelet would take five minutes to see it.
    let http = json!({"httpGet": {"path": "/ready", "port": "web"}, "periodSeconds": 100});
    let both = json!([container("main", http), container("side", json!({"tcpSocket": {"port": answers[0].port}}))]);
    lab.ready_pod_of("a", &answers[0].ip, both.clone()).await;
    lab.ready_pod_of("b", &answers[1].ip, both).await;
    lab.elect(json!({"probe": {"likeReadiness": {}}})).await;
    let old = lab.wait_any_leader().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    let broken = &answers[usize::from(old == "b")];
    broken.answer(503);
    let new = other_of(&old);
    lab.wait_leader(new).await;
    lab.wait_reason(new, "ProbeFailed").await;
    let note = lab.wait_event("Pod", &old, "Demoted").await;
    let asked = format!("3 times in a row: container main: http://{}:{}/ready answers 503", broken.ip, broken.port);
    assert!(note.contains(&asked), "{note}");
    assert_eq!(recorder.assert_promises().await, 2);

    // Nobody but a kubelet can ask these, so they say nothing against the leader.
    lab.kill_pod(&old).await;
    lab.kill_pod(new).await;
    let exec = json!([container("main", json!({"exec": {"command": ["true"]}}))]);
    lab.ready_pod_of("c", "127.0.0.1", exec).await;
    lab.wait_leader("c").await;
    let message = lab.wait_condition("web", "Elected", "True", "NotProbed").await;
    assert!(message.starts_with("c is the leader, but the readinessProbe of its container main"), "{message}");
    assert!(message.contains("runs a command (exec)"), "{message}");
    lab.wait_condition("web", "Ready", "False", "NotProbed").await;
    lab.ready_pod_at("d", "127.0.0.1").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    lab.wait_leader("c").await;
    lab.kill_pod("c").await;
    lab.wait_leader("d").await;
    let expected = "d is the leader, but no container of it has a readinessProbe";
    eventually("the condition tells of d", || async {
        let message = lab.wait_condition("web", "Elected", "True", "NotProbed").await;
        if message.starts_with(expected) { Ok(()) } else { Err(message) }
    })
    .await;
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_leader_that_fails_its_tcp_probe_is_replaced() {
    let lab = Lab::new("probe-tcp").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let [first, second] = Answers::pair().await;
    lab.ready_pod_at("a", &first.ip).await;
    lab.ready_pod_at("b", &second.ip).await;
    let tcp = json!({"port": first.port});
    lab.elect(json!({"probe": {"tcpSocket": tcp, "periodSeconds": 1, "failureThreshold": 2}})).await;
    let old = lab.wait_any_leader().await;
    let (broken, new) = if old == "a" { (first, "b") } else { (second, "a") };
    drop(broken);
    lab.wait_leader(new).await;
    lab.wait_reason(new, "ProbeFailed").await;
    assert!(is_ready(&lab.get_pod(&old).await), "it looks ready still");
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_fails_its_probe_stays_if_nobody_else_is_eligible() {
    let lab = Lab::new("probe-alone").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let [only, other] = Answers::pair().await;
    lab.ready_pod_at("a", &only.ip).await;
    let http = json!({"port": only.port});
    lab.elect(json!({"probe": {"httpGet": http, "periodSeconds": 1, "failureThreshold": 2}})).await;
    lab.wait_leader("a").await;
    only.answer(500);
    let message = lab.wait_condition("web", "Elected", "True", "ProbeFails").await;
    assert!(message.contains("a fails its probe") && message.contains("no other pod is eligible"), "{message}");
    lab.wait_leader("a").await;
    only.answer(204);
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    only.answer(500);
    lab.wait_condition("web", "Elected", "True", "ProbeFails").await;
    assert_eq!(recorder.assert_promises().await, 1);
    // Until another pod can lead.
    lab.ready_pod_at("b", &other.ip).await;
    eventually("b leads", || async {
        let leader = lab.wait_any_leader().await;
        if leader == "b" { Ok(()) } else { Err(leader) }
    })
    .await;
    assert_eq!(recorder.assert_promises().await, 2);
}

fn other_of(pod: &str) -> &'static str {
    if pod == "a" { "b" } else { "a" }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_with_a_wrong_port_lets_the_leader_stay_and_says_where_it_asked() {
    let lab = Lab::new("probe-wrong-port").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let answers = Answers::pair().await;
    lab.ready_pod_at("a", &answers[0].ip).await;
    lab.ready_pod_at("b", &answers[1].ip).await;
    let probe =
        |port: u16| json!({"httpGet": {"path": "/leader", "port": port}, "periodSeconds": 1, "failureThreshold": 2});
    // Nobody listens at this port.
    lab.elect(json!({"probe": probe(1)})).await;
    let message = lab.wait_condition("web", "Elected", "True", "ProbeFails").await;
    let leader = lab.wait_any_leader().await;
    let ip = if leader == "a" { &answers[0].ip } else { &answers[1].ip };
    assert!(message.contains(&format!("http://{ip}:1/leader: ")) && message.contains("refused"), "{message}");
    assert!(
        message.contains("has failed the probe since its last success, too") && message.contains("check spec.probe"),
        "{message}"
    );
    lab.wait_condition("web", "Ready", "False", "ProbeFails").await;
    let note = lab.wait_event("Pod", other_of(&leader), "Demoted").await;
    assert!(note.contains(":1/leader"), "{note}");
    // Longer than five rounds of the probe.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(recorder.assert_promises().await, 2, "each pod has led once, and the second one stays");
    // A leader that is gone is replaced at once.
    lab.kill_pod(&leader).await;
    lab.wait_leader(other_of(&leader)).await;
    lab.wait_condition("web", "Ready", "False", "ProbeFails").await;
    lab.elect(json!({"probe": probe(answers[0].port)})).await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_changes_again_and_again_is_told_and_what_can_wait_waits() {
    let lab = Lab::new("flaps").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({"preemption": "HigherPriority"})).await;
    for number in 0..5 {
        let leader = lab.wait_any_leader().await;
        lab.kill_pod(&leader).await;
        lab.ready_pods(&[&format!("c{number}")]).await;
    }
    let message = lab.wait_condition("web", "Elected", "True", "Flapping").await;
    assert!(message.contains("has changed 5 times"), "{message}");
    lab.wait_condition("web", "Ready", "False", "Flapping").await;
    // Pods that were killed let no other change wait; changes that could wait do.
    let prefer = async |priority: &str| {
        let leader = lab.wait_any_leader().await;
        let roles = lab.roles().await;
        let (other, _) = roles.into_iter().find(|(pod, _)| *pod != leader).expect("a follower");
        lab.patch_pod(&other, json!({"metadata": {"annotations": {"lictor.dev/priority": priority}}})).await;
        (leader, other)
    };
    for priority in ["1", "2", "3"] {
        let (_, other) = prefer(priority).await;
        lab.wait_leader(&other).await;
    }
    let (leader, other) = prefer("4").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    lab.wait_leader(&leader).await;
    lab.kill_pod(&leader).await;
    lab.wait_leader(&other).await;
    let doctor = run(&lab, &["doctor"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("Flapping"), "{}", told(&["doctor"], &doctor));
}

//! Each way to break a promise once, change by change; and what is no breach.
#![cfg(test)]

use std::time::Duration;

use serde_json::json;
use tokio::time::advance;

use super::*;
use crate::excuse::CONSUL_TTL;
use crate::operator::OWN_NAMESPACE;
use crate::servers::api::Object;
use crate::world::{CLUSTERS, REPLICAS};

const WEST: usize = 0;
const EAST: usize = 1;

/// What is shown to a judge.
struct Case {
    judge: Judge,
    objects: BTreeMap<(usize, String), Object>,
}

impl Case {
    /// Two clusters whose operators have acted for long.
    async fn new() -> Self {
        let mut case = Self { judge: Judge::new(Log::new(false), CONSUL_TTL), objects: BTreeMap::new() };
        for cluster in [WEST, EAST] {
            for replica in 0..REPLICAS {
                case.replica(cluster, replica, true);
            }
            let lease = json!({
                "metadata": {"namespace": OWN_NAMESPACE, "name": "operator"},
                "spec": {"holderIdentity": identity(cluster, 0)},
            });
            case.see(cluster, "leases", Some(lease), false);
        }
        case.wait(100).await;
        case
    }

    async fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            advance(Duration::from_millis(100)).await;
            self.judge.pass();
        }
    }

    fn replica(&mut self, cluster: usize, replica: usize, runs: bool) {
        let identity = runs.then(|| identity(cluster, replica));
        let well = Some(0);
        self.judge.replica(cluster, replica, Condition { identity, reaches_api: well, hears_store: well, well });
    }

    /// All operators of a cluster are killed, and Consul gives its lock away.
    async fn abandon(&mut self, cluster: usize) {
        (0..REPLICAS).for_each(|replica| self.replica(cluster, replica, false));
        self.wait(30).await;
        self.judge.lose(cluster, Loss::Expired);
    }

    fn see(&mut self, cluster: usize, resource: &str, after: Option<Value>, by_hand: bool) {
        let name = after.as_ref().unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        let after = after.map(Object::new);
        let before = self.objects.insert((cluster, name), after.clone().unwrap());
        self.judge.see(cluster, &Change { version: 1, resource: resource.into(), before, after, by_hand });
    }

    fn pod(&mut self, cluster: usize, name: &str, role: &str, term: u64) -> &mut Self {
        self.see(cluster, "pods", Some(pod(cluster, name, role, term)), false);
        self
    }

    fn pod_by_hand(&mut self, cluster: usize, name: &str, role: &str, term: u64) -> &mut Self {
        self.see(cluster, "pods", Some(pod(cluster, name, role, term)), true);
        self
    }

    fn workload(&mut self, cluster: usize, wanted: u64, present: u64) -> &mut Self {
        let object =
            json!({"metadata": {"name": WORKLOAD}, "spec": {"replicas": wanted}, "status": {"replicas": present}});
        self.see(cluster, "deployments", Some(object), false);
        self
    }

    /// A user changes how the leader of "web" is labelled.
    fn relabel(&mut self, cluster: usize, (key, value): (&str, &str)) -> &mut Self {
        let election = json!({"metadata": {"name": "web"}, "spec": {"leader": {"labels": {key: value}}}});
        self.see(cluster, "leaderelections", Some(election), true);
        self
    }

    /// An election is gone that a finalizer had kept.
    fn withdraw(&mut self, cluster: usize, app: &str) {
        let before = Some(json!({"metadata": {"name": app, "deletionTimestamp": "2026-01-01T00:00:01Z"}}).into());
        let change = Change { version: 1, resource: "leaderelections".into(), before, after: None, by_hand: false };
        self.judge.see(cluster, &change);
    }

    /// A pod by its labels.
    fn labelled(&mut self, cluster: usize, name: &str, labels: &[(&str, &str)], term: u64) -> &mut Self {
        let mut pod = pod(cluster, name, "", term);
        for (key, value) in labels {
            pod["metadata"]["labels"][key] = json!(value);
        }
        self.see(cluster, "pods", Some(pod), false);
        self
    }

    fn verdict(&self) -> &str {
        self.judge.verdict.as_deref().unwrap_or_default()
    }
}

fn identity(cluster: usize, replica: usize) -> String {
    format!("{}/o{replica}", CLUSTERS[cluster])
}

fn pod(cluster: usize, name: &str, role: &str, term: u64) -> Value {
    json!({"metadata": {
        "name": name, "uid": format!("{cluster}-{name}"), "labels": {"role": role},
        "annotations": {"lictor.dev/term": term.to_string()},
    }})
}

#[tokio::test(start_paused = true)]
async fn handovers_in_order_break_nothing() {
    let mut case = Case::new().await;
    case.pod(WEST, "web-0", "leader", 1).pod(WEST, "web-0", "follower", 2).pod(WEST, "web-1", "leader", 2);
    case.pod(EAST, "web-0", "leader", 1);
    case.pod(WEST, "db-0", "leader", 5).pod(WEST, "db-0", "follower", 5).pod(EAST, "db-2", "leader", 9);
    case.workload(WEST, 2, 2).workload(WEST, 0, 2).workload(WEST, 0, 0).workload(EAST, 2, 0);
    // A label that is put back under its own term is the same leadership.
    case.pod(EAST, "db-2", "", 9).pod(EAST, "db-2", "leader", 9);
    assert_eq!((case.verdict(), case.judge.figures.leaderships), ("", 5));
    let group = |app: &str, cluster| Group { app: app.into(), cluster };
    assert_eq!(case.judge.leaders(&group("web", Some(WEST))), ["0/web-1"]);
    assert_eq!(case.judge.leaders(&group("db", None)), ["1/db-2"]);
    assert_eq!(case.judge.leaders(&group(WORKLOAD, None)), ["1/live"]);
}

#[tokio::test(start_paused = true)]
async fn two_leaders_in_one_cluster_are_one_too_many() {
    for app in ["web", "db"] {
        let mut case = Case::new().await;
        case.pod(WEST, &format!("{app}-0"), "leader", 1).pod(WEST, &format!("{app}-1"), "leader", 2);
        assert_eq!(case.verdict(), format!("two leaders of {app} in one cluster"));
    }
    // Whatever else is wrong in it.
    let mut case = Case::new().await;
    case.pod(WEST, "db-0", "leader", 1);
    case.abandon(WEST).await;
    case.pod(WEST, "db-1", "leader", 2);
    assert_eq!(case.verdict(), "two leaders of db in one cluster");
}

#[tokio::test(start_paused = true)]
async fn two_leaders_in_two_clusters_are_one_too_many() {
    let mut case = Case::new().await;
    case.pod(WEST, "db-0", "leader", 1).pod(EAST, "db-1", "leader", 2);
    assert_eq!(case.verdict(), "leaders of db in both clusters");
    let mut case = Case::new().await;
    case.pod(WEST, "db-0", "leader", 1);
    case.replica(WEST, 0, false);
    case.pod(EAST, "db-1", "leader", 2);
    assert_eq!(case.verdict(), "leaders of db in both clusters", "a standby is left, and the lock was not lost");
}

#[tokio::test(start_paused = true)]
async fn of_two_leaders_the_older_one_may_be_excused_and_no_other() {
    let mut case = Case::new().await;
    case.pod(WEST, "db-0", "leader", 1);
    case.abandon(WEST).await;
    case.pod(EAST, "db-1", "leader", 2);
    case.wait(600).await;
    assert_eq!((case.verdict(), case.judge.figures.excused), ("", 1));
    assert!(case.judge.figures.excused_for > 590_000, "{:?}", case.judge.figures);
    // The trouble of the newer one's cluster is no excuse, nor is that of both terms being one.
    for term in [1, 2] {
        let mut case = Case::new().await;
        case.pod(WEST, "db-0", "leader", term);
        case.abandon(EAST).await;
        case.pod(EAST, "db-1", "leader", 2);
        assert_eq!(case.verdict(), "leaders of db in both clusters");
    }
}

#[tokio::test(start_paused = true)]
async fn two_that_still_lead_when_the_excuse_ends_are_a_breach() {
    let mut case = Case::new().await;
    case.pod(WEST, "db-0", "leader", 1);
    case.abandon(WEST).await;
    case.pod(EAST, "db-1", "leader", 2);
    case.replica(WEST, 0, true);
    case.wait(7).await;
    assert_eq!(case.verdict(), "");
    case.wait(60).await;
    assert_eq!(case.verdict(), "leaders of db in both clusters");
}

#[tokio::test(start_paused = true)]
async fn a_term_rises_with_each_leader() {
    for (pod, term) in [("web-1", 3), ("web-1", 2), ("web-0", 2)] {
        let mut case = Case::new().await;
        case.pod(WEST, "web-0", "leader", 3).pod(WEST, "web-0", "follower", 3).pod(WEST, pod, "leader", term);
        assert!(case.verdict().contains(&format!("leads web in term {term}")), "{:?}", case.verdict());
    }
    let mut case = Case::new().await;
    case.pod(WEST, "db-0", "leader", 3).pod(WEST, "db-0", "follower", 3).pod(EAST, "db-0", "leader", 3);
    assert!(case.verdict().contains("leads db in term 3"), "another cluster's pod, under the same term");
    // What nobody can know any more.
    let mut case = Case::new().await;
    case.pod(WEST, "web-0", "leader", 3).pod(WEST, "web-0", "follower", 3);
    case.judge.forget(WEST, Term(1));
    case.pod(WEST, "web-1", "leader", 2);
    assert_eq!(case.verdict(), "");
    case.pod(WEST, "web-1", "follower", 2).pod(WEST, "web-0", "leader", 2);
    assert!(case.verdict().contains("leads web in term 2"));
}

#[tokio::test(start_paused = true)]
async fn what_a_person_wrote_is_nobodys_breach_until_an_operator_confirms_it() {
    let mut case = Case::new().await;
    case.pod(WEST, "db-0", "leader", 5).pod_by_hand(WEST, "db-1", "leader", 1).pod_by_hand(EAST, "db-0", "leader", 1);
    // A term that a person takes off makes no older leader.
    case.pod_by_hand(WEST, "db-0", "leader", 0);
    assert_eq!(case.verdict(), "");
    case.pod(EAST, "db-0", "leader", 6);
    assert_eq!(case.verdict(), "leaders of db in both clusters");
}

#[tokio::test(start_paused = true)]
async fn a_workload_runs_in_one_cluster_until_its_last_pod_has_ended() {
    let mut case = Case::new().await;
    case.workload(WEST, 2, 2).workload(WEST, 0, 1).workload(EAST, 2, 0);
    assert_eq!(case.verdict(), "the workload runs in both clusters");
    let mut case = Case::new().await;
    case.workload(WEST, 2, 2);
    case.abandon(EAST).await;
    case.workload(EAST, 2, 0);
    assert_eq!(case.verdict(), "the workload runs in both clusters", "it is the west's that is older");
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_nobody_could_disable_has_the_time_to_end_afterwards() {
    let mut case = Case::new().await;
    case.workload(WEST, 2, 2);
    case.abandon(WEST).await;
    case.workload(EAST, 2, 2);
    case.replica(WEST, 0, true);
    case.wait(7).await;
    assert_eq!((case.verdict(), case.judge.figures.excused), ("", 1));
    case.workload(WEST, 0, 2);
    case.wait(WINDS_DOWN / 1_000).await;
    assert_eq!(case.verdict(), "");
    case.wait(5).await;
    assert_eq!(case.verdict(), "the workload runs in both clusters");
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_could_renew_keeps_its_locks() {
    let mut case = Case::new().await;
    case.judge.lose(WEST, Loss::Expired);
    assert!(case.verdict().contains("a session has ended"));
}

#[tokio::test(start_paused = true)]
async fn the_label_of_an_earlier_spec_counts_too_unless_nobody_can_know_of_it() {
    for forgotten in [false, true] {
        let mut case = Case::new().await;
        if forgotten {
            case.judge.forget(WEST, Term(1));
        }
        case.pod(WEST, "web-0", "leader", 1).relabel(WEST, ACTIVE);
        assert_eq!(case.judge.leaders(&Group { app: "web".into(), cluster: Some(WEST) }), Vec::<String>::new());
        case.labelled(WEST, "web-1", &[ACTIVE], 2);
        assert_eq!(case.verdict(), if forgotten { "" } else { "two leaders of web in one cluster" });
        assert_eq!(case.judge.leftovers(), if forgotten { vec![] } else { vec!["0/web-0".to_owned()] });
        case.labelled(WEST, "web-2", &[ACTIVE], 3);
        assert_eq!(case.verdict(), "two leaders of web in one cluster");
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_of_another_spec_that_a_person_wrote_is_nobodys_breach() {
    let mut case = Case::new().await;
    case.relabel(WEST, ACTIVE).labelled(WEST, "web-0", &[ACTIVE], 1).pod_by_hand(WEST, "web-1", "leader", 1);
    // The operator writes something else to it.
    case.pod(WEST, "web-1", "leader", 2).labelled(WEST, "web-0", &[ACTIVE], 1);
    assert_eq!((case.verdict(), case.judge.leftovers()), ("", vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_election_that_is_gone_has_left_no_leader() {
    for app in ["web", "db"] {
        let mut case = Case::new().await;
        case.pod(WEST, &format!("{app}-0"), "leader", 1).withdraw(EAST, app);
        assert_eq!(case.verdict(), "", "it is the other cluster's");
        case.withdraw(WEST, app);
        assert!(case.verdict().contains("still show a leader's label"), "{}", case.verdict());
        // What a person did away with, nobody knows.
        let mut case = Case::new().await;
        case.pod(WEST, &format!("{app}-0"), "leader", 1).judge.forget(WEST, Term(1));
        case.withdraw(WEST, app);
        assert_eq!(case.verdict().is_empty(), app == "web");
    }
    // Terms begin anew with another election.
    let mut case = Case::new().await;
    case.pod(WEST, "web-0", "leader", 7).pod(WEST, "web-0", "follower", 7).withdraw(WEST, "web");
    case.pod(WEST, "web-1", "leader", 1);
    assert_eq!((case.verdict(), case.judge.figures.deletions), ("", 1));
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_started_once_unless_a_lock_was_lost_or_a_clock_has_jumped() {
    for (lost, jumped) in [(false, false), (true, false), (false, true)] {
        let mut case = Case::new().await;
        case.judge.start_tick(WEST, 0);
        let due = case.judge.log.now() / 60_000 * 60_000;
        case.judge.start_tick(WEST, due);
        if lost {
            case.judge.lose(WEST, Loss::Deleted);
        }
        if jumped {
            case.judge.jump();
        }
        case.wait(30).await;
        case.judge.start_tick(EAST, due);
        let expected = if lost || jumped { String::new() } else { format!("the tick {due} is started twice") };
        assert_eq!(case.verdict(), expected);
        assert_eq!((case.judge.figures.ticks, case.judge.figures.ticks_handed_on), (3, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_repeats_its_requests_without_a_pause_is_noticed() {
    let mut case = Case::new().await;
    for _ in 0..3 {
        (0..RESTLESS).for_each(|_| case.judge.request("west/o0#1", "GET", "/api/v1/pods", 200));
        case.wait(1).await;
    }
    assert_eq!(case.verdict(), "");
    (0..=RESTLESS).for_each(|_| case.judge.request("west/o0#1", "GET", "/api/v1/pods", 200));
    assert_eq!(case.verdict(), "west/o0#1 goes on and on");
}

#[tokio::test(start_paused = true)]
async fn a_process_is_not_gone_more_often_than_it_has_ended() {
    let tell = |case: &mut Case, terms: &[u64]| {
        let change = |term: &u64| json!({"term": term, "previousLeaderName": "web-0", "reason": "ProcessGone"});
        let other = json!({"term": 1, "previousLeaderName": "web-0", "reason": "LeaderNotReady"});
        let history: Vec<_> = terms.iter().map(change).chain([other]).collect();
        let election = json!({"metadata": {"name": "web", "uid": "e"}, "status": {"history": history}});
        case.see(WEST, "leaderelections", Some(election), false);
    };
    let mut case = Case::new().await;
    tell(&mut case, &[]);
    case.judge.end_program(WEST, "web-0");
    case.judge.end_program(EAST, "web-0");
    tell(&mut case, &[5]);
    tell(&mut case, &[5]);
    assert_eq!((case.verdict(), case.judge.figures.gone), ("", 1));
    // Somebody let it lead again by force, before it ran.
    case.pod(WEST, "web-0", "leader", 6).pod(WEST, "web-0", "follower", 7);
    tell(&mut case, &[7, 5]);
    assert_eq!((case.verdict(), case.judge.figures.gone), ("", 2));
    case.judge.begin_program(WEST, "web-0");
    case.pod(WEST, "web-0", "leader", 8).pod(WEST, "web-0", "follower", 9);
    tell(&mut case, &[9, 7, 5]);
    assert_eq!(case.verdict(), "the process of web-0 is said to be gone, and has not ended");
}

#[tokio::test(start_paused = true)]
async fn what_is_denied_is_not_asked_for_without_a_pause() {
    let mut case = Case::new().await;
    let ask = |case: &mut Case, times: u64| {
        (0..times).for_each(|_| case.judge.request("west/o0#1", "GET", "/api/v1/pods", 403));
    };
    ask(&mut case, 24);
    case.wait(1).await;
    ask(&mut case, 24);
    assert_eq!(case.verdict(), "");
    ask(&mut case, 1);
    assert!(case.verdict().contains("again and again: GET /api/v1/pods"), "{}", case.verdict());
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_written_to_without_a_pause() {
    let mut case = Case::new().await;
    case.pod(WEST, "web-0", "", 1);
    for _ in 0..20 {
        case.pod(WEST, "web-0", "follower", 1).pod_by_hand(WEST, "web-0", "", 1).pod(WEST, "web-0", "follower", 1);
    }
    assert_eq!(case.verdict(), "");
    case.pod(WEST, "web-0", "follower", 1);
    assert!(case.verdict().contains("web-0 is written to 41 times"), "{}", case.verdict());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_takes_off_a_label_of_others_is_seen() {
    let mut case = Case::new().await;
    case.labelled(WEST, "web-0", &[("app", "web"), ("tier", "web")], 1);
    case.labelled(WEST, "web-0", &[("app", "web"), ("tier", "web"), ("role", "follower")], 1);
    assert_eq!(case.verdict(), "");
    case.labelled(WEST, "web-0", &[("app", "web"), ("role", "follower")], 1);
    assert!(case.verdict().contains("labels of web-0 that no election writes"), "{}", case.verdict());
}

#[tokio::test(start_paused = true)]
async fn who_was_read_not_to_hold_the_pods_lock_does_not_lead_by_it() {
    use crate::servers::api::Request;
    use crate::servers::client::Passing;
    let tells = |leader: &str, term: i64| {
        let told = json!([{"term": term, "leaderName": leader, "reason": "CandidatesElected"}]);
        Some(json!({"metadata": {"name": "web", "uid": "1"}, "status": {"history": told}}))
    };
    let request = |query: &[(&str, &str)], path: &str, body: &Value| Request {
        method: "GET".into(),
        path: path.into(),
        query: query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        applies: false,
        body: body.to_string().into_bytes(),
    };
    for (sent_late, wrong) in [(false, false), (true, true)] {
        let mut case = Case::new().await;
        for (version, holder) in [(5, "web-0"), (6, "web-1_5f2c")] {
            let after = Some(json!({"metadata": {"name": "held-web"}, "spec": {"holderIdentity": holder}}).into());
            let change = Change { version, resource: "leases".into(), before: None, after, by_hand: true };
            case.judge.see(WEST, &change);
        }
        let send = |case: &mut Case, term: i64| {
            let record = json!({
                "term": term, "holder": {"pod": "web-0", "uid": "u"}, "operatorId": "o", "since": 0, "election": "1",
                "generation": 1, "scope": {"selector": {}, "leader": {}, "follower": {}},
            });
            let body = json!({"metadata": {"annotations": {"lictor.dev/record": record.to_string()}}});
            let request = request(&[], "/apis/coordination.k8s.io/v1/namespaces/shop/leases/web", &body);
            case.judge.pass_by(WEST, "west/o0#1", &Passing::Sent(&request));
        };
        send(&mut case, 2);
        let read = request(&[("fieldSelector", "metadata.name=held-web")], "/leases", &Value::Null);
        let answer = json!({"metadata": {"resourceVersion": "7"}});
        case.judge.pass_by(WEST, "west/o0#1", &Passing::Answered(&read, &answer));
        case.wait(1).await;
        let term = if sent_late { 3 } else { 2 };
        send(&mut case, term);
        case.see(WEST, "leaderelections", tells("web-0", term), false);
        assert_eq!(case.verdict().contains("had read as of version 7"), wrong, "{}", case.verdict());
    }
}

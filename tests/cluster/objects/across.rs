//! Two clusters that share a bucket, on a real server of the protocol of S3.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lictor_objects::{BucketSettings, Credentials};
use lictor_testing::buckets::{Buckets, Kind};
use lictor_testing::kubernetes::{LEASE, Lab};
use lictor_testing::{Disturbance, Link, Stream};
use serde_json::json;

use crate::consul::failures::{Side, kept_their_promises, two};
use crate::consul::member::Member;
use crate::switchover::{ask, complete, term};

/// The TTL of the sessions in these tests.
pub(super) const TTL: Duration = Duration::from_secs(10);
/// How long the clusters may have no leader, by docs/bucket.md: until the last renewal has been seen and its TTL is over; for the looks into the
/// bucket before and after that; and until another operator acts.
const LED_WITHIN: Duration = Duration::from_secs(2 * TTL.as_secs() + 2 + LEASE.as_secs());

pub(super) fn within(what: &str, began: Instant) {
    let took = began.elapsed();
    eprintln!("measured: {what}: {:.1} s of {} s", took.as_secs_f64(), LED_WITHIN.as_secs());
    assert!(took < LED_WITHIN, "{what}: {took:?}, and it may take {LED_WITHIN:?}");
}

/// Creates a cluster that reaches the bucket by this socket.
pub async fn member(test: &str, cluster: &str, bucket: &BucketSettings, socket: &str, stops: &str) -> Member {
    member_at(Buckets::shared(Kind::S3), test, cluster, bucket, socket, stops).await
}

/// Does the same with the bucket of any server.
pub async fn member_at(
    server: &Buckets,
    test: &str,
    cluster: &str,
    bucket: &BucketSettings,
    socket: &str,
    stops: &str,
) -> Member {
    let lab = Lab::new(&format!("{test}-{cluster}")).await;
    let Credentials::Given(secret) = &bucket.credentials else { panic!("the server has an account") };
    let secret: BTreeMap<_, _> =
        secret.iter().map(|(name, value)| (name, String::from_utf8_lossy(value).into_owned())).collect();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bucket"}, "stringData": secret});
    lab.try_kubectl(&["apply", "-f", "-"], Some(&secret.to_string())).expect("a Secret can be made");
    let endpoint = server.endpoint(socket);
    let fields = json!({
        "url": bucket.url, "endpoint": endpoint, "clusterName": cluster, "secretRef": {"name": "bucket"},
        "sessions": {"ttlSeconds": TTL.as_secs(), "pollSeconds": 1}, "whenOperatorStops": stops,
    });
    Member::in_store(lab, test, cluster, "bucket", fields).await
}

/// Creates two clusters with a pod each: `a` in the west leads, and `b` in the east follows. A proxy can disturb the west's connections.
async fn clusters(test: &str) -> (Link, Side, Side) {
    clusters_that(test, "Hold").await
}

/// Creates them with this `whenOperatorStops`.
pub(super) async fn clusters_that(test: &str, stops: &str) -> (Link, Side, Side) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let server = Buckets::shared(Kind::S3);
    let bucket = server.create(&format!("across-{}", NUMBER.fetch_add(1, Ordering::Relaxed))).await;
    let link = Link::to(server.socket());
    let west = member(test, "west", &bucket, link.address(), stops).await;
    let east = member(test, "east", &bucket, server.socket(), stops).await;
    let (west, east) = two(west, east).await;
    (link, west, east)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leadership_moves_to_the_other_cluster_and_back() {
    let (_link, west, east) = clusters("bucket-across").await;
    there_and_back(west, east).await;
}

/// Moves the leadership to the east and back. Returns how long each took, in milliseconds.
pub(super) async fn there_and_back(west: Side, east: Side) -> [i64; 2] {
    let from = term(&west.member.lab).await;
    ask(&west.member.lab, "there", json!({"fromTerm": from, "toClusterName": "east"})).await;
    let there = complete(&west.member.lab, "there").await;
    east.member.lab.wait_leader("b").await;
    west.member.wait_led_elsewhere("east", "b").await;
    east.member
        .lab
        .wait_status("web", "the term has risen", |web| web.status.as_ref().and_then(|s| s.term) > Some(from))
        .await;
    let from = term(&east.member.lab).await;
    ask(&east.member.lab, "back", json!({"fromTerm": from, "toClusterName": "west"})).await;
    let back = complete(&east.member.lab, "back").await;
    west.member.lab.wait_leader("a").await;
    let took = [there, back].map(|moved| moved.duration_milliseconds.expect("it is complete"));
    eprintln!("measured: switchovers to the other cluster and back: {took:?} ms");
    assert_eq!(kept_their_promises(&[&west, &east]).await, 3);
    took
}

/// A leader whose cluster has no other candidate releases the lock, which the other cluster takes. When both have none, nobody leads.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_cluster_leads_when_this_one_has_no_candidate_left() {
    let (_link, west, east) = clusters("bucket-release").await;
    let began = Instant::now();
    west.member.lab.kill_pod("a").await;
    east.member.lab.wait_leader("b").await;
    eprintln!("measured: the last pod is gone, the other cluster leads: {:.1} s", began.elapsed().as_secs_f64());
    assert!(began.elapsed() < TTL, "it need not wait for the session's end: {:?}", began.elapsed());
    assert_eq!(kept_their_promises(&[&west, &east]).await, 2);
}

/// Shows B3.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_loses_the_lock_to_the_other_cluster() {
    let (_link, west, east) = clusters("bucket-killed").await;
    let began = Instant::now();
    west.operator.signal("KILL");
    // The label stays on a pod of a cluster without an operator, so the lock alone is judged.
    east.member.lab.wait_leader("b").await;
    within("kill -9, the other cluster leads", began);
}

async fn cut(test: &str, disturbance: Option<(Stream, Disturbance)>) {
    cut_off(test, clusters(test).await, disturbance).await;
}

/// Cuts the west off, until the east leads.
pub(super) async fn cut_off(
    test: &str,
    (link, west, east): (Link, Side, Side),
    disturbance: Option<(Stream, Disturbance)>,
) {
    let began = Instant::now();
    match disturbance {
        None => link.disable().await,
        Some((stream, disturbance)) => link.disturb(stream, disturbance).await,
    }
    let message = west.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    assert!(message.contains("could not be confirmed in time"), "{message}");
    let demoted = west.recorder.demoted_at().await.expect("it was demoted").duration_since(began);
    assert!(demoted < TTL, "demoted after {demoted:?}");
    east.member.lab.wait_leader("b").await;
    within(&format!("{test}, the other cluster leads (demoted after {demoted:.1?})"), began);
    link.enable().await;
    link.clear().await;
    west.member.wait_led_elsewhere("east", "b").await;
    west.member.wait_class("True", "Answers").await;
    assert_eq!(kept_their_promises(&[&west, &east]).await, 2);
}

/// Shows B3.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_cut_off_gives_its_leader_up_before_another_one_leads() {
    tokio::join!(
        cut("bucket-cut", None),
        cut("bucket-deaf", Some((Stream::Up, Disturbance::Lost))),
        cut("bucket-mute", Some((Stream::Down, Disturbance::Lost))),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_class_says_what_is_wrong_with_its_bucket() {
    let server = Buckets::shared(Kind::S3);
    let missing = server.settings("no-such-bucket");
    let member = member("bucket-wrong", "west", &missing, server.socket(), "Hold").await;
    let _operator = member.operator(&[]);
    let message = member.wait_class("False", "Refused").await;
    assert!(message.contains("no-such-bucket"), "{message}");
}

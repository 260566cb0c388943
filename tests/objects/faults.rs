//! Servers that refuse, hang, or can't be reached.

use std::time::{Duration, Instant};

use lictor_objects::{BucketSettings, Credentials, Failure, Objects, Put};
use lictor_testing::buckets::{Buckets, Kind};
use lictor_testing::{Disturbance, Link, Stream, eventually};
use tokio::net::{TcpSocket, TcpStream};

use crate::{done, open, put};

on_each_server! {
    a_lost_answer_is_an_unknown_outcome_in_time
    a_connection_that_breaks_after_the_sending_is_an_unknown_outcome
    a_server_that_is_not_there_did_nothing
    wrong_credentials_are_a_missing_right
    a_missing_bucket_is_no_missing_object
}

/// Returns a link to a server, and the settings for a new bucket through it.
async fn linked(server: &Buckets, bucket: &str) -> (Link, BucketSettings) {
    let link = Link::to(server.socket());
    let endpoint = Some(server.endpoint(link.address()));
    (link, BucketSettings { endpoint, ..server.create(bucket).await })
}

/// Runs requests of all three kinds, and returns their failures.
async fn failures(settings: &BucketSettings) -> Vec<Failure> {
    let bucket = open(settings);
    let tag = lictor_objects::Tag("x".into());
    let mut failures = vec![bucket.get("a").await.unwrap_err(), bucket.list().await.unwrap_err()];
    for expected in [None, Some(&tag)] {
        match put(&bucket, "a", expected, "1").await {
            Put::Failed(failure) => failures.push(failure),
            other => panic!("{other:?}"),
        }
    }
    failures
}

async fn a_lost_answer_is_an_unknown_outcome_in_time(server: &Buckets) {
    let (link, settings) = linked(server, "lost").await;
    let bucket = open(&settings);
    let impatient = open(&BucketSettings { timeout: Duration::from_millis(300), ..settings });
    for (stream, name, content) in [(Stream::Down, "done", "2"), (Stream::Up, "never-sent", "1")] {
        let first = done(put(&bucket, name, None, "1").await);
        link.disturb(stream, Disturbance::Lost).await;
        let start = Instant::now();
        let lost = put(&impatient, name, Some(&first), "2").await;
        assert!(matches!(lost, Put::Failed(Failure::Unknown(_))), "{name}: {lost:?}");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        let failure = impatient.get(name).await.unwrap_err();
        assert!(matches!(failure, Failure::Unknown(_)), "{failure:?}");
        link.clear().await;
        let read = bucket.get(name).await.unwrap().unwrap();
        assert_eq!(read.content, content.as_bytes(), "{name}");
    }
}

async fn a_connection_that_breaks_after_the_sending_is_an_unknown_outcome(server: &Buckets) {
    let (link, settings) = linked(server, "reset").await;
    for disturbance in [Disturbance::Reset { after: Duration::ZERO }, Disturbance::Short { bytes: 0 }] {
        link.disturb(Stream::Down, disturbance).await;
        for failure in failures(&settings).await {
            assert!(matches!(failure, Failure::Unknown(_)), "{disturbance:?}: {failure:?}");
        }
    }
    // A write that was sent again would conflict with itself.
    let sent = |log: &str| log.lines().filter(|line| line.contains("PUT") && line.contains("/reset/a")).count();
    eventually("the server has logged the writes", || async {
        if sent(&server.log()) >= 4 { Ok(()) } else { Err(server.log()) }
    })
    .await;
    assert_eq!(sent(&server.log()), 4);
}

async fn a_server_that_is_not_there_did_nothing(server: &Buckets) {
    let (link, settings) = linked(server, "stopped").await;
    link.disable().await;
    for failure in failures(&settings).await {
        assert!(failure.is_refused() && failure.text().contains("can't be reached"), "{failure:?}");
    }
    link.enable().await;
    done(put(&open(&settings), "a", None, "1").await);
}

#[tokio::test]
async fn a_connection_that_never_comes_about_sent_nothing() {
    // Nobody accepts, and the queue is full, so the system answers no further connection.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        queued.push(stream);
    }
    let settings = Buckets::shared(Kind::S3).settings("none");
    let endpoint = Some(format!("http://{address}"));
    for failure in failures(&BucketSettings { endpoint, timeout: Duration::from_millis(300), ..settings }).await {
        assert!(failure.is_refused() && failure.text().contains("can't be reached"), "{failure:?}");
    }
}

async fn wrong_credentials_are_a_missing_right(server: &Buckets) {
    let settings = server.create("rights").await;
    let Credentials::Given(mut secret) = settings.credentials.clone() else { panic!("not given") };
    let key = secret.iter_mut().find(|(name, _)| name.ends_with("KEY")).unwrap();
    *key.1 = b"d3Jvbmcx".into();
    let settings = BucketSettings { credentials: Credentials::Given(secret), ..settings };
    for failure in failures(&settings).await {
        assert!(failure.is_forbidden() && failure.text().contains("the account needs"), "{failure:?}");
    }
}

async fn a_missing_bucket_is_no_missing_object(server: &Buckets) {
    for failure in failures(&server.settings("missing")).await {
        let told = failure.text().contains("there is no such bucket");
        assert!(matches!(failure, Failure::Refused(_)) && told, "{failure:?}");
    }
}

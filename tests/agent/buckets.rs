//! Locks in buckets.

use std::time::{Duration, Instant};

use lictor_objects::{Bucket, BucketSettings, Objects, Put};
use lictor_testing::buckets::{Buckets, Kind};
use lictor_testing::{Link, client, eventually, free_address, kill_together, signal};
use serde_json::{Value, json};

use crate::Bench;
use crate::bench::{Running, gone};

/// The shortest TTL for a bucket.
const TTL: Duration = Duration::from_secs(5);

/// How long a waiting agent needs to hear of a change, by a poll each second, on a busy machine.
const HEARD: Duration = Duration::from_secs(3);

/// A bucket for one test.
struct Place {
    server: &'static Buckets,
    bench: Bench,
    settings: BucketSettings,
    bucket: String,
}

impl Place {
    async fn new(kind: Kind, bucket: &str) -> Self {
        let server = Buckets::shared(kind);
        let bucket = format!("agent-{bucket}");
        let settings = server.create(&bucket).await;
        Self { server, bench: Bench::new(&format!("{bucket}-{kind:?}")), settings, bucket }
    }

    fn agent(&self, identity: &str, more: &[&str]) -> Running {
        self.agent_by(self.server.socket(), identity, more)
    }

    fn agent_by(&self, socket: &str, identity: &str, more: &[&str]) -> Running {
        let environment = self.server.environment(socket);
        let environment: Vec<_> = environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let lock = format!("{}/agents/report", self.settings.url);
        let arguments = ["--bucket", &lock, "--ttl", "5s", "--identity", identity];
        self.bench.start(&[&arguments, more].concat(), &["sh", "-c", &Bench::worker("")], &environment)
    }

    /// Writes the object of the lock, as a person does.
    async fn overwrite(&self, content: &str) {
        let bucket = Bucket::new(&self.settings).expect("the settings are valid");
        eventually("nobody else writes at that moment", || async {
            let object = bucket.get("agents/report").await.map_err(|failure| failure.text().to_owned())?;
            let tag = object.map(|object| object.tag);
            match bucket.put("agents/report", tag.as_ref(), content.into()).await {
                Put::Done(_) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn one_of_two_agents_has_the_lock_in_a_bucket() {
    one_of_two(Kind::S3).await;
}

#[tokio::test]
#[ignore = "slow: fetches Azurite by npm, 360 MB"]
async fn one_of_two_agents_has_the_lock_in_a_container_of_azure() {
    one_of_two(Kind::Azure).await;
}

async fn one_of_two(kind: Kind) {
    let place = Place::new(kind, "two").await;
    let bench = &place.bench;
    let mut first = place.agent("one", &["--advertise", "10.0.0.7:80"]);
    first.says("the object of the lock is missing").await;
    let (term, _) = bench.begins(1).await;
    let listen = free_address();
    let second = place.agent("two", &["--listen", &listen.to_string()]);
    second.says("waiting for the lock leader=\"one_").await;
    let answer = client().get(format!("http://{listen}/election")).send().await.expect("it answers");
    let told: Value = serde_json::from_str(&answer.text().await.expect("a text")).expect("JSON");
    assert_eq!((&told["role"], &told["term"], &told["stale"]), (&json!("follower"), &json!(term), &json!(false)));
    assert_eq!(told["leader"]["address"], "10.0.0.7:80", "{told}");
    assert!(told["ageSeconds"].as_f64().is_some_and(|age| age < 4.0), "{told}");

    assert_eq!(first.stop().await, Some(143));
    let released = Instant::now();
    let (next, command) = bench.begins(2).await;
    assert!(next > term && released.elapsed() < HEARD, "{:?}", released.elapsed());

    // The next one has seen the last renewal a poll later at the latest, and waits for the TTL from then on.
    let third = place.agent("three", &[]);
    third.says("waiting for the lock leader=\"two_").await;
    let all = [second.agent().await, second.guard().await, second.watchdog()];
    let killed = Instant::now();
    kill_together(&all);
    gone(command).await;
    assert!(bench.begins(3).await.0 > next);
    assert!(killed.elapsed() < 2 * TTL + HEARD, "{:?}", killed.elapsed());

    // Started again in its place, it leads on.
    signal("KILL", &[third.agent().await]);
    let (again, started) = (place.agent("three", &[]), Instant::now());
    bench.begins(4).await;
    assert!(started.elapsed() < TTL, "{:?} {}", started.elapsed(), again.errors());
}

/// Shows A2.
#[tokio::test]
async fn an_agent_that_is_cut_off_from_its_bucket_ends_its_command_before_another_one_begins() {
    let place = Place::new(Kind::S3, "cut").await;
    let link = Link::to(place.server.socket());
    let first = place.agent_by(link.address(), "one", &[]);
    let (term, command) = place.bench.begins(1).await;
    let second = place.agent("two", &[]);
    second.says("waiting for the lock leader=\"one_").await;
    let cut = Instant::now();
    link.disable().await;
    gone(command).await;
    assert!(cut.elapsed() < TTL * 4 / 5 + Duration::from_millis(200), "{:?}", cut.elapsed());
    assert_eq!(place.bench.begun().len(), 1);
    assert!(place.bench.begins(2).await.0 > term);
    link.enable().await;
    first.says("waiting for the lock leader=\"two_").await;
}

/// Shows A8.
#[tokio::test]
async fn an_object_that_a_person_deletes_or_overwrites_makes_no_second_leader() {
    let place = Place::new(Kind::S3, "person").await;
    let bench = &place.bench;
    let (one, two) = (place.agent("one", &[]), place.agent("two", &[]));
    let (term, command) = bench.begins(1).await;
    place.server.delete(&place.bucket, "agents/report").await;
    let deleted = Instant::now();
    gone(command).await;
    let (next, command) = bench.begins(2).await;
    assert!(next > term && deleted.elapsed() >= TTL, "{:?}", deleted.elapsed());

    place.overwrite("of a case at court").await;
    gone(command).await;
    for agent in [&one, &two] {
        agent.says("another program has written the object report").await;
    }
    assert_eq!(bench.begun().len(), 2);
    place.server.delete(&place.bucket, "agents/report").await;
    assert!(bench.begins(3).await.0 > next);
}

#[tokio::test]
async fn a_bucket_that_is_missing_is_said() {
    let server = Buckets::shared(Kind::S3);
    let (bench, settings) = (Bench::new("no-bucket"), server.settings("missing-for-agents"));
    let place = Place { server, bench, settings, bucket: String::new() };
    place.agent("one", &[]).says("there is no such bucket").await;
    assert_eq!(place.bench.begun(), []);
}

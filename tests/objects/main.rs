//! Buckets on real servers of the protocols of S3 and Azure, as `hack/buckets.sh` starts them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

/// Makes a test for each server of functions that take one.
macro_rules! on_each_server {
    ($($name:ident)*) => {
        mod s3 {
            use lictor_testing::buckets::{Buckets, Kind};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(Buckets::shared(Kind::S3)).await;
                }
            )*
        }

        mod azure {
            use lictor_testing::buckets::{Buckets, Kind};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                #[ignore = "slow: fetches Azurite by npm, 360 MB"]
                async fn $name() {
                    super::$name(Buckets::shared(Kind::Azure)).await;
                }
            )*
        }
    };
}

mod faults;
mod google;
mod leases;

use std::collections::BTreeSet;

use futures::future::join_all;
use futures::{StreamExt, stream};
use lictor_objects::{Bucket, BucketSettings, Listed, Objects, Put, Tag, honours_conditions};
use lictor_testing::buckets::{Buckets, Kind};

on_each_server! {
    an_object_is_created_once_and_replaced_by_who_has_seen_it_last
    an_empty_tag_replaces_nothing
    of_twenty_at_once_one_wins
    a_prefix_is_a_store_of_its_own
    names_come_back_as_they_are
    conditions_are_honoured_for_many_at_once
}

fn open(settings: &BucketSettings) -> Bucket {
    Bucket::new(settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the same bucket with a prefix.
fn under(settings: &BucketSettings, prefix: &str) -> Bucket {
    open(&BucketSettings { url: format!("{}/{prefix}", settings.url), ..settings.clone() })
}

async fn put(bucket: &Bucket, name: &str, expected: Option<&Tag>, content: &str) -> Put {
    bucket.put(name, expected, content.into()).await
}

#[track_caller]
fn done(put: Put) -> Tag {
    let Put::Done(tag) = put else { panic!("{put:?}") };
    tag
}

fn names(listed: &[Listed]) -> Vec<&str> {
    listed.iter().map(|listed| listed.name.as_str()).collect()
}

async fn an_object_is_created_once_and_replaced_by_who_has_seen_it_last(server: &Buckets) {
    let bucket = open(&server.create("one").await);
    assert_eq!(bucket.get("a").await, Ok(None));
    let first = done(put(&bucket, "a", None, "1").await);
    assert_eq!(put(&bucket, "a", None, "2").await, Put::Conflict);
    let read = bucket.get("a").await.unwrap().unwrap();
    assert_eq!((&read.tag, read.content.as_slice()), (&first, b"1".as_slice()));

    let second = done(put(&bucket, "a", Some(&first), "2").await);
    assert_ne!(first, second);
    assert_eq!(put(&bucket, "a", Some(&first), "3").await, Put::Conflict);
    let read = bucket.get("a").await.unwrap().unwrap();
    assert_eq!((&read.tag, read.content.as_slice()), (&second, b"2".as_slice()));
    // The tag of a read is as good as that of a write, and so is that of a listing.
    let third = done(put(&bucket, "a", Some(&read.tag), "3").await);
    let listed = bucket.list().await.unwrap();
    assert_eq!(listed, [Listed { name: "a".into(), tag: third }]);
    done(put(&bucket, "a", Some(&listed[0].tag), "4").await);

    assert_eq!(put(&bucket, "none", Some(&first), "1").await, Put::Conflict, "it is not there");
    let empty = done(put(&bucket, "empty", None, "").await);
    let read = bucket.get("empty").await.unwrap().unwrap();
    assert_eq!((read.tag, read.content), (empty, vec![]));
}

/// A server may take an empty condition for none.
async fn an_empty_tag_replaces_nothing(server: &Buckets) {
    let bucket = open(&server.create("untagged").await);
    let empty = Tag(String::new());
    assert_eq!(put(&bucket, "a", Some(&empty), "1").await, Put::Conflict);
    let tag = done(put(&bucket, "a", None, "1").await);
    assert_eq!(put(&bucket, "a", Some(&empty), "2").await, Put::Conflict);
    assert_eq!(bucket.get("a").await.unwrap().unwrap().tag, tag);
}

async fn of_twenty_at_once_one_wins(server: &Buckets) {
    let settings = server.create("race").await;
    // A client for each, as in so many processes.
    let buckets: Vec<Bucket> = (0..20).map(|_| open(&settings)).collect();
    let mut expected = None;
    for round in 0..10 {
        let (tag, content) = (expected.as_ref(), |number: usize| format!("{round} {number}").into_bytes());
        let puts = buckets.iter().enumerate().map(|(number, bucket)| bucket.put("a", tag, content(number)));
        let puts = join_all(puts).await;
        let winners = puts.iter().enumerate().filter_map(|(number, put)| match put {
            Put::Done(tag) => Some((number, tag)),
            Put::Conflict => None,
            Put::Failed(failure) => panic!("{failure:?}"),
        });
        let winners: Vec<_> = winners.collect();
        let [(number, tag)] = winners.as_slice() else { panic!("round {round}: {puts:?}") };
        let read = buckets[0].get("a").await.unwrap().unwrap();
        assert_eq!((&read.tag, read.content), (*tag, content(*number)));
        expected = Some(read.tag);
    }
}

async fn a_prefix_is_a_store_of_its_own(server: &Buckets) {
    let settings = server.create("prefixes").await;
    let (whole, one, longer) = (open(&settings), under(&settings, "a/b"), under(&settings, "a/bc/"));
    assert_eq!(one.list().await, Ok(vec![]));
    for (bucket, name) in [(&whole, "top"), (&one, "x"), (&one, "deep/er/x"), (&longer, "x"), (&whole, "a/z")] {
        done(put(bucket, name, None, name).await);
    }
    assert_eq!(names(&whole.list().await.unwrap()), ["a/b/deep/er/x", "a/b/x", "a/bc/x", "a/z", "top"]);
    assert_eq!(names(&one.list().await.unwrap()), ["deep/er/x", "x"]);
    assert_eq!(names(&longer.list().await.unwrap()), ["x"]);
    assert_eq!(one.get("x").await.unwrap(), whole.get("a/b/x").await.unwrap());
}

async fn names_come_back_as_they_are(server: &Buckets) {
    let bucket = under(&server.create("names").await, "p.q");
    let given = [
        "a",
        "a.b",
        "locks/shop.web",
        ".hidden",
        "UPPER",
        "with space",
        "50%+1=x&y",
        "%2F",
        "ä/ö",
        "q?r#s",
        "~t(u)'v'",
    ];
    let mut tags = BTreeSet::new();
    for name in given {
        let tag = done(put(&bucket, name, None, name).await);
        let read = bucket.get(name).await.unwrap().unwrap();
        assert_eq!((&read.tag, read.content.as_slice()), (&tag, name.as_bytes()), "{name}");
        tags.insert((name.to_owned(), tag));
    }
    let listed = bucket.list().await.unwrap();
    assert!(listed.is_sorted_by(|one, other| one.name < other.name), "{listed:?}");
    assert_eq!(listed.into_iter().map(|listed| (listed.name, listed.tag)).collect::<BTreeSet<_>>(), tags);
    for name in ["", "/", "/a", "a/", "a//b", "..", "../a", "a/./b", "line\nbreak"] {
        let refused = bucket.get(name).await.unwrap_err();
        assert!(refused.is_refused() && refused.text().contains("is no name of an object"), "{refused:?}");
    }
}

/// A page of S3 has 1,000 objects. Azure's has 5,000, which takes long to write.
#[tokio::test]
async fn a_listing_of_several_pages_is_whole() {
    let bucket = under(&Buckets::shared(Kind::S3).create("pages").await, "p");
    let given: Vec<String> = (0..1_005).map(|number| format!("{number:04}")).collect();
    let puts = given.iter().map(|name| async { done(put(&bucket, name, None, name).await) });
    let tags: Vec<Tag> = stream::iter(puts).buffered(16).collect().await;
    let listed = bucket.list().await.unwrap();
    let listed: Vec<(String, Tag)> = listed.into_iter().map(|listed| (listed.name, listed.tag)).collect();
    assert_eq!(listed.len(), given.len());
    assert!(listed.into_iter().eq(given.into_iter().zip(tags)), "in the order of names, each with its tag");
}

async fn conditions_are_honoured_for_many_at_once(server: &Buckets) {
    let settings = server.create("trial").await;
    let buckets: Vec<Bucket> = (0..10).map(|_| open(&settings)).collect();
    let trials = join_all(buckets.iter().map(|bucket| honours_conditions(bucket, "trial"))).await;
    assert!(trials.iter().all(Result::is_ok), "{trials:?}");
    honours_conditions(&buckets[0], "trial").await.unwrap();
}

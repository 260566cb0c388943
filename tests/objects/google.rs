//! What is lictor's own in the use of Google Cloud Storage, on a server of a few lines that answers as its XML API is documented to: no
//! real one is at hand that takes the writes of `object_store`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lictor_objects::{BucketSettings, Credentials, Listed, Objects, Put, honours_conditions};

use crate::{done, open, put};

/// The objects with their generations.
type Objs = Arc<Mutex<BTreeMap<String, (u64, Bytes)>>>;

/// The ETag is made from the content, as Google does.
fn headers(generation: u64, content: &[u8]) -> [(&'static str, String); 3] {
    let modified = "Thu, 26 Nov 2026 17:00:00 GMT".to_owned();
    [
        ("x-goog-generation", generation.to_string()),
        ("etag", format!("\"{}\"", content.len())),
        ("last-modified", modified),
    ]
}

fn refused(status: StatusCode, code: &str) -> Response {
    (status, format!("<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>")).into_response()
}

async fn read(State(objects): State<Objs>, Path((_, name)): Path<(String, String)>) -> Response {
    match objects.lock().unwrap().get(&name) {
        Some((generation, content)) => (headers(*generation, content), content.clone()).into_response(),
        None => refused(StatusCode::NOT_FOUND, "NoSuchKey"),
    }
}

async fn write(
    State(objects): State<Objs>,
    Path((_, name)): Path<(String, String)>,
    request: HeaderMap,
    content: Bytes,
) -> Response {
    let mut objects = objects.lock().unwrap();
    let now = objects.get(&name).map_or(0, |(generation, _)| *generation);
    if request["x-goog-if-generation-match"] != now.to_string() {
        return refused(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
    }
    let generation = objects.values().map(|(generation, _)| *generation).max().unwrap_or(1_764_000_000_000_000) + 1;
    objects.insert(name, (generation, content.clone()));
    headers(generation, &content).into_response()
}

async fn list(State(objects): State<Objs>) -> String {
    let mut page = "<?xml version='1.0'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>".to_owned();
    for (name, (generation, content)) in &*objects.lock().unwrap() {
        let length = content.len();
        let _ = write!(
            page,
            "<Contents><Key>{name}</Key><Generation>{generation}</Generation><MetaGeneration>1</MetaGeneration>\
             <LastModified>2026-11-26T17:00:00.000Z</LastModified><ETag>\"{length}\"</ETag><Size>{length}</Size></Contents>"
        );
    }
    page + "</ListBucketResult>"
}

#[tokio::test]
async fn a_generation_names_the_version_and_not_an_etag() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new().route("/{bucket}", get(list)).route("/{bucket}/{*name}", get(read).put(write));
    tokio::spawn(axum::serve(listener, routes.with_state(Objs::default())).into_future());
    let key = r#"{"private_key": "k", "private_key_id": "i", "client_email": "e", "disable_oauth": true}"#;
    let bucket = open(&BucketSettings {
        url: "gs://bucket/pre/fix".into(),
        region: None,
        endpoint: Some(endpoint),
        credentials: Credentials::Given([("key.json".to_owned(), key.into())].into()),
        timeout: Duration::from_secs(10),
    });

    assert_eq!(bucket.get("a/b").await, Ok(None));
    let first = done(put(&bucket, "a/b", None, "1").await);
    assert_eq!(put(&bucket, "a/b", None, "2").await, Put::Conflict);
    assert_eq!(bucket.get("a/b").await.unwrap().unwrap().tag, first);
    let listed = bucket.list().await.unwrap();
    assert_eq!(listed, [Listed { name: "a/b".into(), tag: first.clone() }]);
    let second = done(put(&bucket, "a/b", Some(&listed[0].tag), "1").await);
    assert_ne!(first, second, "although the content is the same");
    assert_eq!(put(&bucket, "a/b", Some(&first), "1").await, Put::Conflict);
    honours_conditions(&bucket, "trial").await.unwrap();
}

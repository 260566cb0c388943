//! What is told over HTTP, to whoever asks in whatever way.

use std::time::Duration;

use lictor_testing::PATIENCE;
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Bench;

#[tokio::test]
async fn who_comes_back_hears_what_was_missed() {
    let mut bench = Bench::new("resume");
    bench.files.write("follower", "1");
    let observer = bench.of_files(&[]);
    observer.sees("follower", "").await;
    let mut events = observer.events("/events", None).await;
    let first = events.next().await.expect("what is known now comes first");
    assert_eq!((first.data["role"].as_str(), first.name.as_deref()), (Some("follower"), Some("election")));
    bench.files.write("leader", "2");
    let second = events.next().await.expect("a change");
    assert_eq!((second.data["role"].as_str(), second.data["term"].as_i64()), (Some("leader"), Some(2)));
    drop(events);

    // Nobody listens to these.
    for (role, term) in [("follower", 3), ("leader", 4), ("leader", 5)] {
        bench.files.write(role, &term.to_string());
        observer
            .knows(&format!("{role} {term}"), |known| {
                known["role"] == role && (role == "follower" || known["term"] == term)
            })
            .await;
    }
    let mut events = observer.events("/events", second.id.as_deref()).await;
    let mut heard = vec![];
    for _ in 0..3 {
        let event = events.next().await.expect("what was missed");
        heard.push((event.data["role"].as_str().unwrap_or_default().to_owned(), event.data["term"].as_i64()));
    }
    assert_eq!(heard, [("follower".into(), None), ("leader".into(), Some(4)), ("leader".into(), Some(5))]);

    // Who missed nothing hears nothing until something happens; who names what never was, hears what is.
    let mut nothing = observer.events("/events", events_id(&observer, 5).await.as_deref()).await;
    assert!(timeout(Duration::from_millis(300), nothing.next()).await.is_err());
    for odd in ["7", "another-start-3", "\u{1}", &"9".repeat(5000)] {
        let Ok(value) = reqwest::header::HeaderValue::from_str(odd) else { continue };
        let mut events = observer.events("/events", value.to_str().ok()).await;
        assert_eq!(events.next().await.expect("what is").data["term"], 5);
    }
    bench.files.write("follower", "6");
    assert_eq!(nothing.next().await.expect("a change").data["role"], "follower");
}

/// Returns the id of the event with this term.
async fn events_id(observer: &crate::Observer, term: i64) -> Option<String> {
    let event = observer.events("/events", None).await.next().await.expect("the newest event");
    assert_eq!(event.data["term"], term);
    event.id
}

#[tokio::test]
async fn the_stream_of_nais_elector_has_no_more_than_it_has_there() {
    let mut bench = Bench::new("sse");
    bench.files.write("follower", "1");
    let mut observer = bench.of_files(&[]);
    observer.sees("follower", "").await;
    let mut events = observer.events("/sse", None).await;
    for (role, term, name) in [("", 0, ""), ("leader", 2, "web-1"), ("follower", 3, "")] {
        if term > 0 {
            bench.files.write(role, &term.to_string());
        }
        let event = events.next().await.expect("an event");
        assert_eq!((event.id, event.name), (None, None));
        assert_eq!(event.data["name"], name);
        assert!(event.data["last_update"].is_string() && event.data.as_object().map(serde_json::Map::len) == Some(2));
    }
    bench.files.write("leader", "4");
    assert_eq!(events.next().await.expect("an event").data["name"], "web-1");
    // At the end, the stream says that nobody is known to lead, and ends.
    assert_eq!(observer.stop().await, Some(0));
    assert_eq!(events.next().await.expect("a last event").data["name"], "");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn nonsense_is_answered_and_harms_nobody() {
    let mut bench = Bench::new("nonsense");
    bench.files.write("leader", "1");
    let observer = bench.of_files(&[]);
    observer.sees("leader", "web-1").await;
    for path in ["/lead", "//", "/leader/", "/election/web", "/../etc/passwd", "/%00", "/events?x=%ff", "/?x=1"] {
        let expected = if path.contains('?') { 200 } else { 404 };
        if path.starts_with("/events") {
            observer.events(path, None).await;
            continue;
        }
        let answer = observer.get(path).await;
        assert_eq!(answer.status, expected, "{path}: {}", answer.text);
        assert!(expected == 200 || answer.text.contains("GET /"), "it says what there is: {}", answer.text);
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::from_bytes(b"BREW").unwrap()] {
        for path in ["/", "/leader", "/events"] {
            let answer = observer.ask(method.clone(), path).await;
            assert_eq!(
                (answer.status, answer.text.as_str()),
                (405, "only GET and HEAD are allowed\n"),
                "{method} {path}"
            );
        }
    }
    let head = observer.ask(Method::HEAD, "/leader").await;
    assert_eq!((head.status, head.text.as_str(), head.header("lictor-age")), (200, "", "unknown"));

    let address = observer.address().await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(1 << 20));
    let headers = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(10_000));
    let mut idle = vec![];
    for nonsense in [
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}",
        "GET / HTTP/1.1\r\n",
        &long,
        &headers,
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    ] {
        let mut connection = TcpStream::connect(&address).await.expect("it listens");
        // It may close the connection before it has read all.
        let _ = connection.write_all(nonsense.as_bytes()).await;
        idle.push(connection);
        assert_eq!(observer.get("/leader").await.status, 200, "others are answered meanwhile");
    }
    // A request of a client that has never heard of HTTP/1.1.
    let mut old = TcpStream::connect(&address).await.expect("it listens");
    old.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("it reads");
    let mut answer = String::new();
    timeout(PATIENCE, old.read_to_string(&mut answer)).await.expect("it answers").expect("it can be read");
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with('}'), "{answer}");
}

/// A listener that reads nothing keeps nobody else from hearing, and does not keep the observer from ending.
#[tokio::test]
async fn who_does_not_listen_harms_nobody() {
    let mut bench = Bench::new("slow");
    bench.files.write("follower", "1");
    let mut observer = bench.of_files(&[]);
    observer.sees("follower", "").await;
    let mut slow = vec![];
    for path in ["/events", "/sse"].repeat(20) {
        let mut connection = TcpStream::connect(observer.address().await).await.expect("it listens");
        connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.expect("it reads");
        slow.push(connection);
    }
    let mut events = observer.events("/events", None).await;
    events.next().await.expect("what is");
    for term in 2..12 {
        bench.files.write("leader", &term.to_string());
        assert_eq!(events.next().await.expect("a change").data["term"], term);
    }
    assert_eq!(observer.stop().await, Some(0));
}

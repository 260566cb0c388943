//! Answers that are hard to get from a real server.

use std::time::Duration;

use lictor_consul::{Bound, Client, Error, NewSession, Renewal, Settings, Transaction, TxnOp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Makes a client of a server that gives everybody this answer and closes the connection.
async fn client(answer: &str) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = answer.to_owned();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = connection.read(&mut request).await;
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    });
    Client::new(&Settings { timeout: Duration::from_secs(2), ..Settings::new(format!("http://{address}")) }).unwrap()
}

fn http(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} x\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn write(answer: &str) -> Error {
    let set = [TxnOp::KvSet { key: "a".into(), value: vec![], flags: 0 }];
    match client(answer).await.transact(&set).await {
        Transaction::Failed(error) => error,
        other => panic!("{answer}: {other:?}"),
    }
}

#[tokio::test]
async fn a_write_without_a_whole_answer_may_have_been_done() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"Results\":[",
        &http(200, "", "<html>Welcome</html>"),
        &http(200, "", ""),
        &http(500, "", "leadership lost while committing log"),
        &http(503, "", "no healthy upstream"),
    ] {
        let error = write(answer).await;
        assert!(matches!(error, Error::Unknown(_)), "{answer}: {error:?}");
    }
}

#[tokio::test]
async fn a_write_that_was_turned_away_was_not_done() {
    assert!(matches!(write(&http(429, "", "")).await, Error::Busy(_)));
    assert!(matches!(write(&http(500, "", "No cluster leader")).await, Error::NoLeader(_)));
    assert!(matches!(write(&http(301, "Location: /ui/\r\n", "")).await, Error::Refused(_)));
    assert!(matches!(write(&http(404, "", "404 page not found")).await, Error::Refused(_)));
}

#[tokio::test]
async fn only_consul_itself_ends_a_session() {
    let lost = http(404, "", "Session id '4711' not found");
    assert_eq!(client(&lost).await.renew("4711").await, Renewal::Lost);
    for answer in [
        http(404, "", "404 page not found"),
        http(404, "", "Session id '1234' not found"),
        http(200, "", "[]"),
        http(500, "", "No cluster leader"),
    ] {
        let renewal = client(&answer).await.renew("4711").await;
        assert!(matches!(renewal, Renewal::Failed(_)), "{answer}: {renewal:?}");
    }
}

#[tokio::test]
async fn only_consul_itself_says_that_there_is_no_key() {
    let ours = client(&http(404, "X-Consul-Index: 7\r\n", "")).await;
    assert_eq!(ours.read_key("a").await, Ok(None));
    assert_eq!(ours.list("a/").await, Ok((7, vec![])));
    let other = client(&http(404, "", "404 page not found")).await;
    assert!(other.read_key("a").await.is_err());
    assert!(other.list("a/").await.is_err());
    assert!(client(&http(200, "", "[]")).await.sessions_of_node("n").await.is_err());
}

#[tokio::test]
async fn a_create_has_the_length_of_its_body() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&Settings::new(format!("http://{}", listener.local_addr().unwrap()))).unwrap();
    client.set_token(Some("the-token")).unwrap();
    let create = tokio::spawn(async move {
        let bound = Bound::Node("n".into());
        let second = Duration::from_secs(1);
        client.create_session(&NewSession { name: "s".into(), bound, ttl: second * 15, lock_delay: second }).await
    });
    let (mut connection, _) = listener.accept().await.unwrap();
    let mut request = vec![0; 4096];
    let length = connection.read(&mut request).await.unwrap();
    let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
    assert!(request.starts_with("put /v1/session/create http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\ncontent-length: "), "{request}");
    assert!(request.contains("\r\nx-consul-token: the-token\r\n"), "{request}");
    assert!(request.contains(r#""nodechecks":[]"#) && request.contains(r#""ttl":"15s""#), "{request}");
    connection.write_all(http(200, "", r#"{"ID":"4711"}"#).as_bytes()).await.unwrap();
    assert_eq!(create.await.unwrap(), Ok("4711".to_owned()));
}

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Response};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LIMIT: Duration = Duration::from_secs(10);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A certificate of other.example that signed itself, and its key, for the test alone.
const CERTIFICATE: &str = "MIIBnTCCAUOgAwIBAgIUfpadOkis7xtnP4Z4LU9FhQ+RNpgwCgYIKoZIzj0EAwIwFjEUMBIGA1UEAwwLbGljdG9yLXRlc3QwIBcNMjYxMTI2\
    MDU0MzIwWhgPMjEyNjExMDIwNTQzMjBaMBYxFDASBgNVBAMMC2xpY3Rvci10ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEVAsiWFcD\
    bdn8GngeUEq1M3iPJ8LUqV7KPZWVrt4zbcNdrvpQfVzSiSWrpKWvxchuApbpydP0vXgbY9lU2n0ai6NtMGswHQYDVR0OBBYEFI0Jc1uR+Vnb\
    IfSjjwLtsy5Yz6XGMB8GA1UdIwQYMBaAFI0Jc1uR+VnbIfSjjwLtsy5Yz6XGMA8GA1UdEwEB/wQFMAMBAf8wGAYDVR0RBBEwD4INb3RoZXIu\
    ZXhhbXBsZTAKBggqhkjOPQQDAgNIADBFAiB3GYKB039zGpQV2WeeUzt+UW0hMxCCnUFYF9hfj2eumQIhANdWMkZWuLDbtyYN38SyOUozdClp\
    kyPV9s7BbAtp2HSy";
const KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgQ2zD0Sale2rg1QvupYP1sq6mZ7DVJGfWHaUSo8jBsa6hRANCAARUCyJYVwNt\
    2fwaeB5QSrUzeI8nwtSpXso9lZWu3jNtw12u+lB9XNKJJaukpa/FyG4ClunJ0/S9eBtj2VTafRqL";

fn get(path: &str) -> HttpProbe {
    HttpProbe { tls: false, host: None, path: path.into(), headers: Box::default() }
}

async fn ask(to: SocketAddr, request: ProbeRequest, limit: Duration) -> Result<(), String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let question = Question { container: None, port: Ok(to.port()), request };
    Asker::new(to.ip(), question, limit, &probe_client().unwrap()).ask().await
}

async fn ask_http(to: SocketAddr, get: HttpProbe) -> Result<(), String> {
    ask(to, ProbeRequest::Http(Box::new(get)), LIMIT).await
}

/// Answers each connection with these bytes. Returns the requests, too.
async fn answering(address: &str, answer: &'static [u8]) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let local = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).await.unwrap_or_default();
            let _ = sender.send(String::from_utf8_lossy(&request[..length]).into_owned());
            let _ = stream.write_all(answer).await;
        }
    });
    (local, requests)
}

#[tokio::test]
async fn a_pod_is_asked_at_its_address_of_either_family() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (to, _requests) = answering(address, OK).await;
        for request in [ProbeRequest::Http(Box::new(get("/leader"))), ProbeRequest::Tcp] {
            assert_eq!(ask(to, request.clone(), LIMIT).await, Ok(()), "{to} {request:?}");
        }
    }
}

#[tokio::test]
async fn headers_and_the_host_reach_the_pod_and_no_other_address() {
    let (to, mut requests) = answering("127.0.0.1:0", OK).await;
    let headers = [("X-Role".into(), "leader".into()), ("User-Agent".into(), "mine".into())];
    let wanted = HttpProbe { headers: headers.into(), ..get("/leader?full=1") };
    assert_eq!(ask_http(to, wanted.clone()).await, Ok(()));
    let request = requests.recv().await.unwrap().to_lowercase();
    for line in ["get /leader?full=1 http/1.1", &format!("host: {to}"), "x-role: leader", "user-agent: mine"] {
        assert!(request.lines().any(|seen| seen == line), "{line}: {request}");
    }
    // Nobody has this name.
    let named = HttpProbe { host: Some("shop.invalid".into()), ..wanted.clone() };
    assert_eq!(ask_http(to, named).await, Ok(()));
    let host = format!("host: shop.invalid:{}", to.port());
    assert!(requests.recv().await.unwrap().to_lowercase().lines().any(|seen| seen == host));
    let header = HttpProbe { headers: [("Host".into(), "shop.example".into())].into(), ..wanted };
    assert_eq!(ask_http(to, header).await, Ok(()));
    let request = requests.recv().await.unwrap().to_lowercase();
    let hosts: Vec<_> = request.lines().filter(|seen| seen.starts_with("host:")).collect();
    assert_eq!(hosts, ["host: shop.example"]);

    for address in ["127.0.0.2", "2130706434", "0x7f.2"] {
        let told = ask_http(to, HttpProbe { host: Some(address.into()), ..get("/") }).await.unwrap_err();
        assert!(told.contains("host has to be a name"), "{told}");
    }
    assert_eq!(ask_http(to, get("@127.0.0.2:1/")).await, Ok(()), "a path stays a path");
    assert!(requests.recv().await.unwrap().starts_with("GET /@127.0.0.2:1/ "));
}

#[tokio::test]
async fn what_is_no_success_is_told_with_the_address() {
    let (to, _requests) = answering("127.0.0.1:0", b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").await;
    let told = ask_http(to, get("/leader")).await;
    assert_eq!(told, Err(format!("http://{to}/leader answers 503 Service Unavailable")));
    let (to, _requests) =
        answering("127.0.0.1:0", b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(ask_http(to, get("/leader")).await, Ok(()));
}

/// Serves TLS with that certificate once. Returns the name that the client asks for, and its request.
fn serving_tls() -> (SocketAddr, thread::JoinHandle<(Option<String>, String)>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = CertificateDer::from(STANDARD.decode(CERTIFICATE).unwrap());
    let key = PrivatePkcs8KeyDer::from(STANDARD.decode(KEY).unwrap());
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key.into()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream);
        let mut request = [0; 4096];
        let length = stream.read(&mut request).unwrap();
        stream.write_all(OK).unwrap();
        stream.conn.send_close_notify();
        let _ = stream.flush();
        (stream.conn.server_name().map(str::to_owned), String::from_utf8_lossy(&request[..length]).into_owned())
    });
    (local, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn https_takes_any_certificate_and_names_the_host() {
    for host in [None, Some("shop.invalid")] {
        let (to, served) = serving_tls();
        assert_eq!(ask_http(to, HttpProbe { tls: true, host: host.map(Into::into), ..get("/leader") }).await, Ok(()));
        let (name, request) = served.join().unwrap();
        assert_eq!(name.as_deref(), host);
        let host = host.map_or(to.to_string(), |host| format!("{host}:{}", to.port()));
        assert!(request.to_lowercase().contains(&format!("host: {host}\r\n")), "{request}");
    }
    let (to, _requests) = answering("127.0.0.1:0", OK).await;
    let told = ask_http(to, HttpProbe { tls: true, ..get("/leader") }).await.unwrap_err();
    assert!(told.starts_with(&format!("https://{to}/leader: ")), "{told}");
}

/// A health server: the service `sick` is not serving, `shop` and the whole server are, and it knows no other. `lost` is a server without
/// that call.
async fn serving_grpc() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let local = listener.local_addr().unwrap();
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                tokio::spawn(async move {
                    let (head, mut body) = request.into_parts();
                    assert_eq!(head.uri.path(), "/grpc.health.v1.Health/Check");
                    assert_eq!(head.headers["content-type"], "application/grpc");
                    let mut message = Vec::new();
                    while let Some(data) = body.data().await {
                        message.extend_from_slice(&data.unwrap());
                    }
                    assert_eq!(usize::from(message[4]), message.len() - 5, "the length of the message");
                    let response = Response::builder().header("content-type", "application/grpc");
                    let status: &[u8] = match &message[5..] {
                        [] | [0x0a, 4, b's', b'h', b'o', b'p'] => &[0, 0, 0, 0, 2, 8, 1],
                        [0x0a, 4, b's', b'i', b'c', b'k'] => &[0, 0, 0, 0, 2, 8, 2],
                        [0x0a, 4, b'l', b'o', b's', b't'] => {
                            let response = response.header("grpc-status", "12").body(()).unwrap();
                            return drop(answer.send_response(response, true).unwrap());
                        }
                        _ => {
                            let response = response.header("grpc-status", "5").body(()).unwrap();
                            return drop(answer.send_response(response, true).unwrap());
                        }
                    };
                    let mut sender = answer.send_response(response.body(()).unwrap(), false).unwrap();
                    sender.send_data(Bytes::copy_from_slice(status), false).unwrap();
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", "0".parse().unwrap());
                    sender.send_trailers(trailers).unwrap();
                });
            }
        }
    };
    (local, tokio::spawn(serving))
}

#[tokio::test]
async fn a_health_server_of_grpc_says_whether_it_serves() {
    let (to, serving) = serving_grpc().await;
    let health = |service: &str| ask(to, ProbeRequest::Grpc(service.into()), LIMIT);
    assert_eq!((health("").await, health("shop").await), (Ok(()), Ok(())));
    for (service, told) in [
        ("sick", "it answers NOT_SERVING"),
        ("other", "the server does not know the service \"other\""),
        ("lost", "the server has no grpc.health.v1.Health"),
    ] {
        assert_eq!(health(service).await, Err(format!("grpc://{to}: {told}")));
    }
    serving.abort();
    let _ = serving.await;
    assert!(health("").await.unwrap_err().contains("refused"));
}

#[tokio::test]
async fn what_speaks_no_grpc_fails_in_time() {
    let (to, _requests) = answering("127.0.0.1:0", OK).await;
    let told = ask(to, ProbeRequest::Grpc("".into()), LIMIT).await.unwrap_err();
    assert!(told.starts_with(&format!("grpc://{to}: ")) && !told.contains("within"), "{told}");
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = silent.local_addr().unwrap();
    let told = ask(to, ProbeRequest::Grpc("".into()), Duration::from_secs(1)).await;
    assert_eq!(told, Err(format!("grpc://{to}: no answer within 1 s")));
}

#[tokio::test]
async fn all_questions_have_to_be_answered_often_enough() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (to, _requests) = answering("127.0.0.1:0", OK).await;
    let question = |container: &str, port| Question {
        container: Some(container.into()),
        port,
        request: ProbeRequest::Http(Box::new(get("/"))),
    };
    let second = Duration::from_secs(1);
    let rules = ProbeRules { period: second, timeout: second, failure_threshold: 2, success_threshold: 1 };
    for (second, expected) in
        [(Ok(to.port()), Ok(())), (Err("no such port".to_owned()), Err("container b: no such port".to_owned()))]
    {
        let (sender, mut told) = mpsc::unbounded_channel();
        let questions = vec![question("a", Ok(to.port())), question("b", second)];
        let tell = move |found| sender.send(found).is_ok();
        let mut asking = ask_on(HERE, questions, rules, probe_client().unwrap(), tell).boxed();
        tokio::select! {
            () = &mut asking => panic!("it goes on"),
            first = told.recv() => assert_eq!(first, Some(expected)),
        }
    }
}

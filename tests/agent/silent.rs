//! A Consul that hangs, as a server that answers once: no program of Consul is needed for it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;
use lictor_testing::{client, eventually, free_address};
use serde_json::{Value, json};

use crate::Bench;

/// Starts a server that answers who waits for a change of a key, once, and nothing else. The key is held by another program's session.
fn silent_after_one_answer() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let answered = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answered = answered.clone();
            std::thread::spawn(move || serve(stream, &answered));
        }
    });
    address
}

fn serve(mut stream: TcpStream, answered: &AtomicBool) {
    let mut buffer = [0; 4096];
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            return;
        }
        let request = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let Some(rest) = request.strip_prefix("GET /v1/kv/") else { continue };
        // The agent asks for the key to find an earlier session of its own, too, and waits with an index for changes.
        if !rest.contains("index=0") || answered.swap(true, Ordering::Relaxed) {
            continue;
        }
        let key = rest.split(['?', ' ']).next().unwrap_or_default();
        let entry = json!({
            "Key": key, "Value": null, "Flags": 0, "Session": "other", "LockIndex": 1, "CreateIndex": 4, "ModifyIndex": 5,
        });
        let body = json!([entry]).to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Consul-Index: 5";
        let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
}

#[tokio::test]
async fn an_agent_says_that_a_consul_which_hangs_does_not_answer() {
    let (consul, listen, bench) = (silent_after_one_answer(), free_address(), Bench::new("silent"));
    let address = format!("http://{consul}");
    let agent = bench.agent_of(&address, "one", &["--listen", &listen.to_string()], &["sh", "-c", &Bench::worker("")]);
    agent.says("waiting for the lock leader=\"the session other\"").await;
    let http = client();
    let asked = |path: &'static str| {
        let request = http.get(format!("http://{listen}{path}")).timeout(Duration::from_secs(10));
        async move {
            let text = async { request.send().await?.text().await };
            serde_json::from_str::<Value>(&text.await.map_err(|error| error.to_string())?).map_err(|e| e.to_string())
        }
    };
    let known = eventually("it says why nothing is heard", || async {
        let known = asked("/election").await?;
        if known["problem"].is_string() { Ok(known) } else { Err(known.to_string()) }
    })
    .await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64();
    let problem = known["problem"].as_str().expect("a text");
    assert!(problem.contains(&format!("no answer from Consul at {address} in time")), "{problem}");
    assert_eq!((&known["role"], &known["leader"]["name"]), (&json!("follower"), &json!("the session other")));
    let heard: Timestamp = known["lastHeard"].as_str().expect("a time").parse().expect("it can be read");
    let ago = now - heard.as_duration().as_secs_f64();
    let age = known["ageSeconds"].as_f64().expect("a number");
    assert!((ago - age).abs() < 2.0, "{known}: heard {ago} s ago");
    assert_eq!(asked("/state").await.expect("it answers")["problem"], problem);
    assert!(!agent.errors().contains("the lock has no holder"), "{}", agent.errors());
    assert_eq!(bench.begun(), []);
}

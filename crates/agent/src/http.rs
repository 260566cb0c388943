//! The agent's HTTP requests: for its state, and to leave the lock to another agent. The server answers only processes of this machine, or
//! of this pod. The server of `lictor observe`, which also has these paths, tells who leads.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lictor_core::AgentState;
use lictor_process::monotonic;
use serde::Serialize;

use super::place::Name;
use super::requests::{Handle, Yielded};

/// The state that the server shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    identity: String,
    key: String,
    state: &'static str,
    /// The holder of the lock, as far as this agent knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    term: Option<i64>,
    /// How long this agent can rely on its lock from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_milliseconds: Option<u128>,
    /// How long the agent stays away from the lock from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    away_milliseconds: Option<u128>,
    /// The obstacle that keeps this agent from hearing of the lock, or from ever getting it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

struct Agent {
    name: Name,
    handle: Handle,
}

/// Adds the agent's own paths to a router, and limits all paths to processes of this machine. `name` is the agent's. The server has to
/// know the client's address ([`ConnectInfo`]).
pub fn with_requests(router: Router, name: Name, handle: Handle) -> Router {
    let own = Router::new().route("/state", get(state)).route("/yield", post(give_away));
    router.merge(own.with_state(Arc::new(Agent { name, handle }))).layer(from_fn(guarded))
}

async fn state(State(agent): State<Arc<Agent>>) -> Response {
    agent.answer(StatusCode::OK)
}

async fn give_away(State(agent): State<Arc<Agent>>) -> Response {
    match agent.handle.give_away().await {
        Yielded::Away => agent.answer(StatusCode::OK),
        Yielded::NotHeld => agent.answer(StatusCode::CONFLICT),
        Yielded::Ends => (StatusCode::SERVICE_UNAVAILABLE, "the agent ends, and releases the lock\n").into_response(),
    }
}

impl Agent {
    fn answer(&self, code: StatusCode) -> Response {
        let (now, condition) = (monotonic(), self.handle.condition());
        let held = condition.lock.held.filter(|held| now < held.until);
        let own = || held.map(|_| self.name.identity.clone());
        let shown = Shown {
            identity: self.name.identity.clone(),
            key: self.name.key.clone(),
            state: match condition.state {
                AgentState::Waiting => "waiting",
                AgentState::Leading => "leading",
                AgentState::Ending => "ending",
                AgentState::Releasing => "releasing",
                AgentState::Away(_) => "away",
                AgentState::Ended => "over",
            },
            problem: condition.problem(),
            leader: own().or(condition.lock.other.map(|other| other.name)),
            term: held.map(|held| held.term.0),
            valid_milliseconds: held.map(|held| held.until.since(now).as_millis()),
            away_milliseconds: match condition.state {
                AgentState::Away(until) => Some(until.since(now).as_millis()),
                _ => None,
            },
        };
        let body = serde_json::to_string(&shown).unwrap_or_default() + "\n";
        (code, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response()
    }
}

/// Answers clients that may ask.
async fn guarded(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
    match check(peer, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::FORBIDDEN, why).into_response(),
    }
}

/// Checks the client. A loopback address alone is not enough, because a machine may route packets from outside to it
/// (`net.ipv4.conf.all.route_localnet`), and every page in a browser of this machine can send requests to it. The check of Host rejects
/// pages whose name leads here (DNS rebinding), and the check of Origin rejects all other pages, because this server has none.
fn check(peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), &'static str> {
    if !peer.is_some_and(is_loopback) {
        return Err("this server answers only processes of its own machine or pod\n");
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|host| is_own(host));
    if host.is_none() || hosts.next().is_some() {
        return Err("this server answers only as localhost, 127.0.0.1 and [::1]\n");
    }
    if headers.contains_key(ORIGIN) {
        return Err("no page in a browser may use this server\n");
    }
    Ok(())
}

/// Whether an address leads back to this machine.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether a host, with or without a port, is a name of this machine that no other machine can get.
fn is_own(host: &str) -> bool {
    let without_port = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(address, _)| address),
        None => host.split(':').next(),
    };
    without_port.is_some_and(|name| name == "localhost" || name.parse().is_ok_and(is_loopback))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::{Body, to_bytes};
    use lictor_core::{HeldLock, Term};
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;
    use crate::requests::{Requests, requests};
    use lictor_locks::Other;

    const HERE: [u8; 4] = [127, 0, 0, 1];

    fn served() -> (Requests, Router) {
        let (requests, handle) = requests();
        let name = Name { key: "services/report/leader".into(), identity: "one".into() };
        (requests, with_requests(Router::new().route("/", get(|| std::future::ready(""))), name, handle))
    }

    async fn ask(router: &Router, method: &str, path: &str, peer: [u8; 4], headers: &[(&str, &str)]) -> (u16, String) {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 40_000))));
        let answer = router.clone().oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 10_000).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn only_processes_of_this_machine_may_ask_and_no_pages() {
        let (_requests, router) = served();
        let host = ("host", "127.0.0.1:8090");
        for (method, path, peer, headers, code) in [
            ("GET", "/state", HERE, &[host][..], 200),
            ("GET", "/state", [127, 0, 0, 7], &[("host", "localhost:9")], 200),
            ("GET", "/state", HERE, &[("host", "[::1]:8090")], 200),
            ("GET", "/state", HERE, &[("host", "127.0.0.1")], 200),
            // From another machine.
            ("GET", "/state", [10, 0, 0, 7], &[host], 403),
            ("POST", "/yield", [10, 0, 0, 7], &[host], 403),
            // By another name that leads here.
            ("GET", "/state", HERE, &[], 403),
            ("GET", "/state", HERE, &[host, host], 403),
            ("GET", "/state", HERE, &[("host", "attacker.example:8090")], 403),
            ("GET", "/state", HERE, &[("host", "127.0.0.1.attacker.example")], 403),
            ("GET", "/state", HERE, &[("host", "10.0.0.1:8090")], 403),
            ("GET", "/state", HERE, &[("host", "[::1")], 403),
            // From a page.
            ("POST", "/yield", HERE, &[host, ("origin", "http://attacker.example")], 403),
            ("POST", "/yield", HERE, &[host, ("origin", "http://127.0.0.1:8090")], 403),
            ("POST", "/yield", HERE, &[host, ("origin", "null")], 403),
            ("GET", "/state", HERE, &[host, ("origin", "http://attacker.example")], 403),
            // Other methods and paths.
            ("GET", "/yield", HERE, &[host], 405),
            ("PUT", "/yield", HERE, &[host], 405),
            ("DELETE", "/yield", HERE, &[host], 405),
            ("POST", "/state", HERE, &[host], 405),
            // The server's other paths.
            ("GET", "/", HERE, &[host], 200),
            ("GET", "/", [10, 0, 0, 7], &[host], 403),
            ("GET", "/", HERE, &[host, ("origin", "null")], 403),
            ("GET", "/nothing", HERE, &[host], 404),
            ("GET", "/nothing", HERE, &[("host", "attacker.example")], 403),
        ] {
            let (answered, said) = ask(&router, method, path, peer, headers).await;
            assert_eq!(answered, code, "{method} {path} from {peer:?} with {headers:?}: {said}");
        }
    }

    #[tokio::test]
    async fn the_state_says_who_leads_and_for_how_long() {
        let (requests, router) = served();
        let state = async || -> Value {
            let (code, said) = ask(&router, "GET", "/state", HERE, &[("host", "localhost")]).await;
            assert_eq!(code, 200);
            serde_json::from_str(&said).unwrap()
        };
        let own = |more: Value| {
            let mut all = json!({"identity": "one", "key": "services/report/leader"});
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        assert_eq!(state().await, own(json!({"state": "waiting"})));
        requests.conditions.send_modify(|condition| condition.lock.other = Some(Other::named("two".into())));
        assert_eq!(state().await, own(json!({"state": "waiting", "leader": "two"})));
        let until = monotonic() + Duration::from_secs(8);
        requests.conditions.send_modify(|condition| {
            condition.state = AgentState::Leading;
            condition.lock.held = Some(HeldLock { term: Term(7), from: monotonic(), until });
        });
        let mut leading = state().await;
        let valid = leading.as_object_mut().unwrap().remove("validMilliseconds").unwrap().as_u64().unwrap();
        assert!((7000..=8000).contains(&valid), "{valid}");
        assert_eq!(leading, own(json!({"state": "leading", "leader": "one", "term": 7})));
        // A lock that is over is not held, even before the agent notices.
        requests.conditions.send_modify(|condition| {
            condition.lock.held = Some(HeldLock { term: Term(7), from: monotonic(), until: monotonic() });
        });
        assert_eq!(state().await["term"], Value::Null);
    }

    #[tokio::test]
    async fn whoever_asks_to_yield_hears_what_became_of_it() {
        let host = [("host", "localhost")];
        let (mut requests, router) = served();
        let asks = router.clone();
        let asks = tokio::spawn(async move { ask(&asks, "POST", "/yield", HERE, &host).await });
        requests.yields.recv().await.unwrap().send(false).unwrap();
        assert_eq!(asks.await.unwrap().0, 409);

        let asks = router.clone();
        let asks = tokio::spawn(async move { ask(&asks, "POST", "/yield", HERE, &host).await });
        requests.yields.recv().await.unwrap().send(true).unwrap();
        requests.conditions.send_modify(|condition| condition.state = AgentState::Ending);
        tokio::task::yield_now().await;
        assert!(!asks.is_finished());
        let until = monotonic() + Duration::from_secs(5);
        requests.conditions.send_modify(|condition| condition.state = AgentState::Away(until));
        let (code, said) = asks.await.unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert!(code == 200 && said["state"] == "away" && said["awayMilliseconds"].as_u64() <= Some(5000), "{said}");

        drop(requests);
        assert_eq!(ask(&router, "POST", "/yield", HERE, &host).await.0, 503);
    }
}

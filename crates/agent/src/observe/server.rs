//! The HTTP server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, KeepAliveStream, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::Stream;
use futures::future::ready as ready_now;
use futures::stream::unfold;
use lictor_process::monotonic;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::knowledge::Knowledge;
use super::shared::Shared;
use super::{Role, answers};

/// The greatest possible age of the answer, in seconds, or `unknown`.
const AGE: HeaderName = HeaderName::from_static("lictor-age");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How often a quiet stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a client waits before it connects again.
const RECONNECT: Duration = Duration::from_secs(1);

/// The available paths.
pub(super) const PATHS: &str = "there is no such path. GET / (the leader's name), /sse (the same, at each change), /leader (200 if this pod leads, \
                     else 503), /election (everything that is known), /events (each change), /metrics, /healthz, /readyz";
const NO_METHOD: &str = "only GET and HEAD are allowed\n";

/// Returns the router with all answers.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(elector))
        .route("/sse", get(elector_events))
        .route("/leader", get(leader))
        .route("/election", get(election))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| ready_now("ok\n")))
        .route("/readyz", get(ready))
        .fallback(|| ready_now((StatusCode::NOT_FOUND, format!("{PATHS}\n"))))
        .method_not_allowed_fallback(|| ready_now((StatusCode::METHOD_NOT_ALLOWED, NO_METHOD)))
        .with_state(shared)
}

/// Serves at these addresses until [`Shared::closing`] is true.
///
/// # Errors
/// If a listener fails.
pub(super) async fn serve(listeners: Vec<TcpListener>, router: Router, shared: Arc<Shared>) -> std::io::Result<()> {
    let served = listeners.into_iter().map(|listener| {
        let mut closing = shared.closing.subscribe();
        let closed = async move { drop(closing.wait_for(|closing| *closing).await) };
        let service = router.clone().into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service).with_graceful_shutdown(closed).into_future()
    });
    futures::future::try_join_all(served).await?;
    // Without listeners, the end is the only thing to wait for.
    let _ = shared.closing.subscribe().wait_for(|closing| *closing).await;
    Ok(())
}

/// Returns the answer of the sidecars that this replaces.
async fn elector(State(shared): State<Arc<Shared>>) -> Response {
    let answer = shared.known(|known| answers::elector(known, monotonic()));
    told(&shared, StatusCode::OK, "application/json", answer.to_string())
}

async fn election(State(shared): State<Arc<Shared>>) -> Response {
    let answer = shared.known(|known| answers::election(&shared.about, known, monotonic()));
    told(&shared, StatusCode::OK, "application/json", answer.to_string() + "\n")
}

async fn leader(State(shared): State<Arc<Shared>>) -> Response {
    let state = shared.known(|known| known.state(monotonic()));
    let leader = state.leader.filter(|_| !state.stale).map(|leader| leader.name);
    let this = shared.about.observer;
    let text = match (state.role, leader) {
        (Role::Leader, _) => format!("{this} leads\n"),
        (Role::Follower, Some(other)) => format!("{this} does not lead: {other} does\n"),
        (Role::Follower, None) => format!("{this} does not lead\n"),
        (Role::Unknown, _) if state.ended => "lictor is ending\n".to_owned(),
        (Role::Unknown, _) => {
            let problem = shared.known(|known| known.problem().map(|problem| format!(": {problem}")));
            format!("it is not known whether {this} leads{}\n", problem.unwrap_or_default())
        }
    };
    let status = if state.role == Role::Leader { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    told(&shared, status, "text/plain; charset=utf-8", text)
}

/// Says that there was news of the election, whoever leads, because a pod must be ready while it follows.
async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let problem = |known: &mut Knowledge| match known.heard() {
        Some(_) if known.is_found() => None,
        Some(_) => known.problem().map(str::to_owned),
        None => Some(known.failure().unwrap_or("the source of the election has not answered yet").to_owned()),
    };
    match shared.known(problem) {
        None => "ok\n".into_response(),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem + "\n").into_response(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let now = monotonic();
    let state = shared.known(|known| known.state(now));
    match shared.metrics.encode(&state, shared.age(now)) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn told(shared: &Shared, status: StatusCode, kind: &'static str, body: String) -> Response {
    let age = shared.age(monotonic()).map_or_else(|| "unknown".to_owned(), |age| format!("{age:.3}"));
    let headers = [(header::CONTENT_TYPE, kind.to_owned()), (header::CACHE_CONTROL, "no-cache".to_owned()), (AGE, age)];
    (status, headers, body).into_response()
}

/// A stream of events that is kept alive.
type Sent<S> = Sse<KeepAliveStream<S>>;

fn stream<S: Stream<Item = Result<Event, Infallible>> + Send + 'static>(states: S) -> Sent<S> {
    Sse::new(states).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// The position of a stream, and the news that it waits for.
struct Listener {
    shared: Arc<Shared>,
    /// The number of the last change that was sent.
    position: u64,
    newest: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
}

impl Listener {
    fn new(shared: Arc<Shared>, last: Option<&str>) -> Self {
        let (newest, closing) = (shared.events.newest(), shared.closing.subscribe());
        Self { position: shared.events.position(last), shared, newest, closing }
    }

    /// Returns the next change, or `None` if all were sent and the connection is to end.
    async fn next(&mut self) -> Option<(u64, String)> {
        let Self { shared, position, newest, closing } = self;
        loop {
            newest.mark_unchanged();
            if let Some((number, content)) = shared.events.after(*position) {
                *position = number;
                return Some((number, content));
            }
            tokio::select! {
                biased;
                changed = newest.changed() => changed.ok()?,
                _ = closing.wait_for(|closing| *closing) => return None,
            }
        }
    }
}

/// Sends each change after the one that the client received last.
async fn events(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
) -> Sent<impl Stream<Item = Result<Event, Infallible>>> {
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    stream(unfold(Listener::new(shared, last), |mut listener| async move {
        let (number, content) = listener.next().await?;
        let event = Event::default().event("election").id(listener.shared.events.id(number)).retry(RECONNECT);
        Some((Ok(event.data(content)), listener))
    }))
}

/// Sends the answer of [`elector`], now and at each change.
async fn elector_events(State(shared): State<Arc<Shared>>) -> Sent<impl Stream<Item = Result<Event, Infallible>>> {
    stream(unfold((Listener::new(shared, None), true), |(mut listener, first)| async move {
        if first {
            // The present state already includes the newest change.
            listener.position += 1;
        } else {
            listener.next().await?;
        }
        let answer = listener.shared.known(|known| answers::elector(known, monotonic()));
        Some((Ok(Event::default().data(answer.to_string())), (listener, false)))
    }))
}

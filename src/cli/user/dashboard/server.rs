//! The page over HTTP.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::Stream;
use futures::stream::unfold;
use tokio::net::TcpListener;

use super::actions::{pause, switch};
use super::guard::Guard;
use super::one::Look;
use super::page::{FILES, PAGE};
use super::shared::Shared;

/// The headers of each answer, which tell the browser to load nothing from elsewhere, to show the page in no frame, to store nothing,
/// and to keep the address secret.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Serves the page until the process ends.
///
/// # Errors
/// If the listener fails.
pub(super) async fn serve(listener: TcpListener, guard: Guard, shared: Shared) -> std::io::Result<()> {
    let mut router = Router::new()
        .route("/{token}/live", get(live))
        .route("/{token}/live/{namespace}/{name}", get(live_one))
        .route("/{token}/elections/{namespace}/{name}/switchover", post(switch))
        .route("/{token}/elections/{namespace}/{name}/pause", post(pause));
    for file in FILES.iter().chain([&PAGE]) {
        let path = format!("/{{token}}/{}", file.path);
        router = router.route(&path, get(move || std::future::ready(file.answer())));
    }
    let router = router.with_state(shared).layer(from_fn_with_state(Arc::new(guard), guarded));
    axum::serve(listener, router).await
}

/// Answers a permitted request.
async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut answer = match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::FORBIDDEN, why).into_response(),
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

type Events<S> = Sse<axum::response::sse::KeepAliveStream<S>>;

/// Sends all elections, now and at each change.
async fn live(State(shared): State<Shared>) -> Events<impl Stream<Item = Result<Event, Infallible>>> {
    let mut overview = shared.overview;
    overview.mark_changed();
    let states = unfold(overview, |mut overview| async move {
        loop {
            overview.changed().await.ok()?;
            let state = overview.borrow_and_update().clone();
            if let Some(state) = state {
                return Some((Ok(Event::default().data(state)), overview));
            }
        }
    });
    Sse::new(states).keep_alive(KeepAlive::default())
}

/// Sends one election, now and at each change.
async fn live_one(
    State(shared): State<Shared>,
    Path((_, namespace, name)): Path<(String, String, String)>,
) -> Events<impl Stream<Item = Result<Event, Infallible>>> {
    let states = unfold(Look::at(shared, namespace, name), |mut look| async move {
        let state = look.next().await;
        Some((Ok(Event::default().data(state)), look))
    });
    Sse::new(states).keep_alive(KeepAlive::default())
}

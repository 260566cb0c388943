//! `/healthz`, `/readyz` and `/metrics` over HTTP.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::{Health, Metrics};

/// Serves until the process ends.
///
/// # Errors
/// If the listener fails.
pub async fn serve(listener: TcpListener, health: Health, metrics: Metrics) -> std::io::Result<()> {
    let ready = health.clone();
    let router = Router::new()
        .route("/healthz", get(move || std::future::ready(answer(health.live()))))
        .route("/readyz", get(move || std::future::ready(answer(ready.ready()))))
        .route("/metrics", get(move || std::future::ready(encoded(&metrics))));
    axum::serve(listener, router).await
}

fn answer(state: Result<(), String>) -> impl IntoResponse {
    match state {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn encoded(metrics: &Metrics) -> impl IntoResponse + use<> {
    match metrics.encode() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text)
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string()),
    }
}

//! Calls the standard health service of gRPC: one POST over HTTP/2, whose bodies are a message of protobuf after five bytes.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use prost::Message;
use tokio::net::TcpStream;

/// The beginning of a message: whether it is compressed, and its length as four bytes.
const PREFIX: usize = 5;
/// More than any answer has.
const LONGEST: usize = 1024;
const LONGEST_HEADERS: u32 = 16 * 1024;
/// The code of a call that the server does not have.
const UNIMPLEMENTED: &str = "12";
/// The code for a service that the server does not know.
const NOT_FOUND: &str = "5";

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Asks a server for the health of a service. `agent`: the header User-Agent.
///
/// # Errors
/// If it does not answer `SERVING`: returns what it answers.
pub(super) async fn check(to: SocketAddr, service: &str, agent: &str) -> Result<(), String> {
    let stream = TcpStream::connect(to).await.map_err(|error| error.to_string())?;
    let handshake = Builder::new().enable_push(false).max_header_list_size(LONGEST_HEADERS).handshake(stream);
    let (client, connection) = handshake.await.map_err(|error| error.to_string())?;
    // The call itself tells how the connection ended.
    let driven = async move {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        answer = call(client, to, service, agent) => answer,
        never = driven => match never {},
    }
}

async fn call(client: SendRequest<Bytes>, to: SocketAddr, service: &str, agent: &str) -> Result<(), String> {
    let request = Request::post(format!("http://{to}/grpc.health.v1.Health/Check"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, agent)
        .body(())
        .map_err(|error| error.to_string())?;
    let mut client = client.ready().await.map_err(|error| error.to_string())?;
    let (answer, mut sender) = client.send_request(request, false).map_err(|error| error.to_string())?;
    let message = HealthCheckRequest { service: service.into() };
    sender.send_data(framed(&message), true).map_err(|error| error.to_string())?;
    let (head, body) = answer.await.map_err(|error| error.to_string())?.into_parts();
    if head.status != StatusCode::OK {
        return Err(format!("it answers {}", head.status));
    }
    // A failed call may have no body, and its headers are the trailers.
    failed(&head.headers, service)?;
    let (body, trailers) = whole(body).await?;
    failed(&trailers, service)?;
    let message = body.get(PREFIX..).ok_or("it answers without a message")?;
    let answer = HealthCheckResponse::decode(message).map_err(|error| error.to_string())?;
    match answer.status {
        1 => Ok(()),
        2 => Err("it answers NOT_SERVING".into()),
        3 => Err("it answers SERVICE_UNKNOWN".into()),
        status => Err(format!("it answers the status {status}")),
    }
}

fn framed(message: &HealthCheckRequest) -> Bytes {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], length.as_slice(), &message].concat().into()
}

/// The whole answer, and its trailers.
async fn whole(mut body: RecvStream) -> Result<(Vec<u8>, HeaderMap), String> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| error.to_string())?;
        all.extend_from_slice(&data);
        if all.len() > LONGEST {
            return Err("its answer is too long".into());
        }
        let _ = body.flow_control().release_capacity(data.len());
    }
    let trailers = body.trailers().await.map_err(|error| error.to_string())?;
    Ok((all, trailers.unwrap_or_default()))
}

/// # Errors
/// If these headers or trailers say that the call failed: returns why.
fn failed(headers: &HeaderMap, service: &str) -> Result<(), String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        None | Some("0") => Ok(()),
        Some(UNIMPLEMENTED) => Err("the server has no grpc.health.v1.Health".into()),
        Some(NOT_FOUND) => Err(format!("the server does not know the service {service:?}")),
        Some(code) => Err(format!("it answers the code {code}: {}", text("grpc-message").unwrap_or_default())),
    }
}

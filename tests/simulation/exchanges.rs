//! What was recorded of the real servers, on the simulated ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use kube::client::Body;
use lictor_testing::{Answer, Request, Server, play};

use crate::servers::api::ApiServer;
use crate::servers::client::kubernetes;
use crate::servers::consul::{self, Consul};
use crate::servers::link::Link;

#[tokio::test]
async fn the_simulated_api_server_answers_as_the_real_one() {
    let client = kubernetes(ApiServer::new("west"), Link::new(1), Arc::new(|_, _, _, _| {}));
    play(Server::Kubernetes, false, async |request: Request| {
        let path = request.path.replace("{ns}", "exchanges");
        let body = request.body.map(|body| body.to_string()).unwrap_or_default();
        let request = http::Request::builder().method(request.method.as_str()).uri(path.replace(' ', "%20"));
        let answer = client.send(request.body(Body::from(body.into_bytes())).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body: Bytes = answer.into_body().collect().await.unwrap().to_bytes();
        Answer { code, index: None, body: body.to_vec() }
    })
    .await;
}

#[tokio::test]
async fn the_simulated_consul_answers_as_the_real_one() {
    let consul = Consul::new(1, 1000);
    play(Server::Consul, false, async |request: Request| {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let query = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query: BTreeMap<_, _> = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let path = path.trim_start_matches("/v1/").to_owned();
        let body = request.body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let answer = consul.handle(&consul::Request { method: request.method, path, query, body }).await;
        Answer { code: answer.status, index: answer.index, body: answer.body }
    })
    .await;
}

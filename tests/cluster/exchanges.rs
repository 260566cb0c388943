//! The recorded exchanges, on the real servers. The simulated servers of `tests/simulation` must answer the same.

use http_body_util::BodyExt;
use kube::client::Body;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::Lab;
use lictor_testing::{Answer, Request, Server, play};
use reqwest::Method;

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_answers_as_it_was_recorded() {
    let lab = Lab::new("exchanges").await;
    play(Server::Kubernetes, true, async |request: Request| {
        let path = request.path.replace("{ns}", &lab.namespace).replace(' ', "%20");
        let kind = if request.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = request.body.map(|body| body.to_string()).unwrap_or_default();
        let request = http::Request::builder().method(request.method.as_str()).uri(path).header("content-type", kind);
        let request = request.body(Body::from(body.into_bytes())).expect("a request");
        let answer = lab.client.send(request).await.expect("the server answers");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("the whole answer").to_bytes();
        Answer { code, index: None, body: body.to_vec() }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_answers_as_it_was_recorded() {
    let api = Consul::shared().api();
    play(Server::Consul, true, async |request: Request| {
        let method = Method::from_bytes(request.method.as_bytes()).expect("a method");
        let mut sent = api.request(method, &request.path);
        if let Some(body) = request.body {
            sent = sent.body(body.to_string());
        }
        let answer = sent.send().await.expect("Consul answers");
        let code = answer.status().as_u16();
        let index = answer.headers().get("x-consul-index").and_then(|index| index.to_str().ok()?.parse().ok());
        Answer { code, index, body: answer.bytes().await.expect("the whole answer").to_vec() }
    })
    .await;
}

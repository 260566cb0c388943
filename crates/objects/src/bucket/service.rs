//! What stands between `object_store` and the network.
//!
//! `object_store` keeps the status of most failed requests to itself, and some that it does tell, such as a missing object, may
//! also be about the bucket. So each answer that is not a success becomes an error of a type of its own, [`Answered`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use reqwest::StatusCode;
use serde::Deserialize;

/// A store's answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store answered {}{}{}", .status.as_u16(), with(" ", .code.as_ref()), with(": ", .message.as_ref()))]
pub(super) struct Answered {
    pub(super) status: StatusCode,
    /// The store's own code, for example `NoSuchBucket`.
    pub(super) code: Option<String>,
    message: Option<String>,
}

fn with(before: &str, text: Option<&String>) -> String {
    text.map(|text| format!("{before}{text}")).unwrap_or_default()
}

impl Answered {
    pub(super) fn new(status: StatusCode, body: &[u8], header: Option<&str>) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Body {
            code: Option<String>,
            message: Option<String>,
        }
        let Body { code, message } = quick_xml::de::from_reader(body).unwrap_or_default();
        // Azure adds lines with the request's id.
        let message = message.and_then(|text| text.lines().next().map(str::to_owned));
        Self { status, code: code.or_else(|| header.map(str::to_owned)), message }
    }
}

/// The generations of the objects on a page of a listing, by their whole names. Google Cloud Storage lists them, and `object_store`
/// leaves them out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Generations(pub(super) BTreeMap<String, String>);

impl Generations {
    fn on(page: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        struct Page {
            #[serde(rename = "Contents", default)]
            contents: Vec<Entry>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Entry {
            key: String,
            generation: Option<String>,
        }
        let Page { contents } = quick_xml::de::from_reader(page).unwrap_or_default();
        Self(contents.into_iter().filter_map(|entry| Some((entry.key, entry.generation?))).collect())
    }
}

/// Makes clients that answer by [`Answered`].
#[derive(Debug)]
pub(super) struct Connector {
    /// Whether listings have generations.
    pub(super) generations: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service { inner, generations: self.generations }))
    }
}

#[derive(Debug)]
struct Service {
    inner: HttpClient,
    generations: bool,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let listing = request.uri().query().is_some_and(|query| query.contains("list-type="));
        let answer = self.inner.execute(request).await?;
        let status = answer.status();
        if !status.is_success() {
            // Azure's answer to HEAD has its code in a header alone.
            let code = answer.headers().get("x-ms-error-code").and_then(|code| code.to_str().ok()).map(str::to_owned);
            // The status alone says enough, if the rest is lost.
            let body = answer.into_body().bytes().await.unwrap_or_default();
            return Err(HttpError::new(HttpErrorKind::Unknown, Answered::new(status, &body, code.as_deref())));
        }
        if !(listing && self.generations) {
            return Ok(answer);
        }
        let (mut parts, body) = answer.into_parts();
        let body = body.bytes().await?;
        parts.extensions.insert(Generations::on(&body));
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_with_its_code() {
        let azure = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>ContainerNotFound</Code>\
                     <Message>The specified container does not exist.\nRequestId:1\nTime:2</Message></Error>";
        let answered = Answered::new(StatusCode::NOT_FOUND, azure.as_bytes(), None);
        assert_eq!(
            answered.to_string(),
            "the store answered 404 ContainerNotFound: The specified container does not exist."
        );
        assert_eq!(Answered::new(StatusCode::BAD_GATEWAY, b"<html>oh", None).to_string(), "the store answered 502");
        let head = Answered::new(StatusCode::NOT_FOUND, b"", Some("BlobNotFound"));
        assert_eq!(head.to_string(), "the store answered 404 BlobNotFound");
    }

    #[test]
    fn a_listing_of_google_has_generations() {
        let page = "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>\
             <Name>b</Name><IsTruncated>false</IsTruncated>\
             <Contents><Key>p/a</Key><Generation>1360887759327000</Generation><MetaGeneration>2</MetaGeneration>\
             <ETag>\"x\"</ETag></Contents><Contents><Key>p/b</Key><Generation>2</Generation></Contents></ListBucketResult>";
        let expected = [("p/a", "1360887759327000"), ("p/b", "2")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(Generations::on(page.as_bytes()), Generations(expected.into()));
        assert_eq!(Generations::on(b"<ListBucketResult/>"), Generations::default());
    }
}

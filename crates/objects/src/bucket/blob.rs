//! A blob of Azure, and its own lease. `object_store` signs the requests and knows no leases, so this module makes them.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::azure::{AzureAuthorizer, AzureConfigKey, AzureCredentialProvider};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, HttpResponse};
use reqwest::header::{CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use reqwest::{Method, Url};

use super::Bucket;
use super::failure::{Cause, innermost};
use super::service::Connector;
use super::settings::{AZURE_RIGHT, BucketSettings, SettingsError, azure_builder};
use crate::leases::{Action, LeaseState, Leased, Leases, Metadata};
use crate::{Failure, Objects, Put, Tag};

/// The account of the emulator, unless the environment names another one.
const EMULATOR: &str = "devstoreaccount1";
const LEASE_ID: &str = "x-ms-lease-id";
const METADATA: &str = "x-ms-meta-";

/// A blob of Azure Blob Storage.
pub struct Blob {
    /// The container, which creates the blob.
    bucket: Bucket,
    name: String,
    url: Url,
    account: String,
    credentials: AzureCredentialProvider,
    http: HttpClient,
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blob").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

impl Blob {
    /// Creates a client for the blob `name` of a container, which connects when the first request is sent. No request is ever repeated. The
    /// program must have installed a cryptography provider for rustls.
    ///
    /// # Errors
    /// If a setting is not valid, or the address is not `az://CONTAINER` or `az://CONTAINER@ACCOUNT.blob.core.windows.net`, each with an
    /// optional prefix.
    pub fn new(settings: &BucketSettings, name: &str) -> Result<Self, SettingsError> {
        let not_a_container = || SettingsError::Url(settings.url.clone());
        let other = |error: &object_store::Error| SettingsError::Other(settings.url.clone(), innermost(error));
        let bucket = Bucket::new(settings)?;
        let address = Url::parse(&settings.url).ok().filter(|url| url.scheme() == "az").ok_or_else(not_a_container)?;
        let (builder, options) = azure_builder(settings)?;
        let value = |key| builder.get_config_value(&key);
        let is_emulator = value(AzureConfigKey::UseEmulator).is_some_and(|value| is_true(&value));
        let (endpoint, known) = (value(AzureConfigKey::Endpoint), value(AzureConfigKey::AccountName));
        let host = address.host_str().unwrap_or_default();
        let (container, account) = match address.username() {
            "" => (host, known.or_else(|| is_emulator.then(|| EMULATOR.to_owned()))),
            container => (container, host.split('.').next().map(str::to_owned)),
        };
        let azure = builder.build().map_err(|error| other(&error))?;
        let account = account.ok_or_else(not_a_container)?;
        let service = match endpoint {
            _ if is_emulator => {
                let server = std::env::var("AZURITE_BLOB_STORAGE_URL");
                format!("{}/{account}", server.as_deref().unwrap_or("http://127.0.0.1:10000").trim_end_matches('/'))
            }
            Some(endpoint) => endpoint,
            None => format!("https://{account}.blob.core.windows.net"),
        };
        let mut url = Url::parse(&service).map_err(|_| SettingsError::Endpoint(service))?;
        let path = bucket.path(name).map_err(|_| not_a_container())?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(container).extend(path.parts().map(|part| part.as_ref().to_owned()));
        }
        let options = if is_emulator { options.with_allow_http(true) } else { options };
        let http = Connector { generations: false }.connect(&options).map_err(|error| other(&error))?;
        Ok(Self { bucket, name: name.to_owned(), url, account, credentials: azure.credentials().clone(), http })
    }

    async fn send(&self, method: Method, query: Option<&str>, headers: HeaderMap) -> Result<HttpResponse, Cause> {
        let mut url = self.url.clone();
        url.set_query(query);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method;
        *request.uri_mut() = url.as_str().parse().map_err(|_| Cause::Refused(format!("{url} is no address")))?;
        *request.headers_mut() = headers;
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        let credential = self.credentials.get_credential().await?;
        AzureAuthorizer::new(&credential, &self.account).try_authorize(&mut request)?;
        Ok(self.http.execute(request).await?)
    }

    /// Sends a request, and returns whether the blob's state allowed it. `None`: it did not, or there is no blob.
    async fn ask(
        &self,
        what: &str,
        method: Method,
        query: Option<&str>,
        headers: &[(HeaderName, &str)],
    ) -> Result<Option<HttpResponse>, Failure> {
        let asked = async {
            let value = |value: &str| {
                HeaderValue::from_str(value).map_err(|_| Cause::Refused(format!("'{value}' is no header")))
            };
            let headers = headers.iter().map(|(name, text)| Ok((name.clone(), value(text)?)));
            self.send(method, query, headers.collect::<Result<_, Cause>>()?).await
        };
        match self.bucket.in_time(asked).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Cause::Conflict(_) | Cause::Missing(_)) => Ok(None),
            Err(cause) => Err(cause.failure(&format!("{what} '{}' in {}", self.name, self.bucket.url), AZURE_RIGHT)),
        }
    }
}

impl Leases for Blob {
    fn look<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<Option<Leased>, Failure>> {
        async move {
            let condition: Vec<_> = id.map(|id| (HeaderName::from_static(LEASE_ID), id)).into_iter().collect();
            let Some(answer) = self.ask("read the lease of", Method::HEAD, None, &condition).await? else {
                return Ok(None);
            };
            let strange = || Failure::Unknown(format!("the answer about '{}' has no lease or no ETag", self.name));
            read(answer.headers()).map(Some).ok_or_else(strange)
        }
        .boxed()
    }

    fn create(&self) -> BoxFuture<'_, Result<(), Failure>> {
        async move {
            match self.bucket.put(&self.name, None, vec![]).await {
                Put::Done(_) | Put::Conflict => Ok(()),
                Put::Failed(failure) => Err(failure),
            }
        }
        .boxed()
    }

    fn lease<'a>(&'a self, action: Action<'a>) -> BoxFuture<'a, Result<bool, Failure>> {
        async move {
            let (verb, id, more) = match action {
                Action::Acquire { id, duration } => {
                    ("acquire", None, vec![("x-ms-lease-duration", seconds(duration)), (PROPOSED, id.to_owned())])
                }
                Action::Renew { id } => ("renew", Some(id), vec![]),
                Action::Change { from, to } => ("change", Some(from), vec![(PROPOSED, to.to_owned())]),
                Action::Release { id } => ("release", Some(id), vec![]),
            };
            let mut headers = vec![(HeaderName::from_static("x-ms-lease-action"), verb)];
            headers.extend(id.map(|id| (HeaderName::from_static(LEASE_ID), id)));
            headers.extend(more.iter().map(|(name, value)| (HeaderName::from_static(name), value.as_str())));
            let what = format!("{verb} the lease of");
            let answer = self.ask(&what, Method::PUT, Some("comp=lease"), &headers).await?;
            // The answer names the lease that there is now. Azurite renews one that has expired whatever its id.
            let is_renewed = |answer: &HttpResponse| match action {
                Action::Renew { id } => answer
                    .headers()
                    .get(LEASE_ID)
                    .is_none_or(|found| found.as_bytes().eq_ignore_ascii_case(id.as_bytes())),
                _ => true,
            };
            Ok(answer.as_ref().is_some_and(is_renewed))
        }
        .boxed()
    }

    fn mark<'a>(
        &'a self,
        id: &'a str,
        expected: &'a Tag,
        metadata: &'a Metadata,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        async move {
            let invalid = |name: &str| Failure::Refused(format!("'{name}' is no name of metadata"));
            let mut headers = vec![(HeaderName::from_static(LEASE_ID), id), (IF_MATCH, expected.0.as_str())];
            for (name, value) in metadata {
                let header = HeaderName::try_from(format!("{METADATA}{name}")).map_err(|_| invalid(name))?;
                headers.push((header, value.as_str()));
            }
            let answer = self.ask("write the metadata of", Method::PUT, Some("comp=metadata"), &headers).await?;
            Ok(answer.is_some())
        }
        .boxed()
    }
}

const PROPOSED: &str = "x-ms-proposed-lease-id";

fn seconds(duration: Duration) -> String {
    duration.as_secs().to_string()
}

/// Reads a setting as `object_store` does.
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "on" | "yes" | "y")
}

/// Reads the answer to a HEAD. `None`: it is not that of a blob.
fn read(headers: &HeaderMap) -> Option<Leased> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let state = match text("x-ms-lease-state")? {
        "available" => LeaseState::Available,
        "leased" => LeaseState::Leased,
        "expired" => LeaseState::Expired,
        "breaking" => LeaseState::Breaking,
        "broken" => LeaseState::Broken,
        _ => return None,
    };
    let named = |(name, value): (&HeaderName, &HeaderValue)| {
        Some((name.as_str().strip_prefix(METADATA)?.to_owned(), value.to_str().ok()?.to_owned()))
    };
    let tag = Tag(text(ETAG.as_str())?.to_owned());
    Some(Leased { state, tag, metadata: headers.iter().filter_map(named).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credentials;

    fn settings(url: &str, more: &[(&str, &str)]) -> BucketSettings {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secret = [&[("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")], more].concat();
        BucketSettings {
            url: url.into(),
            region: None,
            endpoint: None,
            credentials: Credentials::Given(
                secret.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            ),
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_blob_has_the_address_that_object_store_gives_it() {
        let account = [("AZURE_STORAGE_ACCOUNT_NAME", "a")];
        for (url, more, expected) in [
            ("az://locks", &account[..], "https://a.blob.core.windows.net/locks/report"),
            ("az://locks/x/y", &account, "https://a.blob.core.windows.net/locks/x/y/report"),
            ("az://locks@b.blob.core.windows.net", &[], "https://b.blob.core.windows.net/locks/report"),
            (
                "az://locks",
                &[("AZURE_STORAGE_USE_EMULATOR", "true")],
                "http://127.0.0.1:10000/devstoreaccount1/locks/report",
            ),
        ] {
            let blob = Blob::new(&settings(url, more), "report").unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(blob.url.as_str(), expected);
        }
        let mut elsewhere = settings("az://locks", &account);
        elsewhere.endpoint = Some("http://127.0.0.1:9/a/".into());
        assert_eq!(Blob::new(&elsewhere, "report").unwrap().url.as_str(), "http://127.0.0.1:9/a/locks/report");
        for (url, name) in [("s3://locks", "report"), ("az://locks", ""), ("az://locks", "a//b")] {
            assert!(Blob::new(&settings(url, &account), name).is_err(), "{url} {name}");
        }
    }

    #[test]
    fn an_answer_has_the_state_of_the_lease_and_the_metadata() {
        let answer = |state: &'static str| {
            [
                ("x-ms-lease-state", state),
                ("etag", "\"0x8D\""),
                ("x-ms-meta-owner", "us"),
                ("x-ms-lease-status", "locked"),
            ]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect::<HeaderMap>()
        };
        for (text, state) in [
            ("available", LeaseState::Available),
            ("leased", LeaseState::Leased),
            ("expired", LeaseState::Expired),
            ("breaking", LeaseState::Breaking),
            ("broken", LeaseState::Broken),
        ] {
            let metadata = [("owner".to_owned(), "us".to_owned())].into();
            assert_eq!(read(&answer(text)), Some(Leased { state, tag: Tag("\"0x8D\"".into()), metadata }));
        }
        assert_eq!(read(&answer("new")), None);
        assert_eq!(read(&HeaderMap::new()), None);
    }
}

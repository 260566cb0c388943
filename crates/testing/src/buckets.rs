//! Real servers of buckets.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use http::Method;
use http::header::CONTENT_LENGTH;
use lictor_objects::{BucketSettings, Credentials};
use object_store::ClientOptions;
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpConnector, HttpRequestBody, ReqwestConnector};

use crate::consul::Held;

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// versitygw, which speaks the protocol of S3.
    S3,
    /// Azurite, which speaks the protocol of Azure Blob Storage.
    Azure,
}

/// A server with one account. Dropping it removes it.
pub struct Buckets {
    kind: Kind,
    variables: BTreeMap<String, String>,
    _held: Held,
}

impl Buckets {
    /// Returns the server of this kind that all tests share. Each test has its own buckets.
    pub fn shared(kind: Kind) -> &'static Self {
        static S3: OnceLock<Buckets> = OnceLock::new();
        static AZURE: OnceLock<Buckets> = OnceLock::new();
        let shared = match kind {
            Kind::S3 => &S3,
            Kind::Azure => &AZURE,
        };
        shared.get_or_init(|| Self::start(kind))
    }

    /// Starts a server, which answers when this returns.
    pub fn start(kind: Kind) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let name = match kind {
            Kind::S3 => "s3",
            Kind::Azure => "azure",
        };
        let held = Held::start("buckets.sh", &[name, &format!("test-{}", std::process::id())]);
        let variables = held.variables();
        assert!(!variables.is_empty(), "hack/buckets.sh makes a server");
        Self { kind, variables, _held: held }
    }

    /// Returns the server's address as a proxy needs it, for example `127.0.0.1:20000`.
    pub fn socket(&self) -> &str {
        self.variable("SOCKET")
    }

    /// Creates a bucket of this name, and returns the settings for it. The name needs three characters: small letters, digits, hyphens.
    pub async fn create(&self, bucket: &str) -> BucketSettings {
        match self.kind {
            // A bucket is a directory there.
            Kind::S3 => std::fs::create_dir(format!("{}/{bucket}", self.variable("DATA"))).expect("there is none yet"),
            Kind::Azure => self.create_container(bucket).await,
        }
        self.settings(bucket)
    }

    /// Returns the settings for a bucket that may not exist.
    pub fn settings(&self, bucket: &str) -> BucketSettings {
        let (account, key) = (self.variable("ACCOUNT"), self.variable("KEY"));
        let (scheme, names) = match self.kind {
            Kind::S3 => ("s3", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]),
            Kind::Azure => ("az", ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"]),
        };
        let secret = [(names[0], account), (names[1], key)].map(|(name, value)| (name.into(), value.into()));
        BucketSettings {
            url: format!("{scheme}://{bucket}"),
            region: None,
            endpoint: Some(self.endpoint(self.socket())),
            credentials: Credentials::Given(secret.into()),
            timeout: Duration::from_secs(10),
        }
    }

    /// Returns the endpoint of the server through another socket, for example that of a [`Link`](crate::Link).
    pub fn endpoint(&self, socket: &str) -> String {
        match self.kind {
            Kind::S3 => format!("http://{socket}"),
            Kind::Azure => format!("http://{socket}/{}", self.variable("ACCOUNT")),
        }
    }

    /// Returns what the server has logged so far, a line for each request.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.variable("LOG")).expect("a server has a log")).into_owned()
    }

    /// Deletes an object, as a person does. In S3, there may be none.
    pub async fn delete(&self, bucket: &str, name: &str) {
        match self.kind {
            Kind::S3 => drop(std::fs::remove_file(format!("{}/{bucket}/{name}", self.variable("DATA")))),
            Kind::Azure => self.ask_azure(Method::DELETE, &format!("{bucket}/{name}"), 202).await,
        }
    }

    /// Returns the variables of the environment by which a program reaches the server through a socket.
    pub fn environment(&self, socket: &str) -> Vec<(String, String)> {
        let Credentials::Given(secret) = self.settings("any").credentials else { return vec![] };
        let text = |value: Vec<u8>| String::from_utf8(value).expect("it is text");
        let endpoint = match self.kind {
            Kind::S3 => "AWS_ENDPOINT_URL",
            Kind::Azure => "AZURE_STORAGE_ENDPOINT",
        };
        let secret = secret.into_iter().map(|(name, value)| (name, text(value)));
        secret.chain([(endpoint.to_owned(), self.endpoint(socket))]).collect()
    }

    async fn create_container(&self, name: &str) {
        self.ask_azure(Method::PUT, &format!("{name}?restype=container"), 201).await;
    }

    /// Sends Azurite a request, and expects a status.
    async fn ask_azure(&self, method: Method, path: &str, expected: u16) {
        let url = format!("{}/{path}", self.endpoint(self.socket()));
        let request = http::Request::builder().method(method).uri(url).header(CONTENT_LENGTH, 0);
        let mut request = request.body(HttpRequestBody::empty()).expect("a valid request");
        let key = AzureCredential::AccessKey(AzureAccessKey::try_new(self.variable("KEY")).expect("a valid key"));
        AzureAuthorizer::new(&key, self.variable("ACCOUNT")).try_authorize(&mut request).expect("it can be signed");
        let options = ClientOptions::new().with_allow_http(true).with_no_system_certificates(true);
        let client = ReqwestConnector::default().connect(&options).expect("a client");
        let answer = client.execute(request).await.expect("Azurite answers");
        assert_eq!(answer.status(), expected, "{path}");
    }

    fn variable(&self, name: &str) -> &str {
        &self.variables[&format!("BUCKETS_{name}")]
    }
}

//! The settings for reaching a bucket.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{Certificate, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use reqwest::Url;
use reqwest::header::HeaderValue;

use super::failure::innermost;
use super::service::Connector;
use super::version::Version;

/// The settings of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// The address with an optional prefix: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` if the credentials name
    /// the account, or `az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX`.
    pub url: String,
    /// The region of a bucket in S3. `None` means that of the environment, or us-east-1.
    pub region: Option<String>,
    /// The address of the server, if it is not the cloud's own, for example `https://minio.example:9000`. Only `http://` lets requests go
    /// unencrypted.
    pub endpoint: Option<String>,
    /// The credentials.
    pub credentials: Credentials,
    /// The time limit of each request.
    pub timeout: Duration,
}

/// Where the credentials come from.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The environment, a workload identity, or the cloud's metadata service.
    Ambient,
    /// The data of a Kubernetes Secret. The keys are the names of environment variables, such as `AWS_ACCESS_KEY_ID` or
    /// `AZURE_STORAGE_ACCOUNT_KEY`; for Google, any key that ends in `.json` has the key of a service account.
    Given(BTreeMap<String, Vec<u8>>),
}

impl std::fmt::Debug for Credentials {
    /// Writes no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ambient => f.write_str("Ambient"),
            Self::Given(keys) => f.debug_tuple("Given").field(&keys.keys()).finish(),
        }
    }
}

/// Why no client can be created from the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The address is not that of a bucket.
    #[error(
        "'{0}' is not the address of a bucket: write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, or \
         az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX"
    )]
    Url(String),
    /// The endpoint is not the address of a server.
    #[error("'{0}' is not the address of a server: write https://HOST:PORT or http://HOST:PORT")]
    Endpoint(String),
    /// The Secret has a key that is not a setting of this kind of bucket.
    #[error("the Secret has the key '{0}', which no bucket of this kind knows: write {1}")]
    UnknownKey(String, &'static str),
    /// The Secret has nothing in it.
    #[error("the Secret is empty: write {0}")]
    NoKeys(&'static str),
    /// A value in the Secret is not text.
    #[error("the value of '{0}' in the Secret is not text")]
    NotText(String),
    /// Something else is missing or wrong, for example an account.
    #[error("can't create a client for the bucket '{0}': {1}")]
    Other(String, String),
}

const S3_KEYS: &str = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
const GOOGLE_KEYS: &str = "GOOGLE_SERVICE_ACCOUNT_KEY";
/// The right that an account of Azure needs.
pub(super) const AZURE_RIGHT: &str = "the role Storage Blob Data Contributor";
const AZURE_KEYS: &str = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY";

/// What a client of `object_store` can do.
pub(super) trait Store: ObjectStore + PaginatedListStore {}

impl<T: ObjectStore + PaginatedListStore> Store for T {}

/// A client, and what depends on the kind of the bucket.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    pub(super) version: Version,
    pub(super) prefix: Path,
    /// The right that an account needs, for messages.
    pub(super) right: &'static str,
}

pub(super) fn open(settings: &BucketSettings) -> Result<Opened, SettingsError> {
    let not_a_bucket = || SettingsError::Url(settings.url.clone());
    let url = Url::parse(&settings.url).map_err(|_| not_a_bucket())?;
    let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|_| not_a_bucket())?;
    let (store, version, right): (object_store::Result<Arc<dyn Store>>, _, _) = match scheme {
        ObjectStoreScheme::AmazonS3 => (
            s3(settings)?,
            Version::ETag,
            "s3:GetObject and s3:PutObject for the objects, and s3:ListBucket for the bucket",
        ),
        ObjectStoreScheme::GoogleCloudStorage => (google(settings)?, Version::Generation, "roles/storage.objectUser"),
        ObjectStoreScheme::MicrosoftAzure => (azure(settings)?, Version::ETag, AZURE_RIGHT),
        _ => return Err(not_a_bucket()),
    };
    let store = store.map_err(|error| SettingsError::Other(settings.url.clone(), innermost(&error)))?;
    // The address may be percent-encoded, and the parsed prefix is not.
    let prefix = Path::parse(prefix).map_err(|_| not_a_bucket())?;
    Ok(Opened { store, version, prefix, right })
}

fn s3(settings: &BucketSettings) -> Result<object_store::Result<Arc<dyn Store>>, SettingsError> {
    let mut builder = match &settings.credentials {
        Credentials::Ambient => AmazonS3Builder::from_env(),
        Credentials::Given(secret) => {
            let keys = keys(secret, S3_KEYS, |key| !matches!(key, AmazonS3ConfigKey::Client(_)))?;
            keys.into_iter().fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value))
        }
    };
    if let Some(region) = &settings.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let endpoint = endpoint.iter().find_map(|key| builder.get_config_value(key));
    let built = builder
        .with_url(&settings.url)
        .with_client_options(options(settings, endpoint.as_deref())?)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(no_retries())
        .with_http_connector(Connector { generations: false })
        .build();
    Ok(built.map(|store| Arc::new(store) as Arc<dyn Store>))
}

fn google(settings: &BucketSettings) -> Result<object_store::Result<Arc<dyn Store>>, SettingsError> {
    let mut builder = match &settings.credentials {
        Credentials::Ambient => GoogleCloudStorageBuilder::from_env(),
        Credentials::Given(secret) => {
            let is_file = |key: &String| key.rsplit_once('.').is_some_and(|(_, extension)| extension == "json");
            let file = |key: &String| if is_file(key) { GOOGLE_KEYS.to_owned() } else { key.clone() };
            let secret = secret.iter().map(|(key, value)| (file(key), value.clone())).collect();
            let keys = keys(&secret, GOOGLE_KEYS, |key| !matches!(key, GoogleConfigKey::Client(_)))?;
            let new = GoogleCloudStorageBuilder::new();
            keys.into_iter().fold(new, |builder, (key, value)| builder.with_config(key, value))
        }
    };
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    let built = builder
        .with_url(&settings.url)
        .with_client_options(options(settings, endpoint.as_deref())?)
        .with_retry(no_retries())
        .with_http_connector(Connector { generations: true })
        .build();
    Ok(built.map(|store| Arc::new(store) as Arc<dyn Store>))
}

fn azure(settings: &BucketSettings) -> Result<object_store::Result<Arc<dyn Store>>, SettingsError> {
    let built = azure_builder(settings)?.0.build();
    Ok(built.map(|store| Arc::new(store) as Arc<dyn Store>))
}

/// Returns what makes a client of Azure, and the options of its HTTP client.
pub(super) fn azure_builder(
    settings: &BucketSettings,
) -> Result<(MicrosoftAzureBuilder, ClientOptions), SettingsError> {
    let mut builder = match &settings.credentials {
        Credentials::Ambient => MicrosoftAzureBuilder::from_env(),
        Credentials::Given(secret) => {
            let keys = keys(secret, AZURE_KEYS, |key| !matches!(key, AzureConfigKey::Client(_)))?;
            keys.into_iter().fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| builder.with_config(key, value))
        }
    };
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let options = options(settings, endpoint.as_deref())?;
    let builder = builder
        .with_url(&settings.url)
        .with_client_options(options.clone())
        .with_retry(no_retries())
        .with_http_connector(Connector { generations: false });
    Ok((builder, options))
}

/// Reads the data of a Secret. `known` are the usual keys, and `taken` tells those that count from those that other settings decide.
fn keys<K: FromStr>(
    secret: &BTreeMap<String, Vec<u8>>,
    known: &'static str,
    taken: impl Fn(&K) -> bool,
) -> Result<Vec<(K, String)>, SettingsError> {
    if secret.is_empty() {
        return Err(SettingsError::NoKeys(known));
    }
    let key = |(key, value): (&String, &Vec<u8>)| {
        let parsed = key.to_ascii_lowercase().parse().ok().filter(&taken);
        let parsed = parsed.ok_or_else(|| SettingsError::UnknownKey(key.clone(), known))?;
        let value = std::str::from_utf8(value).map_err(|_| SettingsError::NotText(key.clone()))?;
        // A file that became a Secret often ends in a line break.
        Ok((parsed, value.trim().to_owned()))
    };
    secret.iter().map(key).collect()
}

/// The options of the HTTP client, which leave nothing to the environment.
fn options(settings: &BucketSettings, endpoint: Option<&str>) -> Result<ClientOptions, SettingsError> {
    let http = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    if let Some(endpoint) = endpoint {
        let url = Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.ok_or_else(|| SettingsError::Endpoint(endpoint.to_owned()))?;
    }
    let options = ClientOptions::new()
        .with_user_agent(HeaderValue::from_static(concat!("lictor/", env!("CARGO_PKG_VERSION"))))
        .with_timeout(settings.timeout)
        // This is shorter than the whole limit, so a request that fails by this limit was certainly not sent.
        .with_connect_timeout(settings.timeout * 4 / 5)
        .with_allow_http(http)
        .with_no_system_certificates(http);
    // Those of the system count, too, but lictor's image has none.
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().filter(|_| !http);
    let roots = roots.filter_map(|root| Certificate::from_der(root).ok());
    Ok(roots.fold(options, ClientOptions::with_root_certificate))
}

/// A conditional write that is sent again after a lost answer reports a conflict with itself.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str, secret: &[(&str, &str)]) -> BucketSettings {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secret = secret.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        BucketSettings {
            url: url.into(),
            region: None,
            endpoint: Some("http://127.0.0.1:9".into()),
            credentials: Credentials::Given(secret),
            timeout: Duration::from_secs(1),
        }
    }

    fn failed(settings: &BucketSettings) -> SettingsError {
        open(settings).err().expect("the settings are not valid")
    }

    const AWS: &[(&str, &str)] = &[("AWS_ACCESS_KEY_ID", "id\n"), ("AWS_SECRET_ACCESS_KEY", "key")];
    const AZURE: &[(&str, &str)] = &[("AZURE_STORAGE_ACCOUNT_NAME", "a"), ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")];
    const GOOGLE: &str = r#"{"private_key": "k", "private_key_id": "i", "client_email": "e", "disable_oauth": true}"#;

    #[test]
    fn an_address_names_bucket_and_prefix() {
        for (url, secret, prefix) in [
            ("s3://bucket", AWS, ""),
            ("s3://bucket/", AWS, ""),
            ("s3://bucket/a/b/", AWS, "a/b"),
            ("az://container/a", AZURE, "a"),
            ("az://container@account.blob.core.windows.net/a", AZURE, "a"),
            ("https://account.blob.core.windows.net/container/a", AZURE, "a"),
            ("gs://bucket/a", &[("key.json", GOOGLE)], "a"),
            ("gs://bucket/a", &[("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE)], "a"),
        ] {
            let bucket = open(&settings(url, secret)).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(bucket.prefix.as_ref(), prefix, "{url}");
            let version = if url.starts_with("gs:") { Version::Generation } else { Version::ETag };
            assert_eq!(bucket.version, version, "{url}");
        }
    }

    #[test]
    fn what_is_no_address_of_a_bucket_is_told_in_one_message() {
        for url in [
            "",
            "bucket",
            "s3:bucket",
            "s3://",
            "file:///tmp",
            "https://example.com/bucket",
            "ftp://bucket/a",
            "s3://bucket/a//b",
        ] {
            let error = failed(&settings(url, AWS));
            assert_eq!(error, SettingsError::Url(url.into()));
        }
        let without_account = failed(&settings("az://container/a", &[("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")]));
        assert!(without_account.to_string().contains("Account must be specified"), "{without_account}");
    }

    #[test]
    fn an_endpoint_is_a_server() {
        for endpoint in ["minio:9000", "ftp://minio", "http://"] {
            let mut settings = settings("s3://bucket", AWS);
            settings.endpoint = Some(endpoint.into());
            assert_eq!(failed(&settings), SettingsError::Endpoint(endpoint.into()));
        }
    }

    #[test]
    fn a_secret_has_known_keys_only() {
        let refused = |secret: &[(&str, &str)]| failed(&settings("s3://bucket", secret));
        assert_eq!(refused(&[]), SettingsError::NoKeys(S3_KEYS));
        for key in ["AWS_ACCESS_KEY", "ALLOW_INVALID_CERTIFICATES", "key.json"] {
            assert_eq!(refused(&[(key, "x")]), SettingsError::UnknownKey(key.into(), S3_KEYS));
        }
        let half = refused(&[("AWS_ACCESS_KEY_ID", "x")]).to_string();
        assert!(half.contains("Missing SecretAccessKey"), "{half}");
    }

    #[test]
    fn no_secret_is_printed() {
        let printed = format!("{:?}", settings("s3://bucket", AWS));
        assert!(printed.contains("AWS_SECRET_ACCESS_KEY") && !printed.contains("107"), "{printed}");
    }
}

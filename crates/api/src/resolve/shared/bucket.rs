//! Reads where a class keeps its locks in a bucket.

use super::common::{SecretId, is_http, secret_id};
use crate::shared::SecretRef;

/// The host of an account in Azure Blob Storage, after the account's name.
const AZURE: &str = ".blob.core.windows.net";

/// A bucket, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPlace {
    /// The bucket, and the prefix of all objects, without a slash at the end: `s3://BUCKET/PREFIX`,
    /// `gs://BUCKET/PREFIX` or `az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX`. The crate `object_store` reads
    /// each of these forms.
    pub url: String,
    /// The region of a bucket in Amazon S3.
    pub region: Option<String>,
    /// The address of a compatible server, without a slash at the end. `None`: the service's own.
    pub endpoint: Option<String>,
    /// The Secret all of whose values are credentials. `None`: the pod has an identity of its own.
    pub secret: Option<SecretId>,
}

/// Reads which bucket it is.
pub(super) fn place(
    url: &str,
    region: Option<&String>,
    endpoint: Option<&String>,
    secret_ref: Option<&SecretRef>,
) -> Result<BucketPlace, &'static str> {
    if !is_url(url) {
        return Err("bucket.url must be s3://BUCKET, gs://BUCKET or az://CONTAINER@ACCOUNT.blob.core.windows.net, \
                    and may have a prefix without '//', '..' or a '/' at its end, for example s3://locks/lictor");
    }
    if region.is_some() && !url.starts_with("s3://") {
        return Err("bucket.region is only for a url that begins with s3://: leave it out");
    }
    if endpoint.is_some_and(|endpoint| !is_http(endpoint)) {
        return Err("bucket.endpoint must be http:// or https://, a host, and if need be a port and a path, for \
                    example https://minio.example:9000");
    }
    Ok(BucketPlace {
        url: url.into(),
        region: region.cloned(),
        endpoint: endpoint.map(|endpoint| endpoint.trim_end_matches('/').into()),
        secret: secret_ref.map(secret_id),
    })
}

fn is_url(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let mut parts = rest.split('/');
    let bucket = parts.next().unwrap_or_default();
    let legal = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.=".contains(c));
    let plain = |text: &str| legal(text) && !text.contains('.');
    let named = match scheme {
        "s3" | "gs" => legal(bucket),
        "az" => bucket
            .split_once('@')
            .is_some_and(|(container, host)| plain(container) && host.strip_suffix(AZURE).is_some_and(plain)),
        _ => false,
    };
    named && !url.contains("..") && parts.all(|part| legal(part) && part != ".")
}

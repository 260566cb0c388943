//! `ElectionClass.spec.bucket`: which bucket of an object storage keeps the locks, and how lictor reaches and uses it.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::objects::ObjectSessions;
use super::shared::{LockPolicy, LostCluster, SecretRef};

/// Keeps the locks in objects in a bucket: in Amazon S3 or a server that is compatible with it, in Google Cloud Storage,
/// or in Azure Blob Storage. All clusters whose classes name the same url elect one leader together.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.region) || self.url.startsWith('s3://')")
        .message("bucket.region is only for a url that begins with s3://: leave it out")
)]
pub struct BucketStore {
    /// The bucket, and the prefix of all objects that lictor keeps there: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or
    /// az://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX. The prefix may be left out. This field must be the same in
    /// all clusters that share the locks, and can't be changed.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^((s3|gs)://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]|az://[a-z0-9][a-z0-9-]{1,61}[a-z0-9]@[a-z0-9]{3,24}[.]blob[.]core[.]windows[.]net)(/[a-zA-Z0-9_.=-]+)*$') && !self.contains('..') && !(self + '/').contains('/./')").message("bucket.url must be s3://BUCKET, gs://BUCKET or az://CONTAINER@ACCOUNT.blob.core.windows.net, and may have a prefix of letters, digits, '/', '_', '-', '.' and '=' without '//', '..' or a '/' at its end, for example s3://locks/lictor"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("bucket.url can't be changed, because running elections have their locks there: make another class"))]
    pub url: String,

    /// The region of a bucket in Amazon S3, for example eu-central-1. Default: AWS_REGION in lictor's environment, or
    /// else us-east-1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9-]+$')").message("bucket.region may have lower-case letters, digits and '-', for example eu-central-1"))]
    pub region: Option<String>,

    /// The address of a server that is compatible with one of the three services, for example
    /// https://minio.example:9000. It begins with http:// or https://. Default: the service's own address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://([a-zA-Z0-9_.-]+|[[][0-9a-fA-F:.]+[]])(:[0-9]{1,5})?(/[a-zA-Z0-9_.-]+)*/?$')").message("bucket.endpoint must be http:// or https://, a host, and if need be a port and a path, for example https://minio.example:9000"))]
    #[x_kube(validation = Rule::new("!isURL(self) || url(self).getPort() == '' || (int(url(self).getPort()) >= 1 && int(url(self).getPort()) <= 65535)").message("the port in bucket.endpoint must be from 1 to 65535, for example https://minio.example:9000"))]
    pub endpoint: Option<String>,

    /// The Secret with the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://,
    /// GOOGLE_SERVICE_ACCOUNT_KEY for gs://, AZURE_STORAGE_ACCOUNT_KEY for az://. lictor reads the Secret again when it
    /// changes. Default: the identity that the cloud gives to lictor's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,

    /// This cluster's name in the records of locks and in status.leader.clusterName. Each class that has the same url
    /// needs its own name, in this cluster and in all others. At most 63 lower-case letters, digits and '-', with a
    /// letter or digit at both ends. This field can't be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("bucket.clusterName may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example west"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("bucket.clusterName can't be changed, because the locks of running elections name it: make another class"))]
    pub cluster_name: String,

    /// The session that holds the locks: an object that lictor renews. All elections of the class share it.
    #[serde(default)]
    pub sessions: ObjectSessions,

    /// Controls what lictor does with its locks while it can reach the bucket but not this cluster's API server.
    #[serde(default)]
    pub when_cluster_is_lost: LostCluster,

    /// Controls what the acting operator does with its locks when SIGTERM stops it. Hold (default): it keeps them for
    /// the replica that acts next, until the session expires. Release: it demotes its leaders and releases the locks at
    /// once so that other clusters can acquire them, even if another replica of this cluster stands by.
    #[serde(default)]
    pub when_operator_stops: LockPolicy,
}

//! How Consul is reached.

use std::time::Duration;

/// How to reach Consul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `http://host:8500` or `https://host:8501`.
    pub address: String,
    /// The datacentre to ask for; none: that of the server that answers.
    pub datacenter: Option<String>,
    /// Consul Enterprise only.
    pub namespace: Option<String>,
    /// Consul Enterprise only.
    pub partition: Option<String>,
    /// The name in the server's certificate, where it is another than the address's: `server.dc1.consul`.
    pub server_name: Option<String>,
    /// Whom to trust, as PEM; none: the system's roots.
    pub ca: Option<Vec<u8>>,
    /// The client's own certificate and key, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The longest that a request may take, but for a blocking query.
    pub timeout: Duration,
}

impl Settings {
    /// Only an address; the rest as it is by default.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            datacenter: None,
            namespace: None,
            partition: None,
            server_name: None,
            ca: None,
            identity: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// Why no client can be made of the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The address is none.
    #[error("'{0}' is no address of Consul: write http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// The name to expect is none.
    #[error("'{0}' is no name that a certificate could have: write a DNS name such as server.dc1.consul")]
    ServerName(String),
    /// The certificates to trust can't be read.
    #[error(
        "the CA certificate for Consul can't be used: {0}; it must be PEM, beginning with -----BEGIN CERTIFICATE-----"
    )]
    Ca(String),
    /// The own certificate or its key can't be read.
    #[error(
        "the client certificate for Consul can't be used: {0}; it must be a PEM certificate with its PEM private key"
    )]
    Identity(String),
    /// The system lacks something, such as root certificates.
    #[error(
        "no client for Consul can be made: {0}; where the system has no certificate authorities, as in lictor's image, \
         name Consul's by caSecretRef"
    )]
    System(String),
}

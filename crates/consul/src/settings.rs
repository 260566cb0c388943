//! The settings for reaching Consul.

use std::time::Duration;

/// The settings of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The address, for example `http://host:8500` or `https://host:8501`.
    pub address: String,
    /// The datacenter. `None` means that of the server that answers.
    pub datacenter: Option<String>,
    /// The namespace in Consul Enterprise.
    pub namespace: Option<String>,
    /// The partition in Consul Enterprise.
    pub partition: Option<String>,
    /// The name in the server's certificate, if it is not the address's host, for example `server.dc1.consul`.
    pub server_name: Option<String>,
    /// The certificate authorities to trust, as PEM. `None` means those of the system.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate and private key, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The time limit of each request. A blocking query may take longer.
    pub timeout: Duration,
}

impl Settings {
    /// Creates settings with an address and the defaults.
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

/// Why no client can be created from the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The address is not valid.
    #[error("'{0}' is not a valid address of Consul: write http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// The server name is not valid.
    #[error("'{0}' is not a valid name for a certificate: write a DNS name such as server.dc1.consul")]
    ServerName(String),
    /// The CA certificates can't be read.
    #[error(
        "the CA certificate for Consul can't be used: {0}; it must be PEM, beginning with -----BEGIN CERTIFICATE-----"
    )]
    Ca(String),
    /// The client certificate or its key can't be read.
    #[error(
        "the client certificate for Consul can't be used: {0}; it must be a PEM certificate with its PEM private key"
    )]
    Identity(String),
    /// The system lacks something, for example root certificates.
    #[error(
        "can't create a client for Consul: {0}; where the system has no certificate authorities, as in lictor's image, \
         name Consul's by caSecretRef"
    )]
    System(String),
}

//! How a subcommand reaches Consul: by the options and variables of Consul's own programs.

mod token;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lictor_consul::{Client, Settings};

use self::token::{follow_token, read_token};

/// Where Consul is, and which rights lictor has there.
#[derive(Debug, Args)]
pub(super) struct ConsulAccess {
    /// The address of Consul, for example http://10.0.0.5:8500. Default: CONSUL_HTTP_ADDR, or else
    /// http://127.0.0.1:8500, the agent of this node.
    #[arg(long, env = "LICTOR_CONSUL", value_name = "ADDRESS")]
    consul: Option<String>,

    /// The file with the token for Consul. lictor reads the file again when it changes. Default: the token in
    /// CONSUL_HTTP_TOKEN, or none.
    #[arg(long, env = "CONSUL_HTTP_TOKEN_FILE", value_name = "FILE")]
    consul_token_file: Option<PathBuf>,

    /// The file with the certificates of the authorities to trust for Consul, in PEM format. Default: those of the
    /// system.
    #[arg(long, env = "CONSUL_CACERT", value_name = "FILE")]
    consul_ca: Option<PathBuf>,

    /// The file with the client certificate for Consul, in PEM format.
    #[arg(long, env = "CONSUL_CLIENT_CERT", value_name = "FILE", requires = "consul_client_key")]
    consul_client_cert: Option<PathBuf>,

    /// The file with the certificate's private key, in PEM format.
    #[arg(long, env = "CONSUL_CLIENT_KEY", value_name = "FILE", requires = "consul_client_cert")]
    consul_client_key: Option<PathBuf>,

    /// The name in Consul's certificate, for example server.dc1.consul. Default: the host in its address.
    #[arg(long, env = "CONSUL_TLS_SERVER_NAME", value_name = "NAME")]
    consul_server_name: Option<String>,

    /// Consul's datacenter. Default: that of the agent that answers.
    #[arg(long, env = "LICTOR_CONSUL_DATACENTER", value_name = "NAME")]
    consul_datacenter: Option<String>,

    /// The namespace in Consul Enterprise.
    #[arg(long, env = "CONSUL_NAMESPACE", value_name = "NAME")]
    consul_namespace: Option<String>,

    /// The partition in Consul Enterprise.
    #[arg(long, env = "CONSUL_PARTITION", value_name = "NAME")]
    consul_partition: Option<String>,
}

impl ConsulAccess {
    /// Makes a client, which picks up each new token from the file. `timeout` bounds each request.
    ///
    /// # Errors
    /// If a file can't be read, or if the given values are invalid.
    pub(super) fn client(&self, timeout: Duration) -> anyhow::Result<Client> {
        let read = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        let identity = match (read(&self.consul_client_cert)?, read(&self.consul_client_key)?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => None,
        };
        let settings = Settings {
            datacenter: self.consul_datacenter.clone(),
            namespace: self.consul_namespace.clone(),
            partition: self.consul_partition.clone(),
            server_name: self.consul_server_name.clone(),
            ca: read(&self.consul_ca)?,
            identity,
            timeout,
            ..Settings::new(address(self.consul.clone(), |name| std::env::var(name).ok()))
        };
        let client = Client::new(&settings)?;
        if let Some(path) = &self.consul_token_file {
            let token = read_token(path)?;
            client.set_token(Some(&token))?;
            lictor_process::spawn(follow_token(client.clone(), path.clone(), token));
        } else {
            let token = std::env::var("CONSUL_HTTP_TOKEN").ok();
            client.set_token(token.as_deref().map(str::trim).filter(|token| !token.is_empty()))?;
        }
        Ok(client)
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("can't read {}", path.display()))
}

/// Returns Consul's address, as Consul's own programs read it: an address without a scheme means HTTP, or HTTPS if
/// `CONSUL_HTTP_SSL` says so.
fn address(given: Option<String>, variable: impl Fn(&str) -> Option<String>) -> String {
    let address = given.or_else(|| variable("CONSUL_HTTP_ADDR")).unwrap_or_else(|| "http://127.0.0.1:8500".to_owned());
    if address.contains("://") {
        return address;
    }
    let encrypted = variable("CONSUL_HTTP_SSL").is_some_and(|value| matches!(value.as_str(), "1" | "true"));
    format!("{}://{address}", if encrypted { "https" } else { "http" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consul_is_found_as_its_own_programs_find_it() {
        let nothing = |_: &str| None;
        assert_eq!(address(None, nothing), "http://127.0.0.1:8500");
        assert_eq!(address(Some("http://a:1".into()), nothing), "http://a:1");
        let of_the_environment = |name: &str| match name {
            "CONSUL_HTTP_ADDR" => Some("b:2".to_owned()),
            "CONSUL_HTTP_SSL" => Some("true".to_owned()),
            _ => None,
        };
        assert_eq!(address(None, of_the_environment), "https://b:2");
        assert_eq!(address(Some("http://a:1".into()), of_the_environment), "http://a:1");
    }
}

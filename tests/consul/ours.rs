//! The program's own client of these servers.

use lictor_consul::{Client, Settings};
use lictor_testing::consul::{Consul, Server};

/// Returns the settings for a server.
pub fn settings(consul: &Consul, server: &Server) -> Settings {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file =
        |name: &str| consul.variable(name).map(|path| std::fs::read(path).expect("a file of the CA can be read"));
    Settings {
        ca: file("CACERT"),
        identity: file("CLIENT_CERT").zip(file("CLIENT_KEY")),
        ..Settings::new(server.address())
    }
}

/// Makes a client of the first server, with all rights.
pub fn client(consul: &Consul) -> Client {
    client_of(consul, &settings(consul, consul.server(1)))
}

/// Makes a client with these settings and all rights.
pub fn client_of(consul: &Consul, settings: &Settings) -> Client {
    let client = Client::new(settings).expect("a client can be made");
    client.set_token(consul.variable("HTTP_TOKEN")).expect("a token");
    client
}

//! Finds the leader's address in the lock, and calls the leader. It takes no part in the election, and needs only the right to read.
//!
//! ```text
//! client lease NAMESPACE/NAME
//! client consul ADDRESS KEY
//! ```
//!
//! The address is a hint: the leader may have ended since. So the client asks again when the call fails, or the answer is not a leader's.

use std::error::Error;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt};
use lictor_locks::Content;
use lictor_locks::lease::Holder;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // For the clients of Kubernetes and Consul.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let address = match arguments[..] {
        ["lease", lease] => {
            let (namespace, name) = lease.split_once('/').ok_or("the Lease is NAMESPACE/NAME")?;
            let leases: Api<Lease> = Api::namespaced(kube::Client::try_default().await?, namespace);
            in_lease(&leases.get(name).await?)
        }
        ["consul", address, key] => {
            let client = lictor_consul::Client::new(&lictor_consul::Settings::new(address))?;
            client.read_key(key).await?.and_then(|entry| in_key(&entry))
        }
        _ => return Err("write: client lease NAMESPACE/NAME, or client consul ADDRESS KEY".into()),
    };
    let address = address.ok_or("no leader advertises an address")?;
    let mut answer = String::new();
    TcpStream::connect(&address).await?.read_to_string(&mut answer).await?;
    print!("{answer}");
    Ok(())
}

/// The annotation counts for the holder that wrote it: a holder of another kind leaves it as it was.
fn in_lease(lease: &Lease) -> Option<String> {
    let holder: Holder = serde_json::from_str(lease.annotations().get("lictor.dev/holder")?).ok()?;
    let identity = lease.spec.as_ref()?.holder_identity.as_ref()?;
    (holder.identity == *identity).then_some(holder.address?.to_string())
}

/// A key without a session has no holder, whatever its value says.
fn in_key(entry: &lictor_consul::Entry) -> Option<String> {
    entry.session.as_ref()?;
    let content: Content = serde_json::from_slice(&entry.value).ok()?;
    content.record.holder?.ip
}

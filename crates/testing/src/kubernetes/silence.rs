//! A webhook that hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

/// Starts a server that accepts connections and never answers. Returns its port, and the number of connections so far.
pub async fn silent_server() -> (u16, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    (port, taken)
}

/// Returns a webhook at such a server: each update of a pod in this namespace with these labels hangs.
pub fn hanging_webhook(namespace: &str, port: u16, labels: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": "hangs.example.com", "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "objectSelector": {"matchLabels": labels},
            "failurePolicy": "Fail", "timeoutSeconds": 30, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    })
}

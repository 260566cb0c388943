//! How the history reads: a line for each request that was carried out, and for each change that nobody asked for. What does not
//! matter for who leads, is left out.

use serde_json::Value;

use crate::servers::api::Change;

/// A change of an object: only what was not asked for by a request, for that has a line of its own.
pub fn change(cluster: &str, change: &Change) -> Option<String> {
    let object = change.after.as_ref().or(change.before.as_ref())?;
    if !change.by_hand {
        return None;
    }
    let metadata = &object["metadata"];
    let what = match (&change.after, change.resource.as_str()) {
        (None, _) => "is gone".into(),
        (Some(_), "pods") => {
            let ready = object["status"]["conditions"][0]["status"] == "True";
            let mut text = format!("at {}, {}", change.version, if ready { "ready" } else { "not ready" });
            if metadata["deletionTimestamp"].is_string() {
                text += ", being deleted";
            }
            text + " " + &pairs(&metadata["labels"])
        }
        (Some(_), "deployments") => {
            let (spec, status) = (&object["spec"]["replicas"], &object["status"]["replicas"]);
            format!("at {}: replicas {spec}, of which there are {status}", change.version)
        }
        (Some(_), _) => format!("at {} {}", change.version, object["spec"]),
    };
    Some(format!("{cluster}: {} {} {what}", change.resource, word(&metadata["name"])))
}

/// A request that was carried out.
pub fn request(who: &str, method: &str, path: &str, body: &[u8], status: u16) -> Option<String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(object) = path.strip_prefix("bucket/") {
        return (method != "GET").then(|| format!("{who}: bucket: {object}: {} -> {status}", object_in_bucket(&body)));
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let name = parts.last().copied().unwrap_or_default();
    if parts.contains(&"switchovers") && name == "status" {
        let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let told: Vec<String> = conditions
            .iter()
            .map(|c| format!("{} {} {}", word(&c["type"]), word(&c["status"]), word(&c["reason"])))
            .collect();
        return Some(format!("{who}: switchover {}: {} ({status})", parts[parts.len() - 2], told.join(", ")));
    }
    if method == "GET" || name == "status" || parts.contains(&"events") {
        return None;
    }
    let metadata = &body["metadata"];
    let at = metadata["resourceVersion"].as_str().map(|version| format!(" at {version}")).unwrap_or_default();
    let asked = match parts.iter().rev().nth(usize::from(method != "POST")).copied() {
        Some("pods") => {
            let term = word(&metadata["annotations"]["lictor.dev/term"]);
            format!("pod {name}{at}: {}, term {term}", pairs(&metadata["labels"]))
        }
        Some("leases") => {
            let spec = &body["spec"];
            let name = metadata["name"].as_str().unwrap_or(name);
            format!("Lease {name}{at}: {} {}", word(&spec["holderIdentity"]), spec["leaseTransitions"])
        }
        Some("deployments") => {
            let enabled = word(&metadata["annotations"]["lictor.dev/enabled"]);
            format!("Deployment {name}{at}: replicas {}, enabled {enabled}", body["spec"]["replicas"])
        }
        Some("switchovers") => format!("switchover {name}{at}"),
        Some("leaderelections") => format!("election {name}{at}: finalizers {}", metadata["finalizers"]),
        _ if path == "txn" => {
            let operations: Vec<String> = body.as_array().into_iter().flatten().map(operation).collect();
            format!("Consul: {}", operations.join(", "))
        }
        _ if path.starts_with("session/") => format!("Consul: {path} {}", word(&body["Name"])),
        _ if body["endpoints"].is_array() => format!("{method} {path}: {}", body["endpoints"]),
        _ => format!("{method} {path}"),
    };
    Some(format!("{who}: {} {asked} -> {status}", method.to_lowercase()))
}

/// What is written there.
fn object_in_bucket(object: &Value) -> String {
    if object["renewals"].is_u64() {
        let end = if object["ended"] == true { ", ended" } else { "" };
        return format!("{} {}{end}", word(&object["id"]), object["renewals"]);
    }
    let (value, session) = (&object["value"], &object["session"]["id"]);
    format!(
        "at {} {}, held by {}, {} in term {}",
        object["version"],
        word(&value["cluster"]),
        word(session),
        word(&value["holder"]["pod"]),
        value["term"]
    )
}

fn operation(operation: &Value) -> String {
    let kv = &operation["KV"];
    match kv["Verb"].as_str() {
        Some("check-index") => format!("if at {}", kv["Index"]),
        Some("check-not-exists") => "if there is none".into(),
        Some(verb) => format!("{verb} {} {}", word(&kv["Key"]), word(&kv["Session"])),
        None => format!("{} service", word(&operation["Service"]["Verb"])),
    }
}

fn pairs(pairs: &Value) -> String {
    let pairs = pairs.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", word(value)));
    pairs.collect::<Vec<_>>().join(" ")
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

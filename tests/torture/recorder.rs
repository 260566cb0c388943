//! Records everything. It shares no code with the operator, and reads what the servers themselves keep: etcd's own watch, which
//! survives restarts without a gap, and blocking queries at Consul.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use lictor_core::LEADER_FINALIZER;
use lictor_testing::consul::{Api, Consul};
use serde_json::{Value, json};

use super::faults::CLUSTERS;
use super::picture::Picture;
use super::record::{COMPLETE, Line, Log, PodSeen, SliceSeen, SwitchoverSeen, What};

/// The prefix of all keys in Consul.
pub const PREFIX: &str = "torture/";

/// The growing record, with the state after its last line.
pub struct Book {
    inner: Mutex<(Log, Picture)>,
    failure: Mutex<Option<String>>,
}

impl Book {
    pub fn create(path: &Path) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new((Log::create(path), Picture::default())), failure: Mutex::default() })
    }

    /// Adds a line.
    pub fn write(&self, what: What) -> Line {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let line = inner.0.write(what);
        inner.1.apply(&line);
        line
    }

    /// Reads the present state.
    pub fn look<T>(&self, at: impl FnOnce(&Picture) -> T) -> T {
        at(&self.inner.lock().unwrap_or_else(PoisonError::into_inner).1)
    }

    /// Writes all lines so far to the file.
    pub fn flush(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).0.flush();
    }

    /// Returns why the record may have a gap, if it may.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, why: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// Records all revisions of etcd from the first one on, until it is cancelled.
pub async fn watch_etcd(book: Arc<Book>, etcd: String) {
    let api = Api::at(&etcd);
    let (mut from, mut said) = (1_u64, BTreeMap::new());
    let encode = |key: &str| BASE64.encode(key);
    loop {
        let range = json!({"key": encode("/registry/"), "range_end": encode("/registry0"), "start_revision": from});
        let request = api.request(reqwest::Method::POST, "/v3/watch").timeout(Duration::from_secs(86_400));
        if let Ok(mut answer) = request.body(json!({"create_request": range}).to_string()).send().await {
            let mut buffer = Vec::new();
            while let Ok(Some(chunk)) = answer.chunk().await {
                let mut rest = chunk.as_ref();
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    buffer.extend_from_slice(&rest[..end]);
                    rest = &rest[end + 1..];
                    let message: Value = serde_json::from_slice(&buffer).unwrap_or_default();
                    buffer.clear();
                    if !message.is_object() {
                        return book.fail("etcd's watch says what is no JSON".into());
                    }
                    if let Err(why) = take(&book, &message["result"], &mut from, &mut said) {
                        return book.fail(format!("{why}: {message}"));
                    }
                }
                buffer.extend_from_slice(rest);
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Takes an answer of etcd's watch. `from` is the first revision that was not seen yet.
fn take(book: &Book, result: &Value, from: &mut u64, said: &mut BTreeMap<String, String>) -> Result<(), String> {
    if number(&result["compact_revision"]).is_some_and(|revision| revision > 0) {
        return Err("revisions are gone that were not seen".into());
    }
    let mut last = *from;
    for event in result["events"].as_array().into_iter().flatten() {
        let decode = |value: &Value| BASE64.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        let revision = number(&event["kv"]["mod_revision"]).ok_or("an event without a revision")?;
        if revision < *from {
            return Err(format!("revision {revision} comes again, after {from}"));
        }
        last = last.max(revision + 1);
        let key = String::from_utf8_lossy(&decode(&event["kv"]["key"])).into_owned();
        let object = match event["type"].as_str() {
            Some("DELETE") => None,
            _ => Some(serde_json::from_slice(&decode(&event["kv"]["value"])).unwrap_or(Value::Null)),
        };
        let Some((what, once)) = seen(book, &key, revision, object.as_ref()) else { continue };
        // Of some objects only a part matters, which seldom changes.
        if once.is_none_or(|state| said.insert(key, state.clone()) != Some(state)) {
            book.write(what);
        }
    }
    *from = last;
    Ok(())
}

/// Returns the content of a line about a changed object in etcd, if there is one, and what to compare where only changes count.
fn seen(book: &Book, key: &str, version: u64, object: Option<&Value>) -> Option<(What, Option<String>)> {
    let path: Vec<&str> = key.strip_prefix("/registry/")?.split('/').collect();
    let own = |namespace: &str| CLUSTERS.contains(&namespace);
    match (path.as_slice(), object) {
        (["pods", namespace, name], object) if own(namespace) => {
            let before = || book.look(|picture| picture.pods.get(&((*namespace).into(), (*name).into())).cloned());
            let pod = object.map_or_else(
                || PodSeen { version, deleted: true, ..before().unwrap_or_default() },
                |object| pod(namespace, name, version, object),
            );
            Some((What::Pod(pod), None))
        }
        (["minions", name], Some(node)) => {
            let cordoned = node["spec"]["unschedulable"] == true;
            Some((What::Node { version, name: (*name).into(), cordoned }, Some(cordoned.to_string())))
        }
        (["deployments", namespace, name], Some(workload)) if own(namespace) => {
            let enabled = workload["metadata"]["annotations"]["lictor.dev/enabled"] == "true";
            let (namespace, name) = ((*namespace).into(), (*name).into());
            Some((What::Workload { version, namespace, name, enabled }, Some(enabled.to_string())))
        }
        (["endpointslices", namespace, name], object) if own(namespace) => {
            let before = || book.look(|picture| picture.slices.get(&((*namespace).into(), (*name).into())).cloned());
            let slice = object.map_or_else(
                || SliceSeen { version, deleted: true, ..before().unwrap_or_default() },
                |object| slice(namespace, name, version, object),
            );
            Some((What::Slice(slice), None))
        }
        (["lictor.dev", "switchovers", namespace, name], Some(object)) if own(namespace) => {
            let seen = switchover(namespace, name, version, object);
            let state = format!("{:?} {:?} {:?} {:?}", seen.uid, seen.result, seen.term, seen.to);
            Some((What::Switchover(seen), Some(state)))
        }
        // The others are the operators' own.
        (["leases", namespace, name], Some(lease)) if own(namespace) && !name.starts_with("lease") => {
            let replica = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?.to_owned();
            Some((What::Acts { cluster: (*namespace).into(), replica: replica.clone() }, Some(replica)))
        }
        (["leases", namespace, name], object) if own(namespace) && name.starts_with("lease") => {
            let spec = object.map_or(&Value::Null, |object| &object["spec"]);
            let what = What::Lock {
                version,
                key: format!("leases/{namespace}/{name}"),
                cluster: object.is_some().then(|| (*namespace).into()),
                holder: spec["holderIdentity"].as_str().map(str::to_owned),
                term: spec["leaseTransitions"].as_i64(),
                switchover: object
                    .and_then(|object| object["metadata"]["annotations"]["lictor.dev/record"].as_str())
                    .and_then(|record| carried_out(&serde_json::from_str(record).unwrap_or_default())),
            };
            Some((what, None))
        }
        _ => None,
    }
}

fn pod(namespace: &str, name: &str, version: u64, object: &Value) -> PodSeen {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    let map = |value: &Value| -> BTreeMap<String, String> { serde_json::from_value(value.clone()).unwrap_or_default() };
    let ours = |key: &str| key.starts_with("lictor.dev/") || key.starts_with("torture/");
    let condition = |type_: &str| {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.into_iter().any(|condition| condition["type"] == type_ && condition["status"] == "True")
    };
    let finished = ["Succeeded", "Failed"].iter().any(|phase| status["phase"] == *phase);
    let holds = metadata["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| *one == LEADER_FINALIZER));
    PodSeen {
        version,
        cluster: namespace.into(),
        name: name.into(),
        uid: metadata["uid"].as_str().unwrap_or_default().into(),
        labels: map(&metadata["labels"]),
        annotations: map(&metadata["annotations"]).into_iter().filter(|(key, _)| ours(key)).collect(),
        node: object["spec"]["nodeName"].as_str().map(str::to_owned),
        ready: condition("Ready"),
        executes: !finished && holds && metadata["annotations"][LEADER_FINALIZER] == metadata["uid"],
        leaving: finished || metadata["deletionTimestamp"].is_string() || condition("DisruptionTarget"),
        deleted: false,
    }
}

fn slice(namespace: &str, name: &str, version: u64, object: &Value) -> SliceSeen {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (metadata, endpoints) = (&object["metadata"], object["endpoints"].as_array().cloned().unwrap_or_default());
    let addresses = endpoints.iter().flat_map(|endpoint| {
        let pod = text(&endpoint["targetRef"]["uid"]);
        let all = endpoint["addresses"].as_array().cloned().unwrap_or_default();
        all.into_iter().map(move |address| (text(&address), pod.clone()))
    });
    SliceSeen {
        version,
        cluster: namespace.into(),
        name: name.into(),
        service: text(&metadata["labels"]["kubernetes.io/service-name"]),
        family: text(&object["addressType"]),
        term: metadata["annotations"]["lictor.dev/term"].as_str().and_then(|term| term.parse().ok()),
        addresses: addresses.collect(),
        deleted: false,
    }
}

fn switchover(namespace: &str, name: &str, version: u64, object: &Value) -> SwitchoverSeen {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (spec, status) = (&object["spec"], &object["status"]);
    let holds = |type_: &str| {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.into_iter().find(|condition| condition["type"] == type_ && condition["status"] == "True")
    };
    let failed = holds("Failed").and_then(|failed| text(&failed["reason"]));
    SwitchoverSeen {
        version,
        cluster: namespace.into(),
        name: name.into(),
        uid: text(&object["metadata"]["uid"]).unwrap_or_default(),
        group: text(&spec["electionName"]).unwrap_or_default(),
        from_term: spec["fromTerm"].as_i64().unwrap_or_default(),
        to_cluster: text(&spec["toClusterName"]),
        result: holds("Complete").map(|_| COMPLETE.to_owned()).or(failed),
        term: status["term"].as_i64(),
        to: text(&status["to"]["podUID"]),
    }
}

/// The Switchover that a record carries out. One that is given up has neither pod nor cluster in it.
fn carried_out(record: &Value) -> Option<String> {
    let mark = &record["switchover"];
    let moves = mark["to"].is_string() || mark["cluster"].is_string();
    mark["id"].as_str().filter(|_| moves).map(str::to_owned)
}

/// Reads a number. etcd writes large numbers as text.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Records each state of the locks in Consul, until it is cancelled. It misses a state that lasts for less time than an answer
/// takes, because Consul keeps no history.
pub async fn watch_consul(book: Arc<Book>, consul: &'static Consul) {
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    let mut index = 0;
    for server in consul.servers().iter().cycle() {
        let api = server.api();
        loop {
            let path = format!("/v1/kv/{PREFIX}?recurse=true&index={index}&wait=3s");
            let request = api.request(reqwest::Method::GET, &path);
            let Ok(answer) = Api::send(request).await else { break };
            let (200 | 404, Some(now)) = (answer.status, answer.index) else { break };
            index = now;
            let entries = answer.json();
            let mut gone: Vec<String> = known.keys().cloned().collect();
            for entry in entries.as_array().into_iter().flatten() {
                let key = entry["Key"].as_str().unwrap_or_default().to_owned();
                gone.retain(|name| *name != key);
                let version = entry["ModifyIndex"].as_u64().unwrap_or_default();
                if known.insert(key.clone(), version) != Some(version) {
                    book.write(lock(key, version, entry));
                }
            }
            for key in gone {
                known.remove(&key);
                book.write(lock(key, index, &Value::Null));
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Records which sessions the operators have in Consul, until it is cancelled.
pub async fn watch_sessions(book: Arc<Book>, consul: &'static Consul) {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut index = 0;
    for server in consul.servers().iter().cycle() {
        let api = server.api();
        loop {
            let path = format!("/v1/session/list?index={index}&wait=3s");
            let request = api.request(reqwest::Method::GET, &path);
            let Ok(answer) = Api::send(request).await else { break };
            let (200, Some(now)) = (answer.status, answer.index) else { break };
            if now < index {
                break;
            }
            index = now;
            let mut present = BTreeMap::new();
            for session in answer.json().as_array().into_iter().flatten() {
                let [id, name] = ["ID", "Name"].map(|key| session[key].as_str().unwrap_or_default().to_owned());
                if let Some(cluster) = name.strip_prefix("lictor/").and_then(|rest| rest.split('/').next()) {
                    present.insert(id, cluster.to_owned());
                }
            }
            let differs = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>, lives: bool| {
                for (id, cluster) in one.iter().filter(|(id, _)| !other.contains_key(*id)) {
                    book.write(What::Session { id: id.clone(), cluster: cluster.clone(), lives });
                }
            };
            differs(&known, &present, false);
            differs(&present, &known, true);
            known = present;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn lock(key: String, version: u64, entry: &Value) -> What {
    let value = BASE64.decode(entry["Value"].as_str().unwrap_or_default()).unwrap_or_default();
    let record: Value = serde_json::from_slice(&value).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let held = entry["Session"].is_string();
    What::Lock {
        version,
        key,
        cluster: text(&record["cluster"]).filter(|_| held),
        holder: text(&record["holder"]["pod"]),
        term: record["term"].as_i64(),
        switchover: carried_out(&record),
    }
}

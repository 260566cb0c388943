//! A simulated API server: objects with versions, lists and watches of them, merge patches with preconditions, finalizers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::watch;

/// What is served: resource, group and version, kind.
const KINDS: [(&str, &str, &str); 16] = [
    ("pods", "v1", "Pod"),
    ("nodes", "v1", "Node"),
    ("secrets", "v1", "Secret"),
    ("leases", "coordination.k8s.io/v1", "Lease"),
    ("leaderelections", "lictor.dev/v1alpha1", "LeaderElection"),
    ("electionclasses", "lictor.dev/v1alpha1", "ElectionClass"),
    ("switchovers", "lictor.dev/v1alpha1", "Switchover"),
    ("services", "v1", "Service"),
    ("endpoints", "v1", "Endpoints"),
    ("endpointslices", "discovery.k8s.io/v1", "EndpointSlice"),
    ("events", "events.k8s.io/v1", "Event"),
    ("cronjobs", "batch/v1", "CronJob"),
    ("jobs", "batch/v1", "Job"),
    ("deployments", "apps/v1", "Deployment"),
    ("statefulsets", "apps/v1", "StatefulSet"),
    ("replicasets", "apps/v1", "ReplicaSet"),
];

/// Whose status is written by itself.
const WITH_STATUS: [&str; 6] = ["pods", "leaderelections", "electionclasses", "switchovers", "deployments", "cronjobs"];

/// Resource, namespace, name.
type Name = (String, String, String);

/// An object, which never changes: a write puts another one in its place.
pub type Object = Arc<Value>;

/// A request, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    /// A patch by server-side apply, with force.
    pub applies: bool,
    pub body: Vec<u8>,
}

impl Request {
    /// What RBAC calls its verb, and the resource.
    pub fn about(&self) -> Option<(&'static str, String)> {
        let target = Target::of(&self.path)?;
        let verb = match (self.method.as_str(), &target.name) {
            ("GET", None) if self.query.contains_key("watch") => "watch",
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("POST", _) => "create",
            ("PATCH", _) => "patch",
            ("PUT", _) => "update",
            _ => "delete",
        };
        Some((verb, target.resource))
    }
}

/// An answer.
pub enum Answer {
    Whole(u16, Object),
    /// Events, one after the other, for at most so many seconds.
    Watch(Box<Watch>, u64),
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub resource: String,
    pub before: Option<Object>,
    pub after: Option<Object>,
    /// Not by a request.
    pub by_hand: bool,
}

type Observer = Box<dyn FnMut(&Change) + Send>;

/// The server.
pub struct ApiServer {
    state: Mutex<State>,
    newest: watch::Sender<u64>,
}

struct State {
    version: u64,
    uids: u64,
    name: String,
    objects: BTreeMap<Name, Object>,
    /// What was applied last: there is one who applies.
    applied: BTreeMap<Name, Value>,
    changes: Vec<Change>,
    /// Changes up to this version are forgotten.
    compacted: u64,
    observer: Option<Observer>,
}

impl ApiServer {
    /// An empty one; uids begin with its name.
    pub fn new(name: &str) -> Arc<Self> {
        let state = State {
            version: 1,
            uids: 0,
            name: name.into(),
            objects: BTreeMap::new(),
            applied: BTreeMap::new(),
            changes: Vec::new(),
            compacted: 0,
            observer: None,
        };
        Arc::new(Self { state: Mutex::new(state), newest: watch::channel(1).0 })
    }

    /// Calls this at each change, in their order.
    pub fn observe(&self, observer: impl FnMut(&Change) + Send + 'static) {
        self.lock().observer = Some(Box::new(observer));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    // What users, kubelets and controllers do

    /// Makes an object, or changes it as a person would.
    pub fn edit(&self, resource: &str, namespace: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.lock();
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        let before = state.objects.get(&key).cloned();
        let mut object =
            before.as_deref().cloned().unwrap_or_else(|| json!({"metadata": {"name": name, "namespace": namespace}}));
        edit(&mut object);
        if before.as_deref() != Some(&object) {
            state.put(&key, object, true);
        }
        self.tell(state);
    }

    /// Removes an object at once, whatever its finalizers.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let mut state = self.lock();
        state.take_away(&(resource.to_owned(), namespace.to_owned(), name.to_owned()), true);
        self.tell(state);
    }

    /// Deletes an object as a user does: it waits for its finalizers.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        let mut state = self.lock();
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        drop(state.delete(&key, |_| None));
        self.tell(state);
    }

    /// The objects of a resource.
    pub fn all(&self, resource: &str) -> Vec<Object> {
        self.lock().of(resource).cloned().collect()
    }

    /// Changes with every write.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// An object.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Object> {
        self.lock().objects.get(&(resource.into(), namespace.into(), name.into())).cloned()
    }

    /// Forgets what happened before: watches from an earlier version end.
    pub fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.version;
        state.changes.clear();
        self.tell(state);
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        let version = state.version;
        drop(state);
        self.newest.send_replace(version);
    }

    // Requests

    /// Carries out a request.
    pub fn handle(self: &Arc<Self>, request: &Request) -> Answer {
        let Some(target) = Target::of(&request.path) else { return refused(404, "NotFound", "no such path") };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let mut state = self.lock();
        let answer = match (request.method.as_str(), &target.name) {
            ("GET", None) if request.query.contains_key("watch") => return self.watch(&target, request),
            ("GET", None) => state.list(&target, request),
            ("GET", Some(_)) => match state.objects.get(&target.key()) {
                Some(object) => Answer::Whole(200, object.clone()),
                None => target.missing(),
            },
            ("POST", None) => state.create(&target, body),
            ("PATCH", Some(_)) => state.patch(&target, &body, request.applies),
            ("PUT", Some(_)) => state.replace(&target, body),
            // An eviction, which no budget speaks against.
            ("POST", Some(_)) if target.resource == "pods" => state
                .delete(&target.key(), |present| {
                    precondition(&target, present, &body["deleteOptions"]["preconditions"])
                })
                .unwrap_or_else(|| target.missing()),
            ("DELETE", Some(_)) => state
                .delete(&target.key(), |present| precondition(&target, present, &body["preconditions"]))
                .unwrap_or_else(|| target.missing()),
            _ => refused(405, "MethodNotAllowed", "not served"),
        };
        self.tell(state);
        answer
    }

    fn watch(self: &Arc<Self>, target: &Target, request: &Request) -> Answer {
        let number = |name: &str| request.query.get(name).and_then(|text| text.parse::<u64>().ok());
        let watch = Watch {
            server: self.clone(),
            newest: self.newest.subscribe(),
            filter: Filter::of(target, request),
            version: number("resourceVersion").unwrap_or_default(),
            over: false,
        };
        Answer::Watch(Box::new(watch), number("timeoutSeconds").unwrap_or(300))
    }
}

/// A watch: what has changed since a version.
pub struct Watch {
    server: Arc<ApiServer>,
    newest: watch::Receiver<u64>,
    filter: Filter,
    version: u64,
    over: bool,
}

impl Watch {
    /// What is watched.
    pub fn resource(&self) -> &str {
        &self.filter.resource
    }

    /// The next events, of which there is at least one; none at the end.
    pub async fn next(&mut self) -> Option<Vec<String>> {
        loop {
            if self.over {
                return None;
            }
            self.newest.borrow_and_update();
            let events = self.look();
            if !events.is_empty() {
                return Some(events);
            }
            self.newest.changed().await.ok()?;
        }
    }

    fn look(&mut self) -> Vec<String> {
        let state = self.server.lock();
        if self.version < state.compacted {
            self.over = true;
            let text = format!("too old resource version: {} ({})", self.version, state.compacted);
            return vec![line("ERROR", &status(410, "Expired", &text))];
        }
        let seen = state.changes.partition_point(|change| change.version <= self.version);
        let events = state.changes[seen..].iter().filter_map(|change| self.filter.event(change)).collect();
        self.version = state.version;
        events
    }
}

struct Filter {
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
    labels: Vec<Term>,
}

/// A part of a label selector.
enum Term {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Missing(String),
}

impl Filter {
    fn of(target: &Target, request: &Request) -> Self {
        let name = request.query.get("fieldSelector").and_then(|text| text.strip_prefix("metadata.name="));
        Self {
            resource: target.resource.clone(),
            namespace: target.namespace.clone(),
            name: name.map(str::to_owned),
            labels: request.query.get("labelSelector").map(|text| terms(text)).unwrap_or_default(),
        }
    }

    fn matches(&self, object: &Value) -> bool {
        let field = |name: &str| object["metadata"][name].as_str();
        self.namespace.as_ref().is_none_or(|namespace| field("namespace") == Some(namespace))
            && self.name.as_ref().is_none_or(|name| field("name") == Some(name))
            && self.labels.iter().all(|term| {
                let label = |key: &String| object["metadata"]["labels"][key].as_str();
                match term {
                    Term::In(key, values) => label(key).is_some_and(|value| values.contains(value)),
                    Term::NotIn(key, values) => label(key).is_none_or(|value| !values.contains(value)),
                    Term::Exists(key) => label(key).is_some(),
                    Term::Missing(key) => label(key).is_none(),
                }
            })
    }

    /// What a watch tells of a change.
    fn event(&self, change: &Change) -> Option<String> {
        if change.resource != self.resource {
            return None;
        }
        let seen = |object: &Option<Object>| object.clone().filter(|object| self.matches(object));
        match (seen(&change.before), seen(&change.after)) {
            (None, None) => None,
            (None, Some(after)) => Some(line("ADDED", &after)),
            (Some(_), Some(after)) => Some(line("MODIFIED", &after)),
            (Some(before), None) => {
                let mut before = Value::clone(&before);
                before["metadata"]["resourceVersion"] = json!(change.version.to_string());
                Some(line("DELETED", &before))
            }
        }
    }
}

/// An event as a watch brings it. The real server writes the type first, too.
fn line(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn terms(selector: &str) -> Vec<Term> {
    // Commas inside of parentheses separate values.
    let (mut terms, mut depth, mut term) = (Vec::new(), 0, String::new());
    for c in selector.chars().chain([',']) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(std::mem::take(&mut term));
                continue;
            }
            _ => {}
        }
        term.push(c);
    }
    let values = |text: &str| text.trim_matches(['(', ')', ' ']).split(',').map(str::to_owned).collect();
    let read = |term: &String| match term.trim() {
        text if text.contains(" notin ") => {
            let (key, list) = text.split_once(" notin ").unwrap();
            Term::NotIn(key.into(), values(list))
        }
        text if text.contains(" in ") => {
            let (key, list) = text.split_once(" in ").unwrap();
            Term::In(key.into(), values(list))
        }
        text if text.starts_with('!') => Term::Missing(text[1..].into()),
        text => match text.split_once('=') {
            Some((key, value)) => Term::In(key.into(), [value.trim_start_matches('=').to_owned()].into()),
            None => Term::Exists(text.into()),
        },
    };
    terms.iter().filter(|term| !term.is_empty()).map(read).collect()
}

/// What a path names.
struct Target {
    resource: String,
    version: &'static str,
    kind: &'static str,
    namespace: Option<String>,
    name: Option<String>,
    status: bool,
}

impl Target {
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').collect::<Vec<_>>();
        parts.drain(..if parts.first() == Some(&"api") { 2 } else { 3 }.min(parts.len()));
        let namespace = (parts.first() == Some(&"namespaces") && parts.len() > 2).then(|| parts[1].to_owned());
        if namespace.is_some() {
            parts.drain(..2);
        }
        let resource = *parts.first()?;
        let (_, version, kind) = KINDS.into_iter().find(|(known, ..)| *known == resource)?;
        let name = parts.get(1).map(|name| (*name).to_owned());
        let status = parts.get(2) == Some(&"status");
        Some(Self { resource: resource.into(), version, kind, namespace, name, status })
    }

    fn key(&self) -> Name {
        let namespace = self.namespace.clone().unwrap_or_default();
        (self.resource.clone(), namespace, self.name.clone().unwrap_or_default())
    }

    fn missing(&self) -> Answer {
        let name = self.name.as_deref().unwrap_or_default();
        refused(404, "NotFound", &format!("{} \"{name}\" not found", self.resource))
    }
}

impl State {
    /// The objects of a resource.
    fn of<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = &'a Object> {
        let first = (resource.to_owned(), String::new(), String::new());
        self.objects.range(first..).take_while(move |((of, ..), _)| of == resource).map(|(_, object)| object)
    }

    fn put(&mut self, key: &Name, mut object: Value, by_hand: bool) -> Object {
        self.version += 1;
        let before = self.objects.get(key).cloned();
        let (_, version, kind) = KINDS.into_iter().find(|(known, ..)| *known == key.0).unwrap();
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        if before.is_none() {
            self.uids += 1;
            object["metadata"]["uid"] = json!(format!("{}-{}-{}", self.name, key.2, self.uids));
            object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
            object["metadata"]["generation"] = json!(1);
        } else if before.as_ref().is_some_and(|before| before["spec"] != object["spec"]) {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
            object["metadata"]["generation"] = json!(generation + 1);
        }
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        self.objects.insert(key.clone(), object.clone());
        self.changed(key, before, Some(object.clone()), by_hand);
        object
    }

    fn take_away(&mut self, key: &Name, by_hand: bool) -> Option<Object> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        self.changed(key, Some(before.clone()), None, by_hand);
        Some(before)
    }

    fn changed(&mut self, key: &Name, before: Option<Object>, after: Option<Object>, by_hand: bool) {
        let change = Change { version: self.version, resource: key.0.clone(), before, after, by_hand };
        if let Some(observer) = &mut self.observer {
            observer(&change);
        }
        self.changes.push(change);
    }

    fn list(&self, target: &Target, request: &Request) -> Answer {
        let filter = Filter::of(target, request);
        let items = self.of(&target.resource).filter(|object| filter.matches(object));
        let items: Vec<Value> = items.map(|object| Value::clone(object)).collect();
        let mut list = json!({
            "apiVersion": target.version, "kind": format!("{}List", target.kind),
            "metadata": {"resourceVersion": self.version.to_string()},
        });
        // The macro would copy them again.
        list["items"] = items.into();
        Answer::Whole(200, list.into())
    }

    fn create(&mut self, target: &Target, mut body: Value) -> Answer {
        let mut key = target.key();
        let prefix = body["metadata"]["generateName"].as_str().unwrap_or("unnamed-");
        let name = body["metadata"]["name"].as_str().map(str::to_owned);
        key.2 = name.unwrap_or_else(|| format!("{prefix}{}", self.version));
        body["metadata"]["name"] = json!(key.2);
        body["metadata"]["namespace"] = json!(key.1);
        if self.objects.contains_key(&key) {
            let text = format!("{} \"{}\" already exists", key.0, key.2);
            return refused(409, "AlreadyExists", &text);
        }
        // Nobody reads Events here.
        if key.0 == "events" {
            Answer::Whole(201, body.into())
        } else {
            Answer::Whole(201, self.put(&key, body, false))
        }
    }

    fn patch(&mut self, target: &Target, patch: &Value, applies: bool) -> Answer {
        let key = target.key();
        let Some(present) = self.objects.get(&key).cloned() else { return target.missing() };
        if let Some(refusal) = precondition(target, &present, &patch["metadata"]) {
            return refusal;
        }
        let mut patched = Value::clone(&present);
        if applies && let Some(before) = self.applied.insert(key, patch.clone()) {
            take_off(&mut patched, &before, patch);
        }
        merge(&mut patched, patch);
        self.write(target, &present, patched)
    }

    fn replace(&mut self, target: &Target, body: Value) -> Answer {
        let Some(present) = self.objects.get(&target.key()).cloned() else { return target.missing() };
        if let Some(refusal) = precondition(target, &present, &body["metadata"]) {
            return refusal;
        }
        self.write(target, &present, body)
    }

    fn write(&mut self, target: &Target, present: &Value, mut object: Value) -> Answer {
        let own = WITH_STATUS.contains(&target.resource.as_str());
        if target.status {
            let status = object["status"].take();
            object = present.clone();
            object["status"] = status;
        } else if own {
            object["status"] = present["status"].clone();
        }
        // What the server alone decides.
        object["metadata"]["managedFields"] = Value::Null;
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "name", "namespace"] {
            object["metadata"][field] = present["metadata"][field].clone();
        }
        prune(&mut object);
        let mut before = present.clone();
        prune(&mut before);
        if object == before {
            return Answer::Whole(200, object.into());
        }
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        if deleting && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
            self.take_away(&target.key(), false);
            return Answer::Whole(200, object.into());
        }
        Answer::Whole(200, self.put(&target.key(), object, false))
    }

    /// Deletes an object, unless something speaks against it; none: it is not there.
    fn delete(&mut self, key: &Name, refusal: impl FnOnce(&Value) -> Option<Answer>) -> Option<Answer> {
        let present = self.objects.get(key).cloned()?;
        if let Some(refusal) = refusal(&present) {
            return Some(refusal);
        }
        if present["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
            if present["metadata"]["deletionTimestamp"].is_string() {
                return Some(Answer::Whole(200, present));
            }
            let mut object = Value::clone(&present);
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
            object["metadata"]["generation"] = json!(generation + 1);
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
            return Some(Answer::Whole(200, self.put(key, object, false)));
        }
        self.take_away(key, false);
        if key.0 == "pods" {
            let mut object = Value::clone(&present);
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
            return Some(Answer::Whole(200, object.into()));
        }
        let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        Some(Answer::Whole(200, success.into()))
    }
}

/// Version and uid, where a writer names them.
fn precondition(target: &Target, present: &Value, wanted: &Value) -> Option<Answer> {
    let differs = |field: &str| {
        let wanted = wanted[field].as_str().filter(|wanted| !wanted.is_empty());
        wanted.is_some_and(|wanted| present["metadata"][field] != *wanted)
    };
    let name = target.name.as_deref().unwrap_or_default();
    let text = |why: &str| format!("Operation cannot be fulfilled on {} \"{name}\": {why}", target.resource);
    if differs("resourceVersion") {
        return Some(refused(409, "Conflict", &text("the object has been modified")));
    }
    differs("uid").then(|| refused(422, "Invalid", &text("metadata.uid: field is immutable")))
}

/// What was applied before and is not any more.
fn take_off(object: &mut Value, before: &Value, now: &Value) {
    let (Some(object), Some(before)) = (object.as_object_mut(), before.as_object()) else { return };
    for (name, before) in before {
        match (now.get(name), object.get_mut(name)) {
            (Some(now), Some(object)) => take_off(object, before, now),
            (None, Some(_)) => drop(object.remove(name)),
            (_, None) => {}
        }
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// The server keeps no empty fields.
fn prune(object: &mut Value) {
    drop_nulls(object);
    let empty = |value: &Value| {
        value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
    };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !empty(value));
    }
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(drop_nulls);
        fields.retain(|_, value| !value.is_null());
    }
}

/// An answer that is none.
pub fn refused(code: u16, reason: &str, message: &str) -> Answer {
    Answer::Whole(code, status(code, reason, message).into())
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

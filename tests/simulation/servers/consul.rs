//! A simulated Consul: keys, sessions, transactions, blocking queries, the catalog as far as leaders are registered there. Its
//! timers run by a clock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lictor_testing::Prng;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

/// What a person writes into a key.
const BY_HAND: &[u8] = b"by hand";

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Below `/v1/`.
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// An answer: status, index, body.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub index: Option<u64>,
    pub body: Vec<u8>,
}

/// The answer to a transaction that writes keys, if the token may not write them: Consul looks at the rights before anything else.
pub fn denied(request: &Request) -> Option<Answer> {
    let operations: Vec<Value> = serde_json::from_slice(&request.body).ok().filter(|_| request.path == "txn")?;
    let writes = |operation: &Value| {
        let verb = operation["KV"]["Verb"].as_str().unwrap_or_default();
        ["set", "lock", "unlock", "delete-cas"].contains(&verb)
    };
    let errors = operations.iter().enumerate().filter(|(_, operation)| writes(operation)).map(|(number, operation)| {
        let what = format!("Permission denied: token lacks permission 'key:write' on {}", operation["KV"]["Key"]);
        json!({"OpIndex": number, "What": what})
    });
    let errors: Vec<Value> = errors.collect();
    (!errors.is_empty()).then(|| json(409, &json!({"Results": null, "Errors": errors})))
}

/// The end of the name of a session of another installation that has a cluster's name.
const NAMESAKE: &str = "elsewhere/shared/0";

/// The servers, as one.
pub struct Consul {
    state: Mutex<State>,
    newest: watch::Sender<u64>,
    begun: Instant,
    /// How fast its clock runs, in thousandths.
    rate: u64,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    value: String,
    flags: u64,
    session: Option<String>,
    lock_index: u64,
    create_index: u64,
    modify_index: u64,
}

#[derive(Clone, Debug)]
struct Session {
    name: String,
    node: String,
    ttl: String,
    lock_delay: u64,
    create_index: u64,
    /// When it ends unless it is renewed: twice the TTL after it was renewed last, or sooner.
    ends: u64,
    ends_at_last: u64,
    /// When its owner renewed it last.
    renewed: u64,
}

struct State {
    index: u64,
    keys: BTreeMap<String, Entry>,
    /// When keys were deleted.
    tombstones: BTreeMap<String, u64>,
    sessions: BTreeMap<String, Session>,
    /// Until when keys can't be locked.
    delays: BTreeMap<String, u64>,
    nodes: BTreeMap<String, BTreeMap<String, Value>>,
    made: u64,
    /// Until when there is no leader.
    leaderless: u64,
    prng: Prng,
    /// What happened to locks: for the history.
    told: Vec<String>,
    /// The names of sessions that held a lock when they were not renewed in time.
    expired: Vec<String>,
    /// Sessions whose names begin like this, last for twice the TTL.
    kept: BTreeSet<String>,
}

impl Consul {
    /// An empty one. `rate`: how fast its clock runs, in thousandths.
    pub fn new(seed: u64, rate: u64) -> Arc<Self> {
        let state = State {
            index: 10,
            keys: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            sessions: BTreeMap::new(),
            delays: BTreeMap::new(),
            nodes: BTreeMap::new(),
            made: 0,
            leaderless: 0,
            prng: Prng::new(seed),
            told: Vec::new(),
            expired: Vec::new(),
            kept: BTreeSet::new(),
        };
        Arc::new(Self { state: Mutex::new(state), newest: watch::channel(10).0, begun: Instant::now(), rate })
    }

    /// By its own clock, in milliseconds.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX) * self.rate / 1000
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        let now = self.now();
        let kept = |name: &str| state.kept.iter().any(|kept| name.starts_with(kept));
        let ends = |session: &Session| if kept(&session.name) { session.ends_at_last } else { session.ends };
        let ended = state.sessions.iter().filter(|(_, session)| ends(session) <= now);
        for id in ended.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let name = state.sessions[&id].name.clone();
            state.told.push(format!("the session {name} ends"));
            if state.keys.values().any(|entry| entry.session.as_ref() == Some(&id)) {
                state.expired.push(name);
            }
            state.end(&id, now);
        }
        state
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        let index = state.index;
        drop(state);
        self.newest.send_if_modified(|newest| std::mem::replace(newest, index) != index);
    }

    /// Ends sessions in time, also where nobody asks.
    pub async fn keep_time(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.tell(self.lock());
        }
    }

    // What happens to it

    /// Another server becomes the leader: for a while nothing is answered, and all sessions' timers start again.
    pub fn change_leader(&self, leaderless: Duration) {
        let mut state = self.lock();
        let now = self.now();
        state.leaderless = now + u64::try_from(leaderless.as_millis()).unwrap_or(0);
        let from = state.leaderless;
        let renewed = state.sessions.iter().filter(|(_, session)| !session.name.ends_with(NAMESAKE));
        for id in renewed.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            state.renew(&id, from);
        }
        state.index += 1;
        self.tell(state);
    }

    /// Whether sessions whose names begin like this last for twice the TTL, as those of a real server do, or may end sooner.
    pub fn keep_for_long(&self, name: &str, long: bool) {
        let mut state = self.lock();
        if long {
            state.kept.insert(name.into())
        } else {
            state.kept.remove(name)
        };
    }

    /// The names of sessions that held a lock when they were not renewed in time, since this was asked last.
    pub fn expired(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().expired)
    }

    /// The name of the session that holds a lock.
    pub fn holder(&self, key: &str) -> Option<String> {
        let state = self.lock();
        let session = state.keys.get(key)?.session.as_ref()?;
        Some(state.sessions.get(session)?.name.clone())
    }

    /// A person, or a node that is removed, ends the session whose name begins like this.
    /// Returns how many milliseconds before it had been renewed, if there is one.
    pub fn end_session(&self, name: &str) -> Option<u64> {
        let mut state = self.lock();
        let now = self.now();
        if now < state.leaderless {
            return None;
        }
        let ends = |session: &Session| session.name.starts_with(name) && !session.name.ends_with(NAMESAKE);
        let (id, session) = state.sessions.iter().find(|(_, session)| ends(session))?;
        let (id, renewed) = (id.clone(), now.saturating_sub(session.renewed));
        state.end(&id, now);
        self.tell(state);
        Some(renewed)
    }

    /// A third cluster with copied values has a session of this name for as long.
    pub fn come_as(&self, cluster: &str, lasts: u64) {
        let mut state = self.lock();
        let now = self.now();
        if now < state.leaderless {
            return;
        }
        state.index += 1;
        state.made += 1;
        let id = format!("00000000-0000-0000-0000-{:012}", state.made);
        let session = Session {
            name: format!("{cluster}{NAMESAKE}"),
            node: "elsewhere".into(),
            ttl: "10s".into(),
            lock_delay: 0,
            create_index: state.index,
            ends: now + lasts,
            ends_at_last: now + lasts,
            renewed: now,
        };
        state.sessions.insert(id, session);
        self.tell(state);
    }

    /// A person deletes a key, or puts something else there, which leaves the lock as it is. Returns whether it was deleted.
    pub fn spoil(&self, key: &str, deletes: bool) -> bool {
        let mut state = self.lock();
        if self.now() < state.leaderless {
            return false;
        }
        if deletes {
            state.remove(key);
        } else if state.keys.contains_key(key) {
            state.set(key, 0, BY_HAND);
        }
        self.tell(state);
        deletes
    }

    /// Somebody writes something into a key, which leaves the lock as it is.
    pub fn put(&self, key: &str, value: &Value) {
        let mut state = self.lock();
        if self.now() < state.leaderless {
            return;
        }
        let flags = state.keys.get(key).map_or(0, |entry| entry.flags);
        state.set(key, flags, value.to_string().as_bytes());
        self.tell(state);
    }

    /// A person deletes what a person has put there. Returns whether there was anything.
    pub fn clear(&self, key: &str) -> bool {
        let by_hand = self.value(key).as_deref() == Some(BY_HAND);
        if by_hand {
            let mut state = self.lock();
            state.remove(key);
            self.tell(state);
        }
        by_hand
    }

    /// What is under a key.
    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        STANDARD.decode(&self.lock().keys.get(key)?.value).ok()
    }

    /// What happened to sessions since this was asked last.
    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().told)
    }

    // Requests

    /// Carries out a request; a blocking query when something has changed.
    pub async fn handle(&self, request: &Request) -> Answer {
        let number = |name: &str| request.query.get(name).and_then(|text| text.parse::<u64>().ok());
        let milliseconds = |text: &String| text.strip_suffix("ms").and_then(|text| text.parse::<u64>().ok());
        let after = number("index").filter(|index| *index > 0);
        let wait = request.query.get("wait").and_then(milliseconds).unwrap_or(60_000);
        let mut newest = self.newest.subscribe();
        let until = Instant::now() + Duration::from_millis(wait);
        loop {
            newest.borrow_and_update();
            let answer = self.serve(request);
            let waits = after.is_some_and(|after| answer.status < 500 && answer.index.is_some_and(|now| now == after));
            if !waits || Instant::now() >= until {
                return answer;
            }
            let _ = tokio::time::timeout_at(until, newest.changed()).await;
        }
    }

    fn serve(&self, request: &Request) -> Answer {
        let number = |name: &str| request.query.get(name).and_then(|text| text.parse::<u64>().ok());
        let now = self.now();
        let mut state = self.lock();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let parts: Vec<&str> = request.path.split('/').collect();
        if parts == ["status", "leader"] {
            return json(200, &json!(if now < state.leaderless { "" } else { "10.0.0.1:8300" }));
        }
        if parts == ["agent", "self"] {
            let agent = json!({"Config": {"Version": "1.22.3", "NodeName": "simulated", "Datacenter": "dc1"}});
            return json(200, &agent);
        }
        if now < state.leaderless {
            return text(500, "No cluster leader");
        }
        let answer = match (request.method.as_str(), parts.as_slice()) {
            ("GET", ["kv", key @ ..]) => state.read(&key.join("/"), request.query.contains_key("recurse")),
            ("PUT", ["kv", key @ ..]) => state.set(&key.join("/"), number("flags").unwrap_or_default(), &request.body),
            ("DELETE", ["kv", key @ ..]) => state.remove(&key.join("/")),
            ("PUT", ["txn"]) => state.transact(&body, now),
            ("PUT", ["session", "create"]) => state.create_session(&body, now),
            ("PUT", ["session", "renew", id]) => state.renew_session(id, now),
            ("PUT", ["session", "destroy", id]) => {
                state.end(id, now);
                json(200, &json!(true))
            }
            ("GET", ["session", "info", id]) => {
                let found: Vec<Value> = state.sessions.get(*id).map(|session| session.shown(id)).into_iter().collect();
                state.indexed(json(200, &json!(found)))
            }
            ("GET", ["session", "node", node]) => {
                let of_node = state.sessions.iter().filter(|(_, session)| session.node == *node);
                let found: Vec<Value> = of_node.map(|(id, session)| session.shown(id)).collect();
                state.indexed(json(200, &json!(found)))
            }
            ("PUT", ["catalog", "register"]) => {
                let node = body["Node"].as_str().unwrap_or_default().to_owned();
                state.nodes.entry(node).or_default();
                state.index += 1;
                json(200, &json!(true))
            }
            ("GET", ["catalog", "node", node]) => {
                let found = state.nodes.get(*node).map_or(Value::Null, |services| {
                    json!({"Node": {"Node": node, "Address": "127.0.0.1", "Meta": {}}, "Services": services})
                });
                state.indexed(json(200, &found))
            }
            _ => text(404, "404 page not found"),
        };
        self.tell(state);
        answer
    }
}

impl Session {
    fn shown(&self, id: &str) -> Value {
        json!({
            "ID": id, "Name": self.name, "Node": self.node, "TTL": self.ttl, "LockDelay": self.lock_delay * 1_000_000,
            "Behavior": "release", "NodeChecks": [], "ServiceChecks": null,
            "CreateIndex": self.create_index, "ModifyIndex": self.create_index,
        })
    }
}

impl Entry {
    fn shown(&self, key: &str, with_value: bool) -> Value {
        let mut shown = json!({
            "LockIndex": self.lock_index, "Key": key, "Flags": self.flags, "Value": null,
            "CreateIndex": self.create_index, "ModifyIndex": self.modify_index,
        });
        if with_value && !self.value.is_empty() {
            shown["Value"] = json!(self.value);
        }
        if let Some(session) = &self.session {
            shown["Session"] = json!(session);
        }
        shown
    }
}

impl State {
    fn indexed(&self, answer: Answer) -> Answer {
        Answer { index: Some(self.index), ..answer }
    }

    fn read(&self, key: &str, recurse: bool) -> Answer {
        let wanted = |name: &str| if recurse { name.starts_with(key) } else { name == key };
        let found: Vec<(&String, &Entry)> = self.keys.iter().filter(|(name, _)| wanted(name)).collect();
        let deleted = self.tombstones.iter().filter(|(name, _)| wanted(name)).map(|(_, index)| *index);
        let newest = found.iter().map(|(_, entry)| entry.modify_index).chain(deleted).max();
        let shown: Vec<Value> = found.iter().map(|(name, entry)| entry.shown(name, true)).collect();
        let answer = if shown.is_empty() { text(404, "") } else { json(200, &json!(shown)) };
        Answer { index: Some(newest.unwrap_or(1)), ..answer }
    }

    /// As `consul kv put`: the lock stays.
    fn set(&mut self, key: &str, flags: u64, value: &[u8]) -> Answer {
        self.index += 1;
        let index = self.index;
        let entry = self.keys.entry(key.into()).or_insert_with(|| Entry { create_index: index, ..Entry::default() });
        (entry.value, entry.flags, entry.modify_index) = (STANDARD.encode(value), flags, index);
        json(200, &json!(true))
    }

    fn remove(&mut self, key: &str) -> Answer {
        self.index += 1;
        if self.keys.remove(key).is_some() {
            self.tombstones.insert(key.into(), self.index);
        }
        json(200, &json!(true))
    }

    // Sessions

    fn create_session(&mut self, body: &Value, now: u64) -> Answer {
        let word = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let node = word("Node");
        if !self.nodes.contains_key(&node) {
            return text(500, "apply failed: Missing node registration");
        }
        self.index += 1;
        self.made += 1;
        let id = format!("00000000-0000-0000-0000-{:012}", self.made);
        let session = Session {
            name: word("Name"),
            node,
            ttl: word("TTL"),
            lock_delay: milliseconds(&word("LockDelay")),
            create_index: self.index,
            ends: now,
            ends_at_last: now,
            renewed: now,
        };
        self.sessions.insert(id.clone(), session);
        self.renew(&id, now);
        json(200, &json!({"ID": id}))
    }

    fn renew_session(&mut self, id: &str, now: u64) -> Answer {
        let Some(session) = self.sessions.get_mut(id) else {
            return text(404, &format!("Session id '{id}' not found"));
        };
        session.renewed = now;
        self.renew(id, now);
        json(200, &json!([self.sessions[id].shown(id)]))
    }

    /// It ends no sooner than its TTL from now, and no later than twice that: <https://developer.hashicorp.com/consul/docs/dynamic-app-config/sessions>.
    fn renew(&mut self, id: &str, now: u64) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let ttl = milliseconds(&session.ttl);
        let more = self.prng.below(usize::try_from(ttl).unwrap_or(0) + 1);
        session.ends = now + ttl + u64::try_from(more).unwrap_or(0);
        session.ends_at_last = now + 2 * ttl;
    }

    fn end(&mut self, id: &str, now: u64) {
        let Some(session) = self.sessions.remove(id) else { return };
        self.index += 1;
        for (key, entry) in self.keys.iter_mut().filter(|(_, entry)| entry.session.as_deref() == Some(id)) {
            (entry.session, entry.modify_index) = (None, self.index);
            self.delays.insert(key.clone(), now + session.lock_delay);
        }
    }

    // Transactions

    fn transact(&mut self, body: &Value, now: u64) -> Answer {
        let before = (self.keys.clone(), self.tombstones.clone(), self.nodes.clone());
        self.index += 1;
        let (mut results, mut errors) = (Vec::new(), Vec::new());
        let operations = body.as_array().cloned().unwrap_or_default();
        for (number, operation) in operations.iter().enumerate() {
            let done = if operation["KV"].is_object() {
                self.operate(&operation["KV"], now)
            } else {
                self.register(&operation["Service"])
            };
            match done {
                Ok(shown) => results.extend(shown),
                Err(what) => errors.push(json!({"OpIndex": number, "What": what})),
            }
        }
        if errors.is_empty() {
            return json(200, &json!({"Results": results, "Errors": null}));
        }
        (self.keys, self.tombstones, self.nodes) = before;
        json(409, &json!({"Results": null, "Errors": errors}))
    }

    fn operate(&mut self, operation: &Value, now: u64) -> Result<Option<Value>, String> {
        let key = operation["Key"].as_str().unwrap_or_default().to_owned();
        let session = operation["Session"].as_str().map(str::to_owned);
        let index = operation["Index"].as_u64().unwrap_or_default();
        let present = self.keys.get(&key).cloned();
        let modified = present.as_ref().map(|entry| entry.modify_index);
        let mut entry = present.clone().unwrap_or_else(|| Entry { create_index: self.index, ..Entry::default() });
        match operation["Verb"].as_str().unwrap_or_default() {
            "check-index" => {
                return match modified {
                    None => Err(format!("failed to check index, key \"{key}\" doesn't exist")),
                    Some(modified) if modified != index => {
                        Err(format!("failed index check for key \"{key}\", current modify index {modified} != {index}"))
                    }
                    Some(_) => Ok(Some(json!({"KV": entry.shown(&key, false)}))),
                };
            }
            "check-not-exists" => {
                return if present.is_some() { Err(format!("key \"{key}\" exists")) } else { Ok(None) };
            }
            "delete-cas" => {
                return match modified {
                    Some(modified) if modified != index => {
                        Err(format!("failed to delete key \"{key}\", index is stale"))
                    }
                    _ => {
                        self.keys.remove(&key);
                        self.tombstones.insert(key, self.index);
                        Ok(None)
                    }
                };
            }
            "lock" => {
                let session = session.unwrap_or_default();
                if !self.sessions.contains_key(&session) {
                    return Err(format!("invalid session \"{session}\""));
                }
                if self.delays.get(&key).is_some_and(|until| now < *until) {
                    return Err(format!("failed to lock key \"{key}\" due to lock delay"));
                }
                match &entry.session {
                    Some(holder) if *holder != session => {
                        return Err(format!("failed to lock key \"{key}\", lock is already held"));
                    }
                    Some(_) => {}
                    None => entry.lock_index += 1,
                }
                entry.session = Some(session);
            }
            "unlock" => {
                if session.is_none() || entry.session != session {
                    return Err(format!(
                        "failed to unlock key \"{key}\", lock isn't held, or is held by another session"
                    ));
                }
                entry.session = None;
            }
            "set" => {}
            other => return Err(format!("unknown KV verb \"{other}\"")),
        }
        entry.value = operation["Value"].as_str().unwrap_or_default().into();
        entry.flags = operation["Flags"].as_u64().unwrap_or_default();
        let same = |before: &Entry| {
            (&before.value, before.flags, &before.session) == (&entry.value, entry.flags, &entry.session)
        };
        if !present.as_ref().is_some_and(same) {
            entry.modify_index = self.index;
        }
        self.keys.insert(key.clone(), entry.clone());
        Ok(Some(json!({"KV": entry.shown(&key, false)})))
    }

    fn register(&mut self, operation: &Value) -> Result<Option<Value>, String> {
        let node = operation["Node"].as_str().unwrap_or_default();
        let service = &operation["Service"];
        let id = service["ID"].as_str().unwrap_or_default().to_owned();
        let Some(services) = self.nodes.get_mut(node) else { return Err("Missing node registration".into()) };
        if operation["Verb"] == "set" {
            let mut service = service.clone();
            service["ModifyIndex"] = json!(self.index);
            services.insert(id, service.clone());
            return Ok(Some(json!({"Service": service})));
        }
        services.remove(&id);
        Ok(None)
    }
}

/// "15s", "1500ms".
fn milliseconds(text: &str) -> u64 {
    let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
    let milliseconds = match text.strip_suffix("ms") {
        Some(text) => number(text),
        None => number(text.trim_end_matches('s')) * 1000.0,
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is some seconds")]
    let milliseconds = milliseconds as u64;
    milliseconds
}

fn json(status: u16, body: &Value) -> Answer {
    Answer { status, index: None, body: body.to_string().into_bytes() }
}

fn text(status: u16, body: &str) -> Answer {
    Answer { status, index: None, body: body.into() }
}

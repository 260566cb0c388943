//! Recorded exchanges: requests, and the answers of the real server, without the parts that differ from run to run. The simulated server
//! must give the same answers.
//!
//! "@NAME" in a request stands for a value from an earlier answer: `@version of a` and `@uid of a` for an object, `@S1` for the
//! first session. With `LICTOR_RECORD=1` the real server's answers replace those in the file.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::file;

/// A request, as it is sent.
pub struct Request {
    pub method: String,
    pub path: String,
    pub body: Option<Value>,
}

/// An answer, as it was received: code, Consul's index, body.
pub struct Answer {
    pub code: u16,
    pub index: Option<u64>,
    pub body: Vec<u8>,
}

/// The server whose exchanges these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Kubernetes,
    Consul,
}

/// Sends the requests of a file and compares the answers. `record` says that this is the real server.
pub async fn play(server: Server, record: bool, send: impl AsyncFn(Request) -> Answer) {
    let name = if server == Server::Kubernetes { "kubernetes" } else { "consul" };
    let path = file(&format!("crates/testing/exchanges/{name}.json"));
    let text = std::fs::read_to_string(&path).expect("the exchanges can be read");
    let mut exchanges: Vec<Value> = serde_json::from_str(&text).expect("the exchanges are JSON");
    let mut known = Known { server, values: BTreeMap::new(), aliases: BTreeMap::new(), newest: BTreeMap::new() };
    let (mut differences, records) = (Vec::new(), record && std::env::var_os("LICTOR_RECORD").is_some());
    for (number, exchange) in exchanges.iter_mut().enumerate() {
        let line = known.fill(&exchange["request"]);
        let (method, path) = line.as_str().and_then(|line| line.split_once(' ')).expect("METHOD PATH");
        let body = exchange.get("body").map(|body| known.fill(body));
        let asked = Request { method: method.into(), path: path.into(), body };
        let answer = known.normalized(&send(asked).await);
        if records {
            exchange["answer"] = answer;
        } else if exchange["answer"] != answer {
            differences.push(format!(
                "{number}: {}\nrecorded: {}\nanswered: {answer}",
                exchange["request"], exchange["answer"]
            ));
        }
    }
    if records {
        let text = serde_json::to_string_pretty(&exchanges).expect("JSON");
        std::fs::write(&path, text + "\n").expect("the exchanges can be written");
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

/// The values from earlier answers.
struct Known {
    server: Server,
    /// The values, by the names that requests use.
    values: BTreeMap<String, String>,
    /// The names that replace uids and sessions.
    aliases: BTreeMap<String, String>,
    /// The last version of each object.
    newest: BTreeMap<String, u64>,
}

impl Known {
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let mut text = text.clone();
                // Long names come first, because one name may begin with another.
                for (name, value) in self.values.iter().rev() {
                    text = text.replace(&format!("@{name}"), value);
                }
                // Consul's indexes are numbers.
                match text.strip_prefix('#').and_then(|number| number.parse::<u64>().ok()) {
                    Some(number) => json!(number),
                    None => json!(text),
                }
            }
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect())
            }
            other => other.clone(),
        }
    }

    fn alias(&mut self, id: &str, prefix: &str) -> String {
        let next = self.aliases.values().filter(|alias| alias.starts_with(prefix)).count() + 1;
        let alias = self.aliases.entry(id.into()).or_insert_with(|| format!("{prefix}{next}")).clone();
        self.values.insert(alias.clone(), id.into());
        alias
    }

    /// Returns whether a version is newer than the last one of the same object.
    fn age(&mut self, of: &str, version: u64) -> &'static str {
        let before = self.newest.insert(of.into(), version);
        match before {
            Some(before) if version == before => "the same",
            Some(before) if version < before => "older",
            _ => "new",
        }
    }

    fn normalized(&mut self, answer: &Answer) -> Value {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        match self.server {
            Server::Kubernetes => {
                let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
                let shown: Vec<Value> = lines.iter().map(|line| self.shown(line)).collect();
                json!({"code": answer.code, "shows": shown})
            }
            Server::Consul => {
                let body = serde_json::from_str::<Value>(&text).map_or_else(|_| json!(text), |body| self.told(&body));
                let body = match body {
                    Value::String(text) => json!(self.with_aliases(&text)),
                    body => body,
                };
                json!({"code": answer.code, "hasIndex": answer.index.is_some(), "body": body})
            }
        }
    }

    fn shown(&mut self, value: &Value) -> Value {
        if let Some(object) = value.get("object") {
            return json!({"type": value["type"], "object": self.shown(object)});
        }
        if let Some(items) = value["items"].as_array() {
            let items: Vec<Value> = items.iter().map(|item| self.shown(item)).collect();
            return json!({"items": items});
        }
        if value["kind"] == "Status" {
            return json!({"status": value["status"], "reason": value["reason"]});
        }
        let metadata = &value["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let mut shown = Map::new();
        for field in ["name", "labels", "annotations", "finalizers"] {
            if let Some(content) = metadata.get(field) {
                shown.insert(field.into(), content.clone());
            }
        }
        if metadata["deletionTimestamp"].is_string() {
            shown.insert("deleting".into(), json!(true));
        }
        let version = metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        shown.insert("version".into(), json!(self.age(&name, version)));
        self.values.insert(format!("version of {name}"), version.to_string());
        // The first version stays known, so that a watch can start from it.
        self.values.entry(format!("first version of {name}")).or_insert_with(|| version.to_string());
        if let Some(uid) = metadata["uid"].as_str() {
            shown.insert("uid".into(), json!(self.alias(uid, "U")));
            self.values.insert(format!("uid of {name}"), uid.into());
        }
        let kind = value["kind"].as_str().unwrap_or_default();
        if kind == "Lease" || shown["name"] == "lease" {
            shown.insert("spec".into(), value["spec"].clone());
        }
        if kind == "LeaderElection" {
            shown.insert("generation".into(), metadata["generation"].clone());
            shown.insert("term".into(), value["status"]["term"].clone());
        }
        Value::Object(shown)
    }

    fn with_aliases(&mut self, text: &str) -> String {
        let mut text = text.trim().to_owned();
        for (id, alias) in &self.aliases {
            text = text.replace(id, alias);
        }
        // An index differs each time.
        match text.find("current modify index ") {
            Some(at) => text[..at].to_owned() + "current modify index …",
            None => text,
        }
    }

    fn told(&mut self, value: &Value) -> Value {
        match value {
            Value::Array(items) => {
                let mut told: Vec<Value> = items.iter().map(|item| self.told(item)).collect();
                // Sessions are sorted by their random IDs.
                told.sort_by_key(|item| item["Name"].as_str().map(str::to_owned));
                Value::Array(told)
            }
            Value::Object(fields) => {
                let of = fields.get("Key").and_then(Value::as_str).map(str::to_owned);
                let mut told = Map::new();
                for (name, value) in fields {
                    let value = match (name.as_str(), value) {
                        ("ID" | "Session", Value::String(id)) if id.len() == 36 => json!(self.alias(id, "S")),
                        ("ModifyIndex", Value::Number(index)) => match &of {
                            Some(key) => {
                                let index = index.as_u64().unwrap_or_default();
                                self.values.insert(format!("index of {key}"), index.to_string());
                                json!(self.age(key, index))
                            }
                            None => continue,
                        },
                        // lictor does not read these fields, or they differ each time.
                        ("CreateIndex" | "Index" | "LastContact" | "Namespace" | "Partition", _) => continue,
                        ("What", Value::String(text)) => json!(self.with_aliases(text)),
                        (_, value) => self.told(value),
                    };
                    told.insert(name.clone(), value);
                }
                Value::Object(told)
            }
            other => other.clone(),
        }
    }
}

//! Sessions.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::client::{Answer, Request};
use super::error::Purpose;
use super::{Client, Error, go_duration};

/// A session in Consul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The ID.
    pub id: String,
    /// The name that its creator gave it.
    pub name: String,
    /// The node that it belongs to.
    pub node: String,
    /// How long the session lives without a renewal, at least. Zero means for ever.
    pub ttl: Duration,
    /// How long no session can lock its keys after it was invalidated.
    pub lock_delay: Duration,
    /// The fate of its keys when it ends: "release" or "delete".
    pub behavior: String,
    /// The node checks that it depends on.
    pub node_checks: Vec<String>,
    /// The service checks that it depends on.
    pub service_checks: Vec<String>,
    /// The index at which it was created.
    pub create_index: u64,
}

/// A session to be created. When it ends, Consul releases its keys and does not delete them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// The name, for people and for finding it again.
    pub name: String,
    /// The object that it depends on.
    pub bound: Bound,
    /// The time to live: at least 10 s, at most 24 h.
    pub ttl: Duration,
    /// The lock delay: at most 60 s.
    pub lock_delay: Duration,
}

/// The object on which a session depends besides its TTL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The registration of this node, and no check.
    Node(String),
    /// The registration of the node of the agent that answers, and its check `serfHealth`.
    Agent,
}

/// The outcome of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The session lives on. Its TTL may be longer than before.
    Renewed(Session),
    /// The session no longer exists.
    Lost,
    /// The client does not know whether the session lives.
    Failed(Error),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawSession {
    #[serde(rename = "ID")]
    id: String,
    name: String,
    node: String,
    #[serde(rename = "TTL")]
    ttl: String,
    /// In nanoseconds.
    lock_delay: u64,
    behavior: String,
    node_checks: Option<Vec<String>>,
    service_checks: Option<Vec<RawServiceCheck>>,
    /// The field's name before Consul 1.7.
    checks: Option<Vec<String>>,
    create_index: u64,
}

#[derive(Deserialize)]
struct RawServiceCheck {
    #[serde(rename = "ID")]
    id: String,
}

impl From<RawSession> for Session {
    fn from(raw: RawSession) -> Self {
        Self {
            id: raw.id,
            name: raw.name,
            node: raw.node,
            ttl: go_duration::parse(&raw.ttl).unwrap_or_default(),
            lock_delay: Duration::from_nanos(raw.lock_delay),
            behavior: raw.behavior,
            node_checks: raw.node_checks.or(raw.checks).unwrap_or_default(),
            service_checks: raw.service_checks.unwrap_or_default().into_iter().map(|check| check.id).collect(),
            create_index: raw.create_index,
        }
    }
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "ID")]
    id: String,
}

impl Client {
    /// Lists the sessions of a node consistently: every session that was created before is in it. The list is empty without the
    /// right to read them.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn sessions_of_node(&self, node: &str) -> Result<Vec<Session>, Error> {
        let purpose = Purpose::new(format!("list the sessions of node {node}"), rule(node, "read"));
        let answer = self.send(Request::get(["session", "node", node], purpose).consistent()).await?;
        answer.index()?;
        read(&answer)
    }

    /// Reads a session consistently. Returns `None` if there is none, or the token may not read it.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn session(&self, id: &str) -> Result<Option<Session>, Error> {
        let purpose = Purpose::new(format!("read the session {id}"), rule("", "read"));
        let answer = self.send(Request::get(["session", "info", id], purpose).consistent()).await?;
        answer.index()?;
        Ok(read(&answer)?.pop())
    }

    /// Creates a session and returns its ID. If the outcome is not known, the session may exist now or later: look for it by its name.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn create_session(&self, session: &NewSession) -> Result<String, Error> {
        let NewSession { name, bound, ttl, lock_delay } = session;
        let mut body = json!({
            "Name": name,
            "TTL": go_duration::format(*ttl),
            "LockDelay": go_duration::format(*lock_delay),
            "Behavior": "release",
        });
        let node = match bound {
            Bound::Node(node) => {
                body["Node"] = json!(node);
                // An empty list replaces the default, which is the agent's check `serfHealth`.
                body["NodeChecks"] = json!([]);
                node
            }
            Bound::Agent => "NODE OF THE AGENT",
        };
        for (name, field) in [("ns", "Namespace"), ("partition", "Partition")] {
            if let Some(value) = self.scope(name) {
                body[field] = json!(value);
            }
        }
        let purpose = Purpose::new(format!("create the session {name}"), rule(node, "write"));
        let answer = self.send(Request::put(["session", "create"], purpose).body(&body)).await?;
        Ok(answer.json::<Created>()?.id)
    }

    /// Renews a session.
    pub async fn renew(&self, id: &str) -> Renewal {
        let purpose = Purpose::new(format!("renew the session {id}"), rule("", "write"));
        let request = Request::put(["session", "renew", id], purpose).expecting(&[StatusCode::NOT_FOUND]);
        let answer = match self.send(request).await {
            Ok(answer) => answer,
            Err(error) => return Renewal::Failed(error),
        };
        if answer.status == StatusCode::NOT_FOUND {
            // A server in front of Consul may answer 404, too. Only an answer that names the session is about it.
            let says = answer.text();
            return if says.contains("Session id") && says.contains(id) {
                Renewal::Lost
            } else {
                Renewal::Failed(answer.refused())
            };
        }
        match read(&answer) {
            Ok(mut sessions) => match sessions.pop().filter(|session| session.id == id) {
                Some(session) => Renewal::Renewed(session),
                None => Renewal::Failed(answer.purpose.garbled("not this session", answer.text().as_bytes())),
            },
            Err(error) => Renewal::Failed(error),
        }
    }

    /// Ends a session. A session that no longer exists counts as ended. Its keys can't be locked during its lock delay.
    ///
    /// # Errors
    /// If Consul does not answer, or answers with a failure.
    pub async fn destroy(&self, id: &str) -> Result<(), Error> {
        let purpose = Purpose::new(format!("destroy the session {id}"), rule("", "write"));
        let request = Request::put(["session", "destroy", id], purpose).expecting(&[StatusCode::INTERNAL_SERVER_ERROR]);
        let answer = self.send(request).await?;
        if answer.status.is_success() {
            answer.done()
        } else if answer.text().contains("Unknown session") {
            // Consul answers this only where ACLs are enabled.
            Ok(())
        } else {
            Err(answer.refused())
        }
    }
}

fn read(answer: &Answer) -> Result<Vec<Session>, Error> {
    Ok(answer.json::<Vec<RawSession>>()?.into_iter().map(Session::from).collect())
}

fn rule(node: &str, policy: &str) -> String {
    let kind = if node.is_empty() { "session_prefix" } else { "session" };
    format!("{kind} \"{node}\" {{ policy = \"{policy}\" }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read() {
        let json = r#"[{"ID":"i","Name":"n","Node":"o","LockDelay":15000000000,"Behavior":"release","TTL":"1m30s",
            "NodeChecks":["serfHealth"],"ServiceChecks":null,"CreateIndex":5,"ModifyIndex":5},
            {"ID":"i","Name":"","Node":"o","LockDelay":0,"Behavior":"delete","TTL":"","NodeChecks":null,
            "ServiceChecks":[{"ID":"c","Namespace":""}],"CreateIndex":5,"ModifyIndex":5}]"#;
        let raw: Vec<RawSession> = serde_json::from_str(json).unwrap();
        let sessions: Vec<Session> = raw.into_iter().map(Session::from).collect();
        assert_eq!(sessions[0].ttl, Duration::from_secs(90));
        assert_eq!(sessions[0].lock_delay, Duration::from_secs(15));
        assert_eq!(sessions[0].node_checks, ["serfHealth"]);
        assert_eq!(sessions[1].ttl, Duration::ZERO);
        assert_eq!(sessions[1].service_checks, ["c"]);
    }
}

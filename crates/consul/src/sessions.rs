//! Sessions.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::client::{Answer, Request};
use super::error::Purpose;
use super::{Client, Error, go_duration};

/// A session as Consul has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its ID.
    pub id: String,
    /// What its maker called it.
    pub name: String,
    /// The node that it hangs on.
    pub node: String,
    /// How long it lives without a renewal, at least; zero: for ever.
    pub ttl: Duration,
    /// How long its keys can't be locked after it was invalidated.
    pub lock_delay: Duration,
    /// What becomes of its keys: "release" or "delete".
    pub behavior: String,
    /// The checks of its node that it depends on.
    pub node_checks: Vec<String>,
    /// The checks of services that it depends on.
    pub service_checks: Vec<String>,
    /// When it was made.
    pub create_index: u64,
}

/// A session to be made. Its keys are released when it ends, not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// For people, and to find it again.
    pub name: String,
    /// What it depends on.
    pub bound: Bound,
    /// At least 10 s, at most 24 h.
    pub ttl: Duration,
    /// At most 60 s.
    pub lock_delay: Duration,
}

/// What a session depends on besides its TTL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// That this node stays registered; on no check.
    Node(String),
    /// That the node of the agent that answers stays registered, and on its `serfHealth` check.
    Agent,
}

/// What became of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It lives on; the session as it is, perhaps with a longer TTL.
    Renewed(Session),
    /// It is no more.
    Lost,
    /// Whether it lives is not known.
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
    /// Before Consul 1.7.
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
    /// The sessions of a node, past every cache: every one that was made before is seen. None without the right to read them.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
    pub async fn sessions_of_node(&self, node: &str) -> Result<Vec<Session>, Error> {
        let purpose = Purpose::new(format!("list the sessions of node {node}"), rule(node, "read"));
        let answer = self.send(Request::get(["session", "node", node], purpose).consistent()).await?;
        answer.index()?;
        read(&answer)
    }

    /// A session, past every cache. `None`: there is none, or the token may not read it.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
    pub async fn session(&self, id: &str) -> Result<Option<Session>, Error> {
        let purpose = Purpose::new(format!("read the session {id}"), rule("", "read"));
        let answer = self.send(Request::get(["session", "info", id], purpose).consistent()).await?;
        answer.index()?;
        Ok(read(&answer)?.pop())
    }

    /// Makes a session; its ID. If the outcome is not known, there may be one now or later: look for it by its name.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
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
                // Instead of the agent's serfHealth.
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
            // Something before Consul may answer 404, too: only one that names the session is about it.
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

    /// Ends a session. One that is gone already is a success. Its keys can't be locked for its lock delay.
    ///
    /// # Errors
    /// If Consul gives no answer, or another one.
    pub async fn destroy(&self, id: &str) -> Result<(), Error> {
        let purpose = Purpose::new(format!("destroy the session {id}"), rule("", "write"));
        let request = Request::put(["session", "destroy", id], purpose).expecting(&[StatusCode::INTERNAL_SERVER_ERROR]);
        let answer = self.send(request).await?;
        if answer.status.is_success() {
            answer.done()
        } else if answer.text().contains("Unknown session") {
            // Said only where there are ACLs.
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

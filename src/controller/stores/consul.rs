//! The store of a class that keeps its locks in Consul.

mod login;
mod settings;
mod slow;
mod store;

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use lictor_api::{ConsulClass, ConsulStatus, Credentials, ElectionClassStatus, SessionNode, SharedClass};
use lictor_consul::Connect;
use lictor_core::{StoreId, Uid};
use lictor_locks::Role;
use tokio::time::{Instant, sleep_until};

use self::login::{Login, log_in};
use self::settings::made;
use self::slow::Slow;
use self::store::Store;
use super::class_store::{ClassStore, Context, News, Secrets, Trouble, secret};
use super::kept;

/// How long after a login the task ignores that Consul does not know the new token.
const TOKEN_SETTLES: Duration = Duration::from_secs(1);

/// The store of a class in Consul.
pub(crate) struct InConsul {
    id: StoreId,
    context: Context,
    connect: Connect,
    store: Option<Store>,
    login: Option<Login>,
    /// The agent that answered last.
    agent: lictor_consul::Agent,
    slow: Option<Slow>,
}

impl InConsul {
    pub(crate) fn new(id: StoreId, context: Context, connect: Connect) -> Self {
        Self { id, context, connect, store: None, login: None, agent: lictor_consul::Agent::default(), slow: None }
    }

    /// Makes the store, or passes a new token on to it.
    async fn open(
        &mut self,
        class: &ConsulClass,
        secrets: &Secrets,
        installation: &Uid,
        role: Role,
    ) -> Result<bool, Trouble> {
        let Some(made) = made(class, secrets, self.context.timeout)? else { return Ok(false) };
        let token = match &class.credentials {
            Credentials::Anonymous => None,
            Credentials::Secret(key) => match secret(secrets, key)? {
                Some(token) => Some(String::from_utf8_lossy(token).trim().to_owned()),
                None => return Ok(false),
            },
            Credentials::Login { method, token_path } => {
                if self.login.is_none() {
                    self.login = Some(log_in(&class.name, &self.connect, &made.settings, method, token_path).await?);
                }
                self.login.as_ref().map(|login| login.secret.clone())
            }
        };
        if let Some(store) = self.store.as_mut().filter(|store| store.made == made) {
            let renewed = store.token != token;
            if renewed {
                store.client.set_token(token.as_deref()).map_err(|error| Trouble::invalid_settings(&error))?;
                tracing::info!(class = class.name, "continues with a new token");
                store.token = token;
            }
            return Ok(renewed);
        }
        self.store = Some(Store::start(&self.id, made, token, installation, role, &self.context, &self.connect)?);
        Ok(false)
    }

    async fn news(&mut self) -> News {
        let renew = self.login.as_ref().and_then(|login| login.renew);
        let heard = async {
            match &mut self.store {
                Some(store) => tokio::select! {
                    biased;
                    watched = store.kept.watched.recv() => watched.map_or(Heard::Ended, Heard::Watched),
                    changed = store.kept.sessions.changed() => if changed.is_ok() { Heard::Sessions } else { Heard::Ended },
                    _ = store.rejections.changed() => Heard::Rejected,
                },
                None => futures::future::pending().await,
            }
        };
        let heard = tokio::select! {
            biased;
            heard = heard => heard,
            () = sleep_until(renew.unwrap_or_else(Instant::now)), if renew.is_some() => Heard::LoginDue,
        };
        match heard {
            Heard::Watched(failure) => News::Watched(failure),
            Heard::Sessions => self.sessions(),
            Heard::Rejected => {
                // The rejection may belong to a request that was sent with the previous token.
                let fresh = self.login.as_ref().is_some_and(|login| login.at.elapsed() < TOKEN_SETTLES);
                if !fresh {
                    self.login = None;
                }
                // The check reports the rejection again if it still holds, so the store is not replaced at once.
                News::CheckBy(Instant::now() + TOKEN_SETTLES)
            }
            Heard::LoginDue => {
                self.login = None;
                News::Ended
            }
            // The store's tasks have ended.
            Heard::Ended => {
                self.store = None;
                News::Ended
            }
        }
    }

    fn sessions(&mut self) -> News {
        let Some(store) = &mut self.store else { return News::Sessions(None, None) };
        let longest = store.client.timeout();
        let sessions = store.kept.sessions.borrow_and_update();
        self.slow = Slow::after(self.slow, sessions.renewal, longest, Instant::now());
        let trouble = kept::trouble(&sessions);
        News::Sessions(trouble, self.slow.map(Slow::told))
    }
}

/// An event of the store's tasks.
enum Heard {
    Watched(Option<String>),
    Sessions,
    Rejected,
    LoginDue,
    Ended,
}

impl ClassStore for InConsul {
    fn make<'a>(
        &'a mut self,
        class: &'a SharedClass,
        secrets: &'a Secrets,
        installation: &'a Uid,
        role: Role,
    ) -> BoxFuture<'a, Result<bool, Trouble>> {
        async move {
            match class.consul() {
                Some(class) => self.open(class, secrets, installation, role).await,
                None => Ok(false),
            }
        }
        .boxed()
    }

    fn is_made(&self) -> bool {
        self.store.is_some()
    }

    fn set_role(&self, role: Role) {
        if let Some(store) = &self.store {
            store.kept.set_role(role);
        }
    }

    fn next(&mut self) -> BoxFuture<'_, News> {
        self.news().boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Option<Result<(), Trouble>>> {
        async move {
            let client = self.store.as_ref()?.client.clone();
            Some(match ask(&client).await {
                Ok(agent) => {
                    self.agent = agent;
                    Ok(())
                }
                Err(error) => Err(trouble(&error)),
            })
        }
        .boxed()
    }

    fn describe(&self, status: &mut ElectionClassStatus) {
        let Some(store) = &self.store else { return };
        let node_name = match &store.made.node {
            SessionNode::Own(node) => Some(node.clone()),
            SessionNode::Agent => self.agent.node.clone(),
        };
        status.consul = Some(ConsulStatus {
            version: self.agent.version.clone().unwrap_or_else(|| "unknown".into()),
            node_name,
            sessions: store.kept.sessions.borrow().ids.iter().flatten().cloned().collect(),
        });
    }

    fn leave(mut self: Box<Self>, destroy: bool) -> BoxFuture<'static, ()> {
        async move {
            let Some(mut store) = self.store.take() else { return };
            if destroy {
                store.kept.destroy().await;
            }
            if let Some(login) = &self.login {
                let _ = store.client.logout(&login.secret).await;
            }
        }
        .boxed()
    }
}

async fn ask(client: &lictor_consul::Client) -> Result<lictor_consul::Agent, lictor_consul::Error> {
    if !client.leader_known().await? {
        return Err(lictor_consul::Error::NoLeader(
            "Consul has no leader at present: its servers can't agree on one".into(),
        ));
    }
    client.agent_self().await
}

fn trouble(error: &lictor_consul::Error) -> Trouble {
    let reason = match error {
        lictor_consul::Error::Unreachable(_) | lictor_consul::Error::Unknown(_) => "NoAnswer",
        lictor_consul::Error::Forbidden(_) => "Forbidden",
        lictor_consul::Error::UnknownToken(_) => "TokenUnknown",
        lictor_consul::Error::Busy(_) => "Busy",
        lictor_consul::Error::NoLeader(_) => "NoLeader",
        lictor_consul::Error::NoNode(_) | lictor_consul::Error::Refused(_) => "Refused",
    };
    Trouble { reason, message: error.to_string() }
}

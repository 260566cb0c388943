//! The task of one class, which makes the class's store, and makes it again when settings or Secrets change, for as long as the class is
//! served.
//! served.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use lictor_core::{ClaimState, Failure, StoreId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::condition::{Report, Slow, class_status};
use super::duty::Duty;
use super::login::{Login, log_in};
use super::settings::{Secrets, Trouble, invalid_settings, made, release_after, secret, secrets_of};
use super::store::{Context, Store, class_of};
use crate::api::{Credentials, ElectionClass, Refusal, SecretId, consul_class};
use crate::kubernetes::{ClaimUpdate, ElectionClasses, SecretChange, watch_secrets};
use crate::process::{monotonic, wall};
use crate::store::Role;

/// How often the task checks that Consul answers, besides the requests of elections.
const CHECK_PERIOD: Duration = Duration::from_secs(30);
/// The same period while something is wrong.
const CHECK_AGAIN: Duration = Duration::from_secs(2);
/// How long after a login the task ignores that Consul does not know the new token.
const TOKEN_SETTLES: Duration = Duration::from_secs(1);

/// The task that keeps one class's store while the class is served.
pub(crate) struct Runner {
    id: StoreId,
    context: Context,
    classes: watch::Receiver<ElectionClass>,
    /// Set at the end: whether to destroy the sessions.
    leave: watch::Receiver<Option<bool>>,
    claim: watch::Receiver<ClaimUpdate>,
    class: ElectionClass,
    known: Secrets,
    secrets: BoxStream<'static, (SecretId, SecretChange)>,
    store: Option<Store>,
    login: Option<Login>,
    duty: Duty,
    report: Report,
    /// When to check next that Consul answers.
    check: Instant,
}

/// An event that a runner has to handle.
enum Happened {
    /// The locks can be watched, or can't.
    Watched(Watched),
    Sessions(bool),
    Rejected,
    Class,
    Secret(SecretId, SecretChange),
    Claim,
    CheckDue,
    LoginDue,
    DutyDue,
    Leave,
    /// The operator has ended.
    Orphaned,
}

/// News of a store's watch.
enum Watched {
    Works,
    Fails(String),
    Ended,
}

impl Runner {
    /// Makes the task of a class. `leave` is set at the end and says whether to destroy the sessions.
    pub(crate) fn new(
        id: StoreId,
        context: Context,
        mut classes: watch::Receiver<ElectionClass>,
        leave: watch::Receiver<Option<bool>>,
    ) -> Self {
        let class = classes.borrow_and_update().clone();
        Self {
            secrets: watch_secrets(&context.client, &context.own_namespace, secrets_of(&class)),
            claim: context.claim.clone(),
            id,
            context,
            classes,
            leave,
            class,
            known: Secrets::new(),
            store: None,
            login: None,
            duty: Duty::default(),
            report: Report::default(),
            check: Instant::now(),
        }
    }

    /// Runs until the class is no longer served.
    pub(crate) async fn run(mut self) {
        loop {
            let role = self.duty.role(&self.claim.borrow_and_update(), release_after(&self.class));
            if let Some(store) = &self.store {
                store.role.send_if_modified(|known| std::mem::replace(known, role) != role);
            }
            if let Err(trouble) = self.make(role).await {
                self.report.settings = Some(trouble);
                self.check = self.check.min(Instant::now() + CHECK_AGAIN);
            } else if self.report.settings.take().is_some() {
                self.check = Instant::now();
            }
            self.write_status().await;
            match self.next().await {
                Happened::Orphaned => return,
                Happened::Leave => return self.farewell().await,
                happened => self.take(happened).await,
            }
        }
    }

    async fn next(&mut self) -> Happened {
        let (waits, asks) = (self.duty.waits(), self.store.is_some() || self.report.settings.is_some());
        let until = self.duty.until().unwrap_or(self.check);
        let renew = self.login.as_ref().and_then(|login| login.renew);
        let store = async {
            match &mut self.store {
                Some(store) => tokio::select! {
                    biased;
                    watched = store.watched.recv() => Happened::Watched(match watched {
                        None => Watched::Ended,
                        Some(None) => Watched::Works,
                        Some(Some(failure)) => Watched::Fails(failure),
                    }),
                    changed = store.sessions.changed() => Happened::Sessions(changed.is_ok()),
                    _ = store.rejections.changed() => Happened::Rejected,
                },
                None => futures::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.leave.changed() => Happened::Leave,
            changed = self.claim.changed() => if changed.is_ok() { Happened::Claim } else { Happened::Orphaned },
            changed = self.classes.changed() => if changed.is_ok() { Happened::Class } else { Happened::Orphaned },
            happened = store => happened,
            Some((secret, change)) = self.secrets.next() => Happened::Secret(secret, change),
            () = sleep_until(self.check), if asks => Happened::CheckDue,
            () = sleep_until(until), if waits => Happened::DutyDue,
            () = sleep_until(renew.unwrap_or(until)), if renew.is_some() => Happened::LoginDue,
        }
    }

    async fn take(&mut self, happened: Happened) {
        match happened {
            Happened::Watched(Watched::Works) => self.take_watched(None),
            Happened::Watched(Watched::Fails(failure)) => self.take_watched(Some(failure)),
            // The store's tasks have ended, so it is made again.
            Happened::Watched(Watched::Ended) | Happened::Sessions(false) => self.store = None,
            Happened::Sessions(true) => self.take_sessions(),
            Happened::Rejected => {
                // The rejection may belong to a request that was sent with the previous token.
                let fresh = self.login.as_ref().is_some_and(|login| login.at.elapsed() < TOKEN_SETTLES);
                if !fresh {
                    self.login = None;
                }
                // The check reports the rejection again if it still holds, so the store is not replaced at once.
                self.check = self.check.min(Instant::now() + TOKEN_SETTLES);
            }
            Happened::Class => {
                let next = self.classes.borrow_and_update().clone();
                if secrets_of(&next) != secrets_of(&self.class) {
                    self.known.clear();
                    self.secrets = watch_secrets(&self.context.client, &self.context.own_namespace, secrets_of(&next));
                }
                self.class = next;
            }
            Happened::Secret(secret, SecretChange::Present(data)) => drop(self.known.insert(secret, Some(data))),
            Happened::Secret(secret, SecretChange::Absent) => drop(self.known.insert(secret, None)),
            Happened::Secret(secret, SecretChange::Broken(failure)) => {
                tracing::warn!(class = self.name(), %secret, "{}", Failure::from(failure).text());
            }
            Happened::CheckDue => {
                let client = self.store.as_ref().map(|store| store.client.clone());
                if let Some(client) = client {
                    self.report.check = Some(ask(&client).await);
                }
                let period = if self.report.trouble().is_some() { CHECK_AGAIN } else { CHECK_PERIOD };
                self.check = Instant::now() + period;
            }
            Happened::LoginDue => self.login = None,
            Happened::Claim | Happened::DutyDue | Happened::Leave | Happened::Orphaned => {}
        }
    }

    fn take_watched(&mut self, failure: Option<String>) {
        if self.report.watch != failure {
            self.log(failure.as_deref(), "the locks can be watched again");
            self.report.watch = failure;
            self.check = Instant::now();
        }
    }

    fn take_sessions(&mut self) {
        if let Some(store) = &self.store {
            let (renewal, longest) = (store.sessions.borrow().renewal, store.client.timeout());
            self.report.slow = Slow::after(self.report.slow, renewal, longest, Instant::now());
        }
        let trouble = self.store.as_mut().and_then(|store| {
            let sessions = store.sessions.borrow_and_update();
            // C15.
            if let Some(denied) = &sessions.denied {
                let message = format!("{}; until then, this cluster gives up the locks that it holds", denied.text());
                return Some(Trouble { reason: "Forbidden", message });
            }
            let reason = if sessions.name_in_use { "ClusterNameInUse" } else { "SessionsFail" };
            Some(Trouble { reason, message: sessions.failure.as_ref()?.text().to_owned() })
        });
        if self.report.sessions != trouble {
            self.log(trouble.as_ref().map(|trouble| trouble.message.as_str()), "the sessions are kept again");
            self.report.sessions = trouble;
            self.check = Instant::now();
        }
    }

    fn name(&self) -> &str {
        class_of(&self.id)
    }

    fn log(&self, failure: Option<&str>, recovered: &str) {
        if let Some(failure) = failure {
            tracing::warn!(class = self.name(), "{failure}");
        } else {
            tracing::info!(class = self.name(), "{recovered}");
        }
    }

    /// Makes the store, or makes it again if its settings have changed. A new token alone is only passed on.
    async fn make(&mut self, role: Role) -> Result<(), Trouble> {
        let Some(resolved) = consul_class(&self.class) else { return Ok(()) };
        let resolved = resolved.map_err(|Refusal { reason, message }| Trouble { reason, message })?;
        // Without the Lease's uid, the operator can't tell which sessions belong to this installation.
        let Some(installation) = self.context.claim.borrow().installation.clone() else { return Ok(()) };
        let Some(made) = made(&resolved, &self.known, self.context.timeout)? else { return Ok(()) };
        let token = match &resolved.credentials {
            Credentials::Anonymous => None,
            Credentials::Secret(key) => match secret(&self.known, key)? {
                Some(token) => Some(String::from_utf8_lossy(token).trim().to_owned()),
                None => return Ok(()),
            },
            Credentials::Login { method, token_path } => {
                if self.login.is_none() {
                    self.login =
                        Some(log_in(&resolved.name, &self.context.connect, &made.settings, method, token_path).await?);
                }
                self.login.as_ref().map(|login| login.secret.clone())
            }
        };
        if let Some(store) = self.store.as_mut().filter(|store| store.made == made) {
            if store.token != token {
                store.client.set_token(token.as_deref()).map_err(|error| invalid_settings(&error))?;
                tracing::info!(class = resolved.name, "goes on with a new token");
                store.token = token;
                self.check = Instant::now();
            }
            return Ok(());
        }
        self.store = Some(Store::start(&self.id, made, token, &installation, role, &self.context)?);
        Ok(())
    }

    /// Writes the class's status if this replica acts and the status has changed.
    async fn write_status(&mut self) {
        if !matches!(self.context.claim.borrow().state, ClaimState::Acting(until) if monotonic() < until) {
            return;
        }
        let sessions = self.store.as_ref().map(|store| (&store.made.node, store.sessions.borrow().clone()));
        let store = sessions.as_ref().map(|(node, sessions)| (*node, sessions));
        let Some(status) = class_status(&self.class, &self.report, store, wall()) else { return };
        let classes = ElectionClasses::new(self.context.client.clone(), self.context.timeout);
        match classes.write_status(&self.class, &status).await {
            Ok(written) => self.class = written,
            // The watch is about to show the change.
            Err(None) => {}
            Err(Some(failure)) => tracing::debug!(class = self.name(), "{}", failure.text()),
        }
    }

    async fn farewell(mut self) {
        let destroy = self.leave.borrow().unwrap_or(true);
        let Some(mut store) = self.store.take() else { return };
        if destroy {
            let _ = store.role.send(Role::Leave);
            let _ = (&mut store.keeper).await;
        }
        if let Some(login) = self.login {
            let _ = store.client.logout(&login.secret).await;
        }
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

//! The task of one class, which keeps the class's store for as long as the class is served, whatever kind of store it is.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::ResourceExt;
use lictor_api::{ElectionClass, SecretId, SharedClass, shared_class};
use lictor_core::{ClaimState, Failure};
use lictor_locks::Role;
use lictor_locks::lease::ClaimUpdate;
use lictor_process::{monotonic, wall};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::class_store::{ClassStore, Context, News, Secrets, Trouble};
use super::condition::{Report, class_status};
use super::duty::Duty;
use crate::kubernetes::{ElectionClasses, SecretChange, watch_secrets};

/// How often the task checks that the store answers, besides the requests of elections.
const CHECK_PERIOD: Duration = Duration::from_secs(30);
/// The same period while something is wrong.
const CHECK_AGAIN: Duration = Duration::from_secs(2);

/// The task that keeps one class's store while the class is served.
pub(crate) struct Runner {
    /// What people call this kind of store.
    kind: &'static str,
    context: Context,
    classes: watch::Receiver<ElectionClass>,
    /// Set at the end: whether to destroy the sessions.
    leave: watch::Receiver<Option<bool>>,
    claim: watch::Receiver<ClaimUpdate>,
    class: ElectionClass,
    known: Secrets,
    secrets: BoxStream<'static, (SecretId, SecretChange)>,
    store: Box<dyn ClassStore>,
    duty: Duty,
    report: Report,
    /// When to check next that the store answers.
    check: Instant,
}

/// An event that a runner has to handle.
enum Happened {
    Store(News),
    Class,
    Secret(SecretId, SecretChange),
    Claim,
    CheckDue,
    DutyDue,
    Leave,
    /// The operator has ended.
    Orphaned,
}

impl Runner {
    /// Makes the task of a class. `leave` is set at the end and says whether to destroy the sessions.
    pub(crate) fn new(
        kind: &'static str,
        store: Box<dyn ClassStore>,
        context: Context,
        mut classes: watch::Receiver<ElectionClass>,
        leave: watch::Receiver<Option<bool>>,
    ) -> Self {
        let class = classes.borrow_and_update().clone();
        let secrets = shared(&class).map(|shared| shared.secrets()).unwrap_or_default();
        Self {
            kind,
            secrets: watch_secrets(&context.client, &context.own_namespace, secrets),
            claim: context.claim.clone(),
            context,
            classes,
            leave,
            class,
            known: Secrets::new(),
            store,
            duty: Duty::default(),
            report: Report::default(),
            check: Instant::now(),
        }
    }

    /// Runs until the class is no longer served.
    pub(crate) async fn run(mut self) {
        loop {
            let release_after = shared(&self.class).and_then(|shared| shared.release_after());
            let role = self.duty.role(&self.claim.borrow_and_update(), release_after);
            self.store.set_role(role);
            if let Err(trouble) = self.make(role).await {
                self.report.settings = Some(trouble);
                self.check = self.check.min(Instant::now() + CHECK_AGAIN);
            } else if self.report.settings.take().is_some() {
                self.check = Instant::now();
            }
            self.write_status().await;
            match self.next().await {
                Happened::Orphaned => return,
                Happened::Leave => {
                    let destroy = self.leave.borrow().unwrap_or(true);
                    return self.store.leave(destroy).await;
                }
                happened => self.take(happened).await,
            }
        }
    }

    async fn next(&mut self) -> Happened {
        let (waits, asks) = (self.duty.waits(), self.store.is_made() || self.report.settings.is_some());
        let until = self.duty.until().unwrap_or(self.check);
        tokio::select! {
            biased;
            _ = self.leave.changed() => Happened::Leave,
            changed = self.claim.changed() => if changed.is_ok() { Happened::Claim } else { Happened::Orphaned },
            changed = self.classes.changed() => if changed.is_ok() { Happened::Class } else { Happened::Orphaned },
            news = self.store.next() => Happened::Store(news),
            Some((secret, change)) = self.secrets.next() => Happened::Secret(secret, change),
            () = sleep_until(self.check), if asks => Happened::CheckDue,
            () = sleep_until(until), if waits => Happened::DutyDue,
        }
    }

    async fn take(&mut self, happened: Happened) {
        match happened {
            Happened::Store(News::Watched(failure)) => self.take_watched(failure),
            Happened::Store(News::Sessions(trouble, slow)) => self.take_sessions(trouble, slow),
            Happened::Store(News::CheckBy(at)) => self.check = self.check.min(at),
            Happened::Class => {
                let next = self.classes.borrow_and_update().clone();
                let secrets = |class| shared(class).map(|shared| shared.secrets()).unwrap_or_default();
                let (before, after) = (secrets(&self.class), secrets(&next));
                if before != after {
                    self.known.clear();
                    self.secrets = watch_secrets(&self.context.client, &self.context.own_namespace, after);
                }
                self.class = next;
            }
            Happened::Secret(secret, SecretChange::Present(data)) => drop(self.known.insert(secret, Some(data))),
            Happened::Secret(secret, SecretChange::Absent) => drop(self.known.insert(secret, None)),
            Happened::Secret(secret, SecretChange::Broken(failure)) => {
                tracing::warn!(class = self.class.name_any(), %secret, "{}", Failure::from(failure).text());
            }
            Happened::CheckDue => {
                if let Some(answer) = self.store.check().await {
                    self.report.check = Some(answer);
                }
                let period = if self.report.trouble().is_some() { CHECK_AGAIN } else { CHECK_PERIOD };
                self.check = Instant::now() + period;
            }
            Happened::Store(News::Ended)
            | Happened::Claim
            | Happened::DutyDue
            | Happened::Leave
            | Happened::Orphaned => {}
        }
    }

    fn take_watched(&mut self, failure: Option<String>) {
        if self.report.watch != failure {
            self.log(failure.as_deref(), "the locks can be watched again");
            self.report.watch = failure;
            self.check = Instant::now();
        }
    }

    fn take_sessions(&mut self, trouble: Option<Trouble>, slow: Option<String>) {
        self.report.slow = slow;
        if self.report.sessions != trouble {
            self.log(trouble.as_ref().map(|trouble| trouble.message.as_str()), "the sessions are renewed again");
            self.report.sessions = trouble;
            self.check = Instant::now();
        }
    }

    fn log(&self, failure: Option<&str>, recovered: &str) {
        let class = self.class.name_any();
        if let Some(failure) = failure {
            tracing::warn!(class, "{failure}");
        } else {
            tracing::info!(class, "{recovered}");
        }
    }

    /// Makes the store, or makes it again if its settings have changed.
    async fn make(&mut self, role: Role) -> Result<(), Trouble> {
        let Some(shared) = shared_class(&self.class) else { return Ok(()) };
        let shared = shared?;
        // Without the Lease's uid, the operator can't tell which sessions belong to this installation.
        let Some(installation) = self.context.claim.borrow().installation.clone() else { return Ok(()) };
        if self.store.make(&shared, &self.known, &installation, role).await? {
            self.check = Instant::now();
        }
        Ok(())
    }

    /// Writes the class's status if this replica acts and the status has changed.
    async fn write_status(&mut self) {
        if !matches!(self.context.claim.borrow().state, ClaimState::Acting(until) if monotonic() < until) {
            return;
        }
        let describe = |status: &mut _| self.store.describe(status);
        let Some(status) = class_status(&self.class, &self.report, self.kind, describe, wall()) else { return };
        let classes = ElectionClasses::new(self.context.client.clone(), self.context.timeout);
        match classes.write_status(&self.class, &status).await {
            Ok(written) => self.class = written,
            // The watch is about to show the change.
            Err(None) => {}
            Err(Some(failure)) => tracing::debug!(class = self.class.name_any(), "{}", failure.text()),
        }
    }
}

/// What a valid class says of its store.
fn shared(class: &ElectionClass) -> Option<SharedClass> {
    shared_class(class)?.ok()
}

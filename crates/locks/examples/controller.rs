//! A controller of kube-rs of which several replicas run, and one reconciles: it writes a greeting into each ConfigMap with the label
//! `greeting`.
//!
//! ```text
//! controller NAMESPACE NAME
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt};
use lictor_locks::{Elector, Ended, Leadership};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (namespace, name) = arguments.next().zip(arguments.next()).ok_or("write: controller NAMESPACE NAME")?;
    let client = Client::try_default().await?;
    let elector = Elector::lease(client.clone(), &namespace, "greeter")
        .identity(name)
        .duration(Duration::from_secs(5))?
        .on_leader(|_| println!("leads"))
        .on_follower(|| println!("follows"));
    let (asked, mut terminated) = (elector.clone(), signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        terminated.recv().await;
        asked.stop();
    });
    match elector.run(|leadership| control(client.clone(), namespace.clone(), leadership)).await {
        // The lock is released, and another replica leads.
        Err(Ended::Stopped) => Ok(()),
        Err(ended) => Err(ended.into()),
        Ok(()) => Err("the controller has ended".into()),
    }
}

/// What a reconciliation needs.
struct Context {
    client: Client,
    leadership: Leadership,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("another replica leads")]
    Over,
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

/// Reconciles while this replica leads. When the future is dropped, the controller aborts the reconciliations under way.
async fn control(client: Client, namespace: String, leadership: Leadership) {
    let greetings: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let context = Arc::new(Context { client, leadership });
    let controller = Controller::new(greetings, watcher::Config::default().labels("greeting"));
    controller.run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), context).for_each(async |_| {}).await;
}

async fn reconcile(greeting: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Failure> {
    let term = context.leadership.term().0;
    let data = greeting.data.clone().unwrap_or_default();
    if data.get("term").and_then(|seen| seen.parse().ok()).is_some_and(|seen: i64| seen > term) {
        return Err(Failure::Over);
    }
    let mut new = (*greeting).clone();
    let greeting = format!("hello, {}", new.name_any());
    new.data.get_or_insert_default().extend([("greeting".to_owned(), greeting), ("term".to_owned(), term.to_string())]);
    if new.data.as_ref() != Some(&data) {
        let greetings: Api<ConfigMap> = Api::namespaced(context.client.clone(), &new.namespace().unwrap_or_default());
        // Right before the side effect. If it is late all the same, it can't replace what a later leader has written, whose version it does
        // not name.
        if !context.leadership.is_valid() {
            return Err(Failure::Over);
        }
        greetings.replace(&new.name_any(), &PostParams::default(), &new).await?;
    }
    Ok(Action::await_change())
}

//! The classes for whose elections no operator acts, kept up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use lictor_api::{BUILT_IN_CLASS, DEFAULT_CONTROLLER};
use serde::Serialize;
use tokio::sync::watch::Sender;
use tokio::time::sleep;

use crate::cli::user::acting::idle_controllers;
use crate::cli::user::reading::Reader;

/// How often to look.
const PERIOD: Duration = Duration::from_secs(5);

/// The classes for whose elections no operator acts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Operators {
    /// Why no operator acts, by the name of the class.
    pub(super) idle: BTreeMap<String, String>,
    /// Why it can't be seen whether an operator acts.
    pub(super) unknown: Option<String>,
}

/// Keeps up to date whether an operator acts.
pub(super) async fn follow(reader: &Reader, publish: Sender<Operators>) -> Infallible {
    loop {
        let now = look(reader).await;
        publish.send_if_modified(|told| std::mem::replace(told, now.clone()) != now);
        sleep(PERIOD).await;
    }
}

async fn look(reader: &Reader) -> Operators {
    // Without the right to read classes, only the built-in one is known.
    let classes = reader.classes().await.unwrap_or_default();
    let built_in = (BUILT_IN_CLASS.to_owned(), DEFAULT_CONTROLLER.to_owned());
    let classes = classes.into_iter().map(|(name, class)| (name, class.spec.controller));
    let served: BTreeMap<String, String> = [built_in].into_iter().chain(classes).collect();
    let controllers: BTreeSet<&str> = served.values().map(String::as_str).collect();
    match idle_controllers(reader, &controllers).await {
        Ok(idle) => {
            let why = |(class, controller): (&String, &String)| Some((class.clone(), idle.get(controller)?.clone()));
            Operators { idle: served.iter().filter_map(why).collect(), unknown: None }
        }
        Err(why) => Operators { unknown: Some(why), ..Operators::default() },
    }
}

//! The state that all requests of the page share.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

use super::operators::Operators;
use crate::cli::user::reading::Reader;

/// The state that each request can use.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) reader: Arc<Reader>,
    pub(super) about: Arc<About>,
    /// All elections as JSON. `None`: the API server has not answered yet.
    pub(super) overview: watch::Receiver<Option<Arc<str>>>,
    pub(super) operators: watch::Receiver<Operators>,
}

/// The cluster that the page shows, and the user who reads it.
#[derive(Debug, Serialize)]
pub(super) struct About {
    /// The context of the kubeconfig.
    context: Option<String>,
    /// The user, as the API server knows them.
    user: Option<String>,
    /// The namespace, or all of them, in words.
    scope: String,
    #[serde(skip)]
    pub(super) namespace: Option<String>,
}

impl About {
    /// Creates it. `namespace`: `None` for all of them.
    pub(super) fn new(context: Option<String>, user: Option<String>, namespace: Option<String>) -> Self {
        let scope = namespace.as_ref().map_or_else(|| "in all namespaces".into(), |name| format!("in {name}"));
        Self { context, user, scope, namespace }
    }
}

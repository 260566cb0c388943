//! One watch of the API server: it lists, follows the changes after the list, and lists again when it loses track.
//!
//! kube's own watcher does the same, but hides the list's version. That version decides about an object that the list lacks but
//! that the answer to another request has shown: it is gone, or it was created after the list.

use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, unfold};
use futures::{FutureExt, StreamExt};
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::core::Status;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use lictor_core::Version;

use super::{WatchFailure, watch_failure, within};

/// A report of a watch.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// All objects in this namespace, or in the cluster with `None`, as of a version. An object known at a later version is newer.
    All(Option<String>, Version, Vec<T>),
    /// The versions have gone back, because the API server's store was put back to an earlier state. A new list follows.
    Rewound(Option<String>),
    /// An object that is new or changed.
    Applied(T),
    /// An object that is gone.
    Deleted(T),
    /// The watch does not work at present, and is retried. Then a list or `Resumed` follows.
    Broken(Option<String>, WatchFailure),
    /// The watch works again, and has missed nothing.
    Resumed(Option<String>),
}

/// How long the API server keeps a watch open.
const LENGTH: Duration = Duration::from_secs(20);
/// A watch that stays silent for this long after its end is dead.
const SILENCE: Duration = Duration::from_secs(5);
/// How long an answer may take to begin. It bounds the time until a dead connection is noticed.
const LIMIT: Duration = Duration::from_secs(25);
const PAGE: u32 = 500;
/// The page size for objects of which there may be very many. Such a page has some megabytes. With smaller pages, a list takes longer,
/// because the API server has some work for each page.
pub const LARGE_PAGE: u32 = 2000;
/// The first pause after a failure. It is short, because a failover must not wait for long after the API server is back.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// The statuses of answers to a watch request after which only a new list helps: the version is too old, or the resource is gone because
/// its CRD was deleted.
const TO_LIST_AGAIN: [u16; 2] = [410, 404];
/// The status of an event that says the version is too old.
const GONE: u16 = 410;

/// Watches for as long as a receiver listens. `resource` is the name that RBAC uses, `scope` the namespace of `api`, `selection` selects by
/// labels or fields, and `read` takes from each object what matters.
pub fn changes<K, T>(
    resource: &'static str,
    scope: Option<String>,
    api: Api<K>,
    selection: ListParams,
    read: impl Fn(K) -> T + Send + 'static,
) -> BoxStream<'static, Change<T>>
where
    K: ResourceExt + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Send + 'static,
{
    changes_in_pages(
        Pages { list: |api, page| api.list(page).boxed(), size: PAGE },
        resource,
        scope,
        api,
        selection,
        read,
    )
}

/// A page of a list that is under way.
pub type Page<'a, K> = BoxFuture<'a, kube::Result<ObjectList<K>>>;

/// The way to read a list: one function and a number of objects at a time.
pub struct Pages<K: Clone> {
    /// Lists one page.
    pub list: for<'a> fn(&'a Api<K>, &'a ListParams) -> Page<'a, K>,
    /// The number of objects on a page. After a failure, a page has no more than usual.
    pub size: u32,
}

/// Watches in the same way, but reads lists by these pages.
pub fn changes_in_pages<K, T>(
    pages: Pages<K>,
    resource: &'static str,
    scope: Option<String>,
    api: Api<K>,
    selection: ListParams,
    read: impl Fn(K) -> T + Send + 'static,
) -> BoxStream<'static, Change<T>>
where
    K: ResourceExt + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Send + 'static,
{
    let (state, newest) = (State::Unlisted, Version::default());
    let (failures, broken, doubts) = (0, false, false);
    let watch = ListWatch { pages, resource, scope, api, selection, read, state, newest, failures, broken, doubts };
    let changes = unfold(watch, |mut watch| async move {
        let change = watch.next().await;
        Some((change, watch))
    });
    changes.boxed()
}

struct ListWatch<K: Clone, F> {
    pages: Pages<K>,
    resource: &'static str,
    scope: Option<String>,
    api: Api<K>,
    selection: ListParams,
    read: F,
    state: State<K>,
    /// The highest version so far.
    newest: Version,
    /// The number of failures in a row.
    failures: u32,
    /// Whether the last report to the receiver was that the watch does not work.
    broken: bool,
    /// Whether the API server may have restarted on a store that was put back to an earlier state. Such a server would silently wait
    /// for the version after which the watch continues, and leave out what comes before it.
    doubts: bool,
}

enum State<K> {
    Unlisted,
    /// The list is complete, and the watch is to begin or continue after this version.
    Listed(Version),
    Watching(Version, BoxStream<'static, kube::Result<WatchEvent<K>>>),
}

impl<K, F> ListWatch<K, F>
where
    K: ResourceExt + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next<T>(&mut self) -> Change<T>
    where
        F: Fn(K) -> T,
    {
        if let Some(doublings) = self.failures.checked_sub(1) {
            sleep(FIRST_PAUSE.saturating_mul(1 << doublings.min(8)).min(LONGEST_PAUSE)).await;
        }
        loop {
            let told = match std::mem::replace(&mut self.state, State::Unlisted) {
                State::Unlisted => self.list().await.map_err(|error| ("list", error)).map(Some),
                State::Listed(version) => match self.begin(version).await {
                    Ok(()) if self.broken && matches!(self.state, State::Watching(..)) => {
                        // The pause before the next attempt is over only when an event arrived.
                        self.broken = false;
                        return Change::Resumed(self.scope.clone());
                    }
                    begun => begun.map(|()| None).map_err(|error| ("watch", error)),
                },
                State::Watching(version, events) => {
                    self.follow(version, events).await.map_err(|error| ("watch", error))
                }
            };
            match told {
                Ok(None) => {}
                Ok(Some(change)) => {
                    (self.failures, self.broken) = (0, false);
                    return change;
                }
                Err((verb, error)) => {
                    (self.doubts, self.broken) = (true, true);
                    self.failures = self.failures.saturating_add(1);
                    let failure = watch_failure(verb, self.resource, &error);
                    return Change::Broken(self.scope.clone(), failure);
                }
            }
        }
    }

    /// Lists everything as of one version.
    async fn list<T>(&mut self) -> kube::Result<Change<T>>
    where
        F: Fn(K) -> T,
    {
        let size = if self.failures == 0 { self.pages.size } else { self.pages.size.min(PAGE) };
        let mut page = self.selection.clone().limit(size);
        let (mut all, mut version) = (Vec::new(), None);
        loop {
            let list = within(LIMIT, (self.pages.list)(&self.api, &page)).await?;
            let version = *version.get_or_insert(version_of_list(&list)?);
            all.extend(list.items.into_iter().map(&self.read));
            page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_some() {
                continue;
            }
            if version < self.newest {
                // The receiver forgets its knowledge, and this lists again.
                self.newest = Version::default();
                return Ok(Change::Rewound(self.scope.clone()));
            }
            (self.newest, self.doubts) = (version, false);
            self.state = State::Listed(version);
            return Ok(Change::All(self.scope.clone(), version, all));
        }
    }

    async fn begin(&mut self, version: Version) -> kube::Result<()> {
        if self.doubts {
            let now = within(LIMIT, self.api.list(&self.selection.clone().limit(1))).await;
            let now = now.inspect_err(|_| self.state = State::Listed(version))?.metadata.resource_version;
            if now.and_then(|now| now.parse().ok()).is_none_or(|now| Version(now) < version) {
                return Ok(());
            }
        }
        // This stays set until an event arrives.
        self.doubts = true;
        let ListParams { label_selector, field_selector, .. } = self.selection.clone();
        let seconds = u32::try_from(LENGTH.as_secs()).ok();
        let parameters = WatchParams { label_selector, field_selector, timeout: seconds, ..WatchParams::default() };
        match within(LIMIT, self.api.watch(&parameters, &version.to_string())).await {
            Ok(events) => self.state = State::Watching(version, events.boxed()),
            Err(error) => {
                if !matches!(&error, kube::Error::Api(status) if TO_LIST_AGAIN.contains(&status.code)) {
                    self.state = State::Listed(version);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the next event, or `None` if there is nothing to report.
    async fn follow<T>(
        &mut self,
        version: Version,
        mut events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
    ) -> kube::Result<Option<Change<T>>>
    where
        F: Fn(K) -> T,
    {
        let Ok(Some(event)) = timeout(LENGTH + SILENCE, events.next()).await else {
            self.state = State::Listed(version);
            return Ok(None);
        };
        let (at, change) = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                (super::version_of(&object), Some(Change::Applied((self.read)(object))))
            }
            Ok(WatchEvent::Deleted(object)) => (super::version_of(&object), Some(Change::Deleted((self.read)(object)))),
            Ok(WatchEvent::Bookmark(mark)) => {
                (Version(mark.metadata.resource_version.parse().unwrap_or(version.0)), None)
            }
            Ok(WatchEvent::Error(status)) if status.code == GONE => return Err(kube::Error::Api(status)),
            Ok(WatchEvent::Error(status)) => {
                self.state = State::Watching(version, events);
                return Err(kube::Error::Api(status));
            }
            Err(error) => {
                self.state = State::Watching(version, events);
                return Err(error);
            }
        };
        if at == Version::default() {
            return Err(invalid("an object without a version"));
        }
        if at < version {
            // A watch never goes back by itself. A new list shows the present state.
            return Ok(None);
        }
        self.doubts = false;
        self.newest = self.newest.max(at);
        self.state = State::Watching(at, events);
        Ok(change)
    }
}

/// Lists all selected objects, as of the version that is returned. This is a consistent read that begins after this call.
///
/// # Errors
/// If there is no answer within `limit`, a refusal, or an answer without a version.
pub async fn list_at<K>(limit: Duration, api: &Api<K>, selection: &ListParams) -> kube::Result<(Version, Vec<K>)>
where
    K: Clone + DeserializeOwned + Debug,
{
    let list = within(limit, api.list(selection)).await?;
    Ok((version_of_list(&list)?, list.items))
}

fn version_of_list<K: Clone>(list: &ObjectList<K>) -> kube::Result<Version> {
    let version = list.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    version.map(Version).ok_or_else(|| invalid("a list without a version"))
}

/// Creates the error for an answer from which the watch can't continue.
fn invalid(what: &str) -> kube::Error {
    kube::Error::Api(Status::failure(what, "Invalid").boxed())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::{BodyExt, Full, StreamBody};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_a_page_is_not_large() {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let seen = sizes.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let size = query.split('&').find_map(|part| part.strip_prefix("limit=")).unwrap_or_default().to_owned();
            let mut seen = seen.lock().unwrap();
            seen.push(size);
            let (code, answer) = match seen.len() {
                1 => (StatusCode::GATEWAY_TIMEOUT, json!({})),
                _ => (StatusCode::OK, json!({"metadata": {"resourceVersion": "7"}, "items": []})),
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap();
            async { Ok::<_, Infallible>(answer) }
        });
        let api: Api<ConfigMap> = Api::all(Client::new(service, "shop"));
        let pages = Pages { list: |api, page| api.list(page).boxed(), size: LARGE_PAGE };
        let mut watch = changes_in_pages(pages, "configmaps", None, api, ListParams::default(), |_| ());
        assert!(matches!(watch.next().await, Some(Change::Broken(None, _))));
        assert!(matches!(watch.next().await, Some(Change::All(None, Version(7), _))));
        assert_eq!(*sizes.lock().unwrap(), [LARGE_PAGE.to_string(), PAGE.to_string()]);
    }

    /// Of a right that is there again, or an API server that has answered wrongly for a moment.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_works_again_says_so_before_anything_changes() {
        let watches = Arc::new(Mutex::new(0));
        let service = tower::service_fn(move |request: Request<Body>| {
            let list = json!({"metadata": {"resourceVersion": "7"}, "items": []});
            let refusal = json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no right"});
            let (code, body) = if request.uri().query().unwrap_or_default().contains("watch=true") {
                let mut watches = watches.lock().unwrap();
                *watches += 1;
                let quiet = futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>();
                match *watches {
                    1 => (StatusCode::FORBIDDEN, Full::from(refusal.to_string()).boxed_unsync()),
                    _ => (StatusCode::OK, StreamBody::new(quiet).boxed_unsync()),
                }
            } else {
                (StatusCode::OK, Full::from(list.to_string()).boxed_unsync())
            };
            let answer = Response::builder().status(code).body(body).unwrap();
            async { Ok::<_, Infallible>(answer) }
        });
        let api: Api<ConfigMap> = Api::all(Client::new(service, "shop"));
        let mut watch = changes("configmaps", None, api, ListParams::default(), |_| ());
        assert!(matches!(watch.next().await, Some(Change::All(None, Version(7), _))));
        assert!(matches!(watch.next().await, Some(Change::Broken(None, WatchFailure::Forbidden(_)))));
        assert!(matches!(watch.next().await, Some(Change::Resumed(None))));
    }
}

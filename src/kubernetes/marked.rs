//! The pods that carry a label, by the election that has marked them. When the operator starts, each group asks for this, and a label such
//! as `role: leader` is on a pod of every group. So all groups that ask before a listing is sent share it, and it has only the name and the
//! mark of each pod.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lictor_core::Selector;

use super::batcher::{Answer, Batcher};
use super::pods::{Marked, Pods, as_text};

/// A listing that all its callers wait for.
pub type Listing = Answer<Arc<ByElection>>;

/// The names of the pods that each election has marked.
pub type ByElection = HashMap<String, Vec<String>>;

/// Shares listings.
#[derive(Clone)]
pub struct MarkedPods {
    pods: Pods,
    asked: Batcher<(), Arc<ByElection>>,
}

impl MarkedPods {
    /// Creates the listings.
    pub fn new(pods: Pods) -> Self {
        Self { pods, asked: Batcher::default() }
    }

    /// Returns the listing of the pods that a selector matches. Its first request is sent after this call, once it is awaited, and waits no
    /// longer for other callers than `patience`. With `None`, it goes before the patient ones.
    pub fn ask(&self, namespace: &str, selector: &Selector, patience: Option<Duration>) -> Listing {
        let (pods, selector) = (self.pods.clone(), as_text(selector));
        let (place, of) = (format!("{namespace} {selector}"), namespace.to_owned());
        self.asked.ask(namespace, &place, (), patience, move |_| async move {
            pods.list_marked(&of, &selector).await.map(by_election)
        })
    }
}

fn by_election(listed: Marked) -> Arc<ByElection> {
    let mut marked = ByElection::new();
    for (election, pod) in listed {
        marked.entry(election).or_default().push(pod);
    }
    Arc::new(marked)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::Semaphore;

    use super::*;

    /// An API server that answers as often as it is let to, each time in two pages.
    fn served(requests: Arc<AtomicUsize>, answers: Arc<Semaphore>) -> MarkedPods {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (requests, answers) = (requests.clone(), answers.clone());
            async move {
                requests.fetch_add(1, Ordering::SeqCst);
                answers.acquire().await.unwrap().forget();
                assert!(request.headers()["accept"].to_str().unwrap().contains("PartialObjectMetadataList"));
                let last = request.uri().query().unwrap().contains("continue=more");
                let pod = |name: &str, by: &str| json!({"metadata": {"name": name, "annotations": {"a": "b", "lictor.dev/election": by}, "managedFields": []}});
                // So the API server answers where nothing matches.
                let page = if request.uri().path().contains("/empty/") {
                    json!({"metadata": {}, "items": null})
                } else if last {
                    json!({"metadata": {}, "items": [pod("p2", "web"), {"metadata": {"name": "p3"}}]})
                } else {
                    json!({"metadata": {"continue": "more"}, "items": [pod("p0", "web"), pod("p1", "db")]})
                };
                Ok::<_, Infallible>(Response::new(Body::from(page.to_string().into_bytes())))
            }
        });
        MarkedPods::new(Pods::new(Client::new(service, "shop"), Duration::from_secs(5)))
    }

    #[tokio::test]
    async fn who_asks_before_a_listing_is_sent_shares_it_and_who_asks_later_does_not() {
        let (requests, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let pods = served(requests.clone(), answers.clone());
        let leaders = Selector { match_labels: [("role".into(), "leader".into())].into(), ..Selector::default() };
        let first: Vec<Listing> = (0..3).map(|_| pods.ask("shop", &leaders, None)).collect();
        assert_eq!(requests.load(Ordering::SeqCst), 0, "nobody waits yet");
        let waiting = tokio::spawn(futures::future::join_all(first));
        while requests.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let later = [pods.ask("shop", &leaders, None), pods.ask("shop", &leaders, None)];
        answers.add_permits(4);
        for listed in waiting.await.unwrap().into_iter().chain(futures::future::join_all(later).await) {
            let listed = listed.unwrap();
            assert_eq!((&listed["web"], &listed["db"]), (&vec!["p0".to_owned(), "p2".into()], &vec!["p1".to_owned()]));
        }
        assert_eq!(requests.load(Ordering::SeqCst), 4, "two listings of two pages");

        answers.add_permits(1);
        assert!(pods.ask("empty", &leaders, None).await.unwrap().is_empty());
    }
}

//! The pods that groups select, listed for all groups together that ask at the same time. For each list, the API server looks through all
//! pods of the namespace, so ten thousand groups that begin at once would keep it busy for minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lictor_core::{Failure, Pod, Selector};

use super::batcher::Batcher;
use super::pods::{Pods, as_text};

/// Lists pods. Clones share their lists.
#[derive(Clone)]
pub struct MatchingPods {
    pods: Pods,
    asked: Batcher<Selector, Arc<Vec<Pod>>>,
}

impl MatchingPods {
    /// Creates the lists.
    pub fn new(pods: Pods) -> Self {
        Self { pods, asked: Batcher::default() }
    }

    /// Lists the pods that any of the selectors matches. This is a consistent read that begins after this call. It waits no longer for
    /// other groups to ask than `patience`. With `None`, it goes before the patient ones.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn list(
        &self,
        namespace: &str,
        selectors: &[Selector],
        patience: Option<Duration>,
    ) -> Result<Vec<Pod>, Failure> {
        let mut found = BTreeMap::new();
        for selector in selectors {
            let matching: Vec<Pod> = match self.together(namespace, &kind(selector), selector, patience).await {
                // The API server may have refused the selector of another group.
                Err(failure) if failure.is_refused() => {
                    let alone = format!("alone {}", as_text(selector));
                    self.together(namespace, &alone, selector, patience.map(|_| Duration::ZERO)).await?.to_vec()
                }
                listed => listed?.iter().filter(|pod| selector.matches(&pod.labels)).cloned().collect(),
            };
            found.extend(matching.into_iter().map(|pod| (pod.uid.clone(), pod)));
        }
        Ok(found.into_values().collect())
    }

    /// Shares a list with all callers that ask for this kind of selector.
    async fn together(
        &self,
        namespace: &str,
        kind: &str,
        selector: &Selector,
        patience: Option<Duration>,
    ) -> Result<Arc<Vec<Pod>>, Failure> {
        let place = format!("{namespace} {kind}");
        let (pods, of_these) = (self.pods.clone(), namespace.to_owned());
        let send = |of: Vec<Selector>| async move { pods.list_by(&of_these, &all_of(&of)).await.map(Arc::new) };
        self.asked.ask(namespace, &place, selector.clone(), patience, send).await
    }
}

/// The common form of selectors that can be asked for together: they require some value of the same labels, and nothing else.
fn kind(selector: &Selector) -> String {
    let Selector { match_labels, match_expressions } = selector;
    if match_expressions.is_empty() && match_labels.iter().all(|(_, value)| !value.is_empty()) {
        // The text of a selector never begins like this.
        format!("= {}", match_labels.keys().collect::<Vec<_>>().join(","))
    } else {
        as_text(selector)
    }
}

/// Returns, in the form of a query, a selector of all pods that any of these selectors of one kind matches, and perhaps of more.
fn all_of(selectors: &[Selector]) -> String {
    let Some(first) = selectors.first() else { return String::new() };
    if selectors.iter().all(|selector| selector == first) {
        return as_text(first);
    }
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in selectors.iter().flat_map(|selector| &selector.match_labels) {
        values.entry(key).or_default().insert(value);
    }
    let any = values.into_iter().map(|(key, values)| format!("{key} in ({})", Vec::from_iter(values).join(",")));
    any.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use http::{Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::Semaphore;

    use super::*;

    type Asked = Arc<Mutex<Vec<String>>>;

    /// An API server that answers as often as it is let to, by all that it has, and refuses selectors with this in them.
    fn served(answers: Arc<Semaphore>, refused: &'static str) -> (MatchingPods, Asked) {
        let asked = Asked::default();
        let seen = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (answers, seen) = (answers.clone(), seen.clone());
            async move {
                let query = request.uri().query().unwrap().replace("%2C", ",").replace("%3D", "=").replace('+', " ");
                let query = query.replace("%28", "(").replace("%29", ")");
                let selector = query.rsplit_once("labelSelector=").unwrap().1.split('&').next().unwrap().to_owned();
                seen.lock().unwrap().push(selector.clone());
                answers.acquire().await.unwrap().forget();
                let pod =
                    |name: &str, labels: Value| json!({"metadata": {"name": name, "uid": name, "labels": labels}});
                let (code, answer) = if !refused.is_empty() && selector.contains(refused) {
                    (
                        StatusCode::BAD_REQUEST,
                        json!({"kind": "Status", "status": "Failure", "code": 400, "reason": "BadRequest", "message": "no"}),
                    )
                } else {
                    let pods = [
                        pod("web-0", json!({"app": "web"})),
                        pod("db-0", json!({"app": "db"})),
                        pod("x", json!({"app": "x"})),
                    ];
                    (StatusCode::OK, json!({"metadata": {}, "items": pods}))
                };
                let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        (MatchingPods::new(Pods::new(Client::new(service, "shop"), Duration::from_secs(5))), asked)
    }

    fn selector(json: Value) -> Selector {
        serde_json::from_value(json).unwrap()
    }

    fn app(app: &str) -> Selector {
        selector(json!({"matchLabels": {"app": app}}))
    }

    /// Lists for each of these groups, the others while the first one's list is under way.
    async fn list(
        pods: &MatchingPods,
        asked: &Asked,
        answers: &Semaphore,
        apps: &[&str],
    ) -> Vec<Result<Vec<String>, Failure>> {
        let mut all = Vec::new();
        for one in apps {
            let (pods, selector) = (pods.clone(), app(one));
            all.push(tokio::spawn(async move { pods.list("shop", &[selector], None).await }));
            while asked.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(asked.lock().unwrap().len(), 1, "the others wait");
        answers.add_permits(100);
        let names = |listed: Vec<Pod>| listed.into_iter().map(|pod| pod.name).collect();
        let mut listed = Vec::new();
        for one in all {
            listed.push(one.await.unwrap().map(names));
        }
        listed
    }

    #[tokio::test]
    async fn groups_that_ask_at_the_same_time_share_a_list_and_each_gets_its_own_pods() {
        let answers = Arc::new(Semaphore::new(0));
        let (pods, asked) = served(answers.clone(), "");
        let listed = list(&pods, &asked, &answers, &["web", "db", "x", "none"]).await;
        let expected: [&[&str]; 4] = [&["web-0"], &["db-0"], &["x"], &[]];
        assert_eq!(listed.into_iter().collect::<Result<Vec<_>, _>>().unwrap(), expected);
        assert_eq!(*asked.lock().unwrap(), ["app=web", "app in (db,none,x)"]);
    }

    #[tokio::test]
    async fn what_is_refused_to_one_is_not_refused_to_the_others() {
        let answers = Arc::new(Semaphore::new(0));
        let (pods, asked) = served(answers.clone(), "bad");
        let listed = list(&pods, &asked, &answers, &["web", "bad", "x"]).await;
        assert!(matches!(&listed[1], Err(Failure::Refused(_))), "{listed:?}");
        assert_eq!(
            (listed[0].as_ref().unwrap().len(), listed[2].as_ref().unwrap().len()),
            (1, 3),
            "the server says what matches"
        );
        // What is refused is asked for twice: as JSON, it says why.
        assert_eq!(asked.lock().unwrap().len(), 6);
    }

    #[test]
    fn only_values_of_the_same_labels_are_asked_for_together() {
        let both = |app: &str, tier: &str| selector(json!({"matchLabels": {"app": app, "tier": tier}}));
        assert_eq!(kind(&both("a", "b")), kind(&both("c", "d")));
        assert_eq!(all_of(&[both("a", "b"), both("c", "b")]), "app in (a,c),tier in (b)");
        assert_eq!(all_of(&[app("a"), app("a")]), "app=a");
        let others = [
            json!({"matchLabels": {"app": ""}}),
            json!({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}),
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}),
            json!({"matchLabels": {"tier": "a"}}),
            json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        ];
        for other in others.into_iter().map(selector) {
            assert_ne!(kind(&other), kind(&app("a")), "{other:?}");
            assert_eq!(all_of(std::slice::from_ref(&other)), as_text(&other));
        }
    }
}

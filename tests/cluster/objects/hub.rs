//! Two clusters whose locks are in a third one, a real API server with the rights that docs/hub.md names.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lictor_objects::{Listed, Objects, Put, Tag};
use lictor_testing::kubernetes::{Cluster, Lab, eventually};
use lictor_testing::{Disturbance, Link, Stream};
use serde_json::{Value, json};

use super::across::{TTL, cut_off, there_and_back, within};
use crate::consul::failures::{Side, kept_their_promises, two};
use crate::consul::member::Member;

/// A namespace of the hub, set up as docs/hub.md says.
struct Hub(Lab);

impl Hub {
    async fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let hub = Lab::of(Cluster::second(), &format!("hub-{number}")).await;
        let blocks = include_str!("../../../docs/hub.md").split("```").filter_map(|block| block.strip_prefix("yaml\n"));
        let setup = blocks.into_iter().find(|block| block.contains("kind: Role\n")).expect("the page sets a hub up");
        let setup = setup.replace("lictor-locks", &hub.namespace);
        hub.try_kubectl(&["apply", "-f", "-"], Some(&setup)).unwrap_or_else(|error| panic!("{error}"));
        Self(hub)
    }

    fn cluster() -> Value {
        let text = std::fs::read_to_string(Cluster::second().kubeconfig()).expect("there is a kubeconfig");
        let kubeconfig: Value = serde_saphyr::from_str(&text).expect("YAML");
        kubeconfig["clusters"][0]["cluster"].clone()
    }

    /// Returns the socket of the API server.
    fn socket() -> String {
        let server = Self::cluster()["server"].as_str().expect("a server").to_owned();
        server.trim_start_matches("https://").replace("localhost", "127.0.0.1")
    }

    /// Returns a kubeconfig of the account that the page sets up, which reaches the hub by this socket.
    async fn kubeconfig(&self, socket: &str) -> String {
        let token = eventually("the account has a token", || async {
            let token =
                self.0.try_kubectl(&["get", "secret", "west", "-ogo-template={{.data.token | base64decode}}"], None)?;
            if token.starts_with("ey") { Ok(token) } else { Err(token) }
        })
        .await;
        let secret = "-ogo-template={{index .data \"ca.crt\"}}";
        let authority = self.0.try_kubectl(&["get", "secret", "west", secret], None).expect("it has an authority");
        let cluster = json!({"server": format!("https://{socket}"), "certificate-authority-data": authority});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "hub",
            "clusters": [{"name": "hub", "cluster": cluster}], "users": [{"name": "west", "user": {"token": token}}],
            "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "west"}}],
        })
        .to_string()
    }

    /// Creates a cluster that reaches the hub by this socket.
    async fn member(&self, test: &str, cluster: &str, socket: &str, stops: &str) -> Member {
        let kubeconfig = self.kubeconfig(socket).await;
        self.member_by(test, cluster, &kubeconfig, stops).await
    }

    async fn member_by(&self, test: &str, cluster: &str, kubeconfig: &str, stops: &str) -> Member {
        let lab = Lab::new(&format!("{test}-{cluster}")).await;
        keep(&lab, kubeconfig);
        let fields = json!({
            "namespace": self.0.namespace, "clusterName": cluster,
            "kubeconfigSecretRef": {"namespace": lab.namespace, "name": "hub"},
            "sessions": {"ttlSeconds": TTL.as_secs(), "pollSeconds": 1}, "whenOperatorStops": stops,
        });
        Member::in_store(lab, test, cluster, "hub", fields).await
    }
}

/// Puts a kubeconfig into the Secret.
fn keep(lab: &Lab, kubeconfig: &str) {
    let data = json!({"kubeconfig": kubeconfig});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": data});
    lab.try_kubectl(&["apply", "-f", "-"], Some(&secret.to_string())).expect("a Secret can be made");
}

/// Creates two clusters with a pod each: `a` in the west leads, and `b` in the east follows. A proxy can disturb the west's connections.
async fn clusters(test: &str) -> (Link, Side, Side) {
    clusters_that(test, "Hold").await
}

/// Creates them with this `whenOperatorStops`.
pub(super) async fn clusters_that(test: &str, stops: &str) -> (Link, Side, Side) {
    let (hub, socket) = (Hub::new().await, Hub::socket());
    let link = Link::to(&socket);
    let west = hub.member(test, "west", link.address(), stops).await;
    let east = hub.member(test, "east", &socket, stops).await;
    let (west, east) = two(west, east).await;
    let holders = "-ojsonpath={.items[*].spec.holderIdentity}";
    assert_eq!(hub.0.try_kubectl(&["get", "leases", holders], None).as_deref(), Ok("west"));
    (link, west, east)
}

/// The watch tells each change, so a move takes no look.
#[tokio::test(flavor = "multi_thread")]
async fn the_leadership_moves_to_the_other_cluster_and_back_at_once() {
    let (_link, west, east) = clusters("hub-across").await;
    let took = there_and_back(west, east).await;
    assert!(took.iter().all(|took| *took < 1000), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_cluster_leads_at_once_when_this_one_has_no_candidate_left() {
    let (_link, west, east) = clusters("hub-release").await;
    let began = Instant::now();
    west.member.lab.kill_pod("a").await;
    east.member.lab.wait_leader("b").await;
    eprintln!("measured: the last pod is gone, the other cluster leads: {:.1} s", began.elapsed().as_secs_f64());
    assert!(began.elapsed() < TTL / 2, "{:?}", began.elapsed());
    assert_eq!(kept_their_promises(&[&west, &east]).await, 2);
}

/// Shows B3.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_loses_the_lock_to_the_other_cluster() {
    let (_link, west, east) = clusters("hub-killed").await;
    let began = Instant::now();
    west.operator.signal("KILL");
    east.member.lab.wait_leader("b").await;
    within("kill -9, the other cluster leads", began);
}

/// Shows B3.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_cut_off_gives_its_leader_up_before_another_one_leads() {
    tokio::join!(async { cut_off("hub-cut", clusters("hub-cut").await, None).await }, async {
        let mute = Some((Stream::Down, Disturbance::Lost));
        cut_off("hub-mute", clusters("hub-mute").await, mute).await;
    },);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_class_says_what_is_wrong_with_its_kubeconfig_and_takes_a_better_one() {
    let (hub, socket) = (Hub::new().await, Hub::socket());
    let good = hub.kubeconfig(&socket).await;
    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut kubeconfig: Value = serde_json::from_str(&good).expect("JSON");
        edit(&mut kubeconfig["users"][0]["user"]);
        kubeconfig.to_string()
    };
    let program =
        edited(&|user| *user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "rm"}}));
    let member = hub.member_by("hub-wrong", "west", &program, "Hold").await;
    let _operator = member.operator(&[]);
    let message = member.wait_class("False", "InvalidSettings").await;
    assert!(message.contains("exec") && message.contains("--flatten"), "{message}");
    keep(&member.lab, "{");
    let wait = Duration::from_secs(30);
    let class = member.class.clone();
    let told = |reason: &str| {
        let condition = format!("--for=jsonpath={{.status.conditions[?(@.type==\"Ready\")].reason}}={reason}");
        let timeout = format!("--timeout={}s", wait.as_secs());
        member.lab.try_kubectl(&["wait", "electionclass", &class, &condition, &timeout], None).expect(reason);
    };
    keep(&member.lab, &edited(&|user| user["token"] = json!("x")));
    told("Refused");
    keep(&member.lab, &good);
    member.wait_class("True", "Answers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_class_says_which_right_its_account_lacks() {
    let (hub, socket) = (Hub::new().await, Hub::socket());
    let role = format!("role/{}", hub.0.namespace);
    let verbs = r#"[{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "create", "patch"]}]"#;
    hub.0.try_kubectl(&["patch", &role, "--type=json", "-p", verbs], None).expect("the Role can be changed");
    let member = hub.member("hub-rights", "west", &socket, "Hold").await;
    let _operator = member.operator(&[]);
    let message = member.wait_class("False", "Forbidden").await;
    assert!(message.contains("watch") && message.contains("docs/hub.md"), "{message}");
}

/// A listing and a read say the same of it, so the operator does not take the lock for deleted and for another program's in turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_annotations_a_person_takes_off_stays_the_object_that_it_was() {
    let lab = Lab::of(Cluster::second(), "hub-stripped").await;
    let hub = lictor_locks::Hub::new(lab.client.clone(), &lab.namespace, Duration::from_secs(5));
    let name = "locks/services/web.json";
    let Put::Done(tag) = hub.put(name, None, b"{}".to_vec()).await else { panic!("it can be created") };
    let strip = r#"{"metadata": {"annotations": null}}"#;
    let leases = lab.try_kubectl(&["get", "leases", "-oname"], None).expect("there is one");
    lab.try_kubectl(&["patch", leases.trim(), "--type=merge", "-p", strip], None).expect("it can be patched");
    let read = hub.get(name).await.expect("it answers").expect("the Lease is there");
    assert_eq!((read.content.as_slice(), read.tag == tag), (&b""[..], false));
    let listed = hub.list().await.expect("it answers");
    assert_eq!(listed, [Listed { name: name.into(), tag: read.tag.clone() }]);
    assert_eq!(hub.put(name, None, b"{}".to_vec()).await, Put::Conflict);
    // The API server takes an empty version for none.
    assert_eq!(hub.put(name, Some(&Tag(String::new())), b"{}".to_vec()).await, Put::Conflict);
    assert!(matches!(hub.put(name, Some(&read.tag), b"{}".to_vec()).await, Put::Done(_)));
    assert_eq!(hub.get(name).await.expect("it answers").expect("it is there").content, b"{}");
}

/// To a second class, the lock is another cluster's: that of the first one.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_moves_to_another_class_in_the_same_namespace_of_the_hub() {
    let (hub, socket) = (Hub::new().await, Hub::socket());
    let west = hub.member("hub-classes", "west", &socket, "Hold").await;
    let (west, _) = Side::led(west, &["a"]).await;
    let (lab, first) = (&west.member.lab, &west.member.class);
    let class = lab.try_kubectl(&["get", "electionclass", first, "-ojson"], None).expect("there is a class");
    let mut class: Value = serde_json::from_str(&class).expect("JSON");
    let second = format!("{first}-two");
    class["metadata"] = json!({"name": second});
    class["spec"]["hub"]["clusterName"] = json!("second");
    lab.try_kubectl(&["create", "-f", "-"], Some(&class.to_string())).expect("a class can be made");
    let moves = json!({"spec": {"className": second}}).to_string();
    lab.try_kubectl(&["patch", "leaderelection", "web", "--type=merge", "-p", &moves], None).expect("it can be moved");
    lab.wait_status("web", "it leads by the second class", |web| {
        let leader = web.status.as_ref().and_then(|status| status.leader.as_ref());
        leader.and_then(|leader| leader.cluster_name.as_deref()) == Some("second")
    })
    .await;
    lab.wait_leader("a").await;
    assert_eq!(kept_their_promises(&[&west]).await, 2);
    lab.try_kubectl(&["delete", "electionclass", &second, "--wait=false"], None).expect("it can be deleted");
}

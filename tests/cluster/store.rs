//! Locks in Leases: the contract of all stores on a real API server, and what users see of a lock.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use lictor::kubernetes::{Namespaces, connect};
use lictor::store::{LeaseStore, LockStore, Owner};
use lictor_core::{Failure, Key, RecordOutcome, Stored, Uid, Version};
use lictor_testing::contract::{World, record};
use lictor_testing::kubernetes::{Lab, PodSpec, Proxy, eventually};
use serde_json::json;

/// The limit of each request. It makes no test slower.
const LIMIT: Duration = Duration::from_secs(20);

struct Leases {
    lab: Lab,
    store: LeaseStore,
    owner: Owner,
}

impl Leases {
    async fn new(test: &str) -> Self {
        let lab = Lab::new(&test.replace('_', "-").chars().take(50).collect::<String>()).await;
        // No operator serves it. It exists, because Leases whose owner does not exist are garbage-collected.
        let election = lab.elect(json!({})).await;
        let owner = Owner {
            namespace: lab.namespace.clone(),
            name: "web".into(),
            uid: Uid(election.uid().expect("it has a uid")),
        };
        let store = LeaseStore::new(lab.client.clone(), Namespaces::new(vec![lab.namespace.clone()]), LIMIT);
        Self { lab, store, owner }
    }
}

impl World for Leases {
    fn store(&self) -> &dyn LockStore {
        &self.store
    }

    fn key(&self, name: &str) -> Key {
        Key::lease(&self.lab.namespace, name)
    }

    fn owner(&self) -> Owner {
        self.owner.clone()
    }

    async fn put_foreign(&self, key: &Key) {
        let lease = json!({"metadata": {"name": key.name}, "spec": {"holderIdentity": "somebody"}});
        let lease: Lease = serde_json::from_value(lease).expect("a Lease");
        self.lab.leases_api().create(&PostParams::default(), &lease).await.expect("a Lease can be made");
    }

    async fn damage(&self, key: &Key, way: usize) {
        let edit = match way {
            0 => json!({"metadata": {"annotations": {"lictor.dev/record": "{\"term\": 5, \"holder\""}}}),
            1 => json!({"metadata": {"annotations": {"lictor.dev/record": null}}}),
            2 => json!({"spec": {"holderIdentity": "b"}}),
            3 => json!({"spec": {"holderIdentity": null}}),
            4 => json!({"spec": {"leaseTransitions": 6}}),
            5 => json!({"spec": {"leaseTransitions": null}}),
            // One of its labels still identifies it.
            6 => json!({"metadata": {"annotations": {"lictor.dev/record": null},
                "labels": {"app.kubernetes.io/managed-by": null}}}),
            _ => json!({"metadata": {"annotations": {"lictor.dev/record": null},
                "labels": {"lictor.dev/election-uid": null}}}),
        };
        let edited = self.lab.leases_api().patch(&key.name, &PatchParams::default(), &Patch::Merge(edit)).await;
        edited.expect("a Lease can be edited");
    }

    const WAYS: usize = 8;
}

lictor_testing::contract!(Leases::new);

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_an_answer_is_unknown_and_counts_only_against_its_version() {
    let leases = Leases::new("unanswered").await;
    let (key, owner) = (leases.key("web"), leases.owner());
    let proxy = Proxy::start(leases.lab.cluster).await;
    let client = connect(Some(proxy.kubeconfig()), LIMIT).await.expect("the proxy is there");
    let impatient = LeaseStore::new(client, Namespaces::default(), Duration::from_millis(200));
    let write = async |store: &LeaseStore, expected, term| {
        store.write(&key, &owner, expected, &record(&owner, term, Some("a"))).await
    };
    let RecordOutcome::Written(first) = write(&leases.store, None, 1).await else { panic!("not written") };
    proxy.hold(|asked| asked.method == "PATCH");
    // Some requests may be cancelled before they arrive at the proxy, which is another way to get no answer.
    while proxy.holding() < 2 {
        let outcome = write(&impatient, Some(first), 2).await;
        assert!(matches!(outcome, RecordOutcome::Failed(Failure::Unknown(_))), "{outcome:?}");
    }
    let stored = leases.store.read(&key).await;
    assert_eq!(stored, Ok(Stored::Ours(first, record(&owner, 1, Some("a")))));
    let statuses: Vec<u16> = proxy.deliver_late().await.iter().map(|answer| answer.status).collect();
    assert!(statuses[0] == 200 && statuses[1..].iter().all(|status| *status == 409), "{statuses:?}");
    let stored = leases.store.read(&key).await.expect("it can be read");
    assert_eq!(stored.record(), Some(&record(&owner, 2, Some("a"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_the_leader_and_the_term_in_the_lease() {
    let lab = Lab::new("lease-shown").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    let election = lab.elect(json!({})).await;
    lab.wait_leader("a").await;
    let table = lab.try_kubectl(&["get", "lease", "web"], None).expect("kubectl shows it");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0][..2].to_vec(), rows[1][..2].to_vec()), (vec!["NAME", "HOLDER"], vec!["web", "a"]), "{table}");
    let lease = lab.leases_api().get("web").await.expect("the lock exists");
    assert!(lease.owner_references().is_empty(), "it has to stay when the election goes");
    assert_eq!(lease.labels().get("lictor.dev/election-uid"), election.metadata.uid.as_ref());
    let term = lab.pods_api().get("a").await.expect("the pod exists").annotations()["lictor.dev/term"].clone();
    assert_eq!(lease.spec.and_then(|spec| spec.lease_transitions).map(|term| term.to_string()), Some(term));
    lab.kill_pod("a").await;
    eventually("the lock is free", || async {
        let spec = lab.leases_api().get("web").await.map_err(|error| error.to_string())?.spec.unwrap_or_default();
        if spec.holder_identity.is_none() { Ok(()) } else { Err(format!("{spec:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_written_only_when_the_leader_changes() {
    let lab = Lab::new("lease-quiet").await;
    let operator = lab.operator(&[]);
    operator.acts().await;
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    let follower = if leader == "a" { "b" } else { "a" };
    let version = async |name: &str| {
        let lease = lab.leases_api().get(name).await.expect("the Lease exists");
        Version(lease.resource_version().and_then(|version| version.parse().ok()).expect("it has a version"))
    };
    let (before, own) = (version("web").await, version("lictor.dev-operator").await);
    // The lock does not mention any of this.
    lab.pod("c", PodSpec::default()).await;
    lab.wait_leader(&leader).await;
    lab.patch_pod(follower, json!({"metadata": {"labels": {"role": null}}})).await;
    lab.wait_leader(&leader).await;
    lab.kill_pod(follower).await;
    lab.wait_status("web", "the status counts two pods", |election| {
        election.status.iter().flat_map(|status| &status.candidates).any(|count| count.summary == "2/2")
    })
    .await;
    eventually("the operator renews its own Lease", || async {
        if version("lictor.dev-operator").await > own { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    assert_eq!(version("web").await, before);
    lab.kill_pod(&leader).await;
    lab.wait_leader("c").await;
    assert!(version("web").await > before);
}

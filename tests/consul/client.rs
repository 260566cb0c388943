//! Keys, transactions, sessions and the catalog of a server without ACLs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lictor_consul::{
    Applied, Bound, Client, Entry, Error, LOCK_FLAGS, NewSession, OpError, Renewal, Service, Settings, Transaction,
    TxnOp,
};
use lictor_testing::consul::{Consul, Kind, eventually};

use super::ours;

/// Makes a client of the server that all tests share, with a node of the test's own.
async fn dev(node: &str) -> Client {
    of(Consul::shared(), node).await
}

async fn of(consul: &Consul, node: &str) -> Client {
    let client = ours::client(consul);
    client.register_node(node, "127.0.0.1", &BTreeMap::new()).await.unwrap();
    client
}

fn new_session(node: &str, lock_delay: u64) -> NewSession {
    NewSession {
        name: "lictor/west/0".into(),
        bound: Bound::Node(node.into()),
        ttl: Duration::from_secs(10),
        lock_delay: Duration::from_secs(lock_delay),
    }
}

fn check(key: &str, index: u64) -> TxnOp {
    TxnOp::KvCheckIndex { key: key.into(), index }
}

fn absent(key: &str) -> TxnOp {
    TxnOp::KvCheckNotExists { key: key.into() }
}

fn lock(key: &str, value: &str, session: &str) -> TxnOp {
    TxnOp::KvLock { key: key.into(), value: value.into(), flags: LOCK_FLAGS, session: session.into() }
}

fn unlock(key: &str, value: &str, session: &str) -> TxnOp {
    TxnOp::KvUnlock { key: key.into(), value: value.into(), flags: LOCK_FLAGS, session: session.into() }
}

async fn applied(client: &Client, operations: &[TxnOp]) -> Applied {
    match client.transact(operations).await {
        Transaction::Applied(applied) => applied,
        other => panic!("{operations:?}: {other:?}"),
    }
}

async fn rolled_back(client: &Client, operations: &[TxnOp]) -> OpError {
    match client.transact(operations).await {
        Transaction::RolledBack(mut errors) if errors.len() == 1 => errors.remove(0),
        other => panic!("{operations:?}: {other:?}"),
    }
}

async fn read(client: &Client, key: &str) -> Entry {
    client.read_key(key).await.unwrap().expect("the key is there")
}

#[tokio::test]
async fn locks() {
    locks_in(Consul::shared()).await;
}

#[tokio::test]
async fn locks_of_an_old_consul() {
    locks_in(&Consul::start(Kind::Old)).await;
}

async fn locks_in(consul: &Consul) {
    let client = &of(consul, "locks").await;
    let one = client.create_session(&new_session("locks", 1)).await.unwrap();
    let two = client.create_session(&new_session("locks", 1)).await.unwrap();
    let key = "services/shop/web/leader";
    assert_eq!(client.read_key(key).await, Ok(None));

    // Acquired.
    let taken = applied(client, &[absent(key), lock(key, "a", &one)]).await.entry(key).unwrap().clone();
    let there = read(client, key).await;
    assert_eq!(there, Entry { value: b"a".to_vec(), ..taken.clone() });
    assert_eq!((there.flags, there.session.as_deref(), there.lock_index), (LOCK_FLAGS, Some(one.as_str()), 1));

    // Neither another session can acquire it, nor the holder with an old index.
    assert!(rolled_back(client, &[lock(key, "b", &two)]).await.is_held());
    assert!(rolled_back(client, &[absent(key), lock(key, "b", &one)]).await.is_index());
    assert!(rolled_back(client, &[check(key, taken.modify_index + 1), lock(key, "b", &one)]).await.is_index());
    assert!(rolled_back(client, &[lock(key, "b", "00000000-0000-0000-0000-000000000000")]).await.is_session());
    assert!(rolled_back(client, &[unlock(key, "b", &two)]).await.is_not_held());
    assert_eq!(read(client, key).await, there);

    // The holder writes another value.
    let again = applied(client, &[check(key, taken.modify_index), lock(key, "b", &one)]).await;
    let again = again.entry(key).unwrap();
    assert!(again.modify_index > taken.modify_index);
    assert_eq!(again.lock_index, 1);

    // It moves from one session to another without a gap.
    let moved = [check(key, again.modify_index), unlock(key, "b", &one), lock(key, "c", &two)];
    let moved = applied(client, &moved).await.entry(key).unwrap().clone();
    assert_eq!((moved.session.as_deref(), moved.lock_index), (Some(two.as_str()), 2));

    // Released, and deleted.
    let free = applied(client, &[check(key, moved.modify_index), unlock(key, "d", &two)]).await;
    let free = free.entry(key).unwrap().modify_index;
    assert_eq!(read(client, key).await.session, None);
    assert!(rolled_back(client, &[TxnOp::KvDeleteCas { key: key.into(), index: free - 1 }]).await.is_index());
    assert_eq!(applied(client, &[TxnOp::KvDeleteCas { key: key.into(), index: free }]).await, Applied::default());
    assert_eq!(client.read_key(key).await, Ok(None));
    assert!(rolled_back(client, &[check(key, free)]).await.is_index());
}

#[tokio::test]
async fn a_lock_delay_is_told_from_a_holder() {
    let client = dev("delay").await;
    let one = client.create_session(&new_session("delay", 2)).await.unwrap();
    let two = client.create_session(&new_session("delay", 2)).await.unwrap();
    applied(&client, &[lock("delay", "1", &one)]).await;
    client.destroy(&one).await.unwrap();
    client.destroy(&one).await.expect("that is done already");
    let error = rolled_back(&client, &[lock("delay", "2", &two)]).await;
    assert!(error.is_lock_delay() && !error.is_held(), "{error:?}");
    assert_eq!(error.index, 0);
    eventually("the delay ends", || async {
        match client.transact(&[lock("delay", "2", &two)]).await {
            Transaction::Applied(_) => Ok(()),
            delayed => Err(format!("{delayed:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn watching() {
    let client = dev("watching").await;
    let set = |key: &str| TxnOp::KvSet { key: key.into(), value: b"x".to_vec(), flags: 7 };
    let keys = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>();

    let (index, none) = client.list("watching/").await.unwrap();
    assert!(index >= 1);
    assert_eq!(none, []);
    applied(&client, &[set("watching/1"), set("watching/2"), set("watched/1")]).await;
    let (index, entries) = client.list("watching/").await.unwrap();
    assert_eq!(keys(entries), ["watching/1", "watching/2"]);

    let began = Instant::now();
    let waiter = tokio::spawn({
        let client = client.clone();
        async move { client.wait("watching/", index, Duration::from_secs(60)).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiter.is_finished());
    applied(&client, &[set("watching/3")]).await;
    let (next, entries) = waiter.await.unwrap().unwrap();
    assert!(next > index && began.elapsed() < Duration::from_secs(30));
    assert_eq!(keys(entries), ["watching/1", "watching/2", "watching/3"]);

    // Nothing happens, so the index stays the same.
    assert_eq!(client.wait("watching/", next, Duration::from_millis(100)).await.unwrap().0, next);
    // An index from another time means: start again.
    assert_eq!(client.wait("watching/", next + 1000, Duration::from_millis(100)).await.unwrap().0, 0);
}

#[tokio::test]
async fn sessions() {
    sessions_in(Consul::shared()).await;
}

#[tokio::test]
async fn sessions_of_an_old_consul() {
    sessions_in(&Consul::start(Kind::Old)).await;
}

async fn sessions_in(consul: &Consul) {
    let client = of(consul, "sessions").await;
    let id = client.create_session(&new_session("sessions", 1)).await.unwrap();
    let session = client.session(&id).await.unwrap().unwrap();
    assert_eq!((session.name.as_str(), session.node.as_str()), ("lictor/west/0", "sessions"));
    assert_eq!((session.ttl, session.lock_delay), (Duration::from_secs(10), Duration::from_secs(1)));
    assert_eq!((session.behavior.as_str(), session.node_checks.len(), session.service_checks.len()), ("release", 0, 0));
    assert_eq!(client.sessions_of_node("sessions").await, Ok(vec![session.clone()]));
    assert_eq!(client.sessions_of_node("nobody").await, Ok(vec![]));
    assert_eq!(client.renew(&id).await, Renewal::Renewed(session));

    client.destroy(&id).await.unwrap();
    assert_eq!(client.renew(&id).await, Renewal::Lost);
    assert_eq!(client.session(&id).await, Ok(None));

    let too_short = NewSession { ttl: Duration::from_secs(5), ..new_session("sessions", 1) };
    assert!(matches!(client.create_session(&too_short).await, Err(Error::Refused(_))));
    let nowhere = new_session("nobody", 1);
    assert!(matches!(client.create_session(&nowhere).await, Err(Error::NoNode(_))));

    // A session on the agent's node, with its check.
    let on_agent =
        client.create_session(&NewSession { bound: Bound::Agent, ..new_session("sessions", 15) }).await.unwrap();
    let on_agent = client.session(&on_agent).await.unwrap().unwrap();
    assert_eq!((on_agent.node.as_str(), on_agent.node_checks), ("server-1", vec!["serfHealth".to_owned()]));

    // A node that is removed ends its sessions.
    let id = client.create_session(&new_session("sessions", 1)).await.unwrap();
    client.deregister_node("sessions").await.unwrap();
    assert_eq!(client.renew(&id).await, Renewal::Lost);
}

#[tokio::test]
async fn catalog() {
    let client = dev("catalog").await;
    let agent = client.agent_self().await.unwrap();
    assert_eq!((agent.node.as_deref(), agent.datacenter.as_deref()), (Some("server-1"), Some("dc1")));
    assert!(agent.version.unwrap().starts_with("1."));
    assert_eq!(client.leader_known().await, Ok(true));

    assert_eq!(client.node("nobody").await, Ok(None));
    let meta = BTreeMap::from([("made-by".to_owned(), "lictor".to_owned())]);
    client.register_node("catalog", "127.0.0.1", &meta).await.unwrap();
    let node = client.node("catalog").await.unwrap().unwrap();
    assert_eq!((node.address.as_str(), &node.meta, node.services.len()), ("127.0.0.1", &meta, 0));

    let service = Service {
        id: "web-leader".into(),
        name: "web".into(),
        tags: vec!["leader".into()],
        address: "10.1.2.3".into(),
        port: 80,
        ..Service::default()
    };
    let set = TxnOp::ServiceSet { node: "catalog".into(), service: service.clone() };
    let written = applied(&client, &[set]).await.services.remove(0);
    assert_eq!(written, Service { modify_index: written.modify_index, ..service });
    assert!(written.modify_index > 0);
    assert_eq!(client.node("catalog").await.unwrap().unwrap().services["web-leader"], written);

    let (node, id, name) = (|| "catalog".to_owned(), || "web-leader".to_owned(), || "web".to_owned());
    let delete = |index| TxnOp::ServiceDeleteCas { node: node(), id: id(), name: name(), index };
    let error = rolled_back(&client, &[delete(written.modify_index - 1)]).await;
    assert!(error.is_index(), "{error:?}");
    applied(&client, &[delete(written.modify_index)]).await;
    applied(&client, &[TxnOp::ServiceDelete { node: node(), id: id(), name: name() }]).await;
    assert!(client.node("catalog").await.unwrap().unwrap().services.is_empty());
    let nowhere = TxnOp::ServiceSet { node: "nobody".into(), service: written };
    let error = rolled_back(&client, &[nowhere]).await;
    assert!(error.is_node(), "{error:?}");
}

#[tokio::test]
async fn too_much_is_refused() {
    let client = dev("too-much").await;
    let operations: Vec<_> = (0..129).map(|n| absent(&format!("k/{n}"))).collect();
    let Transaction::Failed(error @ Error::Refused(_)) = client.transact(&operations).await else {
        panic!("not refused")
    };
    assert!(error.to_string().contains("129 > 128"), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_or_is_gone() {
    let consul = Consul::start(Kind::Dev);
    let server = consul.server(1);
    let client =
        Client::new(&Settings { timeout: Duration::from_millis(500), ..ours::settings(&consul, server) }).unwrap();
    assert_eq!(client.leader_known().await, Ok(true));
    let set = [TxnOp::KvSet { key: "a".into(), value: vec![], flags: 0 }];

    server.pause();
    let Transaction::Failed(error) = client.transact(&set).await else { panic!("it was answered") };
    assert!(error.may_be_done());
    assert!(matches!(client.renew("x").await, Renewal::Failed(Error::Unknown(_))));
    server.resume();

    server.kill();
    let Transaction::Failed(error) = client.transact(&set).await else { panic!("it was answered") };
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(!error.may_be_done());
}

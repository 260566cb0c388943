//! The keeper of sessions.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lictor_consul::{Bound, Client, LOCK_FLAGS, NewSession, Session, Settings, Transaction, TxnOp};
use lictor_core::{Failure, Instant, LockValidity, Namesakes};
use lictor_locks::consul::{Home, SessionKeeper, SessionSettings};
use lictor_locks::{Role, Sessions};
use lictor_testing::consul::{Consul, Kind, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::ours;

const TTL: Duration = Duration::from_secs(10);

fn clock() -> Instant {
    static ORIGIN: OnceLock<tokio::time::Instant> = OnceLock::new();
    Instant::after_origin(ORIGIN.get_or_init(tokio::time::Instant::now).elapsed())
}

/// A running keeper.
struct Keeper {
    role: watch::Sender<Role>,
    sessions: watch::Receiver<Sessions>,
    suspicion: Arc<Notify>,
    task: JoinHandle<()>,
}

fn settings(node: &str, count: usize) -> SessionSettings {
    SessionSettings {
        prefix: format!("lictor/{node}"),
        namesakes: None,
        home: Home::Node { name: node.into(), address: "127.0.0.1".into(), meta: BTreeMap::new() },
        count,
        ttl: TTL,
        lock_delay: Duration::from_secs(1),
    }
}

impl Keeper {
    fn start(client: &Client, settings: SessionSettings, role: Role) -> Self {
        let (keeper, sessions) = SessionKeeper::new(client.clone(), settings, clock);
        let (suspicion, (role, receiver)) = (keeper.suspicion(), watch::channel(role));
        let task = tokio::spawn(keeper.run(receiver));
        Self { role, sessions, suspicion, task }
    }

    /// Waits until the sessions satisfy a condition.
    async fn until(&self, what: &str, is: impl Fn(&Sessions) -> bool) -> Sessions {
        let mut sessions = self.sessions.clone();
        let found = tokio::time::timeout(Duration::from_secs(60), sessions.wait_for(|sessions| is(sessions))).await;
        let Ok(found) = found else { panic!("not within a minute: {what}: {:?}", *self.sessions.borrow()) };
        found.expect("the keeper lives").clone()
    }

    /// Waits until the locks of all sessions are valid. Returns the IDs.
    async fn ids(&self) -> Vec<String> {
        let all =
            self.until("all sessions are there", |sessions| matches!(sessions.validity, LockValidity::Until(_))).await;
        assert_eq!(all.failure, None);
        all.ids.into_iter().map(|id| id.expect("there is one")).collect()
    }

    /// Waits until there is no failure any more.
    async fn mended(&self) {
        self.until("all is well", |sessions| sessions.failure.is_none()).await;
    }

    /// Ends it as a crash would.
    async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    async fn leave(self) {
        self.role.send(Role::Leave).expect("the keeper lives");
        self.task.await.expect("the keeper ends");
    }
}

async fn there(client: &Client, node: &str) -> Vec<Session> {
    let mut sessions = client.sessions_of_node(node).await.unwrap();
    sessions.sort_by(|one, other| one.name.cmp(&other.name));
    sessions
}

async fn ids_there(client: &Client, node: &str) -> Vec<String> {
    there(client, node).await.into_iter().map(|session| session.id).collect()
}

fn new_session(node: &str, name: &str) -> NewSession {
    let bound = Bound::Node(node.into());
    NewSession { name: name.into(), bound, ttl: Duration::from_secs(20), lock_delay: Duration::from_secs(2) }
}

/// C14: of an installation in a cluster that has the same name as another one, by mistake.
fn installed(node: &str, installation: &str) -> SessionSettings {
    installed_with(node, installation, "consul")
}

fn installed_with(node: &str, installation: &str, class: &str) -> SessionSettings {
    let cluster = format!("lictor/{node}/");
    let prefix = format!("{cluster}{installation}/{class}");
    let namesakes = Namesakes { cluster, installation: installation.into(), class: class.into() };
    SessionSettings { prefix, namesakes: Some(namesakes), ..settings(node, 1) }
}

/// C14.
#[tokio::test]
async fn of_two_installations_with_one_cluster_name_the_one_that_came_first_alone_keeps_sessions() {
    let client = ours::client(Consul::shared());
    let first = Keeper::start(&client, installed("twins", "a"), Role::Acting(1));
    let ids = first.ids().await;
    let second = Keeper::start(&client, installed("twins", "b"), Role::Acting(1));
    let told = second.until("it sees the other one", |sessions| sessions.name_in_use).await;
    assert_eq!((told.ids, told.validity), (vec![None], LockValidity::Unknown));
    let text = told.failure.unwrap().text().to_owned();
    assert!(text.contains("lictor/twins/a/consul/0") && text.contains("clusterName"), "{text}");
    // Another class is no rival, also of another installation, and the first one's next process finds its session again.
    for installation in ["a", "b"] {
        let class = Keeper::start(&client, installed_with("twins", installation, "other"), Role::Acting(1));
        class.ids().await;
        class.leave().await;
    }
    first.crash().await;
    let first = Keeper::start(&client, installed("twins", "a"), Role::Acting(1));
    assert_eq!(first.ids().await, ids);
    assert_eq!(ids_there(&client, "twins").await, ids);
    first.leave().await;
    second.ids().await;
    assert!(!second.sessions.borrow().name_in_use);
    second.leave().await;
}

/// C14.
#[tokio::test]
async fn two_installations_with_one_cluster_name_that_begin_at_one_moment_are_told_apart_by_consul() {
    let client = ours::client(Consul::shared());
    let both =
        ["a", "b"].map(|installation| Keeper::start(&client, installed("at-once", installation), Role::Acting(1)));
    let settled = async |keeper: &Keeper| {
        keeper.until("it is settled", |sessions| sessions.name_in_use || sessions.failure.is_none()).await
    };
    eventually("one has a session, and the other one says why not", || async {
        let states = [settled(&both[0]).await, settled(&both[1]).await];
        let in_use = states.iter().filter(|sessions| sessions.name_in_use).count();
        let held = states.iter().flat_map(|sessions| &sessions.ids).flatten().count();
        if (in_use, held) == (1, 1) { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
    assert_eq!(there(&client, "at-once").await.len(), 1);
    for keeper in both {
        keeper.leave().await;
    }
}

#[tokio::test]
async fn sessions_are_made_on_a_node_of_their_own() {
    let client = ours::client(Consul::shared());
    let keeper = Keeper::start(&client, settings("own-node", 3), Role::Acting(1));
    let ids = keeper.ids().await;
    let sessions = there(&client, "own-node").await;
    assert_eq!(ids, ids_there(&client, "own-node").await);
    for (index, session) in sessions.iter().enumerate() {
        assert_eq!(session.name, format!("lictor/own-node/{index}"));
        assert_eq!((session.ttl, session.lock_delay), (TTL, Duration::from_secs(1)));
        assert_eq!((session.node_checks.len(), session.service_checks.len()), (0, 0));
    }
    assert_eq!(client.node("own-node").await.unwrap().unwrap().address, "127.0.0.1");

    let mut sessions = keeper.sessions.clone();
    keeper.leave().await;
    assert_eq!(there(&client, "own-node").await, []);
    assert_eq!(sessions.borrow_and_update().ids, [None, None, None]);
}

#[tokio::test]
async fn the_next_process_goes_on_with_the_same_sessions() {
    let client = ours::client(Consul::shared());
    let keeper = Keeper::start(&client, settings("restart", 2), Role::Acting(1));
    let ids = keeper.ids().await;
    keeper.crash().await;
    let keeper = Keeper::start(&client, settings("restart", 2), Role::Acting(1));
    assert_eq!(keeper.ids().await, ids);
    assert_eq!(ids_there(&client, "restart").await, ids);
    keeper.leave().await;
}

#[tokio::test]
async fn a_standby_does_nothing_until_it_acts() {
    let client = ours::client(Consul::shared());
    let one = Keeper::start(&client, settings("standby", 1), Role::Acting(1));
    let two = Keeper::start(&client, settings("standby", 1), Role::Standby);
    let ids = one.ids().await;
    assert_eq!(two.sessions.borrow().ids, [None]);

    one.role.send(Role::Standby).unwrap();
    one.until("it is put down", |sessions| sessions.validity == LockValidity::Unknown && sessions.ids == [None]).await;
    two.role.send(Role::Acting(1)).unwrap();
    assert_eq!(two.ids().await, ids);
    // Only the keeper that acts destroys sessions.
    one.leave().await;
    assert_eq!(ids_there(&client, "standby").await, ids);
    two.leave().await;
    assert_eq!(there(&client, "standby").await, []);
}

#[tokio::test]
async fn of_several_sessions_of_a_name_the_oldest_is_kept_with_its_own_times() {
    let client = ours::client(Consul::shared());
    client.register_node("several", "127.0.0.1", &BTreeMap::new()).await.unwrap();
    let create = async |name: &str| client.create_session(&new_session("several", name)).await.unwrap();
    let oldest = [create("lictor/several/0").await];
    let younger = create("lictor/several/0").await;
    let other = create("lictor/several/1").await;
    let somebodys = create("lictor/several").await;

    let keeper = Keeper::start(&client, settings("several", 1), Role::Acting(1));
    assert_eq!(keeper.ids().await, oldest);
    let LockValidity::Until(deadline) = keeper.sessions.borrow().validity else { panic!("it is there") };
    assert!(deadline.since(clock()) > Duration::from_secs(14), "20 s less a fifth");
    eventually("the younger one is destroyed", || async {
        let ids = ids_there(&client, "several").await;
        if ids.contains(&younger) { Err(format!("{ids:?}")) } else { Ok(()) }
    })
    .await;
    assert_eq!(ids_there(&client, "several").await.len(), 3);
    keeper.leave().await;
    assert_eq!(ids_there(&client, "several").await, [somebodys, other]);
}

#[tokio::test]
async fn what_is_destroyed_is_replaced() {
    let client = ours::client(Consul::shared());
    let keeper = Keeper::start(&client, settings("destroyed", 2), Role::Acting(1));
    let before = keeper.ids().await;
    let lock = TxnOp::KvLock { key: "destroyed".into(), value: vec![], flags: LOCK_FLAGS, session: before[0].clone() };
    assert!(matches!(client.transact(&[lock]).await, Transaction::Applied(_)));

    client.destroy(&before[0]).await.unwrap();
    let lost = keeper.until("the loss is noticed", |sessions| sessions.validities[0] == LockValidity::Ended).await;
    assert_eq!(lost.validity, LockValidity::Ended);
    assert!(matches!(lost.validities[1], LockValidity::Until(_)), "the other one is as it was");
    let after = keeper.ids().await;
    assert_ne!(after[0], before[0]);
    assert_eq!(after[1], before[1]);
    assert_eq!(ids_there(&client, "destroyed").await, after);

    // They end with the node.
    client.deregister_node("destroyed").await.unwrap();
    let new = |sessions: &Sessions| sessions.ids.iter().flatten().filter(|id| !after.contains(id)).count() == 2;
    keeper.until("both are replaced", new).await;
    assert_eq!(ids_there(&client, "destroyed").await, keeper.ids().await);
    keeper.leave().await;
}

#[tokio::test]
async fn two_replicas_that_lose_their_session_at_one_moment_use_one_in_its_place() {
    let client = ours::client(Consul::shared());
    let keepers = [(); 2].map(|()| Keeper::start(&client, settings("twins", 1), Role::Acting(1)));
    let mut last = String::new();
    for round in 0..20 {
        // The other keeper has not destroyed what one of them relied on.
        let new = |sessions: &Sessions| {
            matches!(sessions.validity, LockValidity::Until(_))
                && sessions.ids[0].as_ref().is_some_and(|id| *id != last)
        };
        let [one, other] = [0, 1].map(|number: usize| keepers[number].until("there is one", new));
        let (one, other) = tokio::join!(one, other);
        assert_eq!(one.ids, other.ids, "in round {round}");
        let id = one.ids[0].clone().expect("there is one");
        eventually("no other is left", || async {
            let ids = ids_there(&client, "twins").await;
            if ids == [id.clone()] { Ok(()) } else { Err(format!("{ids:?}")) }
        })
        .await;
        client.destroy(&id).await.unwrap();
        for keeper in &keepers {
            keeper.suspicion.notify_one();
        }
        last = id;
    }
    for keeper in keepers {
        keeper.crash().await;
    }
}

/// As when a standby takes the replica that acts for gone, which runs on: both keep the same session, and neither ends it.
#[tokio::test]
async fn two_that_act_at_once_keep_one_session_which_outlives_each_of_them() {
    let client = ours::client(Consul::shared());
    let first = Keeper::start(&client, settings("both", 2), Role::Acting(1));
    let ids = first.ids().await;
    for round in 0..3 {
        let second = Keeper::start(&client, settings("both", 2), Role::Acting(1));
        assert_eq!(second.ids().await, ids, "in round {round}");
        match round {
            0 => second.crash().await,
            1 => {
                second.role.send(Role::Standby).expect("the keeper lives");
                second.until("it stands by", |sessions| !matches!(sessions.validity, LockValidity::Until(_))).await;
            }
            _ => {
                // Now the first one ends.
                first.crash().await;
                second.suspicion.notify_one();
                assert_eq!(second.ids().await, ids);
                assert_eq!(ids_there(&client, "both").await, ids);
                return second.leave().await;
            }
        }
        first.suspicion.notify_one();
        assert_eq!(first.ids().await, ids);
        assert_eq!(ids_there(&client, "both").await, ids);
    }
}

#[tokio::test]
async fn consul_is_away_at_the_beginning_and_comes_back_empty() {
    let consul = Consul::start(Kind::Dev);
    let client = ours::client(&consul);
    consul.server(1).kill();
    let keeper = Keeper::start(&client, settings("away", 1), Role::Acting(1));
    let failing = keeper.until("that is told", |sessions| sessions.failure.is_some()).await;
    assert_eq!((failing.validity, failing.ids.as_slice()), (LockValidity::Unknown, [None].as_slice()));
    assert!(matches!(failing.failure, Some(Failure::Refused(_))));
    consul.server(1).restart().await;
    let before = keeper.ids().await;
    // The server loses everything: the session and the node.
    consul.server(1).restart().await;
    keeper.until("the loss is noticed", |sessions| sessions.validity == LockValidity::Ended).await;
    assert_ne!(keeper.ids().await, before);
    keeper.leave().await;
}

#[tokio::test]
async fn sessions_outlive_the_leader_of_three_servers() {
    let consul = Consul::start(Kind::Three);
    // Another server than the first has to lead, so that the first one always answers.
    let leader = consul.leader().await;
    let asked = consul.servers().iter().find(|server| server.address() != leader.address()).unwrap();
    let client = ours::client_of(&consul, &ours::settings(&consul, asked));
    let keeper = Keeper::start(&client, settings("outlive", 4), Role::Acting(1));
    let ids = keeper.ids().await;
    leader.kill();
    let mut sessions = keeper.sessions.clone();
    let end = tokio::time::Instant::now() + TTL * 2;
    while tokio::time::timeout_at(end, sessions.changed()).await.is_ok() {
        let now = sessions.borrow_and_update().clone();
        assert!(matches!(now.validity, LockValidity::Until(_)), "{now:?}");
    }
    assert_eq!(keeper.ids().await, ids);
    keeper.leave().await;
}

#[tokio::test]
async fn validity_lapses_in_time_when_consul_hangs() {
    let consul = Consul::start(Kind::Dev);
    let keeper = Keeper::start(&ours::client(&consul), settings("hangs", 2), Role::Acting(1));
    let ids = keeper.ids().await;
    consul.server(1).pause();
    let LockValidity::Until(deadline) = keeper.sessions.borrow().validity else { panic!("it is there") };
    let lapsed = keeper.until("it lapses", |sessions| sessions.validity == LockValidity::Lapsed).await;
    let late = clock().since(deadline);
    assert!(clock() >= deadline && late < Duration::from_secs(2), "{late:?} late");
    assert!(matches!(lapsed.failure, Some(Failure::Unknown(_))), "{lapsed:?}");
    // It has kept its sessions: a server that hangs does not count.
    consul.server(1).resume();
    let again = keeper.ids().await;
    assert!(again == ids || again.iter().all(|id| !ids.contains(id)), "{again:?}");
    keeper.leave().await;
}

/// Starts a proxy that closes the connection of the first request to create a session. Returns the number of such requests.
async fn swallow_the_first_create(upstream: String) -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (creates, counted) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            tokio::spawn(relay(client, TcpStream::connect(&upstream).await.unwrap(), creates.clone()));
        }
    });
    (address, counted)
}

async fn relay(mut client: TcpStream, mut server: TcpStream, creates: watch::Sender<usize>) {
    let (mut request, mut answer) = ([0; 4096], [0; 4096]);
    let mut swallow = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read {
                Ok(length) if length > 0 => {
                    if request.starts_with(b"PUT /v1/session/create") {
                        creates.send_modify(|creates| *creates += 1);
                        swallow = *creates.borrow() == 1;
                    }
                    server.write_all(&request[..length]).await.unwrap();
                }
                _ => return,
            },
            read = server.read(&mut answer) => match read {
                Ok(length) if length > 0 && !swallow => client.write_all(&answer[..length]).await.unwrap(),
                _ => return,
            },
        }
    }
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_leaves_one_session() {
    let consul = Consul::shared();
    let direct = ours::client(consul);
    direct.register_node("lost-answer", "127.0.0.1", &BTreeMap::new()).await.unwrap();
    let (address, creates) = swallow_the_first_create(consul.server(1).socket().to_owned()).await;
    let keeper =
        Keeper::start(&Client::new(&Settings::new(address)).unwrap(), settings("lost-answer", 1), Role::Acting(1));
    let failing = keeper.until("that is told", |sessions| sessions.failure.is_some()).await;
    assert!(matches!(failing.failure, Some(Failure::Unknown(_))), "{failing:?}");
    let ids = keeper.ids().await;
    assert_eq!(ids_there(&direct, "lost-answer").await, ids);
    assert_eq!(*creates.borrow(), 1, "it was found, not made again");
    keeper.leave().await;
}

#[tokio::test]
async fn a_token_without_rights_gets_them() {
    let consul = Consul::start(Kind::Three);
    let client = ours::client(&consul);
    client.set_token(None).unwrap();
    let keeper = Keeper::start(&client, settings("rights", 1), Role::Acting(1));
    let failing = keeper.until("that is told", |sessions| sessions.failure.is_some()).await;
    let Some(Failure::Forbidden(text)) = failing.failure else { panic!("{failing:?}") };
    assert!(text.contains(r#"session "rights" { policy = "write" }"#), "{text}");
    client.set_token(consul.variable("HTTP_TOKEN")).unwrap();
    keeper.ids().await;
    client.set_token(Some("00000000-0000-0000-0000-00000000dead")).unwrap();
    let failing = keeper.until("that is told", |sessions| sessions.failure.is_some()).await;
    assert!(matches!(failing.validity, LockValidity::Until(_)), "it is still there");
    client.set_token(consul.variable("HTTP_TOKEN")).unwrap();
    keeper.mended().await;
    keeper.leave().await;
}

#[tokio::test]
async fn on_the_agents_own_node() {
    let consul = Consul::start(Kind::Dev);
    let client = ours::client(&consul);
    let at_agent = SessionSettings { home: Home::Agent, ..settings("agent", 1) };
    let keeper = Keeper::start(&client, at_agent.clone(), Role::Acting(1));
    let ids = keeper.ids().await;
    let session = there(&client, "server-1").await.remove(0);
    assert_eq!((&session.id, session.node_checks), (&ids[0], vec!["serfHealth".to_owned()]));
    keeper.crash().await;
    let keeper = Keeper::start(&client, at_agent, Role::Acting(1));
    assert_eq!(keeper.ids().await, ids);
    keeper.leave().await;
}

#[tokio::test]
async fn many_failures_are_few_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            count.send_modify(|count| *count += 1);
            drop(connection);
        }
    });
    let client = Client::new(&Settings::new(format!("http://{address}"))).unwrap();
    let keeper = Keeper::start(&client, settings("failures", 8), Role::Acting(1));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let count = *counted.borrow();
    assert!((8..=60).contains(&count), "{count} requests in 5 s");
    keeper.crash().await;
}

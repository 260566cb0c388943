//! Several clusters, and other programs, at one lock.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use kube::ResourceExt;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::pod;
use lictor_testing::kubernetes::{Operator, Proxy, Recorder, SliceRecorder, eventually};
use serde_json::{Value, json};

use super::member::{LED_WITHIN, Member, Recorded, entry, sessions, two};

fn role<'a>(roles: &'a [(String, String)], pod: &str) -> &'a str {
    roles.iter().find(|(name, _)| name == pod).map_or("", |(_, role)| role.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_one_pod_in_one_cluster_and_moves_when_no_other_is_left_there() {
    let ([west, east], operators, recorded) = two("consul-two", json!({}), json!({})).await;
    west.lab.wait_condition("web", "Ready", "True", "Led").await;
    east.lab.wait_condition("web", "Ready", "True", "LedElsewhere").await;
    let left = operators[0].metric("lictor_store_left_seconds{").await.expect("the lock has a session");
    assert!(0.0 < left && left <= 60.0, "{left}");
    assert_eq!(operators[0].metric("lictor_store_held{").await, Some(1.0));
    eventually("the other one follows", || async {
        let roles = east.lab.roles().await;
        if role(&roles, "b") == "follower" { Ok(()) } else { Err(format!("{roles:?}")) }
    })
    .await;
    let session = entry(Consul::shared(), &west.key()).await.expect("the key is there")["Session"].clone();
    west.lab.kill_pod("a").await;
    east.lab.wait_leader("b").await;
    let found = entry(Consul::shared(), &west.key()).await.expect("the key is there");
    assert_ne!(found["Session"], session, "it is the other cluster's");
    // A pod that comes back here follows.
    west.lab.ready_pods(&["c"]).await;
    west.wait_led_elsewhere("east", "b").await;
    eventually("the new pod follows", || async {
        let roles = west.lab.roles().await;
        if role(&roles, "c") == "follower" { Ok(()) } else { Err(format!("{roles:?}")) }
    })
    .await;
    recorded.kept_the_promises().await;
}

/// What the administrators of two clusters did not write alike, or at different keys.
#[tokio::test(flavor = "multi_thread")]
async fn what_clusters_did_not_agree_on_is_told() {
    let ([west, east], _operators, recorded) = two("consul-differ", json!({}), json!({})).await;
    // Workloads in one cluster only.
    west.lab.deployment("live", 1, pod()).await;
    let workloads = json!({"workloads": [{"kind": "Deployment", "name": "live"}]});
    west.elect(workloads.clone()).await;
    let message = east.lab.wait_condition("web", "StoreReachable", "True", "WorkloadsDiffer").await;
    assert!(message.contains("the election in the cluster west has spec.workloads"), "{message}");
    let ready = east.lab.wait_condition("web", "Ready", "False", "WorkloadsDiffer").await;
    assert_eq!(ready, message);
    // The cluster that leads is told.
    let message = west.lab.wait_condition("web", "Ready", "False", "WorkloadsDiffer").await;
    assert!(
        message.contains("the election in this cluster has spec.workloads, but that in the cluster east"),
        "{message}"
    );
    east.lab.deployment("live", 0, pod()).await;
    east.elect(workloads).await;
    for cluster in [&east, &west] {
        cluster.lab.wait_condition("web", "StoreReachable", "True", "Answers").await;
    }
    west.elect(json!({})).await;
    let message = east.lab.wait_condition("web", "StoreReachable", "True", "WorkloadsDiffer").await;
    assert!(message.contains("the election in this cluster has spec.workloads"), "{message}");
    let message = west.lab.wait_condition("web", "StoreReachable", "True", "WorkloadsDiffer").await;
    assert!(message.contains("the election in the cluster east has spec.workloads"), "{message}");
    let remark = format!("{}/.bid/east", west.key());
    assert!(entry(Consul::shared(), &remark).await.is_some(), "the remark is in the place of a bid");
    // An election that is deleted takes its remark back.
    east.lab.delete_election("web").await;
    west.lab.wait_condition("web", "StoreReachable", "True", "Answers").await;
    assert!(entry(Consul::shared(), &remark).await.is_none(), "nothing is left of it");

    // Another cluster has another keyTemplate.
    let api = Consul::shared().api();
    let body = json!({"Name": "far", "TTL": "600s", "LockDelay": "0s", "NodeChecks": []});
    let made = api.put("/v1/session/create", body).await.expect("Consul answers").ok();
    let session = made["ID"].as_str().expect("an id");
    let mut record = entry(Consul::shared(), &west.key()).await.expect("the key is there")["Value"].clone();
    (record["cluster"], record["installation"]) = (json!("far"), json!("of the far one"));
    record["election"] = json!("uid of the far one");
    let path = format!("/v1/kv/{}-otherwise?flags=3304740253564472344&acquire={session}", west.key());
    assert_eq!(api.put(&path, record).await.expect("Consul answers").ok(), json!(true));
    let message = west.lab.wait_condition("web", "StoreReachable", "True", "KeysDiffer").await;
    assert!(message.contains("in the cluster far the election of the same name uses"), "{message}");
    api.put(&format!("/v1/session/destroy/{session}"), "").await.expect("Consul answers");
    west.lab.wait_condition("web", "Ready", "True", "Led").await;
    recorded.kept_the_promises().await;
}

/// One class has the record in the lock's key, and the other one beside it.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_with_records_in_different_places_are_one_group_and_say_so() {
    let of = |cluster: &'static str, fields: Value| async move {
        let member = Member::new("consul-places", cluster, Consul::shared().address(), fields).await;
        let (recorder, operator) = (member.lab.record().await, member.operator(&[]));
        member.lab.ready_pods(&[if cluster == "west" { "a" } else { "b" }]).await;
        member.elect(json!({})).await;
        (member, recorder, operator)
    };
    let (west, in_west, _operator) = of("west", json!({"record": "LeaderName"})).await;
    west.lab.wait_leader("a").await;
    let (east, in_east, _operator) = of("east", json!({})).await;
    east.wait_led_elsewhere("west", "a").await;
    let message = east.lab.wait_condition("web", "StoreReachable", "True", "RecordsDiffer").await;
    assert!(message.contains("the cluster west writes the record of this election in another format"), "{message}");
    let message = west.lab.wait_condition("web", "StoreReachable", "True", "RecordsDiffer").await;
    assert!(message.contains("the cluster east writes the record of this election in another format"), "{message}");
    west.lab.kill_pod("a").await;
    east.lab.wait_leader("b").await;
    west.wait_led_elsewhere("east", "b").await;
    west.lab.wait_condition("web", "StoreReachable", "True", "RecordsDiffer").await;
    Recorder::assert_joint_promises(&[&in_west, &in_east]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_election_leaves_the_lock_to_the_other_cluster() {
    let ([west, east], _operators, recorded) = two("consul-gone", json!({}), json!({})).await;
    west.lab.delete_election("web").await;
    east.lab.wait_leader("b").await;
    assert_eq!(role(&west.lab.roles().await, "a"), "");
    recorded.kept_the_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_releases_at_its_end_hands_over_at_once() {
    let release = json!({"whenOperatorStops": "Release"});
    let ([west, east], [mut operator, _other], recorded) = two("consul-release", release, json!({})).await;
    operator.stop().await;
    assert_eq!(role(&west.lab.roles().await, "a"), "follower", "{}", operator.log());
    assert_eq!(sessions(Consul::shared(), &west).await, [], "{}", operator.log());
    east.lab.wait_leader("b").await;
    recorded.kept_the_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_another_cluster_leads_the_slice_names_nobody() {
    let release = json!({"whenOperatorStops": "Release"});
    let ([west, east], [mut operator, _other], recorded) = two("consul-slices", release, json!({})).await;
    let slices = [west.lab.record_slices().await, east.lab.record_slices().await];
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web-leader"}, "spec": {"ports": [{"port": 80}]},
    });
    for member in [&west, &east] {
        member.lab.try_kubectl(&["create", "-f", "-"], Some(&service.to_string())).expect("a Service can be made");
        member.elect(json!({"service": {"name": "web-leader"}})).await;
    }
    west.lab.wait_condition("web", "Routed", "True", "Routed").await;
    east.lab.wait_condition("web", "Routed", "True", "LedElsewhere").await;
    // The lock is let go of after the slice names nobody.
    operator.stop().await;
    let reached = |member: &Member| {
        let slice = ["get", "endpointslices", "-l", "kubernetes.io/service-name=web-leader"];
        let names = "-ojsonpath={.items[*].endpoints[*].targetRef.name}";
        member.lab.try_kubectl(&[slice.as_slice(), &[names]].concat(), None).expect("slices can be read")
    };
    assert_eq!(reached(&west), "", "{}", operator.log());
    east.lab.wait_condition("web", "Routed", "True", "Routed").await;
    assert_eq!(reached(&east), "b");
    assert_eq!(SliceRecorder::assert_joint_promises(&slices.each_ref()).await, 2);
    recorded.kept_the_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn when_all_operators_of_a_cluster_are_killed_the_other_takes_over_and_the_first_demotes_when_it_is_back() {
    let ([west, east], [operator, _other], recorded) = two("consul-killed", json!({}), json!({})).await;
    let killed = recorded.0[0].version().await;
    let began = Instant::now();
    operator.signal("KILL");
    east.lab.wait_leader("b").await;
    let took = began.elapsed();
    assert!(took < LED_WITHIN, "{took:?}, and it may take {LED_WITHIN:?}");
    assert_eq!(role(&west.lab.roles().await, "a"), "leader", "nobody could take its label off");
    let _operator = west.operator(&[]);
    west.wait_led_elsewhere("east", "b").await;
    assert_eq!(role(&west.lab.roles().await, "a"), "follower");
    recorded.kept_the_promises_but_for(&[("a", killed)]).await;
}

/// Within this time a label goes that nothing keeps: an operator has started, and has listed what there is. The Lease would keep it for two
/// minutes.
const SOON: Duration = Duration::from_secs(5);

/// How the west's first operator ends, while its Lease is still valid for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Killed. Another one is started only when the east leads.
    Killed,
    /// Stopped, so that it does not hear of anything. A standby runs all the time.
    Stopped,
}

/// Shows C10.
async fn a_replica_that_does_not_act_takes_off_what_led_before_the_other_cluster(test: &str, end: End) {
    let address = Consul::shared().address();
    let west = Member::new(test, "west", address, json!({})).await;
    let east = Member::new(test, "east", address, json!({})).await;
    let recorded = Recorded::of(&west, &east).await;
    let slices = [west.lab.record_slices().await, east.lab.record_slices().await];
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web-leader"}, "spec": {"ports": [{"port": 80}]},
    });
    for member in [&west, &east] {
        member.lab.try_kubectl(&["create", "-f", "-"], Some(&service.to_string())).expect("a Service can be made");
    }
    let routed = json!({"service": {"name": "web-leader"}});
    let lasting = ["--lease-duration", "120s"];
    let operator = west.operator(&lasting);
    operator.logs("this replica acts").await;
    let standby = (end == End::Stopped).then(|| west.operator(&lasting));
    let _other = east.operator(&[]);
    west.lab.ready_pods(&["a"]).await;
    east.lab.ready_pods(&["b"]).await;
    west.elect(routed.clone()).await;
    west.lab.wait_condition("web", "Routed", "True", "Routed").await;
    east.elect(routed).await;
    east.wait_led_elsewhere("west", "a").await;
    if let Some(standby) = &standby {
        standby.logs("keeping locks in Consul").await;
    }

    let excused = recorded.0[0].version().await;
    operator.signal(if end == End::Killed { "KILL" } else { "STOP" });
    let [(_, session)] = sessions(Consul::shared(), &west).await.try_into().expect("one session");
    Consul::shared().api().put(&format!("/v1/session/destroy/{session}"), "").await.expect("it is destroyed");
    east.lab.wait_leader("b").await;
    recorded.0[1].catch_up().await;
    let (began, standby) = match standby {
        // Since when there are two.
        Some(standby) => (
            recorded.0[1].revisions().iter().rfind(|b| b.role.as_deref() == Some("leader")).expect("b leads").at,
            standby,
        ),
        None => (Instant::now(), west.operator(&lasting)),
    };
    eventually("the label is off, and nobody is reached", || async {
        let (roles, reached) = (west.lab.roles().await, slices[0].reached("web-leader", "IPv4"));
        let nobody = reached.last().is_some_and(|last| last.addresses.is_empty());
        if role(&roles, "a") == "follower" && nobody { Ok(()) } else { Err(format!("{roles:?}, {reached:?}")) }
    })
    .await;
    let took = recorded.0[0].demoted_at().await.expect("a was demoted").saturating_duration_since(began);
    eprintln!("measured: {end:?}, the label was off after {took:?}");
    standby.logs("another cluster leads: ").await;
    let log = standby.log();
    assert!(!log.contains("this replica acts"), "{log}");
    assert!(took < SOON, "{took:?}: {log}");
    operator.signal("KILL");
    recorded.kept_the_promises_but_for(&[("a", excused)]).await;
    for of_cluster in &slices {
        of_cluster.assert_promises().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_was_just_started_demotes_before_it_acts() {
    a_replica_that_does_not_act_takes_off_what_led_before_the_other_cluster("consul-aside", End::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_demotes_for_an_operator_that_hangs() {
    a_replica_that_does_not_act_takes_off_what_led_before_the_other_cluster("consul-hangs", End::Stopped).await;
}

/// Asks Consul's DNS for the addresses of a name.
fn look_up(name: &str) -> Vec<Ipv4Addr> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let labels =
        name.split('.').flat_map(|label| [&[u8::try_from(label.len()).expect("short")], label.as_bytes()].concat());
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(labels.chain([0, 0, 1, 0, 1]));
    socket.send_to(&query, Consul::shared().server(1).dns()).expect("it is sent");
    let mut answer = [0; 1500];
    let length = socket.recv(&mut answer).expect("DNS answers");
    // Each record has a pointer to the name, type A, class, TTL and four bytes.
    let records = answer[query.len()..length].chunks(16).take(answer[7].into());
    records.map(|record| Ipv4Addr::new(record[12], record[13], record[14], record[15])).collect()
}

/// Starts `consul lock` at the election's key, which therefore ends in `.lock`. It holds the lock until its input is closed.
fn consul_lock(prefix: &str) -> Child {
    let arguments = ["lock", "-pass-stdin", prefix, "cat"];
    Consul::shared().command().args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn consuls_own_lock_command_and_lictor_wait_for_each_other() {
    let west = Member::new("consul-lock", "west", Consul::shared().address(), json!({})).await;
    let recorder = west.lab.record().await;
    let prefix = format!("{}/x", west.prefix);
    let key = format!("{prefix}/.lock");
    let mut other = consul_lock(&prefix);
    let held = || async {
        let found = entry(Consul::shared(), &key).await.unwrap_or_default();
        if found["Session"].is_string() { Ok(found["Session"].clone()) } else { Err(found.to_string()) }
    };
    let theirs = eventually("consul lock holds it", held).await;
    let _operator = west.operator(&[]);
    west.lab.ready_pods(&["a"]).await;
    west.elect(json!({"key": key})).await;
    let message = west.lab.wait_condition("web", "Elected", "False", "HeldByOther").await;
    assert!(message.contains("Consul lock for 'cat'"), "{message}");
    let election = west.lab.election("web").await;
    let session =
        election.status.and_then(|status| status.leader).and_then(|leader| leader.session).unwrap_or_default();
    assert!(session.contains(theirs.as_str().unwrap_or_default()), "{session}");
    assert_eq!(held().await, Ok(theirs), "nothing was taken");

    drop(other.stdin.take());
    west.lab.wait_leader("a").await;
    assert!(other.wait().expect("it ends").success());

    // The other way round.
    let mut other = consul_lock(&prefix);
    let ours = held().await.expect("it is held");
    west.lab.kill_pod("a").await;
    eventually("consul lock has its turn", || async {
        let session = held().await?;
        if session == ours { Err("it is still ours".to_owned()) } else { Ok(()) }
    })
    .await;
    drop(other.stdin.take());
    assert!(other.wait().expect("it ends").success());
    assert_eq!(recorder.assert_promises().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_lock_is_given_up_after_the_stated_time_without_an_api_server_where_the_class_says_so() {
    let policy = json!({"whenClusterIsLost": {"policy": "Release", "releaseAfterSeconds": 10}});
    let (west, east, proxy, _operators, recorded) = cut_off("consul-give-up", policy).await;
    let cut = recorded.0[0].version().await;
    east.lab.wait_leader("b").await;
    assert_eq!(role(&west.lab.roles().await, "a"), "leader", "nobody could take its label off");
    proxy.hold(|_| false);
    west.wait_led_elsewhere("east", "b").await;
    assert_eq!(role(&west.lab.roles().await, "a"), "follower");
    recorded.kept_the_promises_but_for(&[("a", cut)]).await;
}

/// Creates two clusters, of which the west leads and then loses its API server.
async fn cut_off(test: &str, policy: Value) -> (Member, Member, Proxy, [Operator; 2], Recorded) {
    let address = Consul::shared().address();
    let west = Member::new(test, "west", address, policy).await;
    let east = Member::new(test, "east", address, json!({})).await;
    let recorded = Recorded::of(&west, &east).await;
    let proxy = Proxy::start(west.lab.cluster).await;
    let operator = west.operator_at(proxy.kubeconfig());
    west.lab.ready_pods(&["a"]).await;
    west.elect(json!({})).await;
    west.lab.wait_leader("a").await;
    let other = east.operator(&[]);
    east.lab.ready_pods(&["b"]).await;
    east.elect(json!({})).await;
    east.wait_led_elsewhere("west", "a").await;
    proxy.hold(|_| true);
    (west, east, proxy, [operator, other], recorded)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_can_be_found_in_consuls_catalog_and_dns_and_moves_there_with_the_leadership() {
    let allowed = json!({"servicePattern": "consul-service-*"});
    let ([west, east], _operators, recorded) = two("consul-service", allowed.clone(), allowed).await;
    let stolen = json!({"sharedStore": {"consulService": {"name": "web", "port": 5432}}});
    west.elect(stolen).await;
    let message = west.lab.wait_condition("web", "Accepted", "False", "ServiceNotAllowed").await;
    assert!(message.contains("\"consul-service-*\" here"), "{message}");
    let service = json!({"sharedStore": {"consulService": {"name": west.prefix, "port": 5432}}});
    west.elect(service.clone()).await;
    east.elect(service).await;
    let registered = |pod: &'static str, cluster: &'static str| {
        let path = format!("/v1/catalog/service/{}?tag=leader", west.prefix);
        eventually(format!("{pod} is registered").leak(), move || {
            let path = path.clone();
            async move {
                let found = Consul::shared().api().get(&path).await?.ok();
                let meta = &found[0]["ServiceMeta"];
                let fits = meta["pod"] == json!(pod) && meta["cluster"] == json!(cluster) && found[1].is_null();
                if fits { Ok(found[0].clone()) } else { Err(found.to_string()) }
            }
        })
    };
    let found = registered("a", "west").await;
    let pod = west.lab.pods_api().get("a").await.expect("the pod exists");
    assert_eq!(found["ServiceMeta"]["term"], json!(pod.annotations()["lictor.dev/term"]));
    assert_eq!(
        (&found["ServiceAddress"], &found["ServicePort"]),
        (&json!(pod.status.and_then(|s| s.pod_ip)), &json!(5432))
    );
    let address = found["ServiceAddress"].as_str().expect("an address").parse::<Ipv4Addr>().expect("of four bytes");
    assert_eq!(look_up(&format!("leader.{}.service.consul", west.prefix)), [address]);
    west.lab.kill_pod("a").await;
    registered("b", "east").await;
    east.lab.delete_election("web").await;
    let path = format!("/v1/catalog/service/{}", west.prefix);
    eventually("it is taken out", || async {
        let found = Consul::shared().api().get(&path).await?.ok();
        if found == json!([]) { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    recorded.kept_the_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_a_person_has_put_there_is_shown_and_left_alone_until_it_is_gone() {
    let west = Member::new("consul-person", "west", Consul::shared().address(), json!({})).await;
    Consul::shared().cli(&["kv", "put", &west.key(), "mine"]);
    let before = entry(Consul::shared(), &west.key()).await;
    let _operator = west.operator(&[]);
    west.lab.ready_pods(&["a"]).await;
    west.elect(json!({})).await;
    let message = west.lab.wait_condition("web", "Elected", "False", "LockNotOurs").await;
    assert!(message.contains(&west.key()) && message.contains("delete it"), "{message}");
    assert_eq!(entry(Consul::shared(), &west.key()).await, before);
    Consul::shared().cli(&["kv", "delete", &west.key()]);
    west.lab.wait_leader("a").await;
}

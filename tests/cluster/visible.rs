//! What users see: columns, explanations, status, Events, metrics and logs; and how few requests a quiet group causes.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use lictor_api::{LeaderElection, LeaderElectionStatus, crds};
use lictor_testing::kubernetes::{Asked, Lab, Proxy, eventually};
use serde_json::{Value, json};

/// Returns the words of each line.
fn table(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

async fn status_of(lab: &Lab, pod: &str) -> LeaderElectionStatus {
    let what = format!("the status names {pod}");
    let election = lab.wait_status("web", &what, |election| {
        election.status.iter().flat_map(|status| &status.leader).any(|leader| leader.pod_name.as_deref() == Some(pod))
    });
    election.await.status.unwrap_or_default()
}

/// Gives a pod a higher priority than all before, and waits until it leads for that reason.
async fn prefer(lab: &Lab, pod: &str, priority: usize) {
    lab.patch_pod(pod, json!({"metadata": {"annotations": {"lictor.dev/priority": priority.to_string()}}})).await;
    lab.wait_leader(pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_what_matters_in_columns() {
    let lab = Lab::new("columns").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    status_of(&lab, &leader).await;
    let text = lab.try_kubectl(&["get", "le"], None).expect("kubectl shows it");
    let rows = table(&text);
    assert_eq!(rows[0], ["NAME", "STATUS", "LEADER", "TERM", "CANDIDATES", "CLASS", "AGE"]);
    assert_eq!(rows[1][..6], ["web", "Led", &leader, "1", "3/3", "lease"], "{text}");
    let text = lab.try_kubectl(&["get", "leaderelections.lictor.dev", "-o", "wide"], None).expect("kubectl shows it");
    let rows = table(&text);
    let column = |name: &str| rows[0].iter().position(|title| *title == name).map(|at| rows[1][at]);
    let node = lab.pods_api().get(&leader).await.expect("the pod exists").spec.and_then(|spec| spec.node_name);
    assert_eq!(column("NODE"), node.as_deref(), "{text}");
    let both = lab.try_kubectl(&["get", "lictor", "-o", "name"], None).expect("kubectl shows it");
    assert!(both.lines().any(|line| line == "leaderelection.lictor.dev/web"), "{both}");
    let all = lab.try_kubectl(&["get", "all", "-o", "name"], None).expect("kubectl shows it");
    assert!(!all.contains("lictor.dev"), "{all}");
    let classes = lab.try_kubectl(&["get", "lec"], None).expect("the short name of classes is known");
    lab.elect_as("gold", json!({"className": "gold"})).await;
    let of_class = lab.try_kubectl(&["get", "le", "--field-selector", "spec.className=gold", "-o", "name"], None);
    assert_eq!(of_class.expect("kubectl selects by class").trim(), "leaderelection.lictor.dev/gold");
    let of_election = lab.try_kubectl(&["get", "swo", "--field-selector", "spec.electionName=web"], None);
    of_election.expect("kubectl selects by election");
    assert!(classes.is_empty() || classes.starts_with("NAME"), "{classes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_explains_fields_with_units_and_defaults() {
    let lab = Lab::new("explain").await;
    let explained = lab.try_kubectl(&["explain", "le.spec.handover"], None).expect("kubectl explains it");
    let flat = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["failoverDelaySeconds <integer>", "in seconds, 0 to 3600", "Default: 0", "DemoteFirst (default)"] {
        assert!(flat.contains(part), "{part:?} is not in {explained}");
    }
}

#[test]
fn every_field_of_every_kind_is_described() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for crd in crds() {
        let kind = crd.spec.names.kind.clone();
        for version in json!(crd)["spec"]["versions"].as_array().expect("versions") {
            describe(&kind, &version["schema"]["openAPIV3Schema"], &mut seen, &mut wrong);
        }
    }
    assert!(seen > 60, "{seen}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Walks down a schema, and checks that each field has a description that names its unit and its default.
fn describe(path: &str, schema: &Value, seen: &mut usize, wrong: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let text = field["description"].as_str().unwrap_or_default();
        *seen += 1;
        if text.len() < 10 {
            wrong.push(format!("{path} has no description"));
        }
        if name.ends_with("Seconds") && !text.to_lowercase().contains("seconds") {
            wrong.push(format!("{path} names no unit"));
        }
        let scalar = field["default"].is_number() || field["default"].is_boolean() || field["default"].is_string();
        if scalar && !text.to_lowercase().contains("default") {
            wrong.push(format!("{path} names no default"));
        }
        describe(&path, field, seen, wrong);
        describe(&format!("{path}[]"), &field["items"], seen, wrong);
        describe(&format!("{path}{{}}"), &field["additionalProperties"], seen, wrong);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_tells_who_leads_since_when_and_how_bad_it_can_get() {
    let lab = Lab::new("status").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({"handover": {"failoverDelaySeconds": 7}})).await;
    let name = lab.wait_any_leader().await;
    let status = status_of(&lab, &name).await;
    let pod = lab.pods_api().get(&name).await.expect("the pod exists");
    let leader = status.leader.expect("there is a leader");
    assert_eq!(leader.pod_uid, pod.metadata.uid.clone());
    assert_eq!(leader.node_name, pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
    assert_eq!(leader.pod_ip, pod.status.as_ref().and_then(|status| status.pod_ip.clone()));
    let since = leader.acquire_time.expect("it tells since when").0;
    let age = k8s_openapi::jiff::Timestamp::now().duration_since(since).as_secs();
    assert!((0..120).contains(&age), "{since}");
    assert_eq!(status.term.map(|term| term.to_string()).as_ref(), pod.annotations().get("lictor.dev/term"));
    let candidates = status.candidates.expect("it counts");
    assert_eq!((candidates.eligible, candidates.total, candidates.summary.as_str()), (2, 2, "2/2"));
    // The operator's lease of 3 s, and 7 s for the leader to recover.
    assert_eq!(status.worst_case_failover_seconds, Some(10));
    assert_eq!(status.observed_generation, lab.election("web").await.metadata.generation);
    assert_eq!(status.class_name.as_deref(), Some("lease"));
    let conditions: Vec<_> = status.conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    assert_eq!(conditions, [("Ready", "True"), ("Accepted", "True"), ("Elected", "True"), ("StoreReachable", "True")]);
    assert!(status.conditions.iter().all(|condition| !condition.message.is_empty()));
    let transition = status.conditions[2].last_transition_time.clone();

    lab.elect(json!({"paused": true})).await;
    let message = lab.wait_condition("web", "Paused", "True", "Paused").await;
    assert!(message.contains("spec.paused"), "{message}");
    lab.elect(json!({})).await;
    let election = lab.wait_status("web", "it is not paused any more", |election| {
        let status = election.status.clone().unwrap_or_default();
        status.conditions.iter().all(|condition| condition.type_ != "Paused")
            && status.observed_generation == election.metadata.generation
    });
    let status = election.await.status.unwrap_or_default();
    let elected = status.conditions.iter().find(|condition| condition.type_ == "Elected").expect("it is told");
    assert_eq!(elected.last_transition_time, transition, "it has been elected all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_yet_is_told_as_unknown() {
    let lab = Lab::new("unknown").await;
    let proxy = Proxy::start(lab.cluster).await;
    proxy.hold(Asked::promotes);
    let _operator = lab.operator_at(proxy.kubeconfig(), &[]);
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({})).await;
    let unknown = |election: &LeaderElection| {
        let conditions = election.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|c| (c.type_.as_str(), c.status.as_str()) == ("Elected", "Unknown"))
    };
    let election = lab.wait_status("web", "it is not known who leads", unknown).await;
    let conditions = election.status.expect("it has a status").conditions;
    let told: Vec<_> = conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str())).collect();
    let ready = ("Ready", "Unknown", "HandingOver");
    let served = [ready, ("Accepted", "True", "Accepted"), ("Elected", "Unknown", "HandingOver")];
    assert_eq!(told, [served.as_slice(), &[("StoreReachable", "True", "Answers")]].concat());
    assert!(conditions.iter().all(|condition| condition.observed_generation == election.metadata.generation));
    assert!(conditions.iter().all(|condition| !condition.message.is_empty()));
    proxy.hold(|_| false);
    proxy.deliver_late().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;

    lab.elect_as("refused", json!({"className": "nobodys"})).await;
    lab.wait_condition("refused", "Accepted", "False", "UnknownClass").await;
    let message = lab.wait_condition("refused", "Elected", "Unknown", "NotAccepted").await;
    assert!(message.contains("Accepted"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_has_to_be_read_again_is_told_as_unknown() {
    let lab = Lab::new("unread-lock").await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({})).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    drop(operator);

    // The record says that it was written for a spec that the operator has not seen, and the status says nothing.
    let lease = lab.lease("web").await.expect("the lock exists");
    let mut record: Value = serde_json::from_str(&lease.annotations()["lictor.dev/record"]).expect("a record is JSON");
    record["generation"] = json!(99);
    let annotations = json!({"metadata": {"annotations": {"lictor.dev/record": record.to_string()}}});
    let parameters = PatchParams::default();
    lab.leases_api().patch("web", &parameters, &Patch::Merge(annotations)).await.expect("a Lease can be patched");
    let nothing = Patch::Merge(json!({"status": null}));
    lab.elections_api().patch_status("web", &parameters, &nothing).await.expect("a status can be patched");

    let proxy = Proxy::start(lab.cluster).await;
    proxy.hold(|asked| asked.method == "GET" && asked.name() == "web");
    let _operator = lab.operator_at(proxy.kubeconfig(), &[]);
    for type_ in ["Elected", "StoreReachable"] {
        let message = lab.wait_condition("web", type_, "Unknown", "LockNotRead").await;
        assert!(message.contains("the lock has not been read yet"), "{message}");
    }
    proxy.hold(|_| false);
    lab.wait_condition("web", "Elected", "True", "Elected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_that_were_not_read_yet_are_told_as_unknown() {
    let lab = Lab::new("unread").await;
    let proxy = Proxy::start(lab.cluster).await;
    proxy.hold(|asked| asked.path.contains("/cronjobs?"));
    let _operator = lab.operator_at(proxy.kubeconfig(), &[]);
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({"workloads": [{"kind": "CronJob", "name": "nightly"}]})).await;
    let message = lab.wait_condition("web", "WorkloadsFollow", "Unknown", "NotReadYet").await;
    assert!(message.contains("the workloads have not been read yet"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_tells_the_last_ten_changes_the_newest_first() {
    let lab = Lab::new("history").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let mut leader = lab.wait_any_leader().await;
    for _ in 1..=11 {
        let next = if leader == "a" { "b" } else { "a" };
        lab.set_condition(&leader, "Ready", false).await;
        lab.wait_leader(next).await;
        lab.set_condition(&leader, "Ready", true).await;
        lab.wait_candidates(2, 2).await;
        leader = next.to_owned();
    }
    let election = lab.wait_status("web", "twelve leaderships are told", |election| {
        election.status.as_ref().and_then(|status| status.history.first()).is_some_and(|entry| entry.term == 12)
    });
    let history = election.await.status.unwrap_or_default().history;
    assert_eq!(history.iter().map(|entry| entry.term).collect::<Vec<_>>(), (3..=12).rev().collect::<Vec<_>>());
    assert_eq!(history[0].leader_name.as_ref(), Some(&leader));
    for (newer, older) in history.iter().zip(&history[1..]) {
        assert_eq!(newer.previous_leader_name, older.leader_name);
        assert!(newer.completion_time >= older.completion_time && newer.completion_time.is_some());
    }
    for entry in &history {
        assert_eq!(entry.reason, "LeaderNotReady");
        assert!((0..60_000).contains(&entry.duration_milliseconds), "{entry:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_the_story_on_the_election_and_on_its_pods() {
    let lab = Lab::new("events").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({"preemption": "HigherPriority"})).await;
    let first = lab.wait_any_leader().await;
    let second = if first == "a" { "b" } else { "a" };
    let note = lab.wait_event("LeaderElection", "web", "Elected").await;
    assert!(note.contains(&first) && note.contains("term 1"), "{note}");
    prefer(&lab, second, 1).await;
    let note = lab.wait_event("Pod", &first, "Demoted").await;
    assert!(note.contains("web") && note.contains("higher priority"), "{note}");
    let note = lab.wait_event("Pod", second, "Elected").await;
    assert!(note.contains("web"), "{note}");
    let columns = "-ojsonpath={range .items[*]}{.reason} {.regarding.name} {end}";
    let told = lab.try_kubectl(&["get", "events.events.k8s.io", columns], None).expect("Events can be read");
    assert!(
        !told.contains(&format!("Elected {first}")),
        "a group's first leader is told by its election alone: {told}"
    );

    lab.patch_pod(&first, json!({"metadata": {"labels": {"role": "leader"}}})).await;
    lab.wait_leader(second).await;
    for (kind, name) in [("LeaderElection", "web"), ("Pod", first.as_str())] {
        let note = lab.wait_event(kind, name, "LabelDrift").await;
        assert!(note.contains(&first), "{note}");
    }

    lab.kill_pod(&first).await;
    lab.kill_pod(second).await;
    let note = lab.wait_event("LeaderElection", "web", "NoLeader").await;
    assert!(note.starts_with(&format!("{second} no longer leads, and no other candidate does: ")), "{note}");
    let described = lab.try_kubectl(&["describe", "le", "web"], None).expect("kubectl describes it");
    assert!(described.contains("NoLeader") && described.contains("Elected"), "{described}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_logs_tell_what_happened() {
    let lab = Lab::new("metrics").await;
    let operator = lab.operator(&[]);
    operator.acts().await;
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let first = lab.wait_any_leader().await;
    operator.sees_leader(&lab.namespace, "web", &first).await;
    let second = if first == "a" { "b" } else { "a" };
    lab.patch_pod(second, json!({"metadata": {"labels": {"role": null}}})).await;
    lab.wait_leader(&first).await;
    lab.kill_pod(&first).await;
    lab.wait_leader(second).await;
    operator.sees_leader(&lab.namespace, "web", second).await;

    let labels = format!("{{namespace=\"{}\",election=\"web\"}}", lab.namespace);
    let of = |name: &str| format!("{name}{labels}");
    let ready =
        |reason: &str| format!("lictor_ready{{namespace=\"{}\",election=\"web\",reason=\"{reason}\"}}", lab.namespace);
    for (name, value) in [
        ("lictor_acting".to_owned(), 1.0),
        (of("lictor_term"), 2.0),
        (of("lictor_transitions_total"), 2.0),
        (of("lictor_label_drift_total"), 1.0),
        ("lictor_failover_duration_seconds_count".to_owned(), 1.0),
        (of("lictor_candidates"), 1.0),
        (of("lictor_eligible"), 1.0),
        (of("lictor_label_mismatch"), 0.0),
        (ready("Led"), 1.0),
        (format!("lictor_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0),
        ("lictor_leader{".to_owned(), 1.0),
    ] {
        assert_eq!(operator.metric(&name).await, Some(value), "{name}\n{}", operator.get("/metrics").await.1);
    }
    eventually("nothing is left to do", || async {
        let depth = operator.metric("lictor_queue_depth").await;
        if depth == Some(0.0) { Ok(()) } else { Err(format!("{depth:?}")) }
    })
    .await;
    // While there is a pod and no leader, the time counts.
    lab.set_condition(second, "Ready", false).await;
    lab.wait_no_leader().await;
    let without = of("lictor_without_leader_seconds_total");
    let before = operator.metric(&without).await;
    eventually("the time without a leader grows", || async {
        let now = operator.metric(&without).await;
        if now > before && before.is_some() { Ok(()) } else { Err(format!("{before:?}, {now:?}")) }
    })
    .await;
    assert_eq!(operator.metric("lictor_leader{").await, None);
    assert_eq!(operator.metric(&of("lictor_eligible")).await, Some(0.0));
    assert_eq!(operator.metric(&ready("NoEligiblePod")).await, Some(0.0));
    assert_eq!(operator.metric(&ready("Led")).await, None);
    assert_eq!(operator.metric("lictor_paused").await, None);
    lab.elect(json!({"paused": true})).await;
    lab.wait_condition("web", "Ready", "True", "Paused").await;
    assert_eq!(operator.metric(&of("lictor_paused")).await, Some(1.0));

    // What the kernel says of the process.
    let open = operator.metric("process_open_fds").await.expect("it has open files");
    let most = operator.metric("process_max_fds").await.expect("there is a limit");
    assert!(0.0 < open && open <= most, "{open} {most}");
    let memory = operator.metric("process_resident_memory_bytes").await.expect("it uses memory");
    assert!((1e6..1e9).contains(&memory), "{memory}");
    assert!(operator.metric("process_cpu_seconds_total").await.is_some_and(|spent| (0.01..60.0).contains(&spent)));
    let started = operator.metric("process_start_time_seconds").await.expect("it has started");
    let started = std::time::Duration::from_secs_f64(started);
    let age = k8s_openapi::jiff::Timestamp::now().as_second() - i64::try_from(started.as_secs()).expect("a time");
    assert!((-2..120).contains(&age), "{age}");

    // lictor_api_errors_total appears with the first error.
    let (status, text) = operator.get("/metrics").await;
    assert_eq!(status, 200);
    for (name, kind) in [
        ("leader", "gauge"),
        ("term", "gauge"),
        ("transitions", "counter"),
        ("without_leader_seconds", "counter"),
        ("failover_duration_seconds", "histogram"),
        ("label_drift", "counter"),
        ("queue_depth", "gauge"),
        ("acting", "gauge"),
    ] {
        assert!(text.contains(&format!("# TYPE lictor_{name} {kind}\n")), "{name}: {text}");
        assert!(text.contains(&format!("# HELP lictor_{name} ")), "{name}: {text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert_eq!(operator.get("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(operator.get("/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!(operator.get("/nothing").await.0, 404);

    let lines: Vec<Value> = operator.log().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let elected: Vec<_> = lines.iter().filter(|line| line["message"] == "leader elected").collect();
    assert_eq!(elected.len(), 2, "{lines:#?}");
    for (line, (pod, term)) in elected.iter().zip([(first.as_str(), 1), (second, 2)]) {
        assert_eq!(line["election"], format!("{}/web", lab.namespace));
        assert_eq!((&line["pod"], &line["term"]), (&json!(pod), &json!(term)), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_group_costs_no_request_but_watches_and_the_operators_own_lease() {
    let lab = Lab::new("quiet").await;
    let proxy = Proxy::start(lab.cluster).await;
    let operator = lab.operator_at(proxy.kubeconfig(), &[]);
    operator.acts().await;
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    status_of(&lab, &leader).await;
    lab.wait_event("LeaderElection", "web", "Elected").await;
    let renewals = || {
        let renews = |asked: &&Asked| asked.method == "PATCH" && asked.name() == "lictor.dev-operator";
        proxy.asked().iter().filter(renews).count()
    };
    let renewed = async |times: usize| {
        let before = renewals();
        eventually("the operator renews its Lease", || async {
            let now = renewals();
            if now >= before + times { Ok(()) } else { Err(format!("{now} instead of {}", before + times)) }
        })
        .await;
    };
    // A status with only new counts is written a second later, and a renewal comes every second.
    renewed(3).await;
    let before = proxy.asked().len();
    renewed(5).await;
    let cost: Vec<String> = proxy.asked()[before..]
        .iter()
        .filter(|asked| asked.name() != "lictor.dev-operator")
        .filter(|asked| !(asked.method == "GET" && asked.path.contains("watch=true")))
        .map(|asked| format!("{} {}", asked.method, asked.path))
        .collect();
    assert!(cost.is_empty(), "{cost:#?}");
    // The operator still works.
    lab.kill_pod(&leader).await;
    lab.wait_any_leader().await;
}

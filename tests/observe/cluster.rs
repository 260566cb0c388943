//! Heard from the API server, with a real operator, by the rights that docs/know-that-you-lead.md names.

use lictor_testing::file;
use lictor_testing::kubernetes::{Lab, PodSpec, Proxy, User};
use serde_json::{Value, json};

use crate::{Bench, Observer};

/// Returns the block of docs/know-that-you-lead.md that has this text.
pub fn documented(language: &str, text: &str) -> String {
    let page = std::fs::read_to_string(file("docs/know-that-you-lead.md")).expect("the page can be read");
    let begin = format!("```{language}\n");
    let blocks = page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.map(str::to_owned).find(|block| block.contains(text)).expect("the page has it")
}

fn observe(bench: &Bench, kubeconfig: &std::path::Path, lab: &Lab, more: &[&str]) -> Observer {
    let (election, kubeconfig) = (format!("{}/web", lab.namespace), kubeconfig.to_str().expect("a path is text"));
    bench.start(&[["--election", &election, "--kubeconfig", kubeconfig].as_slice(), more].concat(), &[])
}

/// Each pod hears of itself, with the rights of the page, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn each_pod_hears_who_leads() {
    let (lab, bench) = (Lab::new("observe").await, Bench::new("cluster"));
    let user = User::new(&lab).await;
    let first = observe(&bench, user.kubeconfig(), &lab, &["--pod", "web-0"]);
    let known = first.knows("it has no right", |known| known["problem"].is_string()).await;
    let problem = known["problem"].as_str().expect("a text");
    assert!(
        problem.contains("not allowed to list leaderelections") && problem.contains("docs/know-that-you-lead.md"),
        "{problem}"
    );
    assert_eq!((&known["role"], &known["ageSeconds"]), (&json!("unknown"), &Value::Null));
    let role = documented("yaml", "kind: Role").replace("namespace: shop", &format!("namespace: {}", lab.namespace));
    lab.try_kubectl(&["apply", "-f", "-"], Some(&role)).expect("the role can be applied");
    let account = format!("--serviceaccount={}:lictor", lab.namespace);
    lab.try_kubectl(&["create", "rolebinding", "observe", "--role=observe-web", &account], None).expect("it is bound");
    let known = first.sees("follower", "").await;
    let missing = format!("there is no LeaderElection {}/web: create it, or correct --election", lab.namespace);
    assert_eq!(known["problem"], missing.as_str(), "{known}");
    let answer = first.get("/readyz").await;
    assert_eq!((answer.status, answer.text.as_str()), (503, format!("{missing}\n").as_str()));
    assert!(first.errors().contains(&missing), "{}", first.errors());

    let _operator = lab.operator(&[]);
    lab.ready_pods(&["web-0", "web-1"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    let other = if leader == "web-0" { "web-1" } else { "web-0" };
    let second = observe(&bench, user.kubeconfig(), &lab, &["--pod", "web-1"]);
    let of = |pod: &str| if pod == "web-0" { &first } else { &second };
    let known = of(&leader).sees("leader", &leader).await;
    assert_eq!(first.get("/readyz").await.status, 200);
    of(other).sees("follower", &leader).await;
    let election = lab.election("web").await.status.expect("it has a status");
    let told = election.leader.expect("somebody leads");
    assert_eq!((known["term"].as_i64(), known["leader"]["uid"].as_str()), (election.term, told.pod_uid.as_deref()));
    assert!(known["since"].is_string() && known["ageSeconds"].is_f64() && known["problem"].is_null(), "{known}");
    for (pod, status) in [(leader.as_str(), 200), (other, 503)] {
        let answer = of(pod).get("/leader").await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.header("lictor-age").parse::<f64>().is_ok_and(|age| age < 30.0));
        assert_eq!(of(pod).get("/").await.json()["name"], leader.as_str(), "both name the leader");
    }

    let mut events = of(other).events("/events", None).await;
    events.next().await.expect("what is");
    lab.kill_pod(&leader).await;
    let known = of(other).sees("leader", other).await;
    assert!(known["term"].as_i64() > election.term);
    let event = events.next().await.expect("a change");
    assert_eq!(event.data["election"], format!("{}/web", lab.namespace));

    // The pod that has the name now is not the one that leads by that name: its uid is another one.
    let uid = known["leader"]["uid"].as_str().expect("a uid").to_owned();
    let same = observe(&bench, user.kubeconfig(), &lab, &["--pod", other, "--pod-uid", &uid]);
    same.sees("leader", other).await;
    let anew = observe(&bench, user.kubeconfig(), &lab, &["--pod", other, "--pod-uid", "another"]);
    anew.sees("follower", other).await;

    lab.delete_election("web").await;
    of(other).sees("follower", "").await;
    assert_eq!(of(other).get("/readyz").await.status, 200, "it was there once");
}

/// While the API server does not answer, what is known gets older, until it counts no more. Then it is heard of again.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_says_so_and_stops_to_lead() {
    let (lab, bench) = (Lab::new("observe-away").await, Bench::new("away-cluster"));
    let _operator = lab.operator(&[]);
    lab.pod("web-0", PodSpec::default()).await;
    lab.wait_ready("web-0", true).await;
    lab.elect(json!({})).await;
    lab.wait_leader("web-0").await;
    let proxy = Proxy::start(lab.cluster).await;
    let cautious = observe(&bench, proxy.kubeconfig(), &lab, &["--pod", "web-0", "--stale-after", "3s"]);
    let trusting = observe(&bench, proxy.kubeconfig(), &lab, &["--pod", "web-0", "--stale-after", "never"]);
    let hooks = observe(
        &bench,
        proxy.kubeconfig(),
        &lab,
        &[
            "--pod",
            "web-0",
            "--stale-after",
            "3s",
            "--on-leader",
            "echo on >>log",
            "--on-follower",
            "echo off $LICTOR_ROLE >>log",
        ],
    );
    for observer in [&cautious, &trusting, &hooks] {
        observer.sees("leader", "web-0").await;
    }
    bench.has("log", &["on"]).await;
    proxy.hold(|_| true);
    let known = cautious.knows("it counts no more", |known| known["stale"] == true).await;
    assert_eq!((&known["role"], &known["leader"]["name"]), (&json!("unknown"), &json!("web-0")));
    assert!(known["ageSeconds"].as_f64().is_some_and(|age| age >= 3.0), "{known}");
    let answer = cautious.get("/leader").await;
    assert!(answer.status == 503 && answer.text.contains("it is not known"), "{}", answer.text);
    assert_eq!(cautious.get("/").await.json()["name"], "");
    bench.has("log", &["on", "off unknown"]).await;
    // Who wants it so, believes what was heard last.
    let known = trusting.election().await;
    assert_eq!((&known["role"], &known["stale"]), (&json!("leader"), &json!(false)));
    proxy.hold(|_| false);
    for observer in [&cautious, &hooks] {
        observer.sees("leader", "web-0").await;
    }
    bench.has("log", &["on", "off unknown", "on"]).await;
}

/// The manifests of examples/observe, with what their sidecars are told, by the account that they have.
#[tokio::test(flavor = "multi_thread")]
async fn the_sidecars_of_the_example_hear_who_leads() {
    let (lab, mut bench) = (Lab::new("observe-example").await, Bench::new("example"));
    let user = User::new(&lab).await;
    let _operator = lab.operator(&[]);
    let directory = file("examples/observe");
    lab.try_kubectl(&["apply", "-f", directory.to_str().expect("a path is text")], None).expect("they can be applied");
    let manifest = |name: &str, kind: &str| -> Value {
        let text = std::fs::read_to_string(directory.join(name)).expect("it can be read");
        let parts = text.split("\n---\n").map(|part| serde_saphyr::from_str::<Value>(part).expect("it is YAML"));
        parts.into_iter().find(|part| part["kind"] == kind).expect("it is there")
    };
    let arguments = |container: &Value| -> Vec<String> {
        let all = serde_json::from_value::<Vec<String>>(container["args"].clone()).expect("arguments");
        assert_eq!(all[0], "observe");
        all[1..].to_vec()
    };

    let pod = &manifest("worker.yaml", "Deployment")["spec"]["template"]["spec"];
    let sidecar = &pod["initContainers"][0];
    assert_eq!((&sidecar["restartPolicy"], &sidecar["env"][0]["name"]), (&json!("Always"), &json!("LICTOR_POD_UID")));
    let token = lab.try_kubectl(&["create", "token", pod["serviceAccountName"].as_str().expect("a name")], None);
    let text = std::fs::read_to_string(user.kubeconfig()).expect("it can be read");
    let mut kubeconfig: Value = serde_json::from_str(&text).expect("it is JSON");
    kubeconfig["users"][0]["user"]["token"] = json!(token.expect("a token can be made").trim());
    // As in the pod, the namespace is not said.
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(lab.namespace);
    let path = bench.directory.join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).expect("it can be written");
    let told = arguments(sidecar);
    let told: Vec<_> = told.iter().map(String::as_str).chain(["--kubeconfig", "kubeconfig"]).collect();
    let found = lab.wait_status("worker", "a worker leads", |election| {
        election.status.as_ref().is_some_and(|status| status.leader.is_some())
    });
    let leader = found.await.status.and_then(|status| status.leader).expect("it leads");
    let (name, uid) = (leader.pod_name.expect("a pod"), leader.pod_uid.expect("a uid"));
    let observer = bench.start(&told, &[("LICTOR_POD_UID", &uid), ("HOSTNAME", &name)]);
    observer.sees("leader", &name).await;
    let other = bench.start(&told, &[("LICTOR_POD_UID", "another"), ("HOSTNAME", "worker-another")]);
    other.sees("follower", &name).await;

    // The files are those that the volume has, and the directory is the one that is mounted.
    let pod = &manifest("mailer.yaml", "Deployment")["spec"]["template"]["spec"];
    let (sidecar, volume) = (&pod["containers"][1], &pod["volumes"][0]);
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(arguments(sidecar), ["--files=/etc/podinfo"]);
    assert_eq!(sidecar["volumeMounts"][0], json!({"name": volume["name"], "mountPath": "/etc/podinfo"}));
    let items = volume["downwardAPI"]["items"].as_array().expect("files");
    assert_eq!(items.iter().map(|item| item["path"].as_str().expect("a name")).collect::<Vec<_>>(), ["role", "term"]);
    bench.files.write("leader", "3");
    bench.of_files(&[]).sees("leader", "web-1").await;
}

//! An overloaded API server: it answers 429 with Retry-After, and carries out nothing.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use lictor_testing::kubernetes::{Lab, PodSpec, User, eventually, hanging_webhook, silent_server};
use serde_json::json;
use tokio::task::JoinHandle;

const FAILED: &str = "lictor_api_errors_total";

/// Makes the API server answer 429 to all requests of the lab's user. Its queue for them has only one place, and the request in
/// it waits for a webhook that hangs.
async fn refuse_for_now(lab: &Lab, user: &User<'_>) -> JoinHandle<()> {
    let name = lab.namespace.as_str();
    lab.pod("hangs", PodSpec { labels: json!({"app": "hangs"}), ..PodSpec::default() }).await;
    let (port, _) = silent_server().await;
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
        }},
    });
    let account = json!({"kind": "ServiceAccount", "serviceAccount": {"name": "lictor", "namespace": name}});
    let any = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]});
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 2,
            "rules": [{"subjects": [account], "resourceRules": [any]}],
        },
    });
    for object in [hanging_webhook(name, port, &json!({"app": "hangs"})), level, schema] {
        lab.try_kubectl(&["apply", "-f", "-"], Some(&object.to_string())).expect("it can be applied");
    }
    let client = user.client().await;
    let (pods, leases): (Api<Pod>, Api<Lease>) = (Api::namespaced(client.clone(), name), Api::namespaced(client, name));
    let hangs = tokio::spawn(async move {
        loop {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
            let _ = pods.patch("hangs", &PatchParams::default(), &patch).await;
            tokio::task::yield_now().await;
        }
    });
    eventually("the API server refuses for now", || async {
        match leases.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    hangs
}

fn let_in(lab: &Lab) {
    let kinds = "validatingwebhookconfiguration,flowschema,prioritylevelconfiguration";
    lab.try_kubectl(&["delete", kinds, &lab.namespace], None).expect("they can be deleted");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for the pauses between attempts"]
async fn an_api_server_that_is_too_busy_is_asked_again_without_haste_and_nothing_is_lost() {
    let lab = Lab::new("busy").await;
    let user = User::new(&lab).await;
    user.may(|_, _| true).await;
    let recorder = lab.record().await;
    // Its own Lease outlasts this, because the test is about a replica that acts.
    let operator = user.operator(&["--lease-duration", "60s"]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;

    let hangs = refuse_for_now(&lab, &user).await;
    lab.kill_pod(&leader).await;
    let (begun, before) = (Instant::now(), operator.metric(FAILED).await.unwrap_or_default());
    eventually("it tries again and again", || async {
        let failed = operator.metric(FAILED).await.unwrap_or_default() - before;
        if failed >= 20.0 { Ok(()) } else { Err(format!("{failed} failures")) }
    })
    .await;
    let took = begun.elapsed();
    eprintln!("measured: 20 requests were refused in {took:?}");
    assert!(took > Duration::from_secs(2), "{}", operator.log());

    hangs.abort();
    let_in(&lab);
    let begun = Instant::now();
    let next = lab.wait_any_leader().await;
    eprintln!("measured: {next} leads {:?} after the API server had time", begun.elapsed());
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    recorder.assert_promises().await;
}

//! Other tools that write workloads: autoscalers, `kubectl scale`, and tools that use server-side apply.

use std::time::{Duration, Instant};

use lictor_testing::kubernetes::workloads::{annotation, following, managers, pod, setting};
use lictor_testing::kubernetes::{Lab, Operator, WorkloadRecorder, eventually};
use serde_json::{Value, json};

/// A Deployment `live` and a CronJob `nightly` that follow a pod. They are enabled while that pod exists.
struct World {
    lab: Lab,
    operator: Operator,
    recorder: WorkloadRecorder,
}

impl World {
    async fn new(test: &str) -> Self {
        let lab = Lab::new(test).await;
        let recorder = lab.record_workloads().await;
        let operator = lab.operator(&[]);
        lab.deployment("live", 3, pod()).await;
        lab.cron_job("nightly", super::NEVER, pod()).await;
        lab.elect(json!({"workloads": following(&["Deployment/live", "CronJob/nightly"])})).await;
        let world = Self { lab, operator, recorder };
        world.enable(3).await;
        world.lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
        world
    }

    async fn enable(&self, replicas: u32) {
        self.lab.ready_pods(&["a"]).await;
        self.lab.wait_enabled("Deployment/live", json!(replicas)).await;
        self.lab.wait_enabled("CronJob/nightly", json!(false)).await;
    }

    async fn disable(&self, kept: u32) {
        self.lab.kill_pod("a").await;
        self.lab.wait_disabled("Deployment/live", json!(kept)).await;
        self.lab.wait_disabled("CronJob/nightly", json!(false)).await;
    }

    /// Returns how many times lictor has written the Deployment so far.
    async fn writes(&self) -> usize {
        self.recorder.catch_up().await;
        self.recorder.writes("Deployment/live")
    }
}

/// Returns what Argo CD or Flux applies of the Deployment, with these fields of its spec.
fn manifest(image: &str, fields: impl Into<Value>) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": "live"}},
        "template": {
            "metadata": {"labels": {"app": "live"}}, "spec": {"containers": [{"name": "main", "image": image}]},
        },
    });
    for (field, value) in fields.into().as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"labels": {"app.kubernetes.io/part-of": "shop"}}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for controllers and other tools to act"]
async fn another_number_of_replicas_is_respected_while_enabled_and_kept_while_disabled() {
    let world = World::new("wl-scale").await;
    let before = world.writes().await;
    world.lab.try_kubectl(&["scale", "deployment", "live", "--replicas=5"], None).expect("it can be scaled");
    world.lab.wait_workload("Deployment/live", "5 are ready", |found| found["status"]["readyReplicas"] == 5).await;
    // An autoscaler writes through the scale, again and again.
    for replicas in [6, 7, 4] {
        world.lab.scale("Deployment/live", replicas, "kube-controller-manager").await;
        let ready = |found: &Value| found["status"]["readyReplicas"] == json!(replicas);
        world.lab.wait_workload("Deployment/live", &format!("{replicas} are ready"), ready).await;
    }
    world.disable(4).await;
    assert_eq!(
        world.writes().await,
        before + 1,
        "it was written to be disabled, and not before: {}",
        world.operator.log()
    );
    world.enable(4).await;
    world.disable(4).await;

    // While it is disabled, lictor corrects it, and keeps the new number for later.
    world.lab.try_kubectl(&["scale", "deployment", "live", "--replicas=2"], None).expect("it can be scaled");
    world.lab.wait_disabled("Deployment/live", json!(2)).await;
    world.enable(2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for controllers and other tools to act"]
async fn an_autoscaler_leaves_a_disabled_deployment_alone_and_is_respected_when_it_is_enabled() {
    let world = World::new("wl-hpa").await;
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "live"},
        "minReplicas": 5, "maxReplicas": 8,
    });
    let object = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "live"}, "spec": spec,
    });
    world.lab.try_kubectl(&["create", "-f", "-"], Some(&object.to_string())).expect("an autoscaler can be made");
    // The lower limit needs no figures.
    world.lab.wait_enabled("Deployment/live", json!(5)).await;
    world.disable(5).await;
    eventually("the autoscaler stands still at 0", || async {
        let arguments =
            ["get", "hpa", "live", "-o", "jsonpath={.status.conditions[?(@.type=='ScalingActive')].reason}"];
        let reason = world.lab.try_kubectl(&arguments, None)?;
        if reason == "ScalingDisabled" { Ok(()) } else { Err(reason) }
    })
    .await;
    let before = world.writes().await;
    world.enable(5).await;
    assert_eq!(world.writes().await, before + 1, "there was nothing to correct: {}", world.operator.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for controllers and other tools to act"]
async fn what_applies_manifests_server_side_without_our_field_is_left_alone() {
    let world = World::new("wl-apply").await;
    for (number, manager) in ["argocd-controller", "kustomize-controller"].into_iter().enumerate() {
        for enabled in [true, false] {
            let before = world.writes().await;
            for version in 1..4 {
                let image = format!("example/web:{number}.{version}-{enabled}");
                let applied = world.lab.apply("Deployment/live", manifest(&image, json!({})), manager, true).await;
                let applied = applied.expect("it can be applied");
                assert_eq!(*setting(&applied), if enabled { json!(3) } else { json!(0) });
                assert_eq!(annotation(&applied, "lictor.dev/election"), Some("web"));
                assert!(managers(&applied).contains(&manager) && managers(&applied).contains(&"lictor"));
                let rolled = |found: &Value| {
                    found["status"]["observedGeneration"] == found["metadata"]["generation"]
                        && found["status"]["updatedReplicas"].as_u64().unwrap_or(0) == if enabled { 3 } else { 0 }
                };
                world.lab.wait_workload("Deployment/live", "it is rolled out", rolled).await;
            }
            // The next change of the leadership comes after all that, and is the only reason to write.
            if enabled {
                world.disable(3).await;
            } else {
                world.enable(3).await;
            }
            assert_eq!(world.writes().await, before + 1, "{manager}: {}", world.operator.log());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for controllers and other tools to act"]
async fn who_fights_for_the_field_is_named_and_its_wish_is_kept() {
    let world = World::new("wl-contested").await;
    world.disable(3).await;
    // Without force, the API server itself refuses.
    let refused =
        world.lab.apply("Deployment/live", manifest("example/web", json!({"replicas": 5})), "argocd-controller", false);
    let refused = refused.await.expect_err("the field is lictor's");
    assert!(refused.contains("\"lictor\"") && refused.contains(".spec.replicas"), "{refused}");
    let before = world.writes().await;
    let began = Instant::now();
    let mut rounds = 0;
    // This takes as long as a person needs to see it.
    while rounds < 10 || began.elapsed().as_secs() < 10 {
        let fields = manifest("example/web", json!({"replicas": 5}));
        world.lab.apply("Deployment/live", fields, "argocd-controller", true).await.expect("it can be forced");
        world.lab.wait_disabled("Deployment/live", json!(5)).await;
        rounds += 1;
    }
    let writes = world.writes().await - before;
    assert!((1..=rounds).contains(&writes), "{writes} writes for {rounds} of the other");
    world.lab.wait_message("web", "WorkloadsFollow", "Contested", "argocd-controller").await;
    let note = world.lab.wait_event("LeaderElection", "web", "WorkloadContested").await;
    assert!(note.contains("Deployment/live"), "{note}");
    world.enable(5).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for controllers and other tools to act"]
async fn suspend_is_put_right_both_ways() {
    let world = World::new("wl-suspend").await;
    world.lab.patch("CronJob/nightly", json!({"spec": {"suspend": true}})).await;
    world.lab.wait_message("web", "WorkloadsFollow", "Contested", "CronJob").await;
    world.lab.wait_enabled("CronJob/nightly", json!(false)).await;
    // The status shows it for a minute.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    world.disable(3).await;
    let applied = world.lab.apply(
        "CronJob/nightly",
        json!({"spec": {
            "schedule": super::NEVER, "suspend": false,
            "jobTemplate": {"spec": lictor_testing::kubernetes::workloads::job_spec(pod())},
        }}),
        "kustomize-controller",
        true,
    );
    applied.await.expect("it can be forced");
    world.lab.wait_disabled("CronJob/nightly", json!(false)).await;
    world.lab.wait_message("web", "WorkloadsFollow", "Contested", "kustomize-controller").await;
    world.enable(3).await;
}

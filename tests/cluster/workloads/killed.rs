//! Operators that are killed: what they enabled stays enabled until another operator of their cluster acts.

use lictor_testing::kubernetes::WorkloadRecorder;
use serde_json::json;

use super::{never_both_enabled, settled, two};
use crate::consul::member::LED_WITHIN;
use crate::operator::wait_ready;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn while_an_operator_of_its_cluster_lives_nothing_is_enabled_twice_and_one_that_comes_back_disables_first() {
    let (mut west, east) = two("wl-killed", json!({})).await;
    west.recorder.catch_up().await;
    let wind_down = wind_down(&west).await;
    assert!(wind_down >= 6, "{wind_down} s");
    let killed = west.recorder.catch_up().await;
    let began = std::time::Instant::now();
    west.operator.signal("KILL");
    // The east has the lock, and waits for the end of what it can't see.
    let message = east.lab().wait_condition("web", "WorkloadsFollow", "False", "Waiting").await;
    assert!(message.contains(&format!("at most {wind_down} s")), "{message}");
    east.member.wait_led("east", None).await;
    let led = std::time::Instant::now();
    east.lab().wait_state("Deployment/live", "Waiting").await;
    east.wait_all_enabled().await;
    let waited = led.elapsed().as_secs_f64();
    assert!(waited > f64::from(wind_down) - 2.0, "{waited} s, and the pods in the west may take {wind_down} s");
    let took = began.elapsed();
    assert!(took < LED_WITHIN, "{took:?}, and it may take {LED_WITHIN:?}");
    east.lab().wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    super::all_enabled(west.lab(), west.replicas).await;

    west.operator = west.member.operator(&[]);
    west.wait_all_disabled().await;
    west.member.wait_led("east", None).await;
    settled(&west).await;
    let back = west.recorder.catch_up().await;
    east.recorder.catch_up().await;
    // Nobody could disable anything in the west between these.
    WorkloadRecorder::assert_never_both_enabled_but_for(&[&west.recorder, &east.recorder], killed..back);
    assert_eq!(west.recorder.turns(true).len(), 4, "what came back enabled nothing");
    east.wait_all_enabled().await;
}

/// Returns the status's wind-down time.
async fn wind_down(side: &super::Side) -> u32 {
    let told =
        |election: &lictor_api::LeaderElection| Some(election.status.as_ref()?.workloads.as_ref()?.wind_down_seconds);
    let election = side.lab().wait_status("web", "the status names a time", |found| told(found).is_some()).await;
    told(&election).expect("it does")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn when_one_of_two_replicas_is_killed_the_other_goes_on_and_disturbs_nothing() {
    let (west, east) = two("wl-replicas", json!({})).await;
    let second = west.member.operator(&[]);
    wait_ready(&second, false).await;
    west.recorder.catch_up().await;
    west.operator.signal("KILL");
    second.acts().await;
    west.lab().wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    // It acts for both sides: it can disable what it enabled or found enabled.
    west.wait_all_enabled().await;
    assert_eq!(west.recorder.turns(true).len(), 4, "nothing was disabled meanwhile");
    let from = east.recorder.catch_up().await;
    west.lab().open_gate(false).await;
    east.wait_all_enabled().await;
    west.wait_all_disabled().await;
    never_both_enabled(&west, &east).await;
    WorkloadRecorder::assert_never_both_run(&[&west.recorder, &east.recorder], from);
}

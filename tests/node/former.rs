//! With `formerLeader: DeleteFirst`, the program of the former leader has ended before another pod leads.

use std::time::Duration;

use serde_json::json;

use crate::figures::Figures;
use crate::group::{Group, PROGRAM, Reach};
use crate::nodes::Nodes;

const RUNS: usize = 5;
/// How long a pod takes to end: its `preStop`, less what is lost by rounding.
const ENDS_AFTER: Duration = Duration::from_millis(1900);

pub async fn ends_first(nodes: &Nodes, figures: &mut Figures) {
    let group =
        Group::make(nodes, "ends-first", false, Reach::Service(json!({"handover": {"formerLeader": "DeleteFirst"}})))
            .await;
    group.runs().await;
    for _ in 0..RUNS {
        let former = group.calm(3).await;
        let run = group.fails_over(3, async |leader| group.may_lead(&leader.pod, false).await).await;
        assert!(Nodes::processes(&former.uid, PROGRAM).is_empty(), "the program of {} has ended", former.pod);
        assert!(run.to_label >= ENDS_AFTER, "another pod leads after {:.1?}", run.to_label);
        figures.failover("the leader is moved, and its pod ends first (`formerLeader: DeleteFirst`)", run);
        group.runs().await;
    }
    println!("{}: {} leaderships, and never two at a time", group.name, group.recorder.assert_promises().await);
    nodes.kubectl(&["delete", "leaderelections,services,deployments", "-n", group.name, "--all"]);
}

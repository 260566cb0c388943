//! A leader's process that is killed: seen by the connection that lictor holds to it by default, and reached by a slice.

use kube::api::DeleteParams;
use serde_json::json;

use crate::figures::{Figures, Table};
use crate::group::Group;
use crate::nodes::Nodes;

const RUNS: usize = 10;

pub async fn are_seen_by_a_connection(nodes: &Nodes, figures: &mut Figures) {
    let held = Group::make(nodes, "held", false, true).await;
    held.runs().await;
    held.elect("leader", &json!({"service": {"name": "leader"}}));
    for _ in 0..RUNS {
        let killed = held.calm(3).await.pod;
        let run = held.is_killed().await;
        figures.switch(Table::Quiet, "killed, seen by `probe.connection`, reached by a slice", run);
        // A container that is killed again and again is started later and later.
        held.delete(&killed, &DeleteParams::default().grace_period(0)).await;
    }
    println!("{}: {} leaderships, and never two at a time", held.name, held.recorder.assert_promises().await);
    nodes.kubectl(&["delete", "leaderelections,services,deployments", "-n", held.name, "--all"]);
}

//! Leaders that are moved, deleted or killed, reached by their label and, beside it in the same run, by a slice that lictor writes: while
//! nothing else changes, and while slices of other Services change five times a second.

use std::time::Duration;

use lictor_testing::kubernetes::SliceRecorder;
use serde_json::json;

use crate::figures::{Figures, Table};
use crate::group::Group;
use crate::nodes::Nodes;
use crate::noise::Noise;

/// How often kube-proxy carries out changes, if there are many.
const MIN_SYNC_PERIOD: Duration = Duration::from_secs(1);
const KILLS: usize = 5;

pub async fn measure(nodes: &Nodes, labelled: &Group<'_>, runs: usize, figures: &mut Figures) {
    let sliced = Group::make(nodes, "sliced", false, true).await;
    sliced.runs().await;
    // By default, lictor would see a killed leader by a connection: ends.rs.
    sliced.elect("leader", &json!({"service": {"name": "leader"}, "probe": {"connection": {"enabled": false}}}));
    sliced.leader().await;
    let routes = SliceRecorder::start(sliced.client.clone(), sliced.name).await;
    let begins = routes.catch_up().await;
    let groups = [(labelled, "its label"), (&sliced, "a slice")];
    for table in [Table::Quiet, Table::Noisy] {
        let noise = match table {
            Table::Noisy => Some(Noise::start(nodes).await),
            _ => None,
        };
        for run in 0..runs {
            for (group, how) in groups {
                calm(labelled, &sliced, table, run, runs).await;
                figures.switch(table, &format!("moved, reached by {how}"), group.is_moved().await);
            }
        }
        for run in 0..runs {
            for (group, how) in groups {
                calm(labelled, &sliced, table, run, runs).await;
                figures.switch(table, &format!("deleted with `preStop`, reached by {how}"), group.is_deleted().await);
            }
        }
        if let Some(noise) = noise {
            noise.assert_heard();
        }
    }
    nodes.kubectl(&["delete", "namespace", "noise", "--wait=false"]);
    for _ in 0..KILLS {
        calm(labelled, &sliced, Table::Quiet, 0, 1).await;
        figures.switch(Table::Quiet, "killed, reached by a slice", sliced.is_killed().await);
    }
    println!("{}: {} leaderships, and never two at a time", sliced.name, sliced.recorder.assert_promises().await);
    routes.assert_promises().await;
    routes.assert_never_none("leader", "IPv4", begins);
    nodes.kubectl(&["delete", "leaderelections,services,deployments", "-n", sliced.name, "--all"]);
    figures.assert_switches_lose_nothing();
}

/// Waits until kube-proxy has nothing to do for either group. Beside noise it always has: then each run begins at another moment
/// between two of its rounds, since the wait itself ends at about the same one.
async fn calm(one: &Group<'_>, other: &Group<'_>, table: Table, run: usize, runs: usize) {
    one.calm(3).await;
    other.calm(3).await;
    if table == Table::Noisy {
        let share = f64::from(u32::try_from(run).unwrap_or_default()) / f64::from(u32::try_from(runs).unwrap_or(1));
        tokio::time::sleep(MIN_SYNC_PERIOD.mul_f64(share)).await;
    }
}

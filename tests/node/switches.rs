//! Leaders that are moved, deleted, killed or rolled out, reached by the Service that their election makes and, beside it in the same run,
//! by their label: while nothing else changes, and while slices of other Services change five times a second.

use std::time::Duration;

use kube::api::DeleteParams;
use lictor_testing::kubernetes::SliceRecorder;
use serde_json::json;

use crate::figures::{Figures, Table};
use crate::group::{Group, Reach};
use crate::nodes::Nodes;
use crate::noise::Noise;

/// How often kube-proxy carries out changes, if there are many.
const MIN_SYNC_PERIOD: Duration = Duration::from_secs(1);
const KILLS: usize = 10;
/// How many rollouts follow one another, where runs are as many.
const RELEASES: usize = 20;

pub async fn measure(nodes: &Nodes, labelled: &Group<'_>, runs: usize, figures: &mut Figures) {
    let sliced = Group::make(nodes, "sliced", false, Reach::Service(json!({}))).await;
    sliced.runs().await;
    sliced.leader().await;
    let routes = SliceRecorder::start(sliced.client.clone(), sliced.name).await;
    let begins = routes.catch_up().await;
    let groups = [(labelled, "its label"), (&sliced, "its Service")];
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
        let killed = sliced.calm(3).await.pod;
        figures.switch(Table::Quiet, "killed, reached by its Service", sliced.is_killed().await);
        // A container that is killed again and again is started later and later.
        sliced.delete(&killed, &DeleteParams::default().grace_period(0)).await;
    }
    for _ in 0..runs.div_ceil(2) {
        figures.switch(Table::Quiet, "rolled out, reached by its Service", sliced.is_rolled_out(1).await);
    }
    if runs >= RELEASES {
        let what = format!("rolled out {RELEASES} times in a row, reached by its Service");
        figures.switch(Table::Quiet, &what, sliced.is_rolled_out(RELEASES).await);
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

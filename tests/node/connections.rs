//! Which pod answers over a connection that is open when something happens to the leader: docs/routing.md.

use serde_json::json;

use crate::figures::Figures;
use crate::group::{Group, LETS_GO, Reach};
use crate::keeper::Keeper;
use crate::nodes::Nodes;

const RUNS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Moved,
    Deleted,
    Killed,
}

impl Change {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Moved, "moved"), (Self::Deleted, "deleted with `preStop`"), (Self::Killed, "killed")];
}

pub async fn measure(nodes: &Nodes, labelled: &Group<'_>, figures: &mut Figures) {
    let sliced = Group::make(nodes, "kept", false, Reach::Service(json!({}))).await;
    let lets_go = Group::make_of(nodes, "let-go", LETS_GO, false, Reach::Service(json!({}))).await;
    for group in [&sliced, &lets_go] {
        group.runs().await;
        group.leader().await;
    }
    for (group, how, own) in [
        (labelled, "its label", false),
        (&sliced, "its Service", false),
        (&lets_go, "its Service; its program lets connections go", true),
    ] {
        for (change, word) in Change::ALL {
            for _ in 0..RUNS {
                let leader = group.calm(3).await;
                let keeper = Keeper::start(group.leaders_address().await, &leader.pod).await;
                let run = match change {
                    Change::Moved => group.is_moved().await,
                    Change::Deleted => group.is_deleted().await,
                    Change::Killed => group.is_killed().await,
                };
                let kept = keeper.follow(run.began, &group.leader().await.pod).await;
                let what = format!("{word}, reached by {how}");
                let as_told = match change {
                    Change::Moved if !own => kept.ended.is_none() && kept.reached.is_none(),
                    Change::Moved => kept.reached.is_some() && kept.lost == 0,
                    Change::Deleted => kept.reached.is_some(),
                    // Its process is started again. If that is before the switch, a client may connect to it once more, and stay.
                    Change::Killed => kept.ended.is_some() && (kept.reached.is_some() || !own),
                };
                assert!(as_told, "{what}: {kept:?}");
                figures.connection(&what, kept);
            }
        }
    }
    for group in [&sliced, &lets_go] {
        println!("{}: {} leaderships, and never two at a time", group.name, group.recorder.assert_promises().await);
        nodes.kubectl(&["delete", "leaderelections,services,deployments", "-n", group.name, "--all"]);
    }
}

//! `kubectl lictor who`: shows the leader.

use clap::Args;
use clap_complete::ArgValueCompleter;
use k8s_openapi::jiff::Timestamp;
use lictor_api::{Leader, READY};
use serde_json::json;

use super::access::Place;
use super::complete::elections;
use super::format::{Format, age};
use super::presence::{Presence, find};
use super::reading::{condition, full_name};
use crate::cli::support::{Ended, block_on, print};

/// Shows the leader. The exit code is 3 if there is none.
///
/// It reads the status and the leader's pod: a leader whose pod is gone or has lost its label does not count, even
/// while no operator runs. `status` reads the lock, too.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor who web\n  kubectl logs $(kubectl lictor who web -o name)    # the leader's log\n  kubectl exec $(kubectl lictor who web -o name) -- hostname"
)]
pub(crate) struct Who {
    /// The election.
    #[arg(add = ArgValueCompleter::new(elections))]
    name: String,

    #[command(flatten)]
    place: Place,

    /// Print the leader in another format. name: pod/NAME, for other commands of kubectl; if the leader is no pod of
    /// this cluster, it prints nothing and exits with 3.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Who {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.tell())
    }

    async fn tell(self) -> anyhow::Result<Ended> {
        let (reader, namespace) = self.place.reader().await?;
        let election = reader.election(&namespace, &self.name).await?;
        let status = election.status.clone().unwrap_or_default();
        let name = full_name(&election);
        let ready = condition(&election, READY);
        if let Some(unwell) = ready.filter(|ready| ready.status != "True") {
            eprintln!("{name}: {}: {}", unwell.reason, unwell.message);
        }
        let Some(leader) = status.leader else {
            if ready.is_none_or(|ready| ready.status == "True") {
                eprintln!("{name} has no leader");
            }
            return Ok(Ended::No);
        };
        match find(&reader, &election, &leader).await {
            Presence::Leads => {}
            Presence::Unseen(why) => eprintln!("{name}: can't see from here whether its leader exists: {why}"),
            Presence::Lost(why) => {
                eprintln!("{name} has no leader: {why}");
                return Ok(Ended::No);
            }
        }
        let elsewhere = ready.is_some_and(|ready| ready.reason == "LedElsewhere");
        if let Some(data) = self.output.and_then(Format::data) {
            let mut told = json!(leader);
            told["term"] = json!(status.term);
            data.print(&told)?;
        } else if self.output == Some(Format::Name) {
            let Some(pod) = leader.pod_name.as_ref().filter(|_| !elsewhere) else {
                eprintln!("{}", sentence(&name, &leader, status.term));
                return Ok(Ended::No);
            };
            print(&format!("pod/{pod}\n"))?;
        } else {
            print(&(sentence(&name, &leader, status.term) + "\n"))?;
        }
        Ok(Ended::Well)
    }
}

fn sentence(election: &str, leader: &Leader, term: Option<i64>) -> String {
    let who = match (&leader.pod_name, &leader.cluster_name, &leader.session) {
        (Some(pod), Some(cluster), _) => format!("{pod} in the cluster {cluster}"),
        (Some(pod), None, _) => pod.clone(),
        (None, _, Some(session)) => session.clone(),
        (None, Some(cluster), None) => format!("the cluster {cluster}"),
        (None, None, None) => "an unknown program".into(),
    };
    let term = term.map(|term| format!(" in term {term}")).unwrap_or_default();
    let since = leader.acquire_time.as_ref().map(|time| format!(" for {}", age(time.0, Timestamp::now())));
    let place = [leader.node_name.as_ref().map(|node| format!("node {node}")), leader.pod_ip.clone()];
    let place: Vec<String> = place.into_iter().flatten().collect();
    let place = if place.is_empty() { String::new() } else { format!(" ({})", place.join(", ")) };
    format!("{who} leads {election}{term}{}{place}", since.unwrap_or_default())
}

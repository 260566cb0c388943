//! `kubectl lictor switchover`: asks for another leader.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use clap_complete::ArgValueCompleter;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use lictor_api::{ACCEPTED, COMPLETE, FAILED, Switchover as Object, SwitchoverSpec};
use tokio::time::{Instant, sleep};

use super::access::Place;
use super::complete::elections;
use super::format::Format;
use super::reading::{Reader, full_name};
use crate::cli::support::{Ended, block_on, print};

/// How often to check whether the Switchover has ended.
const PERIOD: Duration = Duration::from_millis(200);

/// Moves the leadership to another pod or to another cluster, once, by creating a Switchover.
///
/// The Switchover names the current term, so if the leader changes before the operator begins, the leadership does not
/// move. You need the right to create Switchovers, but no right to change elections or pods.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor switchover web --wait    # to the pod that would be elected next\n  kubectl lictor switchover web --to web-2 --wait\n  kubectl lictor switchover web --at 2026-11-22T22:30:00Z --deadline 600    # at night; waits up to 10 minutes for an eligible pod\n  kubectl lictor switchover web --to-cluster east --wait    # to another cluster, where clusters share the lock's store"
)]
pub(crate) struct Switchover {
    /// The election.
    #[arg(add = ArgValueCompleter::new(elections))]
    name: String,

    #[command(flatten)]
    place: Place,

    /// The pod that is to lead. Default: the pod that lictor would elect if the current leader were gone.
    #[arg(long, value_name = "POD")]
    to: Option<String>,

    /// The cluster that is to lead: the clusterName of its ElectionClass.
    #[arg(long, value_name = "CLUSTER", conflicts_with = "to")]
    to_cluster: Option<String>,

    /// When to begin: a time with its offset, such as 2026-11-22T22:30:00Z, or a delay, such as +10m. Default: at once.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,

    /// How long the Switchover may wait until nothing blocks it, for example until a pod becomes ready, in seconds.
    /// Default: it does not wait, but fails at once.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=2_592_000))]
    deadline: Option<u32>,

    /// Let --to lead even if it is not ready, lacks a condition or is on a cordoned node.
    #[arg(long, requires = "to")]
    force: bool,

    /// For how long the old leader ranks last among the eligible pods, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(0..=2_592_000))]
    hold: u32,

    /// Wait until the Switchover is complete or has failed, and then exit with 0 or with 3.
    #[arg(long)]
    wait: bool,

    /// How long --wait waits, in seconds, counted from --at. The exit code is then 4, and the Switchover continues.
    /// Default: 60, plus --deadline.
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u32>,

    /// Print the Switchover in another format.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Switchover {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.switch())
    }

    async fn switch(self) -> anyhow::Result<Ended> {
        let (reader, namespace) = self.place.reader().await?;
        let election = reader.election(&namespace, &self.name).await?;
        let name = full_name(&election);
        let Some(term) = election.status.as_ref().and_then(|status| status.term) else {
            bail!(
                "{name} has had no leader yet, so there is none to replace: `kubectl lictor explain {}` says why",
                self.name
            );
        };
        let spec = SwitchoverSpec {
            election_name: self.name.clone(),
            to_pod_name: self.to.clone(),
            to_cluster_name: self.to_cluster.clone(),
            from_term: term,
            not_before_time: self.at.map(|at| at.to_string()),
            deadline_seconds: self.deadline,
            force: self.force,
            hold_seconds: self.hold,
            ttl_seconds_after_finished: None,
            requested_by: None,
        };
        let asked = named(&reader, spec).await;
        // Whether the API server has confirmed that the Switchover exists.
        let is_created = Cell::new(false);
        tokio::select! {
            biased;
            // First, so that Ctrl-C is handled before any request is sent.
            Ok(()) = tokio::signal::ctrl_c() => {
                eprintln!("{}", interrupted(&namespace, &asked.name_any(), is_created.get()));
                Ok(Ended::Interrupted)
            }
            ended = self.create(&reader, &namespace, &asked, &is_created) => ended,
        }
    }

    /// Creates the Switchover, and waits for its end if requested.
    async fn create(
        &self,
        reader: &Reader,
        namespace: &str,
        asked: &Object,
        is_created: &Cell<bool>,
    ) -> anyhow::Result<Ended> {
        let created = reader.create_switchover(namespace, asked).await?;
        is_created.set(true);
        if !self.wait || self.output.is_none() {
            self.show(&created, "created")?;
        }
        if self.wait { self.follow(reader, namespace, &created).await } else { Ok(Ended::Well) }
    }

    fn show(&self, object: &Object, done: &str) -> anyhow::Result<()> {
        let name = format!("switchover.lictor.dev/{}", object.name_any());
        match self.output.map(|output| (output, output.data())) {
            Some((_, Some(data))) => data.print(object),
            Some((Format::Name, _)) => print(&(name + "\n")),
            _ => print(&format!("{name} {done}\n")),
        }
    }

    /// Waits until the Switchover has ended.
    async fn follow(&self, reader: &Reader, namespace: &str, created: &Object) -> anyhow::Result<Ended> {
        let until = self.at.map_or(SignedDuration::ZERO, |at| at.duration_since(Timestamp::now()));
        let patience = self.timeout.unwrap_or_else(|| self.deadline.unwrap_or_default() + 60);
        let deadline =
            Instant::now() + until.try_into().unwrap_or(Duration::ZERO) + Duration::from_secs(patience.into());
        let name = created.name_any();
        loop {
            // A failed read may succeed a moment later.
            let read = reader.switchover(namespace, &name).await;
            match &read {
                Ok(Some(now)) if now.uid() == created.uid() => {
                    if let Some(ended) = self.ended(now)? {
                        return Ok(ended);
                    }
                }
                Ok(_) => bail!("the Switchover {namespace}/{name} was deleted before it had ended"),
                Err(_) => {}
            }
            if Instant::now() >= deadline {
                let said = match &read {
                    Ok(now) => now.iter().find_map(|now| said(now, ACCEPTED)).map(|accepted| accepted.message.clone()),
                    Err(why) => Some(why.clone()),
                };
                let said = said.filter(|said| !said.is_empty()).map(|said| format!(": {said}")).unwrap_or_default();
                eprintln!("the switchover has not ended within {patience} s, and continues{said}");
                return Ok(Ended::Late);
            }
            sleep(PERIOD).await;
        }
    }

    /// Reports how the Switchover has ended, if it has.
    fn ended(&self, object: &Object) -> anyhow::Result<Option<Ended>> {
        let holds = |type_| said(object, type_).filter(|condition| condition.status == "True");
        if let Some(failed) = holds(FAILED) {
            if self.output.is_some() {
                self.show(object, "failed")?;
            }
            eprintln!("{}: {}", failed.reason, failed.message);
            return Ok(Some(Ended::No));
        }
        if holds(COMPLETE).is_none() {
            return Ok(None);
        }
        if self.output.is_some() {
            self.show(object, "complete")?;
            return Ok(Some(Ended::Well));
        }
        let status = object.status.clone().unwrap_or_default();
        let to = match (status.to.map(|to| to.pod_name), &object.spec.to_cluster_name) {
            (Some(pod), Some(cluster)) => format!("{pod} in the cluster {cluster}"),
            (pod, cluster) => pod.or_else(|| cluster.clone()).unwrap_or_default(),
        };
        let from = status.from.map(|from| format!(" instead of {}", from.pod_name)).unwrap_or_default();
        let term = status.term.map(|term| format!(" in term {term}")).unwrap_or_default();
        let took = status.duration_milliseconds.map(|took| format!(", after {took} ms")).unwrap_or_default();
        print(&format!("{to} leads {}{from}{term}{took}\n", object.spec.election_name))?;
        Ok(Some(Ended::Well))
    }
}

/// Returns a Switchover in the name of whoever runs this. Its own unique name identifies it if the answer is lost.
pub(super) async fn named(reader: &Reader, spec: SwitchoverSpec) -> Object {
    let spec = SwitchoverSpec { requested_by: reader.user_name().await, ..spec };
    let random = RandomState::new().hash_one((std::process::id(), spec.from_term)) & 0xffff_ffff;
    Object::new(&format!("{}-{}-{random:08x}", spec.election_name, spec.from_term), spec)
}

/// The text for a user who presses Ctrl-C: the state of the Switchover, and how to take it back.
fn interrupted(namespace: &str, name: &str, is_created: bool) -> String {
    let back = format!("`kubectl -n {namespace} delete swo {name}` takes it back, until it is accepted");
    if is_created {
        format!("the switchover {name} continues: {back}")
    } else {
        format!(
            "the API server has not answered the request for the switchover {name} yet, so it may still be created: \
             `kubectl -n {namespace} get swo {name}` shows it, and {back}"
        )
    }
}

/// Returns a condition of a Switchover.
pub(super) fn said<'a>(object: &'a Object, type_: &str) -> Option<&'a Condition> {
    object.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == type_)
}

/// Reads a future time.
fn time(text: &str) -> Result<Timestamp, String> {
    const EXAMPLES: &str =
        "write a time with its offset, for example 2026-11-22T22:30:00Z, or a delay, for example +10m";
    let now = Timestamp::now();
    let read = || -> anyhow::Result<Timestamp> {
        let Some(later) = text.strip_prefix('+') else { return Ok(text.parse()?) };
        let unit = later.chars().next_back().context("nothing")?;
        let number: i64 = later.strip_suffix(unit).context("nothing")?.parse()?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => bail!("an unknown unit"),
        };
        let seconds = number.checked_mul(seconds).context("too much")?;
        Ok(Timestamp::from_second(now.as_second().checked_add(seconds).context("too much")?)?)
    };
    match read() {
        Ok(at) if at > now => Ok(at),
        Ok(_) => Err(format!("this time has passed: {EXAMPLES}")),
        Err(_) => Err(EXAMPLES.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_come_are_read_and_others_refused() {
        let soon = |text: &str| time(text).unwrap().duration_since(Timestamp::now()).as_secs();
        assert!((595..=600).contains(&soon("+10m")) && (7195..=7200).contains(&soon("+2h")) && soon("+30s") <= 30);
        assert_eq!(time("2999-01-01T00:00:00+01:00").unwrap().to_string(), "2998-12-31T23:00:00Z");
        for (text, says) in [
            ("2020-01-01T00:00:00Z", "has passed"),
            ("22:30", "for example"),
            ("2999-01-01T00:00:00", "with its offset"),
            ("+", "+10m"),
            ("+10", "+10m"),
            ("+ä", "+10m"),
            ("+9223372036854775807h", "+10m"),
            ("+0s", "has passed"),
        ] {
            let refused = time(text).unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}

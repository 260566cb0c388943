//! `kubectl lictor doctor`: finds problems, and says what to do.

mod cut_over;
mod elections;
mod finding;
mod installation;
mod rights;
mod services;

use anyhow::Context as _;
use clap::Args;

use self::finding::{Finding, Verdict};
pub(super) use self::installation::Operator;
use self::rights::Account;
use self::services::Checked;
use super::access::Served;
use super::format::Data;
use super::reading::{Reader, told};
use crate::cli::installation::Installation;
use crate::cli::support::{Ended, block_on, print};
use crate::kubernetes::Namespaces;

/// Checks the installation, the elections and the Services, and says what to do about each problem. The exit code is 3
/// if there is a problem.
///
/// It checks the versions, the CRDs, the operator's rights, the classes with their stores, and that an operator acts;
/// then that no election is refused or without a leader, and that each Service that selects a leader's label reaches a
/// leader. For a Service that is being moved from all pods to only the leader, or back, it prints the next command. It
/// names everything that you have no right to see and that it therefore could not check.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor doctor\n  kubectl lictor doctor -n shop    # the elections and Services of one namespace\n  kubectl -n lictor exec deploy/lictor -- /lictor doctor    # with the operator's own rights"
)]
pub(crate) struct Doctor {
    #[command(flatten)]
    served: Served,

    /// Check only the installation, and no elections and Services, as the chart's test does.
    #[arg(long)]
    only_installation: bool,

    /// How long to wait for an operator to act, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,

    /// Print data instead of text.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Data>,
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.check())
    }

    async fn check(self) -> anyhow::Result<Ended> {
        let reader = self.served.reader().await?;
        let namespaces = self.served.namespaces();
        let examined = if self.only_installation { None } else { Some(&namespaces) };
        let mut findings = Vec::new();
        let found = examine(&reader, &self.served.installation, examined, self.timeout, |finding| {
            let shown = if self.output.is_none() { print(&finding.line()) } else { Ok(()) };
            findings.push(finding);
            shown
        });
        found.await?;
        if let Some(data) = self.output {
            data.print(&findings)?;
        }
        let wrong = findings.iter().filter(|finding| finding.result == Verdict::Wrong).count();
        if wrong == 0 {
            return Ok(Ended::Well);
        }
        eprintln!("{wrong} of these checks failed");
        Ok(Ended::No)
    }
}

/// Makes all checks, and reports each finding as soon as it is there, because one of them waits for up to `timeout`
/// seconds. `namespaces`: where elections and Services are checked; `None`: nowhere.
///
/// # Errors
/// If the API server does not answer, or a finding can't be reported.
pub(super) async fn examine(
    reader: &Reader,
    installation: &Installation,
    namespaces: Option<&Namespaces>,
    timeout: u64,
    mut tell: impl FnMut(Finding) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let version = reader.version().await.map_err(|error| anyhow::Error::msg(told("get", "the version", &error)));
    tell(installation::server(&version.context("the API server does not answer")?))?;
    tell(installation::crds(reader).await)?;
    let operator = Operator::find(reader, installation).await;
    operator.version().map_or(Ok(()), &mut tell)?;
    let account = Account::of(reader, &operator).await;
    account.check(installation).await.into_iter().try_for_each(&mut tell)?;
    installation::classes(reader, &installation.controller).await.into_iter().try_for_each(&mut tell)?;
    let acts = operator.acts(reader, timeout).await;
    let silent = acts.result == Verdict::Wrong;
    tell(acts)?;
    let Some(namespaces) = namespaces else { return Ok(()) };
    let elections = match elections::list(reader, namespaces).await {
        Ok(elections) => elections,
        Err(unseen) => return tell(unseen),
    };
    account.check_elections(installation, &elections).await.into_iter().try_for_each(&mut tell)?;
    let Checked { findings, explained } = services::check(reader, namespaces, &elections).await;
    elections::check(&elections, &explained, silent).into_iter().chain(findings).try_for_each(&mut tell)
}

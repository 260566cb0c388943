//! `kubectl lictor check`: what an election would do, before it is applied.

mod changes;
mod file;
mod plan;
mod preview;
mod rivals;
mod titles;
mod writes;

use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, ValueHint};

use self::file::File;
use self::plan::Known;
use self::preview::{Preview, Verdict};
use super::access::Place;
use super::format::Data;
use crate::cli::support::{Ended, block_on, print};

/// Shows what the LeaderElections of a file would do, and writes nothing.
///
/// The API server itself checks them by a dry run; then the operator's own code says which pods each would select, which
/// would lead and why, and what the operator would write: on the pods, where it would overwrite a value, and on other
/// objects. For an election that exists, it shows what `kubectl apply` would change.
///
/// The exit code is 0 if a pod would be elected, 1 if the operator or the API server would refuse an election or the file
/// can't be checked, and 3 if an election would be accepted but no pod could be elected now. `check` sees no circles of
/// workloads that lead through other elections, and no failed probes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor check -f leaderelection.yaml -n shop\n  kubectl kustomize overlays/west | kubectl lictor check -f -\n  kubectl lictor check -f leaderelection.yaml -o json    # the same for a program"
)]
pub(crate) struct Check {
    /// The file, in YAML or JSON, with one or several objects. Objects that are no LeaderElections are left out, but for
    /// the ElectionClasses that they name. -: the standard input.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    filename: PathBuf,

    #[command(flatten)]
    place: Place,

    /// Print data instead of text.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Data>,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let file = File::read(&self.filename)?;
        block_on(self.check(file))
    }

    async fn check(self, file: File) -> anyhow::Result<Ended> {
        let (reader, usual) = self.place.reader().await?;
        for document in &file.elections {
            if let (Some(wanted), Some(written)) = (&self.place.namespace, &document.namespace) {
                ensure!(
                    wanted == written,
                    "the LeaderElection {} is in the namespace {written}, and -n names {wanted}: leave one of the two out",
                    document.name
                );
            }
        }
        // Fails in one line if there is no connection.
        reader.elections(Some(&usual)).await?;
        let own = file.classes.into_iter().filter_map(|class| Some((class.metadata.name.clone()?, class)));
        let classes = match reader.classes().await {
            Ok(all) => Ok(reader.with_selected(all.into_iter().chain(own).collect()).await),
            Err(unseen) => Err(unseen),
        };
        let mut known = Known { classes, earlier: Vec::new() };
        let mut previews = Vec::new();
        for document in &file.elections {
            let namespace = document.namespace.clone().unwrap_or_else(|| usual.clone());
            let (preview, planned) = Box::pin(Preview::of(&reader, namespace, document, &known)).await?;
            known.earlier.extend(planned);
            previews.push(preview);
        }
        if let Some(data) = self.output {
            data.print(&previews)?;
        } else {
            let texts: Vec<String> = previews.iter().map(Preview::text).collect();
            print(&texts.join("\n"))?;
        }
        Ok(match previews.iter().map(|preview| preview.verdict).max() {
            Some(Verdict::Refused) => Ended::Refused,
            Some(Verdict::NoLeader) => Ended::No,
            Some(Verdict::Elects) | None => Ended::Well,
        })
    }
}

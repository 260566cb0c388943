//! Makes the documentation's site. `make docs` calls it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use lictor_docs::site::{Addresses, build};

/// Makes the documentation's site, in target/site, and fails if a link of a page leads nowhere. `make docs` calls it.
///
/// Of the environment it takes SOURCE, the repository's address, and DOCUMENTS, that of the directory docs in it, as a release sets them.
#[derive(Debug, Parser)]
struct Options {
    /// The program mdbook.
    mdbook: PathBuf,

    /// The directory of the repository.
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))]
    root: PathBuf,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lictor-site: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let root = options.root.canonicalize().with_context(|| options.root.display().to_string())?;
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let chart = std::fs::read_to_string(root.join("charts/lictor/Chart.yaml"))?;
    let addresses = Addresses::new(set("SOURCE"), set("DOCUMENTS").as_deref(), &chart)?;
    let pages = build(&root, &options.mdbook, &addresses)?;
    println!(
        "{pages} pages, whose links lead somewhere, those to files to {}: target/site/index.html",
        addresses.files
    );
    Ok(())
}

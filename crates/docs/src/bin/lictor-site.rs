//! Makes the documentation's site. `make docs` calls it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use lictor_docs::site::{Addresses, build};

/// Makes the documentation's site, in target/site, and fails if a link of a page leads nowhere. `make docs` calls it.
///
/// Of the environment it takes SOURCE and REGISTRY, which hack/addresses.sh prints, and DOCUMENTS, the address of the directory docs, which
/// a release sets.
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
    let source = set("SOURCE").context("SOURCE is not set: run make docs")?;
    let addresses = Addresses::new(source, set("DOCUMENTS").as_deref(), set("REGISTRY"))?;
    let pages = build(&root, &options.mdbook, &addresses)?;
    println!(
        "{pages} pages, whose links lead somewhere, those to files to {}: target/site/index.html",
        addresses.files
    );
    Ok(())
}

//! Makes the pages and pictures that come from other files of this repository, or checks that they are up to date.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lictor_docs::{What, is_current, write};

/// Makes the pages and pictures that come from other files of this repository. `make fix` calls it.
#[derive(Debug, Parser)]
#[command(
    bin_name = "cargo run --bin lictor-docs --",
    after_help = "Examples:\n  cargo run --bin lictor-docs -- plots\n  cargo run --bin lictor-docs -- --check"
)]
struct Options {
    /// What to make. Default: all of it.
    #[arg(value_enum)]
    what: Vec<What>,

    /// Writes nothing, and fails if a file is out of date.
    #[arg(long)]
    check: bool,

    /// The directory of the repository.
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))]
    root: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let what = if options.what.is_empty() { &What::ALL } else { options.what.as_slice() };
    let mut code = ExitCode::SUCCESS;
    for what in what {
        let done = if options.check { is_current(*what, &options.root) } else { write(*what, &options.root) };
        if let Err(error) = done {
            eprintln!("lictor-docs: {error:#}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

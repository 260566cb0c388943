//! Makes the man pages of the program. `hack/release.sh` calls it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

/// Writes a man page for each command into a directory: lictor.1, lictor-list.1, and so on.
#[derive(Debug, Parser)]
struct Options {
    /// The directory. It must exist.
    directory: PathBuf,
}

fn main() -> ExitCode {
    match clap_mangen::generate_to(lictor::cli::Cli::command(), Options::parse().directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lictor-man: {error}");
            ExitCode::FAILURE
        }
    }
}

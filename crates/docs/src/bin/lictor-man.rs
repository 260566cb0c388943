//! Makes the man pages of the program. `hack/release.sh` calls it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::{CommandFactory as _, Parser};
use clap_mangen::Man;
use lictor::cli::{Cli, groups};

/// Writes a man page for each command into a directory: lictor.1, lictor-list.1, and so on.
#[derive(Debug, Parser)]
struct Options {
    /// The directory. It must exist.
    directory: PathBuf,
}

fn main() -> ExitCode {
    match write(&Options::parse().directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lictor-man: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(directory: &Path) -> io::Result<()> {
    clap_mangen::generate_to(Cli::command(), directory)?;
    // That page has all subcommands in one list.
    let mut page = Vec::new();
    let whole = Man::new(Cli::command().disable_help_subcommand(true));
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    whole.render_synopsis_section(&mut page)?;
    whole.render_description_section(&mut page)?;
    whole.render_options_section(&mut page)?;
    for group in groups() {
        Man::new(group.disable_help_subcommand(true)).render_subcommands_section(&mut page)?;
    }
    whole.render_extra_section(&mut page)?;
    whole.render_version_section(&mut page)?;
    fs::write(directory.join("lictor.1"), page)
}

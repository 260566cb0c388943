//! `lictor`: reads the command line and runs it.

use std::process::ExitCode;

use lictor::cli::Cli;

fn main() -> ExitCode {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("lictor: a cryptography provider is installed already");
        return ExitCode::FAILURE;
    }
    Cli::end(Cli::read().run())
}

//! `lictor`: reads the command line and runs it.

use std::process::ExitCode;

use lictor::cli::Cli;

fn main() -> ExitCode {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("lictor: a cryptography provider is installed already");
        return ExitCode::FAILURE;
    }
    match Cli::read().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lictor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

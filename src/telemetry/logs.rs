//! Logs on the standard error, as text or JSON. `RUST_LOG` filters them.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// What is logged without `RUST_LOG`. The client of the API server calls each request that fails an error, and warns of each watch that
/// is cut; what comes of it, this program says itself.
const DEFAULT: &str = "info,kube_runtime=error,kube_client::client=error,kube_client::client::builder=off";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object for each line.
    Json,
}

/// Starts the logs.
///
/// # Errors
/// If they were started before.
pub fn init_logs(format: LogFormat) -> Result<(), TryInitError> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match format {
        LogFormat::Text => logs.with_ansi(false).finish().try_init(),
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).finish().try_init(),
    }
}

//! Logs, metrics and health of the operator.

mod health;
mod logs;
mod metrics;
mod process;
mod server;
mod stores;

pub use health::Health;
pub use logs::{LogFormat, flush_logs, init_logs, say};
pub use metrics::{ElectionFigures, Metrics};
pub use server::serve;

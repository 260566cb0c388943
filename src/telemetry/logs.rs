//! Logs on the standard error, as text or JSON. `RUST_LOG` filters them.
//!
//! The program never waits for the reader of the standard error. A separate thread writes, and when too many lines wait
//! for it, later ones are counted and dropped. A log collector that hangs must not cost a lock, or keep a process from
//! ending.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// The filter without `RUST_LOG`. The client of the API server logs each failed request as an error, and each
/// interrupted watch as a warning. This program reports their consequences itself.
const DEFAULT: &str = "info,kube_runtime=error,kube_client::client=error,kube_client::client::builder=off";

/// How many lines can wait to be read from the standard error.
const MOST_WAITING: usize = 1024;
/// How long a process that ends waits until its last lines are read.
const AT_THE_END: Duration = Duration::from_millis(200);

static LINES: OnceLock<Lines> = OnceLock::new();

/// The lines to write.
#[derive(Default)]
struct Lines {
    state: Mutex<Waiting>,
    /// A line has arrived, or was written.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    /// How many lines were dropped since the last one of `lines`.
    missing: u64,
    /// Whether a line is being written.
    writing: bool,
}

impl Waiting {
    fn push(&mut self, line: Vec<u8>) {
        // Once lines were dropped, half of the room must be free again, because otherwise every second line would say
        // so.
        let room = if self.missing > 0 { MOST_WAITING / 2 } else { MOST_WAITING };
        if self.lines.len() >= room {
            self.missing += 1;
            return;
        }
        let notice = self.notice();
        self.lines.extend(notice);
        self.lines.push_back(line);
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        self.lines.pop_front().or_else(|| self.notice())
    }

    fn notice(&mut self) -> Option<Vec<u8>> {
        let missing = std::mem::take(&mut self.missing);
        let text = format!("lictor: {missing} log lines are missing here, because the standard error was not read\n");
        (missing > 0).then(|| text.into_bytes())
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: Vec<u8>) {
        self.lock().push(line);
        self.changed.notify_all();
    }

    /// Writes lines as they arrive, until the process ends.
    fn write(&self) {
        // Not through std's own standard error, which stays locked during a write.
        let Ok(mut to) = io::stderr().as_fd().try_clone_to_owned().map(File::from) else { return };
        let mut state = self.lock();
        loop {
            let Some(line) = state.take() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.writing = true;
            drop(state);
            // A failed write can't be reported anywhere.
            let _ = to.write_all(&line);
            state = self.lock();
            state.writing = false;
            self.changed.notify_all();
        }
    }

    fn flush(&self) {
        let (begun, mut state) = (Instant::now(), self.lock());
        while state.writing || !state.lines.is_empty() || state.missing > 0 {
            let left = AT_THE_END.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Returns the lines of this process, of which a thread takes care from now on.
fn lines() -> &'static Lines {
    let mut is_new = false;
    let lines = LINES.get_or_init(|| {
        is_new = true;
        Lines::default()
    });
    if is_new && let Err(error) = std::thread::Builder::new().name("logs".into()).spawn(|| lines.write()) {
        eprintln!("lictor: can't log, because no thread could be started: {error}");
    }
    lines
}

/// Writes this to the standard error, without waiting for a reader.
pub fn say(text: &str) {
    lines().push(format!("{text}\n").into_bytes());
}

/// Waits briefly until everything logged so far is written. Call this at the end of a process.
pub fn flush_logs() {
    if let Some(lines) = LINES.get() {
        lines.flush();
    }
}

/// The destination of the logs: one write for each line.
#[derive(Clone, Copy)]
struct Queue;

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        lines().push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Queue {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

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
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Queue).with_target(false);
    match format {
        LogFormat::Text => logs.with_ansi(false).finish().try_init(),
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).finish().try_init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_left_out_are_counted_where_they_are_missing() {
        let mut waiting = Waiting::default();
        let line = |number: usize| format!("{number}\n").into_bytes();
        (0..MOST_WAITING + 7).for_each(|number| waiting.push(line(number)));
        assert_eq!(waiting.lines.len(), MOST_WAITING);
        (0..MOST_WAITING).for_each(|number| assert_eq!(waiting.take(), Some(line(number))));
        waiting.push(line(5000));
        let notice = String::from_utf8(waiting.take().expect("it says so")).expect("text");
        assert!(notice.starts_with("lictor: 7 log lines are missing here"), "{notice}");
        assert_eq!((waiting.take(), waiting.take()), (Some(line(5000)), None));
    }
}

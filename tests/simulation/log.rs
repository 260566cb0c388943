//! What happened, in order: kept only where somebody will read it.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

#[derive(Clone)]
pub struct Log {
    begun: Instant,
    lines: Option<Arc<Mutex<Vec<String>>>>,
}

impl Log {
    pub fn new(keeps: bool) -> Self {
        Self { begun: Instant::now(), lines: keeps.then(Arc::default) }
    }

    /// Milliseconds since the beginning.
    pub fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.lines {
            let now = self.now();
            lines.lock().unwrap().push(format!("{:6}.{:03} {}", now / 1000, now % 1000, line()));
        }
    }

    /// The same, if there is anything to say.
    pub fn note_some(&self, line: impl FnOnce() -> Option<String>) {
        if self.lines.is_some()
            && let Some(line) = line()
        {
            self.note(|| line);
        }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.as_ref().map(|lines| lines.lock().unwrap().clone()).unwrap_or_default()
    }
}

//! A simulated process: clocks of its own, and tasks that are stopped, continued or ended all at once.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use lictor_core::{Instant, Timestamp};
use lictor_process::Process;
use tokio::task::AbortHandle;

/// When all simulations begin, by the wall clocks, in milliseconds: a full minute.
pub const EPOCH: i64 = 1_800_000_000_000;

pub struct Simulated {
    begun: tokio::time::Instant,
    /// How fast its monotonic clock runs, in thousandths.
    rate: u32,
    /// How much its machine's wall clock is ahead, in milliseconds.
    ahead: AtomicI64,
    tasks: Mutex<Vec<AbortHandle>>,
    /// What waits for it to be continued; none: it runs.
    stopped: Mutex<Option<Vec<Waker>>>,
}

impl Simulated {
    /// One that begins now.
    pub fn new(rate: u32, begun: tokio::time::Instant) -> Arc<Self> {
        Arc::new(Self { begun, rate, ahead: AtomicI64::new(0), tasks: Mutex::default(), stopped: Mutex::default() })
    }

    /// As SIGSTOP.
    pub fn stop(&self) {
        self.stopped.lock().unwrap().get_or_insert_default();
    }

    /// As SIGCONT.
    pub fn go_on(&self) {
        let waiting = self.stopped.lock().unwrap().take();
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// As SIGKILL.
    pub fn kill(&self) {
        self.tasks.lock().unwrap().drain(..).for_each(|task| task.abort());
        self.stopped.lock().unwrap().take();
    }

    /// Its machine's wall clock jumps, in milliseconds.
    pub fn jump(&self, by: i64) {
        self.ahead.fetch_add(by, Ordering::Relaxed);
    }
}

impl Process for Simulated {
    fn monotonic(&self) -> Instant {
        Instant::after_origin(Duration::from_secs(1_000) + self.begun.elapsed() * self.rate / 1000)
    }

    fn wall(&self) -> Timestamp {
        let elapsed = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(0);
        Timestamp(EPOCH + elapsed + self.ahead.load(Ordering::Relaxed))
    }

    fn started(&self, task: AbortHandle) {
        let mut tasks = self.tasks.lock().unwrap();
        if tasks.len() % 256 == 255 {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(task);
    }

    fn is_stopped(&self, waker: &Waker) -> bool {
        let mut stopped = self.stopped.lock().unwrap();
        stopped.as_mut().map(|waiting| waiting.push(waker.clone())).is_some()
    }
}

//! The process of a task: its clocks and its tasks. There is one process, except in a simulation, which runs several in one.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp as Wall;
use lictor_core::{Instant, Timestamp};
use tokio::task::{AbortHandle, JoinHandle};

static ORIGIN: LazyLock<Duration> = LazyLock::new(since_boot);

/// The longest sleep of a task that waits for a moment of the process's clock. While the machine is suspended, the runtime's
/// timers stop and the clock goes on. After a nap at most, the task sees what has ended meanwhile.
pub const NAP: Duration = Duration::from_secs(1);

tokio::task_local! {
    static PROCESS: Arc<dyn Process>;
}

/// A simulated process.
pub trait Process: Send + Sync + 'static {
    /// Returns its monotonic clock.
    fn monotonic(&self) -> Instant;
    /// Returns its machine's wall clock.
    fn wall(&self) -> Timestamp;
    /// Notes that one of its tasks was started.
    fn started(&self, task: AbortHandle);
    /// Returns whether it is stopped. If so, none of its tasks continues before the waker is called.
    fn is_stopped(&self, waker: &Waker) -> bool;
}

/// Returns the process's monotonic clock. Where the system has such a clock, it goes on while the machine is suspended, because
/// locks in a store expire meanwhile, too.
pub fn monotonic() -> Instant {
    let real = || Instant::after_origin(since_boot().saturating_sub(*ORIGIN));
    PROCESS.try_with(|process| process.monotonic()).unwrap_or_else(|_| real())
}

/// Returns a moment as other processes of this machine know it: in nanoseconds since the machine's start.
pub fn boot_nanoseconds(at: Instant) -> u64 {
    u64::try_from((*ORIGIN + at.since(Instant::default())).as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the moment that another process of this machine has named. One before this process's first look at the clock is that look.
pub fn from_boot_nanoseconds(nanoseconds: u64) -> Instant {
    Instant::after_origin(Duration::from_nanos(nanoseconds).saturating_sub(*ORIGIN))
}

/// Sleeps for this time, or for a [`NAP`] if that is shorter. The caller then reads the clock again.
pub async fn nap(length: Duration) {
    tokio::time::sleep(length.min(NAP)).await;
}

/// Sleeps until this moment, in naps.
pub async fn nap_until(moment: Instant) {
    loop {
        let left = moment.since(monotonic());
        if left.is_zero() {
            return;
        }
        nap(left).await;
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |part: i64| u64::try_from(part).unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

/// Returns the machine's wall clock, for people.
pub fn wall() -> Timestamp {
    PROCESS.try_with(|process| process.wall()).unwrap_or_else(|_| Timestamp(Wall::now().as_millisecond()))
}

/// Starts a task in the same process.
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match PROCESS.try_with(Arc::clone) {
        Ok(process) => spawn_in(&process, task),
        Err(_) => tokio::spawn(task),
    }
}

/// Starts the first task of a simulated process.
pub fn spawn_in<F>(process: &Arc<dyn Process>, task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let stoppable = Stoppable { process: process.clone(), task: Box::pin(task) };
    let handle = tokio::spawn(PROCESS.scope(process.clone(), stoppable));
    process.started(handle.abort_handle());
    handle
}

struct Stoppable<T> {
    process: Arc<dyn Process>,
    task: BoxFuture<'static, T>,
}

impl<T> Future for Stoppable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.process.is_stopped(context.waker()) {
            return Poll::Pending;
        }
        self.task.as_mut().poll(context)
    }
}

/// Returns a process for tests, whose clocks go with the runtime's. A paused runtime's clock stands still while anything is to be done.
pub fn virtual_process() -> Arc<dyn Process> {
    struct Virtual(tokio::time::Instant);

    impl Process for Virtual {
        fn monotonic(&self) -> Instant {
            Instant::after_origin(self.0.elapsed())
        }

        fn wall(&self) -> Timestamp {
            Timestamp(i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX))
        }

        fn started(&self, _: AbortHandle) {}

        fn is_stopped(&self, _: &Waker) -> bool {
            false
        }
    }

    Arc::new(Virtual(tokio::time::Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_is_the_one_that_counts_suspended_time() {
        let uptime = || -> f64 {
            let text = std::fs::read_to_string("/proc/uptime").expect("Linux tells it");
            text.split(' ').next().expect("it is the first number").parse().expect("it is a number")
        };
        let (before, now, after) = (uptime(), since_boot().as_secs_f64(), uptime());
        // The kernel reports hundredths of a second.
        assert!(before - 0.02 <= now && now <= after + 0.02, "{before} {now} {after}");
    }

    #[test]
    fn a_moment_that_another_process_names_is_the_same_one() {
        let later = monotonic() + Duration::from_secs(7);
        assert_eq!(from_boot_nanoseconds(boot_nanoseconds(later)), later);
        assert_eq!(from_boot_nanoseconds(0), Instant::default());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_long_looks_at_the_clock_in_between() {
        for (length, expected) in [(60_000, 1_000), (300, 300)] {
            let begun = tokio::time::Instant::now();
            nap(Duration::from_millis(length)).await;
            assert_eq!(begun.elapsed(), Duration::from_millis(expected));
        }
    }
}

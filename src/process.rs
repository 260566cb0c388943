//! The process that a task belongs to: its clocks, and its tasks. There is one, but in simulations, which run several in one.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp as Wall;
use tokio::task::{AbortHandle, JoinHandle};

use crate::core::{Instant, Timestamp};

static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

tokio::task_local! {
    static PROCESS: Arc<dyn Process>;
}

/// A simulated process.
pub trait Process: Send + Sync + 'static {
    /// Its monotonic clock.
    fn monotonic(&self) -> Instant;
    /// Its machine's wall clock.
    fn wall(&self) -> Timestamp;
    /// A task of it was started.
    fn started(&self, task: AbortHandle);
    /// Whether it is stopped: none of its tasks goes on before the waker is called.
    fn is_stopped(&self, waker: &Waker) -> bool;
}

/// The process's monotonic clock.
pub fn monotonic() -> Instant {
    PROCESS.try_with(|process| process.monotonic()).unwrap_or_else(|_| Instant::after_origin(ORIGIN.elapsed()))
}

/// The machine's wall clock, for people.
pub fn wall() -> Timestamp {
    PROCESS.try_with(|process| process.wall()).unwrap_or_else(|_| Timestamp(Wall::now().as_millisecond()))
}

/// Starts a task of the same process.
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

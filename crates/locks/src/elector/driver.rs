//! The loop of an elector: takes news of the lock, of the work, of requests and of time, and does what [`lictor_core::Agent`] decides. The
//! work takes the place of an agent's command.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lictor_core::{Agent, AgentAction, AgentEvent, AgentState, AgentTiming, Term};
use lictor_process::{monotonic, nap};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, watch};

use super::leadership::Leadership;
use crate::lock::{Lock, LockUpdate, Problem};

/// What to call when a leadership begins and when it ends.
#[derive(Clone)]
pub(super) struct Callbacks {
    pub on_leader: Arc<dyn Fn(&Leadership) + Send + Sync>,
    pub on_follower: Arc<dyn Fn() + Send + Sync>,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self { on_leader: Arc::new(|_| {}), on_follower: Arc::new(|| {}) }
    }
}

/// The leader, as far as this replica knows. A hint for whoever wants to reach the leader: it may have ended since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The leader's name in the lock.
    pub name: String,
    /// The address that the leader [advertises](super::Elector::advertise).
    pub address: Option<String>,
    /// The leader's term, if it is known: in a Lease, only the leader itself knows it.
    pub term: Option<Term>,
    /// Whether the leader is this replica.
    pub is_this: bool,
}

/// Why a run has ended before its work did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// [`Elector::stop`](super::Elector::stop) was called, and the lock is released.
    #[error("the elector was stopped")]
    Stopped,
    /// The task that keeps the lock has panicked, or its runtime shuts down. The lock expires.
    #[error("the task that keeps the lock has ended")]
    Broken,
}

/// What all clones of an elector share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub stop: watch::Sender<bool>,
    pub yields: Notify,
    pub leadership: watch::Sender<Option<Leadership>>,
    pub leader: watch::Sender<Option<Leader>>,
    /// Held by the one driver that takes part in the election.
    pub running: Arc<Mutex<()>>,
}

/// One run of an elector. Dropping it ends the leadership and releases the lock, because the work is dropped before.
pub(super) struct Driver<L> {
    agent: Agent,
    timing: AgentTiming,
    take_part: L,
    /// The lock, while this replica takes part in the election.
    lock: Option<Lock>,
    /// The last news of the lock's keeper.
    told: LockUpdate,
    shared: Arc<Shared>,
    callbacks: Callbacks,
    /// This replica, as the others see it while it leads.
    own: Leader,
    stopping: bool,
    /// The leadership, while the work lives.
    leadership: Option<Leadership>,
    running: Option<OwnedMutexGuard<()>>,
}

impl<L: FnMut() -> Lock> Driver<L> {
    /// Begins to take part in the election. `take_part` begins to keep the lock.
    pub(super) fn new(
        timing: AgentTiming,
        own: Leader,
        callbacks: Callbacks,
        shared: Arc<Shared>,
        running: OwnedMutexGuard<()>,
        mut take_part: L,
    ) -> Self {
        let (lock, running) = (Some(take_part()), Some(running));
        let (agent, told, stopping, leadership) = (Agent::new(timing), LockUpdate::default(), false, None);
        Self { agent, timing, take_part, lock, told, shared, callbacks, own, stopping, leadership, running }
    }

    /// Runs the work in each leadership, until it ends by itself. `begin` begins it.
    pub(super) async fn run<F: Future>(mut self, mut begin: impl FnMut(Leadership) -> F) -> Result<F::Output, Ended> {
        // After `self`, so that it is dropped before the lock is released.
        let mut work: Option<Pin<Box<F>>> = None;
        let (mut output, mut broken) = (None, false);
        let mut events = vec![];
        loop {
            // Time comes before all other news, because this process may have been stopped.
            events.insert(0, AgentEvent::Tick);
            let mut next = vec![];
            for event in events.drain(..) {
                for action in self.agent.observe(event, monotonic()) {
                    match action {
                        AgentAction::Start { .. } => work = self.start().map(|leadership| Box::pin(begin(leadership))),
                        AgentAction::Kill => {
                            work = None;
                            next.push(AgentEvent::Gone);
                        }
                        AgentAction::Exit(_) if broken => return Err(Ended::Broken),
                        AgentAction::Exit(_) => return output.ok_or(Ended::Stopped),
                        other => self.act(other, &mut next).await,
                    }
                }
                if work.is_none() {
                    self.end();
                }
                if self.agent.state() == AgentState::Waiting {
                    // The work has ended after its deadline.
                    output = None;
                }
                self.publish();
            }
            events = next;
            if !events.is_empty() {
                continue;
            }
            match self.hear(&mut work, &mut events).await {
                Heard::Output(done) => {
                    // What was told to end, and takes part again, has not ended by itself.
                    output = (self.agent.state() == AgentState::Leading || self.stopping).then_some(done);
                    work = None;
                    events.extend([AgentEvent::Ended(0), AgentEvent::Gone]);
                }
                Heard::Broken => broken = true,
                Heard::Other => {}
            }
        }
    }

    fn start(&mut self) -> Option<Leadership> {
        let (lock, held) = (self.lock.as_ref()?, self.told.held?);
        let leadership = Leadership::new(held.term, lock.updates());
        tracing::info!(term = %held.term, "this replica leads");
        self.leadership = Some(leadership.clone());
        self.shared.leadership.send_replace(self.leadership.clone());
        (self.callbacks.on_leader)(&leadership);
        Some(leadership)
    }

    async fn act(&mut self, action: AgentAction, events: &mut Vec<AgentEvent>) {
        match action {
            AgentAction::Terminate => {
                if let Some(leadership) = &self.leadership {
                    leadership.tell();
                }
            }
            AgentAction::Reacquire => {
                if let Some(lock) = &self.lock {
                    lock.acquire_again();
                }
            }
            AgentAction::Release => {
                self.told = LockUpdate::default();
                self.publish();
                if let Some(lock) = self.lock.take() {
                    lock.release(self.timing.ttl).await;
                }
                events.push(AgentEvent::Released);
            }
            AgentAction::TakePart => self.lock = Some((self.take_part)()),
            // A leadership reads the lock's own deadline, and `run` does the rest.
            AgentAction::Guard(_) | AgentAction::Start { .. } | AgentAction::Kill | AgentAction::Exit(_) => {}
        }
    }

    /// Ends the leadership. The work is gone.
    fn end(&mut self) {
        let Some(leadership) = self.leadership.take() else { return };
        leadership.end();
        tracing::info!(term = %leadership.term(), "this replica leads no longer");
        self.shared.leadership.send_replace(None);
        (self.callbacks.on_follower)();
    }

    /// Polls the work while nothing else happens. A2: the clock is read before each poll, so no work goes on after the deadline, even if
    /// this process or its machine was stopped.
    async fn hear<F: Future>(
        &mut self,
        work: &mut Option<Pin<Box<F>>>,
        events: &mut Vec<AgentEvent>,
    ) -> Heard<F::Output> {
        let now = monotonic();
        let wake = self.agent.wake_at(now);
        let wait = wake.map_or(Duration::MAX, |at| at.since(now));
        let leadership = self.leadership.as_ref();
        let mut stop = self.shared.stop.subscribe();
        let work = poll_fn(|context| {
            let Some((work, leadership)) = work.as_mut().zip(leadership) else { return Poll::Pending };
            if !leadership.is_valid() || wake.is_some_and(|at| at <= monotonic()) {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        });
        tokio::select! {
            biased;
            update = next(&mut self.lock) => {
                let Some(update) = update else {
                    // The task has ended without being asked to.
                    (self.lock, self.stopping) = (None, true);
                    events.extend([AgentEvent::Lock(None), AgentEvent::Stop]);
                    return Heard::Broken;
                };
                report(&self.told, &update);
                events.push(AgentEvent::Lock(update.held));
                self.told = update;
            }
            _ = stop.wait_for(|stop| *stop), if !self.stopping => {
                self.stopping = true;
                events.push(AgentEvent::Stop);
            }
            () = self.shared.yields.notified() => events.push(AgentEvent::Yield),
            () = nap(wait) => {}
            output = work => if let Some(output) = output {
                return Heard::Output(output);
            },
        }
        Heard::Other
    }

    fn publish(&self) {
        let leads =
            self.leadership.as_ref().map(|leadership| Leader { term: Some(leadership.term()), ..self.own.clone() });
        let leader = leads.or_else(|| {
            let other = self.told.other.clone()?;
            Some(Leader { name: other.name, address: other.address, term: other.term, is_this: false })
        });
        self.shared.leader.send_if_modified(|published| {
            let differs = *published != leader;
            *published = leader;
            differs
        });
    }
}

impl<L> Drop for Driver<L> {
    fn drop(&mut self) {
        if let Some(leadership) = self.leadership.take() {
            leadership.end();
            (self.callbacks.on_follower)();
        }
        self.shared.leadership.send_replace(None);
        self.shared.leader.send_replace(None);
        let (lock, running, limit) = (self.lock.take(), self.running.take(), self.timing.ttl);
        if let (Some(lock), Ok(runtime)) = (lock, Handle::try_current()) {
            runtime.spawn(async move {
                // Two keepers must not share a session, so the next run waits for the end of this one.
                let _running = running;
                lock.release(limit).await;
            });
        }
    }
}

/// What a driver has heard, besides events.
enum Heard<T> {
    /// The work has ended by itself.
    Output(T),
    /// The lock's keeper has ended by a defect.
    Broken,
    Other,
}

/// Waits for news of the lock. `None`: its task has ended.
async fn next(lock: &mut Option<Lock>) -> Option<LockUpdate> {
    let Some(lock) = lock else { return std::future::pending().await };
    lock.changed().await
}

/// Logs an obstacle that only a person can remove. The lock's keeper logs all others.
fn report(before: &LockUpdate, now: &LockUpdate) {
    if let Some(problem @ Problem::Taken { .. }) = &now.problem
        && before.problem != now.problem
    {
        tracing::warn!(%problem, "this replica can't get the lock: name another Lease");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Plain;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::FutureExt;
    use lictor_core::{HeldLock, Instant, Timestamp};
    use lictor_process::{Process, spawn, spawn_in};
    use tokio::task::AbortHandle;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::lock::Released;

    const SECOND: Duration = Duration::from_secs(1);

    const TIMING: AgentTiming = AgentTiming {
        ttl: Duration::from_secs(10),
        grace: Duration::ZERO,
        stop_timeout: Duration::ZERO,
        away: Duration::from_secs(5),
        shortest_run: Duration::ZERO,
    };

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    /// A store with one lock, which the test gives and takes, and what has happened in order.
    #[derive(Clone, Default)]
    struct Store {
        shared: Arc<Shared>,
        updates: watch::Sender<LockUpdate>,
        log: Arc<Plain<Vec<String>>>,
    }

    impl Store {
        fn note(&self, what: impl Into<String>) {
            self.log.lock().unwrap().push(what.into());
        }

        fn log(&self) -> Vec<String> {
            std::mem::take(&mut *self.log.lock().unwrap())
        }

        fn give(&self, term: i64, until: u64) {
            let held = HeldLock { term: Term(term), from: at(0), until: at(until) };
            self.updates.send_replace(LockUpdate { held: Some(held), ..LockUpdate::default() });
        }

        fn take_part(&self) -> Lock {
            self.note("takes part");
            let (store, again) = (self.clone(), Arc::<Notify>::default());
            let (stop, mut stopping) = watch::channel(false);
            let asked = again.clone();
            let keeper = spawn(async move {
                loop {
                    tokio::select! {
                        _ = stopping.changed() => {
                            store.updates.send_replace(LockUpdate::default());
                            store.note("released");
                            return Released::Confirmed;
                        }
                        () = asked.notified() => store.note("wants a higher term"),
                    }
                }
            });
            let mut updates = self.updates.subscribe();
            updates.mark_changed();
            Lock::new(updates, again, stop, keeper)
        }

        async fn run<F: Future>(
            &self,
            timing: AgentTiming,
            work: impl FnMut(Leadership) -> F,
        ) -> Result<F::Output, Ended> {
            let (leads, follows) = (self.clone(), self.clone());
            let callbacks = Callbacks {
                on_leader: Arc::new(move |leadership| leads.note(format!("leader in {}", leadership.term()))),
                on_follower: Arc::new(move || follows.note("follower")),
            };
            let own = Leader { name: "own".into(), address: None, term: None, is_this: true };
            let running = self.shared.running.clone().lock_owned().await;
            Driver::new(timing, own, callbacks, self.shared.clone(), running, || self.take_part()).run(work).await
        }
    }

    /// A machine that can be suspended: its clock goes on, and the runtime's timers do not.
    struct Machine(tokio::time::Instant, AtomicU64);

    impl Machine {
        fn start() -> Arc<Self> {
            Arc::new(Self(tokio::time::Instant::now(), AtomicU64::new(0)))
        }

        fn suspend(&self, seconds: u64) {
            self.1.fetch_add(seconds, Ordering::Relaxed);
        }

        async fn test(self: Arc<Self>, test: impl Future<Output = ()> + Send + 'static) {
            let process: Arc<dyn Process> = self;
            spawn_in(&process, test).await.unwrap();
        }
    }

    impl Process for Machine {
        fn monotonic(&self) -> Instant {
            Instant::after_origin(self.0.elapsed() + Duration::from_secs(self.1.load(Ordering::Relaxed)))
        }

        fn wall(&self) -> Timestamp {
            Timestamp(0)
        }

        fn started(&self, _: AbortHandle) {}

        fn is_stopped(&self, _: &std::task::Waker) -> bool {
            false
        }
    }

    /// Notes its end, however it ends.
    struct Noted(Store);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.note("work ends");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_ends_releases_the_lock_and_has_an_output() {
        let store = Store::default();
        let test = async move {
            store.give(7, 8);
            let work = |leadership: Leadership| async move {
                assert_eq!(leadership.remaining(), 8 * SECOND);
                leadership.term().0
            };
            assert_eq!(store.run(TIMING, work).await, Ok(7));
            assert_eq!(store.log(), ["takes part", "leader in 7", "follower", "released"]);
        };
        Machine::start().test(test).await;
    }

    /// Shows A2 and A6.
    #[tokio::test(start_paused = true)]
    async fn work_is_dropped_before_its_deadline_and_begins_again_in_a_higher_term() {
        let store = Store::default();
        let test = async move {
            store.give(7, 8);
            let kept = Plain::new(None);
            let work = |leadership: Leadership| {
                let noted = Noted(store.clone());
                kept.lock().unwrap().get_or_insert(leadership.clone());
                async move {
                    let _noted = noted;
                    if leadership.term() == Term(7) { std::future::pending().await } else { leadership.term().0 }
                }
            };
            let renewals = async {
                sleep(5 * SECOND).await;
                store.give(7, 13);
                sleep(7 * SECOND).await;
                assert!(kept.lock().unwrap().as_ref().is_some_and(Leadership::is_valid));
                assert_eq!(store.log(), ["takes part", "leader in 7"]);
                // The deadline is a fiftieth of the TTL before the end of the validity.
                sleep(SECOND * 81 / 100).await;
                assert_eq!(store.log(), ["work ends", "follower", "wants a higher term"]);
                assert!(!kept.lock().unwrap().as_ref().is_some_and(Leadership::is_valid));
                store.give(9, 30);
            };
            assert_eq!(tokio::join!(store.run(TIMING, work), renewals).0, Ok(9));
            assert_eq!(store.log(), ["leader in 9", "work ends", "follower", "released"]);
        };
        Machine::start().test(test).await;
    }

    /// Shows A2: timers that come late change nothing.
    #[tokio::test(start_paused = true)]
    async fn work_is_never_polled_after_its_deadline_even_if_the_machine_was_suspended() {
        let (store, machine) = (Store::default(), Machine::start());
        let suspended = machine.clone();
        let test = async move {
            store.give(7, 8);
            let (wakes, polls) = (Notify::new(), AtomicU64::new(0));
            let work = |_| {
                poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    // Anything may wake it at any time.
                    let _ = Box::pin(wakes.notified()).poll_unpin(context);
                    Poll::<()>::Pending
                })
            };
            let run = store.run(TIMING, work);
            tokio::pin!(run);
            assert!(timeout(SECOND / 10, &mut run).await.is_err());
            let before = polls.load(Ordering::Relaxed);
            assert!(before > 0 && store.shared.leadership.borrow().as_ref().is_some_and(Leadership::is_valid));
            suspended.suspend(60);
            assert!(!store.shared.leadership.borrow().as_ref().is_some_and(Leadership::is_valid), "at once");
            wakes.notify_waiters();
            assert_eq!((&mut run).now_or_never(), None);
            assert_eq!(polls.load(Ordering::Relaxed), before);
            assert_eq!(store.log(), ["takes part", "leader in 7", "follower"]);
        };
        machine.test(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_lock_ends_the_work_at_once_and_is_known_outside_of_it() {
        let store = Store::default();
        let test = async move {
            store.give(7, 8);
            let work = |_| std::future::pending::<()>();
            let lost = async {
                sleep(SECOND).await;
                let leadership = store.shared.leadership.borrow().clone().unwrap();
                store.updates.send_replace(LockUpdate::default());
                // Before the driver hears of it.
                assert!(!leadership.is_valid());
                leadership.ending().await;
                sleep(SECOND).await;
                assert_eq!(store.log(), ["takes part", "leader in 7", "follower"]);
                store.shared.stop.send_replace(true);
            };
            assert_eq!(tokio::join!(store.run(TIMING, work), lost).0, Err(Ended::Stopped));
        };
        Machine::start().test(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_ends_in_a_step_that_outlasts_its_deadline_has_no_output() {
        let (store, machine) = (Store::default(), Machine::start());
        let suspended = machine.clone();
        let test = async move {
            store.give(7, 8);
            let work = |leadership: Leadership| {
                let suspended = suspended.clone();
                async move {
                    suspended.suspend(60);
                    leadership.term()
                }
            };
            let stops = async {
                sleep(SECOND).await;
                store.shared.stop.send_replace(true);
            };
            assert_eq!(tokio::join!(store.run(TIMING, work), stops).0, Err(Ended::Stopped));
        };
        machine.test(test).await;
    }

    /// Shows A4.
    #[tokio::test(start_paused = true)]
    async fn who_is_stopped_lets_the_work_finish_in_time_and_then_releases_the_lock() {
        for (takes, expected) in [(2, Ok(())), (4, Err(Ended::Stopped))] {
            let store = Store::default();
            let test = async move {
                store.give(7, 60);
                let work = |leadership: Leadership| {
                    let noted = Noted(store.clone());
                    async move {
                        let _noted = noted;
                        leadership.ending().await;
                        assert!(leadership.is_valid(), "it can still write");
                        sleep(takes * SECOND).await;
                    }
                };
                let stops = async {
                    sleep(SECOND).await;
                    store.shared.stop.send_replace(true);
                };
                let timing = AgentTiming { stop_timeout: 3 * SECOND, ..TIMING };
                assert_eq!(tokio::join!(store.run(timing, work), stops).0, expected);
                assert_eq!(monotonic(), at(1 + u64::from(takes.min(3))));
                assert_eq!(store.log(), ["takes part", "leader in 7", "work ends", "follower", "released"]);
            };
            Machine::start().test(test).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_was_told_to_end_because_of_a_loss_has_not_ended_by_itself() {
        let store = Store::default();
        let test = async move {
            store.give(7, 8);
            let work = |leadership: Leadership| async move {
                if leadership.term() == Term(7) {
                    leadership.ending().await;
                    assert!(leadership.is_valid() && monotonic() < at(8));
                }
                leadership.term().0
            };
            let later = async {
                sleep(9 * SECOND).await;
                store.give(9, 30);
            };
            let timing = AgentTiming { grace: SECOND, stop_timeout: 3 * SECOND, ..TIMING };
            assert_eq!(tokio::join!(store.run(timing, work), later).0, Ok(9));
        };
        Machine::start().test(test).await;
    }

    /// Shows A7.
    #[tokio::test(start_paused = true)]
    async fn who_yields_takes_no_part_for_some_time() {
        let store = Store::default();
        let test = async move {
            store.give(7, 60);
            let mut leader = store.shared.leader.subscribe();
            let work = |leadership: Leadership| async move {
                if leadership.term() == Term(7) { std::future::pending().await } else { monotonic() }
            };
            let yields = async {
                let leads = leader.wait_for(|leader| leader.as_ref().is_some_and(|leader| leader.is_this)).await;
                assert_eq!(leads.unwrap().as_ref().and_then(|leader| leader.term), Some(Term(7)));
                store.shared.yields.notify_one();
                sleep(4 * SECOND).await;
                assert_eq!(store.log(), ["takes part", "leader in 7", "follower", "released"]);
                let other = Some(crate::Other::named("other".into()));
                store.updates.send_replace(LockUpdate { other, ..LockUpdate::default() });
                sleep(2 * SECOND).await;
                assert_eq!(
                    store.shared.leader.borrow().as_ref().map(|leader| leader.name.clone()),
                    Some("other".into())
                );
                store.give(9, 60);
            };
            assert_eq!(tokio::join!(store.run(TIMING, work), yields).0, Ok(at(6)));
        };
        Machine::start().test(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_dropped_drops_its_work_and_releases_the_lock_before_the_next_run() {
        let store = Store::default();
        let test = async move {
            store.give(7, 60);
            let work = |leadership| {
                let noted = Noted(store.clone());
                async move {
                    let _both = (noted, leadership);
                    std::future::pending::<()>().await;
                }
            };
            assert!(timeout(SECOND, store.run(TIMING, work)).await.is_err());
            assert_eq!(store.log(), ["takes part", "leader in 7", "work ends", "follower"]);
            assert_eq!(*store.shared.leader.borrow(), None);
            assert!(timeout(SECOND, store.run(TIMING, work)).await.is_err());
            assert_eq!(store.log(), ["released", "takes part"]);
        };
        Machine::start().test(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_keeper_that_breaks_ends_the_run() {
        let store = Store::default();
        let test = async move {
            let broken = || {
                let (stop, _) = watch::channel(false);
                let (_, updates) = watch::channel(LockUpdate::default());
                Lock::new(updates, Arc::default(), stop, spawn(async { panic!("a defect") }))
            };
            let own = Leader { name: "own".into(), address: None, term: None, is_this: true };
            let running = store.shared.running.clone().lock_owned().await;
            let driver = Driver::new(TIMING, own, Callbacks::default(), store.shared.clone(), running, broken);
            assert_eq!(driver.run(|_| async {}).await, Err(Ended::Broken));
        };
        Machine::start().test(test).await;
    }
}

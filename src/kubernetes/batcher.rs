//! Requests that are sent together. Of the requests about one place, one is under way at a time, and all callers that ask meanwhile share
//! the next one, which begins as soon as one of them is no longer patient. So many questions cost little more than one.
//!
//! Requests take turns as the executor's do: urgent requests go before those of new groups, and no namespace takes more than its share.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use lictor_core::Failure;
use lictor_kubernetes::defect;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::lanes::{Class, Lanes, Limits, Share, Turn};

/// An answer that all its callers wait for.
pub type Answer<A> = Shared<BoxFuture<'static, Result<A, Failure>>>;

/// The number of questions in one request. They have about 4 KiB, because a proxy on the way to the API server may refuse an address that
/// is longer than 8 KiB.
const IN_A_REQUEST: usize = 50;

/// The number of requests at one time: about all places, about those in one namespace, and about one place.
const LIMITS: Limits = Limits { all: 16, group: 4, member: 1 };

/// Questions of type `Q` that are answered together by an `A`, or a failure. Clones share them.
pub struct Batcher<Q, A> {
    /// By place: the request that more questions can still join.
    open: Arc<Mutex<HashMap<String, Open<Q, A>>>>,
    queue: Queue<Q>,
}

/// The answer to a request that is not sent yet, and its questions.
type Open<Q, A> = (Answer<A>, Arc<Batch<Q>>);

/// The requests that wait for their turn. Clones share them.
struct Queue<Q>(Arc<Mutex<Lanes<Arc<Batch<Q>>>>>);

/// A request that is under way. When this is dropped, the next one begins.
struct Running<Q> {
    queue: Queue<Q>,
    turn: Option<Turn>,
}

/// The questions of one request that is not sent yet.
struct Batch<Q> {
    share: Share,
    state: Mutex<State<Q>>,
    /// Tells that a caller is less patient.
    hurry: Notify,
}

struct State<Q> {
    questions: Vec<Q>,
    /// The moment until which all callers are patient.
    until: Instant,
    class: Class,
    /// Lets the request begin. `None` if the request does not wait for its turn yet, or has begun.
    begins: Option<oneshot::Sender<Running<Q>>>,
}

impl<Q> Batch<Q> {
    fn new(share: Share, until: Instant) -> Arc<Self> {
        let state = State { questions: Vec::new(), until, class: Class::New, begins: None };
        Arc::new(Self { share, state: Mutex::new(state), hurry: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a caller is no longer patient.
    async fn wait(&self) {
        loop {
            let due = self.state().until;
            if due <= Instant::now() {
                return;
            }
            let _ = timeout_at(due, self.hurry.notified()).await;
        }
    }
}

impl<Q: PartialEq> Batch<Q> {
    /// Returns whether more questions can join, and whether the request, which already waits for its turn, is urgent from now on.
    fn push(&self, question: Q, patience: Option<Duration>) -> (bool, bool) {
        let mut state = self.state();
        if !state.questions.contains(&question) {
            state.questions.push(question);
        }
        let has_room = state.questions.len() < IN_A_REQUEST;
        let now = Instant::now();
        let until = patience.filter(|_| has_room).map_or(now, |patience| now + patience);
        if until < state.until {
            state.until = until;
            self.hurry.notify_one();
        }
        let hurries = patience.is_none() && state.class != Class::Urgent;
        if hurries {
            state.class = Class::Urgent;
        }
        (has_room, hurries && state.begins.is_some())
    }
}

impl<Q> Queue<Q> {
    fn lanes(&self) -> MutexGuard<'_, Lanes<Arc<Batch<Q>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, class: Class, batch: &Arc<Batch<Q>>) {
        self.lanes().push(&batch.share, class, Arc::clone(batch));
        self.begin();
    }

    /// Begins all requests that may begin now.
    fn begin(&self) {
        loop {
            let next = self.lanes().next();
            let Some((turn, batch)) = next else { return };
            let begins = batch.state().begins.take();
            let running = Running { queue: self.clone(), turn: Some(turn) };
            let unused = match begins {
                Some(begins) => begins.send(running).err(),
                // The request has had its turn as an urgent one.
                None => Some(running),
            };
            if let Some(turn) = unused.and_then(|mut running| running.turn.take()) {
                self.lanes().end(&turn);
            }
        }
    }
}

impl<Q> Clone for Queue<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Q> Drop for Running<Q> {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.queue.lanes().end(&turn);
            self.queue.begin();
        }
    }
}

impl<Q: PartialEq + Send + 'static, A: Clone + Send + Sync + 'static> Batcher<Q, A> {
    /// Asks about a place in a namespace. The request is sent after this call, once the answer is awaited. `send` sends it for all callers
    /// that have asked by then, up to [`IN_A_REQUEST`]. `patience` is how long it may wait for others to ask. With `None`, a decision
    /// depends on it, so it goes before the patient ones.
    pub fn ask<F>(
        &self,
        namespace: &str,
        place: &str,
        question: Q,
        patience: Option<Duration>,
        send: impl FnOnce(Vec<Q>) -> F + Send + 'static,
    ) -> Answer<A>
    where
        F: Future<Output = Result<A, Failure>> + Send + 'static,
    {
        let mut open = self.open();
        let (answer, batch) = open.entry(place.to_owned()).or_insert_with(|| {
            let share = Share { group: namespace.to_owned(), member: place.to_owned() };
            let batch = Batch::new(share, Instant::now() + patience.unwrap_or_default());
            (self.clone().send(batch.clone(), send).boxed().shared(), batch)
        });
        let (answer, batch) = (answer.clone(), batch.clone());
        let (has_room, hurries) = batch.push(question, patience);
        if !has_room {
            open.remove(place);
        }
        drop(open);
        if hurries {
            self.queue.push(Class::Urgent, &batch);
        }
        answer
    }

    async fn send<F>(self, batch: Arc<Batch<Q>>, send: impl FnOnce(Vec<Q>) -> F + Send) -> Result<A, Failure>
    where
        F: Future<Output = Result<A, Failure>> + Send,
    {
        batch.wait().await;
        let (begins, begun) = oneshot::channel();
        let class = {
            let mut state = batch.state();
            state.begins = Some(begins);
            state.class
        };
        self.queue.push(class, &batch);
        let Ok(running) = begun.await else { return Err(defect()) };
        {
            // Later callers wait for the next request.
            let mut open = self.open();
            if open.get(&batch.share.member).is_some_and(|(_, next)| Arc::ptr_eq(next, &batch)) {
                open.remove(&batch.share.member);
            }
        }
        let questions = std::mem::take(&mut batch.state().questions);
        // Without this, the callers that share the request would never hear of a panic.
        let told = AssertUnwindSafe(async { send(questions).await }).catch_unwind().await;
        drop(running);
        told.unwrap_or_else(|_| Err(defect()))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Open<Q, A>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Clone for Batcher<Q, A> {
    fn clone(&self) -> Self {
        Self { open: Arc::clone(&self.open), queue: self.queue.clone() }
    }
}

impl<Q, A> Default for Batcher<Q, A> {
    fn default() -> Self {
        Self { open: Arc::default(), queue: Queue(Arc::new(Mutex::new(Lanes::new(LIMITS)))) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Questions = Vec<&'static str>;

    /// Asks about a place in the namespace `shop` unless it says another one, and is answered by all the questions of the request, 100 ms
    /// later.
    fn ask(
        batcher: &Batcher<&'static str, Questions>,
        place: &str,
        question: &'static str,
        patience: Option<Duration>,
        requests: &Arc<AtomicUsize>,
    ) -> tokio::task::JoinHandle<Result<Questions, Failure>> {
        let requests = requests.clone();
        let (namespace, place) = place.split_once('/').unwrap_or(("shop", place));
        let send = move |questions: Questions| async move {
            requests.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(questions)
        };
        tokio::spawn(batcher.ask(namespace, place, question, patience, send))
    }

    #[tokio::test(start_paused = true)]
    async fn one_runs_at_a_time_and_all_who_ask_meanwhile_share_the_next() {
        let (batcher, requests, began) = (Batcher::default(), Arc::default(), Instant::now());
        let first = ask(&batcher, "shop", "a", None, &requests);
        while requests.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let later = ["b", "c"].map(|question| ask(&batcher, "shop", question, None, &requests));
        let elsewhere = ask(&batcher, "crm/crm", "d", None, &requests);
        assert_eq!((first.await.unwrap(), elsewhere.await.unwrap()), (Ok(vec!["a"]), Ok(vec!["d"])));
        assert_eq!(began.elapsed(), Duration::from_millis(100), "beside each other");
        for answer in later {
            assert_eq!(answer.await.unwrap().unwrap(), ["b", "c"]);
        }
        assert_eq!((began.elapsed(), requests.load(Ordering::SeqCst)), (Duration::from_millis(200), 3));
        assert!(batcher.open().is_empty(), "nothing stays behind");
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_others_as_long_as_the_least_patient_one_does() {
        let (batcher, requests, began) = (Batcher::default(), Arc::default(), Instant::now());
        let [long, short] = [3000, 300].map(Duration::from_millis);
        let first = ask(&batcher, "shop", "a", Some(long), &requests);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(requests.load(Ordering::SeqCst), 0);
        let later = [short, long].map(|patience| ask(&batcher, "shop", "b", Some(patience), &requests));
        for answer in [first].into_iter().chain(later) {
            assert_eq!(answer.await.unwrap().unwrap(), ["a", "b"]);
        }
        assert_eq!(began.elapsed(), Duration::from_millis(600), "200, then 300, and 100 for the request");
        let patient = ask(&batcher, "shop", "c", Some(long), &requests);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let urgent = ask(&batcher, "shop", "d", None, &requests);
        assert_eq!(patient.await.unwrap(), urgent.await.unwrap());
        assert_eq!((began.elapsed(), requests.load(Ordering::SeqCst)), (Duration::from_millis(1200), 2));
        assert!(batcher.open().is_empty(), "nothing stays behind");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_a_few_places_are_asked_about_at_a_time() {
        let (batcher, requests, began) = (Batcher::default(), Arc::default(), Instant::now());
        let all: Vec<_> = (0..=LIMITS.all).map(|n| ask(&batcher, &format!("{n}/{n}"), "a", None, &requests)).collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(requests.load(Ordering::SeqCst), LIMITS.all);
        for answer in all {
            assert_eq!(answer.await.unwrap(), Ok(vec!["a"]));
        }
        assert_eq!(began.elapsed(), Duration::from_millis(200));
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_fit_into_a_request_are_asked_for_by_several() {
        let (batcher, requests, began) = (Batcher::default(), Arc::default(), Instant::now());
        let patience = Duration::from_secs(1);
        let ask = |question| ask(&batcher, "shop", question, Some(patience), &requests);
        let names: Vec<&'static str> = names(2 * IN_A_REQUEST).collect();
        // What is asked for twice takes no room.
        let full: Vec<_> = names[..1].iter().chain(&names).map(|name| ask(name)).collect();
        let last = ask("b");
        for (number, answer) in full.into_iter().enumerate() {
            let of = if number <= IN_A_REQUEST { &names[..IN_A_REQUEST] } else { &names[IN_A_REQUEST..] };
            assert_eq!(answer.await.unwrap().unwrap(), of, "{number}");
        }
        assert_eq!(
            began.elapsed(),
            Duration::from_millis(200),
            "what is full waits for nobody, and one follows the other"
        );
        assert_eq!(last.await.unwrap().unwrap(), ["b"]);
        assert_eq!((began.elapsed(), requests.load(Ordering::SeqCst)), (Duration::from_millis(1100), 3));
        assert!(batcher.open().is_empty(), "nothing stays behind");
    }

    fn names(count: usize) -> impl Iterator<Item = &'static str> {
        (0..count).map(|name| &*name.to_string().leak())
    }

    /// Ten thousand new groups begin in one namespace, and one of the others fails over.
    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_waits_for_no_more_than_one_request() {
        let (batcher, requests) = (Batcher::default(), Arc::default());
        let patient = Some(Duration::from_secs(1));
        let new: Vec<_> =
            names(20 * IN_A_REQUEST).map(|name| ask(&batcher, "shop", name, patient, &requests)).collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let began = Instant::now();
        let urgent = ask(&batcher, "shop", "urgent", None, &requests);
        assert_eq!(urgent.await.unwrap().unwrap(), ["urgent"]);
        assert!(began.elapsed() <= Duration::from_millis(200), "{:?}", began.elapsed());
        for answer in new {
            answer.await.unwrap().unwrap();
        }
        assert_eq!((requests.load(Ordering::SeqCst), batcher.open().len()), (21, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_takes_along_those_who_wait_already() {
        let (batcher, requests) = (Batcher::default(), Arc::default());
        let patient = Some(Duration::from_millis(50));
        let all = names(2 * IN_A_REQUEST).map(|name| ask(&batcher, "shop", name, patient, &requests));
        let full: Vec<_> = all.collect();
        let open = ask(&batcher, "shop", "open", patient, &requests);
        // Its patience is over, and it waits for its turn behind the full ones.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let (began, urgent) = (Instant::now(), ask(&batcher, "shop", "urgent", None, &requests));
        assert_eq!(open.await.unwrap().unwrap(), ["open", "urgent"]);
        assert_eq!(urgent.await.unwrap().unwrap(), ["open", "urgent"]);
        assert!(began.elapsed() <= Duration::from_millis(200), "{:?}", began.elapsed());
        for answer in full {
            answer.await.unwrap().unwrap();
        }
        assert_eq!((requests.load(Ordering::SeqCst), batcher.open().len()), (3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_in_one_namespace_leaves_room_for_the_others() {
        let (batcher, requests) = (Batcher::default(), Arc::<AtomicUsize>::default());
        let hang = |place: usize| {
            tokio::spawn(batcher.ask("hangs", &format!("hangs {place}"), "a", None, |_| std::future::pending()))
        };
        let hanging: Vec<_> = (0..40).map(hang).collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let other = ask(&batcher, "shop", "b", None, &requests);
        let told = tokio::time::timeout(Duration::from_millis(200), other).await;
        assert_eq!(told.expect("it is answered").unwrap(), Ok(vec!["b"]));
        // Those who asked are gone, and what they asked for waits no more.
        hanging.iter().for_each(tokio::task::JoinHandle::abort);
        drop(batcher);
    }

    #[tokio::test]
    async fn a_panic_is_told_to_all_who_share_it_and_the_next_one_is_sent() {
        let batcher: Batcher<(), ()> = Batcher::default();
        let broken = || batcher.ask("shop", "shop", (), None, |_| async { panic!("on purpose") });
        let (one, other) = tokio::join!(broken(), broken());
        assert!(matches!((one, other), (Err(Failure::Unknown(_)), Err(Failure::Unknown(_)))));
        assert_eq!(batcher.ask("shop", "shop", (), None, |_| async { Ok(()) }).await, Ok(()));
    }
}

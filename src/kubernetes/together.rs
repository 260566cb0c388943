//! Requests that are sent together. Of those about one place, one is under way at a time; all who ask meanwhile share the next one. That
//! begins as soon as one of them is not patient any more. So what many ask for costs little more than what one asks for.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use lictor_core::Failure;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::defect;

/// An answer that all who asked for it wait for.
pub type Answer<A> = Shared<BoxFuture<'static, Result<A, Failure>>>;

/// So many questions go into one request, which are about 4 KiB: what is between here and the API server may take no address that is longer
/// than 8 KiB.
const IN_A_REQUEST: usize = 50;

/// Questions of type `Q` that are answered together by an `A`, or a failure. Clones are the same.
pub struct Together<Q, A> {
    /// By place: what is asked about one is not held up by another.
    asked: Arc<Mutex<HashMap<String, Asked<Q, A>>>>,
    /// How many may be under way.
    limit: Arc<Semaphore>,
}

/// So many are under way at a time, about all places.
const AT_A_TIME: usize = 16;

struct Asked<Q, A> {
    /// Lets one request run at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The request that more can still join.
    next: Option<(Answer<A>, Arc<Batch<Q>>)>,
}

/// What one request asks for. It is not sent yet.
struct Batch<Q> {
    /// With until when all who have asked are patient.
    questions: Mutex<(Vec<Q>, Instant)>,
    /// Tells that somebody is less patient.
    hurry: Notify,
}

impl<Q: PartialEq> Batch<Q> {
    fn new(until: Instant) -> Arc<Self> {
        Arc::new(Self { questions: Mutex::new((Vec::new(), until)), hurry: Notify::new() })
    }

    fn questions(&self) -> MutexGuard<'_, (Vec<Q>, Instant)> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether more can join.
    fn push(&self, question: Q, until: Instant) -> bool {
        let mut asked = self.questions();
        if !asked.0.contains(&question) {
            asked.0.push(question);
        }
        let has_room = asked.0.len() < IN_A_REQUEST;
        let until = if has_room { until } else { Instant::now() };
        if until < asked.1 {
            asked.1 = until;
            self.hurry.notify_one();
        }
        has_room
    }

    /// Waits until somebody is not patient any more.
    async fn wait(&self) {
        loop {
            let due = self.questions().1;
            if due <= Instant::now() {
                return;
            }
            let _ = timeout_at(due, self.hurry.notified()).await;
        }
    }
}

impl<Q: PartialEq + Send + 'static, A: Clone + Send + Sync + 'static> Together<Q, A> {
    /// Asks about a place. The request is sent after this call, once the answer is awaited. `send` sends it for all who have asked by
    /// then, up to [`IN_A_REQUEST`]. `patience`: how long it may wait for others to ask.
    pub fn ask<F>(
        &self,
        place: String,
        question: Q,
        patience: Duration,
        send: impl FnOnce(Vec<Q>) -> F + Send + 'static,
    ) -> Answer<A>
    where
        F: Future<Output = Result<A, Failure>> + Send + 'static,
    {
        let until = Instant::now() + patience;
        let mut all = self.asked();
        let Asked { turn, next } = all.entry(place.clone()).or_default();
        let (answer, batch) = next.get_or_insert_with(|| {
            let batch = Batch::new(until);
            (self.clone().send(place, turn.clone(), batch.clone(), send).boxed().shared(), batch)
        });
        let answer = answer.clone();
        if !batch.push(question, until) {
            *next = None;
        }
        answer
    }

    async fn send<F>(
        self,
        place: String,
        turn: Arc<tokio::sync::Mutex<()>>,
        batch: Arc<Batch<Q>>,
        send: impl FnOnce(Vec<Q>) -> F + Send,
    ) -> Result<A, Failure>
    where
        F: Future<Output = Result<A, Failure>> + Send,
    {
        let running = turn.lock().await;
        batch.wait().await;
        let permit = self.limit.acquire().await;
        if let Some(asked) = self.asked().get_mut(&place) {
            // Later callers wait for the next request.
            asked.next.take_if(|(_, next)| Arc::ptr_eq(next, &batch));
        }
        let questions = std::mem::take(&mut batch.questions().0);
        // Else those who share it would never hear of a panic.
        let told = AssertUnwindSafe(async { send(questions).await }).catch_unwind().await;
        drop(permit);
        drop(running);
        let mut all = self.asked();
        drop(turn);
        let is_last = |asked: &Asked<Q, A>| asked.next.is_none() && Arc::strong_count(&asked.turn) == 1;
        if all.get(&place).is_some_and(is_last) {
            all.remove(&place);
        }
        told.unwrap_or_else(|_| Err(defect()))
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<String, Asked<Q, A>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Clone for Together<Q, A> {
    fn clone(&self) -> Self {
        Self { asked: Arc::clone(&self.asked), limit: Arc::clone(&self.limit) }
    }
}

impl<Q, A> Default for Together<Q, A> {
    fn default() -> Self {
        Self { asked: Arc::default(), limit: Arc::new(Semaphore::new(AT_A_TIME)) }
    }
}

impl<Q, A> Default for Asked<Q, A> {
    fn default() -> Self {
        Self { turn: Arc::default(), next: None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Questions = Vec<&'static str>;

    /// Asks, and is answered by all the questions of the request, 100 ms later.
    fn ask(
        together: &Together<&'static str, Questions>,
        place: &str,
        question: &'static str,
        patience: Duration,
        requests: &Arc<AtomicUsize>,
    ) -> tokio::task::JoinHandle<Result<Questions, Failure>> {
        let requests = requests.clone();
        let send = move |questions: Questions| async move {
            requests.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(questions)
        };
        tokio::spawn(together.ask(place.into(), question, patience, send))
    }

    #[tokio::test(start_paused = true)]
    async fn one_runs_at_a_time_and_all_who_ask_meanwhile_share_the_next() {
        let (together, requests, began) = (Together::default(), Arc::default(), Instant::now());
        let first = ask(&together, "shop", "a", Duration::ZERO, &requests);
        while requests.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let later = ["b", "c"].map(|question| ask(&together, "shop", question, Duration::ZERO, &requests));
        let elsewhere = ask(&together, "crm", "d", Duration::ZERO, &requests);
        assert_eq!((first.await.unwrap(), elsewhere.await.unwrap()), (Ok(vec!["a"]), Ok(vec!["d"])));
        assert_eq!(began.elapsed(), Duration::from_millis(100), "beside each other");
        for answer in later {
            assert_eq!(answer.await.unwrap().unwrap(), ["b", "c"]);
        }
        assert_eq!((began.elapsed(), requests.load(Ordering::SeqCst)), (Duration::from_millis(200), 3));
        assert!(together.asked().is_empty(), "nothing stays behind");
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_others_as_long_as_the_least_patient_one_does() {
        let (together, requests, began) = (Together::default(), Arc::default(), Instant::now());
        let [long, short] = [3000, 300].map(Duration::from_millis);
        let first = ask(&together, "shop", "a", long, &requests);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(requests.load(Ordering::SeqCst), 0);
        let later = [short, long].map(|patience| ask(&together, "shop", "b", patience, &requests));
        for answer in [first].into_iter().chain(later) {
            assert_eq!(answer.await.unwrap().unwrap(), ["a", "b"]);
        }
        assert_eq!(began.elapsed(), Duration::from_millis(600), "200, then 300, and 100 for the request");
        let patient = ask(&together, "shop", "c", long, &requests);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let urgent = ask(&together, "shop", "d", Duration::ZERO, &requests);
        assert_eq!(patient.await.unwrap(), urgent.await.unwrap());
        assert_eq!((began.elapsed(), requests.load(Ordering::SeqCst)), (Duration::from_millis(1200), 2));
        assert!(together.asked().is_empty(), "nothing stays behind");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_a_few_places_are_asked_about_at_a_time() {
        let (together, requests, began) = (Together::default(), Arc::default(), Instant::now());
        let all: Vec<_> =
            (0..=AT_A_TIME).map(|place| ask(&together, &place.to_string(), "a", Duration::ZERO, &requests)).collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(requests.load(Ordering::SeqCst), AT_A_TIME);
        for answer in all {
            assert_eq!(answer.await.unwrap(), Ok(vec!["a"]));
        }
        assert_eq!(began.elapsed(), Duration::from_millis(200));
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_fit_into_a_request_are_asked_for_by_several() {
        let (together, requests, began) = (Together::default(), Arc::default(), Instant::now());
        let patience = Duration::from_secs(1);
        let ask = |question| ask(&together, "shop", question, patience, &requests);
        let names: Vec<&'static str> = (0..2 * IN_A_REQUEST).map(|name| &*name.to_string().leak()).collect();
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
        assert!(together.asked().is_empty(), "nothing stays behind");
    }

    #[tokio::test]
    async fn a_panic_is_told_to_all_who_share_it_and_the_next_one_is_sent() {
        let together: Together<(), ()> = Together::default();
        let broken = || together.ask("shop".into(), (), Duration::ZERO, |_| async { panic!("on purpose") });
        let (one, other) = tokio::join!(broken(), broken());
        assert!(matches!((one, other), (Err(Failure::Unknown(_)), Err(Failure::Unknown(_)))));
        assert_eq!(together.ask("shop".into(), (), Duration::ZERO, |_| async { Ok(()) }).await, Ok(()));
    }
}

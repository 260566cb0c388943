//! Requests that are sent together. Of those about one place, one is under way at a time; all who ask meanwhile share the next one. So
//! whoever is alone waits for nobody, and what many ask for costs little more than what one asks for.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use lictor_core::Failure;
use tokio::time::{Instant, sleep_until};

use super::defect;

/// An answer that all who asked for it wait for.
pub type Answer<A> = Shared<BoxFuture<'static, Result<A, Failure>>>;

/// Questions of type `Q` that are answered together by an `A`, or a failure. Clones are the same.
pub struct Together<Q, A> {
    /// By place: what is asked about one is not held up by another.
    asked: Arc<Mutex<HashMap<String, Asked<Q, A>>>>,
}

struct Asked<Q, A> {
    /// Lets one request run at a time, and says when the next one may begin.
    turn: Turn,
    /// The request that is not sent yet.
    next: Option<Answer<A>>,
    /// What it will ask for.
    questions: Vec<Q>,
}

type Turn = Arc<tokio::sync::Mutex<Option<Instant>>>;

impl<Q: Send + 'static, A: Clone + Send + Sync + 'static> Together<Q, A> {
    /// Asks about a place. The request is sent after this call, once the answer is awaited. `send` sends it for all who have asked by
    /// then. It returns, beside the answer, how long the next request about this place waits.
    pub fn ask<F>(&self, place: String, question: Q, send: impl FnOnce(Vec<Q>) -> F + Send + 'static) -> Answer<A>
    where
        F: Future<Output = (Result<A, Failure>, Duration)> + Send + 'static,
    {
        let mut all = self.asked();
        let Asked { turn, next, questions } = all.entry(place.clone()).or_default();
        questions.push(question);
        next.get_or_insert_with(|| self.clone().send(place, turn.clone(), send).boxed().shared()).clone()
    }

    async fn send<F>(self, place: String, turn: Turn, send: impl FnOnce(Vec<Q>) -> F + Send) -> Result<A, Failure>
    where
        F: Future<Output = (Result<A, Failure>, Duration)> + Send,
    {
        let mut turn = turn.lock().await;
        if let Some(not_before) = turn.take() {
            sleep_until(not_before).await;
        }
        // Later callers wait for the next request.
        let questions = self.asked().get_mut(&place).map(|asked| {
            asked.next = None;
            std::mem::take(&mut asked.questions)
        });
        // Else those who share it would never hear of a panic.
        let told = AssertUnwindSafe(async { send(questions.unwrap_or_default()).await }).catch_unwind().await;
        let (answer, pause) = told.unwrap_or_else(|_| (Err(defect()), Duration::ZERO));
        if !pause.is_zero() {
            *turn = Some(Instant::now() + pause);
        }
        let mut all = self.asked();
        if all.get(&place).is_some_and(|asked| asked.next.is_none()) {
            all.remove(&place);
        }
        answer
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<String, Asked<Q, A>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Clone for Together<Q, A> {
    fn clone(&self) -> Self {
        Self { asked: Arc::clone(&self.asked) }
    }
}

impl<Q, A> Default for Together<Q, A> {
    fn default() -> Self {
        Self { asked: Arc::default() }
    }
}

impl<Q, A> Default for Asked<Q, A> {
    fn default() -> Self {
        Self { turn: Turn::default(), next: None, questions: Vec::new() }
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
        pause: Duration,
        requests: &Arc<AtomicUsize>,
    ) -> tokio::task::JoinHandle<Result<Questions, Failure>> {
        let requests = requests.clone();
        let send = move |questions: Questions| async move {
            requests.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            (Ok(questions), pause)
        };
        tokio::spawn(together.ask(place.into(), question, send))
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
    async fn the_next_one_waits_as_long_as_the_last_one_says() {
        let (together, requests, began) = (Together::default(), Arc::default(), Instant::now());
        let first = ask(&together, "shop", "a", Duration::from_millis(300), &requests);
        while requests.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let next = ask(&together, "shop", "b", Duration::ZERO, &requests);
        assert_eq!((first.await.unwrap(), began.elapsed().as_millis()), (Ok(vec!["a"]), 100));
        assert_eq!((next.await.unwrap(), began.elapsed().as_millis()), (Ok(vec!["b"]), 500));
    }
    #[tokio::test]
    async fn a_panic_is_told_to_all_who_share_it_and_the_next_one_is_sent() {
        let together: Together<(), ()> = Together::default();
        let broken = || together.ask("shop".into(), (), |_| async { panic!("on purpose") });
        let (one, other) = tokio::join!(broken(), broken());
        assert!(matches!((one, other), (Err(Failure::Unknown(_)), Err(Failure::Unknown(_)))));
        assert_eq!(together.ask("shop".into(), (), |_| async { (Ok(()), Duration::ZERO) }).await, Ok(()));
    }
}

//! Objects in memory, with faults on order.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::{Failure, Listed, Object, Objects, Put, Tag};

/// A request, as the hook of a [`Memory`] sees it before the store does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A read of the object of this name.
    Get(&'a str),
    /// A write of the object of this name.
    Put(&'a str),
    /// A listing.
    List,
}

/// What befalls a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store refuses the request, and does nothing.
    Refused,
    /// The store refuses the request because a right is missing.
    Forbidden,
    /// The request never arrives. The outcome is unknown.
    Lost,
    /// The store carries the request out, but its answer is lost. The outcome is unknown.
    Unanswered,
    /// The outcome is unknown, and a write arrives only with [`Memory::deliver`].
    Held,
    /// The request arrives, and is answered, after this time.
    Slow(Duration),
}

type Hook = Box<dyn FnMut(&Asked<'_>) -> Option<Fault> + Send>;

/// A store in memory, as the tests of the port's users need it.
#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    writes: u64,
    held: Vec<(String, Option<Tag>, Vec<u8>)>,
}

impl State {
    fn put(&mut self, name: &str, expected: Option<&Tag>, content: Vec<u8>) -> Put {
        if self.objects.get(name).map(|object| &object.tag) != expected {
            return Put::Conflict;
        }
        self.writes += 1;
        let tag = Tag(self.writes.to_string());
        self.objects.insert(name.to_owned(), Object { tag: tag.clone(), content });
        Put::Done(tag)
    }
}

impl Memory {
    /// Lets this decide what befalls each request from now on, if anything.
    pub fn faults(&self, hook: impl FnMut(&Asked<'_>) -> Option<Fault> + Send + 'static) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    }

    /// Lets the writes arrive that [`Fault::Held`] kept back, in their order. Each is carried out only if its condition holds by now.
    pub fn deliver(&self) {
        let held = std::mem::take(&mut self.state().held);
        for (name, expected, content) in held {
            self.write(&name, expected.as_ref(), content);
        }
    }

    /// Deletes an object, as only a person does.
    pub fn delete(&self, name: &str) {
        self.state().objects.remove(name);
    }

    fn write(&self, name: &str, expected: Option<&Tag>, content: Vec<u8>) -> Put {
        self.state().put(name, expected, content)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the hook, and returns the fault of this request unless it arrives in the usual way.
    async fn fault(&self, asked: Asked<'_>) -> Option<Fault> {
        let fault = self.hook.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(|hook| hook(&asked))?;
        if let Fault::Slow(time) = fault {
            tokio::time::sleep(time).await;
            return None;
        }
        Some(fault)
    }
}

/// Returns the failure that the caller of a request sees.
fn failure(fault: &Fault) -> Failure {
    match fault {
        Fault::Refused => Failure::Refused("the store refuses".into()),
        Fault::Forbidden => Failure::Forbidden("the store forbids".into()),
        Fault::Lost | Fault::Unanswered | Fault::Held | Fault::Slow(_) => Failure::Unknown("no answer".into()),
    }
}

impl Objects for Memory {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Object>, Failure>> {
        async move {
            match self.fault(Asked::Get(name)).await {
                Some(fault) => Err(failure(&fault)),
                None => Ok(self.state().objects.get(name).cloned()),
            }
        }
        .boxed()
    }

    fn put<'a>(&'a self, name: &'a str, expected: Option<&'a Tag>, content: Vec<u8>) -> BoxFuture<'a, Put> {
        async move {
            let Some(fault) = self.fault(Asked::Put(name)).await else { return self.write(name, expected, content) };
            match fault {
                Fault::Unanswered => drop(self.write(name, expected, content)),
                Fault::Held => self.state().held.push((name.to_owned(), expected.cloned(), content)),
                Fault::Refused | Fault::Forbidden | Fault::Lost | Fault::Slow(_) => {}
            }
            Put::Failed(failure(&fault))
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Failure>> {
        async move {
            if let Some(fault) = self.fault(Asked::List).await {
                return Err(failure(&fault));
            }
            let listed = |(name, object): (&String, &Object)| Listed { name: name.clone(), tag: object.tag.clone() };
            Ok(self.state().objects.iter().map(listed).collect())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Fault, Memory};
    use crate::{Failure, Listed, Objects, Put, Tag};

    fn done(put: Put) -> Tag {
        let Put::Done(tag) = put else { panic!("{put:?}") };
        tag
    }

    #[tokio::test]
    async fn a_write_needs_the_expected_tag() {
        let memory = Memory::default();
        let first = done(memory.put("a", None, b"1".into()).await);
        assert_eq!(memory.put("a", None, b"2".into()).await, Put::Conflict);
        let second = done(memory.put("a", Some(&first), b"2".into()).await);
        assert_eq!(memory.put("a", Some(&first), b"3".into()).await, Put::Conflict);
        let read = memory.get("a").await.unwrap().unwrap();
        assert_eq!((read.tag, read.content.as_slice()), (second.clone(), b"2".as_slice()));
        let listed = memory.list().await.unwrap();
        assert_eq!(listed, [Listed { name: "a".into(), tag: second }]);
    }

    #[tokio::test]
    async fn a_held_write_arrives_late_and_on_its_condition() {
        let memory = Memory::default();
        let first = done(memory.put("a", None, b"1".into()).await);
        memory.faults(|asked| (*asked == Asked::Put("a")).then_some(Fault::Held));
        for content in ["2", "3"] {
            let put = memory.put("a", Some(&first), content.into()).await;
            assert!(matches!(put, Put::Failed(Failure::Unknown(_))), "{put:?}");
        }
        assert_eq!(memory.get("a").await.unwrap().unwrap().content, b"1");
        memory.deliver();
        assert_eq!(memory.get("a").await.unwrap().unwrap().content, b"2", "the second one came too late");
    }

    #[tokio::test]
    async fn a_lost_answer_hides_a_write_that_was_done() {
        let memory = Memory::default();
        memory.faults(|asked| matches!(asked, Asked::Put(_)).then_some(Fault::Unanswered));
        assert!(matches!(memory.put("a", None, b"1".into()).await, Put::Failed(Failure::Unknown(_))));
        assert_eq!(memory.get("a").await.unwrap().unwrap().content, b"1");
    }
}

//! The trial of a store before anything relies on it.

use crate::{Failure, Objects, Put};

/// Why a store was not shown to honour conditions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trial {
    /// The store carried out a write whose condition did not hold, so no lock in it excludes anyone.
    #[error("{0}")]
    Ignored(String),
    /// The trial could not be finished.
    #[error("{}", .0.text())]
    Failed(Failure),
}

/// The number of times that another process may get ahead of this one. Each of them does so once.
const ROUNDS: usize = 100;

/// The number of times that each write is tried that has to be refused. A store that ignores conditions may still answer with a conflict
/// when another process writes at the same moment, so one conflict proves little.
const TRIES: usize = 3;

/// B7: shows that a store honours the conditions of writes: it replaces the object of this name, then tries to replace it by the tag
/// that it had before, and to create it. Several processes may do so at once with one name, which nothing else may use.
///
/// # Errors
/// [`Trial::Ignored`] if one of these writes is carried out, and [`Trial::Failed`] if a request fails in another way.
pub async fn honours_conditions(objects: &dyn Objects, name: &str) -> Result<(), Trial> {
    for _ in 0..ROUNDS {
        // The number rises with each write, because a store may make the tag from the content.
        let (expected, number) = match objects.get(name).await.map_err(Trial::Failed)? {
            Some(object) => {
                let number = number_in(&object.content).ok_or_else(|| {
                    Trial::Failed(Failure::Refused(format!(
                        "the object '{name}' is another program's, and lictor needs this name: {}, or give lictor a place of its own",
                        objects.deletion(name)
                    )))
                })?;
                (Some(object.tag), number.wrapping_add(1))
            }
            None => (None, 1),
        };
        match objects.put(name, expected.as_ref(), content(number)).await {
            Put::Conflict => continue,
            Put::Failed(failure) => return Err(Trial::Failed(failure)),
            Put::Done(_) => {}
        }
        // The first write made the object. There is no older tag until the next round.
        let Some(stale) = expected else { continue };
        for _ in 0..TRIES {
            for (expected, what) in
                [(Some(&stale), "replaced an object that had changed"), (None, "created an object that existed")]
            {
                match objects.put(name, expected, content(number)).await {
                    Put::Conflict => {}
                    Put::Failed(failure) => return Err(Trial::Failed(failure)),
                    Put::Done(_) => {
                        return Err(Trial::Ignored(format!(
                            "the store {what}, although the write's condition did not hold: '{name}'; no lock can be held in it"
                        )));
                    }
                }
            }
        }
        return Ok(());
    }
    let busy = format!("other processes wrote '{name}' {ROUNDS} times while this one tried to");
    Err(Trial::Failed(Failure::Refused(busy)))
}

const TEXT: &str = "lictor tries by this object whether the store honours the conditions of writes: ";

fn content(number: u32) -> Vec<u8> {
    format!("{TEXT}{number}").into_bytes()
}

/// Reads the number from the object of the trial: `None` if it is another program's.
fn number_in(content: &[u8]) -> Option<u32> {
    std::str::from_utf8(content).ok()?.strip_prefix(TEXT)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use futures::future::{BoxFuture, join_all};

    use super::{Trial, honours_conditions};
    use crate::{Asked, Failure, Fault, Listed, Memory, Object, Objects, Put, Tag};

    /// A store that ignores conditions: those of creations, or those of replacements, or both.
    struct Ignores {
        memory: Memory,
        creations: bool,
        replacements: bool,
    }

    impl Objects for Ignores {
        fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Object>, Failure>> {
            self.memory.get(name)
        }

        fn put<'a>(&'a self, name: &'a str, expected: Option<&'a Tag>, content: Vec<u8>) -> BoxFuture<'a, Put> {
            let ignored = if expected.is_some() { self.replacements } else { self.creations };
            Box::pin(async move {
                let now = self.memory.get(name).await.unwrap().map(|object| object.tag);
                self.memory.put(name, if ignored { now.as_ref() } else { expected }, content).await
            })
        }

        fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Failure>> {
            self.memory.list()
        }
    }

    #[tokio::test]
    async fn an_honest_store_passes_again_and_again() {
        let memory = Memory::default();
        for _ in 0..3 {
            honours_conditions(&memory, "trial").await.unwrap();
        }
        assert_eq!(memory.list().await.unwrap().len(), 1);
    }

    /// Shows B7.
    #[tokio::test]
    async fn a_store_that_ignores_conditions_is_found_out() {
        for (creations, replacements) in [(true, false), (false, true), (true, true)] {
            let store = Ignores { memory: Memory::default(), creations, replacements };
            let trial = honours_conditions(&store, "trial").await;
            assert!(matches!(trial, Err(Trial::Ignored(_))), "{creations} {replacements}: {trial:?}");
        }
    }

    #[tokio::test]
    async fn many_at_once_pass() {
        let memory = Memory::default();
        // Each request lets the others run.
        memory.faults(|_| Some(Fault::Slow(std::time::Duration::ZERO)));
        let trials = join_all((0..50).map(|_| honours_conditions(&memory, "trial"))).await;
        assert!(trials.iter().all(Result::is_ok), "{trials:?}");
    }

    #[tokio::test]
    async fn an_object_of_another_program_is_not_written_over() {
        let memory = Memory::default();
        memory.put("trial", None, b"of a case at court".into()).await;
        let trial = honours_conditions(&memory, "trial").await;
        assert!(
            matches!(&trial, Err(Trial::Failed(Failure::Refused(text))) if text.contains("delete the object trial")),
            "{trial:?}"
        );
        assert_eq!(memory.get("trial").await.unwrap().unwrap().content, b"of a case at court");
    }

    #[tokio::test]
    async fn a_failure_is_no_verdict() {
        let memory = Memory::default();
        memory.faults(|asked| matches!(asked, Asked::Put(_)).then_some(Fault::Unanswered));
        let trial = honours_conditions(&memory, "trial").await;
        assert!(matches!(trial, Err(Trial::Failed(Failure::Unknown(_)))), "{trial:?}");
    }
}

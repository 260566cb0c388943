//! The files in which kubelet shows a pod its own label and term, as docs/know-that-you-lead.md describes them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use lictor_core::{Instant, Version};
use lictor_process::{monotonic, nap};

use super::heard::{Fact, Heard, Leader};
use super::{Own, Role};

/// How often to read the files.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How many times in a row to read, if kubelet has just deleted the directory.
const LOOKS: usize = 3;
/// How often to report that the files can't be read.
const FAILED_AGAIN: Duration = Duration::from_secs(1);

/// Follows only this pod, by its files. The pod leads while its label has the value `leads`, and its term is a number. The content is
/// reported when it changes, and every `every`.
pub fn hear_files(directory: PathBuf, leads: String, own: Own, every: Duration) -> BoxStream<'static, Heard> {
    let looks = Looks { directory, leads, own, every, told: None, version: Version::default() };
    unfold(looks, |mut looks| async move {
        let heard = looks.next().await;
        Some((heard, looks))
    })
    .boxed()
}

struct Looks {
    directory: PathBuf,
    /// The value of the leader's label.
    leads: String,
    own: Own,
    every: Duration,
    /// The last report and its time. The fact is `None` if the files could not be read.
    told: Option<(Instant, Option<Fact>)>,
    /// Counts the readings.
    version: Version,
}

impl Looks {
    async fn next(&mut self) -> Heard {
        if self.told.is_some() {
            nap(LOOK_AGAIN).await;
        }
        loop {
            let now = monotonic();
            let seen = self.look();
            let fact = seen.as_ref().ok().cloned();
            let (again, changed) = match &self.told {
                None => (true, true),
                Some((at, told)) => {
                    let pause = if fact.is_some() { self.every } else { FAILED_AGAIN };
                    (now.since(*at) >= pause, *told != fact)
                }
            };
            if again || changed {
                self.told = Some((now, fact));
                self.version.0 += 1;
                return match seen {
                    Ok(fact) => Heard::Confirmed { sent: now, version: self.version, fact },
                    Err(error) => Heard::Failed(format!("can't read {}: {error}", self.directory.display())),
                };
            }
            nap(LOOK_AGAIN).await;
        }
    }

    fn look(&self) -> io::Result<Fact> {
        let mut seen = read(&self.directory);
        for _ in 1..LOOKS {
            if seen.is_ok() {
                break;
            }
            seen = read(&self.directory);
        }
        let (role, term) = seen?;
        if role.trim_end() != self.leads {
            return Ok(Fact { role: Role::Follower, ..Fact::default() });
        }
        let Ok(term) = term.trim_end().parse() else {
            let note = format!("the label says {}, and the term {term:?} is not a number", self.leads);
            return Ok(Fact { role: Role::Follower, note: Some(note), ..Fact::default() });
        };
        let Own { pod, uid, cluster } = self.own.clone();
        let leader = Leader { name: pod.clone(), pod: Some(pod), uid, cluster, ..Leader::default() };
        Ok(Fact { role: Role::Leader, leader: Some(leader), term: Some(term), ..Fact::default() })
    }
}

/// Reads the role and the term of the same moment. Kubelet replaces both by moving one link, so this follows the link once.
fn read(directory: &Path) -> io::Result<(String, String)> {
    let version = directory.join("..data").canonicalize()?;
    let file = |name: &str| std::fs::read_to_string(version.join(name));
    Ok((file("role")?, file("term")?))
}

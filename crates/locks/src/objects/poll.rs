//! One look into the store: what has changed of the keys and of the sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use lictor_core::{Failure, LockSession, ObjectTag, SessionObject};
use lictor_objects::{Listed, Object, Objects, Tag};

use super::keys::Shared;
use super::{Named, of_key};

/// The number of objects that are read at a time.
const AT_ONCE: usize = 16;

/// A session's object: `None` if there is none, and no content if it is something else.
pub(super) type Found = Option<(ObjectTag, Option<SessionObject>)>;

/// What a look has found.
pub(super) struct Polled {
    /// The moment, by the view, at which it began.
    pub(super) began: u64,
    /// The keys that exist.
    pub(super) listed: BTreeSet<String>,
    /// The keys that have changed, which the view has by now.
    pub(super) read: BTreeMap<String, Tag>,
    /// The sessions that have changed, and those of which the holder of a key may be a newer one. They were read after the keys (B4).
    pub(super) sessions: Vec<(String, Found)>,
}

/// The session of each cluster, as it was last read: the tag of its object, and its ID.
pub(super) type KnownSessions = BTreeMap<String, (Option<ObjectTag>, Option<String>)>;

/// Looks into the store.
pub(super) async fn poll(shared: Arc<Shared>, known: KnownSessions) -> Result<Polled, Failure> {
    let (began, tags) = {
        let mut view = shared.view();
        (view.begin(), view.tags())
    };
    let (mut listed, mut changed) = (BTreeSet::new(), Vec::new());
    let mut sessions: BTreeMap<String, Tag> = BTreeMap::new();
    for Listed { name, tag } in shared.objects.list().await? {
        match Named::read(&name) {
            Some(Named::Key(key)) => {
                if tags.get(key) != Some(&tag) {
                    changed.push(key.to_owned());
                }
                listed.insert(key.to_owned());
            }
            Some(Named::Session(cluster)) => drop(sessions.insert(cluster.to_owned(), tag)),
            None => {}
        }
    }
    // The view takes each key at once, so that another look does not read it again if this one takes too long.
    let mut objects = futures::stream::iter(changed).map(|key| read(&*shared.objects, key)).buffer_unordered(AT_ONCE);
    let mut read = BTreeMap::new();
    while let Some(found) = objects.try_next().await? {
        if let Some((key, object)) = found {
            shared.view().take(&key, &object, false, began);
            read.insert(key, object.tag);
        }
    }
    let stale = stale(&known, &sessions, shared.view().holders().into_iter());
    let sessions = futures::stream::iter(stale)
        .map(|cluster| async {
            let found = shared.session(&cluster).await?;
            Ok::<_, Failure>((cluster, found))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(Polled { began, listed, read, sessions })
}

async fn read(objects: &dyn Objects, key: String) -> Result<Option<(String, Object)>, Failure> {
    Ok(objects.get(&of_key(&key)).await?.map(|object| (key, object)))
}

/// Returns the clusters whose sessions have to be read.
fn stale(
    known: &KnownSessions,
    listed: &BTreeMap<String, Tag>,
    holders: impl Iterator<Item = LockSession>,
) -> BTreeSet<String> {
    let differs = |(cluster, tag): (&String, &Tag)| {
        let same = known.get(cluster).is_some_and(|(known, _)| known.as_ref() == Some(&tag.0));
        (!same).then(|| cluster.clone())
    };
    let gone = known.iter().filter(|(cluster, (tag, _))| tag.is_some() && !listed.contains_key(*cluster));
    let other =
        holders.filter(|holder| known.get(&holder.cluster).is_none_or(|(_, id)| id.as_ref() != Some(&holder.id)));
    let changed = listed.iter().filter_map(differs).chain(gone.map(|(cluster, _)| cluster.clone()));
    changed.chain(other.map(|holder| holder.cluster)).collect()
}

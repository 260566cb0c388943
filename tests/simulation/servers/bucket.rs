//! A simulated bucket: objects that are replaced only if they have not changed. Reads and listings are consistent, as those of S3, Google
//! Cloud Storage and Azure are. The bucket has no clock. Or a hub, which does the same with Leases, and tells what has changed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use futures::stream::{BoxStream, unfold};
use futures::{FutureExt, StreamExt};
use lictor::controller::{Open, Site};
use lictor_core::{LockSession, SessionObject};
use lictor_locks::objects::KeyObject;
use lictor_objects::{BucketSettings, Failure, Listed, Object, Objects, Put, Tag};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, sleep};

use super::client::Listener;
use super::link::{Link, Lost, Mishap};

/// What a person writes.
pub const BY_HAND: &str = "by hand";
/// The installation that has a cluster's name by mistake, and how often it renews its session.
const NAMESAKE: &str = "elsewhere";
const RENEWS: Duration = Duration::from_secs(5);

/// After this time a watch is made anew.
const LONGEST_SILENCE: Duration = Duration::from_secs(25);

/// Is told of each session that ends and held a key: its cluster, and whether that cluster ended the session itself, or made another one in
/// its place.
type Observer = Box<dyn Fn(&str, bool) + Send>;

/// A bucket, or a hub.
pub struct Bucket {
    state: Mutex<State>,
    /// Whether equal contents have equal tags, as in S3.
    by_content: bool,
    /// In a hub: the names of objects that change.
    told: Option<broadcast::Sender<String>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    writes: u64,
    /// The live session of each cluster, and when it was renewed last.
    live: BTreeMap<String, (String, Instant)>,
    observer: Option<Observer>,
    /// Earlier states.
    kept: BTreeMap<u64, BTreeMap<String, Object>>,
}

impl Bucket {
    /// Makes an empty bucket.
    pub fn new(by_content: bool) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), by_content, told: None })
    }

    /// Makes an empty hub.
    pub fn hub() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), by_content: false, told: Some(broadcast::Sender::new(64)) })
    }

    /// Whether it is a hub.
    pub fn is_hub(&self) -> bool {
        self.told.is_some()
    }

    fn remove(&self, state: &mut State, name: &str) -> bool {
        self.tell(name);
        state.objects.remove(name).is_some()
    }

    fn tell(&self, name: &str) {
        self.told.iter().for_each(|told| drop(told.send(name.to_owned())));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn write(&self, state: &mut State, name: &str, content: Vec<u8>) -> Tag {
        state.writes += 1;
        let tag = if self.by_content {
            let mut hasher = DefaultHasher::new();
            content.hash(&mut hasher);
            Tag(format!("{:016x}", hasher.finish()))
        } else {
            Tag(state.writes.to_string())
        };
        state.objects.insert(name.to_owned(), Object { tag: tag.clone(), content });
        self.tell(name);
        tag
    }

    // Requests

    fn serve(&self, asked: &Asked) -> Answer {
        let mut state = self.lock();
        match asked {
            Asked::Get(name) => Answer::Got(state.objects.get(name).cloned()),
            Asked::List => {
                let listed =
                    |(name, object): (&String, &Object)| Listed { name: name.clone(), tag: object.tag.clone() };
                Answer::Listed(state.objects.iter().map(listed).collect())
            }
            Asked::Put(name, expected, content) => {
                if state.objects.get(name).map(|object| &object.tag) != expected.as_ref() {
                    return Answer::Put(Put::Conflict);
                }
                state.note_session(name, content);
                Answer::Put(Put::Done(self.write(&mut state, name, content.clone())))
            }
        }
    }

    // What is seen of it

    /// From now on, this is told of each session that a request ends and that held a key.
    pub fn observe(&self, observer: impl Fn(&str, bool) + Send + 'static) {
        self.lock().observer = Some(Box::new(observer));
    }

    /// The cluster whose live session holds a key.
    pub fn holder(&self, key: &str) -> Option<String> {
        let state = self.lock();
        let holder = state.key(key)?.session?;
        state.is_live(&holder).then_some(holder.cluster)
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<Value> {
        self.lock().key(key)?.value
    }

    // What people do to it

    /// A person writes a session's object, in the state that ends the session. Returns how many milliseconds before it had been renewed, if
    /// it was live.
    pub fn end_session(&self, cluster: &str) -> Option<u64> {
        let mut state = self.lock();
        let object = state.session(cluster)?;
        let (id, renewed) = state.live.remove(cluster)?;
        self.write(
            &mut state,
            &of_session(cluster),
            json!(SessionObject { ended: true, id, ..object }).to_string().into(),
        );
        Some(u64::try_from(renewed.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// A person deletes a session's object, or writes something else there.
    pub fn spoil_session(&self, cluster: &str, deletes: bool) {
        let (mut state, name) = (self.lock(), of_session(cluster));
        if deletes {
            self.remove(&mut state, &name);
        } else if state.objects.contains_key(&name) {
            self.write(&mut state, &name, BY_HAND.into());
        }
    }

    /// A person deletes a key.
    pub fn delete(&self, key: &str) {
        self.remove(&mut self.lock(), &of_key(key));
    }

    /// Somebody writes another value into a key.
    pub fn forge(&self, key: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.lock();
        let Some(mut object) = state.key(key) else { return };
        let Some(value) = &mut object.value else { return };
        edit(value);
        self.write(&mut state, &of_key(key), json!(object).to_string().into());
    }

    /// Somebody writes a value into a key, which leaves the session that holds it as it is.
    pub fn put(&self, key: &str, value: Value) {
        let mut state = self.lock();
        let before = state.key(key).unwrap_or(KeyObject { version: 1, created: 1, session: None, value: None });
        self.write(&mut state, &of_key(key), json!(KeyObject { value: Some(value), ..before }).to_string().into());
    }

    /// Another program writes the object of a key.
    pub fn overwrite(&self, key: &str, content: &[u8]) {
        self.write(&mut self.lock(), &of_key(key), content.to_vec());
    }

    /// A person deletes what a person has put there. Returns whether there was anything.
    pub fn clear(&self, key: &str) -> bool {
        let mut state = self.lock();
        let is_value = state.key(key).and_then(|object| object.value).is_some_and(|value| value == BY_HAND);
        let is_all = state.objects.get(&of_key(key)).is_some_and(|object| object.content == BY_HAND.as_bytes());
        (is_value || is_all) && self.remove(&mut state, &of_key(key))
    }

    /// A person keeps the present state by this number.
    pub fn keep(&self, number: u64) {
        let mut state = self.lock();
        let objects = state.objects.clone();
        state.kept.insert(number, objects);
    }

    /// A person puts everything back to an earlier state. The objects have new tags, unless these come from the contents.
    pub fn put_back(&self, number: u64) {
        let mut state = self.lock();
        let Some(earlier) = state.kept.remove(&number) else { return };
        (state.objects, state.live) = Default::default();
        for (name, object) in earlier {
            self.write(&mut state, &name, object.content);
        }
        let objects = std::mem::take(&mut state.objects);
        for (name, object) in &objects {
            state.note_session(name, &object.content);
        }
        state.objects = objects;
    }

    /// A third cluster with copied values renews a session of this cluster's name for as long, if the name is free.
    pub async fn come_as(self: Arc<Self>, cluster: &'static str, lasts: u64) {
        let until = Instant::now() + Duration::from_millis(lasts);
        let id = format!("{NAMESAKE}.{}", self.lock().writes);
        let mut renewals = 0;
        loop {
            {
                let mut state = self.lock();
                let free = match state.session(cluster) {
                    None => renewals == 0 && !state.objects.contains_key(&of_session(cluster)),
                    Some(object) => {
                        if renewals == 0 {
                            object.ended
                        } else {
                            object.id == id && !object.ended
                        }
                    }
                };
                if !free || Instant::now() >= until {
                    return;
                }
                let (id, installation, writer) = (id.clone(), NAMESAKE.to_owned(), NAMESAKE.to_owned());
                let session =
                    SessionObject { id, installation, writer, renewals, ttl_milliseconds: 30_000, ended: false };
                self.write(&mut state, &of_session(cluster), json!(session).to_string().into());
            }
            renewals += 1;
            sleep(RENEWS).await;
        }
    }
}

impl State {
    fn key(&self, key: &str) -> Option<KeyObject> {
        serde_json::from_slice(&self.objects.get(&of_key(key))?.content).ok()
    }

    fn session(&self, cluster: &str) -> Option<SessionObject> {
        serde_json::from_slice(&self.objects.get(&of_session(cluster))?.content).ok()
    }

    fn is_live(&self, session: &LockSession) -> bool {
        self.live.get(&session.cluster).is_some_and(|(id, _)| *id == session.id)
    }

    /// A request writes this object.
    fn note_session(&mut self, name: &str, content: &[u8]) {
        let cluster = name.strip_prefix("sessions/").and_then(|name| name.strip_suffix(".json"));
        let object = serde_json::from_slice::<SessionObject>(content).ok();
        // A state that only stands for a session, whose object a person has deleted, takes nothing from its owner.
        let object = object.filter(|object| !object.is_vacant());
        let (Some(cluster), Some(object)) = (cluster, object) else { return };
        if let Some((id, _)) = self.live.get(cluster).filter(|(id, _)| object.ended || *id != object.id) {
            let session = LockSession { cluster: cluster.to_owned(), id: id.clone() };
            let of_session = |content: &[u8]| {
                serde_json::from_slice::<KeyObject>(content).is_ok_and(|key| key.session.as_ref() == Some(&session))
            };
            if self.objects.iter().any(|(name, object)| name.starts_with("locks/") && of_session(&object.content)) {
                let by_owner = object.writer.split('/').next() == Some(cluster);
                self.observer.iter().for_each(|told| told(cluster, by_owner));
            }
            self.live.remove(cluster);
        }
        if !object.ended {
            self.live.insert(cluster.to_owned(), (object.id, Instant::now()));
        }
    }
}

fn of_key(key: &str) -> String {
    format!("locks/{key}.json")
}

fn of_session(cluster: &str) -> String {
    format!("sessions/{cluster}.json")
}

/// A request.
#[derive(Clone, Debug)]
enum Asked {
    Get(String),
    Put(String, Option<Tag>, Vec<u8>),
    List,
}

/// An answer.
enum Answer {
    Got(Option<Object>),
    Put(Put),
    Listed(Vec<Listed>),
    Failed(Failure),
}

impl Answer {
    /// The status by which a server would say so.
    fn status(&self) -> u16 {
        match self {
            Self::Got(None) => 404,
            Self::Put(Put::Conflict) => 412,
            Self::Put(Put::Failed(failure)) | Self::Failed(failure) => match failure {
                Failure::Forbidden(_) => 403,
                Failure::Refused(_) | Failure::Rewritten(_) => 429,
                Failure::Unknown(_) => 500,
            },
            Self::Got(Some(_)) | Self::Put(Put::Done(_)) | Self::Listed(_) => 200,
        }
    }
}

/// How a bucket is reached over a link.
pub fn open(bucket: Arc<Bucket>, link: Arc<Link>, listener: Listener) -> Open {
    Arc::new(move |site, _| {
        let limit = match site {
            Site::Bucket(BucketSettings { timeout, .. }) | Site::Hub { timeout, .. } => timeout,
        };
        ready(Ok(way(bucket.clone(), link.clone(), listener.clone(), limit))).boxed()
    })
}

/// The same, for whoever needs no settings.
pub fn way(bucket: Arc<Bucket>, link: Arc<Link>, listener: Listener, limit: Duration) -> Arc<dyn Objects> {
    Arc::new(Way { bucket, link, listener, limit })
}

struct Way {
    bucket: Arc<Bucket>,
    link: Arc<Link>,
    listener: Listener,
    limit: Duration,
}

impl Way {
    async fn ask(&self, asked: Asked) -> Answer {
        let (bucket, link, listener) = (self.bucket.clone(), self.link.clone(), self.listener.clone());
        let carried = self.link.carry(move |mishap| {
            let unknown = |text: &str| Answer::Failed(Failure::Unknown(text.into()));
            let writes_key = matches!(&asked, Asked::Put(name, ..) if name.starts_with("locks/"));
            let answer = match mishap {
                Mishap::None | Mishap::After if writes_key && link.weather().unwritable => {
                    Answer::Failed(Failure::Forbidden("AccessDenied".into()))
                }
                Mishap::None => bucket.serve(&asked),
                Mishap::Before(1) => Answer::Failed(Failure::Refused("SlowDown".into())),
                Mishap::Before(_) if matches!(asked, Asked::Put(..)) => Answer::Put(Put::Conflict),
                Mishap::Before(_) => unknown("InternalError"),
                Mishap::After => {
                    bucket.serve(&asked);
                    unknown("InternalError")
                }
            };
            let (method, name, body): (_, &str, &[u8]) = match &asked {
                Asked::Get(name) => ("GET", name, &[]),
                Asked::Put(name, _, content) => ("PUT", name, content),
                Asked::List => ("GET", "", &[]),
            };
            listener(method, &format!("bucket/{name}"), body, answer.status());
            async move { answer }.boxed()
        });
        match tokio::time::timeout(self.limit, carried).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(Lost::Refused)) => Answer::Failed(Failure::Refused("connection refused".into())),
            Ok(Err(Lost::Broken)) => Answer::Failed(Failure::Unknown("connection reset".into())),
            Err(_) => Answer::Failed(Failure::Unknown("operation timed out".into())),
        }
    }
}

impl Objects for Way {
    /// What is lost on the way is not told again.
    fn changes(&self) -> Option<BoxStream<'static, String>> {
        let (told, link) = (self.bucket.told.as_ref()?.subscribe(), self.link.clone());
        let next = move |mut told: broadcast::Receiver<String>| {
            let link = link.clone();
            async move {
                loop {
                    let name = match told.recv().await {
                        Ok(name) => name,
                        Err(RecvError::Lagged(_)) => String::new(),
                        Err(RecvError::Closed) => return None,
                    };
                    let arrives = link.carry(|mishap| async move { matches!(mishap, Mishap::None) }.boxed());
                    if matches!(tokio::time::timeout(LONGEST_SILENCE, arrives).await, Ok(Ok(true))) {
                        return Some((name, told));
                    }
                }
            }
        };
        Some(unfold(told, next).boxed())
    }

    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Object>, Failure>> {
        async move {
            match self.ask(Asked::Get(name.to_owned())).await {
                Answer::Got(object) => Ok(object),
                Answer::Failed(failure) => Err(failure),
                Answer::Put(_) | Answer::Listed(_) => unreachable!("another question was asked"),
            }
        }
        .boxed()
    }

    fn put<'a>(&'a self, name: &'a str, expected: Option<&'a Tag>, content: Vec<u8>) -> BoxFuture<'a, Put> {
        async move {
            match self.ask(Asked::Put(name.to_owned(), expected.cloned(), content)).await {
                Answer::Put(put) => put,
                Answer::Failed(failure) => Put::Failed(failure),
                Answer::Got(_) | Answer::Listed(_) => unreachable!("another question was asked"),
            }
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Failure>> {
        async move {
            match self.ask(Asked::List).await {
                Answer::Listed(listed) => Ok(listed),
                Answer::Failed(failure) => Err(failure),
                Answer::Put(_) | Answer::Got(_) => unreachable!("another question was asked"),
            }
        }
        .boxed()
    }
}

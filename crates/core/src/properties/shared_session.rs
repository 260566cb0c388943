//! Two replicas that both keep the session of one name, in every order of their requests.

use std::collections::BTreeSet;
use std::time::Duration;

use super::at;
use crate::{FoundSession, Instant, SessionCommand, SessionLife, SessionParameters};

const TTL: Duration = Duration::from_secs(15);

/// Consul, and the two.
#[derive(Clone, Debug)]
struct World {
    sessions: Vec<u64>,
    made: u64,
    replicas: [Replica; 2],
}

#[derive(Clone, Debug)]
struct Replica {
    life: SessionLife,
    request: Option<Request>,
    /// The sessions that it is about to destroy.
    unused: BTreeSet<u64>,
}

/// What a replica waits for.
#[derive(Clone, Debug)]
enum Request {
    LookUp,
    Create,
    /// It was made: what there is of its name is read.
    ReadBack(u64),
    Renew(u64),
    /// These have their answers, which are on their way.
    LookedUp(Vec<u64>),
    Found(u64, Vec<u64>),
    Renewed(u64, bool),
}

impl World {
    /// Both kept the same session, and hear at this moment that it is gone.
    fn new() -> Self {
        let mut life = SessionLife::new("lictor/0", SessionParameters { ttl: TTL });
        life.looked_up(found(&[1]), at(0));
        life.renewed("1", TTL, at(0), at(0));
        life.lost("1", at(1_000));
        let replica = Replica { life, request: None, unused: BTreeSet::new() };
        Self { sessions: vec![], made: 1, replicas: [replica.clone(), replica] }
    }

    /// Goes on with one replica's request; false: it has none to make.
    fn advance(&mut self, number: usize, now: Instant) -> bool {
        let Self { sessions, made, replicas } = self;
        let replica = &mut replicas[number];
        let life = &mut replica.life;
        let mut unused = Vec::new();
        replica.request = match replica.request.take() {
            None => match life.next(now) {
                SessionCommand::LookUp => Some(Request::LookUp),
                SessionCommand::Create => Some(Request::Create),
                SessionCommand::Renew(id) => Some(Request::Renew(id.parse().unwrap())),
                SessionCommand::Wait(_) => return false,
            },
            Some(Request::LookUp) => Some(Request::LookedUp(sessions.clone())),
            Some(Request::Create) => {
                *made += 1;
                sessions.push(*made);
                Some(Request::ReadBack(*made))
            }
            Some(Request::ReadBack(id)) => Some(Request::Found(id, sessions.clone())),
            Some(Request::Renew(id)) => Some(Request::Renewed(id, sessions.contains(&id))),
            Some(Request::LookedUp(there)) => {
                unused = life.looked_up(found(&there), now);
                None
            }
            Some(Request::Found(id, there)) => {
                unused = life.created_among(&id.to_string(), found(&there), now, now);
                None
            }
            Some(Request::Renewed(id, lives)) => {
                if lives {
                    life.renewed(&id.to_string(), TTL, now, now);
                } else {
                    life.lost(&id.to_string(), now);
                }
                None
            }
        };
        replica.unused.extend(unused.into_iter().map(|session| session.create_index));
        true
    }

    /// One of those that a replica does not want is destroyed; false: there is none.
    fn destroy(&mut self, number: usize, now: Instant) -> bool {
        let Some(id) = self.replicas[number].unused.pop_first() else { return false };
        let relies = |replica: &Replica| {
            replica.life.validity(now).lasts(now) && replica.life.id() == Some(id.to_string().as_str())
        };
        assert!(
            !self.replicas.iter().any(relies),
            "the session {id} is destroyed, and somebody relies on it: {self:#?}"
        );
        self.sessions.retain(|session| *session != id);
        true
    }
}

fn found(ids: &[u64]) -> Vec<FoundSession> {
    ids.iter().map(|id| FoundSession { id: id.to_string(), ttl: TTL, create_index: *id }).collect()
}

/// Tries every order of what may happen next; counts where nothing is left to happen.
fn explore(world: &World, seen: &mut BTreeSet<String>, ends: &mut usize) {
    let now = at(1_000);
    if !seen.insert(format!("{world:?}")) {
        return;
    }
    let mut ended = true;
    for number in 0..2 {
        for step in [World::advance, World::destroy] {
            let mut next = world.clone();
            if step(&mut next, number, now) {
                ended = false;
                explore(&next, seen, ends);
            }
        }
    }
    if ended {
        *ends += 1;
        let [one, other] = &world.replicas;
        assert!(one.life.validity(now).lasts(now) && other.life.validity(now).lasts(now), "{world:#?}");
        assert_eq!(one.life.id(), other.life.id(), "{world:#?}");
        assert_eq!(world.sessions.len(), 1, "{world:#?}");
    }
}

/// Shows C9.
#[test]
fn two_replicas_that_lose_their_session_at_one_moment_use_one_in_its_place() {
    let mut ends = 0;
    explore(&World::new(), &mut BTreeSet::new(), &mut ends);
    assert!(ends > 0);
}

//! What the store and the API servers do.

use std::sync::Arc;

use lictor_core::{
    Command, ElectionRead, Failure, FoundSession, Outcome, PodChange, PodOutcome, Record, RecordOutcome, Rival,
    SessionCommand, Stored, Version, WorkloadOutcome, WriteWorkload, invariants,
};

use super::{CHECKS, Clusters, NAMES, Request, Session, State, Store};
use crate::identity::Known;
use crate::member::{Answer, Ask, Sent, TTL, WIND_DOWN, key, uid};
use crate::rules::{Counted, Rule};

impl Clusters {
    /// What is under the key, as a cluster sees it.
    pub(super) fn stored(&self, state: &State, number: usize) -> Stored {
        let Store { version, held, written, sessions, .. } = &state.store;
        let Some(written) = written else { return Stored::Absent };
        let (writer, record) = &written.value;
        let record = record.clone().at(*version);
        let own = *writer == number;
        let present = sessions[number].as_ref().map(|session| session.number);
        let obligation = record.drain_obligation.clone().filter(|_| !own && !self.lacks(Rule::Published));
        match held {
            Some((cluster, session)) if *cluster == number && present == Some(*session) => {
                Stored::Ours(*version, record)
            }
            Some((cluster, _)) => {
                let holder = record.holder.filter(|_| !own);
                let (cluster, session) = (Some(NAMES[*cluster].into()), String::new());
                Stored::HeldByOther(
                    *version,
                    Rival {
                        cluster,
                        term: record.term,
                        holder,
                        session,
                        drain_obligation: obligation,
                        ..Rival::default()
                    },
                )
            }
            None if own => Stored::Free(*version, Some(record), None),
            None => Stored::Free(*version, None, obligation),
        }
    }

    fn write_record(
        store: &mut Store,
        number: usize,
        sent: &Sent,
        expected: Option<Version>,
        record: &Record,
    ) -> RecordOutcome {
        let present = store.sessions[number].as_ref().map(|session| session.number);
        if present.is_none() || present != sent.session {
            return RecordOutcome::Failed(Failure::Refused("no such session".into()));
        }
        let there = store.written.as_ref().map(|_| store.version);
        if there != expected || store.held.is_some_and(|held| Some(held) != present.map(|session| (number, session))) {
            return RecordOutcome::Conflict;
        }
        store.version.0 += 1;
        store.held = present.map(|session| (number, session));
        store.written = Some(Arc::new(Known::new((number, record.clone()))));
        RecordOutcome::Written(store.version)
    }

    fn release(store: &mut Store, number: usize, sent: &Sent, version: Version) -> RecordOutcome {
        if store.version != version
            || store.held.is_none()
            || store.held != sent.session.map(|session| (number, session))
        {
            return RecordOutcome::Conflict;
        }
        store.version.0 += 1;
        store.held = None;
        RecordOutcome::Written(store.version)
    }

    pub(super) fn carry_out(&self, state: &mut State, request: &Request) -> Answer {
        let (number, sent) = (request.cluster, &request.sent.value);
        let stored = self.stored(state, number);
        let now = state.now;
        let store = &mut state.store;
        Answer::Core(match &sent.ask {
            Ask::Session(SessionCommand::LookUp) => {
                let found = store.sessions[number].iter().map(|session| found(session.number)).collect();
                return Answer::Found(found);
            }
            Ask::Session(SessionCommand::Create) => {
                store.made[number] += 1;
                let session = Session { number: store.made[number], renewed: now };
                store.sessions[number] = Some(session);
                return Answer::Made(store.made[number]);
            }
            Ask::Session(SessionCommand::Renew(id)) => {
                let session = store.sessions[number].as_mut().filter(|session| session.number.to_string() == *id);
                let lives = session.map(|session| session.renewed = now).is_some();
                return Answer::Renewed(lives);
            }
            Ask::Session(SessionCommand::Wait(_)) => return Answer::Nothing,
            Ask::Core(request) => match &request.command {
                Command::ReadRecord { .. } => Outcome::RecordRead(Ok(stored)),
                Command::ListLocks => {
                    let own = stored.written().is_some().then_some((key(), stored));
                    Outcome::LocksListed(Ok(own.into_iter().collect()))
                }
                Command::WriteRecord { expected, record, .. } => {
                    let written = Self::write_record(store, number, sent, *expected, record);
                    if let RecordOutcome::Written(_) = written {
                        self.seen.count(if number == 1 { Counted::TakenOver } else { Counted::Written });
                    }
                    Outcome::RecordWritten(written)
                }
                Command::ReleaseRecord { version, .. } => {
                    self.seen.count(Counted::Released);
                    Outcome::RecordWritten(Self::release(store, number, sent, *version))
                }
                Command::ReadElection => {
                    Outcome::ElectionRead(Ok(ElectionRead::Present { uid: uid(number), generation: 1 }))
                }
                Command::ListPods { .. } => {
                    Outcome::PodsListed(Ok(state.clusters[number].world.all().cloned().collect()))
                }
                Command::ReadPod { .. } => Outcome::PodRead(Ok(state.clusters[number].world.pod(0).cloned())),
                Command::WritePod(write) => {
                    let world = &mut state.clusters[number].world;
                    let stamp = write.change != PodChange::Promote && world.leaders().next().is_none();
                    let written = match world.pod(0).filter(|_| stamp && self.lacks(Rule::Stamps)) {
                        Some(pod) => world.allows(CHECKS, write).unwrap_or(PodOutcome::Written(Box::new(pod.clone()))),
                        None => world.write_pod(CHECKS, write),
                    };
                    if let (PodOutcome::Written(_), PodChange::Promote) = (&written, write.change) {
                        let term = world.promoted.as_ref().map(|(term, _)| *term);
                        Self::judge_term(state, term.unwrap_or_default());
                    }
                    Outcome::PodWritten(written)
                }
                Command::WriteWorkload(write) => Outcome::WorkloadWritten(self.write_workload(state, number, write)),
                Command::ReadWorkloads { .. } => Outcome::WorkloadsRead(Ok(Vec::new())),
                other => unreachable!("no request of this model: {other}"),
            },
        })
    }

    fn write_workload(&self, state: &mut State, number: usize, write: &WriteWorkload) -> WorkloadOutcome {
        let ends = state.now + self.ticks(WIND_DOWN);
        let cluster = &mut state.clusters[number];
        let Some(before) = cluster.workload.as_ref() else { return WorkloadOutcome::Gone };
        if before.version != write.version {
            return WorkloadOutcome::Conflict;
        }
        let mut after = before.value.clone();
        after.version.0 += 1;
        after.setting = write.setting;
        after.claim.clone_from(&write.claim);
        if before.setting.runs() && !after.setting.runs() {
            cluster.ends = Some(ends);
        } else if after.setting.runs() {
            cluster.ends = None;
        }
        after.remains = after.setting.runs() || cluster.ends.is_some();
        let enables = after.setting.runs() && !before.setting.runs();
        cluster.workload = Some(Arc::new(Known::new(after)));
        if let (true, Some(claim)) = (enables, &write.claim) {
            Self::judge_term(state, claim.term);
        }
        WorkloadOutcome::Done
    }

    /// A session ends, and with it the lock.
    pub(super) fn expire(&self, state: &mut State, number: usize) {
        let Some(session) = state.store.sessions[number].take() else { return };
        if state.store.held == Some((number, session.number)) {
            state.store.held = None;
            state.store.version.0 += 1;
            self.seen.count(Counted::Expired);
            if let Some(member) = &state.clusters[number].member {
                // By one clock: what is left of the lock validity.
                let (granted, until) = (member.now, member.relies_until());
                if until.is_some_and(|until| !invariants::stops_in_time(until, granted)) {
                    state.broken = Some("the lock is given to others while its holder relies on it".into());
                }
            }
        }
    }

    /// What nobody waits for and could not do anything any more.
    pub(super) fn tidy(state: &mut State) {
        let State { requests, store, clusters, .. } = state;
        requests.retain(|request| {
            let useful = match request.sent.command() {
                Some(Command::WriteRecord { expected, .. }) => {
                    let there = store.written.as_ref().map(|_| store.version);
                    let session = store.sessions[request.cluster].as_ref().map(|session| session.number);
                    there == *expected && session.is_some() && session == request.sent.session
                }
                Some(Command::ReleaseRecord { version, .. }) => store.version == *version,
                Some(Command::WritePod(write)) => clusters[request.cluster].world.allows(CHECKS, write).is_none(),
                Some(Command::WriteWorkload(write)) => {
                    clusters[request.cluster].workload.as_ref().is_some_and(|w| w.version == write.version)
                }
                _ => false,
            };
            request.sent.awaited || useful
        });
        requests
            .sort_by(|a, b| (a.cluster, a.at, a.sent.shape().order()).cmp(&(b.cluster, b.at, b.sent.shape().order())));
    }
}

fn found(number: u32) -> FoundSession {
    FoundSession { id: number.to_string(), ttl: TTL, create_index: number.into() }
}

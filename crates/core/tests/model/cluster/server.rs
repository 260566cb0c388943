//! What the API server does, and what it only says that it does where a rule is switched off.

use lictor_core::{
    Command, Outcome, Pod, PodChange, PodOutcome, Record, RecordOutcome, SliceOutcome, Version, WritePod,
};

use super::{Cluster, Request, State};
use crate::operator::Operator;
use crate::rules::{Counted, Rule};
use crate::world::{patched, place, spec};

impl Cluster {
    /// The API server carries out a request. With a rule switched off, it may be told to have done what it has not: then it is
    /// still to be done.
    pub(super) fn carry_out(&self, state: &mut State, request: &Request) -> (Outcome, bool) {
        let world = &mut state.world;
        let checks = self.checks();
        let operator = &state.operators[request.operator].value;
        let outcome = match &request.command {
            Command::ReadRecord { .. } if self.lacks(Rule::Confirmation) && operator.is_busy() => {
                Outcome::RecordRead(Ok(operator.lock()))
            }
            Command::ReadRecord { .. } => Outcome::RecordRead(Ok(world.record.1.clone())),
            Command::WriteRecord { expected, record, .. } => {
                let written = if self.lacks(Rule::RecordFirst) && request.awaited {
                    let mut later = world.clone();
                    let written = later.write_record(checks, *expected, record);
                    return (Outcome::RecordWritten(written), true);
                } else {
                    world.write_record(checks, *expected, record)
                };
                self.count_record(request.operator, &written, record);
                Outcome::RecordWritten(written)
            }
            Command::ListPods { .. } if self.lacks(Rule::FreshPods) => {
                Outcome::PodsListed(Ok(operator.pods.values().cloned().collect()))
            }
            Command::ListPods { .. } => Outcome::PodsListed(Ok(world.all().cloned().collect())),
            Command::ReadPod { name, .. } => Outcome::PodRead(Ok(world.all().find(|pod| pod.name == *name).cloned())),
            Command::WritePod(write) => {
                if let (Some(pod), None) = (world.pod(place(&write.uid).0), world.allows(checks, write))
                    && let Some(stays) = self.pretends(operator, pod, write, request.awaited)
                {
                    // What is told has to look like a write: the core does not count another one.
                    let mut told = patched(pod, write);
                    told.version = Version(pod.version.0 + 1);
                    return (Outcome::PodWritten(PodOutcome::Written(Box::new(told))), stays);
                }
                let mut written = world.write_pod(checks, write);
                self.count_pod(request, write, &written);
                if let (PodOutcome::Written(pod), true) = (&mut written, self.lacks(Rule::EndsFirst)) {
                    pod.ended |= pod.deleting;
                }
                Outcome::PodWritten(written)
            }
            Command::ReadSlice { .. } => Outcome::SliceRead(Ok(world.slice.as_ref().map(|slice| slice.value.clone()))),
            Command::WriteSlice(write) => {
                let written = world.write_slice(checks, write);
                self.count_slice(request, &written);
                Outcome::SliceWritten(written)
            }
            other => unreachable!("no request of this model: {other}"),
        };
        (outcome, false)
    }

    /// Whether an operator is told that a write was done although it was not, because a rule is switched off, and whether it is still
    /// to be done then.
    fn pretends(&self, operator: &Operator, pod: &Pod, write: &WritePod, awaited: bool) -> Option<bool> {
        let markings = &spec().0.markings;
        let stamp = write.change == PodChange::Demote && markings.is_follower(pod);
        let previous = write.change == PodChange::Demote
            && operator.replaced.as_ref() == Some(&write.uid)
            && operator.pods.get(&place(&write.uid).0).is_none_or(|known| !markings.shows_leader(known));
        if (stamp && self.lacks(Rule::Stamps)) || (previous && self.lacks(Rule::PreviousDemoted)) {
            return Some(false);
        }
        let demotion = write.change == PodChange::Demote && markings.shows_leader(pod);
        (demotion && awaited && self.lacks(Rule::DemotionAwaited)).then_some(true)
    }

    // What was reached, to know that it was

    fn count_record(&self, operator: usize, written: &RecordOutcome, record: &Record) {
        match written {
            RecordOutcome::Written(_) if operator == 1 && record.term.0 > 1 => self.seen.count(Counted::TakenOver),
            RecordOutcome::Conflict => self.seen.count(Counted::Conflict),
            _ => {}
        }
    }

    fn count_slice(&self, request: &Request, written: &SliceOutcome) {
        match written {
            SliceOutcome::Written(_) if !request.awaited => self.seen.count(Counted::LateSwitch),
            SliceOutcome::Conflict if request.awaited => self.seen.count(Counted::RefusedSwitch),
            _ => {}
        }
    }

    fn count_pod(&self, request: &Request, write: &WritePod, written: &PodOutcome) {
        let promotes = write.change == PodChange::Promote;
        match written {
            PodOutcome::Written(_) if promotes && !request.awaited => self.seen.count(Counted::LatePromotion),
            PodOutcome::Conflict | PodOutcome::Gone if promotes => self.seen.count(Counted::RefusedPromotion),
            _ => {}
        }
    }
}

//! O1: on which candidates the operator would write, by the core's own judgement.

use std::collections::{BTreeMap, BTreeSet};

use lictor_api::Refusal;
use lictor_core::{Markings, Ownership, Pod, Provenance, Provenances, Scope, Selections, Title, Uid, Unread};

use super::plan::Plan;
use crate::cli::user::reading::Reader;
use crate::wording::refusals::in_use_on;

/// The candidates that the operator would leave alone.
pub(super) struct Titles {
    /// Why the operator would refuse the whole election.
    pub(super) refusal: Option<Refusal>,
    /// The candidates that it would not write to, by uid, and why.
    pub(super) foreign: BTreeMap<Uid, String>,
    /// What could not be read.
    pub(super) unseen: Vec<String>,
}

impl Titles {
    /// Reads the controllers and the origin of the candidates, as the operator does before its first write. `former`:
    /// what the election has written before.
    pub(super) async fn of(
        reader: &Reader,
        plan: &Plan<'_>,
        pods: &[Pod],
        former: &[Scope],
        marked_by_others: &BTreeMap<String, String>,
    ) -> Self {
        let mut unseen = BTreeSet::new();
        let mut selections = Selections::default();
        let mut read = BTreeSet::new();
        for controller in pods.iter().filter_map(|pod| pod.control.controller()) {
            if !read.insert(controller.uid.clone()) {
                continue;
            }
            let selection = reader.selection(&plan.namespace, controller).await.unwrap_or_else(|why| {
                unseen.insert(format!(
                    "by which labels the {:?} {} selects pods: {why}",
                    controller.kind, controller.name
                ));
                None
            });
            selections.insert(controller.uid.clone(), selection);
        }
        let former: Vec<&Markings> = former.iter().map(|scope| &scope.markings).collect();
        let mut provenances = Provenances::new();
        let all: Vec<&Pod> = pods.iter().collect();
        // The second look knows what the first one asked for.
        for _ in 0..2 {
            let asked = Ownership {
                election: &plan.name,
                markings: &plan.spec.scope.markings,
                former: &former,
                settled: former.iter().any(|markings| **markings == plan.spec.scope.markings),
                provenances: &provenances,
                selections: &selections,
            };
            let judged = asked.judge(&all, marked_by_others);
            if judged.unread.is_empty() {
                let message = judged.in_the_way.or_else(|| judged.in_use.filter(|_| !judged.free));
                let refusal =
                    message.map(|(pod, in_use)| Refusal { reason: "LabelInUse", message: in_use_on(&pod, &in_use) });
                let why = |pod: &Pod| match (marked_by_others.get(&pod.name), asked.of(pod)) {
                    (Some(other), _) => in_use_on(&pod.name, &lictor_core::InUse::by_election(other)),
                    (None, Title::InUse(in_use)) => in_use_on(&pod.name, &in_use),
                    (None, Title::Free | Title::Unread) => String::new(),
                };
                let foreign = pods.iter().filter(|pod| judged.foreign.contains(&pod.uid));
                let foreign = foreign.map(|pod| (pod.uid.clone(), why(pod))).collect();
                return Self { refusal, foreign, unseen: unseen.into_iter().collect() };
            }
            for (uid, what) in judged.unread {
                let Unread::Pod(name) = what else { continue };
                let provenance = match reader.provenance(&plan.namespace, &name).await {
                    Ok(found) => found.filter(|(found, _)| *found == uid).map(|(_, provenance)| provenance),
                    Err(why) => {
                        unseen.insert(format!("which labels came with the pod {name}: {why}"));
                        None
                    }
                };
                provenances.insert(uid, provenance.unwrap_or(Provenance::default()));
            }
        }
        Self { refusal: None, foreign: BTreeMap::new(), unseen: unseen.into_iter().collect() }
    }
}

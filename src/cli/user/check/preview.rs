//! What one election of a file would do.

use kube::ResourceExt;
use lictor_api::{Classes, LeaderElection, Refusal, Resolved};
use lictor_core::{Pod, Record, Scope, Stored};
use serde::Serialize;
use serde_json::{Value, json};

use super::changes::{differences, patch};
use super::file::Document;
use super::plan::{Known, Plan};
use super::rivals::{Rival, marked_by_others, refusal};
use super::titles::Titles;
use super::writes::Writes;
use crate::cli::user::explain::candidates;
use crate::cli::user::outlook::{Outlook, Sight, read};
use crate::cli::user::paint::{Cell, Tone, paint, table};
use crate::cli::user::reading::{DryRun, Reader};
use crate::wording::refusals::makes_own_candidates;

/// What an election would do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preview {
    election: Value,
    /// Whether an election of this name exists.
    exists: bool,
    pub(super) verdict: Verdict,
    /// Why it would be refused: the condition's reason, or `Invalid` if the API server refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The outcome, as a sentence.
    message: String,
    /// Whether the API server has checked it.
    checked: bool,
    /// The fields that would change, if it exists.
    changes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outlook: Option<Outlook>,
    /// The pods that it selects.
    selected: usize,
    writes_on_pods: Vec<String>,
    overwrites: Vec<String>,
    selected_by: Vec<String>,
    /// The pods that the operator would not touch, and why.
    left_alone: Vec<String>,
    writes: Vec<String>,
    /// What would not work, though the election is accepted.
    troubles: Vec<String>,
    not_visible: Vec<String>,
}

/// The outcome, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Verdict {
    /// A pod would lead.
    Elects,
    /// The election would be accepted, and no pod could lead now.
    NoLeader,
    /// The election would be refused.
    Refused,
}

impl Preview {
    /// Looks at one election. Also returns it as it would be, if it could be applied.
    ///
    /// # Errors
    /// If the elections can't be read.
    pub(super) async fn of(
        reader: &Reader,
        namespace: String,
        document: &Document,
        known: &Known,
    ) -> anyhow::Result<(Self, Option<LeaderElection>)> {
        let current = reader.find_election(&namespace, &document.name).await?;
        let mut preview = Self::new(&namespace, &document.name, current.is_some());
        let mut object = document.object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        let planned = match reader.dry_run(&namespace, &document.name, &patch(&object, current.as_ref())).await {
            Ok(planned) => {
                preview.checked = true;
                planned
            }
            Err(DryRun::Refused(why)) => {
                preview.refuse("Invalid", format!("the API server refuses it: {why}"));
                return Ok((preview, None));
            }
            Err(DryRun::NotAllowed(why)) => {
                preview.not_visible.push(format!(
                    "what the API server itself would say, so only the rest is checked, without its defaults of other fields: {why}"
                ));
                match serde_json::from_value(object) {
                    Ok(planned) => planned,
                    Err(error) => {
                        preview.refuse("Invalid", format!("it can't be read: {error}"));
                        return Ok((preview, None));
                    }
                }
            }
            Err(DryRun::NoAnswer(why)) => anyhow::bail!(why),
        };
        preview.changes = current.as_ref().map(|current| differences(current, &planned)).unwrap_or_default();
        let mut sight = Box::pin(Sight::around(reader, planned.clone(), known.classes.clone(), true)).await;
        let spec = match sight.spec.clone() {
            Ok(spec) => spec,
            Err(Refusal { reason, message }) => {
                preview.refuse(reason, message);
                return Ok((preview, Some(planned)));
            }
        };
        let plan = Plan { namespace, name: document.name.clone(), spec: &spec };
        preview.class_name = Some(spec.class_name.clone());
        preview.look(reader, &plan, &mut sight, current.as_ref(), known).await;
        Ok((preview, Some(planned)))
    }

    fn new(namespace: &str, name: &str, exists: bool) -> Self {
        Self {
            election: json!({"namespace": namespace, "name": name}),
            exists,
            verdict: Verdict::Elects,
            reason: None,
            message: String::new(),
            checked: false,
            changes: Vec::new(),
            class_name: None,
            outlook: None,
            selected: 0,
            writes_on_pods: Vec::new(),
            overwrites: Vec::new(),
            selected_by: Vec::new(),
            left_alone: Vec::new(),
            writes: Vec::new(),
            troubles: Vec::new(),
            not_visible: Vec::new(),
        }
    }

    fn refuse(&mut self, reason: &str, message: String) {
        (self.verdict, self.reason, self.message) = (Verdict::Refused, Some(reason.to_owned()), message);
    }

    /// Looks at everything around an election whose spec is valid.
    async fn look(
        &mut self,
        reader: &Reader,
        plan: &Plan<'_>,
        sight: &mut Sight,
        current: Option<&LeaderElection>,
        known: &Known,
    ) {
        let classes = known.classes.clone().unwrap_or_default();
        // Locks in Leases are in the election's namespace, so that no election of another one wants them.
        let scope = if plan.spec.shared.is_some() { None } else { Some(plan.namespace.as_str()) };
        let mut elections = match reader.elections(scope).await {
            Ok(elections) => elections,
            Err(why) => {
                self.not_visible.push(format!("the elections of other namespaces, which may have this lock: {why}"));
                reader.elections(Some(&plan.namespace)).await.unwrap_or_default()
            }
        };
        let is_own =
            |one: &LeaderElection| one.namespace().as_deref() == Some(&plan.namespace) && one.name_any() == plan.name;
        elections.retain(|one| !is_own(one));
        let applied = elections.iter().filter_map(|one| Rival::of(one, &sight.election, &classes, true));
        let earlier = known
            .earlier
            .iter()
            .filter(|one| !is_own(one))
            .filter_map(|one| Rival::of(one, &sight.election, &classes, false));
        let rivals: Vec<Rival> = applied.chain(earlier).collect();
        let pods: Vec<Pod> = sight.pods.clone().unwrap_or_default();
        self.selected = pods.len();
        let left = left(reader, plan, current, &classes).await;
        let marked = marked_by_others(&plan.name, &pods, &elections);
        let former = former(sight, current, &classes);
        let titles = Titles::of(reader, plan, &pods, &former, &marked).await;
        let Titles { refusal: in_use, foreign, unseen } = titles;
        self.not_visible.extend(unseen);
        self.left_alone = foreign.values().filter(|why| !why.is_empty()).cloned().collect();
        if let Ok(pods) = &mut sight.pods {
            pods.retain(|pod| !foreign.contains_key(&pod.uid));
            // The core sees by these why the leader stays no leader.
            pods.extend(left);
        }
        let circle = circle(reader, plan).await;
        let refusal = refusal(&sight.election, plan.spec, &pods, &rivals).or(circle).or(in_use);
        if let Some(Refusal { reason, message }) = refusal {
            self.refuse(reason, message);
            return;
        }
        let outlook = sight.outlook();
        let writes = Writes::of(reader, plan, sight, &outlook, &rivals).await;
        self.not_visible.extend(outlook.not_visible.iter().cloned().chain(writes.unseen));
        (self.writes_on_pods, self.overwrites) = (writes.pods, writes.overwrites);
        (self.selected_by, self.writes) = (writes.selected_by, writes.objects);
        self.troubles = outlook.blocks.iter().cloned().chain(writes.troubles).collect();
        self.message.clone_from(&outlook.now);
        let foreign_lock = matches!(sight.lock, Some(Ok(Stored::Foreign(_))));
        let frozen = plan.spec.paused && outlook.verdict == "Elected";
        if outlook.winner.is_none() || foreign_lock || frozen {
            self.verdict = Verdict::NoLeader;
        }
        self.outlook = Some(outlook);
    }

    /// Returns it for people.
    pub(super) fn text(&self) -> String {
        let name = [&self.election["namespace"], &self.election["name"]].map(|part| part.as_str().unwrap_or_default());
        let exists = match (self.exists, self.changes.is_empty()) {
            (false, _) => "new",
            (true, true) => "exists, nothing would change",
            (true, false) => "exists, and would change",
        };
        let (verdict, tone) = match self.verdict {
            Verdict::Elects => ("would elect".to_owned(), Tone::Good),
            Verdict::NoLeader => ("would be accepted, but no pod would lead now".to_owned(), Tone::Doubtful),
            Verdict::Refused => {
                (format!("would be refused: {}", self.reason.as_deref().unwrap_or_default()), Tone::Bad)
            }
        };
        let head = format!("{} {} ({exists})\n", paint(Tone::Strong, &name.join("/")), paint(tone, &verdict));
        let mut rows = Vec::new();
        let mut add = |label: &str, lines: &[String], tone: Tone| {
            for (number, line) in lines.iter().enumerate() {
                let label = if number == 0 { label } else { "" };
                rows.push(vec![Cell::new(label, Tone::Faint), Cell::new(line, tone)]);
            }
        };
        let one = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
        add(
            if self.verdict == Verdict::Refused { "because" } else { "now" },
            &one(&self.message),
            if self.verdict == Verdict::Refused { Tone::Bad } else { Tone::Plain },
        );
        if let Some(outlook) = &self.outlook {
            add("if lost", &one(&outlook.if_lost), Tone::Plain);
        }
        add("changes", &self.changes, Tone::Plain);
        if self.checked {
            add("valid", &one("the API server accepts it in a dry run"), Tone::Plain);
        }
        add("class", &one(self.class_name.as_deref().unwrap_or_default()), Tone::Plain);
        add("on pods", &self.writes_on_pods, Tone::Plain);
        add("overwrites", &self.overwrites, Tone::Doubtful);
        add("selected by", &self.selected_by, Tone::Plain);
        add("left alone", &self.left_alone, Tone::Bad);
        add("writes", &self.writes, Tone::Plain);
        add("trouble", &self.troubles, Tone::Bad);
        add("not visible", &self.not_visible, Tone::Doubtful);
        let pods = self.outlook.as_ref().map(candidates).unwrap_or_default();
        let order =
            if pods.is_empty() { String::new() } else { format!("{}\n{}", paint(Tone::Faint, "order"), table(&pods)) };
        head + &table(&rows) + &order
    }
}

/// What the election has written before: by the record, and by its present spec.
fn former(sight: &Sight, current: Option<&LeaderElection>, classes: &Classes) -> Vec<Scope> {
    let Some(current) = current else { return Vec::new() };
    let record = match &sight.lock {
        Some(Ok(stored)) => stored.record().filter(|record| Some(&record.election.0) == current.metadata.uid.as_ref()),
        _ => None,
    };
    let recorded = record.into_iter().flat_map(Record::scopes).cloned();
    recorded.chain(read(current, classes).0.ok().map(|spec: Resolved| spec.scope)).collect()
}

/// The pods that the election selects, and that it would select no more.
async fn left(reader: &Reader, plan: &Plan<'_>, current: Option<&LeaderElection>, classes: &Classes) -> Vec<Pod> {
    let Some(Ok(spec)) = current.map(|current| read(current, classes).0) else { return Vec::new() };
    let present = &plan.spec.scope.selector;
    if spec.scope.selector == *present || spec.cluster.is_some() {
        return Vec::new();
    }
    let pods = reader.pods(&plan.namespace, &spec.scope.selector).await.unwrap_or_default();
    pods.into_iter().filter(|pod| plan.spec.cluster.is_some() || !present.matches(&pod.labels)).collect()
}

/// Whether a workload of the election makes its own candidates, so that none would be left without a leader.
async fn circle(reader: &Reader, plan: &Plan<'_>) -> Option<Refusal> {
    let ids: Vec<_> = plan.spec.workloads.keys().cloned().collect();
    let found = reader.workloads(&plan.namespace, &ids).await.ok()?;
    let makes = found.iter().find(|object| {
        plan.spec.cluster.is_none()
            && !object.pod_labels.is_empty()
            && plan.spec.scope.selector.matches(&object.pod_labels)
    })?;
    Some(Refusal { reason: "CircularWorkloads", message: makes_own_candidates(&makes.id.to_string()) })
}

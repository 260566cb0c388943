//! What `watch` knows and shows: a table, or a line for each change.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lictor_api::{ELECTED, Leader, LeaderElection, READY, markings};
use lictor_core::{ELECTION_ANNOTATION, Markings, Pod, TERM_ANNOTATION, Uid, Version};
use lictor_kubernetes::Change;
use tokio::time::Instant;

use super::tenure::{Gap, Labelled, Tenure, Turn};
use crate::cli::user::format::{age, took};
use crate::cli::user::list::{Health, health};
use crate::cli::user::paint::{Cell, Tone, paint, table};
use crate::cli::user::reading::{condition, full_name};

/// After a break, changes that come within this time may be from the break.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How many handovers are kept for the table.
const KEPT: usize = 100;

/// An election's namespace and name.
type Name = (String, String);

/// All that is known.
pub(super) struct Board {
    /// The only election to show. `None`: all.
    only: Option<String>,
    /// Whether the table has namespaces.
    namespaces: bool,
    elections: BTreeMap<Name, Entry>,
    /// The pods that each election has marked, by name.
    marked: HashMap<Name, BTreeMap<String, Pod>>,
    /// The election that has marked a pod, by the pod's namespace and name.
    markers: HashMap<(String, String), String>,
    elections_lost: Option<String>,
    pods: Pods,
    /// Why no operator acts.
    pub(super) idle: Vec<String>,
    told: Told,
    handovers: VecDeque<String>,
    lines: Lines,
}

/// What is seen of the pods.
enum Pods {
    /// They have not been listed yet.
    Awaited,
    /// All changes, but for those before this moment.
    Seen { from: Option<Instant> },
    /// No connection, or no right.
    Lost { why: String, forbidden: bool },
}

/// The last troubles that were printed as lines.
#[derive(Default)]
struct Told {
    trouble: Option<String>,
    idle: Vec<String>,
}

/// Lines for an output that is no terminal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// Changes.
    pub(super) out: String,
    /// Troubles of this command.
    pub(super) err: String,
}

struct Entry {
    election: LeaderElection,
    markings: Markings,
    tenure: Tenure,
    handovers: u32,
    gap: Option<Gap>,
}

impl Board {
    pub(super) fn new(only: Option<String>, namespaces: bool) -> Self {
        Self {
            only,
            namespaces,
            elections: BTreeMap::new(),
            marked: HashMap::new(),
            markers: HashMap::new(),
            elections_lost: None,
            pods: Pods::Awaited,
            idle: Vec::new(),
            told: Told::default(),
            handovers: VecDeque::new(),
            lines: Lines::default(),
        }
    }

    pub(super) fn elections(&self) -> Vec<LeaderElection> {
        self.elections.values().map(|entry| entry.election.clone()).collect()
    }

    /// Takes the failure of the watch of elections.
    pub(super) fn lose_elections(&mut self, (why, _): (String, bool)) {
        self.elections_lost = Some(why);
    }

    /// Takes the failure of the watch of pods, and whether the right is missing.
    pub(super) fn lose_pods(&mut self, (why, forbidden): (String, bool)) {
        self.pods = Pods::Lost { why, forbidden };
        self.elections.values_mut().for_each(|entry| entry.tenure.blind());
        self.look_at_all(Instant::now());
    }

    pub(super) fn take_elections(&mut self, change: Change<(Version, Uid, LeaderElection)>, now: Instant) {
        match change {
            Change::All(_, _, all) => {
                self.elections_lost = None;
                let mut present: Vec<Name> = Vec::new();
                for (_, _, election) in all {
                    present.extend(self.put(election, now));
                }
                let gone = self.elections.keys().filter(|name| !present.contains(name));
                gone.cloned().collect::<Vec<_>>().iter().for_each(|name| self.remove(name));
            }
            Change::Applied((_, _, election)) => drop(self.put(election, now)),
            Change::Deleted((_, _, election)) => {
                self.remove(&(election.namespace().unwrap_or_default(), election.name_any()));
            }
            Change::Resumed(_) => self.elections_lost = None,
            Change::Rewound(_) | Change::Broken(..) => {}
        }
    }

    pub(super) fn take_pods(&mut self, change: Change<(String, Pod)>, now: Instant) {
        let is_new = matches!(self.pods, Pods::Awaited);
        match change {
            Change::All(_, _, all) => {
                self.pods = Pods::Seen { from: (!is_new).then_some(now + CATCH_UP) };
                (self.marked, self.markers) = Default::default();
                for (namespace, pod) in all {
                    self.mark(&namespace, pod);
                }
                self.look_at_all(now);
            }
            Change::Applied((namespace, pod)) => {
                let before = self.unmark(&namespace, &pod.name);
                let after = self.mark(&namespace, pod);
                for name in [before.filter(|before| Some(before) != after.as_ref()), after].into_iter().flatten() {
                    self.look_at(&name, now);
                }
            }
            Change::Deleted((namespace, pod)) => {
                let before = self.unmark(&namespace, &pod.name);
                if let Some(name) = before {
                    self.look_at(&name, now);
                }
            }
            Change::Resumed(_) => self.pods = Pods::Seen { from: Some(now + CATCH_UP) },
            Change::Rewound(_) | Change::Broken(..) => {}
        }
    }

    fn mark(&mut self, namespace: &str, pod: Pod) -> Option<Name> {
        let election = pod.annotations.get(ELECTION_ANNOTATION)?.to_owned();
        let name = (namespace.to_owned(), election.clone());
        self.markers.insert((namespace.to_owned(), pod.name.clone()), election);
        self.marked.entry(name.clone()).or_default().insert(pod.name.clone(), pod);
        Some(name)
    }

    fn unmark(&mut self, namespace: &str, pod: &str) -> Option<Name> {
        let election = self.markers.remove(&(namespace.to_owned(), pod.to_owned()))?;
        let name = (namespace.to_owned(), election);
        self.marked.get_mut(&name)?.remove(pod);
        Some(name)
    }

    /// Takes an election as it is now. Returns its name, if it is to be shown.
    fn put(&mut self, election: LeaderElection, now: Instant) -> Option<Name> {
        if self.only.as_ref().is_some_and(|only| *only != election.name_any()) {
            return None;
        }
        let name = (election.namespace().unwrap_or_default(), election.name_any());
        let markings = markings(&election.spec);
        if let Some(entry) = self.elections.get_mut(&name) {
            let before = std::mem::replace(&mut entry.election, election);
            entry.markings = markings;
            if led_elsewhere(&entry.election) {
                entry.tenure.blind();
            }
            let status = status(&entry.election);
            if !matches!(entry.tenure, Tenure::Unseen) && status != self::status(&before) {
                self.lines.out += &line(&entry.election, &status);
            }
        } else {
            let tenure = Tenure::default();
            self.elections.insert(name.clone(), Entry { election, markings, tenure, handovers: 0, gap: None });
        }
        self.look_at(&name, now);
        Some(name)
    }

    fn remove(&mut self, name: &Name) {
        if let Some(entry) = self.elections.remove(name) {
            self.lines.out += &line(&entry.election, "the election was deleted");
        }
    }

    fn look_at_all(&mut self, now: Instant) {
        let names: Vec<Name> = self.elections.keys().cloned().collect();
        for name in names {
            self.look_at(&name, now);
        }
    }

    /// Looks which pods carry the leader's label of an election.
    fn look_at(&mut self, name: &Name, now: Instant) {
        let Some(entry) = self.elections.get_mut(name) else { return };
        let has_pods = entry.election.spec.selector.is_some();
        let (labelled, blind) = match &self.pods {
            Pods::Seen { from } if has_pods => {
                let pods = self.marked.get(name).into_iter().flat_map(BTreeMap::values);
                let pods = pods.filter(|pod| entry.markings.shows_leader(pod));
                let labelled = pods.map(|pod| (pod.uid.clone(), pod.name.clone())).collect();
                (labelled, from.is_some_and(|from| now < from))
            }
            Pods::Awaited | Pods::Lost { forbidden: false, .. } if has_pods => return,
            // Only the status tells.
            _ => (by_status(&entry.election), true),
        };
        let Some(turn) = entry.tenure.take(&labelled, now, blind) else { return };
        let term = entry.tenure.pod().and_then(|pod| self.marked.get(name)?.get(pod)?.annotations.get(TERM_ANNOTATION));
        let term = term.map(|term| format!(" in term {term}")).unwrap_or_default();
        if let Turn::Handover { gap, .. } = &turn {
            entry.handovers += 1;
            entry.gap = Some(*gap);
        }
        let text = match &turn {
            Turn::Found(None) => format!("no pod leads here: {}", status(&entry.election)),
            Turn::Found(Some(pod)) => format!("{pod} leads{term}: {}", status(&entry.election)),
            Turn::Lost(pod) => format!("{pod} has lost the leader's label"),
            Turn::Handover { from, to, gap } => {
                let instead = match from {
                    Some(from) if from == to => " again".to_owned(),
                    Some(from) => format!(" instead of {from}"),
                    None => String::new(),
                };
                format!("{to} leads{instead}{term}, {}", told_gap(*gap))
            }
        };
        let line = line(&entry.election, &text);
        if matches!(turn, Turn::Handover { .. }) {
            self.handovers.push_front(line.clone());
            self.handovers.truncate(KEPT);
        }
        self.lines.out += &line;
    }

    /// Returns the lines since the last call.
    pub(super) fn lines(&mut self) -> Lines {
        let trouble = self.trouble();
        if trouble != self.told.trouble {
            self.lines.err += trouble.as_deref().unwrap_or("the API server answers again");
            self.lines.err.push('\n');
            self.told.trouble = trouble;
        }
        if self.idle != self.told.idle {
            for sentence in &self.idle {
                self.lines.err += sentence;
                self.lines.err.push('\n');
            }
            self.told.idle.clone_from(&self.idle);
        }
        std::mem::take(&mut self.lines)
    }

    /// Why something is not seen at present.
    fn trouble(&self) -> Option<String> {
        let pods = match &self.pods {
            Pods::Lost { why, forbidden: true } => {
                Some(format!("no gap is seen, and the statuses tell the leaders: {why}"))
            }
            Pods::Lost { why, .. } => Some(format!("what is shown may be over: {why}")),
            Pods::Awaited | Pods::Seen { .. } => None,
        };
        self.elections_lost.as_ref().map(|why| format!("what is shown may be over: {why}")).or(pods)
    }

    /// Returns the table and the last handovers, for a terminal with so many rows.
    pub(super) fn table(&self, now: Instant, rows: usize) -> String {
        let count = self.elections.len();
        let mut head = paint(Tone::Faint, &format!("elections: {count}; {:.0}; Ctrl-C ends", Timestamp::now())) + "\n";
        for trouble in self.trouble().iter().chain(&self.idle) {
            head += &(paint(Tone::Bad, trouble) + "\n");
        }
        let mut entries: Vec<&Entry> = self.elections.values().collect();
        entries.sort_by_key(|entry| health(&entry.election));
        // The heading of the table, a blank line, and the heading of the handovers.
        let room = rows.saturating_sub(head.lines().count() + 4 + self.handovers.len().min(5)).max(1);
        let more = count.saturating_sub(room);
        let mut heading: Vec<Cell> = self.namespaces.then(|| "NAMESPACE".into()).into_iter().collect();
        heading.extend(["NAME", "STATUS", "LEADER", "POD", "SINCE", "TERM", "HANDOVERS", "LAST GAP"].map(Cell::from));
        let shown = entries.into_iter().take(room).map(|entry| entry.row(self.namespaces, now));
        let mut text = head + &table(&[heading].into_iter().chain(shown).collect::<Vec<_>>());
        if more > 0 {
            let _ = writeln!(text, "and {more} more");
        }
        if !self.handovers.is_empty() {
            let heading = paint(Tone::Faint, "handovers seen from here, newest first");
            let _ = writeln!(text, "\n{heading}");
        }
        let left = rows.saturating_sub(text.lines().count());
        self.handovers.iter().take(left).for_each(|line| text += line);
        text
    }
}

impl Entry {
    fn row(&self, namespaces: bool, now: Instant) -> Vec<Cell> {
        let (election, health) = (&self.election, health(&self.election));
        let Leader { name, session, acquire_time, .. } =
            election.status.as_ref().and_then(|status| status.leader.clone()).unwrap_or_default();
        let since = acquire_time.map(|time| age(time.0, Timestamp::now()));
        let term = election.status.as_ref().and_then(|status| status.term).map(|term| term.to_string());
        let gap = match (&self.tenure, self.gap) {
            (Tenure::Vacant { since, former: Some(_), blind: false }, _) => {
                Cell::new(format!("{} so far", took_of(now - *since)), Tone::Bad)
            }
            (_, Some(gap)) => short(gap).into(),
            (_, None) => "-".into(),
        };
        let or_dash = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".into()));
        let mut row: Vec<Cell> =
            namespaces.then(|| election.namespace().unwrap_or_default().into()).into_iter().collect();
        row.extend([
            election.name_any().into(),
            Cell::new(condition(election, READY).map_or("-", |ready| ready.reason.as_str()), health.tone()),
            or_dash(name.or(session)),
            or_dash(self.tenure.pod().filter(|_| election.spec.selector.is_some()).map(str::to_owned)),
            or_dash(since),
            or_dash(term),
            self.handovers.to_string().into(),
            gap,
        ]);
        row
    }
}

/// A line about an election.
fn line(election: &LeaderElection, text: &str) -> String {
    format!("{} {} {text}\n", time(), full_name(election))
}

fn time() -> String {
    format!("{:.3}", Timestamp::now())
}

/// The condition Ready in words.
fn status(election: &LeaderElection) -> String {
    match condition(election, READY) {
        None => "no status yet".into(),
        Some(ready) if health(election) < Health::Well => format!("{}: {}", ready.reason, ready.message),
        Some(ready) => ready.reason.clone(),
    }
}

fn led_elsewhere(election: &LeaderElection) -> bool {
    [ELECTED, READY].iter().any(|type_| condition(election, type_).is_some_and(|one| one.reason == "LedElsewhere"))
}

/// The leader that the status names.
fn by_status(election: &LeaderElection) -> Labelled {
    let leader = election.status.as_ref().and_then(|status| status.leader.as_ref());
    let name = leader.and_then(|leader| Some((leader, leader.name.clone().or_else(|| leader.session.clone())?)));
    name.map(|(leader, name)| (Uid(leader.pod_uid.clone().unwrap_or_else(|| name.clone())), name)).into_iter().collect()
}

fn told_gap(gap: Gap) -> String {
    match gap {
        Gap::Seen(gap) => format!("gap {}", took_of(gap)),
        Gap::None => "no gap: both pods had the label for a moment".into(),
        Gap::Unseen => "gap not seen from here".into(),
    }
}

fn short(gap: Gap) -> String {
    match gap {
        Gap::Seen(gap) => took_of(gap),
        Gap::None => "none".into(),
        Gap::Unseen => "not seen".into(),
    }
}

fn took_of(time: Duration) -> String {
    took(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Told = (Version, Uid, LeaderElection);

    fn election(name: &str, ready: &str, reason: &str, leader: Option<&str>) -> Told {
        let condition = json!({
            "type": "Ready", "status": ready, "reason": reason, "message": "it is so",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let mut election = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": name}}}, "status": {"conditions": [condition], "term": 7},
        });
        if let Some(leader) = leader {
            election["status"]["leader"] = json!({"name": leader, "podName": leader, "podUID": leader});
        }
        (Version(1), Uid(name.into()), serde_json::from_value(election).unwrap())
    }

    fn pod(name: &str, role: &'static str, term: &'static str) -> (String, Pod) {
        let pod = Pod {
            name: name.into(),
            uid: Uid(name.into()),
            labels: [("role", role)].into_iter().collect(),
            annotations: [(ELECTION_ANNOTATION, "web"), (TERM_ANNOTATION, term)].into_iter().collect(),
            ..Pod::default()
        };
        ("shop".into(), pod)
    }

    /// Takes the lines so far, without their times.
    fn lines(board: &mut Board) -> (Vec<String>, String) {
        let Lines { out, err } = board.lines();
        (out.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect(), err)
    }

    /// A board with the election `web`, whose leader is the pod a.
    fn board(now: Instant) -> Board {
        let mut board = Board::new(None, false);
        let other = ("shop".to_owned(), Pod { name: "x".into(), ..Pod::default() });
        let pods = vec![pod("a", "leader", "7"), pod("b", "follower", "7"), other];
        board.take_elections(Change::All(None, Version(1), vec![election("web", "True", "Led", Some("a"))]), now);
        board.take_pods(Change::All(None, Version(1), pods), now);
        assert_eq!(lines(&mut board).0, ["shop/web a leads in term 7: Led"]);
        board
    }

    #[test]
    fn a_handover_is_told_with_its_gap() {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut board = board(begun);
        board.take_pods(Change::Deleted(pod("a", "leader", "7")), at(100));
        assert_eq!(lines(&mut board).0, ["shop/web a has lost the leader's label"]);
        assert!(board.table(at(120), 24).contains("20 ms so far"), "{}", board.table(at(120), 24));
        board.take_pods(Change::Applied(pod("b", "leader", "8")), at(134));
        board.take_elections(Change::Applied(election("web", "False", "HandingOver", None)), at(140));
        board.take_elections(Change::Deleted(election("web", "True", "Led", None)), at(150));
        assert_eq!(
            lines(&mut board).0,
            [
                "shop/web b leads instead of a in term 8, gap 34 ms",
                "shop/web HandingOver: it is so",
                "shop/web the election was deleted"
            ]
        );
        assert_eq!(lines(&mut board), (Vec::new(), String::new()));
    }

    #[test]
    fn what_happened_during_a_break_has_no_gap_and_the_break_is_told_once() {
        let begun = Instant::now();
        let mut board = board(begun);
        let lost = || ("no connection to the API server".to_owned(), false);
        board.lose_pods(lost());
        board.lose_pods(lost());
        assert_eq!(
            lines(&mut board),
            (Vec::new(), "what is shown may be over: no connection to the API server\n".into())
        );
        board.take_pods(Change::Resumed(None), begun);
        board.take_pods(Change::Deleted(pod("a", "leader", "7")), begun);
        board.take_pods(Change::Applied(pod("b", "leader", "8")), begun);
        let (out, err) = lines(&mut board);
        assert_eq!(out[1], "shop/web b leads instead of a in term 8, gap not seen from here");
        assert_eq!(err, "the API server answers again\n");
        // Later ones have gaps again.
        let later = begun + CATCH_UP;
        board.take_pods(Change::Deleted(pod("b", "leader", "8")), later);
        board.take_pods(Change::Applied(pod("c", "leader", "9")), later);
        assert_eq!(lines(&mut board).0[1], "shop/web c leads instead of b in term 9, gap 0 ms");
    }

    #[test]
    fn without_the_right_to_read_pods_the_status_tells_the_leader() {
        let now = Instant::now();
        let mut board = Board::new(Some("web".into()), false);
        board.lose_pods(("not allowed to list pods".into(), true));
        let both = vec![election("web", "True", "Led", Some("a")), election("other", "True", "Led", Some("x"))];
        board.take_elections(Change::All(None, Version(1), both), now);
        board.take_elections(Change::Applied(election("web", "True", "Led", Some("b"))), now);
        let (out, err) = lines(&mut board);
        assert_eq!(out, ["shop/web a leads: Led", "shop/web b leads instead of a, gap not seen from here"]);
        assert_eq!(err, "no gap is seen, and the statuses tell the leaders: not allowed to list pods\n");
    }

    #[test]
    fn a_low_terminal_shows_problems_first_and_how_many_elections_are_left_out() {
        let now = Instant::now();
        let mut board = Board::new(None, true);
        let mut all: Vec<Told> =
            (0..30).map(|number| election(&format!("e{number:02}"), "True", "Led", None)).collect();
        all.push(election("z", "False", "NoEligiblePod", None));
        board.take_elections(Change::All(None, Version(1), all), now);
        board.idle = vec!["no operator acts".into()];
        let text = anstream::adapter::strip_str(&board.table(now, 10)).to_string();
        let shown: Vec<&str> = text.lines().collect();
        assert!(
            shown.len() <= 10 && shown[1] == "no operator acts" && shown[2].starts_with("NAMESPACE   NAME"),
            "{text}"
        );
        assert!(shown[3].starts_with("shop        z      NoEligiblePod"), "{text}");
        assert_eq!(shown.last(), Some(&"and 27 more"), "{text}");
    }
}

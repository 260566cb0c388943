//! Computes from the log of faults alone when each cluster can be relied on, and when the documents promise nothing.

use std::collections::BTreeMap;

use super::record::{Kind, Line, Millis, What};

/// The number of operator replicas in each cluster.
pub const REPLICAS: usize = 2;
/// The duration of the operators' own Lease.
pub const LEASE: Millis = 4_000;
/// The TTL of the sessions, and Consul's lock delay.
pub const TTL: Millis = 10_000;
pub const LOCK_DELAY: Millis = 1_000;
/// How long an operator that begins to act waits for Consul.
pub const WAIT_FOR_CONSUL: Millis = 5_000;
/// How long a start may take on a busy machine.
const START: Millis = 3_000;
/// A cluster is served when one of its replicas has run, and reached the API server, for this long. By then, the Lease of the
/// replica before has expired.
pub const SERVED_AFTER: Millis = LEASE + WAIT_FOR_CONSUL + START;
/// The earliest time at which Consul may give away the lock of a cluster that is not served: two TTLs after the last renewal.
/// That was at most four fifths of a TTL before, because otherwise the cluster would have demoted its leader by itself.
pub const GIVEN_AWAY_AFTER: Millis = 2 * TTL - TTL * 4 / 5;
/// The same of a lock in a bucket or a hub, which another cluster takes when it has seen no renewal for one TTL.
const TAKEN_AFTER: Millis = TTL - TTL * 4 / 5;

/// Time spans, in order and apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<(Millis, Millis)>);

impl Spans {
    /// Joins spans that may overlap.
    pub fn of(mut all: Vec<(Millis, Millis)>) -> Self {
        all.sort_unstable();
        let mut spans: Vec<(Millis, Millis)> = Vec::new();
        for (from, to) in all {
            match spans.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => spans.push((from, to)),
            }
        }
        Self(spans)
    }

    fn union(all: impl IntoIterator<Item = Self>) -> Self {
        Self::of(all.into_iter().flat_map(|spans| spans.0).collect())
    }

    fn complement(&self) -> Self {
        let mut from = 0;
        let mut spans = Vec::new();
        for (begin, end) in &self.0 {
            if from < *begin {
                spans.push((from, *begin));
            }
            from = *end;
        }
        if from < Millis::MAX {
            spans.push((from, Millis::MAX));
        }
        Self(spans)
    }

    /// Delays the beginning of each span, except at the very beginning, before which everything worked.
    fn delayed(&self, by: Millis) -> Self {
        let later = |(from, to): &(Millis, Millis)| (if *from == 0 { 0 } else { from.saturating_add(by) }, *to);
        Self(self.0.iter().map(later).filter(|(from, to)| from < to).collect())
    }

    /// Returns the sum of their lengths, up to a moment.
    fn lasted(&self, until: Millis) -> Millis {
        self.0.iter().map(|(from, to)| to.min(&until).saturating_sub(*from)).sum()
    }

    /// Returns the span that contains a moment.
    pub fn at(&self, moment: Millis) -> Option<(Millis, Millis)> {
        let next = self.0.partition_point(|(from, _)| *from <= moment);
        let span = *self.0.get(next.checked_sub(1)?)?;
        (moment < span.1).then_some(span)
    }
}

/// The windows of all clusters.
pub struct Windows {
    down: BTreeMap<String, Spans>,
}

/// What a group relies on.
pub struct Reliable {
    /// When its clusters are served and its store works.
    pub undisturbed: Spans,
    /// By cluster, when the documents promise nothing between clusters.
    pub excused: BTreeMap<String, Spans>,
}

impl Windows {
    /// Computes the windows from all faults in a record.
    pub fn of(lines: &[Line]) -> Self {
        let mut open: BTreeMap<(usize, String), Millis> = BTreeMap::new();
        let mut down: BTreeMap<String, Vec<(Millis, Millis)>> = BTreeMap::new();
        for line in lines {
            let What::Fault { number, fault, begins, .. } = &line.what else { continue };
            for part in fault.spoils() {
                if *begins {
                    open.insert((*number, part), line.at);
                } else if let Some(from) = open.remove(&(*number, part.clone())) {
                    down.entry(part).or_default().push((from, line.at));
                }
            }
        }
        for ((_, part), from) in open {
            down.entry(part).or_default().push((from, Millis::MAX));
        }
        Self { down: down.into_iter().map(|(part, spans)| (part, Spans::of(spans))).collect() }
    }

    fn down(&self, parts: &[String]) -> Spans {
        Spans::union(parts.iter().filter_map(|part| self.down.get(part).cloned()))
    }

    /// Returns when one of a cluster's replicas runs and reaches the API server, and has done so for a while.
    fn served(&self, cluster: &str) -> Spans {
        let able = |replica| {
            let parts = [
                format!("operator {cluster} {replica}"),
                format!("api link {cluster} {replica}"),
                "api server".into(),
                "etcd".into(),
            ];
            self.down(&parts).complement().delayed(SERVED_AFTER)
        };
        Spans::union((0..REPLICAS).map(able))
    }

    /// Returns when a cluster does not reach the stores that clusters share. What disturbs its link to Consul disturbs those to the bucket
    /// and to the hub, too.
    fn consul_away(&self, cluster: &str) -> Spans {
        let servers = (0..3).map(|server| format!("consul {server}"));
        self.down(&servers.chain([format!("consul link {cluster}")]).collect::<Vec<_>>())
    }

    /// Returns when no operator could remove a cluster's label, and its lock may have passed to another: it is not served, and a
    /// replica was gone or Consul away, so that the lock may not have been renewed. (While only the API server is away, the
    /// replica that acted last still renews.)
    fn excused(&self, cluster: &str, given_away_after: Millis) -> Spans {
        let replicas = (0..REPLICAS).map(|replica| format!("operator {cluster} {replica}")).collect::<Vec<_>>();
        let unkept = Spans::union([self.down(&replicas), self.consul_away(cluster)]);
        let window = |(from, to): &(Millis, Millis)| {
            let near = unkept.0.iter().find(|(begin, end)| begin < to && *end > from.saturating_sub(given_away_after));
            let begin = near.map(|(begin, _)| begin.max(from).saturating_add(given_away_after))?;
            (begin < *to).then_some((begin, *to))
        };
        Spans(self.served(cluster).complement().0.iter().filter_map(window).collect())
    }

    /// Returns whether a cluster could renew its sessions all the time between two moments: it was served, and reached Consul.
    pub fn keeps_sessions(&self, cluster: &str, from: Millis, to: Millis) -> bool {
        let able = Spans::union([self.served(cluster).complement(), self.consul_away(cluster)]).complement();
        able.at(from).is_some_and(|(_, end)| to < end)
    }

    /// Returns for how long, up to a moment, the documents promised nothing for one of these clusters.
    pub fn excused_for(&self, clusters: &[&str], until: Millis) -> Millis {
        Spans::union(clusters.iter().map(|cluster| self.excused(cluster, TAKEN_AFTER))).lasted(until)
    }

    /// Returns the windows of a group of this kind with these clusters.
    pub fn reliable(&self, clusters: &[String], kind: Kind) -> Reliable {
        let given_away_after = match kind {
            Kind::Leases => None,
            Kind::Consul | Kind::Workload => Some(GIVEN_AWAY_AFTER),
            Kind::Objects => Some(TAKEN_AFTER),
        };
        let mut disturbed: Vec<Spans> = clusters.iter().map(|cluster| self.served(cluster).complement()).collect();
        if given_away_after.is_some() {
            disturbed.extend(clusters.iter().map(|cluster| self.consul_away(cluster)));
        }
        let excused = |cluster: &String| {
            let spans = given_away_after.map(|after| self.excused(cluster, after));
            (cluster.clone(), spans.unwrap_or_default())
        };
        Reliable { undisturbed: Spans::union(disturbed).complement(), excused: clusters.iter().map(excused).collect() }
    }
}

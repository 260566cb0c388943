//! The record: one line of JSON for each thing that was seen or done. The checker knows nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use lictor_core::{self, Markings, Uid, Version};
use serde::{Deserialize, Serialize};

use super::faults::Fault;

/// The annotation of a pod whose leader label the test wrote or removed. It has the number of the line that announced this.
pub const BY_HAND: &str = "torture/by-hand";

/// The result of a Switchover that moved the leader.
pub const COMPLETE: &str = "Complete";

/// Milliseconds since the record began.
pub type Millis = u64;

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    pub at: Millis,
    #[serde(flatten)]
    pub what: What,
}

/// The content of a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "camelCase")]
pub enum What {
    /// A group that is judged from here on.
    Group(Group),
    /// One revision of a pod, in the order of the API server's own storage.
    Pod(PodSeen),
    Node {
        version: u64,
        name: String,
        cordoned: bool,
    },
    /// One revision of a workload.
    Workload {
        version: u64,
        namespace: String,
        name: String,
        enabled: bool,
    },
    /// One version of a lock: a Lease, or a key in Consul. `cluster` is its holder there, as far as that can be read.
    Lock {
        version: u64,
        key: String,
        cluster: Option<String>,
        holder: Option<String>,
        term: Option<i64>,
        /// The uid of the Switchover that its record carries out.
        #[serde(default)]
        switchover: Option<String>,
    },
    /// One revision of a Switchover.
    Switchover(SwitchoverSeen),
    /// One revision of a slice, through which a Service reaches somebody.
    Slice(SliceSeen),
    /// A session in Consul of a cluster's operator, from when on it lives, or does not any more.
    Session {
        id: String,
        cluster: String,
        lives: bool,
    },
    /// Another replica of a cluster's operator has its Lease.
    Acts {
        cluster: String,
        replica: String,
    },
    /// While all works, somebody takes a group's leader out of service; or another pod leads.
    Planned {
        group: String,
        begins: bool,
    },
    /// A fault begins, or has ended and what it disturbed works again.
    Fault {
        number: usize,
        fault: Fault,
        begins: bool,
        detail: String,
    },
    /// The test is about to change a leader label, and marks the pod with this number.
    Hand {
        mark: String,
    },
    /// No fault lasts from here until all groups had a leader.
    Calm {
        begins: bool,
    },
}

/// How a group shows its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// By its pods, with the lock in a Lease.
    Leases,
    /// By its pods in all clusters, with the lock in Consul.
    Consul,
    /// By its pods in all clusters, with the lock in a bucket or a hub.
    Objects,
    /// By the Deployment of its name in all clusters, with the lock in Consul.
    Workload,
}

/// A group. Its pods are those in these namespaces whose names begin with its own, whatever labels they have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub kind: Kind,
    pub clusters: Vec<String>,
    pub markings: Markings,
    /// The Service that reaches its leader in each cluster, if there is one.
    #[serde(default)]
    pub service: Option<String>,
    /// Its pods hold a lock of their own, which the operators follow.
    #[serde(default)]
    pub followed: bool,
}

/// What one revision of one pod showed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct PodSeen {
    pub version: u64,
    /// The namespace, whose name is that of its cluster.
    pub cluster: String,
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// The annotations of the product and of the test.
    pub annotations: BTreeMap<String, String>,
    pub node: Option<String>,
    pub ready: bool,
    /// Whether no operator would elect it, because it is being deleted, has finished, or its eviction is announced.
    pub leaving: bool,
    /// E1: whether it has led, as its finalizer says, and has not ended.
    #[serde(default)]
    pub executes: bool,
    pub deleted: bool,
}

/// What one revision of one slice showed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SliceSeen {
    pub version: u64,
    /// The namespace, whose name is that of its cluster.
    pub cluster: String,
    pub name: String,
    pub service: String,
    pub family: String,
    pub term: Option<i64>,
    /// Each address, with the uid of its pod.
    pub addresses: Vec<(String, String)>,
    pub deleted: bool,
}

/// What one revision of one Switchover showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchoverSeen {
    pub version: u64,
    /// The namespace, whose name is that of its cluster.
    pub cluster: String,
    pub name: String,
    pub uid: String,
    pub group: String,
    pub from_term: i64,
    /// The cluster that is to lead, where that is another one.
    pub to_cluster: Option<String>,
    /// `Complete`, or the reason for which it failed.
    pub result: Option<String>,
    /// The term that it says it has begun, and the uid of the pod that leads in it.
    pub term: Option<i64>,
    pub to: Option<String>,
}

impl PodSeen {
    /// Returns the group that the pod was made for.
    pub fn group(&self) -> &str {
        self.name.rsplit_once('-').map_or("", |(group, _)| group)
    }

    /// Returns the term that the pod carries.
    pub fn term(&self) -> Option<i64> {
        self.annotations.get(lictor_core::TERM_ANNOTATION)?.parse().ok()
    }

    /// Converts it for the core's predicates.
    pub fn to_core(&self) -> lictor_core::Pod {
        lictor_core::Pod {
            name: self.name.clone(),
            uid: Uid(self.uid.clone()),
            version: Version(self.version),
            labels: self.labels.clone().into(),
            ..lictor_core::Pod::default()
        }
    }
}

/// The file of the record.
pub struct Log {
    began: Instant,
    file: BufWriter<File>,
}

impl Log {
    /// Creates the file.
    pub fn create(path: &Path) -> Self {
        Self { began: Instant::now(), file: BufWriter::new(File::create(path).expect("the record can be made")) }
    }

    /// Writes a line with the present time, and returns it.
    pub fn write(&mut self, what: What) -> Line {
        let at = u64::try_from(self.began.elapsed().as_millis()).expect("a short time");
        let line = Line { at, what };
        serde_json::to_writer(&mut self.file, &line).expect("the record can be written");
        writeln!(self.file).expect("the record can be written");
        line
    }

    /// Makes everything so far readable.
    pub fn flush(&mut self) {
        self.file.flush().expect("the record can be written");
    }
}

/// Reads a record.
pub fn read(path: &Path) -> Vec<Line> {
    let file = BufReader::new(File::open(path).expect("the record can be read"));
    let parse = |line: String| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    file.lines().map(|line| parse(line.expect("the record can be read"))).collect()
}

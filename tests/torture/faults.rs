//! The faults and their order. They come from a seed alone, so that a run can be repeated.

use lictor_testing::Prng;
use serde::{Deserialize, Serialize};

use super::windows::REPLICAS;

/// The namespaces, each of which stands for a cluster.
pub const CLUSTERS: [&str; 2] = ["west", "east"];

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// SIGKILL of an operator, which is started again.
    OperatorKilled,
    /// SIGSTOP of an operator for longer than its lease, then SIGCONT.
    OperatorStopped,
    /// The same in the middle of handovers, whose last requests arrive only when another replica has acted for long.
    OperatorStoppedAtWork,
    /// SIGTERM of an operator, and a start.
    OperatorEnded,
    /// SIGKILL of all operators of a cluster, for longer than Consul waits.
    OperatorsKilled,
    /// SIGSTOP of all operators of a cluster, for longer than Consul waits.
    OperatorsStopped,
    /// SIGKILL of the API server, and a start.
    ApiServerKilled,
    /// SIGSTOP of the API server.
    ApiServerStopped,
    EtcdKilled,
    EtcdStopped,
    /// SIGKILL of one of three servers.
    ConsulKilled,
    ConsulStopped,
    /// SIGKILL of the server that leads.
    ConsulLeaderKilled,
    ConsulLeaderStopped,
    /// Two of three servers hang.
    ConsulWithoutQuorum,
    /// A link is cut: connections end, and new ones are refused.
    ApiLinkCut,
    /// An operator's requests are lost, and its connections stay.
    ApiLinkDeaf,
    /// The answers to an operator are lost.
    ApiLinkMute,
    /// Each connection is reset after a while.
    ApiLinkReset,
    ApiLinkSlow,
    /// In the middle of handovers, an operator's writes arrive seconds later, each with its own delay.
    ApiLinkLate,
    /// A standby's connection to the replica that acts is closed, and new ones are refused: the standby takes it for gone.
    PeerLinkCut,
    /// What a standby asks the replica that acts is lost.
    PeerLinkDeaf,
    /// In the middle of handovers, the replica that acts is taken for gone, and its own writes arrive seconds later.
    TakenForGone,
    ConsulLinkCut,
    ConsulLinkDeaf,
    ConsulLinkMute,
    ConsulLinkReset,
    ConsulLinkSlow,
    /// A leader is deleted, as kubectl does by default.
    LeaderDeleted,
    /// A leader is deleted with a grace period of 0.
    LeaderForced,
    /// A leader is deleted, and terminates slowly.
    LeaderTerminates,
    LeaderUnready,
    LeaderRelabelled,
    /// A leader gets the annotation `lictor.dev/never-leader`.
    LeaderExcluded,
    PodDeleted,
    PodUnready,
    PodRelabelled,
    /// All pods of a group in all clusters are deleted at once.
    GroupDeleted,
    NodeDrained,
    /// A person writes the leader's label on another pod.
    LabelByHand,
    /// A person removes the leader's label.
    UnlabelByHand,
    /// A controller takes the followers' labels of a group off, again and again.
    MarksUndone,
    LeaseEdited,
    LeaseDeleted,
    /// A key's value is overwritten, and its flags are kept.
    KeyEdited,
    /// A key's record claims all pods and their labels for a former spec, or for the present one.
    KeyForged,
    /// A key's value and flags are overwritten. If nobody held it, no lictor would touch it any more.
    KeyOverwritten,
    KeyDeleted,
    SessionDestroyed,
    PriorityChanged,
    PreferenceChanged,
    /// A user asks for another leader: the next one, a pod by its name or by force, or the other cluster; sometimes twice at once.
    SwitchoverAsked,
}

/// A fault with its target, which is chosen by this number among the targets that exist then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Fault {
    pub kind: Kind,
    pub target: usize,
    pub millis: u64,
}

/// A time in which faults begin, with the calm before it.
pub struct Storm {
    /// A fault in the calm before: what a person should not do to a lock of a cluster that can't react.
    pub before: Fault,
    /// The faults, each with the time at which it begins.
    pub faults: Vec<(u64, Fault)>,
}

/// How long a cluster has to react to what a person does to a lock. Nothing is promised if a second fault keeps the cluster from
/// hearing of it.
const TO_REACT: u64 = 3_000;

/// How many times each kind is dealt, and its shortest and longest duration in milliseconds.
const DECK: [(Kind, usize, u64, u64); 50] = [
    (Kind::OperatorKilled, 6, 500, 8_000),
    (Kind::OperatorStopped, 6, 5_000, 14_000),
    (Kind::OperatorStoppedAtWork, 8, 9_000, 13_000),
    (Kind::OperatorEnded, 2, 500, 3_000),
    (Kind::OperatorsKilled, 1, 28_000, 38_000),
    (Kind::OperatorsStopped, 1, 28_000, 38_000),
    (Kind::ApiServerKilled, 1, 500, 6_000),
    (Kind::ApiServerStopped, 1, 2_000, 9_000),
    (Kind::EtcdKilled, 1, 500, 4_000),
    (Kind::EtcdStopped, 1, 1_000, 6_000),
    (Kind::ConsulKilled, 1, 1_000, 12_000),
    (Kind::ConsulStopped, 1, 2_000, 12_000),
    (Kind::ConsulLeaderKilled, 1, 1_000, 12_000),
    (Kind::ConsulLeaderStopped, 1, 2_000, 12_000),
    (Kind::ConsulWithoutQuorum, 1, 2_000, 18_000),
    (Kind::ApiLinkCut, 1, 1_000, 12_000),
    (Kind::ApiLinkDeaf, 1, 1_000, 12_000),
    (Kind::ApiLinkMute, 1, 1_000, 12_000),
    (Kind::ApiLinkReset, 1, 2_000, 12_000),
    (Kind::ApiLinkSlow, 2, 4_000, 12_000),
    (Kind::ApiLinkLate, 3, 5_000, 12_000),
    (Kind::PeerLinkCut, 3, 500, 8_000),
    (Kind::PeerLinkDeaf, 2, 1_000, 12_000),
    (Kind::TakenForGone, 4, 5_000, 12_000),
    (Kind::ConsulLinkCut, 1, 1_000, 34_000),
    (Kind::ConsulLinkDeaf, 1, 1_000, 24_000),
    (Kind::ConsulLinkMute, 1, 1_000, 24_000),
    (Kind::ConsulLinkReset, 1, 2_000, 12_000),
    (Kind::ConsulLinkSlow, 2, 4_000, 12_000),
    (Kind::LeaderDeleted, 10, 0, 4_000),
    (Kind::LeaderForced, 10, 0, 4_000),
    (Kind::LeaderTerminates, 4, 1_000, 8_000),
    (Kind::LeaderUnready, 8, 300, 6_000),
    (Kind::LeaderRelabelled, 4, 300, 6_000),
    (Kind::LeaderExcluded, 4, 300, 6_000),
    (Kind::PodDeleted, 4, 0, 4_000),
    (Kind::PodUnready, 2, 300, 6_000),
    (Kind::PodRelabelled, 2, 300, 6_000),
    (Kind::GroupDeleted, 2, 0, 3_000),
    (Kind::NodeDrained, 3, 1_000, 8_000),
    (Kind::LabelByHand, 4, 0, 0),
    (Kind::UnlabelByHand, 3, 0, 0),
    (Kind::MarksUndone, 2, 2_000, 12_000),
    (Kind::LeaseEdited, 2, 0, 0),
    (Kind::LeaseDeleted, 2, 0, 0),
    (Kind::KeyEdited, 2, 0, 0),
    (Kind::KeyForged, 3, 0, 0),
    (Kind::PriorityChanged, 3, 0, 0),
    (Kind::PreferenceChanged, 2, 0, 0),
    (Kind::SwitchoverAsked, 14, 0, 0),
];

/// All storms of a seed, without end.
pub struct Plan {
    random: Prng,
    cards: Vec<(Kind, u64, u64)>,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        Self { random: Prng::new(seed), cards: Vec::new() }
    }

    /// Returns the next storm, whose faults begin within this many milliseconds.
    pub fn storm(&mut self, millis: u64) -> Storm {
        let by_hand = [Kind::KeyOverwritten, Kind::KeyDeleted, Kind::SessionDestroyed];
        let kind = *self.random.pick(&by_hand).expect("there are some");
        let before = Fault { kind, target: self.random.below(1000), millis: 0 };
        let (mut at, mut faults) = (TO_REACT, Vec::new());
        while at < millis {
            faults.push((at, self.fault()));
            at += 50 + self.number(600);
        }
        Storm { before, faults }
    }

    fn fault(&mut self) -> Fault {
        if self.cards.is_empty() {
            let times = |(kind, times, from, to): &(Kind, usize, u64, u64)| vec![(*kind, *from, *to); *times];
            self.cards = DECK.iter().flat_map(times).collect();
        }
        let card = self.random.below(self.cards.len());
        let (kind, from, to) = self.cards.swap_remove(card);
        Fault { kind, target: self.random.below(1000), millis: from + self.number(to - from + 1) }
    }

    fn number(&mut self, below: u64) -> u64 {
        self.random.below(usize::try_from(below).expect("a small number")).try_into().expect("a small number")
    }
}

impl Fault {
    /// Returns the cluster that the fault is about, if it is about one.
    pub fn cluster(&self) -> &'static str {
        CLUSTERS[self.target % CLUSTERS.len()]
    }

    /// Returns the replica in that cluster.
    pub fn replica(&self) -> usize {
        self.target / CLUSTERS.len() % REPLICAS
    }

    /// Returns the Consul server.
    pub fn server(&self) -> usize {
        self.target % 3
    }

    /// Returns what must work when the fault begins, and is left alone while it lasts.
    pub fn needs(&self) -> Vec<String> {
        let cluster = self.cluster();
        let of = |replica| [format!("operator {cluster} {replica}"), format!("api link {cluster} {replica}")];
        match self.kind {
            // The other replica must act meanwhile.
            Kind::OperatorStoppedAtWork | Kind::ApiLinkLate | Kind::TakenForGone => {
                (0..REPLICAS).flat_map(of).chain(self.spoils()).collect()
            }
            Kind::NodeDrained => vec!["a node".into()],
            _ => self.spoils(),
        }
    }

    /// Returns what does not work while the fault lasts.
    pub fn spoils(&self) -> Vec<String> {
        let (cluster, replica) = (self.cluster(), self.replica());
        match self.kind {
            Kind::OperatorKilled | Kind::OperatorStopped | Kind::OperatorEnded => {
                vec![format!("operator {cluster} {replica}")]
            }
            Kind::OperatorStoppedAtWork => {
                vec![format!("operator {cluster} {replica}"), format!("api link {cluster} {replica}")]
            }
            Kind::OperatorsKilled | Kind::OperatorsStopped => {
                (0..REPLICAS).map(|replica| format!("operator {cluster} {replica}")).collect()
            }
            Kind::ApiServerKilled | Kind::ApiServerStopped => vec!["api server".into()],
            Kind::EtcdKilled | Kind::EtcdStopped => vec!["etcd".into()],
            Kind::ConsulKilled | Kind::ConsulStopped => vec![format!("consul {}", self.server())],
            Kind::ConsulLeaderKilled | Kind::ConsulLeaderStopped | Kind::ConsulWithoutQuorum => {
                (0..3).map(|server| format!("consul {server}")).collect()
            }
            Kind::ApiLinkCut
            | Kind::ApiLinkDeaf
            | Kind::ApiLinkMute
            | Kind::ApiLinkReset
            | Kind::ApiLinkSlow
            | Kind::ApiLinkLate => vec![format!("api link {cluster} {replica}")],
            Kind::PeerLinkCut | Kind::PeerLinkDeaf => vec![format!("peer link {cluster} {replica}")],
            Kind::TakenForGone => {
                let peer_links = (0..REPLICAS).map(|replica| format!("peer link {cluster} {replica}"));
                peer_links.chain([format!("api link {cluster} {replica}")]).collect()
            }
            Kind::ConsulLinkCut
            | Kind::ConsulLinkDeaf
            | Kind::ConsulLinkMute
            | Kind::ConsulLinkReset
            | Kind::ConsulLinkSlow => vec![format!("consul link {cluster}")],
            _ => Vec::new(),
        }
    }
}

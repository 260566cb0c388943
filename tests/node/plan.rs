//! What of the test is run: `make e2e-node [ONLY=PART,…] [RUNS=N]`.

use std::collections::BTreeSet;
use std::fmt::Display;

/// A part of the test. Without an installation there is none, so that is made in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    KubeProxy,
    Files,
    Inside,
    Pods,
    Switches,
    Former,
    Drain,
    Connections,
    Hangs,
    Operator,
    Upgrade,
    Kubelet,
    Consul,
    Uninstall,
    Node,
}

impl Part {
    /// All parts, in the order in which they run, with their names.
    const ALL: [(Self, &'static str); 15] = [
        (Self::KubeProxy, "kube-proxy"),
        (Self::Files, "files"),
        (Self::Inside, "inside"),
        (Self::Pods, "pods"),
        (Self::Switches, "switches"),
        (Self::Former, "former"),
        (Self::Drain, "drain"),
        (Self::Connections, "connections"),
        (Self::Hangs, "hangs"),
        (Self::Operator, "operator"),
        (Self::Upgrade, "upgrade"),
        (Self::Kubelet, "kubelet"),
        (Self::Consul, "consul"),
        (Self::Uninstall, "uninstall"),
        (Self::Node, "node"),
    ];
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    parts: BTreeSet<Part>,
    /// How often the leader is moved, and deleted, in each setting of the part `switches`; half as often it is rolled out and drained.
    pub runs: usize,
}

impl Plan {
    /// Reads `LICTOR_NODE_ONLY` and `LICTOR_NODE_RUNS`. Panics, with what is possible, if one of them can't be meant.
    pub fn from_environment() -> Self {
        let read = |name| std::env::var(name).unwrap_or_default();
        Self::parse(&read("LICTOR_NODE_ONLY"), &read("LICTOR_NODE_RUNS")).unwrap_or_else(|error| panic!("{error}"))
    }

    fn parse(only: &str, runs: &str) -> Result<Self, String> {
        let part = |name: &str| {
            let known = Part::ALL.iter().find(|(_, known)| *known == name.trim());
            known.map(|(part, _)| *part).ok_or_else(|| {
                let all: Vec<_> = Part::ALL.iter().map(|(_, name)| *name).collect();
                format!("ONLY: there is no part '{}'. Parts, separated by commas: {}", name.trim(), all.join(", "))
            })
        };
        let parts = match only.trim() {
            "" => Part::ALL.iter().map(|(part, _)| *part).collect(),
            names => names.split(',').map(part).collect::<Result<_, _>>()?,
        };
        let wrong = |why: &dyn Display| format!("RUNS: '{runs}' is not a number from 1 on: {why}");
        let runs = match runs.trim() {
            "" => 5,
            text => text.parse().map_err(|error| wrong(&error))?,
        };
        if runs == 0 { Err(wrong(&"it is 0")) } else { Ok(Self { parts, runs }) }
    }

    /// Whether this part is run.
    pub fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Whether all of it is run.
    pub fn is_whole(&self) -> bool {
        self.parts.len() == Part::ALL.len()
    }
}

#[test]
fn what_is_asked_for_is_known_or_refused() {
    let whole = Plan::parse("", "").unwrap();
    assert!(whole.is_whole() && whole.runs == 5);
    let some = Plan::parse("switches, pods", "20").unwrap();
    assert!(some.has(Part::Switches) && some.has(Part::Pods) && !some.has(Part::Node) && !some.is_whole());
    assert_eq!(some.runs, 20);
    let error = Plan::parse("pots", "").unwrap_err();
    assert!(
        error.starts_with("ONLY: there is no part 'pots'. Parts, separated by commas: kube-proxy, files"),
        "{error}"
    );
    for runs in ["0", "-1", "many"] {
        assert!(Plan::parse("", runs).unwrap_err().starts_with(&format!("RUNS: '{runs}' is not a number")), "{runs}");
    }
}

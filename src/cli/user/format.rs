//! The formats of the output.

use clap::ValueEnum;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lictor_api::{LeaderElection, as_yaml};
use serde::Serialize;
use serde_json::json;

use crate::cli::support::print;

/// A format instead of the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// With more columns.
    Wide,
    /// One object, or a list of objects.
    Json,
    /// The same as YAML.
    Yaml,
    /// Only names, as other commands of kubectl accept them.
    Name,
}

/// A format for output that has no columns and no single name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Data {
    /// One object.
    Json,
    /// The same as YAML.
    Yaml,
}

impl Format {
    /// Returns the format of data, if it is one.
    pub(super) fn data(self) -> Option<Data> {
        match self {
            Self::Json => Some(Data::Json),
            Self::Yaml => Some(Data::Yaml),
            Self::Wide | Self::Name => None,
        }
    }
}

impl Data {
    pub(super) fn print(self, value: &impl Serialize) -> anyhow::Result<()> {
        match self {
            Self::Json => print(&(serde_json::to_string_pretty(value)? + "\n")),
            Self::Yaml => print(&as_yaml(value)?),
        }
    }
}

/// Returns elections in kubectl's format for several objects.
pub(super) fn as_list(elections: &[LeaderElection]) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": elections})
}

/// Returns an election's name in the form that kubectl's commands accept.
pub(super) fn resource_name(election: &LeaderElection) -> String {
    format!("leaderelection.lictor.dev/{}", election.name_any())
}

/// Returns the time from a moment until now, in kubectl's format. Two machines' clocks are involved, so it may be
/// slightly wrong.
pub(super) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    let two = |first: i64, of: char, second: i64, and: char| {
        if second == 0 { format!("{first}{of}") } else { format!("{first}{of}{second}{and}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=599 => two(minutes, 'm', seconds % 60, 's'),
        600..=10_799 => format!("{minutes}m"),
        10_800..=28_799 => two(hours, 'h', minutes % 60, 'm'),
        28_800..=172_799 => format!("{hours}h"),
        172_800..=691_199 => two(days, 'd', hours % 24, 'h'),
        _ => format!("{days}d"),
    }
}

/// Returns how long something took.
pub(super) fn took(milliseconds: i64) -> String {
    if milliseconds < 10_000 {
        format!("{milliseconds} ms")
    } else {
        format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let now = Timestamp::from_second(10_000_000).unwrap();
        let written = |seconds: i64| age(Timestamp::from_second(10_000_000 - seconds).unwrap(), now);
        let ages = [-5, 0, 119, 120, 125, 600, 10_799, 10_800, 10_860, 86_400, 172_800, 180_000, 900_000].map(written);
        let expected = ["0s", "0s", "119s", "2m", "2m5s", "10m", "179m", "3h", "3h1m", "24h", "2d", "2d2h", "10d"];
        assert_eq!(ages, expected);
    }
}

//! Processes, by their ids.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

/// A process and what comes from it.
pub struct Tree {
    /// The process that was started, and then its descendants.
    pub all: Vec<u32>,
    names: BTreeMap<u32, String>,
}

impl Tree {
    /// Looks at a process and its descendants.
    pub fn of(root: u32) -> anyhow::Result<Self> {
        let mut parents = BTreeMap::new();
        let mut names = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // It may have ended meanwhile.
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            let (head, rest) = stat.rsplit_once(") ").context("a process has a name")?;
            let parent = rest.split(' ').nth(1).and_then(|parent| parent.parse::<u32>().ok());
            parents.insert(pid, parent.context("a process has a parent")?);
            names.insert(pid, head.split_once('(').map_or("", |(_, name)| name).to_owned());
        }
        let mut all = vec![root];
        let mut at = 0;
        while let Some(parent) = all.get(at).copied() {
            all.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        Ok(Self { all, names })
    }

    /// Returns those whose program has this name, or has another one.
    pub fn named(&self, name: &str, is: bool) -> Vec<u32> {
        self.all.iter().copied().filter(|pid| self.names.get(pid).is_some_and(|of| of == name) == is).collect()
    }
}

/// Sends a signal, for example "STOP". A process that is gone does not get it.
pub fn signal(name: &str, pids: &[u32]) -> anyhow::Result<()> {
    ensure!(!pids.is_empty(), "there is no process for SIG{name}: has it ended by itself?");
    let words = pids.iter().map(u32::to_string);
    Command::new("kill").arg(format!("-{name}")).args(words).stderr(std::process::Stdio::null()).status()?;
    Ok(())
}

/// Returns the resident memory of processes in MiB. What they share, such as their program, counts once.
pub fn resident(pids: &[u32]) -> anyhow::Result<f64> {
    let (mut own, mut shared) = (0.0, 0.0_f64);
    for pid in pids {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let of = |wanted: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(wanted));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).sum()
        };
        let private = of("Private_Clean:") + of("Private_Dirty:");
        own += private;
        shared = shared.max(of("Rss:") - private);
    }
    Ok((own + shared) / 1024.0)
}

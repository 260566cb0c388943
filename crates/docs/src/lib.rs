//! The pages and pictures that come from other files of this repository.

pub mod api;
pub mod badges;
pub mod commands;
pub mod demo;
pub mod peers;
pub mod plots;
mod rows;
pub mod site;
pub mod tables;
pub mod values;

use std::path::Path;

use anyhow::{Context, ensure};
use clap::{CommandFactory as _, ValueEnum};

/// A group of files that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// docs/api.md, from crds/lictor.dev.yaml.
    Api,
    /// docs/pictures/badges.svg, from Cargo.toml, the chart and the CRDs.
    Badges,
    /// docs/commands.md, from the program's command line.
    Commands,
    /// docs/pictures/demo.svg, from docs/pictures/demo.txt.
    Demo,
    /// The plots in docs/pictures/ and the tables of measurements in the pages, from benches/results/.
    Plots,
    /// docs/values.md, from the chart's README, which helm-docs makes from the values.
    Values,
}

impl What {
    /// All groups.
    pub const ALL: [Self; 6] = [Self::Api, Self::Badges, Self::Commands, Self::Demo, Self::Plots, Self::Values];

    /// Makes the files, and returns the path of each in the repository with its text.
    fn make(self, root: &Path) -> anyhow::Result<Vec<(&'static str, String)>> {
        let from = |path: &str, command: &str, make: fn(&str) -> anyhow::Result<String>| {
            make(&read(root, path)?).with_context(|| format!("{path} is not what `{command}` writes"))
        };
        let filled = |path: &str| {
            let file = |path: &str| read(root, path);
            tables::fill(&read(root, path)?, &file).with_context(|| format!("{path} can't be filled"))
        };
        Ok(match self {
            Self::Api => vec![("docs/api.md", from("crds/lictor.dev.yaml", "make fix", api::page)?)],
            Self::Badges => {
                let file = |path: &str| read(root, path);
                let made = badges::picture(
                    &file("Cargo.toml")?,
                    &file("charts/lictor/Chart.yaml")?,
                    &file("crds/lictor.dev.yaml")?,
                )?;
                vec![("docs/pictures/badges.svg", made)]
            }
            Self::Commands => {
                vec![("docs/commands.md", commands::page(lictor::cli::Cli::command(), &lictor::cli::groups()))]
            }
            Self::Demo => {
                vec![("docs/pictures/demo.svg", from("docs/pictures/demo.txt", "make demo-picture", demo::picture)?)]
            }
            Self::Plots => vec![
                (
                    "docs/pictures/failover.svg",
                    from("benches/results/failover.json", "make bench ARGS=failover", |json| {
                        plots::failover(json, "failover", "Leases")
                    })?,
                ),
                (
                    "docs/pictures/failover-consul.svg",
                    from("benches/results/consul-failover.json", "make bench ARGS=consul-failover", |json| {
                        plots::failover(json, "consulFailover", "Consul")
                    })?,
                ),
                (
                    "docs/pictures/calls-lost.svg",
                    from("benches/results/node.json", "make e2e-node", plots::calls_lost)?,
                ),
                ("docs/pictures/peers.svg", from("benches/results/peers.json", "make peers", peers::failovers)?),
                (
                    "docs/pictures/peers-at-rest.svg",
                    from("benches/results/peers-at-rest.json", "make peers", peers::at_rest)?,
                ),
                ("docs/comparison.md", filled("docs/comparison.md")?),
                ("docs/benchmarks.md", filled("docs/benchmarks.md")?),
                ("docs/routing.md", filled("docs/routing.md")?),
            ],
            Self::Values => vec![("docs/values.md", from("charts/lictor/README.md", "helm-docs", values::page)?)],
        })
    }
}

/// Writes the files that are out of date, and prints their names.
///
/// # Errors
/// If the files that they come from can't be read or do not have what is needed, or if a file can't be written.
pub fn write(what: What, root: &Path) -> anyhow::Result<()> {
    for (path, text) in what.make(root)? {
        if std::fs::read_to_string(root.join(path)).is_ok_and(|old| old == text) {
            continue;
        }
        std::fs::write(root.join(path), text).with_context(|| format!("{path} can't be written"))?;
        println!("{path}");
    }
    Ok(())
}

/// Checks that the files are what [`write()`] would write.
///
/// # Errors
/// If a file differs or is missing, or if the files that they come from can't be read.
pub fn is_current(what: What, root: &Path) -> anyhow::Result<()> {
    for (path, text) in what.make(root)? {
        ensure!(read(root, path)? == text, "{path} is out of date: make fix");
    }
    Ok(())
}

fn read(root: &Path, path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("{path} can't be read"))
}

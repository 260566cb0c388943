//! The subcommands in groups, for the help, the man pages and docs/commands.md. clap knows one list of subcommands only.

use anstream::adapter::strip_str;
use clap::builder::Styles;
use clap::{Command, Subcommand};

/// Returns a group as a command of the group's subcommands, with the group's name as their heading.
pub(super) fn group<S: Subcommand>(heading: &'static str) -> Command {
    S::augment_subcommands(Command::new("lictor")).subcommand_help_heading(heading)
}

/// Returns the template of the help, which has the groups in the place of clap's list.
pub(super) fn template(groups: &[Command]) -> String {
    let header = Styles::styled();
    let header = header.get_header();
    format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\n{header}Options:{header:#}\n\
         {{options}}{{after-help}}",
        listed(groups, |heading| format!("\n{header}{heading}:{header:#}\n"))
    )
}

/// Lets clap print all subcommands, so that the columns of all groups are aligned and fit the terminal, and puts the
/// headings between them.
fn listed(groups: &[Command], heading: impl Fn(&str) -> String) -> String {
    let all = groups.iter().flat_map(Command::get_subcommands).cloned();
    let all = all.enumerate().map(|(place, command)| command.display_order(place));
    let all = Command::new("lictor").help_template("{subcommands}").subcommands(all).render_help();
    let mut text = String::new();
    for line in all.ansi().to_string().lines() {
        let plain = strip_str(line).to_string();
        let name = plain.strip_prefix("  ").and_then(|plain| plain.split(' ').next());
        let group = groups.iter().find(|group| name.is_some() && first(group) == name);
        text += &group.and_then(Command::get_subcommand_help_heading).map(&heading).unwrap_or_default();
        text += line;
        text.push('\n');
    }
    text
}

fn first(group: &Command) -> Option<&str> {
    group.get_subcommands().find(|one| !one.is_hide_set()).map(Command::get_name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, groups};

    fn names(command: &Command) -> Vec<String> {
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        shown.map(|one| one.get_name().to_owned()).collect()
    }

    #[test]
    fn each_visible_subcommand_is_in_one_group() {
        let grouped: Vec<String> = groups().iter().flat_map(names).collect();
        let once: BTreeSet<String> = grouped.iter().cloned().collect();
        assert_eq!(grouped.len(), once.len(), "{grouped:?}");
        assert_eq!(once, names(&Cli::command()).into_iter().collect());
        assert!(groups().iter().all(|group| !names(group).is_empty()));
    }

    #[test]
    fn each_group_stands_below_its_heading_and_lines_that_go_on_begin_none() {
        let hop = Command::new("hop").about("Hops");
        let groups = [
            Command::new("x").subcommand_help_heading("One").subcommand(hop),
            Command::new("x")
                .subcommand_help_heading("Two")
                .subcommand(Command::new("inner").hide(true))
                .subcommand(Command::new("skip").about("hop hop")),
        ];
        let text = strip_str(&listed(&groups, |heading| format!("[{heading}]\n"))).to_string();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.starts_with("[One] hop Hops [Two] skip hop hop help "), "{text}");
    }
}

//! docs/commands.md: the reference of the command line, from what the program itself parses.

use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::rows::{head, row};

const HEAD: &str = "# Commands\n\n\
    Made from the program by `make fix`; `lictor COMMAND --help` and the man pages of a release say the same. [kubectl.md](kubectl.md) shows\n\
    what the commands for people print, [agent.md](agent.md) and [know-that-you-lead.md](know-that-you-lead.md#lictor-observe) explain those\n\
    for programs, and [operating.md](operating.md) explains `run`.\n\n\
    As a plugin, the program has the same commands: `kubectl lictor list` is `lictor list`. Where an environment variable stands beside an\n\
    option, it sets that option, unless the command line does.\n";

/// Returns the page for this command line, whose subcommands are in these groups.
pub fn page(mut program: Command, groups: &[Command]) -> String {
    program.build();
    let mut text = HEAD.to_owned();
    let mut parts = String::new();
    for group in groups {
        let mut table = head(&[group.get_subcommand_help_heading().unwrap_or("command"), "effect"]);
        for name in group.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name) {
            let Some(command) = program.find_subcommand_mut(name) else { continue };
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            row(&mut table, &[format!("[`{name}`](#{name})"), cell(&about)]);
            part(&mut parts, name, command);
        }
        let _ = write!(text, "\n{table}");
    }
    text + &parts
}

fn part(text: &mut String, name: &str, command: &mut Command) {
    let _ = write!(text, "\n## {name}\n\n");
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(text, "{}.", prose(about.trim()).trim_end_matches('.'));
    let usage = command.render_usage().to_string();
    let _ = write!(text, "\n```\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let mut table = head(&["option", "meaning"]);
    let mut any = false;
    for arg in command.get_arguments().filter(shown) {
        any = true;
        row(&mut table, &[names(arg), meaning(arg)]);
    }
    if any {
        let _ = write!(text, "\n{table}");
    }
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let lines: Vec<_> = examples.lines().filter(|line| *line != "Examples:").map(str::trim).collect();
        let _ = write!(text, "\n```\n{}\n```\n", lines.join("\n").trim());
    }
}

/// An argument as a person writes it, and its environment variable.
fn names(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>")).collect();
    let takes = arg.get_action().takes_values();
    let value = if takes { values.join(" ") } else { String::new() };
    let flags = [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
    let flags: Vec<_> = flags.into_iter().flatten().collect();
    let variable = arg.get_env().map(|name| format!(", {}", code(&name.to_string_lossy()))).unwrap_or_default();
    code(format!("{} {value}", flags.join(", ")).trim()) + &variable
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = cell(help.trim_end_matches('.'));
    let values = arg.get_possible_values();
    // A switch can be true or false, which goes without saying.
    if arg.get_action().takes_values() {
        let coded = |values: Vec<String>| values.iter().map(|value| code(value)).collect::<Vec<_>>().join(", ");
        let shown = values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_owned());
        let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
        for (what, values) in [("Values", coded(shown.collect())), ("Default", coded(defaults.collect()))] {
            if !values.is_empty() {
                let _ = write!(text, ". {what}: {values}");
            }
        }
    }
    text
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// A text that Markdown shows as it is, in a cell of a table.
fn cell(text: &str) -> String {
    prose(&text.split_whitespace().collect::<Vec<_>>().join(" ")).replace('|', "\\|")
}

/// A text that Markdown shows as it is. What is in backticks already, stays code.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => ['*', '_', '<', '['].iter().fold(part.to_owned(), |part, c| part.replace(*c, &format!("\\{c}"))),
        _ => format!("`{part}`"),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use clap::{ArgAction, arg};

    use super::*;

    #[test]
    fn each_command_has_its_options() {
        let hop = Command::new("hop")
            .about("Hops, as `a|b`, over <N> fences")
            .after_help("Examples:\n  hop 3    # three")
            .arg(arg!(<FENCE> "The fence"))
            .arg(arg!(-n --namespace <NAME> "The namespace").default_value("here").env("HOP_NAMESPACE"))
            .arg(arg!(--high "Higher").action(ArgAction::SetTrue))
            .arg(arg!(--secret "Not shown").hide(true));
        let commands = [hop, Command::new("inner").hide(true)];
        let group = Command::new("lictor").subcommands(commands.clone()).subcommand_help_heading("Move");
        let page = page(Command::new("lictor").subcommands(commands), &[group]);
        let table = "| option | meaning |\n|---|---|\n\
                     | `<FENCE>` | The fence |\n\
                     | `-n, --namespace <NAME>`, `HOP_NAMESPACE` | The namespace. Default: `here` |\n\
                     | `--high` | Higher |\n";
        for text in [
            "\n| Move | effect |\n|---|---|\n| [`hop`](#hop) | Hops, as `a\\|b`, over \\<N> fences |\n",
            "\n## hop\n\nHops, as `a|b`, over \\<N> fences.\n\n```\nlictor hop [OPTIONS] <FENCE>\n```\n",
            table,
            "\n```\nhop 3    # three\n```\n",
        ] {
            assert!(page.contains(text), "{text}\nis not in:\n{page}");
        }
        assert!(!page.contains("inner") && !page.contains("secret"), "{page}");
    }
}

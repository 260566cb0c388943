//! docs/pictures/demo.svg: what `make demo` printed, as a terminal shows it.

use std::fmt::Write as _;

use anstyle_svg::Term;
use anyhow::{Context, ensure};

/// What a newcomer needs no picture of: these commands, with what they print.
const LEFT_OUT: [&str; 2] = ["kubectl get lease", "kubectl get endpointslices"];

/// Returns the picture of a recording: of its last three steps, and of "It works."
///
/// # Errors
/// If the recording does not have them.
pub fn picture(recording: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    for line in shown(recording)? {
        writeln!(text, "{}", styled(line))?;
    }
    let light = anstyle::RgbColor(0xe6, 0xed, 0xf3).into();
    let dark = anstyle::RgbColor(0x0d, 0x11, 0x17).into();
    let term = Term::new().palette(anstyle_svg::WIN10_CONSOLE).fg_color(light).bg_color(dark);
    portable(&term.render_svg(text.trim_end()))
}

/// Returns the picture with a `viewBox`, so that a narrow page shows all of it, and with the font as attributes, because not all programs read
/// `font` in a style.
fn portable(picture: &str) -> anyhow::Result<String> {
    let (head, rest) = picture.split_once(" xmlns=").context("the picture has no head")?;
    let numbers: Vec<&str> = head.split('"').skip(1).step_by(2).map(|size| size.trim_end_matches("px")).collect();
    let font = "<text font-family=\"SFMono-Regular, Consolas, Liberation Mono, Menlo, monospace\" font-size=\"14px\" ";
    let rest = rest.replacen("<text ", font, 1);
    Ok(format!("{head} viewBox=\"0 0 {}\" xmlns={rest}", numbers.join(" ")))
}

/// Returns the lines that the picture shows.
fn shown(recording: &str) -> anyhow::Result<Vec<&str>> {
    let is_step = |line: &&str| line.contains("/7 ") && line.ends_with('…');
    let lines: Vec<&str> = recording.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("5/7 ")).context("the recording has no step 5/7")?;
    let last = lines.iter().position(|line| *line == "It works.").context("the recording does not end well")?;
    let mut found: Vec<&str> = Vec::new();
    let mut is_left_out = false;
    for line in lines.get(first..=last).context("its steps are not in order")? {
        // A command's output ends with an empty line.
        is_left_out =
            (is_left_out && !line.is_empty()) || LEFT_OUT.iter().any(|command| command_of(line).starts_with(command));
        let is_second_empty = line.is_empty() && found.last().is_some_and(|last| last.is_empty());
        if !is_left_out && !is_second_empty {
            found.push(line);
        }
    }
    ensure!(found.iter().filter(|line| is_step(line)).count() == 3, "the recording has other steps");
    Ok(found)
}

/// Returns the command that was typed, or nothing if the line is no command.
fn command_of(line: &str) -> &str {
    line.trim_start().strip_prefix("$ ").unwrap_or_default()
}

/// Returns the line with colours: titles and commands are bold, and so is the row of the leader's pod, in green.
fn styled(line: &str) -> String {
    use anstyle::{AnsiColor, Style};
    let title = Style::new().bold().fg_color(Some(AnsiColor::BrightCyan.into()));
    let leader = Style::new().bold().fg_color(Some(AnsiColor::BrightGreen.into()));
    let style = if line.ends_with('…') || line == "It works." {
        title
    } else if !command_of(line).is_empty() {
        Style::new().bold()
    } else if line.ends_with(" leader") {
        leader
    } else {
        Style::new()
    };
    format!("{style}{line}{style:#}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use super::*;

    const RECORDING: &str = "
1/7 building…

5/7 applying…
    the leader is web-1

6/7 what there is now…
    $ kubectl get lease
    NAME   HOLDER
    web    web-1

    $ kubectl get pods -L role
    web-1   1/1   leader
    web-2   1/1   follower

    The Service <web> reaches web-1.

7/7 deleting the leader…
    $ kubectl delete pod web-1

It works.

stopping…
";

    #[test]
    fn the_picture_has_lines_of_the_recording_and_no_others() {
        let text = picture(RECORDING).unwrap();
        let (_, text) = text.split_once("<text").unwrap();
        let text: String = text.split('>').skip(1).filter_map(|part| part.split('<').next()).collect();
        let text = text.replace("&lt;", "<").replace("&gt;", ">");
        let mut lines: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        // What follows a line's break in the file is its indentation there.
        for line in &mut lines {
            *line = line.trim_start();
        }
        assert_eq!(
            lines,
            [
                "5/7 applying…",
                "the leader is web-1",
                "6/7 what there is now…",
                "$ kubectl get pods -L role",
                "web-1   1/1   leader",
                "web-2   1/1   follower",
                "The Service <web> reaches web-1.",
                "7/7 deleting the leader…",
                "$ kubectl delete pod web-1",
                "It works."
            ]
        );
    }

    #[test]
    fn a_recording_that_ended_badly_is_refused() {
        let error = |text: &str| picture(text).unwrap_err().to_string();
        assert_eq!(error("1/7 building…"), "the recording has no step 5/7");
        assert_eq!(error(&RECORDING.replace("It works.", "")), "the recording does not end well");
        assert_eq!(error(&RECORDING.replace("6/7", "6/9")), "the recording has other steps");
    }

    #[test]
    fn every_page_and_program_can_show_the_picture() {
        let text = picture(RECORDING).unwrap();
        assert!(text.starts_with("<svg width=\"740px\" height=\"290px\" viewBox=\"0 0 740 290\" xmlns="), "{text}");
        assert!(text.contains("monospace\" font-size=\"14px\" xml:space=\"preserve\""), "{text}");
    }
}

//! The tables of measurements in the pages, from benches/results/. A table is between two comments, which stay:
//!
//! ```text
//! <!-- from benches/results/node.json: quiet -->
//! <!-- end -->
//! ```

use std::fmt::Write as _;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::peers;
use crate::plots::{CAUSES, number, parsed, text};
use crate::rows::{head, list, row, seconds};

const BEGINS: &str = "<!-- from ";
const ENDS: &str = "<!-- end -->";

/// Returns the page with its tables made anew. `read` returns the text of a file of the repository.
///
/// # Errors
/// If a table is not known or has no end, or if its file can't be read or does not have what is needed.
pub fn fill(page: &str, read: &dyn Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let mut filled = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(filled, "{line}");
        let Some(asked) = line.strip_prefix(BEGINS) else { continue };
        let asked = asked.strip_suffix(" -->").and_then(|asked| asked.split_once(": "));
        let (file, name) = asked.with_context(|| format!("'{line}' is not '{BEGINS}FILE: TABLE -->'"))?;
        lines.by_ref().find(|line| *line == ENDS).with_context(|| format!("'{line}' has no '{ENDS}' after it"))?;
        let table = parsed(&read(file)?).and_then(|all| table(&all, name));
        let _ = writeln!(filled, "{}{ENDS}", table.with_context(|| format!("{file}, table '{name}'"))?);
    }
    Ok(filled)
}

fn table(all: &Value, name: &str) -> anyhow::Result<String> {
    match name {
        "failover" | "consulFailover" => beside_the_floor(all, name),
        "failures" => failures(all),
        "quiet" | "noisy" => switches(all, name),
        "connections" => connections(all),
        "times" => times(all),
        "peersRun" | "peersNext" | "peersBoth" | "peersRest" | "peersStart" => peers::table(all, name),
        _ => bail!(
            "there is no such table: failover, consulFailover, failures, quiet, noisy, connections, times, peersRun, peersNext, peersBoth, \
             peersRest, peersStart"
        ),
    }
}

/// The bench's targets for a failover, in times of its floor.
const TARGETS: [(&str, f64); 2] = [("p50", 1.3), ("p99", 2.0)];

fn beside_the_floor(all: &Value, part: &str) -> anyhow::Result<String> {
    let mut table = head(&["cause", "", "failover", "floor", "ratio", "target", "met"]);
    for (name, cause) in CAUSES {
        for (percentile, target) in TARGETS {
            let of = |what: &str| number(all, &format!("/{part}/{name}/{what}/{percentile}"));
            let (total, floor) = (of("total")?, of("floor")?);
            let ratio = total / floor;
            let cause = if percentile == "p50" { cause } else { "" };
            let met = if ratio <= target { "yes" } else { "no" };
            let cells = [
                cause.to_owned(),
                percentile.to_owned(),
                format!("{total:.1} ms"),
                format!("{floor:.1} ms"),
                format!("{ratio:.2}"),
                format!("{target}"),
                met.to_owned(),
            ];
            row(&mut table, &cells);
        }
    }
    Ok(table)
}

fn failures(all: &Value) -> anyhow::Result<String> {
    let mut table = head(&[
        "cause",
        "runs",
        "calls lost",
        "cause to label",
        "label to the next leader's answer",
        "cause to the next leader's answer",
        "without any answer",
        "load",
    ]);
    for cause in failovers(all, "failures")? {
        let cells = [
            text(cause, "/cause")?,
            text(cause, "/runs")?,
            counts(cause, "/lost")?,
            span(cause, "/toLabelSeconds")?,
            span(cause, "/toAnswerSeconds")?,
            span(cause, "/toReachSeconds")?,
            span(cause, "/silenceSeconds")?,
            counts(cause, "/load")?,
        ];
        row(&mut table, &cells);
    }
    Ok(table)
}

fn switches(all: &Value, name: &str) -> anyhow::Result<String> {
    let mut table = head(&[
        "the leader is",
        "runs without a lost call",
        "calls lost",
        "cause to the next leader's answer",
        "of that: cause",
        "record",
        "slice",
        "answer",
        "without any answer",
        "load",
    ]);
    for cause in failovers(all, name)? {
        // In a rollout, leaders move more than once, so no single move has times.
        let moves_once = cause.pointer("/parts/toCauseSeconds").is_some_and(Value::is_object);
        let of_move = |cell: anyhow::Result<String>| if moves_once { cell } else { Ok("–".to_owned()) };
        let cells = [
            text(cause, "/cause")?,
            format!("{} of {}", text(cause, "/lostNone")?, text(cause, "/runs")?),
            counts(cause, "/lost")?,
            of_move(span(cause, "/toReachSeconds"))?,
            of_move(median(cause, "/parts/toCauseSeconds"))?,
            of_move(median(cause, "/parts/toRecordSeconds"))?,
            of_move(median(cause, "/parts/toSliceSeconds"))?,
            of_move(median(cause, "/parts/toAnswerSeconds"))?,
            span(cause, "/silenceSeconds")?,
            counts(cause, "/load")?,
        ];
        row(&mut table, &cells);
    }
    Ok(table)
}

fn connections(all: &Value) -> anyhow::Result<String> {
    let mut table = head(&[
        "the leader is",
        "runs",
        "who answers over the open connection",
        "over the one after it",
        "the next leader answers after",
        "requests lost",
    ]);
    for change in list(all, "connections")? {
        let (runs, stayed, returned) =
            (number(change, "/runs")?, number(change, "/stayed")?, number(change, "/returned")?);
        let who = if stayed >= runs {
            "the old leader, as long as it runs".to_owned()
        } else if stayed > 0.0 {
            format!("the old leader in {stayed} runs; in the others until it ends")
        } else {
            format!("the old leader, until it ends after {}", span(change, "/endedSeconds")?)
        };
        let next = if stayed >= runs {
            "–".to_owned()
        } else if returned > 0.0 {
            format!("the old leader, started again, in {returned} of {runs}")
        } else {
            "the next leader".to_owned()
        };
        let reached = if stayed + returned >= runs { "never".to_owned() } else { span(change, "/reachedSeconds")? };
        let [what, runs, lost] = [text(change, "/change")?, text(change, "/runs")?, counts(change, "/lost")?];
        row(&mut table, &[what, runs, who, next, reached, lost]);
    }
    Ok(table)
}

fn times(all: &Value) -> anyhow::Result<String> {
    let mut table = head(&["", "runs", "time"]);
    for time in list(all, "times")? {
        row(&mut table, &[text(time, "/what")?, text(time, "/runs")?, span(time, "/seconds")?]);
    }
    Ok(table)
}

/// The failovers of one table.
fn failovers<'a>(all: &'a Value, name: &str) -> anyhow::Result<Vec<&'a Value>> {
    let rows: Vec<_> = list(all, "failovers")?.iter().filter(|row| row["table"] == name).collect();
    if rows.is_empty() { Err(anyhow::anyhow!("it has no failovers of that table")) } else { Ok(rows) }
}

/// A median with its maximum in parentheses, of times.
fn span(of: &Value, at: &str) -> anyhow::Result<String> {
    let max = seconds(number(of, &format!("{at}/max"))?);
    Ok(format!("{} ({max})", median(of, at)?))
}

fn median(of: &Value, at: &str) -> anyhow::Result<String> {
    Ok(seconds(number(of, &format!("{at}/median"))?))
}

/// A median with its maximum in parentheses, of numbers; a dash where none was kept.
fn counts(of: &Value, at: &str) -> anyhow::Result<String> {
    if of.pointer(at).is_none_or(Value::is_null) {
        return Ok("–".into());
    }
    Ok(format!("{} ({})", number(of, &format!("{at}/median"))?, number(of, &format!("{at}/max"))?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use std::path::Path;

    use super::*;
    use crate::{What, is_current};

    const NODE: &str = r#"{
        "failovers": [
            {"table": "failures", "cause": "`kill -9`", "runs": 3, "lost": {"median": 200, "max": 210}, "toLabelSeconds": {"median": 0.5, "max": 1},
             "toAnswerSeconds": {"median": 1.004, "max": 1.04}, "toReachSeconds": {"median": 1.5, "max": 2.04}, "silenceSeconds": {"median": 1.5, "max": 2}},
            {"table": "quiet", "cause": "moved", "runs": 20, "lostNone": 19, "lost": {"median": 0, "max": 1}, "toReachSeconds": {"median": 0.0486, "max": 0.2},
             "parts": {"toCauseSeconds": {"median": 0.006, "max": 1}, "toRecordSeconds": {"median": 0.007, "max": 1},
                       "toSliceSeconds": {"median": 0.008, "max": 1}, "toAnswerSeconds": {"median": 0.028, "max": 1}},
             "silenceSeconds": {"median": 0.012, "max": 0.02}, "load": {"median": 0.5, "max": 1.25}}],
        "connections": [
            {"change": "moved", "runs": 3, "stayed": 3, "returned": 0, "endedSeconds": null, "reachedSeconds": null, "lost": {"median": 0, "max": 0}},
            {"change": "killed", "runs": 3, "stayed": 0, "returned": 1, "endedSeconds": {"median": 0.002, "max": 0.003},
             "reachedSeconds": {"median": 0.5, "max": 0.6}, "lost": {"median": 20, "max": 30}}],
        "times": [{"what": "`helm test`", "runs": 1, "seconds": {"median": 5.224, "max": 5.224}}]}"#;

    fn filled(page: &str) -> anyhow::Result<String> {
        fill(page, &|file| if file == "node.json" { Ok(NODE.into()) } else { bail!("{file} can't be read") })
    }

    fn rows(name: &str) -> Vec<String> {
        let page = format!("before\n<!-- from node.json: {name} -->\nold\n<!-- end -->\nafter\n");
        let filled = filled(&page).unwrap();
        assert!(filled.starts_with("before\n<!-- from ") && filled.ends_with("|\n<!-- end -->\nafter\n"), "{filled}");
        assert!(!filled.contains("old\n"), "{filled}");
        filled.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn a_table_has_a_row_for_each_cause() {
        assert_eq!(
            rows("failures"),
            [
                "| `kill -9` | 3 | 200 (210) | 500 ms (1.00 s) | 1.00 s (1.04 s) | 1.50 s (2.04 s) | 1.50 s (2.00 s) | – |"
            ]
        );
        assert_eq!(
            rows("quiet"),
            ["| moved | 19 of 20 | 0 (1) | 49 ms (200 ms) | 6 ms | 7 ms | 8 ms | 28 ms | 12 ms (20 ms) | 0.5 (1.25) |"]
        );
        assert_eq!(
            rows("connections"),
            [
                "| moved | 3 | the old leader, as long as it runs | – | never | 0 (0) |",
                "| killed | 3 | the old leader, until it ends after 2 ms (3 ms) | the old leader, started again, in 1 of 3 | 500 ms (600 ms) | 20 (30) |",
            ]
        );
        assert_eq!(rows("times"), ["| `helm test` | 1 | 5.22 s (5.22 s) |"]);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let error = |page: &str| format!("{:#}", filled(page).unwrap_err());
        let end = "\n<!-- end -->\n";
        assert_eq!(error("<!-- from node.json -->"), "'<!-- from node.json -->' is not '<!-- from FILE: TABLE -->'");
        let open = "<!-- from node.json: quiet -->";
        assert_eq!(error(open), format!("'{open}' has no '<!-- end -->' after it"));
        assert_eq!(error(&format!("<!-- from x.json: quiet -->{end}")), "x.json can't be read");
        assert_eq!(
            error(&format!("<!-- from node.json: noisy -->{end}")),
            "node.json, table 'noisy': it has no failovers of that table"
        );
        assert!(error(&format!("<!-- from node.json: loud -->{end}")).contains("there is no such table: failover, "));
    }

    #[test]
    fn a_page_without_tables_stays() {
        let page = "# A page\n\n| a | b |\n";
        assert_eq!(filled(page).unwrap(), page);
    }

    /// The pages and plots have the figures of benches/results/.
    #[test]
    fn the_pages_are_up_to_date() {
        is_current(What::Plots, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    }
}

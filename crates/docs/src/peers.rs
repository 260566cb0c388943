//! lictor beside others: the tables and plots of docs/comparison.md, from what `make peers` measured.

use anyhow::Context;
use serde_json::Value;

use crate::plots::{Bar, Plot, Row, number, parsed, text};
use crate::rows::{head, list, row, seconds};

/// The faults, by their names in the file.
const FAULTS: [(&str, &str); 6] = [
    ("asked", "asked to end"),
    ("killed", "killed"),
    ("stopped", "stopped"),
    ("frozen", "frozen"),
    ("hung", "its work hangs"),
    ("cutOff", "cut off"),
];
const NONE: &str = "–";

/// Returns a table of the page.
///
/// # Errors
/// If there is no such table, or what it needs is missing.
pub(crate) fn table(all: &Value, name: &str) -> anyhow::Result<String> {
    let peers = &all["peers"];
    match name {
        "peersRun" => run(all),
        "peersNext" => next(peers),
        "peersBoth" => both(peers),
        "peersRest" => rest(peers),
        _ => start(peers),
    }
}

fn contenders(all: &Value) -> anyhow::Result<&Vec<Value>> {
    list(all, "contenders")
}

/// A fault of one contender, if it was measured.
fn fault<'a>(of: &'a Value, name: &str) -> Option<&'a Value> {
    of["faults"].get(name)
}

/// On what it was measured, and how busy that was.
fn run(all: &Value) -> anyhow::Result<String> {
    let mut table =
        head(&["processor", "cores", "fdatasync, p50", "load at the start", "load at the end", "runs of each"]);
    let load = |at: &str| {
        let all = text(all, &format!("/peers/load/{at}"))?;
        anyhow::Ok(all.split(' ').next().unwrap_or_default().to_owned())
    };
    let cells = [
        text(all, "/machine/processor")?,
        text(all, "/machine/cores")?,
        format!("{:.1} ms", number(all, "/machine/fdatasyncMilliseconds/p50")?),
        load("0")?,
        load("1")?,
        text(all, "/peers/runs")?,
    ];
    row(&mut table, &cells);
    Ok(table)
}

fn next(all: &Value) -> anyhow::Result<String> {
    let away = format!("its server is away for {} s: nobody acts", text(all, "/awaySeconds")?);
    let faults = FAULTS.map(|(_, title)| title);
    let mut table = head(&[&["", "times"], faults.as_slice(), &[away.as_str()]].concat());
    for of in contenders(all)? {
        let mut cells = vec![text(of, "/title")?, text(of, "/timing")?];
        for (name, _) in FAULTS {
            cells.push(fault(of, name).map_or(Ok(NONE.to_owned()), |seen| until(all, name, seen))?);
        }
        let away = fault(of, "away").context("it has no \"away\"")?;
        // A note is made each few milliseconds: less than this is no gap.
        let longest = number(away, "/nobody/max")?;
        cells.push(if longest < 0.5 { "never".to_owned() } else { timed(away, "/nobody")? });
        row(&mut table, &cells);
    }
    Ok(table)
}

/// The median until the next one leads, with the longest in parentheses.
fn until(all: &Value, name: &str, seen: &Value) -> anyhow::Result<String> {
    let (runs, never) = (number(seen, "/runs")?, number(seen, "/never")?);
    let patience = text(all, if name == "hung" { "/hangingSeconds" } else { "/patienceSeconds" })?;
    if never >= runs {
        return Ok(format!("not within {patience} s"));
    }
    let shown = timed(seen, "/next")?;
    Ok(if never > 0.0 { format!("{shown}, and in {never} of {runs} not within {patience} s") } else { shown })
}

fn both(all: &Value) -> anyhow::Result<String> {
    let faults: Vec<_> = FAULTS.into_iter().filter(|(name, _)| *name != "hung").collect();
    let mut table = head(&[&[""], faults.iter().map(|(_, title)| *title).collect::<Vec<_>>().as_slice()].concat());
    for of in contenders(all)? {
        let mut cells = vec![text(of, "/title")?];
        for (name, _) in &faults {
            let seen = fault(of, name).filter(|seen| !seen["both"].is_null());
            cells.push(match seen {
                None => NONE.to_owned(),
                Some(seen) if number(seen, "/goesOn")? > 0.0 => {
                    format!("until somebody ends it: {} s and on", text(all, "/afterwardsSeconds")?)
                }
                Some(seen) => {
                    let longest = number(seen, "/both/max")?;
                    if longest > 0.0 { seconds(longest) } else { "no".to_owned() }
                }
            });
        }
        row(&mut table, &cells);
    }
    Ok(table)
}

fn rest(all: &Value) -> anyhow::Result<String> {
    let mut table = head(&["", "requests", "bytes", "processor", "memory of each"]);
    for of in contenders(all)? {
        let rest = &of["rest"];
        let bytes = number(rest, "/bytesAnHour")?;
        let memory: Vec<f64> = list(rest, "residentMiB")?.iter().filter_map(Value::as_f64).collect();
        let most = memory.iter().copied().fold(0.0, f64::max);
        let cells = [
            text(of, "/title")?,
            format!("{:.0}", number(rest, "/requestsAnHour")?),
            if bytes < 1e6 { format!("{:.0} kB", bytes / 1e3) } else { format!("{:.1} MB", bytes / 1e6) },
            format!("{:.1} s", number(rest, "/processorSecondsAnHour")?),
            format!("{most:.1} MiB"),
        ];
        row(&mut table, &cells);
    }
    Ok(table)
}

fn start(all: &Value) -> anyhow::Result<String> {
    let mut table = head(&["", "start to leadership: the shortest (the median)", "round trips in a row"]);
    for of in contenders(all)?.iter().filter(|of| !of["start"].is_null()) {
        let start = &of["start"];
        let time = |which: &str| anyhow::Ok(seconds(number(start, &format!("/seconds/{which}"))?));
        let times = format!("{} ({})", time("min")?, time("p50")?);
        let cells = [text(of, "/title")?, times, format!("{:.1}", number(start, "/roundTrips")?)];
        row(&mut table, &cells);
    }
    Ok(table)
}

/// A median with its maximum in parentheses, of a sample of the benchmark's.
fn timed(of: &Value, at: &str) -> anyhow::Result<String> {
    let of = |which: &str| anyhow::Ok(seconds(number(of, &format!("{at}/{which}"))?));
    Ok(format!("{} ({})", of("p50")?, of("max")?))
}

/// Returns the plot of how long it takes until the next one leads.
///
/// # Errors
/// If the text has no such figures.
pub fn failovers(json: &str) -> anyhow::Result<String> {
    let all = parsed(json)?;
    let all = &all["peers"];
    let mut rows = vec![];
    for (name, title) in [FAULTS[1], FAULTS[2], FAULTS[4]] {
        for of in contenders(all)? {
            let Some(seen) = fault(of, name) else { continue };
            let never = number(seen, "/never")? >= number(seen, "/runs")?;
            let value = if never { number(all, "/hangingSeconds")? } else { number(seen, "/next/p50")? };
            let label = format!("{title}: {}", text(of, "/title")?.replace('`', ""));
            let shown = if never { until(all, name, seen)? } else { seconds(value) };
            rows.push(Row { label, bars: vec![Bar { value, text: shown, class: class(of)? }] });
        }
    }
    Ok(Plot {
        title: "Until the next one leads, the median of the runs".into(),
        legend: vec![("ours", "lictor"), ("floor", "others")],
        rows,
    }
    .draw())
}

/// Returns the plot of requests at rest.
///
/// # Errors
/// If the text has no such figures.
pub fn at_rest(json: &str) -> anyhow::Result<String> {
    let all = parsed(json)?;
    let mut rows = vec![];
    for of in contenders(&all["peers"])? {
        let value = number(of, "/rest/requestsAnHour")?;
        let label = text(of, "/title")?.replace('`', "");
        rows.push(Row { label, bars: vec![Bar { value, text: format!("{value:.0}"), class: class(of)? }] });
    }
    Ok(Plot {
        title: "Requests in an hour in which nothing happens, of both members".into(),
        legend: vec![("ours", "lictor"), ("floor", "others")],
        rows,
    }
    .draw())
}

fn class(of: &Value) -> anyhow::Result<&'static str> {
    Ok(if text(of, "/title")?.contains("lictor") { "ours" } else { "floor" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const PEERS: &str = r#"{"machine": {"cores": 2, "processor": "X", "fdatasyncMilliseconds": {"p50": 0.92}},
        "peers": {"runs": 2, "load": ["20.5 19 18 3/4", "22 19 18 3/4"], "patienceSeconds": 75, "hangingSeconds": 25, "awaySeconds": 20, "afterwardsSeconds": 10, "contenders": [
        {"id": "a", "title": "`consul lock`", "timing": "TTL 15 s", "faults": {
            "killed": {"runs": 2, "never": 0, "next": {"p50": 39.5, "max": 40.25}, "both": {"max": 9.9}, "goesOn": 2, "nobody": {"p50": 0, "max": 0}},
            "hung": {"runs": 2, "never": 2, "next": null, "both": {"max": 0}, "goesOn": 0, "nobody": {"p50": 25, "max": 25}},
            "away": {"runs": 2, "never": 2, "next": null, "both": {"max": 0}, "goesOn": 0, "nobody": {"p50": 12, "max": 13}}},
         "start": null,
         "rest": {"requestsAnHour": 720.4, "bytesAnHour": 2500000, "processorSecondsAnHour": 3.14, "residentMiB": [40, 41.26]}},
        {"id": "b", "title": "`lictor agent`", "timing": "TTL 10 s", "faults": {
            "killed": {"runs": 2, "never": 1, "next": {"p50": 0.02, "max": 0.02}, "both": {"max": 0}, "goesOn": 0, "nobody": {"p50": 0, "max": 0}},
            "away": {"runs": 2, "never": 0, "next": null, "both": null, "goesOn": 0, "nobody": {"p50": 0.2, "max": 0.3}}},
         "start": {"seconds": {"min": 0.05, "p50": 0.06}, "roundTrips": 2.04},
         "rest": {"requestsAnHour": 10, "bytesAnHour": 2500, "processorSecondsAnHour": 0, "residentMiB": [5]}}]}}"#;

    fn rows(name: &str) -> Vec<String> {
        let table = table(&parsed(PEERS).unwrap(), name).unwrap();
        table.lines().skip(2).map(str::to_owned).collect()
    }

    #[test]
    fn each_contender_has_a_row() {
        assert_eq!(
            rows("peersNext"),
            [
                "| `consul lock` | TTL 15 s | – | 39.50 s (40.25 s) | – | – | not within 25 s | – | 12.00 s (13.00 s) |",
                "| `lictor agent` | TTL 10 s | – | 20 ms (20 ms), and in 1 of 2 not within 75 s | – | – | – | – | never |",
            ]
        );
        assert_eq!(
            rows("peersBoth"),
            [
                "| `consul lock` | – | until somebody ends it: 10 s and on | – | – | – |",
                "| `lictor agent` | – | no | – | – | – |",
            ]
        );
        assert_eq!(
            rows("peersRest"),
            ["| `consul lock` | 720 | 2.5 MB | 3.1 s | 41.3 MiB |", "| `lictor agent` | 10 | 2 kB | 0.0 s | 5.0 MiB |"]
        );
        assert_eq!(rows("peersRun"), ["| X | 2 | 0.9 ms | 20.5 | 22 | 2 |"]);
        assert_eq!(rows("peersStart"), ["| `lictor agent` | 50 ms (60 ms) | 2.0 |"]);
    }

    #[test]
    fn who_is_never_replaced_has_a_bar_that_says_so() {
        let plot = failovers(PEERS).unwrap();
        for text in [">killed: consul lock<", ">39.50 s<", ">its work hangs: consul lock<", ">not within 25 s<"] {
            assert!(plot.contains(text), "{text} is not in {plot}");
        }
        assert!(at_rest(PEERS).unwrap().contains(">720<"));
    }

    #[test]
    fn what_is_not_the_benchmarks_is_refused() {
        assert_eq!(format!("{:#}", failovers("{}").unwrap_err()), "it has no \"contenders\"");
    }
}

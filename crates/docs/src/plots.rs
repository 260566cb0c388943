//! docs/pictures/*.svg: bars, from what the benchmark and `make e2e-node` measured.

use std::fmt::Write as _;

use anyhow::{Context, ensure};
use serde_json::Value;

/// The causes of a failover that the benchmark measures, by their names in its file.
pub(crate) const CAUSES: [(&str, &str); 2] =
    [("deletion", "the leader's pod is deleted"), ("unready", "the leader is not ready")];

/// Returns the plot of failovers beside their floor, from the JSON of `make bench`. `part` is the benchmark's name for them, and `store`
/// where the locks are.
///
/// # Errors
/// If the text has no such figures.
pub fn failover(json: &str, part: &str, store: &str) -> anyhow::Result<String> {
    let all = parsed(json)?;
    let mut rows = Vec::new();
    for (name, cause) in CAUSES {
        for percentile in ["p50", "p99"] {
            let bar = |what: &str, class| -> anyhow::Result<Bar> {
                let value = number(&all, &format!("/{part}/{name}/{what}/{percentile}"))?;
                Ok(Bar { value, text: format!("{value:.1} ms"), class })
            };
            let bars = vec![bar("total", "ours")?, bar("floor", "floor")?];
            rows.push(Row { label: format!("{cause}, {percentile}"), bars });
        }
    }
    Ok(Plot {
        title: format!("Failover, with locks in {store}"),
        legend: vec![
            ("ours", "lictor: from the cause to the next leader's label"),
            ("floor", "floor: the same writes in a row, and nothing else"),
        ],
        rows,
    }
    .draw())
}

/// Returns the plot of lost calls by cause, from the JSON of `make e2e-node`.
///
/// # Errors
/// If the text has no such figures.
pub fn calls_lost(json: &str) -> anyhow::Result<String> {
    let all = parsed(json)?;
    let causes = all["failovers"].as_array().filter(|causes| !causes.is_empty()).context("it has no \"failovers\"")?;
    let mut rows = Vec::new();
    for (at, cause) in causes.iter().enumerate() {
        let (before, after) = match cause["table"].as_str() {
            Some("quiet") => ("the leader is ", ""),
            Some("noisy") => ("the leader is ", ", other Services change"),
            _ => ("", ""),
        };
        let label = format!("{before}{}{after}", text(&all, &format!("/failovers/{at}/cause"))?.replace('`', ""));
        let (median, max) = (number(cause, "/lost/median"), number(cause, "/lost/max"));
        let (median, max) = (median.context(label.clone())?, max.context(label.clone())?);
        let class = if label.contains("by hand") { "floor" } else { "ours" };
        rows.push(Row { label, bars: vec![Bar { value: median, text: format!("{median} ({max})"), class }] });
    }
    Ok(Plot {
        title: "Calls lost, of one each 5 ms: the median of the runs (and the most)".into(),
        legend: vec![("ours", "lictor moves the leader"), ("floor", "floor: a label moved by hand, kube-proxy alone")],
        rows,
    }
    .draw())
}

pub(crate) fn parsed(json: &str) -> anyhow::Result<Value> {
    serde_json::from_str(json).context("it is not JSON")
}

pub(crate) fn number(all: &Value, at: &str) -> anyhow::Result<f64> {
    let value = all.pointer(at).and_then(Value::as_f64).with_context(|| format!("it has no number at {at}"))?;
    ensure!(value >= 0.0, "the number at {at} is negative");
    Ok(value)
}

/// A text, or a number as text.
pub(crate) fn text(all: &Value, at: &str) -> anyhow::Result<String> {
    match all.pointer(at) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => anyhow::bail!("it has no text at {at}"),
    }
}

/// Bars from left to right, in rows. Each row's label is above its bars, where even a long one has room.
pub(crate) struct Plot {
    pub title: String,
    /// The classes of bars, each with what it means.
    pub legend: Vec<(&'static str, &'static str)>,
    pub rows: Vec<Row>,
}

pub(crate) struct Row {
    pub label: String,
    pub bars: Vec<Bar>,
}

pub(crate) struct Bar {
    pub value: f64,
    pub text: String,
    pub class: &'static str,
}

/// Narrow enough to be read on a phone.
const WIDTH: f64 = 660.0;
const MARGIN: f64 = 16.0;
/// What the text at the end of the longest bar needs.
const TEXT: f64 = 90.0;
const BAR: f64 = 16.0;
const GAP: f64 = 10.0;
/// The height of a line of text.
const LINE: f64 = 18.0;

/// Readable in light and in dark, in the colours of the dashboard.
const STYLE: &str = "text { font: 13px system-ui, sans-serif; fill: #1b232c } .title { font-weight: bold; font-size: 15px } \
                     .card { fill: #ffffff } .ours { fill: #0b57d0 } .floor { fill: #789 } \
                     @media (prefers-color-scheme: dark) { text { fill: #e6ebf0 } .card { fill: #12171d } .ours { fill: #8ab4f8 } }";

impl Plot {
    pub(crate) fn draw(&self) -> String {
        let most = self.rows.iter().flat_map(|row| &row.bars).map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
        let room = WIDTH - 2.0 * MARGIN - TEXT;
        let mut picture = Picture::default();
        picture.text(MARGIN, MARGIN + 14.0, "title", &self.title);
        let mut y = MARGIN + 28.0;
        for (class, meaning) in &self.legend {
            picture.rectangle(MARGIN, y, 12.0, 12.0, class);
            picture.text(MARGIN + 18.0, y + 10.5, "", meaning);
            y += LINE;
        }
        y += GAP;
        for row in &self.rows {
            picture.text(MARGIN, y + LINE - 5.0, "", &row.label);
            y += LINE;
            for bar in &row.bars {
                let width = (bar.value / most * room).max(1.0);
                picture.rectangle(MARGIN, y + 1.0, width, BAR - 2.0, bar.class);
                picture.text(MARGIN + width + 6.0, y + BAR / 2.0 + 4.5, "", &bar.text);
                y += BAR;
            }
            y += GAP;
        }
        picture.finish(&self.title, y + MARGIN - GAP)
    }
}

/// The parts of an SVG.
#[derive(Default)]
struct Picture(String);

impl Picture {
    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let text = escaped(text);
        let _ = writeln!(self.0, "  <text x=\"{x:.1}\" y=\"{y:.1}\"{class}>{text}</text>");
    }

    fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let at = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
        let _ = writeln!(self.0, "  <rect {at} rx=\"2\" class=\"{class}\"/>");
    }

    fn finish(self, title: &str, height: f64) -> String {
        format!(
            "<svg role=\"img\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n  \
             <title>{}</title>\n  <style>{STYLE}</style>\n  <rect width=\"100%\" height=\"100%\" rx=\"6\" class=\"card\"/>\n{}</svg>\n",
            escaped(title),
            self.0
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use super::*;

    const BENCH: &str = r#"{"failover": {
        "deletion": {"total": {"p50": 10, "p99": 40}, "floor": {"p50": 8, "p99": 30}},
        "unready": {"total": {"p50": 11.04, "p99": 20}, "floor": {"p50": 0, "p99": 10}}}}"#;

    #[test]
    fn a_bar_is_as_long_as_its_value() {
        let plot = failover(BENCH, "failover", "Leases").unwrap();
        let bars: Vec<&str> = plot.lines().filter(|line| line.contains("height=\"14.0\"")).collect();
        let widths: Vec<&str> =
            bars.iter().map(|bar| bar.split("width=\"").nth(1).unwrap().split('"').next().unwrap()).collect();
        let room = WIDTH - 2.0 * MARGIN - TEXT;
        assert_eq!(
            widths,
            [10.0, 8.0, 40.0, 30.0, 11.04, 0.0, 20.0, 10.0]
                .map(|value| format!("{:.1}", (value / 40.0 * room).max(1.0)))
        );
        assert!(
            plot.contains(">11.0 ms</text>") && plot.contains(">the leader's pod is deleted, p99</text>"),
            "{plot}"
        );
    }

    #[test]
    fn each_cause_has_a_row() {
        let plot = calls_lost(
            r#"{"failovers": [{"cause": "by hand: `a` < b", "lost": {"median": 5, "max": 7}}, {"cause": "killed", "lost": {"median": 50, "max": 50}}]}"#,
        )
        .unwrap();
        for text in [">by hand: a &lt; b<", ">5 (7)<", ">killed<", ">50 (50)<"] {
            assert!(plot.contains(text), "{text} is not in {plot}");
        }
    }

    #[test]
    fn what_is_not_the_benchmarks_is_refused() {
        let error = |json: &str| format!("{:#}", failover(json, "failover", "Leases").unwrap_err());
        assert!(error("{").starts_with("it is not JSON: "), "{}", error("{"));
        assert_eq!(error("{}"), "it has no number at /failover/deletion/total/p50");
        assert_eq!(error(&BENCH.replace("40", "-40")), "the number at /failover/deletion/total/p99 is negative");
        let error = |json: &str| format!("{:#}", calls_lost(json).unwrap_err());
        assert_eq!(error("{}"), "it has no \"failovers\"");
        assert_eq!(error(r#"{"failovers": [{"cause": "killed"}]}"#), "killed: it has no number at /lost/median");
    }
}

//! Figures and their output.

use serde_json::{Value, json};

/// Values of one kind, in milliseconds or seconds.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        let at = self.0.partition_point(|known| *known < value);
        self.0.insert(at, value);
    }

    /// Returns the value that this percentage of values does not exceed (the nearest rank, so always a measured value).
    pub fn percentile(&self, percent: u32) -> f64 {
        let rank = (self.0.len() * percent as usize).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the median.
    pub fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// Returns the largest value.
    pub fn greatest(&self) -> f64 {
        self.percentile(100)
    }

    /// Returns all values.
    pub fn to_json(&self) -> Value {
        json!({
            "count": self.0.len(), "min": self.percentile(0), "p50": self.median(), "p90": self.percentile(90),
            "p99": self.percentile(99), "max": self.greatest(), "sorted": self.0,
        })
    }
}

impl Extend<f64> for Sample {
    fn extend<T: IntoIterator<Item = f64>>(&mut self, values: T) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }
}

/// The table, row by row.
#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    limit: Option<f64>,
}

impl Row {
    /// Returns whether the target is met, if there is one. A value that could not be computed meets no target.
    fn met(&self) -> Option<bool> {
        self.limit.map(|limit| self.value <= limit)
    }
}

impl Report {
    /// Adds a figure.
    pub fn figure(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.rows.push(Row { what: what.into(), value, unit, limit: None });
    }

    /// Adds a figure that must be at most `limit`.
    pub fn target(&mut self, what: impl Into<String>, value: f64, unit: &'static str, limit: f64) {
        self.rows.push(Row { what: what.into(), value, unit, limit: Some(limit) });
    }

    /// Prints the table on the standard output, as Markdown.
    pub fn print(&self) {
        let width = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or_default();
        println!("| {:width$} | {:>14} | {:>12} | met    |", "what", "measured", "target");
        println!("|{}|{}|{}|--------|", "-".repeat(width + 2), "-".repeat(16), "-".repeat(14));
        for row in &self.rows {
            let Row { what, value, unit, limit } = row;
            let target = limit.map(|limit| format!("<= {}", shown(limit, unit))).unwrap_or_default();
            let met = row.met().map_or("", |met| if met { "ok" } else { "MISSED" });
            println!("| {what:width$} | {:>14} | {target:>12} | {met:6} |", shown(*value, unit));
        }
    }

    /// Returns the figures that missed their targets.
    pub fn missed(&self) -> Vec<&str> {
        self.rows.iter().filter(|row| row.met() == Some(false)).map(|row| row.what.as_str()).collect()
    }

    /// Returns the table as JSON.
    pub fn to_json(&self) -> Value {
        let row = |row: &Row| json!({"what": row.what, "value": row.value, "unit": row.unit, "target": row.limit, "met": row.met()});
        self.rows.iter().map(row).collect()
    }
}

fn shown(value: f64, unit: &str) -> String {
    let number = if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

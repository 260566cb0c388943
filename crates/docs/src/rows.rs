//! The rows of a Markdown table, and the lists and times in them.

use std::fmt::Write as _;

use anyhow::Context;
use serde_json::Value;

pub(crate) fn head(columns: &[&str]) -> String {
    let mut table = String::new();
    row(&mut table, columns);
    let _ = writeln!(table, "|{}", "---|".repeat(columns.len()));
    table
}

pub(crate) fn row(table: &mut String, cells: &[impl AsRef<str>]) {
    for cell in cells {
        let _ = write!(table, "| {} ", cell.as_ref());
    }
    table.push_str("|\n");
}

pub(crate) fn list<'a>(all: &'a Value, name: &str) -> anyhow::Result<&'a Vec<Value>> {
    all[name].as_array().filter(|list| !list.is_empty()).with_context(|| format!("it has no \"{name}\""))
}

pub(crate) fn seconds(value: f64) -> String {
    if value < 0.9995 { format!("{:.0} ms", value * 1000.0) } else { format!("{value:.2} s") }
}

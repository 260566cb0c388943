//! docs/values.md: the chart's values, from the chart's README, which helm-docs makes.

use anyhow::{Context, ensure};

use crate::rows::{head, row};

const HEAD: &str = "# Chart values\n\n\
    Made from `charts/lictor/values.yaml` by `make fix`. [install.md](install.md#values-that-matter) says which ones to decide about first.\n\n";

/// Returns the page. The chart's table has a column of its own for defaults, which leaves little room for the rest.
///
/// # Errors
/// If the README has no table of values with four columns.
pub fn page(readme: &str) -> anyhow::Result<String> {
    let (_, section) = readme.split_once("\n## Values\n\n").context("it has no section \"Values\"")?;
    let rows: Vec<_> = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")).collect();
    let mut table = head(&["value", "meaning"]);
    for line in rows.iter().skip(1) {
        let cells: Vec<_> = line.splitn(4, " | ").collect();
        let [name, _, default, meaning] = cells.as_slice() else {
            anyhow::bail!("this row has not four cells: {line}")
        };
        let meaning = match *default {
            "`\"\"`" | "`[]`" | "`{}`" | "`null`" => (*meaning).to_owned(),
            default => format!("{} Default: {default}", ended(meaning)),
        };
        row(&mut table, &[format!("`{name}`"), meaning]);
    }
    ensure!(rows.len() > 2, "the table of values is empty");
    Ok(format!("{HEAD}{table}"))
}

/// The text with a full stop at its end.
fn ended(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_default_that_is_empty_goes_without_saying() {
        let made = page(
            "# x\n\n## Values\n\n| Key | Type | Default | Description |\n|-----|------|---------|-------------|\n\
             | a.b | string | `\"\"` | The name. |\n| c | int | `2` | How many |\n",
        );
        let rows: Vec<_> = made.as_deref().unwrap().lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows, ["| `a.b` | The name. |", "| `c` | How many. Default: `2` |"]);
        assert!(page("# x\n").is_err() && page("# x\n\n## Values\n\nnone\n").is_err());
    }
}

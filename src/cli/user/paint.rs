//! Colours and tables, in the layout of kubectl.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

/// The meaning of a colour. Without colours, the words say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Strong,
    Faint,
    Good,
    Doubtful,
    Bad,
}

/// Returns a text in a tone. [`print`](crate::cli::support::print) removes unwanted colours again.
pub(super) fn paint(tone: Tone, text: &str) -> String {
    let style = match tone {
        Tone::Plain => return text.into(),
        Tone::Strong => Style::new().bold(),
        Tone::Faint => Style::new().dimmed(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Doubtful => AnsiColor::Yellow.on_default(),
        Tone::Bad => AnsiColor::Red.on_default(),
    };
    format!("{style}{text}{style:#}")
}

/// One cell of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    /// Returns the text without its tone.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Returns rows of cells as lines, with each column as wide as its widest cell. Empty cells of the first row are
/// headings without text.
pub(super) fn table(rows: &[Vec<Cell>]) -> String {
    const GAP: usize = 3;
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut lines = String::new();
    for row in rows {
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or_default();
        for (column, cell) in row.iter().enumerate().take(last + 1) {
            lines += &paint(cell.tone, &cell.text);
            if column < last {
                let gap = widths[column] - cell.text.chars().count() + GAP;
                let _ = write!(lines, "{:gap$}", "");
            }
        }
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_is_seen_and_no_line_ends_with_blanks() {
        let rows = [
            vec!["NAME".into(), "LEADER".into(), "AGE".into()],
            vec!["web".into(), Cell::new("wéb-0", Tone::Bad), "5s".into()],
            vec!["shop-front".into(), "".into(), "".into()],
        ];
        let red = paint(Tone::Bad, "wéb-0");
        let expected = format!("NAME         LEADER   AGE\nweb          {red}    5s\nshop-front\n");
        assert_eq!(table(&rows), expected);
        assert_eq!(table(&[]), "");
    }
}

//! A terminal on which a text is shown again and again in the same place.

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen, size,
};
use crossterm::{cursor, execute, queue};

/// The rows of a terminal that does not tell its size.
const USUAL_ROWS: u16 = 24;

/// The terminal's second screen. When this value is dropped, the terminal is as it was before.
pub(super) struct Screen {
    colours: bool,
}

impl Screen {
    /// Opens it. `None`: the standard output is no terminal, or one that can't move its cursor.
    ///
    /// # Errors
    /// If the terminal can't be written.
    pub(super) fn open() -> io::Result<Option<Self>> {
        if !io::stdout().is_terminal() || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return Ok(None);
        }
        let screen = Self { colours: AutoStream::choice(&io::stdout()) != ColorChoice::Never };
        // The terminal cuts off what does not fit its width.
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide, DisableLineWrap)?;
        Ok(Some(screen))
    }

    /// Returns how many lines fit.
    pub(super) fn rows() -> usize {
        size().map_or(USUAL_ROWS, |(_, rows)| rows).max(1).into()
    }

    /// Replaces the text. Lines that do not fit are left out.
    ///
    /// # Errors
    /// If the terminal can't be written.
    pub(super) fn show(&mut self, text: &str) -> io::Result<()> {
        let mut output = io::stdout().lock();
        queue!(output, BeginSynchronizedUpdate, cursor::MoveTo(0, 0))?;
        for (row, line) in text.lines().take(Self::rows()).enumerate() {
            if row > 0 {
                write!(output, "\r\n")?;
            }
            if self.colours {
                write!(output, "{line}")?;
            } else {
                write!(output, "{}", anstream::adapter::strip_str(line))?;
            }
            queue!(output, Clear(ClearType::UntilNewLine))?;
        }
        queue!(output, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        output.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = execute!(io::stdout(), EnableLineWrap, cursor::Show, LeaveAlternateScreen);
    }
}

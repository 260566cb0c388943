//! Durations as Go's `time.ParseDuration` reads them.

use std::time::Duration;

/// Reads a duration such as "10s", "1h0m0s" or "1.5s".
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let length = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanoseconds += number
            * match &rest[..length] {
                "h" => 3600e9,
                "m" => 60e9,
                "s" => 1e9,
                "ms" => 1e6,
                "us" | "µs" | "μs" => 1e3,
                "ns" => 1.0,
                _ => return None,
            };
        rest = &rest[length..];
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(nanoseconds / 1e9).ok() }
}

/// Writes whole seconds as "10s", and anything else in milliseconds as "1500ms".
pub(super) fn format(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_writes_is_read() {
        for (text, milliseconds) in [
            ("10s", 10_000),
            ("1h0m0s", 3_600_000),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "10", "s", "10x", "-5s", "1..5s"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(format(Duration::from_secs(15)), "15s");
        assert_eq!(format(Duration::from_millis(1500)), "1500ms");
    }
}

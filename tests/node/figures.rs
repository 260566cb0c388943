//! The tables of measurements, and the same as JSON, of which `make plots` makes tables and pictures.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::group::Failover;
use crate::keeper::Kept;

/// Which table a failover is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Failures,
    /// Leaders that are moved or deleted while they can answer, and nothing else changes.
    Quiet,
    /// The same while slices of other Services change.
    Noisy,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Self::Failures => "failures",
            Self::Quiet => "quiet",
            Self::Noisy => "noisy",
        }
    }
}

/// The rows by cause, in the order of measurement.
#[derive(Default)]
pub struct Figures {
    rows: Vec<((Table, String), Vec<Run>)>,
    connections: Vec<(String, Vec<Kept>)>,
    times: Vec<(String, Vec<Duration>)>,
}

struct Run {
    failover: Failover,
    /// The machine's load at the end: the average of the last minute.
    load: f64,
}

impl Figures {
    /// Adds a run of this kind. It must not exceed these limits, however busy the machine is.
    pub fn failover(&mut self, cause: &str, run: Failover) {
        self.switch(Table::Failures, cause, run);
    }

    /// Does the same for one of these tables.
    pub fn switch(&mut self, table: Table, cause: &str, failover: Failover) {
        let load = load();
        let Failover { lost, to_label, to_reach, silence, steps, .. } = failover;
        println!(
            "{}, {cause}: {lost} calls lost, label after {to_label:.1?}, answer after {to_reach:.1?}, none for {silence:.1?}; \
             load {load}; {steps:.1?}",
            table.name()
        );
        let in_time = failover.to_label < Duration::from_secs(30) && failover.to_answer < Duration::from_secs(10);
        assert!(in_time, "{cause}: {failover:?}");
        add(&mut self.rows, (table, cause.to_owned()), Run { failover, load });
    }

    /// Adds what became of a connection that was open.
    pub fn connection(&mut self, change: &str, kept: Kept) {
        println!("connection, {change}: {kept:.1?}");
        add(&mut self.connections, change.to_owned(), kept);
    }

    /// Adds a time that is not a failover.
    pub fn time(&mut self, what: &str, time: Duration) {
        println!("{what}: {time:.1?}");
        add(&mut self.times, what.to_owned(), time);
    }

    /// Panics if a leader that can still answer was replaced behind its Service, and calls were lost in most of the runs.
    pub fn assert_switches_lose_nothing(&self) {
        let is_switch = |cause: &str| !cause.starts_with("killed") && cause.ends_with("its Service");
        for ((table, cause), runs) in self.rows.iter().filter(|((_, cause), _)| is_switch(cause)) {
            let lossless = runs.iter().filter(|run| run.failover.lost == 0).count();
            assert!(
                2 * lossless > runs.len(),
                "{}, {cause}: {lossless} of {} runs lost nothing",
                table.name(),
                runs.len()
            );
        }
    }

    /// Prints the medians and, in parentheses, the maxima.
    pub fn print(&self) {
        println!(
            "\n| | cause | runs | without a lost call | calls lost | cause to label | label to answer | cause to answer | without any answer |\n\
             |---|---|---|---|---|---|---|---|---|"
        );
        for ((table, cause), runs) in &self.rows {
            let of = |field: fn(&Failover) -> Duration| seconds(runs.iter().map(|run| field(&run.failover)).collect());
            let mut lost: Vec<usize> = runs.iter().map(|run| run.failover.lost).collect();
            lost.sort_unstable();
            println!(
                "| {} | {cause} | {} | {} | {} ({}) | {} | {} | {} | {} |",
                table.name(),
                runs.len(),
                lost.iter().filter(|lost| **lost == 0).count(),
                lost[lost.len() / 2],
                lost[lost.len() - 1],
                of(|run| run.to_label),
                of(|run| run.to_answer),
                of(|run| run.to_reach),
                of(|run| run.silence),
            );
        }
        println!(
            "\n| | cause | asked to seen | to the record | to the slice | to the answer |\n|---|---|---|---|---|---|"
        );
        for ((table, cause), runs) in &self.rows {
            let parts: Vec<[Duration; 4]> = runs.iter().filter_map(|run| parts(&run.failover)).collect();
            if !parts.is_empty() {
                let of = |at: usize| seconds(parts.iter().map(|parts| parts[at]).collect());
                println!("| {} | {cause} | {} | {} | {} | {} |", table.name(), of(0), of(1), of(2), of(3));
            }
        }
        println!(
            "\n| connection | runs | it stays | the next one goes there, too | it ends | the next leader answers | requests lost |\n|---|---|---|---|---|---|---|"
        );
        for (change, kept) in &self.connections {
            let of = |field: fn(&Kept) -> Option<Duration>| {
                let times: Vec<_> = kept.iter().filter_map(field).collect();
                if times.is_empty() { "-".into() } else { seconds(times) }
            };
            let mut lost: Vec<usize> = kept.iter().map(|kept| kept.lost).collect();
            lost.sort_unstable();
            println!(
                "| {change} | {} | {} | {} | {} | {} | {} ({}) |",
                kept.len(),
                kept.iter().filter(|kept| kept.ended.is_none()).count(),
                kept.iter().filter(|kept| kept.ended.is_some() && kept.reached.is_none()).count(),
                of(|kept| kept.ended),
                of(|kept| kept.reached),
                lost[lost.len() / 2],
                lost[lost.len() - 1],
            );
        }
        println!("\n| | runs | time |\n|---|---|---|");
        for (what, times) in &self.times {
            println!("| {what} | {} | {} |", times.len(), seconds(times.clone()));
        }
    }

    /// Writes the same figures to this file.
    pub fn write(&self, path: &Path) {
        let failovers: Vec<_> = self.rows.iter().map(|((table, cause), runs)| failovers(*table, cause, runs)).collect();
        let connections: Vec<_> = self.connections.iter().map(|(change, kept)| connections(change, kept)).collect();
        let time = |(what, times): &(String, Vec<Duration>)| json!({"what": what, "runs": times.len(), "seconds": times_summary(times.iter().copied())});
        let times: Vec<_> = self.times.iter().map(time).collect();
        let all = json!({"failovers": failovers, "connections": connections, "times": times});
        let text = serde_json::to_string_pretty(&all).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text + "\n").unwrap();
        println!("\nwritten: {}", path.display());
    }
}

/// The times from one step to the next: cause, record, slice, answer.
fn parts(run: &Failover) -> Option<[Duration; 4]> {
    let steps = run.steps?;
    // Watches are apart, so that a step may be seen before the one before it.
    let record = steps.record.saturating_sub(steps.cause);
    let slice = steps.slice.saturating_sub(steps.record);
    Some([steps.cause, record, slice, run.to_reach.saturating_sub(steps.slice)])
}

fn failovers(table: Table, cause: &str, runs: &[Run]) -> Value {
    let of = |field: fn(&Failover) -> Duration| times_summary(runs.iter().map(|run| field(&run.failover)));
    let part = |at: usize| times_summary(runs.iter().filter_map(|run| parts(&run.failover)).map(|parts| parts[at]));
    json!({
        "table": table.name(),
        "cause": cause,
        "runs": runs.len(),
        "lostNone": runs.iter().filter(|run| run.failover.lost == 0).count(),
        "lost": summary(runs.iter().map(|run| run.failover.lost)),
        "toLabelSeconds": of(|run| run.to_label),
        "toAnswerSeconds": of(|run| run.to_answer),
        "toReachSeconds": of(|run| run.to_reach),
        "silenceSeconds": of(|run| run.silence),
        "parts": {
            "toCauseSeconds": part(0), "toRecordSeconds": part(1), "toSliceSeconds": part(2), "toAnswerSeconds": part(3),
        },
        "load": summary(runs.iter().map(|run| run.load)),
    })
}

fn connections(change: &str, kept: &[Kept]) -> Value {
    json!({
        "change": change,
        "runs": kept.len(),
        "stayed": kept.iter().filter(|kept| kept.ended.is_none()).count(),
        "returned": kept.iter().filter(|kept| kept.ended.is_some() && kept.reached.is_none()).count(),
        "endedSeconds": times_summary(kept.iter().filter_map(|kept| kept.ended)),
        "reachedSeconds": times_summary(kept.iter().filter_map(|kept| kept.reached)),
        "lost": summary(kept.iter().map(|kept| kept.lost)),
    })
}

fn times_summary(times: impl Iterator<Item = Duration>) -> Value {
    summary(times.map(|time| time.as_secs_f64()))
}

/// Median and maximum; null where there is none.
fn summary<T: PartialOrd + Copy + Into<Value>>(values: impl Iterator<Item = T>) -> Value {
    let mut values: Vec<T> = values.collect();
    values.sort_by(|one, other| one.partial_cmp(other).unwrap());
    match values.as_slice() {
        [] => Value::Null,
        [.., max] => json!({"median": values[values.len() / 2].into(), "max": (*max).into()}),
    }
}

/// The machine's load of the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

fn add<K: PartialEq, T>(rows: &mut Vec<(K, Vec<T>)>, name: K, run: T) {
    match rows.iter_mut().find(|(known, _)| *known == name) {
        Some((_, runs)) => runs.push(run),
        None => rows.push((name, vec![run])),
    }
}

fn seconds(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!("{:.3} s ({:.3} s)", times[times.len() / 2].as_secs_f64(), times[times.len() - 1].as_secs_f64())
}

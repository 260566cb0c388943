//! The table of measurements, and the same as JSON, of which `make plots` makes a picture.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::group::Failover;

/// The rows by cause, in the order of measurement.
#[derive(Default)]
pub struct Figures {
    rows: Vec<(String, Vec<Failover>)>,
    times: Vec<(String, Vec<Duration>)>,
}

impl Figures {
    /// Adds a run of this kind. It must not exceed these limits, however busy the machine is.
    pub fn failover(&mut self, cause: &str, run: Failover) {
        println!("{cause}: {run:.1?}");
        assert!(run.to_label < Duration::from_secs(30) && run.to_answer < Duration::from_secs(10), "{cause}: {run:?}");
        add(&mut self.rows, cause, run);
    }

    /// Adds a time that is not a failover.
    pub fn time(&mut self, what: &str, time: Duration) {
        println!("{what}: {time:.1?}");
        add(&mut self.times, what, time);
    }

    /// Prints the medians and, in parentheses, the maxima.
    pub fn print(&self) {
        println!(
            "\n| cause | runs | calls lost | cause to label | label to answer | cause to answer | without any answer |\n|---|---|---|---|---|---|---|"
        );
        for (cause, runs) in &self.rows {
            let of = |field: fn(&Failover) -> Duration| seconds(runs.iter().map(field).collect());
            let mut lost: Vec<usize> = runs.iter().map(|run| run.lost).collect();
            lost.sort_unstable();
            println!(
                "| {cause} | {} | {} ({}) | {} | {} | {} | {} |",
                runs.len(),
                lost[lost.len() / 2],
                lost[lost.len() - 1],
                of(|run| run.to_label),
                of(|run| run.to_answer),
                of(|run| run.to_reach),
                of(|run| run.silence),
            );
        }
        println!("\n| | runs | time |\n|---|---|---|");
        for (what, times) in &self.times {
            println!("| {what} | {} | {} |", times.len(), seconds(times.clone()));
        }
    }

    /// Writes the same figures to this file.
    pub fn write(&self, path: &Path) {
        let failovers: Vec<_> = self.rows.iter().map(|(cause, runs)| failovers(cause, runs)).collect();
        let time = |(what, times): &(String, Vec<Duration>)| {
            let seconds = summary(times.iter().map(Duration::as_secs_f64));
            json!({"what": what, "runs": times.len(), "seconds": seconds})
        };
        let times: Vec<_> = self.times.iter().map(time).collect();
        let text = serde_json::to_string_pretty(&json!({"failovers": failovers, "times": times})).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text + "\n").unwrap();
        println!("\nwritten: {}", path.display());
    }
}

fn failovers(cause: &str, runs: &[Failover]) -> Value {
    let of = |field: fn(&Failover) -> Duration| summary(runs.iter().map(field).map(|time| time.as_secs_f64()));
    json!({
        "cause": cause,
        "runs": runs.len(),
        "lost": summary(runs.iter().map(|run| run.lost)),
        "toLabelSeconds": of(|run| run.to_label),
        "toAnswerSeconds": of(|run| run.to_answer),
        "toReachSeconds": of(|run| run.to_reach),
        "silenceSeconds": of(|run| run.silence),
    })
}

fn summary<T: PartialOrd + Copy + Into<Value>>(values: impl Iterator<Item = T>) -> Value {
    let mut values: Vec<T> = values.collect();
    values.sort_by(|one, other| one.partial_cmp(other).unwrap());
    json!({"median": values[values.len() / 2].into(), "max": values[values.len() - 1].into()})
}

fn add<T>(rows: &mut Vec<(String, Vec<T>)>, name: &str, run: T) {
    match rows.iter_mut().find(|(known, _)| known == name) {
        Some((_, runs)) => runs.push(run),
        None => rows.push((name.to_owned(), vec![run])),
    }
}

fn seconds(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!("{:.3} s ({:.3} s)", times[times.len() / 2].as_secs_f64(), times[times.len() - 1].as_secs_f64())
}

//! The table of measurements.

use std::time::Duration;

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
            "\n| cause | runs | calls lost | cause to label | label to answer | without any answer |\n|---|---|---|---|---|---|"
        );
        for (cause, runs) in &self.rows {
            let of = |field: fn(&Failover) -> Duration| seconds(runs.iter().map(field).collect());
            let mut lost: Vec<usize> = runs.iter().map(|run| run.lost).collect();
            lost.sort_unstable();
            println!(
                "| {cause} | {} | {} ({}) | {} | {} | {} |",
                runs.len(),
                lost[lost.len() / 2],
                lost[lost.len() - 1],
                of(|run| run.to_label),
                of(|run| run.to_answer),
                of(|run| run.silence),
            );
        }
        println!("\n| | runs | time |\n|---|---|---|");
        for (what, times) in &self.times {
            println!("| {what} | {} | {} |", times.len(), seconds(times.clone()));
        }
    }
}

fn add<T>(rows: &mut Vec<(String, Vec<T>)>, name: &str, run: T) {
    match rows.iter_mut().find(|(known, _)| known == name) {
        Some((_, runs)) => runs.push(run),
        None => rows.push((name.to_owned(), vec![run])),
    }
}

fn seconds(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!("{:.2} s ({:.2} s)", times[times.len() / 2].as_secs_f64(), times[times.len() - 1].as_secs_f64())
}

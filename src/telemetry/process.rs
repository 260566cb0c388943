//! The figures of this process that every Prometheus exporter has, under their usual names. They are read from /proc.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Reads the figures when Prometheus asks for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process;

/// The figures of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    cpu_seconds: f64,
    threads: u64,
    /// Seconds since 1970.
    start_time: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        if let Some(figures) = own_figures() {
            let cpu = ConstCounter::new(figures.cpu_seconds);
            let help = "Time that the process has spent on a CPU";
            cpu.encode(encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), cpu.metric_type())?)?;
            let start = ConstGauge::new(figures.start_time);
            let help = "When the process started, in seconds since 1970";
            let kind = start.metric_type();
            start.encode(encoder.encode_descriptor("process_start_time", help, Some(&Unit::Seconds), kind)?)?;
            number(&mut encoder, "process_resident_memory_bytes", "Memory in use", figures.resident_bytes)?;
            number(&mut encoder, "process_virtual_memory_bytes", "Address space in use", figures.virtual_bytes)?;
            number(&mut encoder, "process_threads", "Threads", figures.threads)?;
        }
        if let Some(open) = open_files() {
            number(&mut encoder, "process_open_fds", "Open file descriptors", open)?;
        }
        if let Some(most) = most_files() {
            number(&mut encoder, "process_max_fds", "The most file descriptors that the process may open", most)?;
        }
        Ok(())
    }
}

fn number(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> fmt::Result {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

fn own_figures() -> Option<Figures> {
    let read = |path| std::fs::read_to_string(path).ok();
    let (stat, machine) = (read("/proc/self/stat")?, read("/proc/stat")?);
    let (ticks, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size());
    figures(&stat, &machine, ticks, u64::try_from(page).ok()?)
}

/// Reads /proc/PID/stat and /proc/stat: see proc_pid_stat(5).
#[allow(clippy::cast_precision_loss, reason = "a double is what Prometheus keeps")]
fn figures(stat: &str, machine: &str, ticks: u64, page: u64) -> Option<Figures> {
    // The second field is the program's name, which may have spaces.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let boot: u64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let seconds = |of: u64| of as f64 / ticks as f64;
    Some(Figures {
        cpu_seconds: seconds(field(14)? + field(15)?),
        threads: field(20)?,
        start_time: boot as f64 + seconds(field(22)?),
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page,
    })
}

fn open_files() -> Option<u64> {
    u64::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

fn most_files() -> Option<u64> {
    limit(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

fn limit(limits: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 150 13 14 15 16 9 18 1200 4096000 25 20";
        let machine = "cpu 1 2\nbtime 1700000000\nprocesses 7\n";
        let expected = Figures {
            cpu_seconds: 4.0,
            threads: 9,
            start_time: 1_700_000_012.0,
            virtual_bytes: 4_096_000,
            resident_bytes: 102_400,
        };
        assert_eq!(figures(stat, machine, 100, 4096), Some(expected));
        assert_eq!(figures("", machine, 100, 4096), None);
        assert_eq!(
            limit("Max cpu time  unlimited\nMax open files            1024                 4096  files\n"),
            Some(1024)
        );
        assert_eq!(limit("Max open files  unlimited unlimited files"), None);
    }
}

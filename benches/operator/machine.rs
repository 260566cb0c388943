//! The machine, and what else runs on it.

use std::fs;
use std::io::Write;
use std::time::Instant;

use anyhow::Context;
use serde_json::{Value, json};

use crate::figures::Sample;

/// Describes the machine: cores, memory, kernel, and how fast its storage confirms a small write, which is what etcd waits for.
pub fn describe() -> anyhow::Result<Value> {
    let memory = fs::read_to_string("/proc/meminfo")?;
    let processors = fs::read_to_string("/proc/cpuinfo")?;
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(':').nth(1)).map(|value| value.trim().to_owned())
    };
    Ok(json!({
        "cores": std::thread::available_parallelism()?.get(),
        "processor": after(&processors, "model name"),
        "memory": after(&memory, "MemTotal"),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        "fdatasyncMilliseconds": sync_times()?.to_json().as_object().map(|all| json!({"p50": all["p50"], "p99": all["p99"]})),
        "load": load()?,
    }))
}

/// Returns the load averages of the last 1, 5 and 15 minutes, and the number of runnable threads.
pub fn load() -> anyhow::Result<String> {
    let all = fs::read_to_string("/proc/loadavg")?;
    Ok(all.split(' ').take(4).collect::<Vec<_>>().join(" "))
}

/// How busy all cores are together, from one reading to the next.
pub struct Busy {
    worked: f64,
    idle: f64,
}

impl Busy {
    /// Takes the first reading.
    pub fn look() -> anyhow::Result<Self> {
        let all = fs::read_to_string("/proc/stat")?;
        let line = all.lines().next().context("no line")?;
        let times: Vec<f64> = line.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
        let idle = times.iter().skip(3).take(2).sum();
        // The last two, of guests, are part of the first two.
        Ok(Self { worked: times.iter().take(8).sum::<f64>() - idle, idle })
    }

    /// Returns the share of the time since then in which the cores worked, 0 to 1.
    pub fn share(&self) -> anyhow::Result<f64> {
        let now = Self::look()?;
        let (worked, idle) = (now.worked - self.worked, now.idle - self.idle);
        Ok(if worked + idle > 0.0 { worked / (worked + idle) } else { 0.0 })
    }
}

fn sync_times() -> anyhow::Result<Sample> {
    let path = std::env::temp_dir().join(format!("lictor-bench-sync-{}", std::process::id()));
    let mut file = fs::File::create(&path).with_context(|| path.display().to_string())?;
    let mut times = Sample::default();
    let mut failed = Ok(());
    for _ in 0..200 {
        let start = Instant::now();
        failed = file.write_all(&[1; 4096]).and_then(|()| file.sync_data());
        if failed.is_err() {
            break;
        }
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    fs::remove_file(&path)?;
    failed?;
    Ok(times)
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// The processor seconds, in user and kernel mode.
    pub processor: f64,
    /// The resident memory, in MiB.
    pub resident: f64,
    /// The largest resident memory so far, in MiB.
    pub peak: f64,
}

/// Reads the usage of a process.
pub fn usage(pid: u32) -> anyhow::Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mebibytes = |name: &str| -> anyhow::Result<f64> {
        let line = status.lines().find(|line| line.starts_with(name)).context("no such line")?;
        let kibibytes: f64 = line.split_whitespace().nth(1).context("no value")?.parse()?;
        Ok(kibibytes / 1024.0)
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain anything.
    let rest = stat.rsplit_once(')').context("no name")?.1;
    let ticks =
        |at: usize| -> anyhow::Result<f64> { Ok(rest.split_whitespace().nth(at).context("no value")?.parse()?) };
    // Linux reports hundredths of a second, whatever its own clock.
    let processor = (ticks(11)? + ticks(12)?) / 100.0;
    Ok(Usage { processor, resident: mebibytes("VmRSS:")?, peak: mebibytes("VmHWM:")? })
}

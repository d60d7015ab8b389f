//! What every figure is read against: the machine, this build, and the memory of processes.

use std::time::Duration;

use serde_json::{Value, json};

use super::samples::rounded;
use crate::{build, system};

/// The machine that measured.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    /// Processes that wanted to run in the last minute, before the first measurement.
    load: Option<f64>,
}

impl Machine {
    /// Asks the system.
    pub(super) fn here() -> Self {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let cpu = fs_err::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let load = fs_err::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            cpu: model_name(&cpu).unwrap_or_else(|| text(uname.machine())),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            load: load.split(' ').next().and_then(|first| first.parse().ok()),
        }
    }

    /// Writes it on one line.
    pub(super) fn line(&self) -> String {
        let load = self
            .load
            .map_or_else(String::new, |load| format!(", load {load:.2}"));
        format!("{}, {} cores, {}{load}", self.cpu, self.cores, self.kernel)
    }

    /// Writes it as JSON.
    pub(super) fn json(&self) -> Value {
        json!({ "cpu": self.cpu, "cores": self.cores, "kernel": self.kernel, "load": self.load })
    }
}

/// Writes on one line which build was measured.
pub(super) fn build_line() -> String {
    let commit = build::commit().unwrap_or_else(|| "unknown".to_owned());
    let dirty = if build::dirty() == Some(true) {
        ", with changes"
    } else {
        ""
    };
    format!(
        "{} ({}{dirty})",
        build::VERSION,
        commit.get(..9).unwrap_or(&commit)
    )
}

/// Writes as JSON which build was measured.
pub(super) fn build_json() -> Value {
    json!({
        "version": build::VERSION, "commit": build::commit(), "dirty": build::dirty(),
        "optimised": !cfg!(debug_assertions),
    })
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The memory of a process that is in RAM, in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resident {
    /// All of it, pages of the executable included.
    pub(super) all: u32,
    /// What is the process's own and in no file.
    pub(super) anonymous: u32,
}

impl Resident {
    /// Asks the system; `None` where the process is gone, or the system does not tell.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        Some(Self {
            all: number(status, "VmRSS:")?,
            anonymous: number(status, "RssAnon:")?,
        })
    }

    /// Writes it for a person.
    pub(super) fn text(self) -> String {
        format!(
            "{:.1} MiB, {:.1} MiB of it in no file",
            mib(self.all),
            mib(self.anonymous)
        )
    }

    /// Writes it as JSON.
    pub(super) fn json(self) -> Value {
        json!({
            "resident_mib": rounded(mib(self.all)),
            "anonymous_mib": rounded(mib(self.anonymous)),
        })
    }
}

/// What a process holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// Its memory now.
    pub(super) memory: Resident,
    /// The most memory it had in RAM since it began, or since the peak was reset, in KiB.
    pub(super) peak: u32,
    pub(super) threads: u32,
    pub(super) descriptors: usize,
}

impl Holding {
    /// Asks the system; `None` where the process is gone, or the system does not tell.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let status = fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let descriptors = fs_err::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        Some(Self {
            memory: Resident::parse(&status)?,
            peak: number(&status, "VmHWM:")?,
            threads: number(&status, "Threads:")?,
            descriptors,
        })
    }

    /// Begins the peak anew; says whether the system let it.
    pub(super) fn reset_peak(pid: u32) -> bool {
        fs_err::write(format!("/proc/{pid}/clear_refs"), "5").is_ok()
    }
}

/// Returns how long the threads that a process has now have run; `None` where the system does not
/// tell.
pub(super) fn cpu_time(pid: u32) -> Option<Duration> {
    let threads = fs_err::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut all = Duration::ZERO;
    for thread in threads.flatten() {
        let text = fs_err::read_to_string(thread.path().join("schedstat")).ok()?;
        all += Duration::from_nanos(text.split(' ').next()?.parse().ok()?);
    }
    Some(all)
}

fn number(status: &str, name: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns KiB as MiB.
pub(super) fn mib(kib: u32) -> f64 {
    f64::from(kib) / 1_024.0
}

/// Returns the size of this executable in bytes.
pub(super) fn executable_bytes() -> Option<u64> {
    let path = system::executable().ok()?;
    fs_err::metadata(path).ok().map(|metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_what_the_system_writes() {
        let status = "Name:\tearshot\nVmHWM:\t  9 kB\nVmRSS:\t   10232 kB\nRssAnon:\t    2112 kB\n";
        assert_eq!(
            Resident::parse(status),
            Some(Resident {
                all: 10_232,
                anonymous: 2_112
            })
        );
        assert_eq!(Resident::parse("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn the_holding_of_this_process_is_read() {
        let holding = Holding::of(std::process::id()).expect("this process runs");
        assert!(holding.peak >= holding.memory.all && holding.memory.all > 0);
        assert!(holding.threads > 0 && holding.descriptors > 2);
        assert_eq!(Holding::of(u32::MAX), None);
    }

    #[test]
    fn the_processor_is_named_where_the_system_names_it() {
        assert_eq!(
            model_name("processor\t: 0\nmodel name\t: A B\n").as_deref(),
            Some("A B")
        );
        assert_eq!(model_name("Features : fp\n"), None);
    }
}

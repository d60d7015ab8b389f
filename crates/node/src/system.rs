//! Facts about this host and its processes, asked of the system.

use std::path::{Path, PathBuf};

use earshot_proto::lease::{Pid, Place, Process};

/// Returns an id of this host that lasts: of its machine-id, else of its name.
///
/// It is a hash, short enough for a path, and tells nobody the machine-id.
pub(crate) fn host_id() -> String {
    let seed = ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .find_map(|path| fs_err::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .unwrap_or_else(host_name);
    let hash = blake3::derive_key("earshot 2026 host id", seed.as_bytes());
    blake3::Hash::from_bytes(hash).to_hex()[..12].to_owned()
}

/// Returns the name of this host.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns where this process runs.
pub(crate) fn place(host_id: &str) -> Place {
    Place {
        host_id: host_id.to_owned(),
        boot_id: fs_err::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|text| text.trim().to_owned())
            .unwrap_or_default(),
        pid_ns: namespace("pid"),
        net_ns: namespace("net"),
    }
}

fn namespace(kind: &str) -> Option<u64> {
    let link = fs_err::read_link(format!("/proc/self/ns/{kind}")).ok()?;
    let text = link.to_str()?;
    text.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// Returns this process, as a lease names it.
pub(crate) fn this_process() -> Process {
    let pid = std::process::id();
    Process {
        pid: Pid::new(pid.into()),
        pid_start: process_start(pid).unwrap_or(0),
    }
}

/// Returns when a process started, in clock ticks since boot; `None` when it has ended, be it
/// collected by its parent or not, or the system does not tell.
pub(crate) fn process_start(pid: u32) -> Option<u64> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    start_of_stat(&stat)
}

/// Reads the start time: field 22, counted after the name, which may hold blanks and brackets.
fn start_of_stat(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    let state = after_name.trim_start().chars().next()?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns the time that a process has spent on a processor, in clock ticks; `None` when it has
/// ended.
pub(crate) fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Fields 14 and 15, counted after the name.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system) = (fields.next()?, fields.next()?);
    Some(user.parse::<u64>().ok()? + system.parse::<u64>().ok()?)
}

/// Returns how many clock ticks are a second.
pub(crate) fn ticks_per_second() -> u32 {
    u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100)
}

/// Returns the parent of this process.
pub(crate) fn parent_pid() -> Option<u32> {
    rustix::process::getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok())
}

/// Lists the processes above this one with their start, nearest first, at most so many.
pub(crate) fn ancestors(most: usize) -> Vec<(u32, u64)> {
    let parents = std::iter::successors(parent_pid(), |pid| parent_of(*pid));
    parents
        .take(most)
        .map_while(|pid| Some((pid, process_start(pid)?)))
        .collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 4, counted after the name, which may hold blanks and brackets.
    let after_name = stat.rsplit_once(')')?.1;
    let parent = after_name.split_ascii_whitespace().nth(1)?.parse().ok();
    parent.filter(|parent| *parent != 0)
}

/// Returns the executable of this process, as it was when the process started.
pub(crate) fn executable() -> std::io::Result<PathBuf> {
    std::env::current_exe().map(|path| without_deleted_mark(&path))
}

/// Linux marks the path of a removed executable.
fn without_deleted_mark(path: &Path) -> PathBuf {
    path.to_str()
        .and_then(|text| text.strip_suffix(" (deleted)"))
        .map_or_else(|| path.to_owned(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_anything() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 9 9";
        assert_eq!(start_of_stat(stat), Some(4242));
        let ended = stat.replace(") S 1", ") Z 1");
        assert_eq!(start_of_stat(&ended), None);
        assert_eq!(start_of_stat("7 (a"), None);
        assert_eq!(start_of_stat(""), None);
    }

    #[test]
    fn this_process_has_a_start() {
        assert!(process_start(std::process::id()).is_some());
    }

    #[test]
    fn the_nearest_ancestor_is_the_parent() {
        let above = ancestors(2);
        assert_eq!(above.first().map(|(pid, _)| *pid), parent_pid());
        assert!(above.len() <= 2 && ancestors(0).is_empty());
    }
}

//! Ending a hung holder: only the very process that holds the alive file.

use std::{fs::Metadata, os::unix::fs::MetadataExt as _, path::Path};

use earshot_proto::lease::{Pid, Predecessor};
use rustix::process::{Pid as SystemPid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::system;

/// Ends the process if it is proven to be the holder; says why not otherwise.
///
/// The process is held by a descriptor before the proof is looked at, so that a number given to
/// another process in between cannot mislead.
pub(crate) fn kill_holder(folder: &Path, pid: i32, holder: &Predecessor) -> Result<(), String> {
    let system_pid = SystemPid::from_raw(pid).ok_or("it has no process number")?;
    let process = pidfd_open(system_pid, PidfdFlags::empty()).map_err(|error| error.to_string())?;
    let proven = match fs_err::metadata(folder.join(holder.alive.as_str())) {
        Ok(alive) => lock_holders(&alive).contains(&i64::from(pid)),
        // Only without that file: a process that stood for election again has the same start, and
        // holds another tenure by now.
        Err(_) => holder.process.is_some_and(|process| {
            let start = u32::try_from(pid).ok().and_then(system::process_start);
            start == Some(process.pid_start)
        }),
    };
    if !proven {
        return Err(
            "neither the kernel's lock table nor its start time shows it to be the holder"
                .to_owned(),
        );
    }
    pidfd_send_signal(process, Signal::KILL).map_err(|error| error.to_string())
}

/// Returns a process that holds a lock on this file, where the kernel tells.
pub(super) fn lock_holder(path: &Path) -> Option<Pid> {
    let metadata = fs_err::metadata(path).ok()?;
    lock_holders(&metadata).first().copied().map(Pid::new)
}

/// Returns the process that is inside a write transaction of a journal, where the kernel tells.
///
/// SQLite takes the byte 120 of the file that readers and writers share for it
/// (<https://sqlite.org/walformat.html>, "WAL locks").
pub(crate) fn writer_of(journal: &Path) -> Option<Pid> {
    let mut shared = journal.as_os_str().to_owned();
    shared.push("-shm");
    let metadata = fs_err::metadata(Path::new(&shared)).ok()?;
    let table = fs_err::read_to_string("/proc/locks").ok()?;
    let writers = holders_in(&table, &metadata, "POSIX", |from, to| {
        (from..=to).contains(&120)
    });
    writers.first().copied().map(Pid::new)
}

/// Lists the processes that hold an flock on a file, from the kernel's lock table.
fn lock_holders(file: &Metadata) -> Vec<i64> {
    fs_err::read_to_string("/proc/locks")
        .map(|table| holders_in(&table, file, "FLOCK", |_, _| true))
        .unwrap_or_default()
}

/// Reads the table: `1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF`, waiting ones marked `->`.
fn holders_in(
    table: &str,
    file: &Metadata,
    kind: &str,
    covers: impl Fn(u64, u64) -> bool,
) -> Vec<i64> {
    let device = file.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let holder = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let fits = words.next()? == kind;
        let write = words.nth(1)? == "WRITE";
        let pid = words.next()?.parse().ok()?;
        let of = words.next()?;
        let from = words.next()?.parse().ok()?;
        let to = words.next()?.parse().unwrap_or(u64::MAX); // EOF
        (fits && write && of == file && covers(from, to)).then_some(pid)
    };
    table.lines().filter_map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_table_names_holders_and_not_those_who_wait() {
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        let device = file.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let name = format!("{major:02x}:{minor:02x}:{}", file.ino());
        let table = format!(
            "1: FLOCK  ADVISORY  WRITE 4711 {name} 0 EOF\n\
             1: -> FLOCK  ADVISORY  WRITE 4712 {name} 0 EOF\n\
             2: POSIX  ADVISORY  WRITE 4713 {name} 120 120\n\
             2: POSIX  ADVISORY  READ  4715 {name} 120 128\n\
             2: POSIX  ADVISORY  WRITE 4716 {name} 123 124\n\
             3: FLOCK  ADVISORY  WRITE 4714 {name}5 0 EOF\nnonsense\n"
        );
        assert_eq!(holders_in(&table, &file, "FLOCK", |_, _| true), [4711]);
        let covers = |from, to| (from..=to).contains(&120);
        assert_eq!(holders_in(&table, &file, "POSIX", covers), [4713]);
    }

    #[test]
    fn this_process_is_found_by_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let _held = super::super::lock::lock_within(&path, std::time::Duration::ZERO).unwrap();
        assert_eq!(
            lock_holder(&path),
            Some(Pid::new(std::process::id().into()))
        );
    }

    #[test]
    fn a_process_that_is_not_the_holder_is_left_alone() {
        use earshot_proto::lease::{Epoch, LeaseToken, Process};
        let folder = tempfile::tempdir().unwrap();
        let token = LeaseToken::from_random([3; 16]);
        let pid = i32::try_from(std::process::id()).unwrap();
        let holder = Predecessor {
            alive: token.alive_name(),
            token,
            epoch: Epoch::new(1),
            place: None,
            process: Some(Process {
                pid: Pid::new(pid.into()),
                pid_start: 1,
            }),
            socket: None,
        };
        assert!(kill_holder(folder.path(), pid, &holder).is_err());
    }
}

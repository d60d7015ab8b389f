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

/// Lists the processes that hold an flock on a file, from the kernel's lock table.
fn lock_holders(file: &Metadata) -> Vec<i64> {
    fs_err::read_to_string("/proc/locks")
        .map(|table| holders_in(&table, file.dev(), file.ino()))
        .unwrap_or_default()
}

/// Reads the table: `1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF`, waiting ones marked `->`.
fn holders_in(table: &str, device: u64, inode: u64) -> Vec<i64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    table
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(1);
            let kind = words.next()?;
            let pid = words.nth(2)?;
            let of = words.next()?;
            (kind == "FLOCK" && of == file).then(|| pid.parse().ok())?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_table_names_holders_and_not_those_who_wait() {
        let device = rustix::fs::makedev(0xfd, 1);
        let table = "1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 4712 fd:01:1234 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 4713 fd:01:1234 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 4714 fd:01:12345 0 EOF\nnonsense\n";
        assert_eq!(holders_in(table, device, 1234), [4711]);
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

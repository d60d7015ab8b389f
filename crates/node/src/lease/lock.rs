//! Taking a lock file: flock, polled with a deadline, on the file that the path names.

use std::{
    fs::File,
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, OFlags, Timespec, Timestamps, UTIME_NOW, flock, futimens},
    io::Errno,
};

use crate::{clock, words::within};

/// Time between two tries: short against any wait that a person notices.
const POLL: Duration = Duration::from_millis(2);

/// A lock that is held until this value is dropped.
#[derive(Debug)]
pub(crate) struct Locked {
    file: File,
    path: PathBuf,
}

impl Locked {
    /// Notes when the lock was taken, for [`is_held_lately`].
    pub(super) fn stamp(&self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let both = Timestamps {
            last_access: now,
            last_modification: now,
        };
        futimens(&self.file, &both).ok(); // an old stamp only makes others watch as well
    }

    /// Says whether the path still names the file that is locked: not after somebody deleted it,
    /// which lets another process in.
    pub(super) fn is_in_place(&self) -> bool {
        is_still_at(&self.file, &self.path)
    }
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Somebody else held it all the time.
    #[error("{path} is held by another process, which did not let go {waited}", waited = within(*waited))]
    Held {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The file system has no working locks.
    #[error("{path} is on a file system without working locks")]
    NoLocks {
        /// The lock file.
        path: PathBuf,
    },
    /// The file cannot be opened.
    #[error("{path} cannot be opened{owner}")]
    Open {
        /// The lock file.
        path: PathBuf,
        /// Whose it is, where that is why.
        owner: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Takes the lock exclusively, waiting up to `wait`.
///
/// A stopped process can hold a lock for ever, so nobody waits without a deadline. A lock file
/// that was deleted and made anew would let two in: after locking, descriptor and path must name
/// the same file (`attacks.md` 7).
///
/// # Errors
/// [`LockError`], naming the file.
pub(crate) fn lock_within(path: &Path, wait: Duration) -> Result<Locked, LockError> {
    let began = clock::now();
    loop {
        let file = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_still_at(&file, path) => {
                let path = path.to_owned();
                return Ok(Locked { file, path });
            }
            // Deleted and made anew meanwhile, a signal came, or somebody holds it.
            Ok(()) | Err(Errno::INTR | Errno::WOULDBLOCK) => {}
            Err(_) => {
                return Err(LockError::NoLocks {
                    path: path.to_owned(),
                });
            }
        }
        let waited = clock::now().since(began);
        if waited >= wait {
            return Err(LockError::Held {
                path: path.to_owned(),
                waited,
            });
        }
        pause(POLL);
    }
}

/// Says whether somebody holds a lock, and took it no longer ago than that.
pub(crate) fn is_held_lately(path: &Path, age_max: Duration) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let lately = || {
        let taken = file.metadata().ok()?.modified().ok()?;
        // A clock that was set back makes it look younger, at most until it is let go.
        Some(taken.elapsed().unwrap_or_default() <= age_max)
    };
    let held = flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    held && lately().unwrap_or(false)
}

/// Sleeps for a moment, in a thread that has nothing else to do.
#[expect(
    clippy::disallowed_methods,
    reason = "flock has no deadline, so a waiter polls"
)]
pub(crate) fn pause(moment: Duration) {
    std::thread::sleep(moment);
}

fn open(path: &Path) -> Result<File, LockError> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(path)
        .map_err(|source| {
            let owner = fs_err::symlink_metadata(path)
                .map(|metadata| format!(" (it belongs to user {})", metadata.uid()))
                .unwrap_or_default();
            LockError::Open {
                path: path.to_owned(),
                owner,
                source,
            }
        })
}

/// Says whether the path still names this very file.
pub(super) fn is_still_at(file: &File, path: &Path) -> bool {
    let Ok(mine) = file.metadata() else {
        return false;
    };
    fs_err::symlink_metadata(path)
        .is_ok_and(|there| (there.dev(), there.ino()) == (mine.dev(), mine.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_refused_at_the_deadline_and_free_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let held = lock_within(&path, Duration::ZERO).unwrap();
        let refused = lock_within(&path, Duration::from_millis(5)).unwrap_err();
        assert!(matches!(refused, LockError::Held { .. }), "{refused}");
        drop(held);
        lock_within(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_lock_file_that_was_replaced_does_not_let_two_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let file = open(&path).unwrap();
        fs_err::remove_file(&path).unwrap();
        open(&path).unwrap();
        assert!(!is_still_at(&file, &path));
    }

    #[test]
    fn a_symlink_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(
            lock_within(&path, Duration::ZERO),
            Err(LockError::Open { .. })
        ));
        assert!(!folder.path().join("elsewhere").exists());
    }
}

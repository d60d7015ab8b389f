//! The alive file: its lock shows life, its modification time is the heartbeat.

use std::{
    fs::File,
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use earshot_proto::lease::{AliveLock, AliveName, Beat, FileId};
use rustix::{
    fs::{FlockOperation, OFlags, Timespec, Timestamps, UTIME_NOW, flock, futimens},
    io::Errno,
};

use super::files::sync_folder;

/// The alive file of this process, locked for its life.
#[derive(Debug)]
pub(crate) struct AliveFile {
    file: File,
    path: PathBuf,
}

impl AliveFile {
    /// Makes the file and takes its lock before anybody can see it: a lease that names it is only
    /// written afterwards, so no reader ever finds it unlocked (`attacks.md` 5).
    ///
    /// # Errors
    /// What the system says; nothing is left behind.
    pub(crate) fn create(folder: &Path, name: &AliveName) -> io::Result<Self> {
        let path = folder.join(name.as_str());
        let temporary = folder.join(format!("{}.tmp", name.as_str()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        let made = lock_now(&file)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs_err::rename(&temporary, &path))
            .and_then(|()| sync_folder(folder));
        if let Err(error) = made {
            fs_err::remove_file(&temporary).ok(); // the error that is reported came first
            return Err(error);
        }
        Ok(Self { file, path })
    }

    /// Sets the heartbeat to now. No lock and no sync, so that a slow disk does not look like death.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn beat(&self) -> io::Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        Ok(futimens(
            &self.file,
            &Timestamps {
                last_access: now,
                last_modification: now,
            },
        )?)
    }

    /// Returns which file this is.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn id(&self) -> io::Result<FileId> {
        let metadata = self.file.metadata()?;
        Ok(FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// Returns the file that its path leads to now: another one, or none, after its folder was wiped.
    pub(super) fn id_at_path(&self) -> Option<FileId> {
        let metadata = fs_err::symlink_metadata(&self.path).ok()?;
        Some(FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

fn lock_now(file: &File) -> io::Result<()> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tries the lock of somebody's alive file, shared and without waiting, and reads its heartbeat.
pub(crate) fn probe(folder: &Path, name: &AliveName) -> (AliveLock, Option<Beat>) {
    let opened = File::options()
        .read(true)
        .custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(folder.join(name.as_str()));
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (AliveLock::Missing, None),
        Err(_) => return (AliveLock::Unknown, None),
    };
    let beat = file.metadata().ok().map(|metadata| {
        let nanos = metadata
            .mtime()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(metadata.mtime_nsec());
        Beat::new(nanos.unsigned_abs())
    });
    let lock = loop {
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => break AliveLock::Free,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => break AliveLock::Held,
            Err(_) => break AliveLock::Unknown,
        }
    };
    (lock, beat)
}

#[cfg(test)]
mod tests {
    use earshot_proto::lease::LeaseToken;

    use super::*;

    #[test]
    fn the_lock_shows_life_and_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let name = LeaseToken::from_random([1; 16]).alive_name();
        assert_eq!(probe(folder.path(), &name), (AliveLock::Missing, None));
        let alive = AliveFile::create(folder.path(), &name).unwrap();
        assert_eq!(probe(folder.path(), &name).0, AliveLock::Held);
        drop(alive);
        assert_eq!(probe(folder.path(), &name).0, AliveLock::Free);
    }

    #[test]
    fn a_beat_moves_and_a_wipe_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let name = LeaseToken::from_random([2; 16]).alive_name();
        let alive = AliveFile::create(folder.path(), &name).unwrap();
        let past = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: past,
            last_modification: past,
        };
        futimens(&alive.file, &times).unwrap();
        let before = probe(folder.path(), &name).1;
        alive.beat().unwrap();
        assert_ne!(probe(folder.path(), &name).1, before);
        fs_err::remove_file(folder.path().join(name.as_str())).unwrap();
        assert_eq!(alive.id_at_path(), None);
    }
}

//! A small file that the processes of one machine share: read and replaced as a whole, changed
//! under a lock that lies beside it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::files::read_small;

/// How often and how long apart the lock is tried: two seconds, where a holder needs one
/// millisecond.
const LOCK_TRIES: u32 = 400;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Why the lock was not had.
#[derive(Debug)]
pub(crate) enum LockError {
    /// The folder cannot be used.
    Io(io::Error),
    /// Another process has held this lock for longer than its work takes.
    Busy(PathBuf),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A file of at most 1 MiB in a folder that is this user's alone.
#[derive(Clone, Debug)]
pub(crate) struct SharedFile {
    folder: PathBuf,
    name: &'static str,
}

impl SharedFile {
    /// Returns the file of this name in a folder, which must exist.
    pub(crate) fn new(folder: &Path, name: &'static str) -> Self {
        Self {
            folder: folder.to_path_buf(),
            name,
        }
    }

    /// Returns where the file is.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(self.name)
    }

    /// Returns the content, which needs no lock; `None` where there is no file yet.
    pub(crate) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match read_small(&self.path()) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts this content in the place of the old, for the holder of the lock.
    pub(crate) fn replace(&self, content: &[u8]) -> io::Result<()> {
        // Only the holder of the lock writes, so the name is free or left by a crash.
        let temporary = self.beside("new");
        let mut file = private().truncate(true).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs_err::rename(&temporary, self.path())?;
        fs_err::File::open(&self.folder)?.sync_all()
    }

    /// Copies the file to one that ends in `.damaged`, for the holder of the lock.
    pub(crate) fn set_aside(&self) -> io::Result<()> {
        fs_err::copy(self.path(), self.beside("damaged")).map(drop)
    }

    /// Returns the lock, which is let go with the file it is on.
    #[expect(
        clippy::disallowed_methods,
        reason = "flock has no deadline of its own; a stopped holder must not stop us"
    )]
    pub(crate) fn lock(&self) -> Result<File, LockError> {
        let path = self.beside("lock");
        for _ in 0..LOCK_TRIES {
            let file = private().truncate(false).open(&path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_still_at(&file, &path)? => return Ok(file),
                // The file was replaced: the lock is on one that nobody else looks at.
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(error) => return Err(LockError::Io(error.into())),
            }
        }
        Err(LockError::Busy(path))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }
}

fn private() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn is_still_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((held.dev(), held.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

//! The random key of each repository on this machine.
//!
//! What is remembered about a repository belongs to its key. The key is bound to the common
//! directory itself: worktrees share it, a move or another number of its device keeps it, and a new
//! repository at an old path, or with the inode of a removed one, does not come into it. A small
//! file in the machine's data holds the map; [`crate::key_map`] decides.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::checkout::CommonDirIdentity;
use crate::id::RepositoryKey;
use crate::key_map::{KeyMap, NewerFormat};
use crate::shared_file::{LockError, SharedFile};

const FILE_NAME: &str = "repository-keys";

/// Most bytes of the file, all that [`SharedFile`] reads: some five thousand repositories.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryKeysError {
    /// The data folder cannot be used.
    #[error("the keys of repositories in the data folder cannot be used")]
    Io(#[from] io::Error),
    /// Another process has held the lock for longer than its work takes.
    #[error("{path} is locked by a process that does not let go of it", path = .0.display())]
    Busy(PathBuf),
    /// A later release wrote the file; it is left as it is.
    #[error("{path} was written by a newer release of earshot", path = .0.display())]
    Newer(PathBuf),
    /// The file has no room for one more repository, and all in it are still there.
    #[error("{path} has no room for one more repository", path = .0.display())]
    Full(PathBuf),
}

impl From<LockError> for RepositoryKeysError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Io(error) => Self::Io(error),
            LockError::Busy(path) => Self::Busy(path),
        }
    }
}

/// The map from common directories to keys.
#[derive(Clone, Debug)]
pub struct RepositoryKeys {
    file: SharedFile,
}

impl RepositoryKeys {
    /// Returns the keys in the machine's data folder, which must exist and be the user's alone.
    pub fn new(data_folder: &Path) -> Self {
        Self {
            file: SharedFile::new(data_folder, FILE_NAME),
        }
    }

    /// Returns the key of the repository with this common directory, and mints it at first use.
    ///
    /// However many processes ask at once, `mint` is called by one of them; it returns random bits.
    /// Damage to the file is no error: its sound records count, and before it is written again a
    /// copy of it is kept beside it, with the ending `.damaged`.
    ///
    /// # Errors
    ///
    /// [`RepositoryKeysError`]; none is ever a reason to do without the key.
    ///
    /// # Panics
    ///
    /// When the path is not absolute, or when `mint` returns the key of another repository.
    pub fn key_of(
        &self,
        identity: &CommonDirIdentity,
        mint: impl FnOnce() -> [u8; 16],
    ) -> Result<RepositoryKey, RepositoryKeysError> {
        assert!(identity.path.is_absolute(), "a canonical path is absolute");
        // The file is replaced as a whole, so reading needs no lock.
        if let Some(key) = self.read()?.0.known(identity, &leads) {
            return Ok(key);
        }
        let _lock = self.file.lock()?;
        let (mut map, damaged) = self.read()?;
        if let Some(key) = map.known(identity, &leads) {
            return Ok(key);
        }
        let key = map.settle(identity, &leads, mint);
        if !map.shrink(FILE_BYTES_MAX, &leads) {
            return Err(RepositoryKeysError::Full(self.file.path()));
        }
        if damaged {
            self.file.set_aside()?;
        }
        self.file.replace(&map.encode())?;
        Ok(key)
    }

    fn read(&self) -> Result<(KeyMap, bool), RepositoryKeysError> {
        match self.file.read() {
            Ok(None) => Ok((KeyMap::default(), false)),
            Ok(Some(content)) => KeyMap::parse(&content)
                .map_err(|NewerFormat| RepositoryKeysError::Newer(self.file.path())),
            // earshot never writes that much.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Ok((KeyMap::default(), true))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn leads(path: &Path, device: u64, inode: u64) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (device, inode))
}

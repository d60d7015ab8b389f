//! The file of a journal as the file system sees it.

use std::{
    ffi::OsString,
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use earshot_proto::lease::FileId;
use fs_err::{self as fs, os::unix::fs::OpenOptionsExt as _};

/// Mode of a journal and of what SQLite puts beside it: it holds secrets.
const MODE: u32 = 0o600;

/// What stands at the path of a journal.
pub(super) enum Found {
    /// A file, now with the mode of a journal.
    File,
    /// Anything else: a folder, a link, a socket.
    Other,
}

/// Makes an empty file where there is nothing, and takes others' access from one that is there.
///
/// A file that is there is not opened: a process that closes a file loses the locks that its
/// database connections hold on it.
pub(super) fn prepare(path: &Path) -> io::Result<Found> {
    let created = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path);
    match created {
        Ok(file) => {
            file.sync_all()?;
            if let Some(folder) = path.parent() {
                fs::File::open(folder)?.sync_all()?;
            }
            Ok(Found::File)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path)?;
            if !found.is_file() {
                return Ok(Found::Other);
            }
            if found.permissions().mode() & 0o777 != MODE {
                fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
            }
            Ok(Found::File)
        }
        Err(error) => Err(error),
    }
}

/// Returns which file a path leads to, `None` when there is none.
pub(super) fn identity(path: &Path) -> io::Result<Option<FileId>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(FileId {
            device: found.dev(),
            inode: found.ino(),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the file that SQLite keeps beside a journal.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

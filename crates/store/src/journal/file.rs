//! The file of a journal as the file system sees it.

use std::{
    ffi::OsString,
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use earshot_proto::lease::{Epoch, FileId};
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
            sync_folder_of(path)?;
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

/// Returns the files of a journal: that of its first epoch under the plain name, and each that was
/// begun because the one before it was locked, named after the epoch that began it.
pub(super) fn all(path: &Path) -> io::Result<Vec<(PathBuf, Epoch)>> {
    let mut files = Vec::new();
    if identity(path)?.is_some() {
        files.push((path.to_owned(), Epoch::NONE));
    }
    let (Some(folder), Some(plain)) = (path.parent(), path.file_name()) else {
        return Ok(files);
    };
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let rest = name
            .as_encoded_bytes()
            .strip_prefix(plain.as_encoded_bytes())
            .and_then(|rest| rest.strip_prefix(b"."));
        let epoch = rest
            .filter(|rest| rest.iter().all(u8::is_ascii_digit))
            .and_then(|rest| str::from_utf8(rest).ok()?.parse().ok());
        if let Some(epoch) = epoch {
            files.push((folder.join(name), Epoch::new(epoch)));
        }
    }
    Ok(files)
}

/// Returns the file that an epoch begins in place of a locked one.
pub(super) fn of_epoch(path: &Path, epoch: Epoch) -> PathBuf {
    beside(path, &format!(".{epoch}"))
}

/// Removes a journal and what SQLite keeps beside it.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    for path in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")] {
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives a file its lasting name.
pub(super) fn show(temporary: &Path, path: &Path) -> io::Result<()> {
    fs::File::open(temporary)?.sync_all()?;
    fs::rename(temporary, path)?;
    sync_folder_of(path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Returns the file that SQLite keeps beside a journal.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

//! Bounded reading of the small files a repository's layout is made of.

use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Most that is read of a pointer file or a configuration: git's own bound for a `.git` file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns the content of a regular file.
///
/// A pipe or a device never blocks: it is refused.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "larger than 1 MiB",
        ));
    }
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the path without `.` and `..`, decided by its text alone.
pub(crate) fn lexically_clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                clean.push(component);
            }
        }
    }
    clean
}

/// Returns the canonical path where it exists, else the canonical form of its deepest folder that
/// does, with the rest as written.
pub(crate) fn canonical_or_clean(path: &Path) -> PathBuf {
    let clean = lexically_clean(path);
    for ancestor in clean.ancestors() {
        if let Ok(canonical) = std::fs::canonicalize(ancestor) {
            // The rest is relative by construction; an empty one must not add a slash.
            return match clean.strip_prefix(ancestor) {
                Ok(rest) if !rest.as_os_str().is_empty() => canonical.join(rest),
                _ => canonical,
            };
        }
    }
    clean
}

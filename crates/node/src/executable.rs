//! Whether the program on disk is still the one that this process runs.

use std::{fs::Metadata, os::unix::fs::MetadataExt as _, path::PathBuf};

use crate::system;

/// The file that this process was started from, as it was then.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    started_from: Option<(PathBuf, Mark)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
}

impl Mark {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
        }
    }
}

impl Executable {
    /// Takes note of the file that this process was started from.
    pub(crate) fn of_this_process() -> Self {
        let started_from = system::executable().ok().and_then(|path| {
            let metadata = fs_err::metadata(&path).ok()?;
            Some((path, Mark::of(&metadata)))
        });
        Self { started_from }
    }

    /// Says why this process no longer is the program on disk; `None` while it is.
    pub(crate) fn stale(&self) -> Option<String> {
        let (path, mark) = self.started_from.as_ref()?;
        match fs_err::metadata(path) {
            Ok(metadata) if Mark::of(&metadata) == *mark => None,
            Ok(_) => Some("the executable was replaced on disk".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Some("the executable was removed from disk".to_owned())
            }
            // It cannot be looked at right now, which proves nothing.
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_and_a_removed_file_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("earshot");
        fs_err::write(&path, "one").unwrap();
        let mark = Mark::of(&fs_err::metadata(&path).unwrap());
        let executable = Executable {
            started_from: Some((path.clone(), mark)),
        };
        assert_eq!(executable.stale(), None);
        fs_err::write(folder.path().join("new"), "two!").unwrap();
        fs_err::rename(folder.path().join("new"), &path).unwrap();
        assert!(executable.stale().unwrap().contains("replaced"));
        fs_err::remove_file(&path).unwrap();
        assert!(executable.stale().unwrap().contains("removed"));
    }
}

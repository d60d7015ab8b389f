//! How others call this very executable.

use std::{
    ffi::OsStr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::system;

/// The name under which a shell finds the executable that is installed.
const NAME: &str = "earshot";

/// This executable, as others call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Program {
    /// By its name: the search path leads to it.
    OnPath,
    /// By its path: the search path leads to another one, or to none.
    At {
        /// The executable.
        path: PathBuf,
        /// What the search path finds in its place.
        other: Option<PathBuf>,
    },
}

impl Program {
    /// Finds out how this process's executable is called. Relative folders of the search path do
    /// not count: who calls from another folder finds another file there, or none.
    pub(super) fn own(search_path: Option<&OsStr>) -> Self {
        Self::called(&system::executable().unwrap_or_default(), search_path)
    }

    fn called(own: &Path, search_path: Option<&OsStr>) -> Self {
        let runs = |path: &PathBuf| {
            fs_err::metadata(path)
                .is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
        };
        let found = search_path.and_then(|folders| {
            std::env::split_paths(folders)
                .filter(|folder| folder.is_absolute())
                .map(|folder| folder.join(NAME))
                .find(runs)
        });
        if found
            .as_deref()
            .is_some_and(|found| identity(found) == identity(own))
        {
            return Self::OnPath;
        }
        Self::At {
            path: own.to_owned(),
            other: found,
        }
    }

    /// Returns the word that names it where no shell reads it.
    pub(super) fn word(&self) -> String {
        match self {
            Self::OnPath => NAME.to_owned(),
            Self::At { path, .. } => path.to_string_lossy().into_owned(),
        }
    }

    /// Says whether the word is the executable's name to the byte: a path need not be text.
    pub(super) fn is_text(&self) -> bool {
        match self {
            Self::OnPath => true,
            Self::At { path, .. } => path.to_str().is_some(),
        }
    }
}

/// Returns what a file is, by whatever path it is looked at.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs_err::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn executable(folder: &Path) -> PathBuf {
        fs_err::create_dir_all(folder).unwrap();
        let path = folder.join(NAME);
        fs_err::write(&path, "").unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_name_is_enough_where_it_leads_to_this_executable_first() {
        let scratch = tempfile::tempdir().unwrap();
        let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
        let (own, other) = (executable(&a), executable(&b));
        let called = |folders: &[&Path]| {
            let folders: OsString = std::env::join_paths(folders).unwrap();
            Program::called(&own, Some(&folders))
        };
        let at = |other: Option<&Path>| Program::At {
            path: own.clone(),
            other: other.map(Path::to_owned),
        };
        assert_eq!(called(&[&a]), Program::OnPath);
        assert_eq!(called(&[scratch.path(), &a, &b]), Program::OnPath);
        assert_eq!(called(&[&b, &a]), at(Some(&other)));
        assert_eq!(called(&[Path::new("a"), scratch.path()]), at(None));
        assert_eq!(Program::called(&own, None), at(None));
        // A file that cannot be run is passed over, as a shell passes over it.
        fs_err::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(called(&[&b, &a]), Program::OnPath);
        // A link of any kind leads to it all the same.
        let linked = scratch.path().join("c");
        fs_err::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(&own, linked.join(NAME)).unwrap();
        assert_eq!(called(&[&linked]), Program::OnPath);
    }
}

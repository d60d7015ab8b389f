//! What a folder is to git, judged by its files as git's own discovery does.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::files::read_small;
use crate::pointer::{parse_git_file, parse_link_file};

/// What was found in one folder.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing of git's: the search goes on in the parent.
    Nothing,
    /// A `.git` folder or file that leads to a git directory.
    WorkTree(GitLink),
    /// The folder is itself a git directory.
    GitDir {
        /// Where the repository's shared files are; canonical.
        common_dir: PathBuf,
    },
}

/// The way from the top of a work tree to its git directory.
#[derive(Debug)]
pub(crate) struct GitLink {
    /// The `.git` file, `None` where `.git` is a folder.
    pub(crate) git_file: Option<PathBuf>,
    /// The git directory of this work tree; canonical.
    pub(crate) git_dir: PathBuf,
    /// The git directory that all its worktrees share; canonical.
    pub(crate) common_dir: PathBuf,
}

/// Why a folder that git has a part in cannot be a checkout.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// A `.git` file that leads nowhere.
    #[error("{reason}")]
    Broken {
        /// The file.
        git_file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that decides the question may not be read.
    #[error("a file could not be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Returns what a folder is to git; `folder` is canonical.
pub(crate) fn probe(folder: &Path) -> Result<Found, ProbeError> {
    let dot_git = folder.join(".git");
    match std::fs::metadata(&dot_git) {
        Ok(metadata) if metadata.is_file() => return follow_git_file(folder, dot_git),
        Ok(metadata) if metadata.is_dir() => {
            if let Some(common_dir) = git_dir_at(&dot_git)? {
                let git_dir = canonicalize(&dot_git)?;
                return Ok(Found::WorkTree(GitLink {
                    git_file: None,
                    git_dir,
                    common_dir,
                }));
            }
        }
        // A socket, a dangling symlink, nothing: git walks on, too.
        Ok(_) => {}
        Err(error) if means_absent(&error) => {}
        Err(source) => {
            return Err(ProbeError::Unreadable {
                path: dot_git,
                source,
            });
        }
    }
    Ok(git_dir_at(folder)?.map_or(Found::Nothing, |common_dir| Found::GitDir { common_dir }))
}

/// Returns whether a folder is the top of a checkout or a git directory.
///
/// A walk through an outer checkout stops at such a folder: what lies below it belongs to another
/// checkout (a nested worktree, a submodule, a clone). A `.git` file counts even when it leads
/// nowhere, because git does not look below it either. It never runs git and asks no owner.
pub fn is_checkout_top(folder: &Path) -> bool {
    !matches!(probe(folder), Ok(Found::Nothing))
}

/// Returns the git directory that a work tree's `.git` leads to; canonical.
pub(crate) fn linked_git_dir(root: &Path) -> Option<PathBuf> {
    match probe(root) {
        Ok(Found::WorkTree(link)) => Some(link.git_dir),
        _ => None,
    }
}

/// Returns whether a canonical git directory is a submodule's, kept in `modules/` of another one.
///
/// A submodule's own path may contain `modules`, so only a `modules` that lies in a git directory
/// counts.
pub(crate) fn is_submodule_git_dir(git_dir: &Path) -> bool {
    git_dir.ancestors().skip(1).any(|ancestor| {
        ancestor.file_name().is_some_and(|name| name == "modules")
            && ancestor
                .parent()
                .is_some_and(|outer| matches!(git_dir_at(outer), Ok(Some(_))))
    })
}

fn follow_git_file(folder: &Path, git_file: PathBuf) -> Result<Found, ProbeError> {
    let content = match read_small(&git_file) {
        Ok(content) => content,
        Err(source) => {
            return Err(ProbeError::Unreadable {
                path: git_file,
                source,
            });
        }
    };
    let target = match parse_git_file(&content) {
        Ok(target) => folder.join(target),
        Err(error) => {
            return Err(ProbeError::Broken {
                git_file,
                reason: error.to_string(),
            });
        }
    };
    let Some(common_dir) = git_dir_at(&target)? else {
        let reason = format!("it names {}, which is no git directory", target.display());
        return Err(ProbeError::Broken { git_file, reason });
    };
    let git_dir = canonicalize(&target)?;
    Ok(Found::WorkTree(GitLink {
        git_file: Some(git_file),
        git_dir,
        common_dir,
    }))
}

/// Returns the common directory of `folder` where that is a git directory: a `HEAD` that can be
/// one, and `objects` and `refs` in the common directory.
fn git_dir_at(folder: &Path) -> Result<Option<PathBuf>, ProbeError> {
    if !is_head(&folder.join("HEAD"))? {
        return Ok(None);
    }
    let common_dir = match read_small(&folder.join("commondir")) {
        Ok(content) => match parse_link_file(&content) {
            Some(path) => folder.join(path),
            None => return Ok(None),
        },
        Err(error) if means_absent(&error) => folder.to_path_buf(),
        Err(source) => {
            return Err(ProbeError::Unreadable {
                path: folder.join("commondir"),
                source,
            });
        }
    };
    let complete = ["objects", "refs"]
        .iter()
        .all(|name| common_dir.join(name).is_dir());
    if complete {
        canonicalize(&common_dir).map(Some)
    } else {
        Ok(None)
    }
}

fn is_head(path: &Path) -> Result<bool, ProbeError> {
    // An old form: `HEAD` as a symbolic link to a branch that may not exist yet.
    if let Ok(target) = std::fs::read_link(path) {
        return Ok(target.as_os_str().as_bytes().starts_with(b"refs/"));
    }
    match read_small(path) {
        Ok(content) => Ok(looks_like_head(&content)),
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            // Walking on would take a folder above a checkout for the checkout.
            Err(ProbeError::Unreadable {
                path: path.to_path_buf(),
                source,
            })
        }
        Err(_) => Ok(false),
    }
}

fn looks_like_head(content: &[u8]) -> bool {
    if let Some(name) = content.strip_prefix(b"ref:") {
        return name.trim_ascii_start().starts_with(b"refs/");
    }
    let id = content.trim_ascii_end();
    matches!(id.len(), 40 | 64) && id.iter().all(u8::is_ascii_hexdigit)
}

fn canonicalize(path: &Path) -> Result<PathBuf, ProbeError> {
    std::fs::canonicalize(path).map_err(|source| ProbeError::Unreadable {
        path: path.to_path_buf(),
        source,
    })
}

fn means_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_a_branch_or_an_object_id() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        for (content, expected) in [
            ("ref: refs/heads/main\n", true),
            ("ref:refs/heads/.invalid", true),
            ("ref: heads/main\n", false),
            ("", false),
            (id, true),
            (&id[1..], false),
            ("a head of lettuce", false),
        ] {
            assert_eq!(looks_like_head(content.as_bytes()), expected, "{content:?}");
        }
    }
}

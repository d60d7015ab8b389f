//! From any path to the checkout around it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::checkout::{Checkout, CheckoutKind};
use crate::config::LayoutConfig;
use crate::layout::{self, Found, GitLink, ProbeError};
use crate::ownership::{self, Distrust};
use crate::worktrees::present_roots;

/// Why a path leads to no checkout.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The path is not there.
    #[error("{path} does not exist", path = .path.display())]
    Missing {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A file that decides the question may not be read.
    #[error("{path} cannot be read", path = .path.display())]
    Unreadable {
        /// What could not be read.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The path is in a bare repository, or in the folder around one.
    #[error("{git_dir} is a bare repository without a work tree; {}", named(.checkouts), git_dir = .git_dir.display())]
    Bare {
        /// The bare repository.
        git_dir: PathBuf,
        /// Its checkouts that are there.
        checkouts: Vec<PathBuf>,
    },
    /// The path is in the git directory of a repository that has a work tree.
    #[error("{git_dir} is a git directory and not a work tree; {}", named(.checkouts), git_dir = .git_dir.display())]
    InsideGitDir {
        /// The git directory.
        git_dir: PathBuf,
        /// The repository's checkouts that are there.
        checkouts: Vec<PathBuf>,
    },
    /// The repository belongs to somebody else and git refuses it.
    #[error("git refuses the repository at {path}: {reason}", path = .path.display())]
    Dubious {
        /// The folder that would have to be trusted.
        path: PathBuf,
        /// git's own words.
        reason: String,
    },
    /// git refuses a repository of another owner for another reason.
    #[error("git refuses the repository at {path}: {reason}", path = .path.display())]
    Refused {
        /// The top of the repository.
        path: PathBuf,
        /// git's own words.
        reason: String,
    },
    /// A `.git` file leads nowhere; no folder above it is taken instead.
    #[error("{git_file} does not lead to a repository: {reason}", git_file = .git_file.display())]
    Broken {
        /// The `.git` file.
        git_file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl ResolveError {
    /// Returns what the user can do, as one line, `None` where the message says it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Bare { checkouts, .. } if checkouts.is_empty() => {
                Some("make a checkout of it with `git worktree add <folder>`".to_owned())
            }
            Self::Bare { .. } | Self::InsideGitDir { .. } => {
                Some("start in one of its checkouts".to_owned())
            }
            Self::Dubious { path, .. } => Some(format!(
                "if you trust what is in it, run `git config --global --add safe.directory {}`",
                shell_quoted(&path.to_string_lossy())
            )),
            Self::Broken { .. } => Some(
                "if the repository or the worktree was moved, run `git worktree repair <folder>` \
                 in the repository"
                    .to_owned(),
            ),
            Self::Missing { .. } | Self::Unreadable { .. } | Self::Refused { .. } => None,
        }
    }
}

/// Returns the nearest checkout around a file or folder.
///
/// It walks up as git does and stops where git stops: at the first folder that git has a part in,
/// and at the border of the file system. Where git has no part, the folder itself is the checkout.
/// The environment is not consulted, nor does `core.worktree` move the root: the root is the
/// folder that holds `.git`, because a repository's own settings must not make earshot serve
/// another folder.
///
/// # Errors
///
/// [`ResolveError`]; never a folder further up in place of a repository that cannot be used.
pub fn resolve(start: &Path) -> Result<Checkout, ResolveError> {
    let canonical = std::fs::canonicalize(start).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ResolveError::Missing {
            path: start.to_path_buf(),
        },
        _ => ResolveError::Unreadable {
            path: start.to_path_buf(),
            source: error,
        },
    })?;
    let folder = match canonical.parent() {
        Some(parent) if !canonical.is_dir() => parent,
        _ => canonical.as_path(),
    };
    let device = device_and_inode(folder)?.0;
    for ancestor in folder.ancestors() {
        if device_and_inode(ancestor)?.0 != device {
            break;
        }
        match layout::probe(ancestor)? {
            Found::Nothing => {}
            Found::WorkTree(link) => return work_tree(ancestor, link),
            Found::GitDir { common_dir } => return Err(git_dir(ancestor, &common_dir)),
        }
    }
    checkout(folder, CheckoutKind::Folder, None)
}

/// The folder `root` holds a `.git` that leads somewhere.
fn work_tree(root: &Path, link: GitLink) -> Result<Checkout, ResolveError> {
    let mut parts = vec![root, link.git_dir.as_path()];
    parts.extend(link.git_file.as_deref());
    ownership::verify(root, &parts).map_err(|distrust| distrusted(root, distrust))?;
    if LayoutConfig::read(&link.git_dir, &link.common_dir).bare == Some(true) {
        let checkouts = present_roots(&link.common_dir);
        return Err(ResolveError::Bare {
            git_dir: link.git_dir,
            checkouts,
        });
    }
    let kind = if link.git_dir != link.common_dir {
        CheckoutKind::LinkedWorktree
    } else if layout::is_submodule_git_dir(&link.git_dir) {
        CheckoutKind::Submodule
    } else {
        CheckoutKind::Primary
    };
    checkout(root, kind, Some(link))
}

/// The folder `git_dir` is itself a git directory.
fn git_dir(git_dir: &Path, common_dir: &Path) -> ResolveError {
    if let Err(distrust) = ownership::verify(git_dir, &[git_dir]) {
        return distrusted(git_dir, distrust);
    }
    let checkouts = present_roots(common_dir);
    let bare = LayoutConfig::read(common_dir, common_dir)
        .bare
        .unwrap_or_else(|| common_dir.file_name().is_none_or(|name| name != ".git"));
    let git_dir = git_dir.to_path_buf();
    if bare {
        ResolveError::Bare { git_dir, checkouts }
    } else {
        ResolveError::InsideGitDir { git_dir, checkouts }
    }
}

fn checkout(
    root: &Path,
    kind: CheckoutKind,
    link: Option<GitLink>,
) -> Result<Checkout, ResolveError> {
    let (device, inode) = device_and_inode(root)?;
    let (git_dir, common_dir) = link.map(|link| (link.git_dir, link.common_dir)).unzip();
    Ok(Checkout {
        root: root.to_path_buf(),
        kind,
        git_dir,
        common_dir,
        device,
        inode,
    })
}

fn device_and_inode(path: &Path) -> Result<(u64, u64), ResolveError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok((metadata.dev(), metadata.ino())),
        Err(source) => Err(ResolveError::Unreadable {
            path: path.to_path_buf(),
            source,
        }),
    }
}

fn distrusted(path: &Path, distrust: Distrust) -> ResolveError {
    let path = path.to_path_buf();
    match distrust {
        Distrust::Dubious(reason) => ResolveError::Dubious { path, reason },
        Distrust::Refused(reason) => ResolveError::Refused { path, reason },
    }
}

/// Most checkouts that an error names.
const NAMED_MAX: usize = 8;

fn named(checkouts: &[PathBuf]) -> String {
    if checkouts.is_empty() {
        return "it has no checkouts".to_owned();
    }
    let shown: Vec<_> = checkouts
        .iter()
        .take(NAMED_MAX)
        .map(|root| root.display().to_string())
        .collect();
    let more = match checkouts.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("its checkouts: {}{more}", shown.join(", "))
}

fn shell_quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:@%".contains(&byte);
    if text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl From<ProbeError> for ResolveError {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::Broken { git_file, reason } => Self::Broken { git_file, reason },
            ProbeError::Unreadable { path, source } => Self::Unreadable { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_can_be_pasted_into_a_shell() {
        for (path, expected) in [
            ("/r/a-1.x", "/r/a-1.x"),
            ("/r/a b", "'/r/a b'"),
            ("/r/it's;", r"'/r/it'\''s;'"),
        ] {
            assert_eq!(shell_quoted(path), expected);
        }
    }

    #[test]
    fn an_error_names_a_bounded_number_of_checkouts() {
        let checkouts: Vec<_> = (0..10).map(|n| PathBuf::from(format!("/r/{n}"))).collect();
        assert_eq!(named(&[]), "it has no checkouts");
        assert_eq!(named(&checkouts[..2]), "its checkouts: /r/0, /r/1");
        assert!(named(&checkouts).ends_with("/r/7 and 2 more"));
    }
}

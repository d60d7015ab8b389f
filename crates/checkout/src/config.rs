//! The few settings of a repository that its layout depends on, read by gix.
//!
//! Only the repository's own files are read, without includes, as git reads them before it knows
//! the repository. What cannot be read counts as not set: a checkout is found by its files, not by
//! its settings.

use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use gix_config::File;
use gix_config::file::{Metadata, init};

use crate::checkout::{Checkout, CheckoutKind};
use crate::files::read_small;
use crate::runner::{GitError, GitRunner, Plumbing};

/// Settings of one git directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayoutConfig {
    /// `core.bare`; `None` where it says nothing.
    pub(crate) bare: Option<bool>,
    /// `core.worktree`, as written: relative to the git directory.
    pub(crate) worktree: Option<PathBuf>,
    /// Whether references are loose files and `packed-refs`; otherwise only git reads them.
    pub(crate) references_are_files: bool,
    /// The hash that names objects.
    pub(crate) object_hash: gix_hash::Kind,
}

impl LayoutConfig {
    /// Reads what holds in a git directory.
    ///
    /// `core.bare` and `core.worktree` of the common directory are about the primary checkout, so a
    /// linked worktree has only its own.
    pub(crate) fn read(git_dir: &Path, common_dir: &Path) -> Self {
        let shared = parse(&common_dir.join("config"));
        let flag =
            |file: Option<&File>, key: &str| file.and_then(|file| file.boolean(key).ok().flatten());
        let text = |file: Option<&File>, key: &str| file.and_then(|file| file.string(key));
        let own = flag(shared.as_ref(), "extensions.worktreeConfig")
            .unwrap_or(false)
            .then(|| parse(&git_dir.join("config.worktree")))
            .flatten();
        let main = shared.as_ref().filter(|_| git_dir == common_dir);
        let worktree = text(own.as_ref(), "core.worktree").or_else(|| text(main, "core.worktree"));
        let storage = text(shared.as_ref(), "extensions.refStorage");
        let hash = text(shared.as_ref(), "extensions.objectFormat");
        Self {
            bare: flag(own.as_ref(), "core.bare").or_else(|| flag(main, "core.bare")),
            worktree: worktree
                .filter(|path| !path.is_empty())
                .map(|path| PathBuf::from(std::ffi::OsString::from_vec(path.into()))),
            references_are_files: storage
                .is_none_or(|storage| storage.eq_ignore_ascii_case(b"files")),
            object_hash: if hash.is_some_and(|hash| hash.eq_ignore_ascii_case(b"sha256")) {
                gix_hash::Kind::Sha256
            } else {
                gix_hash::Kind::Sha1
            },
        }
    }
}

fn parse(path: &Path) -> Option<File> {
    let content = read_small(path).ok()?;
    let metadata = Metadata::from(gix_config::Source::Local);
    File::from_bytes_no_includes(&content, metadata, init::Options::default()).ok()
}

/// Returns whether git compares the checkout's paths without regard to case (`core.ignorecase`).
///
/// It asks git, because the setting may come from any configuration file; that takes one process,
/// so a caller keeps the answer. A folder without git, and a repository that git cannot read,
/// count as `false`.
pub fn ignore_case(checkout: &Checkout) -> bool {
    if checkout.kind == CheckoutKind::Folder {
        return false;
    }
    let arguments = ["--type=bool", "--get", "core.ignorecase"];
    GitRunner::new()
        .and_then(|runner| runner.run(&checkout.root, Plumbing::Config, &arguments))
        .is_ok_and(|answer| answer.trim_ascii_end() == b"true")
}

/// Returns whether a file of a checkout is tracked: it stands in git's index.
///
/// What cannot be found out counts as tracked, since whoever asks wants to keep away from what a
/// repository brings along. A folder without git tracks nothing.
pub fn is_tracked(checkout: &Checkout, file: &Path) -> bool {
    let relative = file
        .strip_prefix(&checkout.root)
        .ok()
        .and_then(Path::to_str);
    match (checkout.kind, relative) {
        (CheckoutKind::Folder, _) => false,
        (_, None) => true,
        (_, Some(relative)) => {
            let entry = format!(":{relative}");
            let arguments = ["--quiet", "--verify", entry.as_str()];
            let answer = GitRunner::new()
                .and_then(|runner| runner.run(&checkout.root, Plumbing::RevParse, &arguments));
            !matches!(answer, Err(GitError::Failed { .. }))
        }
    }
}

/// Returns whether git passes over a file of a checkout: it is not tracked, and a pattern of the
/// repository or of its user names it.
///
/// What cannot be found out counts as not ignored, and neither does a folder without git.
pub fn is_ignored(checkout: &Checkout, file: &Path) -> bool {
    let relative = file
        .strip_prefix(&checkout.root)
        .ok()
        .and_then(Path::to_str);
    match (checkout.kind, relative) {
        (CheckoutKind::Folder, _) | (_, None) => false,
        (_, Some(relative)) => GitRunner::new()
            .and_then(|runner| {
                let arguments = ["--quiet", "--", relative];
                runner.run(&checkout.root, Plumbing::CheckIgnore, &arguments)
            })
            .is_ok(),
    }
}

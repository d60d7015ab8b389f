//! The checkouts that git registers for one repository.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::checkout::Checkout;
use crate::config::LayoutConfig;
use crate::files::{canonical_or_clean, read_small};
use crate::head;
use crate::layout::linked_git_dir;
use crate::pointer::parse_link_file;

/// Most registered worktrees that are looked at: beyond any honest repository.
const WORKTREES_MAX: usize = 1_024;

/// Whether a registered checkout can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorktreeState {
    /// It is there.
    Present,
    /// Its folder is not there.
    Missing,
    /// Somebody locked it (`git worktree lock`); it is never pruned.
    Locked {
        /// The reason that was given, if any.
        reason: Option<String>,
        /// Whether it is there and usable at the moment.
        present: bool,
    },
    /// Its folder is there, but holds no `.git`: git would prune the registration.
    Prunable,
    /// Its folder is there, but its `.git` leads to something else: the repository was moved, or
    /// another checkout took its place. `git worktree repair` mends the former.
    Unlinked,
}

impl WorktreeState {
    /// Returns whether the checkout is there and usable.
    pub const fn is_present(&self) -> bool {
        matches!(self, Self::Present | Self::Locked { present: true, .. })
    }
}

/// One checkout in the repository's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    /// The top of the work tree; canonical where it is there, else as registered.
    pub root: PathBuf,
    /// Whether it can be used.
    pub state: WorktreeState,
    /// Whether it is the work tree that the repository was made with.
    pub primary: bool,
    /// Its branch without `refs/heads/`; `None` when detached or unreadable.
    pub branch: Option<String>,
}

/// Returns the repository's checkouts in git's order: the primary one, then by path.
///
/// A bare repository is no checkout. The primary work tree of a submodule is its folder, not its
/// git directory. A checkout that was moved and asks for itself is listed where it is, even before
/// `git worktree repair`. A folder without git is its own only checkout. Nothing is created,
/// repaired or pruned.
pub fn worktrees(checkout: &Checkout) -> Vec<Worktree> {
    let Some(common_dir) = &checkout.common_dir else {
        let root = checkout.root.clone();
        return vec![Worktree {
            root,
            state: WorktreeState::Present,
            primary: true,
            branch: None,
        }];
    };
    let mut listed = Vec::new();
    listed.extend(primary(common_dir, Some(checkout)));
    listed.extend(linked(common_dir, Some(checkout)));
    listed
}

/// Returns the roots of a repository's usable checkouts, for a caller that stands in none of them.
pub(crate) fn present_roots(common_dir: &Path) -> Vec<PathBuf> {
    primary(common_dir, None)
        .into_iter()
        .chain(linked(common_dir, None))
        .filter(|worktree| worktree.state.is_present())
        .map(|worktree| worktree.root)
        .collect()
}

/// The primary checkout, unless the repository is bare or says nowhere where it is.
fn primary(common_dir: &Path, asker: Option<&Checkout>) -> Option<Worktree> {
    let config = LayoutConfig::read(common_dir, common_dir);
    let asks_itself = asker.filter(|checkout| checkout.git_dir.as_deref() == Some(common_dir));
    let root = match (asks_itself, config.bare, &config.worktree) {
        (Some(checkout), ..) => checkout.root.clone(),
        (None, Some(true), _) => return None,
        (None, _, Some(worktree)) => canonical_or_clean(&common_dir.join(worktree)),
        (None, _, None) if common_dir.file_name().is_some_and(|name| name == ".git") => {
            common_dir.parent()?.to_path_buf()
        }
        (None, _, None) => return None,
    };
    let state = presence(&root, common_dir);
    let branch = head::branch(common_dir, common_dir, &config, Some(&root));
    Some(Worktree {
        root,
        state,
        primary: true,
        branch,
    })
}

/// The linked worktrees by path, one row per path.
fn linked(common_dir: &Path, asker: Option<&Checkout>) -> Vec<Worktree> {
    let config = LayoutConfig::read(common_dir, common_dir);
    let Ok(entries) = std::fs::read_dir(common_dir.join("worktrees")) else {
        return Vec::new();
    };
    // By the bytes of the path, as git sorts; paths themselves compare by names.
    let mut by_root: BTreeMap<OsString, Worktree> = BTreeMap::new();
    for entry in entries.filter_map(Result::ok).take(WORKTREES_MAX) {
        let Some(worktree) = registered(&entry.path(), common_dir, &config, asker) else {
            continue;
        };
        // A path that was used before may be registered twice: what is there counts.
        let known = by_root.get(worktree.root.as_os_str());
        if known.is_none_or(|known| worktree.state.is_present() || !known.state.is_present()) {
            by_root.insert(worktree.root.clone().into_os_string(), worktree);
        }
    }
    by_root.into_values().collect()
}

/// The worktree that one folder of `worktrees/` is about, `None` where it names no path.
fn registered(
    git_dir: &Path,
    common_dir: &Path,
    config: &LayoutConfig,
    asker: Option<&Checkout>,
) -> Option<Worktree> {
    let link = git_dir.join(parse_link_file(&read_small(&git_dir.join("gitdir")).ok()?)?);
    let registered = if link.file_name().is_some_and(|name| name == ".git") {
        canonical_or_clean(link.parent()?)
    } else {
        canonical_or_clean(&link)
    };
    let mut root = registered;
    let mut state = presence(&root, git_dir);
    if let Some(checkout) = asker
        && state != WorktreeState::Present
        && checkout.git_dir.as_deref() == Some(git_dir)
    {
        root.clone_from(&checkout.root);
        state = WorktreeState::Present;
    }
    if let Ok(reason) = read_small(&git_dir.join("locked")) {
        let reason = String::from_utf8_lossy(&reason).trim().to_owned();
        state = WorktreeState::Locked {
            reason: Some(reason).filter(|reason| !reason.is_empty()),
            present: state == WorktreeState::Present,
        };
    }
    let askable = state.is_present().then_some(root.as_path());
    let branch = head::branch(git_dir, common_dir, config, askable);
    Some(Worktree {
        root,
        state,
        primary: false,
        branch,
    })
}

/// Whether the work tree at `root` is there and belongs to this git directory.
fn presence(root: &Path, git_dir: &Path) -> WorktreeState {
    if !root.is_dir() {
        WorktreeState::Missing
    } else if linked_git_dir(root).as_deref() == Some(git_dir) {
        WorktreeState::Present
    } else if root.join(".git").exists() {
        WorktreeState::Unlinked
    } else {
        WorktreeState::Prunable
    }
}

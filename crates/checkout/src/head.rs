//! Where a checkout's `HEAD` stands.

use std::path::Path;

use gix_ref::Target;
use gix_ref::bstr::{BStr, ByteSlice as _};
use gix_ref::file::Store;

use crate::checkout::Checkout;
use crate::config::LayoutConfig;
use crate::runner::{GitRunner, Plumbing};

/// Symbolic references that are followed to a commit: git's own bound.
const FOLLOWED_MAX: usize = 5;

/// What a checkout stands on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The branch without `refs/heads/`, another reference in full; `None` when detached.
    pub branch: Option<String>,
    /// The id of the commit as hex; `None` on a branch without one.
    pub commit: Option<String>,
}

/// Returns what a checkout stands on, now.
///
/// A few small files are read; where references are not files (reftable), git is asked. What
/// cannot be read is `None`, and so is everything about a folder.
pub fn head(checkout: &Checkout) -> Head {
    let (Some(git_dir), Some(common_dir)) = (&checkout.git_dir, &checkout.common_dir) else {
        return Head::default();
    };
    let config = LayoutConfig::read(git_dir, common_dir);
    if config.references_are_files {
        return References::open(git_dir, common_dir, &config).head();
    }
    Head {
        branch: branch_by_git(&checkout.root),
        commit: commit_by_git(&checkout.root),
    }
}

/// Returns the branch of a work tree by its git directory; `root` is where git can be asked.
pub(crate) fn branch(
    git_dir: &Path,
    common_dir: &Path,
    config: &LayoutConfig,
    root: Option<&Path>,
) -> Option<String> {
    if config.references_are_files {
        return References::open(git_dir, common_dir, config).branch();
    }
    root.and_then(branch_by_git)
}

/// The references of one work tree, in files.
struct References(Store);

impl References {
    fn open(git_dir: &Path, common_dir: &Path, config: &LayoutConfig) -> Self {
        let git_dir = git_dir.to_path_buf();
        Self(if git_dir == common_dir {
            Store::at(git_dir, config.object_hash)
        } else {
            Store::for_linked_worktree(git_dir, common_dir.to_path_buf(), config.object_hash)
        })
    }

    fn head(&self) -> Head {
        let Some(mut target) = self.target(BStr::new("HEAD")) else {
            return Head::default();
        };
        let branch = branch_of(&target);
        for _ in 0..=FOLLOWED_MAX {
            match target {
                Target::Object(id) => {
                    return Head {
                        branch,
                        commit: Some(id.to_string()),
                    };
                }
                Target::Symbolic(name) => match self.target(name.as_bstr()) {
                    Some(next) => target = next,
                    None => break,
                },
            }
        }
        Head {
            branch,
            commit: None,
        }
    }

    fn branch(&self) -> Option<String> {
        branch_of(&self.target(BStr::new("HEAD"))?)
    }

    fn target(&self, name: &BStr) -> Option<Target> {
        let found = self.0.try_find(name).ok().flatten()?;
        // A partial name may have found another reference.
        (found.name.as_bstr() == name).then_some(found.target)
    }
}

fn branch_of(target: &Target) -> Option<String> {
    match target {
        Target::Symbolic(name) => Some(short(name.as_bstr())),
        Target::Object(_) => None,
    }
}

fn short(name: &[u8]) -> String {
    name.strip_prefix(b"refs/heads/")
        .unwrap_or(name)
        .to_str_lossy()
        .into_owned()
}

fn branch_by_git(root: &Path) -> Option<String> {
    ask(root, Plumbing::SymbolicRef, &["--quiet", "HEAD"]).map(|name| short(&name))
}

fn commit_by_git(root: &Path) -> Option<String> {
    let id = ask(
        root,
        Plumbing::RevParse,
        &["--quiet", "--verify", "HEAD^{commit}"],
    )?;
    String::from_utf8(id).ok()
}

fn ask(root: &Path, command: Plumbing, arguments: &[&str]) -> Option<Vec<u8>> {
    let answer = GitRunner::new()
        .and_then(|runner| runner.run(root, command, arguments))
        .ok()?;
    let line = answer.trim_ascii_end();
    (!line.is_empty()).then(|| line.to_vec())
}

//! A checkout and what identifies it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::id::{CheckoutId, RepositoryId};

/// What kind of work tree a checkout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckoutKind {
    /// The work tree that a repository was made with.
    Primary,
    /// A work tree that `git worktree add` made, of a submodule's repository as well.
    LinkedWorktree,
    /// The primary work tree of a submodule whose git directory lies in the outer repository's.
    ///
    /// One that keeps its own `.git` folder is [`Self::Primary`]: a repository like any other.
    Submodule,
    /// A folder that git has no part in.
    Folder,
}

/// A working tree, by the one path it is known under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    /// The top of the work tree; canonical.
    pub root: PathBuf,
    /// What kind of work tree it is.
    pub kind: CheckoutKind,
    /// The git directory of this work tree; canonical; `None` for a folder.
    pub git_dir: Option<PathBuf>,
    /// The git directory that the repository's work trees share; canonical; `None` for a folder.
    pub common_dir: Option<PathBuf>,
    /// The device of the root.
    pub device: u64,
    /// The inode of the root on its device.
    pub inode: u64,
}

impl Checkout {
    /// Returns the id of the checkout: a hash of its root.
    pub fn id(&self) -> CheckoutId {
        CheckoutId::of(&self.root)
    }

    /// Returns the id of the repository: a hash of the common directory, for a folder of the root.
    pub fn repository_id(&self) -> RepositoryId {
        RepositoryId::of(self.shared_place())
    }

    /// The common directory, for a folder the root.
    fn shared_place(&self) -> &Path {
        self.common_dir.as_deref().unwrap_or(&self.root)
    }
}

/// What a repository's random key is bound to, so that a move keeps the key.
///
/// A file system gives the inode of a removed directory to the next one that is made, often at
/// once. The two times tell the directories apart; each is `None` where the file system does not
/// know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonDirIdentity {
    /// The device of the common directory.
    pub device: u64,
    /// Its inode on that device.
    pub inode: u64,
    /// Its canonical path.
    pub path: PathBuf,
    /// When the directory was made, since the Unix epoch.
    ///
    /// It stays for a directory's life, except that an overlay file system (a container's root)
    /// makes a directory of an image anew when it is first written to.
    pub born: Option<Duration>,
    /// When its file `description` was last written, since the Unix epoch.
    ///
    /// `git init` writes that file, and next to nobody ever does again; a copy on an overlay file
    /// system keeps the time. `None` also for a folder, and without the file.
    pub described: Option<Duration>,
}

/// Returns what identifies the repository's common directory now; for a folder, its root.
///
/// # Errors
///
/// When the directory is gone or may not be looked at.
pub fn common_dir_identity(checkout: &Checkout) -> io::Result<CommonDirIdentity> {
    let path = checkout.shared_place();
    let metadata = fs_err::metadata(path)?;
    let described = checkout.common_dir.as_ref().and_then(|common_dir| {
        let file = std::fs::symlink_metadata(common_dir.join("description")).ok()?;
        since_epoch(file.modified())
    });
    Ok(CommonDirIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        path: path.to_path_buf(),
        born: since_epoch(metadata.created()),
        described,
    })
}

/// A time that says something: a file system that does not know one may also answer with zero.
fn since_epoch(time: io::Result<SystemTime>) -> Option<Duration> {
    let time = time.ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (!time.is_zero()).then_some(time)
}

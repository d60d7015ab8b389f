//! Where an agent stands: the checkout around a path, its ids and worktrees, and the one git runner.
//!
//! Everything here is synchronous and reads a handful of small files. The layout of a repository
//! (`.git` files, common directories, registered worktrees) is read by this crate itself, because
//! those files mean the same in every repository format; configuration and references are read by
//! gix; what only git may decide (whether it trusts a repository of another owner) or only git can
//! read (the reftable format) is asked of git, through [`GitRunner`].
//!
//! Nothing in this crate creates, prunes, repairs or configures anything in a repository, and no
//! variable of the environment moves an answer to another repository.

mod checkout;
mod claim_path;
mod clock;
mod config;
mod environment;
mod files;
mod head;
mod id;
mod key_map;
mod layout;
mod ownership;
mod pointer;
mod repository_keys;
mod resolve;
mod root_index;
mod runner;
mod shared_file;
mod worktrees;

pub use checkout::{Checkout, CheckoutKind, CommonDirIdentity, common_dir_identity};
pub use claim_path::{ClaimPathError, claim_path};
pub use config::{ignore_case, is_ignored, is_tracked};
pub use head::{Head, head};
pub use id::{CheckoutId, IdError, RepositoryId, RepositoryKey};
pub use layout::is_checkout_top;
pub use pointer::{GitFileError, parse_git_file, parse_link_file};
pub use repository_keys::{RepositoryKeys, RepositoryKeysError};
pub use resolve::{ResolveError, resolve};
pub use root_index::{RootIndex, RootIndexError, parse_root_records};
pub use runner::{GitError, GitRunner, Plumbing};
pub use worktrees::{Worktree, WorktreeState, worktrees};

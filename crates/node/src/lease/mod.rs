//! The lease on disk: locks, the alive file, the document, and one tenure from start to end.
//!
//! What is decided here is decided by `earshot_proto::lease`; these files only read, lock and
//! write, in the order that `docs/design/lease.md` states.

mod alive;
mod examine;
mod files;
mod lock;
mod tenure;

pub(crate) use examine::examine;
pub(crate) use lock::{LockError, lock_within, pause};
pub(crate) use tenure::{AcquireError, Acquired, Plan, Tenure, here, remove_dead_sockets};

//! The lease on disk: locks, the alive file, the document, and the thread that keeps them.
//!
//! What is decided is decided by `earshot_proto::lease`; these files only read, lock, write and
//! look, one effect after another.

mod alive;
mod examine;
mod files;
mod gate;
mod keeper;
mod kill;
mod lock;

pub(crate) use alive::probe;
pub(crate) use examine::{NONCE_HEADER, PROOF_HEADER, examine, prove};
pub(crate) use files::{read_lease, sync_folder};
pub(crate) use gate::{Gate, moved};
pub(crate) use keeper::{Keeper, KeeperError, Kept, Order, here};
pub(crate) use kill::{kill_holder, writer_of};
pub(crate) use lock::{LockError, Locked, is_held_lately, lock_within, pause};

//! The only SQL of earshot: what outlives a node, in SQLite files.
//!
//! [`Journal`] is the file in which a node keeps its board and the wire sessions of its clients,
//! with the fence that shuts an older node out and the record of every command, so that a repeated
//! one has its effect once. All of it is synchronous and is used from one thread.

mod journal;

pub use journal::{
    Batch, Begun, CommandKey, CommitError, Execution, Fault, Fence, Journal, Loaded, OpenError,
    PeerEntry, RESULT_BYTES_MAX, Receipt, Refused, SEATS_MAX, SeatHash, Started, UNACKED_MAX,
    WireSessionRecord,
};

//! The lease of a checkout: its document, the judgement of its holder, and the way to become one.
//!
//! - [`parse`] reads `lease.json`, whoever wrote it; [`LeaseDocument::encode`] writes it.
//! - [`holder_verdict`] says whether the holder lives, from facts that a shell gathered;
//!   [`standing`] says it to a person.
//! - [`HeartbeatWatch`] turns repeated readings of a heartbeat into the fact "no progress since".
//! - [`Lifecycle`] is the life of a node from its first look at the lease to its end;
//!   [`next_epoch`] numbers its tenures.
//! - [`decide`] says whether a command takes effect, inside the transaction that would give it one.

mod acquire;
mod document;
mod epoch;
mod execute;
mod fields;
mod ids;
mod timings;
mod verdict;
mod version;
mod watch;

pub use acquire::{
    Effect, End, FileId, FilesSeen, Identity, Input, Lifecycle, Permit, Phase, PredecessorSeen,
};
pub use document::{
    FrozenFields, FrozenReason, LEASE_BYTES_MAX, LEASE_SCHEMA, LeaseDocument, LeaseState,
    PREDECESSORS_MAX, Parsed, Place, Predecessor, Process, parse,
};
pub use epoch::{Epoch, EpochsExhausted, next_epoch};
pub use execute::{BodyDigest, Command, Decision, DoneRow, Recorded, decide, raised_floor};
pub use fields::Defect;
pub use ids::{AliveName, LeaseToken, Pid};
pub use timings::{DeclaredTimings, Timings};
pub use verdict::{
    AliveLock, Answer, Examination, Here, Outdated, ProcessFact, Proof, Standing, Verdict,
    holder_verdict, kill_target, standing,
};
pub use version::ReleaseVersion;
pub use watch::{Beat, HeartbeatWatch, Watched};

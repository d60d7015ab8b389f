//! Every decision of earshot, as pure state machines and values.
//!
//! Nothing here opens a socket or a file, reads a clock or asks for randomness: an input comes with
//! the time at which it came, and what is to be done about it goes back as a value.

#![warn(
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm
)]

pub mod board;
pub mod claims;
mod id;
pub mod lease;
pub mod limits;
pub mod mesh;
pub mod text;
mod time;

pub use id::{PeerId, PeerIdError, SeatId, SeatIdError};
pub use time::{Now, Timestamp};

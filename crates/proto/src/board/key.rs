//! What tells one peer from another: a secret, shown only as its hash.

use std::fmt;

use crate::id::SeatId;

/// Keeps these hashes apart from every other hash of the same bytes. Never changes.
const SEAT_ID_CONTEXT: &str = "earshot 2026 board: what is shown in place of a peer's key";

/// What a board knows a peer by.
///
/// Whoever knows it can speak as that peer, so nothing prints it: `Debug` shows the seat id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerKey {
    /// The seat that a bridge minted for its client's process life.
    Seat([u8; 16]),
    /// The wire session of a client that speaks to the node directly.
    WireSession(String),
    /// The session that a client without wire sessions names in a header.
    Session(String),
    /// The process that a command-line caller runs under; it is known, not secret.
    Cli {
        /// Its process id.
        pid: u32,
        /// When it started, in the system's own unit, so that a reused pid is another peer.
        started_at: u64,
    },
    /// The ticket that an anonymous caller was given for its own announcement.
    Ticket([u8; 16]),
}

impl PeerKey {
    /// Returns what is shown in place of the key.
    pub fn seat_id(&self) -> SeatId {
        let mut hasher = blake3::Hasher::new_derive_key(SEAT_ID_CONTEXT);
        match self {
            Self::Seat(seat) => hasher.update(b"seat:").update(seat),
            Self::WireSession(id) => hasher.update(b"wire:").update(id.as_bytes()),
            Self::Session(id) => hasher.update(b"session:").update(id.as_bytes()),
            Self::Cli { pid, started_at } => hasher
                .update(b"cli:")
                .update(&pid.to_be_bytes())
                .update(&started_at.to_be_bytes()),
            Self::Ticket(ticket) => hasher.update(b"ticket:").update(ticket),
        };
        let mut bits = [0; 8];
        hasher.finalize_xof().fill(&mut bits);
        SeatId::from_hash_bits(bits)
    }

    /// Returns whether the peer departs when nothing is heard of it; a command-line one stays while
    /// its process lives.
    pub(super) const fn departs_in_silence(&self) -> bool {
        match self {
            Self::Seat(_) | Self::WireSession(_) | Self::Session(_) | Self::Ticket(_) => true,
            Self::Cli { .. } => false,
        }
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Seat(_) => "Seat",
            Self::WireSession(_) => "WireSession",
            Self::Session(_) => "Session",
            Self::Cli { .. } => "Cli",
            Self::Ticket(_) => "Ticket",
        };
        write!(out, "{kind}({})", self.seat_id())
    }
}
